//! Statements are cancelled or terminated at any moment: their statistics stay consistent, and say that they
//! were cancelled.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::burn;
use rowsource_tests::busy::Busy;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{cancel_backend, must_fail, run_each, value};
use rowsource_tests::stepped;
use rowsource_tests::waiting::{pid, until, until_waiting};
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
    adds_up_with("hash-unseen", "no_mremap/no_mremap.c");
}

/// That is so at one start of a server in sixteen, and then others see the rest of the session's state.
#[test]
fn a_parallel_hash_join_of_workers_of_which_only_the_counters_are_not_seen_adds_up() {
    adds_up_with("hash-counters", "no_mremap/no_mremap_of_counters.c");
}

/// Cancels the join at several moments on a server with a library before its own.
fn adds_up_with(name: &str, library: &str) {
    let server = Server::overridden(name, &SETTINGS, &object(library));
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

/// A session can lose its processor between any two instructions, for example while it charges blocks to a
/// node. A leader copies its workers in the same way as this view.
#[test]
fn no_node_has_fewer_blocks_than_its_input_after_any_instruction() {
    const LOOKS: usize = 1500;
    let server = Server::preloaded(
        "hash-stepped",
        &["jit = off", "max_parallel_workers_per_gather = 0"],
    );
    let mut observer = server.session();
    run_each(
        &mut observer,
        "CREATE TABLE outer_table AS SELECT i AS id FROM generate_series(1, 100000) i;
         CREATE TABLE hashed AS SELECT i AS id, repeat('x', 5000) AS pad FROM generate_series(1, 1) i LIMIT 0;
         ALTER TABLE hashed ALTER pad SET STORAGE PLAIN;
         INSERT INTO hashed SELECT i, repeat('x', 5000) FROM generate_series(1, 5000) i;
         VACUUM ANALYZE hashed; VACUUM ANALYZE outer_table; CHECKPOINT",
    );
    // Each row of the scan has a page of its own.
    let sql = "SELECT count(*) FROM outer_table JOIN hashed USING (id)
               WHERE burn(1000 + 0 * hashed.id)";
    burn::create(&mut observer);
    let busy = Busy::run(server.connect(), sql);
    let has_begun = format!(
        "SELECT count(*) > 0 FROM pg_stat_rowsource_live WHERE pid = {} AND operation = 'Hash' AND shared_blks_hit > 10",
        busy.pid
    );
    until(&mut observer, &has_begun);
    let look = format!(
        "SELECT operation || ' ' || shared_blks_hit + shared_blks_read FROM pg_stat_rowsource_live
         WHERE pid = {} ORDER BY node_id",
        busy.pid
    );
    let (mut first, mut before) = (None, 0);
    let mut wrong = Vec::new();
    stepped::step(busy.pid, LOOKS, || {
        let nodes = rowsource_tests::explain::first_column(&mut observer, &look);
        let blocks: Vec<i64> = nodes
            .iter()
            .filter_map(|node| node.rsplit_once(' ')?.1.parse().ok())
            .collect();
        let [above, join, outer, hash, scan] = *blocks else {
            panic!("{nodes:?}")
        };
        if join > above || outer + hash > join || scan > hash || scan + 1 < before {
            wrong.push(format!("{nodes:?}, {before} before"));
        }
        first.get_or_insert(scan);
        before = scan;
    });
    busy.cancel(&mut observer);
    println!("{before} blocks, at first {first:?}");
    assert!(
        first.is_some_and(|first| before > first + 3),
        "{before} blocks, at first {first:?}"
    );
    assert!(wrong.is_empty(), "{} of {LOOKS}: {wrong:#?}", wrong.len());
}

/// What a worker's statement has used up to now is not seen while a statement inside of it runs.
#[test]
fn a_parallel_hash_of_a_worker_whose_function_runs_a_statement_adds_up() {
    let server = server("hash-nested");
    let mut observer = server.session();
    run_each(&mut observer, BLOCKS);
    observer
        .batch_execute(
            "CREATE TABLE one AS SELECT 1 AS i; ANALYZE one;
             CREATE FUNCTION waits(id int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE COST 0.001 AS $$ BEGIN
                 IF id = 200000 THEN PERFORM pg_sleep(60) FROM one; END IF;
                 RETURN true; END $$",
        )
        .expect("the function");
    let mut client = session(&server);
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SET parallel_leader_participation = off",
    );
    let sql = "SELECT count(*) FROM a JOIN b USING (id) WHERE waits(b.id)";
    let plan = rowsource_tests::explain::first_column(&mut client, &format!("EXPLAIN {sql}")).join("\n");
    let below_hash = plan.split("Parallel Hash  (").nth(1);
    assert!(
        below_hash.is_some_and(|below| below.contains("waits(id)")),
        "{plan}"
    );
    let leader = pid(&mut client);
    let running = std::thread::spawn(move || client.simple_query(sql).is_err());
    until(
        &mut observer,
        &format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE leader_pid = {leader} AND wait_event = 'PgSleep'"
        ),
    );
    cancel_backend(&mut observer, leader);
    assert!(running.join().expect("the session"), "it was cancelled");
    assert_eq!(above_parents(&mut observer), Vec::<String>::new());
    let hash = "SELECT coalesce(max(shared), 0)::bigint FROM blocks WHERE operation = 'Parallel Hash'";
    let half: i64 = value(&mut observer, "SELECT pg_relation_size('b') / 8192 / 2");
    let hash: i64 = value(&mut observer, hash);
    assert!(
        hash >= half,
        "{hash} blocks of the Hash, and {half} are half of the table"
    );
}

const LOOKUPS: &str = "SELECT count(*) FROM b JOIN (c JOIN a ON a.id = c.id) ON b.id = c.id";

/// The rows below the Hash come from an index, so each is charged with blocks of its own: the workers'
/// figures change faster than their leader can copy them.
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
    let primary = Server::preloaded("conflict", &["max_standby_streaming_delay = 0"]);
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
