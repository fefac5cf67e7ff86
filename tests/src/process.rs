//! Memory, limits and signals of a server's processes.

use crate::environment::environment;
use procfs::process::{MMPermissions, MMapPath, Process, Status};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

fn status(pid: u32) -> Option<Status> {
    process(pid)?.status().ok()
}

/// Returns the memory that belongs to this process alone; 0 if it has ended.
pub fn private_bytes(pid: u32) -> u64 {
    status(pid).and_then(|status| status.rssanon).unwrap_or(0) * 1024
}

/// The bytes of the pages that no other process has mapped and that differ from a file.
pub struct OwnPages {
    /// Those of its private memory. What it still shares with the postmaster does not count, nor what nobody
    /// writes: pages of a file of code are dirty until the system has written that file.
    pub private: u64,
    /// Those of the server's dynamic shared memory.
    pub dynamic: u64,
}

/// Returns the pages that belong to this process alone.
pub fn own_pages(pid: u32) -> OwnPages {
    let maps = process(pid).and_then(|process| process.smaps().ok());
    let mut own = OwnPages {
        private: 0,
        dynamic: 0,
    };
    for map in maps.iter().flatten() {
        let bytes = map.extension.map.get("Private_Dirty").copied().unwrap_or(0);
        if !map.perms.contains(MMPermissions::SHARED) {
            own.private += if map.perms.contains(MMPermissions::WRITE) {
                bytes
            } else {
                0
            };
        } else if matches!(&map.pathname, MMapPath::Path(path) if path.starts_with("/dev/shm")) {
            own.dynamic += bytes;
        }
    }
    own
}

/// Returns the peak memory of the process since [`reset_peak`], including shared memory that it touched.
pub fn peak_bytes(pid: u32) -> u64 {
    status(pid).and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// Returns the address space of the process; 0 if it has ended.
pub fn address_space(pid: u32) -> u64 {
    status(pid).and_then(|status| status.vmsize).unwrap_or(0) * 1024
}

/// Returns the number of voluntary context switches of the process.
pub fn sleeps(pid: u32) -> u64 {
    let switches = status(pid).and_then(|status| status.voluntary_ctxt_switches);
    switches.unwrap_or_else(|| panic!("process {pid} has ended"))
}

/// Returns how often the process gave up its processor, or lost it.
pub fn context_switches(pid: u32) -> u64 {
    let lost = status(pid).and_then(|status| status.nonvoluntary_ctxt_switches);
    sleeps(pid) + lost.unwrap_or_else(|| panic!("process {pid} has ended"))
}

/// Returns the seconds that the process's first thread has run on a processor.
pub fn processor_time(pid: u32) -> f64 {
    let times = process(pid).and_then(|process| process.schedstat().ok());
    let times = times.unwrap_or_else(|| panic!("process {pid} has ended"));
    times.sum_exec_runtime as f64 / 1e9
}

/// Returns the seconds that the process's first thread has waited for a processor.
pub fn waited_for_processor(pid: u32) -> f64 {
    let times = process(pid).and_then(|process| process.schedstat().ok());
    let times = times.unwrap_or_else(|| panic!("process {pid} has ended"));
    times.run_delay as f64 / 1e9
}

/// Does the same for a session that has answered and is about to sleep: only then the kernel has counted all.
pub fn processor_time_when_idle(pid: u32) -> f64 {
    let deadline = Instant::now() + Duration::from_secs(10);
    let runs = || process(pid).is_some_and(|process| process.stat().is_ok_and(|stat| stat.state == 'R'));
    while runs() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    processor_time(pid)
}

/// Returns the process that traces this one; 0 if there is none.
pub fn tracer(pid: u32) -> Option<i32> {
    Some(status(pid)?.tracerpid)
}

/// Resets the peak to the current memory of the process.
pub fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak can be set back");
}

/// Limits the address space of a running process; `None` lifts the limit.
pub fn limit_address_space(pid: u32, bytes: Option<u64>) {
    let limit = bytes.map_or("unlimited".to_string(), |bytes| bytes.to_string());
    // Only the soft limit: a process that has lowered its hard limit cannot raise it again.
    let status = environment()
        .as_server("prlimit".as_ref())
        .args(["--pid", &pid.to_string(), &format!("--as={limit}:")])
        .status()
        .expect("prlimit can be run");
    assert!(status.success(), "prlimit of process {pid}");
}

/// Makes the process run whenever it can, before all usual ones. Does nothing where that is not allowed.
pub fn prefer(pid: u32) {
    let _ = Command::new("chrt")
        .args(["--fifo", "--pid", "1", &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status();
}

/// Sends a signal. Ignores a process that has ended.
pub fn send_signal(pid: u32, signal: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status();
}

/// Returns whether a signal has stopped the process.
pub fn is_stopped(pid: u32) -> bool {
    let stat = process(pid).and_then(|process| process.stat().ok());
    stat.is_some_and(|stat| stat.state == 'T')
}

/// Returns the children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let task = process(pid).and_then(|process| process.task_main_thread().ok());
    task.and_then(|task| task.children().ok()).unwrap_or_default()
}

/// Returns the command line of a process, which for processes of a server says what they do; empty if it has
/// ended.
pub fn title(pid: u32) -> String {
    let words = process(pid).and_then(|process| process.cmdline().ok());
    words.unwrap_or_default().join(" ")
}

/// Returns the protections of the parts of a file that the process has mapped, such as "r-xp".
pub fn protections(pid: u32, file: &Path) -> Vec<String> {
    let maps = process(pid).and_then(|process| process.maps().ok());
    let maps = maps.expect("the process's memory map");
    let of_file = maps
        .iter()
        .filter(|map| matches!(&map.pathname, MMapPath::Path(path) if path == file));
    of_file.map(|map| map.perms.as_str()).collect()
}

/// Returns where the process has mapped the library.
pub fn address_of_library(pid: u32) -> u64 {
    let maps = process(pid).and_then(|process| process.maps().ok());
    let maps = maps.expect("the process's memory map");
    let mut of_library = maps
        .iter()
        .filter(|map| matches!(&map.pathname, MMapPath::Path(path) if path.ends_with("pg_rowsource.so")));
    of_library.next().expect("it has loaded the library").address.0
}

/// Returns the bytes of dynamic shared memory that the server's processes have mapped. It does not see a
/// segment that no process has mapped, so let a session read the views first.
pub fn dynamic_shared_memory(postmaster: u32) -> u64 {
    let mut segments: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for pid in children(postmaster) {
        let maps = process(pid).and_then(|process| process.maps().ok());
        // Parts of a segment that are mapped with other rights have lines of their own.
        let mut of_process: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for map in maps.iter().flatten() {
            if let MMapPath::Path(path) = &map.pathname
                && path.to_string_lossy().starts_with("/dev/shm/PostgreSQL.")
            {
                *of_process.entry(path.clone()).or_default() += map.address.1 - map.address.0;
            }
        }
        for (path, bytes) in of_process {
            let most = segments.entry(path).or_default();
            *most = bytes.max(*most);
        }
    }
    segments.values().sum()
}
