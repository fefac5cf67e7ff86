//! Statements that do not complete: their statistics up to that moment are kept, and marked as partial.

use postgres::error::SqlState;
use rowsource_tests::explain::core_counts;
use rowsource_tests::session::{cancel_backend, must_fail, run_each, value};
use rowsource_tests::waiting::until;
use rowsource_tests::{MeasuredNode, Server, burn, differences, display, last, measure, measured_nodes};
use std::time::{Duration, Instant};

const TABLE: &str = "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM ANALYZE n";

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.connect();
    burn::create(&mut client);
    run_each(&mut client, TABLE);
    server
}

/// Returns the partial statistics of the statement that has just failed at level typical.
fn partial(client: &mut postgres::Client, outcome: &str) -> Vec<MeasuredNode> {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let (_, _, actual) = last(client).expect("a last statement");
    assert_eq!(
        actual.to_lowercase(),
        outcome,
        "the outcome of the last statement"
    );
    let shown = display(client, "ALLSTATS LAST");
    assert!(
        shown.to_lowercase().contains(outcome),
        "the display does not say {outcome}:\n{shown}"
    );
    measured_nodes(client)
}

fn node<'a>(nodes: &'a [MeasuredNode], operation: &str) -> &'a MeasuredNode {
    nodes
        .iter()
        .find(|node| node.operation == operation)
        .unwrap_or_else(|| panic!("no {operation}: {nodes:#?}"))
}

#[test]
fn statement_timeout_keeps_statistics() {
    let server = server("timeout");
    let mut client = server.session();
    // Exact times: it is not the sampling that is tested.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
    );
    let mut elapsed = 0.0;
    let (_, burned) = burn::during(&mut client, |client| {
        run_each(client, "SET statement_timeout = '1s'");
        let begin = Instant::now();
        let (code, _) = must_fail(client, "SELECT count(*) FROM n WHERE burn(200)");
        elapsed = begin.elapsed().as_secs_f64() * 1e3;
        assert_eq!(code, SqlState::QUERY_CANCELED);
        run_each(
            client,
            "SET statement_timeout = 0; SET pg_rowsource.statistics_level = basic",
        );
    });
    let nodes = partial(&mut client, "cancelled");
    let scan = node(&nodes, "Seq Scan");
    assert!((100..20_000).contains(&scan.rows), "{scan:?}");
    assert_eq!(scan.starts, Some(1));
    let total = nodes[0].total_ms.expect("the root is timed");
    let scan_ms = scan.total_ms.expect("the scan is timed");
    assert!(
        0.99 * burned < scan_ms && scan_ms <= total && total < 1.01 * elapsed,
        "burned {burned} ms, scan {scan_ms} ms, root {total} ms, {elapsed} ms for the client"
    );
}

#[test]
fn an_error_keeps_exact_rows() {
    let server = server("error");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let (code, _) = must_fail(&mut client, "SELECT sum(1 / (id - 5000)) FROM n");
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
    let nodes = partial(&mut client, "failed");
    assert_eq!(node(&nodes, "Seq Scan").rows, 5000, "{nodes:#?}");
    assert_eq!(node(&nodes, "Aggregate").rows, 0);
    assert_eq!(node(&nodes, "Aggregate").starts, Some(1));

    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    must_fail(&mut client, "SELECT 1 / (id - 5000) FROM n");
    assert_eq!(node(&partial(&mut client, "failed"), "Seq Scan").rows, 4999);
}

#[test]
fn a_cancel_request_keeps_statistics() {
    let server = server("cancel");
    let mut client = server.session();
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    // JIT compilation would only delay the first row.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET jit = off",
    );
    let mut other = server.connect();
    let canceller = std::thread::spawn(move || {
        let has_rows =
            format!("SELECT coalesce(max(rows), 0) > 1000 FROM pg_stat_rowsource_live WHERE pid = {pid}");
        until(&mut other, &has_rows);
        cancel_backend(&mut other, pid);
    });
    let (code, _) = must_fail(&mut client, "SELECT count(*) FROM n a, n b WHERE a.id <> b.id");
    assert_eq!(code, SqlState::QUERY_CANCELED);
    canceller.join().expect("the canceller");
    let nodes = partial(&mut client, "cancelled");
    assert!(nodes.iter().any(|node| node.rows > 1000), "{nodes:#?}");
}

#[test]
fn the_next_statement_is_measured_correctly() {
    const STATEMENT: &str = "SELECT count(*) FROM n WHERE id % 2 = 0";
    let server = server("after-error");
    let mut client = server.session();
    run_each(&mut client, STATEMENT);
    for _ in 0..3 {
        run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
        must_fail(&mut client, "SELECT 1 / (id - 7) FROM n ORDER BY id");
        run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
        let core = core_counts(&mut client, STATEMENT);
        let measured = measure(&mut client, STATEMENT);
        assert_eq!(differences(&core, &measured), Vec::<String>::new());
    }
    let failed: i64 = value(
        &mut client,
        "SELECT sum(failed_calls)::bigint FROM pg_stat_rowsource_plans",
    );
    assert_eq!(failed, 3, "failed_calls");
}

#[test]
fn an_error_inside_a_transaction_or_subtransaction() {
    let server = server("savepoint");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; BEGIN; SAVEPOINT s",
    );
    must_fail(&mut client, "SELECT sum(1 / (id - 50)) FROM n");
    run_each(&mut client, "ROLLBACK TO s");
    assert_eq!(node(&partial(&mut client, "failed"), "Seq Scan").rows, 50);
    let nodes = measure(&mut client, "SELECT count(*) FROM n");
    assert_eq!(node(&nodes, "Seq Scan").rows, 20_000);
    run_each(&mut client, "COMMIT");
}

#[test]
fn errors_caught_in_a_function_leave_the_caller_right() {
    let server = server("caught");
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE FUNCTION caught(int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM sum(1 / (id - $1)) FROM n; RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END'",
    );
    const STATEMENT: &str = "SELECT count(*) FROM n WHERE id <= 20 AND caught(id) = 0";
    for track in ["top", "all"] {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.track = '{track}'; SET pg_rowsource.sampfreq = 1"),
        );
        run_each(&mut client, STATEMENT);
        let core = core_counts(&mut client, STATEMENT);
        let measured = measure(&mut client, STATEMENT);
        assert_eq!(
            differences(&core, &measured),
            Vec::<String>::new(),
            "track {track}"
        );
        rowsource_tests::measured::assert_consistent_times(&measured, track);
    }
}

#[test]
fn a_terminated_session_does_not_affect_others() {
    let server = server("terminate");
    let mut client = server.session();
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let mut other = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
    );
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        run_each(&mut other, &format!("SELECT pg_terminate_backend({pid})"));
        other
    });
    assert!(
        client
            .simple_query("SELECT count(*) FROM n a, n b WHERE a.id <> b.id")
            .is_err()
    );
    let mut other = killer.join().expect("the killer");
    assert_eq!(
        node(&measure(&mut other, "SELECT count(*) FROM n"), "Seq Scan").rows,
        20_000
    );
    server.assert_no_crash();
}
