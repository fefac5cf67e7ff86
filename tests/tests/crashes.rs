//! A crash of a server fails the test that started it, and is recorded.

use rowsource_tests::session::value;
use rowsource_tests::{Server, crashes, process};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Ends a server with crashes. Fails unless this fails the test and is recorded, and returns the record.
fn failed(server: Server) -> String {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(server)));
    let recorded = crashes::recorded();
    assert!(dropped.is_err(), "the crash fails the test");
    recorded.expect("the crash is recorded")
}

/// Crashes a backend as an error in it would, and waits until the log has it.
fn crash_unexpectedly(server: &Server) {
    const SIGN: &str = "was terminated by signal 11";
    let mut victim = server.connect();
    let pid: i32 = value(&mut victim, "SELECT pg_backend_pid()");
    process::send_signal(pid as u32, "SEGV");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.log().contains(SIGN) {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_crash_fails_its_test() {
    let server = Server::start("crash", &[]);
    crash_unexpectedly(&server);
    let recorded = failed(server);
    crashes::forget();
    assert!(recorded.contains("terminated by signal 11"), "{recorded}");
}

/// Emptying the log, and a crash that was intended, do not hide another one.
#[test]
fn a_crash_beside_an_intended_one_is_recorded() {
    let server = Server::start("crash-beside", &[]);
    server.crash_a_backend();
    server.assert_no_crash();
    crash_unexpectedly(&server);
    server.clear_log();
    server.crash_a_backend();
    server.clear_log();
    let recorded = failed(server);
    crashes::forget();
    assert_eq!(recorded.matches("terminated by signal").count(), 1, "{recorded}");
    assert!(recorded.contains("terminated by signal 11"), "{recorded}");
}

/// The postmaster's own crash is in no log.
#[test]
fn a_crash_of_the_postmaster_is_recorded() {
    let mut server = Server::start("crash-postmaster", &[]);
    process::send_signal(server.postmaster(), "SEGV");
    server.stop();
    let recorded = failed(server);
    crashes::forget();
    assert!(
        recorded.contains("the postmaster ended: signal: 11"),
        "{recorded}"
    );
}

/// Stopping a server, terminating a session, or killing the postmaster in a test is not a crash.
#[test]
fn an_orderly_end_is_not_a_crash() {
    let mut server = Server::start("no-crash", &[]);
    server.stop();
    server.launch();
    let mut client = server.connect();
    client
        .batch_execute("SELECT pg_terminate_backend(pg_backend_pid())")
        .expect_err("the session is ended");
    server.kill();
    server.launch();
    drop(server);
    assert_eq!(crashes::recorded(), None);
}
