//! Statements are cancelled or terminated at any moment: their statistics stay consistent, and say that they
//! were cancelled.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::waiting::{until, until_waiting};
use std::time::{Duration, Instant};

const JOIN: &str = "SELECT count(*), sum(length(a.pad)) FROM a JOIN b USING (id)";

const SETTINGS: [&str; 2] = ["jit = off", "max_parallel_workers_per_gather = 2"];

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &SETTINGS);
    make_tables(&server);
    server
}

fn make_tables(server: &Server) {
    run_each(
        &mut server.session(),
        "CREATE TABLE a AS SELECT i AS id, repeat('x', 100) AS pad FROM generate_series(1, 400000) i;
         CREATE TABLE b AS SELECT * FROM a; VACUUM ANALYZE a; VACUUM ANALYZE b",
    );
}

/// Opens a session in which the join runs in parallel.
fn session(server: &Server) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET enable_mergejoin = off; SET enable_nestloop = off; SET work_mem = '2MB';
         SET pg_rowsource.statistics_level = typical",
    );
    client
}

/// Returns the shortest time of three runs.
fn duration_of_join(client: &mut Client) -> Duration {
    let run = |_| {
        let begin = Instant::now();
        client.simple_query(JOIN).expect("the join");
        begin.elapsed()
    };
    (0..3).map(run).min().expect("runs")
}

/// Returns each node of all plans that has more shared or temporary blocks than its parent.
fn above_parents(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT format('%s: %s shared and %s temporary, %s: %s and %s', c.operation, c.shared, c.temp, p.operation,
                           p.shared, p.temp)
             FROM blocks c JOIN blocks p ON (c.queryid, c.planid, c.parent_id) = (p.queryid, p.planid, p.node_id)
             WHERE c.shared > p.shared OR c.temp > p.temp",
            &[],
        )
        .expect("pg_stat_rowsource")
        .iter()
        .map(|row| row.get(0))
        .collect()
}

const BLOCKS: &str = "CREATE VIEW blocks AS
    SELECT queryid, planid, node_id, parent_id, operation, shared_blks_hit + shared_blks_read AS shared,
           temp_blks_read + temp_blks_written AS temp
    FROM pg_stat_rowsource";

/// Fails unless the statistics are consistent: no child above its parent, no more blocks than the tables
/// have.
fn assert_adds_up(observer: &mut Client, what: &str) {
    assert_eq!(above_parents(observer), Vec::<String>::new(), "{what}");
    let calls: i64 = value(
        observer,
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE '%JOIN b USING%'",
    );
    let blocks: i64 = value(
        observer,
        "SELECT (sum(pg_relation_size(oid)) / 8192)::bigint FROM pg_class WHERE relname IN ('a', 'b')",
    );
    let root: i64 = value(
        observer,
        "SELECT coalesce(sum(shared), 0)::bigint FROM blocks WHERE parent_id IS NULL AND queryid IN
             (SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE '%JOIN b USING%')",
    );
    // Each starting worker reads catalogues.
    assert!(
        root <= calls * (blocks + blocks / 10),
        "{what}: {root} blocks in {calls} executions of two tables of {blocks}"
    );
}

#[test]
fn a_parallel_hash_join_cancelled_at_any_time_adds_up() {
    let server = server("hash-cancel");
    let mut observer = server.session();
    run_each(&mut observer, BLOCKS);
    // Without free workers, the leader does all of the work.
    for (settings, sampfreq) in [
        ("SET max_parallel_workers = 0", 128),
        ("SET max_parallel_workers = 0", 0),
        ("SET max_parallel_workers = 2", 128),
        ("SET max_parallel_workers = 2", 1),
    ] {
        let mut client = session(&server);
        run_each(&mut client, settings);
        run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
        let plan: String =
            rowsource_tests::explain::first_column(&mut client, &format!("EXPLAIN {JOIN}")).join("\n");
        assert!(plan.contains("Parallel Hash Join"), "{plan}");
        let mut whole = duration_of_join(&mut client);
        let mut cancelled = 0;
        for part in 1..16 {
            run_each(&mut client, "SELECT rowsource_reset()");
            let timeout = (whole * part / 16).as_millis().max(1);
            run_each(
                &mut client,
                &format!("BEGIN; SET LOCAL statement_timeout = {timeout}"),
            );
            let begin = Instant::now();
            match client.simple_query(JOIN) {
                Err(_) => cancelled += 1,
                // The machine has become faster.
                Ok(_) => whole = whole.min(begin.elapsed()),
            }
            // The limit also holds for ROLLBACK, if the join has met it.
            let rolled_back = (0..10).any(|_| client.batch_execute("ROLLBACK").is_ok());
            assert!(rolled_back, "the session ended");
            assert_adds_up(
                &mut observer,
                &format!("{settings}, sampfreq {sampfreq}, cancelled after {timeout} ms of {whole:?}"),
            );
        }
        assert!(cancelled >= 4, "only {cancelled} of 15 were cancelled");
    }
}

