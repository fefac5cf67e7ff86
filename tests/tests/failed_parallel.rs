//! Parallel statements that do not complete: what their workers did until then is kept, and counted once.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::busy::Busy;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{cancel_backend, must_fail, run_each, texts, value};
use rowsource_tests::waiting::until;
use rowsource_tests::{MeasuredNode, Server, last, measure, measured_nodes};
use serde_json::Value;

const SCHEMA: &str = "
    CREATE TABLE t AS SELECT i AS id, i % 7 AS grp, repeat('x', 50) AS pad FROM generate_series(1, 20000) i;
    CREATE TABLE few AS SELECT i AS id FROM generate_series(1, 5) i; ALTER TABLE few SET (parallel_workers = 0);
    CREATE FUNCTION stop(id int, every int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE COST 1 AS
        'BEGIN IF id % every = 0 THEN PERFORM pg_sleep(300); END IF; RETURN true; END';
    CREATE FUNCTION fails(few int, id int) RETURNS bool LANGUAGE plpgsql PARALLEL RESTRICTED COST 1 AS
        'BEGIN RETURN few <> 3 OR 1 / (id - 100) < 2; END';
    CREATE FUNCTION inner_sum() RETURNS int LANGUAGE plpgsql PARALLEL RESTRICTED AS
        'DECLARE n int; BEGIN SELECT sum(id * 0) INTO n FROM t WHERE id <= 5000; RETURN n; END';
    CREATE FUNCTION caught() RETURNS int LANGUAGE plpgsql PARALLEL RESTRICTED AS
        'BEGIN PERFORM sum(1 / (id - 5000)) FROM t; RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END';
    VACUUM (FREEZE, ANALYZE) t; VACUUM (FREEZE, ANALYZE) few";

/// Returns a server all of whose plans are parallel. Only the workers read, so what each does is certain.
fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            "jit = off",
            "autovacuum = off",
            "min_parallel_table_scan_size = 0",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "parallel_leader_participation = off",
            "max_parallel_workers_per_gather = 2",
            "max_parallel_workers = 8",
            "max_worker_processes = 12",
        ],
    );
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    run_each(&mut server.connect(), SCHEMA.replace('\n', " ").as_str());
    server
}

/// What a node did, as a view of running or ended statements shows it: its number, rows, starts, hits.
type Did = (i32, i64, i64, i64);

fn did(client: &mut Client, sql: &str) -> Vec<Did> {
    let rows = client
        .query(sql, &[])
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect()
}

/// Returns what the leader with this pid and its workers have done until now.
fn seen(observer: &mut Client, pid: i32) -> Vec<Did> {
    did(
        observer,
        &format!(
            "SELECT node_id, sum(rows)::bigint, sum(starts)::bigint, sum(shared_blks_hit)::bigint
             FROM pg_stat_rowsource_live WHERE {pid} IN (pid, leader_pid) AND nesting_level = 0 GROUP BY 1 ORDER BY 1"
        ),
    )
}

/// Returns what the last statement with this in its text did.
fn kept(client: &mut Client, text: &str) -> Vec<Did> {
    did(
        client,
        &format!(
            "SELECT s.node_id::int, s.last_rows::bigint, s.last_starts::bigint, s.last_shared_blks_hit::bigint
             FROM pg_stat_rowsource_plans p JOIN pg_stat_rowsource s USING (userid, datid, toplevel, queryid, planid)
             WHERE p.query LIKE '%{text}%' AND p.query NOT LIKE '%pg_stat%' ORDER BY s.node_id"
        ),
    )
}

/// Waits until this number of workers of the leader with this pid sleeps, and the others and the leader wait
/// for a message, and returns what they have done. The leader may be slower than its workers, so two looks
/// have to see the same.
fn until_asleep(observer: &mut Client, pid: i32, workers: usize) -> Vec<Did> {
    let mut before = Vec::new();
    loop {
        until(
            observer,
            &format!(
                "SELECT count(*) FILTER (WHERE wait_event = 'PgSleep') = {workers}
                        AND bool_and(coalesce(wait_event = 'PgSleep' OR wait_event_type = 'IPC', false))
                 FROM pg_stat_activity WHERE {pid} IN (pid, leader_pid)"
            ),
        );
        let now = seen(observer, pid);
        if now == before {
            return now;
        }
        before = now;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn node<'a>(nodes: &'a [MeasuredNode], operation: &str) -> &'a MeasuredNode {
    let found = nodes.iter().find(|node| node.operation == operation);
    found.unwrap_or_else(|| panic!("no {operation}: {nodes:#?}"))
}

