//! What a result depends on besides the code: the machine and the versions.

use rowsource_tests::environment::environment;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub kernel: String,
    pub hypervisor: bool,
    pub clocksource: String,
    /// Processes that were ready to run, on the mean of the minute before.
    pub load: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versions {
    pub postgresql: String,
    pub pg_rowsource: String,
    /// The commit, with "+" where the checkout differs from it.
    pub commit: String,
    pub rustc: String,
}

/// UTC, as in RFC 3339.
pub fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// The value of the first line "key : value" of a file in /proc.
fn value_of(path: &str, key: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_string())
    })
}

/// What a program prints, or nothing.
fn said_by(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .current_dir(&environment().root)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}

impl Machine {
    pub fn this() -> Self {
        Machine {
            cpu: value_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_string()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: value_of("/proc/meminfo", "MemTotal")
                .and_then(|value| value.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kb| kb / 1024),
            kernel: line_of("/proc/sys/kernel/osrelease"),
            hypervisor: value_of("/proc/cpuinfo", "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            clocksource: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load: line_of("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

impl Versions {
    pub fn these() -> Self {
        let postgres = environment().pgbin.join("postgres");
        let commit = said_by("git", &["rev-parse", "--short=12", "HEAD"]);
        // What the laboratory itself writes does not make the library another one.
        let changed = said_by(
            "git",
            &["status", "--porcelain", "--", "src", "core/src", "Cargo.lock"],
        );
        Versions {
            postgresql: said_by(&postgres.to_string_lossy(), &["--version"])
                .trim_start_matches("postgres (PostgreSQL) ")
                .to_string(),
            pg_rowsource: env!("CARGO_PKG_VERSION").to_string(),
            commit: commit + if changed.is_empty() { "" } else { "+" },
            rustc: said_by("rustc", &["--version"]),
        }
    }
}