/// If the system does not map the pages with a worker's counters onto shared memory, its leader cannot see
/// what a call in progress has used.
#[test]
fn a_parallel_hash_join_of_workers_whose_counters_are_not_seen_adds_up() {
    let object = object("no_mremap/no_mremap.c");
    let server = Server::overridden("hash-unseen", &SETTINGS, &object);
    make_tables(&server);
    let mut observer = server.session();
    run_each(&mut observer, BLOCKS);
    let mut client = session(&server);
    let whole = duration_of_join(&mut client);
    let mut cancelled = 0;
    for part in 1..12 {
        run_each(&mut client, "SELECT rowsource_reset()");
        let timeout = (whole * part / 16).as_millis().max(1);
        run_each(
            &mut client,
            &format!("BEGIN; SET LOCAL statement_timeout = {timeout}"),
        );
        cancelled += i32::from(client.simple_query(JOIN).is_err());
        let rolled_back = (0..10).any(|_| client.batch_execute("ROLLBACK").is_ok());
        assert!(rolled_back, "the session ended");
        assert_adds_up(
            &mut observer,
            &format!("cancelled after {timeout} ms of {whole:?}"),
        );
    }
    assert!(cancelled >= 4, "only {cancelled} of 11 were cancelled");
}

const LOOKUPS: &str = "SELECT count(*) FROM b JOIN (c JOIN a ON a.id = c.id) ON b.id = c.id";

/// The rows below the Hash come from an index, so each is charged with blocks of its own: the workers' figures
/// change faster than their leader can copy them.
#[test]
fn a_parallel_hash_of_workers_that_charge_blocks_all_the_time_adds_up() {
    let server = server("hash-lookups");
    let mut observer = server.session();
    run_each(&mut observer, BLOCKS);
    run_each(
        &mut observer,
        "CREATE INDEX ON a (id); CREATE TABLE c AS SELECT id FROM a WHERE id <= 200000; VACUUM ANALYZE c",
    );
    let mut client = session(&server);
    run_each(
        &mut client,
        "SET enable_nestloop = on; SET join_collapse_limit = 1; SET random_page_cost = 0; SET seq_page_cost = 10;
         SET enable_indexonlyscan = off; SET parallel_leader_participation = off",
    );
    let plan = rowsource_tests::explain::first_column(&mut client, &format!("EXPLAIN {LOOKUPS}")).join("\n");
    let below_hash = plan.split("Parallel Hash  (").nth(1);
    assert!(
        below_hash.is_some_and(|below| below.contains("Index Scan")),
        "{plan}"
    );
    let begin = Instant::now();
    client.simple_query(LOOKUPS).expect("the join");
    let whole = begin.elapsed();
    let mut cancelled = 0;
    for part in 1..24 {
        run_each(&mut client, "SELECT rowsource_reset()");
        let timeout = (whole * part / 32).as_millis().max(1);
        run_each(
            &mut client,
            &format!("BEGIN; SET LOCAL statement_timeout = {timeout}"),
        );
        cancelled += i32::from(client.simple_query(LOOKUPS).is_err());
        let rolled_back = (0..10).any(|_| client.batch_execute("ROLLBACK").is_ok());
        assert!(rolled_back, "the session ended");
        assert_eq!(
            above_parents(&mut observer),
            Vec::<String>::new(),
            "cancelled after {timeout} ms of {whole:?}"
        );
    }
    assert!(cancelled >= 6, "only {cancelled} of 23 were cancelled");
}

#[test]
fn a_parallel_hash_join_ended_in_other_ways_adds_up() {
    let server = server("hash-terminate");
    let mut observer = server.session();
    run_each(&mut observer, BLOCKS);
    let mut client = session(&server);
    let whole = duration_of_join(&mut client);
    for part in 1..6 {
        for way in ["cancel", "terminate the leader", "terminate a worker"] {
            run_each(&mut observer, "SELECT rowsource_reset()");
            let mut client = session(&server);
            let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
            let running = std::thread::spawn(move || client.simple_query(JOIN).is_err());
            std::thread::sleep(whole * part / 6);
            match way {
                "cancel" => run_each(&mut observer, &format!("SELECT pg_cancel_backend({pid})")),
                "terminate the leader" => {
                    run_each(&mut observer, &format!("SELECT pg_terminate_backend({pid})"))
                }
                _ => run_each(
                    &mut observer,
                    &format!(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE leader_pid = {pid} LIMIT 1"
                    ),
                ),
            }
            running.join().expect("the session");
            let has_ended = format!(
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {pid} OR leader_pid = {pid} AND state = 'active'"
            );
            until(&mut observer, &has_ended);
            assert_adds_up(&mut observer, &format!("{way} after {part}/6 of {whole:?}"));
        }
    }
}

#[test]
fn a_recovery_conflict_cancels() {
    let primary = Server::preloaded(
        "conflict",
        &["max_standby_streaming_delay = 0", "wal_level = replica"],
    );
    let mut client = primary.session();
    run_each(
        &mut client,
        "CREATE TABLE n WITH (vacuum_truncate = off) AS SELECT i AS id FROM generate_series(1, 10000) i;
         VACUUM ANALYZE n",
    );
    let standby = Server::standby_of(&primary, "conflict-standby");
    let mut reader = standby.connect();
    let mut observer = standby.connect();
    let pid: i32 = value(&mut reader, "SELECT pg_backend_pid()");
    let running = std::thread::spawn(move || {
        must_fail(
            &mut reader,
            "SELECT count(*) FROM n WHERE pg_sleep(0.1) IS NOT NULL",
        )
    });
    until_waiting(&mut observer, pid, "PgSleep");
    run_each(&mut client, "DELETE FROM n; VACUUM n");
    let (code, message) = running.join().expect("the reader");
    assert_eq!(code, SqlState::T_R_SERIALIZATION_FAILURE, "{message}");
    let ends: Vec<(i64, i64)> = observer
        .query(
            "SELECT failed_calls, cancelled_calls FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM n WHERE pg_sleep%'",
            &[],
        )
        .expect("pg_stat_rowsource_plans")
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert_eq!(ends, [(0, 1)], "failed and cancelled: {message}");
}