/// Returns the nodes of the statement that has just failed, and fails unless the parts of its workers are as
/// many, and add up to the rows of each node that only they ran.
fn failed(client: &mut Client, workers: usize) -> Vec<MeasuredNode> {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let (_, _, outcome) = last(client).expect("a last statement");
    assert_ne!(outcome.to_lowercase(), "completed");
    let nodes = measured_nodes(client);
    let text = first_column(client, "SELECT rowsource_explain(format => 'json')").join("\n");
    let plan: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut parts = Vec::new();
    collect(&plan[0]["Plan"], &mut parts);
    assert_eq!(parts.len(), nodes.len(), "{text}");
    let mut most = 0;
    for (node, (count, rows)) in nodes.iter().zip(parts) {
        most = most.max(count);
        // EXPLAIN rounds the rows of a start.
        let rounded = node.starts.unwrap_or(0);
        assert!(
            count == 0 || (rows - node.rows).abs() <= rounded / 2,
            "{rows} rows of workers: {node:?}\n{text}"
        );
    }
    assert_eq!(most, workers, "workers\n{text}");
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    nodes
}

/// Adds the number of workers of each node, and their rows, in the order of EXPLAIN.
fn collect(plan: &Value, parts: &mut Vec<(usize, i64)>) {
    let workers = plan["Workers"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |worker: &Value, key: &str| worker[key].as_f64().unwrap_or(0.0);
    let of_worker =
        |worker: &Value| (number(worker, "Actual Rows") * number(worker, "Actual Loops")).round() as i64;
    // From 19 on, a scan also shows the workers that were not launched.
    let ran = workers
        .iter()
        .filter(|worker| number(worker, "Actual Loops") > 0.0);
    parts.push((ran.count(), workers.iter().map(of_worker).sum()));
    for below in plan["Plans"].as_array().into_iter().flatten() {
        collect(below, parts);
    }
}

/// Statements whose workers sleep in the end, and how many do.
const SLEEPING: [(&str, &str, usize); 5] = [
    ("a Gather", "SELECT count(*) FROM t WHERE stop(id, 7000)", 2),
    ("rows of the root", "SELECT id FROM t WHERE stop(id, 7000)", 2),
    (
        "a Gather Merge",
        "SELECT id FROM t WHERE stop(id, 7000) ORDER BY pad",
        2,
    ),
    (
        "a hash join",
        "SELECT count(*) FROM t JOIN (SELECT id, grp FROM t OFFSET 0) b USING (id) WHERE stop(t.id, 7000)",
        2,
    ),
    (
        "two Gathers, of which one has ended",
        "SELECT count(*) FROM t WHERE id > (SELECT min(id) - 1 FROM t WHERE grp < 5) AND stop(id, 7000)",
        2,
    ),
];

/// Nothing moves any more when the statement ends. So its record is what others have seen before.
#[test]
fn a_cancelled_statement_has_done_what_was_seen_before() {
    let server = server("failed-parallel-cancel");
    let mut observer = server.session();
    for (what, sql, workers) in SLEEPING {
        let busy = Busy::run(server.session(), sql);
        let seen = until_asleep(&mut observer, busy.pid, workers);
        let rows: i64 = seen.iter().map(|node| node.1).sum();
        assert!(rows > 7_000, "{what}: {seen:?}");
        let mut client = busy.cancel(&mut observer);
        let nodes = failed(&mut client, workers);
        let recorded: Vec<Did> = nodes
            .iter()
            .map(|node| {
                (
                    node.node_id,
                    node.rows,
                    node.starts.unwrap_or(0),
                    node.counters[0].unwrap_or(0),
                )
            })
            .collect();
        // Of an aggregate that waits, and of starts that have ended, all is known too. A Gather that has
        // ended before is not seen.
        for (seen, recorded) in seen.iter().zip(&recorded) {
            assert!(
                seen.1 <= recorded.1 && seen.2 <= recorded.2 && seen.3 <= recorded.3,
                "{what}: seen {seen:?}, recorded {recorded:?}\n{nodes:#?}"
            );
            if !what.contains("two") {
                assert_eq!((seen.1, seen.2), (recorded.1, recorded.2), "{what}: {nodes:#?}");
            }
        }
        if what.contains("two") {
            let scans = || nodes.iter().filter(|node| node.operation == "Parallel Seq Scan");
            let rows: Vec<i64> = scans().map(|node| node.rows).collect();
            assert_eq!(rows.len(), 2, "{nodes:#?}");
            // The one that has ended read the rows of five in seven groups.
            assert!(rows.contains(&14_286), "{rows:?}");
        }
    }
    server.assert_no_crash();
}

#[test]
fn a_statement_that_runs_out_of_time_has_the_rows_of_its_workers() {
    let server = server("failed-parallel-timeout");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET max_parallel_workers = 1; SET statement_timeout = '2s'",
    );
    let (code, _) = must_fail(&mut client, "SELECT count(*) FROM t WHERE stop(id, 7000)");
    assert_eq!(code, SqlState::QUERY_CANCELED);
    run_each(&mut client, "SET statement_timeout = 0");
    let nodes = failed(&mut client, 1);
    let scan = node(&nodes, "Parallel Seq Scan");
    assert_eq!((scan.rows, scan.starts), (6_999, Some(1)), "{nodes:#?}");
    // The call in progress is in its time.
    assert!(scan.total_ms > Some(500.0), "{nodes:#?}");
    assert!(scan.timed_calls > Some(0), "{nodes:#?}");
}

