//! The CPU time of server processes, as the kernel counts it.

use procfs::process::{Process, Stat};
use std::time::{Duration, Instant};

/// The longest wait for a process to fall asleep after its answer has arrived.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// Returns the seconds of CPU that a process has used. Waits until it sleeps, because before that the
/// kernel's count is behind by up to one tick.
pub fn seconds_of(pid: u32) -> f64 {
    let process = process(pid);
    let deadline = Instant::now() + MAX_WAIT;
    while stat(&process).state == 'R' && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    // The kernel counts nanoseconds if it keeps scheduler statistics.
    match process.schedstat() {
        Ok(schedstat) => schedstat.sum_exec_runtime as f64 / 1e9,
        Err(_) => {
            let stat = stat(&process);
            seconds(stat.utime + stat.stime)
        }
    }
}

/// Returns the seconds of CPU that a postmaster's ended children have used, in steps of 10 ms.
pub fn seconds_of_children(postmaster: u32) -> f64 {
    let stat = stat(&process(postmaster));
    seconds((stat.cutime + stat.cstime).unsigned_abs())
}

fn process(pid: u32) -> Process {
    Process::new(pid as i32).unwrap_or_else(|error| panic!("process {pid} is gone: {error}"))
}

fn stat(process: &Process) -> Stat {
    process
        .stat()
        .unwrap_or_else(|error| panic!("process {} is gone: {error}", process.pid))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// Returns how many children a process has.
pub fn children(pid: u32) -> usize {
    process(pid)
        .task_main_thread()
        .and_then(|thread| thread.children())
        .map_or(0, |pids| pids.len())
}

/// Waits until a postmaster has at most this many children. The kernel adds a child's CPU time when the child
/// is gone.
pub fn wait_for_children(postmaster: u32, most: usize) {
    const LONGEST: Duration = Duration::from_secs(2);
    let deadline = Instant::now() + LONGEST;
    while children(postmaster) > most && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}
