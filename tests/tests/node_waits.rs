//! Waits are charged to the nodes of plans that waited, and to their statements outside of the nodes.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::tempfile::io_during;
use rowsource_tests::waiting::{Lasted, cancel, hold, pid, until, until_waiting};
use std::thread::JoinHandle;
use std::time::Duration;

/// Waits of a plan for one event: the node's operation ("" outside of the nodes), their number and their
/// milliseconds.
type Row = (String, i64, f64);

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "max_parallel_workers_per_gather = 0",
        "jit = off",
        "autovacuum = off",
    ];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, 0 AS v FROM generate_series(1, 1000) i;
         CREATE TABLE u AS SELECT * FROM t WHERE id <= 100; VACUUM ANALYZE",
    );
    server
}

/// Returns a session that measures its statements.
fn session(server: &Server) -> Client {
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    client
}

/// Returns what the plans of statements like this one waited for, by node.
fn waits(observer: &mut Client, like: &str, event: &str) -> Vec<Row> {
    let rows = observer.query(
        "SELECT coalesce(n.operation, ''), w.waits, w.wait_time FROM pg_stat_rowsource_waits w
         JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
         LEFT JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel, node_id)
         WHERE p.query LIKE $1 AND lower(w.wait_event) = lower($2) ORDER BY w.node_id",
        &[&like, &event],
    );
    let rows = rows.expect("pg_stat_rowsource_waits");
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

/// Fails unless one node waited, once, for this long.
fn assert_one(rows: &[Row], node: &str, lasted: Lasted) {
    println!("{node}: {rows:?}, {lasted:?}");
    let [(of, 1, total)] = rows else {
        panic!("{node}: {rows:?}, {lasted:?}");
    };
    assert_eq!(of, node, "{rows:?}");
    assert!(lasted.contains(*total), "{rows:?}, {lasted:?}");
}

/// Fails if a node or a statement waited longer than it ran, or if the rows of the views do not add up. (A
/// Gather also waits for its workers to end after its last call.)
fn assert_sums_agree(observer: &mut Client) {
    let wrong = texts(
        observer,
        "SELECT p.query, n.operation, n.total_time, n.wait_time, w.wait_time AS of_rows
         FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
         LEFT JOIN (SELECT userid, datid, queryid, planid, toplevel, node_id, sum(wait_time) AS wait_time
                    FROM pg_stat_rowsource_waits GROUP BY 1, 2, 3, 4, 5, 6) w
           USING (userid, datid, queryid, planid, toplevel, node_id)
         WHERE abs(n.wait_time - coalesce(w.wait_time, 0)) > 0.001
               OR n.wait_time > n.total_time * 1.01 + 0.1 AND n.operation NOT LIKE 'Gather%'",
    );
    assert!(wrong.is_empty(), "nodes: {wrong:#?}");
    let wrong = texts(
        observer,
        "SELECT query, total_time, wait_time, client_time FROM pg_stat_rowsource_plans
         WHERE wait_time > total_time + 0.01 OR client_time > wait_time",
    );
    assert!(wrong.is_empty(), "statements: {wrong:#?}");
}

