//! A crash of a server fails the test that started it, and each later try of this test.

use rowsource_tests::{Server, crashes};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_crash_fails_each_later_try() {
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

/// Stopping a server or terminating a session is not a crash.
#[test]
fn an_orderly_end_is_not_a_crash() {
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
