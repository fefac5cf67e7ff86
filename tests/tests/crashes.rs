//! A server that crashes fails the test that started it, and no later try makes up for it.

use rowsource_tests::{Server, crashes};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_crash_is_never_forgotten() {
    let server = Server::start("crash", &[]);
    server.crash_a_backend();
    let failed = catch_unwind(AssertUnwindSafe(|| drop(server)));
    let recorded = crashes::recorded();
    crashes::forget();
    assert!(failed.is_err(), "the crash fails the test");
    assert!(
        recorded.is_some_and(|text| text.contains("terminated by signal 9")),
        "the crash is recorded"
    );
}

/// A server that was stopped, or a session that was ended, is no crash.
#[test]
fn an_orderly_end_is_no_crash() {
    let mut server = Server::start("no-crash", &[]);
    server.stop();
    server.launch();
    let mut client = server.connect();
    client
        .batch_execute("SELECT pg_terminate_backend(pg_backend_pid())")
        .expect_err("the session is ended");
    drop(server);
    assert_eq!(crashes::recorded(), None);
}
