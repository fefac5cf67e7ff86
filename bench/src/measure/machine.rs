//! Reads what a result depends on besides the code: the machine and the versions.

use crate::model::machine::{Machine, Versions};
use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
use rowsource_tests::environment::environment;
use std::fs;
use std::process::Command;

/// Returns the time in UTC, as in RFC 3339.
pub fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// Describes this machine.
pub fn machine() -> Machine {
    let cpus = CpuInfo::current().ok();
    Machine {
        cpu: cpus
            .as_ref()
            .and_then(|cpus| cpus.model_name(0))
            .unwrap_or("unknown")
            .to_string(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mb: Meminfo::current().map_or(0, |memory| memory.mem_total >> 20),
        kernel: line_of("/proc/sys/kernel/osrelease"),
        hypervisor: cpus
            .as_ref()
            .and_then(|cpus| cpus.flags(0))
            .is_some_and(|flags| flags.contains(&"hypervisor")),
        clocksource: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        // The kernel gives two decimals.
        load: LoadAverage::current().map_or(0.0, |load| (f64::from(load.one) * 100.0).round() / 100.0),
    }
}

/// Returns the versions of the programs and of the code.
pub fn versions() -> Versions {
    let postgres = environment().pgbin.join("postgres");
    let commit = output_of("git", &["rev-parse", "--short=12", "HEAD"]);
    // Only files that the library is built from count as changes. The records that a run writes do not.
    let changed = output_of(
        "git",
        &["status", "--porcelain", "--", "src", "core/src", "Cargo.lock"],
    );
    Versions {
        postgresql: output_of(&postgres.to_string_lossy(), &["--version"])
            .trim_start_matches("postgres (PostgreSQL) ")
            .to_string(),
        pg_rowsource: env!("CARGO_PKG_VERSION").to_string(),
        commit: commit + if changed.is_empty() { "" } else { "+" },
        rustc: output_of("rustc", &["--version"]),
    }
}

/// Returns a file of one line.
fn line_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Returns what a program prints, or an empty text if it cannot be run.
fn output_of(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .current_dir(&environment().root)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}
