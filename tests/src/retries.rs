//! Assertions that no retry forgives.
//!
//! Tests of the group `timing` are retried, because a busy machine disturbs times. Memory and contents are not disturbed. If
//! such an assertion fails, each later try of the test fails too, as after a crash of its server.

use crate::crashes;
use crate::environment::environment;
use std::fs;
use std::path::PathBuf;

/// Fails this try and each later one unless the condition holds.
pub fn assert_in_every_try(holds: bool, message: &str) {
    if !holds {
        let file = record_of_this_test();
        let written = fs::create_dir_all(folder()).and_then(|()| fs::write(&file, message));
        if let Err(error) = written {
            eprintln!("{}: {error}", file.display());
        }
    }
    assert!(holds, "{message}");
}

/// Fails if the server crashed or such an assertion failed in an earlier try of this test. Each start of a server calls this.
pub fn assert_may_start() {
    assert_may_start_attempt(&std::env::var("NEXTEST_ATTEMPT").unwrap_or_default());
}

/// Does the same for this attempt. cargo-nextest counts attempts from 1.
pub fn assert_may_start_attempt(attempt: &str) {
    if matches!(attempt, "" | "1") {
        // It is of an earlier run.
        forget();
        return;
    }
    let crash = crashes::recorded();
    assert!(crash.is_none(), "the server crashed in an earlier try: {crash:?}");
    let failure = fs::read_to_string(record_of_this_test());
    assert!(failure.is_err(), "an earlier try failed for good: {failure:?}");
}

/// Deletes the record of this test.
pub fn forget() {
    let _ = fs::remove_file(record_of_this_test());
}

fn folder() -> PathBuf {
    environment().run.join("failed")
}

/// Returns the file that says that an assertion of the test that this process runs has failed.
fn record_of_this_test() -> PathBuf {
    folder().join(crashes::file_name_of_this_test())
}
