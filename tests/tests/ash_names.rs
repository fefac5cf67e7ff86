//! The report of active sessions names what ran, also where no plan says it, and who blocked others.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::waiting::{until, until_waiting};

fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &["jit = off", "autovacuum = off", "deadlock_timeout = '20ms'"],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE orders AS SELECT i AS id FROM generate_series(1, 1000) i; VACUUM ANALYZE orders",
    );
    server
}

/// Returns the report of the last minutes.
fn report(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_ash_report('5 min')");
    let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
    lines.join("\n")
}

/// Waits until a process has samples for which this holds.
fn until_sampled(observer: &mut Client, pid: i32, condition: &str) {
    until(
        observer,
        &format!("SELECT count(*) > 3 FROM rowsource_ash WHERE pid = {pid} AND {condition}"),
    );
}

/// The pile-up: an ALTER TABLE behind a transaction that is idle, and a statement behind both that has no
/// plan yet.
#[test]
fn a_pile_up_has_names() {
    let server = server("ash-pile-up");
    let mut observer = server.connect();
    let mut idle = server.connect();
    run_each(&mut idle, "SET application_name = 'batch job'");
    let holder: i32 = value(&mut idle, "SELECT pg_backend_pid()");
    run_each(&mut idle, "BEGIN; SELECT count(*) AS held FROM orders");
    let alter = Busy::run(
        server.connect(),
        "ALTER TABLE orders ADD secret text DEFAULT 'opensesame'",
    );
    until_waiting(&mut observer, alter.pid, "relation");
    // It waits while it is parsed, before it has a queryid.
    let mut waiter = server.connect();
    run_each(&mut waiter, "SET application_name = 'shop'");
    let waiter = Busy::run(waiter, "SELECT max(id) AS waited FROM orders");
    until_waiting(&mut observer, waiter.pid, "relation");
    let blocked_by =
        |pid: i32| format!("blocking_pid = {pid} AND object_name = 'orders' AND wait_event = 'relation'");
    until_sampled(&mut observer, alter.pid, &blocked_by(holder));
    until_sampled(&mut observer, waiter.pid, &blocked_by(alter.pid));
    let shown = report(&mut observer);
    for part in [
        "| ALTER TABLE on orders ",
        "| SELECT on orders ",
        "relation on orders",
        &format!("| {holder} | client backend postgres batch job "),
        " | SELECT count(*) AS held FROM orders ",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    assert!(!shown.contains("sesame"), "{shown}");
    let top = "SELECT sum(samples) > 0 FROM rowsource_top_activity() WHERE wait_event = 'relation' AND object_name = 'orders'";
    assert!(value::<bool>(&mut observer, top));
    // The blocker is no active session.
    let active: i64 = value(
        &mut observer,
        &format!("SELECT count(*) FROM rowsource_ash WHERE pid = {holder} AND wait_event = 'ClientRead'"),
    );
    assert_eq!(active, 0);
    run_each(&mut idle, "COMMIT");
    alter.join();
    waiter.join();
    // Others see neither names nor statements.
    run_each(&mut observer, "CREATE ROLE stranger LOGIN");
    let shown = report(&mut server.try_connect("stranger").expect("a session"));
    for hidden in ["ALTER", "orders", "batch job"] {
        assert!(!shown.contains(hidden), "{hidden} in\n{shown}");
    }
}

/// A statement that runs for the first time is not stored yet.
#[test]
fn a_statement_that_runs_for_the_first_time_has_its_text() {
    let server = server("ash-first");
    let mut observer = server.connect();
    let first = Busy::run(
        server.connect(),
        "SELECT count(*) AS first_time, pg_sleep(60) FROM orders",
    );
    until_waiting(&mut observer, first.pid, "PgSleep");
    // The first samples may come before the worker sees the session's memory.
    until_sampled(
        &mut observer,
        first.pid,
        "wait_event = 'PgSleep' AND node_id IS NOT NULL",
    );
    let shown = report(&mut observer);
    for part in [
        "| SELECT count(*) AS first_time, pg_sleep(60) FRO... ",
        "|  0 | Aggregate ",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    first.cancel(&mut observer);
}

/// An interval that cannot be meant is an error.
#[test]
fn an_interval_is_in_order_and_not_in_the_future() {
    let server = server("ash-interval");
    let mut client = server.connect();
    for (arguments, expected) in [
        (
            "'now', '1 min'",
            "the interval ends before it begins HINT: It begins at ",
        ),
        (
            "(now() + interval '1 min')::text",
            "the interval begins in the future HINT: It begins at ",
        ),
    ] {
        for function in ["rowsource_ash", "rowsource_top_activity", "rowsource_ash_report"] {
            let (code, message) = must_fail(&mut client, &format!("SELECT * FROM {function}({arguments})"));
            assert_eq!(code.code(), "22023", "{function}: {message}");
            assert!(message.starts_with(expected), "{function}: {message}");
        }
    }
    // The end may be in the future, and an interval may be one moment.
    report(&mut client);
    texts(
        &mut client,
        "SELECT rowsource_ash_report('1 min', (now() + interval '1 min')::text)",
    );
    texts(&mut client, "SELECT * FROM rowsource_ash('now', 'now')");
}
