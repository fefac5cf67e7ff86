//! Records crashes of servers, so that a test that saw one fails in each later try too.
//!
//! Each crash leaves a file in RUN/crashes with the name of the test. A test that finds its own file there fails at once.
//! `scripts/testing.sh` fails if there is any file.

use crate::environment::environment;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the lines of a server's log that report a crash of one of its processes.
pub fn crashes(log: &str) -> Vec<&str> {
    const SIGNS: [&str; 3] = ["was terminated by signal", "PANIC:", "TRAP:"];
    log.lines()
        .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        .collect()
}

/// Records the crashes in the log of the server in this folder, if there are any.
pub fn record(server: &Path, log: &str) {
    let crashes = crashes(log);
    if crashes.is_empty() {
        return;
    }
    let (test, file) = record_of_this_test();
    let text: String = crashes
        .iter()
        .map(|line| {
            format!(
                "{test}: {}: {line}
",
                server.display()
            )
        })
        .collect();
    let written = fs::create_dir_all(environment().run.join("crashes")).and_then(|()| fs::write(&file, text));
    if let Err(error) = written {
        eprintln!("{}: {error}", file.display());
    }
}

/// Fails if the server crashed in an earlier try of this test.
pub fn assert_none_before() {
    let is_retry = std::env::var("NEXTEST_ATTEMPT").is_ok_and(|attempt| attempt != "1");
    let recorded = recorded().filter(|_| is_retry);
    assert!(
        recorded.is_none(),
        "the server crashed in an earlier try: {recorded:?}"
    );
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
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let test = format!(
        "{} {}",
        variable("NEXTEST_BINARY_ID"),
        variable("NEXTEST_TEST_NAME")
    );
    let file = test.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    (test, environment().run.join("crashes").join(file))
}

#[cfg(test)]
mod tests {
    use super::crashes;

    #[test]
    fn a_shutdown_is_not_a_crash() {
        let crash = "2026 [1] LOG:  server process (PID 7) was terminated by signal 11: Segmentation fault";
        let log = format!(
            "2026 [1] LOG:  starting\n{crash}\n2026 [1] LOG:  terminating any other active server processes"
        );
        assert_eq!(crashes(&log), [crash]);
        assert!(crashes("2026 [1] FATAL:  terminating connection due to administrator command").is_empty());
    }
}
