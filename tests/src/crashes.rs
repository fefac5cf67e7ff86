//! Records crashes of servers: each leaves a file in RUN/crashes with the name of the test.
//! `scripts/testing.sh` fails if there is any file.
//!
//! A server's folder has the rest: its log, the ids of the processes that the test killed itself (`killed`),
//! and the crashes that the log does not show any more or never did (`crashes`).

use crate::environment::environment;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Notes that the test kills a process of the server in this folder. The end of this process is not a crash.
pub fn expect_kill(server: &Path, pid: u32) {
    append(&server.join("killed"), &[pid.to_string()]);
}

/// Notes crashes of the server in this folder, which its log does not show.
pub fn note(server: &Path, lines: &[String]) {
    append(&server.join("crashes"), lines);
}

/// Returns the lines that report crashes of the server in this folder, except those of processes that the
/// test killed.
pub fn crashes(server: &Path) -> Vec<String> {
    let read = |name: &str| {
        let bytes = fs::read(server.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let killed = read("killed");
    let killed: Vec<&str> = killed.lines().collect();
    let (noted, log) = (read("crashes"), read("log"));
    let logged = logged(&log, &killed);
    noted.lines().chain(logged).map(String::from).collect()
}

/// Returns the lines of a log that report a crash, except those of the processes in `killed`.
fn logged<'a>(log: &'a str, killed: &[&str]) -> impl Iterator<Item = &'a str> {
    const SIGNS: [&str; 3] = ["was terminated by signal", "PANIC:", "TRAP:"];
    let signs: Vec<String> = killed
        .iter()
        .map(|pid| format!("(PID {pid}) was terminated by signal 9"))
        .collect();
    let is_crash = |line: &str| SIGNS.iter().any(|sign| line.contains(sign));
    let is_killed = move |line: &str| signs.iter().any(|sign| line.contains(sign));
    log.lines().filter(move |line| is_crash(line) && !is_killed(line))
}

/// Records the crashes of the server in this folder, if there are any, and returns them.
pub fn record(server: &Path) -> Vec<String> {
    let crashes = crashes(server);
    if !crashes.is_empty() {
        let (test, file) = record_of_this_test();
        let lines: Vec<String> = crashes
            .iter()
            .map(|line| format!("{test}: {}: {line}", server.display()))
            .collect();
        let _ = fs::create_dir_all(environment().run.join("crashes"));
        append(&file, &lines);
    }
    crashes
}

/// Returns the recorded crashes of this test.
pub fn recorded() -> Option<String> {
    fs::read_to_string(record_of_this_test().1).ok()
}

/// Deletes the record of this test, because the crash was intended.
pub fn forget() {
    let _ = fs::remove_file(record_of_this_test().1);
}

/// Returns cargo-nextest's name of the test that this process runs, and the file of its crashes.
fn record_of_this_test() -> (String, PathBuf) {
    let file = environment().run.join("crashes").join(file_name_of_this_test());
    (name_of_this_test(), file)
}

fn name_of_this_test() -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    format!(
        "{} {}",
        variable("NEXTEST_BINARY_ID"),
        variable("NEXTEST_TEST_NAME")
    )
}

/// Returns a file's name for records of the test that this process runs.
pub fn file_name_of_this_test() -> String {
    name_of_this_test().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Appends lines to a file. Each line is one write, because threads of a test may share the server.
fn append(file: &Path, lines: &[String]) {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut opened| {
        lines
            .iter()
            .try_for_each(|line| opened.write_all(format!("{line}\n").as_bytes()))
    });
    if let Err(error) = written {
        eprintln!("{}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::logged;

    #[test]
    fn a_shutdown_is_not_a_crash() {
        let crash = "2026 [1] LOG:  server process (PID 7) was terminated by signal 11: Segmentation fault";
        let log = format!(
            "2026 [1] LOG:  starting\n{crash}\n2026 [1] LOG:  terminating any other active server processes"
        );
        assert_eq!(logged(&log, &[]).collect::<Vec<_>>(), [crash]);
        let ended = "2026 [1] FATAL:  terminating connection due to administrator command";
        assert_eq!(logged(ended, &[]).count(), 0);
    }

    #[test]
    fn a_process_that_the_test_killed_did_not_crash() {
        let line = |pid, signal| {
            format!("2026 [1] LOG:  server process (PID {pid}) was terminated by signal {signal}")
        };
        let log = [line(17, "9: Killed"), line(7, "9: Killed"), line(17, "11: x")].join("\n");
        let found: Vec<&str> = logged(&log, &["17"]).collect();
        assert_eq!(found, [line(7, "9: Killed"), line(17, "11: x")]);
    }
}