#[test]
fn a_terminated_session_or_worker_leaves_what_was_done() {
    let server = server("failed-parallel-terminate");
    let mut observer = server.session();
    // The leader notes all, and leaves.
    let busy = Busy::run(
        server.session(),
        "SELECT count(*) AS leader FROM t WHERE stop(id, 7000)",
    );
    let before = until_asleep(&mut observer, busy.pid, 2);
    value::<bool>(
        &mut observer,
        &format!("SELECT pg_terminate_backend({})", busy.pid),
    );
    busy.join();
    until(
        &mut observer,
        "SELECT count(*) > 0 FROM pg_stat_rowsource_plans WHERE query LIKE '%AS leader%' AND query NOT LIKE '%pg_stat%'",
    );
    let rows = |nodes: &[Did]| nodes.iter().map(|node| (node.0, node.1)).collect::<Vec<_>>();
    assert_eq!(rows(&kept(&mut observer, "AS leader")), rows(&before));

    // Somebody ends a worker: the leader gets an error.
    let busy = Busy::run(
        server.session(),
        "SELECT count(*) AS worker FROM t WHERE stop(id, 7000)",
    );
    let before = until_asleep(&mut observer, busy.pid, 2);
    value::<bool>(
        &mut observer,
        "SELECT pg_terminate_backend(min(pid)) FROM pg_stat_activity WHERE backend_type = 'parallel worker'",
    );
    let mut client = busy.join();
    let nodes = failed(&mut client, 2);
    let recorded: Vec<_> = nodes.iter().map(|node| (node.node_id, node.rows)).collect();
    assert_eq!(recorded, rows(&before));
    server.assert_no_crash();
}

/// A worker leaves while its leader does not listen. Its part is kept.
#[test]
fn a_worker_that_has_left_has_left_its_part() {
    let server = server("failed-parallel-left");
    let mut observer = server.session();
    let busy = Busy::run(server.session(), "SELECT count(*) FROM t WHERE stop(id, 7000)");
    let before = until_asleep(&mut observer, busy.pid, 2);
    rowsource_tests::process::send_signal(busy.pid as u32, "STOP");
    value::<bool>(
        &mut observer,
        "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'parallel worker'",
    );
    until(
        &mut observer,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'",
    );
    rowsource_tests::process::send_signal(busy.pid as u32, "CONT");
    let mut client = busy.join();
    let nodes = failed(&mut client, 2);
    let recorded: Vec<_> = nodes.iter().map(|node| (node.node_id, node.rows)).collect();
    let before: Vec<_> = before.iter().map(|node| (node.0, node.1)).collect();
    assert_eq!(recorded, before);
    server.assert_no_crash();
}

#[test]
fn an_error_keeps_exact_rows() {
    let server = server("failed-parallel-error");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET max_parallel_workers = 1",
    );
    // In the worker.
    let (code, _) = must_fail(&mut client, "SELECT sum(1 / (id - 5000)) FROM t");
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
    let nodes = failed(&mut client, 1);
    assert_eq!(node(&nodes, "Parallel Seq Scan").rows, 5_000, "{nodes:#?}");
    assert_eq!(node(&nodes, "Parallel Seq Scan").starts, Some(1), "{nodes:#?}");

    // In the leader, when the workers of the InitPlan have ended.
    must_fail(
        &mut client,
        "SELECT 1 / (SELECT min(id) - 1 FROM t WHERE grp < 10) FROM few",
    );
    let nodes = failed(&mut client, 1);
    let scan = nodes.iter().find(|node| node.object_name.as_deref() == Some("t"));
    assert_eq!(scan.expect("the scan of t").rows, 20_000, "{nodes:#?}");

    // In a function that catches it, in the caller's subtransaction.
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SELECT rowsource_reset(); SELECT caught()",
    );
    let nested = kept(&mut client, "sum(1 /");
    assert_eq!(
        nested.last().map(|scan| (scan.1, scan.2)),
        Some((5_000, 1)),
        "{nested:?}"
    );
}

