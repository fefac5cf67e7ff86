//! Processes of a server as the operating system sees them: memory, limits, signals.

use crate::environment::environment;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn proc_file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from("/proc").join(pid.to_string()).join(name)
}

/// Returns a figure of /proc/PID/status in bytes, 0 where the process has gone.
pub fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(proc_file(pid, "status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Returns the memory that belongs to this process alone.
pub fn private_bytes(pid: u32) -> u64 {
    status_bytes(pid, "RssAnon")
}

/// Returns the most memory that the process had since [`reset_peak`], shared memory that it touched included.
pub fn peak_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM")
}

/// Sets the peak back to what the process has now.
pub fn reset_peak(pid: u32) {
    fs::write(proc_file(pid, "clear_refs"), "5").expect("the peak can be set back");
}

/// Limits the address space of a running process; `None` lifts the limit.
pub fn limit_address_space(pid: u32, bytes: Option<u64>) {
    let limit = bytes.map_or("unlimited".to_string(), |bytes| bytes.to_string());
    // The soft limit alone: who has lowered the hard one cannot lift it again.
    let status = environment()
        .as_server("prlimit".as_ref())
        .args(["--pid", &pid.to_string(), &format!("--as={limit}:")])
        .status()
        .expect("prlimit can be run");
    assert!(status.success(), "prlimit of process {pid}");
}

/// Sends a signal; a process that has gone does not matter.
pub fn send_signal(pid: u32, signal: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status();
}

/// Whether the process is stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(proc_file(pid, "stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

/// Returns the children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let name = format!("task/{pid}/children");
    let list = fs::read_to_string(proc_file(pid, &name)).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Returns the bytes of the dynamic shared memory that the server's processes have mapped. A segment that nobody has
/// mapped is not seen: let a session read the views first.
pub fn dynamic_shared_memory(postmaster: u32) -> u64 {
    let mut segments: BTreeMap<String, u64> = BTreeMap::new();
    for pid in children(postmaster) {
        for line in fs::read_to_string(proc_file(pid, "maps"))
            .unwrap_or_default()
            .lines()
        {
            let Some(at) = line.find("/dev/shm/PostgreSQL.") else {
                continue;
            };
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap_or(0);
            let bytes = range.map_or(0, |(from, to)| number(to) - number(from));
            segments.insert(line[at..].to_string(), bytes);
        }
    }
    segments.values().sum()
}
