//! The CPU time of server processes, as the kernel counts it.

use std::fs;
use std::time::{Duration, Instant};

/// How long a process may take to fall asleep after its answer has arrived.
const PATIENCE: Duration = Duration::from_millis(20);

/// Seconds of CPU that a process has used, once it sleeps: before, the kernel's count is behind by up to a tick.
pub fn seconds_of(pid: u32) -> f64 {
    let deadline = Instant::now() + PATIENCE;
    while state_of(pid) == Some('R') && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    // Nanoseconds, where the kernel keeps scheduler statistics.
    fs::read_to_string(format!("/proc/{pid}/schedstat"))
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map(|ns| ns / 1e9)
        .unwrap_or_else(|| ticks(pid, 14) / ticks_a_second())
}

/// Seconds of CPU of a postmaster's ended children, in steps of 10 ms.
pub fn seconds_of_children(postmaster: u32) -> f64 {
    ticks(postmaster, 16) / ticks_a_second()
}

fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the state may hold anything but ends at the last parenthesis.
    text.rsplit_once(") ").map(|(_, rest)| rest.to_string())
}

fn state_of(pid: u32) -> Option<char> {
    stat(pid)?.chars().next()
}

/// The sum of the field with this number (from 1, as in proc(5)) and the next: user and system time.
fn ticks(pid: u32, field: usize) -> f64 {
    let stat = stat(pid).unwrap_or_else(|| panic!("process {pid} is gone"));
    // The first of the rest is field 3.
    stat.split(' ')
        .skip(field - 3)
        .take(2)
        .filter_map(|number| number.parse::<f64>().ok())
        .sum()
}

/// `USER_HZ`, which is 100 on every Linux that PostgreSQL runs on.
fn ticks_a_second() -> f64 {
    100.0
}

/// How many children a process has.
pub fn children(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map_or(0, |pids| pids.split_whitespace().count())
}

/// Waits until a postmaster has no more children than these: the CPU time of a child counts once it is gone.
pub fn wait_for_children(postmaster: u32, most: usize) {
    const LONGEST: Duration = Duration::from_secs(2);
    let deadline = Instant::now() + LONGEST;
    while children(postmaster) > most && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}