#[test]
fn a_sleep_belongs_to_the_node_that_evaluates_it() {
    let server = server("node-waits-sleep", &[]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    const SLEEP: &str = "pg_sleep(0.2) IS NOT NULL";
    // Only such a function can be in a key of a hash.
    run_each(
        &mut client,
        "CREATE FUNCTION nap(id int) RETURNS int IMMUTABLE COST 0.0001 LANGUAGE plpgsql AS
         'BEGIN IF id = 5 THEN PERFORM pg_sleep(0.2); END IF; RETURN id; END'",
    );
    for (name, sampfreq, node, settings, statement) in [
        (
            "filter",
            128,
            "Seq Scan",
            "SET enable_mergejoin = off; SET enable_nestloop = off",
            format!(
                "SELECT count(*) FROM t JOIN u USING (id) WHERE CASE WHEN u.id = 5 THEN {SLEEP} ELSE true END"
            ),
        ),
        // The scan and the aggregate above it share an account.
        (
            "fused",
            1,
            "Seq Scan",
            "",
            format!("SELECT count(id) FROM t WHERE CASE WHEN id = 5 THEN {SLEEP} ELSE true END"),
        ),
        (
            "target",
            128,
            "Aggregate",
            "",
            format!("SELECT sum(CASE WHEN id = 5 THEN {SLEEP} ELSE true END::int) FROM t"),
        ),
        // Core calls the node Hash itself.
        (
            "hash",
            1,
            "Hash",
            "SET enable_mergejoin = off; SET enable_nestloop = off",
            "SELECT count(*) /* pg_sleep */ FROM t JOIN u ON t.id = nap(u.id)".to_owned(),
        ),
        (
            "subplan",
            128,
            "Result",
            "",
            format!(
                "SELECT v, (SELECT t.v + 1 WHERE CASE WHEN t.id = 5 THEN {SLEEP} ELSE true END) FROM t WHERE id < 10"
            ),
        ),
    ] {
        let lasted = Lasted::running(
            &mut client,
            200,
            &format!(
                "SET pg_rowsource.sampfreq = {sampfreq}; {settings}; SELECT rowsource_reset(); /* {name} */ {statement}; RESET ALL; SET pg_rowsource.statistics_level = typical"
            ),
        );
        let rows = waits(&mut observer, "%pg_sleep%", "PgSleep");
        println!("{name}: {rows:?}");
        let rows = rows
            .iter()
            .filter(|row| row.0 == node)
            .cloned()
            .collect::<Vec<_>>();
        assert_one(&rows, node, lasted);
        assert_sums_agree(&mut observer);
    }
}

#[test]
fn a_lock_belongs_to_the_node_that_takes_it() {
    let server = server("node-waits-lock", &[]);
    for (held, node, locks) in [
        (
            300,
            "Seq Scan",
            [
                "BEGIN; SELECT pg_advisory_xact_lock(1)",
                "SELECT count(*) FROM t WHERE id = 7 AND pg_advisory_lock(1) IS NOT NULL",
                "advisory",
            ],
        ),
        // It outlasts deadlock_timeout, at which the process wakes up.
        (
            1_200,
            "Update",
            [
                "BEGIN; UPDATE t SET v = 1 WHERE id = 1",
                "UPDATE t SET v = 2 WHERE id = 1",
                "transactionid",
            ],
        ),
        // Locks are taken before a plan runs.
        (
            300,
            "",
            [
                "BEGIN; LOCK TABLE t",
                "SELECT max(v) FROM t WHERE id = 9",
                "relation",
            ],
        ),
    ] {
        let mut observer = server.connect();
        run_each(
            &mut observer,
            "SELECT rowsource_reset(); SET pg_rowsource.statistics_level = basic",
        );
        let client = session(&server);
        let (_client, held) = hold(&mut observer, client, locks, Duration::from_millis(held));
        assert_one(&waits(&mut observer, "%", locks[2]), node, held);
        assert_sums_agree(&mut observer);
        let of_statement: f64 = value(
            &mut observer,
            "SELECT sum(wait_time) FROM pg_stat_rowsource_plans WHERE query LIKE '%t%WHERE id = %'",
        );
        let is_in_run = of_statement > 0.95 * held.least.as_secs_f64() * 1e3;
        assert_eq!(
            is_in_run,
            !node.is_empty(),
            "{of_statement} of {held:?} while it ran"
        );
    }
}

/// A cancelled wait counts for as long as it lasted, and nothing is added later.
#[test]
fn a_cancelled_wait_ends() {
    let server = server("node-waits-cancel", &[]);
    let (mut observer, client) = (server.connect(), session(&server));
    let statement = "SELECT count(*) FROM t WHERE id = 7 AND pg_advisory_lock(1) IS NOT NULL";
    let (mut client, held) = cancel(&mut observer, client, statement, Duration::from_millis(300));
    let of_lock = waits(&mut observer, "%pg_advisory_lock%", "advisory");
    assert_one(&of_lock, "Seq Scan", held);
    run_each(
        &mut client,
        "SELECT pg_sleep(0.1); SELECT count(*) FROM t WHERE id = 8",
    );
    assert_eq!(waits(&mut observer, "%", "advisory"), of_lock);
    let nobodys: i64 = value(
        &mut observer,
        "SELECT count(*) FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource_plans p USING (queryid, planid)
         WHERE p.query LIKE '%t WHERE id = 8' OR p.query LIKE '%t WHERE id = $1'",
    );
    assert_eq!(nobodys, 0);
    assert_sums_agree(&mut observer);
}

/// A request reads one block.
#[test]
fn cold_reads_belong_to_the_nodes_that_read_before_pg17() {
    let server = server(
        "node-waits-reads",
        &["shared_buffers = '1MB'", "effective_io_concurrency = 0"],
    );
    let (mut observer, mut client) = (server.connect(), session(&server));
    run_each(
        &mut client,
        "CREATE TABLE big AS SELECT i AS id, i % 1000 AS k, repeat('x', 500) AS pad FROM generate_series(1, 30000) i;
         CREATE INDEX ON big (id); CREATE INDEX ON big (k); VACUUM ANALYZE big; SELECT rowsource_reset();
         SELECT count(pad) FROM big; SET enable_seqscan = off; SELECT count(pad) FROM big WHERE id BETWEEN 100 AND 20000;
         SET enable_indexscan = off; SELECT count(pad) FROM big WHERE k BETWEEN 7 AND 400",
    );
    let rows = texts(
        &mut observer,
        "SELECT n.operation, n.self_blks_read, w.waits, n.self_blk_read_time, w.wait_time FROM pg_stat_rowsource n
         JOIN pg_stat_rowsource_waits w USING (userid, datid, queryid, planid, toplevel, node_id)
         WHERE w.wait_event = 'DataFileRead' AND n.self_blks_read > 0 ORDER BY 1",
    );
    println!("{rows:?}");
    let nodes: Vec<_> = rows
        .iter()
        .map(|row| row[0].as_deref().unwrap_or_default())
        .collect();
    assert_eq!(
        nodes,
        ["Bitmap Heap Scan", "Bitmap Index Scan", "Index Scan", "Seq Scan"]
    );
    for row in &rows {
        assert_eq!((&row[1], &row[3]), (&row[2], &row[4]), "{row:?}");
    }
    let others: i64 = value(
        &mut observer,
        "SELECT count(*) FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource n USING (queryid, planid, node_id)
         WHERE w.wait_event = 'DataFileRead' AND n.self_blks_read = 0",
    );
    assert_eq!(others, 0, "nodes that read nothing");
    assert_sums_agree(&mut observer);
}

/// Each request to a work file is a wait, of the node whose file it is.
#[test]
fn requests_to_work_files_belong_to_their_nodes() {
    let server = server("node-waits-temp", &["work_mem = '64kB'"]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    let [counted, _] = io_during(&mut observer, || {
        run_each(
            &mut client,
            "SELECT count(*) FROM (SELECT i FROM generate_series(1, 30000) i ORDER BY i DESC OFFSET 0) s",
        );
    });
    let rows = texts(
        &mut observer,
        "SELECT n.operation, lower(w.wait_event) AS event, w.waits, round(w.wait_time::numeric, 3)
         FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource n USING (queryid, planid, node_id)
         WHERE w.wait_event ILIKE 'buffile%' ORDER BY 1, 2",
    );
    println!("{rows:?}, {counted:?}");
    let of = |event: &str, node: &str| {
        let row = rows
            .iter()
            .find(|row| row[0].as_deref() == Some(node) && row[1].as_deref() == Some(event));
        row.map_or(0, |row| {
            row[2]
                .as_deref()
                .unwrap_or_default()
                .parse::<i64>()
                .expect("a number")
        })
    };
    let function = "Function Scan";
    assert!(of("buffileread", "Sort") > 0 && of("buffileread", function) > 0);
    assert_eq!(
        of("buffileread", "Sort") + of("buffileread", function),
        counted.reads().reqs
    );
    assert_eq!(
        of("buffilewrite", "Sort") + of("buffilewrite", function),
        counted.writes().reqs
    );
    assert_sums_agree(&mut observer);
}

/// Starts a session that waits for a lock of the observer until it is ended. Returns its pid and its thread.
fn wait_in_vain(server: &Server, observer: &mut Client) -> (i32, JoinHandle<()>) {
    let mut client = session(server);
    let id = pid(&mut client);
    run_each(observer, "SELECT pg_advisory_lock(1)");
    let session = std::thread::spawn(move || {
        client
            .batch_execute("SELECT count(*) FROM t WHERE id = 7 AND pg_advisory_lock(1) IS NOT NULL")
            .expect_err("the session is ended");
    });
    until_waiting(observer, id, "advisory");
    (id, session)
}

/// A session that is terminated while it waits has waited that long.
#[test]
fn a_wait_of_a_terminated_session_ends() {
    let server = server("node-waits-terminate", &[]);
    let mut observer = server.connect();
    let lasted = Lasted::during(Duration::from_millis(200), || {
        let (id, session) = wait_in_vain(&server, &mut observer);
        std::thread::sleep(Duration::from_millis(200));
        run_each(
            &mut observer,
            &format!("SELECT pg_terminate_backend({id}, 10000)"),
        );
        session.join().expect("the session");
    });
    let rows = waits(&mut observer, "%pg_advisory_lock(%IS NOT NULL", "advisory");
    assert_one(&rows, "Seq Scan", lasted);
    assert_sums_agree(&mut observer);
}

/// Its own plans have the waits since it loaded the library.
#[test]
fn a_session_that_loads_the_library_has_waits() {
    let server = Server::start("node-waits-load", &["shared_preload_libraries = ''", "jit = off"]);
    let mut client = server.connect();
    let lasted = Lasted::running(
        &mut client,
        100,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.statistics_level = typical;
         CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i;
         SELECT count(*) FROM t WHERE CASE WHEN id = 5 THEN pg_sleep(0.1) IS NOT NULL END",
    );
    assert_one(&waits(&mut client, "%pg_sleep%", "PgSleep"), "Seq Scan", lasted);
    assert_sums_agree(&mut client);
}

#[test]
fn a_slow_client_is_the_statements() {
    let server = server("node-waits-client", &[]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    let id = pid(&mut client);
    let statement = "SELECT repeat('x', 1000) AS pad FROM generate_series(1, 50000) /* slow */";
    let rows = client.query_raw(statement, Vec::<String>::new()).expect("rows");
    until_waiting(&mut observer, id, "ClientWrite");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rows.count().expect("rows"), 50_000);
    let rows = waits(&mut observer, "%slow%", "ClientWrite");
    println!("{rows:?}");
    let [(node, 1.., total)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(node, "", "outside of the nodes");
    let client_time: f64 = value(
        &mut observer,
        "SELECT client_time FROM pg_stat_rowsource_plans WHERE query LIKE '%slow%'",
    );
    assert!(
        (client_time - total).abs() < 0.001 && client_time > 499.0,
        "{client_time} ms, waits {rows:?}"
    );
    let shown = format!("{:?}", texts(&mut client, "SELECT rowsource_display()"));
    assert!(shown.contains("for its client to take rows"), "{shown}");
    assert_sums_agree(&mut observer);
}

#[test]
fn waits_of_workers_belong_to_their_nodes() {
    let server = server("node-waits-workers", &[]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    run_each(
        &mut client,
        "CREATE TABLE big AS SELECT i AS id, repeat('x', 200) AS pad FROM generate_series(1, 50000) i; VACUUM ANALYZE big;
         SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off",
    );
    let mut slept = Lasted::running(
        &mut client,
        500,
        "SELECT count(*) FROM big WHERE CASE WHEN id % 10000 = 0 THEN pg_sleep(0.1) IS NOT NULL ELSE true END",
    );
    let rows = waits(&mut observer, "%pg_sleep%", "PgSleep");
    println!("{rows:?}");
    // A process that sets the latch of a sleeping one ends its wait, and PostgreSQL waits again.
    let [(node, 5..=15, total)] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(node, "Parallel Seq Scan");
    // Two workers sleep at the same time.
    slept.most *= 2;
    assert!(slept.contains(*total), "{rows:?}, {slept:?}");
    let of_leader = waits(&mut observer, "%pg_sleep%", "ExecuteGather");
    println!("{of_leader:?}");
    let [(node, 1.., total)] = of_leader.as_slice() else {
        panic!("{of_leader:?}");
    };
    assert!(node == "Gather" && *total > 90.0, "{of_leader:?}");
    // Workers that cannot send their rows wait outside of their nodes.
    let parameters: [&str; 0] = [];
    let statement = "SELECT pad FROM big WHERE id > 0 /* slow */";
    let mut rows = client.query_raw(statement, parameters).expect("rows");
    let both_wait = "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'MessageQueueSend'";
    until(&mut observer, both_wait);
    std::thread::sleep(Duration::from_millis(300));
    while rows.next().expect("a row").is_some() {}
    drop(rows);
    let to_send = waits(&mut observer, "%slow%", "MessageQueueSend");
    println!("{to_send:?}");
    let [(node, 2.., total)] = to_send.as_slice() else {
        panic!("{to_send:?}");
    };
    let elapsed: f64 = value(
        &mut observer,
        "SELECT total_time FROM pg_stat_rowsource_plans WHERE query LIKE '%slow%'",
    );
    assert!(
        node.is_empty() && (599.0..2.0 * elapsed).contains(total),
        "{to_send:?}"
    );
    assert_sums_agree(&mut observer);
}

#[test]
fn a_commit_belongs_to_its_statement() {
    let server = server(
        "node-waits-commit",
        // Nobody else flushes WAL meanwhile.
        &[
            "wal_sync_method = fdatasync",
            "fsync = on",
            "wal_writer_delay = '10s'",
        ],
    );
    let (mut observer, mut client) = (server.connect(), session(&server));
    let of_commit = |observer: &mut Client, like: &str| {
        let rows = waits(observer, like, "WALSync");
        rows.iter().map(|row| (row.0.clone(), row.1)).collect::<Vec<_>>()
    };
    for i in 1..=3 {
        run_each(&mut client, "INSERT INTO t VALUES (1, 7)");
        assert_eq!(of_commit(&mut observer, "INSERT INTO t%"), [(String::new(), i)]);
    }
    // The last execution's waits are those of all executions of a session that has run it once.
    run_each(
        &mut client,
        "BEGIN; INSERT INTO u VALUES (1, 7); COMMIT; SELECT count(*) FROM u",
    );
    assert_eq!(
        of_commit(&mut observer, "INSERT INTO u%"),
        [],
        "COMMIT is a statement of its own"
    );
    assert_eq!(of_commit(&mut observer, "SELECT count(*) FROM u"), []);
    let run: f64 = value(
        &mut observer,
        "SELECT wait_time FROM pg_stat_rowsource_plans WHERE query LIKE 'INSERT INTO t%'",
    );
    let total: f64 = value(
        &mut observer,
        "SELECT sum(w.wait_time) FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource_plans p USING (queryid, planid)
         WHERE p.query LIKE 'INSERT INTO t%' AND lower(w.wait_event) = 'walsync'",
    );
    assert!(run < total, "{run} while they ran, {total} in commits");
    assert_sums_agree(&mut observer);
}

#[test]
fn waits_of_nested_statements_are_also_their_callers() {
    let server = server("node-waits-nested", &[]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    let lasted = Lasted::running(&mut client, 100, "SET pg_rowsource.track = 'all';
             CREATE FUNCTION nap() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN 1; END';
             SELECT count(*) FROM t WHERE id = 5 AND nap() = 1;
             DO 'BEGIN PERFORM nap(); END'");
    let rows = waits(&mut observer, "%", "PgSleep");
    println!("{rows:?}");
    for (like, node) in [
        ("SELECT count(*)%", "Seq Scan"),
        ("DO%", "DO"),
        ("SELECT nap()%", "Result"),
    ] {
        assert_one(&waits(&mut observer, like, "PgSleep"), node, lasted);
    }
    let inner = waits(&mut observer, "SELECT pg_sleep%", "PgSleep");
    assert!(
        matches!(inner.as_slice(), [(node, 2, _)] if node == "Result"),
        "{inner:?}"
    );
    assert_sums_agree(&mut observer);
}

#[test]
fn the_last_execution_has_its_own_waits() {
    let mut server = server("node-waits-last", &[]);
    let (mut observer, mut client) = (server.connect(), session(&server));
    run_each(
        &mut client,
        "PREPARE p AS SELECT count(*) FROM t WHERE id = $1::int AND CASE WHEN $2::float8 > 0 THEN pg_sleep($2) IS NOT NULL END;
         SET plan_cache_mode = force_generic_plan; EXECUTE p(1, 0.05); EXECUTE p(2, 0.1); EXECUTE p(2, 0)",
    );
    let times = "SELECT n.wait_time, n.last_wait_time FROM pg_stat_rowsource n
         JOIN pg_stat_rowsource_plans p USING (queryid, planid)
         WHERE n.operation = 'Seq Scan' AND p.query LIKE '%pg_sleep%' AND n.wait_time > 0";
    let row = observer.query_one(times, &[]).expect("a scan that waited");
    let (all, last): (f64, f64) = (row.get(0), row.get(1));
    assert!(all > 142.0 && last == 0.0, "{all}, {last}");
    run_each(&mut client, "EXECUTE p(2, 0.05)");
    let row = observer.query_one(times, &[]).expect("a scan that waited");
    let (more, last): (f64, f64) = (row.get(0), row.get(1));
    assert!(
        last > 47.0 && (more - all - last).abs() < 0.001,
        "{all}, {last}, {more}"
    );
    assert_eq!(waits(&mut observer, "%", "PgSleep")[0].1, 3);
    run_each(
        &mut client,
        "SET pg_rowsource.wait_timing = off; EXECUTE p(2, 0.05)",
    );
    let row = observer.query_one(times, &[]).expect("a scan that waited");
    assert_eq!(
        (row.get::<_, f64>(0), row.get::<_, f64>(1)),
        (more, 0.0),
        "switched off"
    );
    assert_sums_agree(&mut observer);
    // Neither DISCARD nor a restart changes what is stored.
    let stored = waits(&mut observer, "%", "PgSleep");
    run_each(&mut client, "DISCARD ALL");
    assert_eq!(waits(&mut observer, "%", "PgSleep"), stored);
    drop((client, observer));
    server.stop();
    server.launch();
    assert_eq!(waits(&mut server.connect(), "%", "PgSleep"), stored);
}

/// A killed session takes its waits with it, and those of all others start again.
#[test]
fn a_kill_during_a_wait_leaves_nothing() {
    let server = server("node-waits-kill", &[]);
    let mut observer = server.connect();
    let (id, session) = wait_in_vain(&server, &mut observer);
    let before = server.restarts();
    server.kill_process(id as u32);
    session.join().expect("the session");
    while server.restarts() == before {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut observer = server.connect();
    assert_eq!(waits(&mut observer, "%", "advisory"), []);
    let left = texts(
        &mut observer,
        "SELECT * FROM pg_stat_rowsource_system_waits WHERE wait_event = 'advisory'",
    );
    assert!(left.is_empty(), "{left:?}");
    let mut client = self::session(&server);
    let lasted = Lasted::running(
        &mut client,
        100,
        "SELECT count(*) FROM t WHERE CASE WHEN id = 7 THEN pg_sleep(0.1) IS NOT NULL END",
    );
    let rows = waits(&mut observer, "%pg_sleep%", "PgSleep");
    assert_one(&rows, "Seq Scan", lasted);
}