/// The workers of a Gather are started again for each outer row.
#[test]
fn workers_that_run_again_are_counted_once() {
    let server = server("failed-parallel-rescan");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET max_parallel_workers = 1;
         SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off",
    );
    // The planner must not make the whole join parallel.
    for (what, inner, least) in [
        (
            "read to the end",
            "SELECT id FROM t WHERE id <= 1000 OFFSET 0",
            2_000,
        ),
        ("stopped", "SELECT id FROM t WHERE id <= 2000 LIMIT 1000", 2_000),
    ] {
        let sql = format!("SELECT count(*) FROM few LEFT JOIN ({inner}) b ON fails(few.id, b.id)");
        let (code, message) = must_fail(&mut client, &sql);
        assert_eq!(code, SqlState::DIVISION_BY_ZERO, "{message}");
        let nodes = failed(&mut client, 1);
        let gather = node(&nodes, "Gather");
        assert_eq!(
            (gather.starts, gather.rows),
            (Some(3), least + 100),
            "{what}: {nodes:#?}"
        );
        let scan = nodes.iter().find(|node| node.object_name.as_deref() == Some("t"));
        let scan = scan.expect("the scan of t");
        assert_eq!(scan.starts, Some(3), "{what}: {nodes:#?}");
        // The worker may be ahead of its leader.
        assert!(
            (least + 100..=3 * 2_000).contains(&scan.rows),
            "{what}: {nodes:#?}"
        );
        if what != "stopped" {
            assert!(scan.rows <= 3_000, "{what}: {nodes:#?}");
        }
    }
}

/// A parallel statement runs inside another one, which goes on: each has what its own workers did.
#[test]
fn a_statement_inside_a_parallel_one_changes_nothing_of_it() {
    let server = server("failed-parallel-nested");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    for sql in [
        "SELECT id, inner_sum() FROM t WHERE grp = 1 AND id <= 20",
        "SELECT count(*) FROM t WHERE id > (SELECT inner_sum()) AND grp < 3",
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        let measured = measure(&mut client, sql);
        let scan = node(&measured, "Parallel Seq Scan");
        let rows = if sql.contains("grp = 1") { 3 } else { 8_572 };
        assert_eq!((scan.rows, scan.starts), (rows, Some(2)), "{sql}: {measured:#?}");
        // A call is timed once.
        let timed = scan.timed_calls.unwrap_or(0);
        assert!((1..=rows + 2).contains(&timed), "{sql}: {measured:#?}");
        let inner = texts(
            &mut client,
            "SELECT s.last_rows, s.last_starts BETWEEN 1 AND 2, s.last_timed_calls > 0 FROM pg_stat_rowsource s
                    JOIN pg_stat_rowsource_plans p USING (userid, datid, toplevel, queryid, planid)
             WHERE p.query LIKE '%sum(id *%' AND p.query NOT LIKE '%pg_stat%' AND s.operation = 'Parallel Seq Scan'",
        );
        let expected = ["5000", "t", "t"].map(|column| Some(column.to_owned()));
        assert_eq!(inner, [expected.to_vec()], "{sql}");
    }
    server.assert_no_crash();
}

/// A statement that fails again and again while its workers run, at any moment: what is kept is never more
/// than there is.
#[test]
fn no_moment_counts_twice() {
    let server = server("failed-parallel-moments");
    let (mut client, mut observer) = (server.session(), server.connect());
    let pid = rowsource_tests::waiting::pid(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SET parallel_leader_participation = on",
    );
    let mut cancelled = 0;
    for round in 0..60 {
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(1_500 + 400 * round));
            cancel_backend(&mut observer, pid);
            observer
        });
        let ended = client.simple_query("SELECT count(*) FROM t WHERE length(pad) > 0");
        observer = canceller.join().expect("the canceller");
        // The request may come late.
        let _ = client.simple_query("SELECT pg_sleep(0.05) AS late");
        run_each(&mut client, "SELECT 1 FROM few LIMIT 1");
        let rows: Vec<Did> = kept(&mut client, "length(pad)");
        let Some(scan) = rows.last() else { continue };
        assert!(scan.1 <= 20_000 && scan.2 <= 3, "{round}: {rows:?}");
        cancelled += i32::from(ended.is_err());
    }
    println!("{cancelled} of 60 cancelled");
    server.assert_no_crash();
}
