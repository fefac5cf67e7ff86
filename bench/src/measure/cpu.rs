//! The CPU time of server processes, as the kernel counts it.

use std::fs;
use std::time::{Duration, Instant};

/// The longest wait for a process to fall asleep after its answer has arrived.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// `USER_HZ`, which is 100 on every Linux that PostgreSQL runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Returns the seconds of CPU that a process has used. Waits until it sleeps, because before that the kernel's count
/// is behind by up to one tick.
pub fn seconds_of(pid: u32) -> f64 {
    let deadline = Instant::now() + MAX_WAIT;
    while state_of(pid) == Some('R') && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    // The kernel counts nanoseconds if it keeps scheduler statistics.
    fs::read_to_string(format!("/proc/{pid}/schedstat"))
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map(|ns| ns / 1e9)
        .unwrap_or_else(|| ticks(pid, 14) / TICKS_A_SECOND)
}

/// Returns the seconds of CPU that a postmaster's ended children have used, in steps of 10 ms.
pub fn seconds_of_children(postmaster: u32) -> f64 {
    ticks(postmaster, 16) / TICKS_A_SECOND
}

fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name before the state may contain anything. It ends at the last parenthesis.
    text.rsplit_once(") ").map(|(_, rest)| rest.to_string())
}

fn state_of(pid: u32) -> Option<char> {
    stat(pid)?.chars().next()
}

/// Returns the sum of a field and the next one: user and system time. Fields are numbered from 1, as in proc(5).
fn ticks(pid: u32, field: usize) -> f64 {
    let stat = stat(pid).unwrap_or_else(|| panic!("process {pid} is gone"));
    // The rest begins with field 3.
    stat.split(' ')
        .skip(field - 3)
        .take(2)
        .filter_map(|number| number.parse::<f64>().ok())
        .sum()
}

/// Returns how many children a process has.
pub fn children(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map_or(0, |pids| pids.split_whitespace().count())
}

/// Waits until a postmaster has at most this many children. The kernel adds a child's CPU time when the child is gone.
pub fn wait_for_children(postmaster: u32, most: usize) {
    const LONGEST: Duration = Duration::from_secs(2);
    let deadline = Instant::now() + LONGEST;
    while children(postmaster) > most && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}
