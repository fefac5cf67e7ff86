//! Active session history on a server that has not preloaded the library: from 17 on, a function starts the
//! worker.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::worker;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::waiting::{until, until_waiting};

const START: &str = "SELECT rowsource_ash_start()";
const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource history'";

/// Starts a server, and creates the extension.
fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let mut all = vec!["autovacuum = off"];
    all.extend(settings);
    let server = Server::start(name, &all);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    (server, observer)
}

/// Fails unless there are no samples and the message says how to get them.
fn assert_not_sampled(observer: &mut Client, hint: &str) {
    let (code, message) = must_fail(observer, "SELECT * FROM rowsource_ash");
    assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(
        message.starts_with("the sessions are not sampled") && message.contains(hint),
        "{message}"
    );
}

#[test]
fn sampling_cannot_be_started_before_pg17() {
    let (server, mut observer) = server("ash-old", &[]);
    assert_not_sampled(&mut observer, "shared_preload_libraries");
    let (code, message) = must_fail(&mut observer, START);
    assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    for part in [
        "the sessions cannot be sampled, because pg_rowsource has no shared memory",
        "HINT: Add pg_rowsource to \"shared_preload_libraries\" and restart the server.",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(value::<i64>(&mut observer, WORKERS), 0);
    server.assert_no_crash();
}

#[test]
fn sampling_starts_on_request_pg17_plus() {
    let (server, mut observer) = server("ash-request", &[]);
    assert_not_sampled(&mut observer, "rowsource_ash_start()");
    assert_eq!(value::<i64>(&mut observer, WORKERS), 0);

    // Sessions that start it at the same time get the same one.
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let mut client = server.connect();
            std::thread::spawn(move || value::<i32>(&mut client, START))
        })
        .collect();
    let pids: Vec<i32> = starts
        .into_iter()
        .map(|start| start.join().expect("a start"))
        .collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(value::<i32>(&mut observer, START), pids[0]);
    until(&mut observer, &format!("SELECT ({WORKERS}) = 1"));
    assert_eq!(worker(&mut observer), pids[0].unsigned_abs());

    // It knows the nodes of sessions that have loaded the library, and that the others are active.
    let mut client = server.connect();
    run_each(&mut client, "LOAD 'pg_rowsource'");
    let measured = Busy::run(
        client,
        "SELECT count(*) FROM pg_class WHERE pg_sleep(300) IS NOT NULL",
    );
    let other = Busy::run(server.connect(), "SELECT pg_sleep(300)");
    for (pid, node) in [(measured.pid, "node_id = 1"), (other.pid, "node_id IS NULL")] {
        until_waiting(&mut observer, pid, "PgSleep");
        until(
            &mut observer,
            &format!(
                "SELECT count(*) > 10 FROM rowsource_ash WHERE pid = {pid} AND wait_event = 'PgSleep' AND {node}"
            ),
        );
    }
    run_each(&mut observer, "CREATE DATABASE gone; DROP DATABASE gone");

    // Terminated, it comes back, and the samples are still there.
    let first: String = value(&mut observer, "SELECT min(sample_time)::text FROM rowsource_ash");
    value::<bool>(
        &mut observer,
        &format!("SELECT pg_terminate_backend({})", pids[0]),
    );
    until(
        &mut observer,
        &format!("SELECT ({WORKERS} AND pid <> {}) = 1", pids[0]),
    );
    until(
        &mut observer,
        &format!(
            "SELECT min(sample_time) <= '{first}' AND max(sample_time) > now() - interval '10 s' FROM rowsource_ash"
        ),
    );
    assert_eq!(
        value::<i32>(&mut observer, START).unsigned_abs(),
        worker(&mut observer)
    );
    measured.cancel(&mut observer);
    other.cancel(&mut observer);

    // After a crash, PostgreSQL starts it again, with an empty ring.
    server.crash_a_backend();
    let mut observer = server.connect();
    until(&mut observer, &format!("SELECT ({WORKERS}) = 1"));
    value::<i32>(&mut observer, START);
    until(
        &mut observer,
        &format!(
            "SELECT pg_sleep(0.2) IS NOT NULL AND count(*) > 5 AND min(sample_time) > '{first}' FROM rowsource_ash"
        ),
    );
    server.assert_no_crash();
}

#[test]
fn without_a_place_for_a_worker_it_says_so_pg17_plus() {
    // PostgreSQL's launcher of logical replication has the only place.
    let (server, mut observer) = server("ash-no-place", &["max_worker_processes = 1"]);
    let (code, message) = must_fail(&mut observer, START);
    assert_eq!(code, SqlState::INSUFFICIENT_RESOURCES);
    assert!(
        message.contains("no place for another background worker")
            && message.contains("max_worker_processes"),
        "{message}"
    );
    assert_not_sampled(&mut observer, "rowsource_ash_start()");
    server.assert_no_crash();
}
