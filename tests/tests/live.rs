//! What other sessions see of statements that run, compared with known truths: rows, the node that runs,
//! times.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::process::{is_stopped, send_signal};
use rowsource_tests::session::{major, must_fail, run_each, texts, value};
use rowsource_tests::waiting::{TIMEOUT, pid, until, until_waiting};
use std::time::{Duration, Instant};

/// A row of the view.
#[derive(Clone, Debug)]
struct Node {
    level: i32,
    state: String,
    operation: String,
    object: Option<String>,
    starts: i64,
    rows: i64,
    total: f64,
    hits: i64,
    is_running: bool,
    event: Option<String>,
    age: f64,
    until: String,
}

fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            "jit = off",
            "autovacuum = off",
            "max_parallel_workers_per_gather = 0",
            "pg_rowsource.track = all",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE t AS SELECT i AS id, repeat('x', 50) AS pad FROM generate_series(1, 20000) i;
         CREATE TABLE s AS SELECT * FROM t WHERE id <= 3000;
         CREATE SEQUENCE n;
         VACUUM (FREEZE, ANALYZE)",
    );
    server
}

/// Returns the nodes of the statements that a process runs.
fn live(observer: &mut Client, pid: i32) -> Vec<Node> {
    let rows = observer
        .query(
            "SELECT nesting_level, state, coalesce(operation, '?'), object_name, coalesce(starts, -1), rows,
                    coalesce(total_time, -1), coalesce(shared_blks_hit, -1), running, wait_event, age, blocks_until
             FROM pg_stat_rowsource_live WHERE pid = $1",
            &[&pid],
        )
        .expect("pg_stat_rowsource_live");
    rows.iter()
        .map(|row| Node {
            level: row.get(0),
            state: row.get(1),
            operation: row.get(2),
            object: row.get(3),
            starts: row.get(4),
            rows: row.get(5),
            total: row.get(6),
            hits: row.get(7),
            is_running: row.get(8),
            event: row.get(9),
            age: row.get(10),
            until: row.get(11),
        })
        .collect()
}

fn node<'a>(nodes: &'a [Node], operation: &str) -> &'a Node {
    let found = nodes.iter().find(|node| node.operation == operation);
    found.unwrap_or_else(|| panic!("no {operation} in {nodes:#?}"))
}

/// Fails unless exactly this node runs, of the statements of a session at this level.
fn assert_runs(nodes: &[Node], operation: &str, event: &str) {
    let running: Vec<&Node> = nodes.iter().filter(|node| node.is_running).collect();
    assert_eq!(running.len(), 1, "{nodes:#?}");
    assert_eq!(
        (running[0].operation.as_str(), running[0].event.as_deref()),
        (operation, Some(event)),
        "{nodes:#?}"
    );
}

/// For how long a statement waits at least before another session looks.
const WAITED: Duration = Duration::from_millis(300);

/// Fails unless the node's time contains the call that it is in, which began before the session waited.
fn assert_contains_wait(node: &Node) {
    let waited = WAITED.as_secs_f64() * 1e3;
    assert!(node.total > 0.99 * waited && node.total <= node.age, "{node:?}");
}

/// Runs a statement until it waits, and returns what another session sees then.
fn seen_waiting(server: &Server, observer: &mut Client, sql: &str, event: &str) -> Vec<Node> {
    let busy = Busy::run(server.connect(), sql);
    until_waiting(observer, busy.pid, event);
    std::thread::sleep(WAITED);
    let nodes = live(observer, busy.pid);
    busy.cancel(observer);
    nodes
}

#[test]
fn a_waiting_statement_is_seen_as_it_is() {
    let server = server("live-waiting");
    let mut observer = server.connect();

    // The filter sleeps in the 1,000th row. It is the first execution of the plan, and the node has begun no
    // other call since.
    let sql = "SELECT count(*) FROM (SELECT id FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL OFFSET 0) x";
    let nodes = seen_waiting(&server, &mut observer, sql, "PgSleep");
    assert_runs(&nodes, "Seq Scan", "PgSleep");
    let scan = node(&nodes, "Seq Scan");
    assert_eq!(
        (scan.rows, scan.starts, scan.object.as_deref()),
        (999, 1, Some("t")),
        "{nodes:#?}"
    );
    assert_eq!(node(&nodes, "Aggregate").rows, 0);
    for of in ["Seq Scan", "Aggregate"] {
        assert_contains_wait(node(&nodes, of));
    }
    if scan.until == "now" {
        // From 17 on, a scan asks for blocks ahead.
        let ahead = if major(&mut observer) < 17 { 0 } else { 16 };
        let blocks: i64 = value(
            &mut observer,
            "SELECT max((ctid::text::point)[0])::bigint + 1 FROM t WHERE id <= 1000",
        );
        assert!(
            (blocks..=blocks + ahead).contains(&scan.hits),
            "{blocks}: {nodes:#?}"
        );
    }

    // A row lock held by another session.
    let mut holder = server.connect();
    run_each(&mut holder, "BEGIN; UPDATE t SET pad = pad WHERE id = 1000");
    let nodes = seen_waiting(
        &server,
        &mut observer,
        "SELECT id FROM t ORDER BY id FOR UPDATE",
        "transactionid",
    );
    assert_runs(&nodes, "LockRows", "transactionid");
    assert_eq!(
        (node(&nodes, "LockRows").rows, node(&nodes, "Sort").rows),
        (999, 1000),
        "{nodes:#?}"
    );
    assert_eq!(node(&nodes, "Seq Scan").rows, 20_000);
    run_each(&mut holder, "ROLLBACK");

    // A sort that is being built.
    let sql = "SELECT * FROM (SELECT id, pg_sleep(CASE WHEN id = 500 THEN 60 ELSE 0 END) FROM t OFFSET 0) x ORDER BY id DESC";
    let nodes = seen_waiting(&server, &mut observer, sql, "PgSleep");
    assert_runs(&nodes, "Seq Scan", "PgSleep");
    assert_eq!(
        (node(&nodes, "Sort").rows, node(&nodes, "Sort").starts),
        (0, 1),
        "{nodes:#?}"
    );
    assert_eq!(node(&nodes, "Seq Scan").rows, 499, "{nodes:#?}");

    // A hash join in one of its last batches: it sleeps in the 15,000th pair.
    let sql = "SET work_mem = '64kB'; SET enable_mergejoin = off; SET enable_nestloop = off;
               SELECT a.id FROM t a JOIN t b ON a.id = b.id
               AND pg_sleep(CASE WHEN nextval('n') + 0 * (a.id + b.id) = 15000 THEN 60 ELSE 0 END) IS NOT NULL";
    let nodes = seen_waiting(&server, &mut observer, sql, "PgSleep");
    assert_runs(&nodes, "Hash Join", "PgSleep");
    assert_eq!(
        (node(&nodes, "Hash Join").rows, node(&nodes, "Hash").rows),
        (14_999, 20_000),
        "{nodes:#?}"
    );

    // Statements that ended are not shown.
    let rows: i64 = value(&mut observer, "SELECT count(*) FROM pg_stat_rowsource_live");
    assert_eq!(rows, 0);
    server.assert_no_crash();
}

#[test]
fn a_running_statement_is_displayed() {
    let server = server("live-display");
    let mut observer = server.connect();
    let sql = "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL";
    let busy = Busy::run(server.connect(), sql);
    until_waiting(&mut observer, busy.pid, "PgSleep");
    let display = format!("SELECT * FROM rowsource_display(pid => {})", busy.pid);
    let lines: Vec<String> = texts(&mut observer, &display)
        .into_iter()
        .filter_map(|mut row| row.remove(0))
        .collect();
    let shown = lines.join("\n");
    println!("{shown}");
    let now = format!(
        "process {}  running (*)  waits for Timeout:PgSleep  elapsed",
        busy.pid
    );
    assert!(shown.contains(&now), "{shown}");
    assert!(shown.contains("SELECT count(*) FROM t WHERE"), "{shown}");
    let marked: Vec<&String> = lines.iter().filter(|line| line.contains("| *")).collect();
    assert!(
        marked.len() == 1 && marked[0].contains("Seq Scan") && marked[0].contains("  999 |"),
        "{shown}"
    );

    let idle = pid(&mut server.connect());
    let (_, message) = must_fail(
        &mut observer,
        &format!("SELECT * FROM rowsource_display(pid => {idle})"),
    );
    assert!(message.contains("runs no measured statement"), "{message}");
    let (_, message) = must_fail(&mut observer, "SELECT * FROM rowsource_display(1, pid => 1)");
    assert!(message.contains("exclude each other"), "{message}");
    run_each(&mut observer, "CREATE ROLE other LOGIN");
    let mut other = server.try_connect("other").expect("a session");
    let (_, message) = must_fail(&mut other, &display);
    assert!(message.contains("permission denied"), "{message}");
    busy.cancel(&mut observer);
}

#[test]
fn a_stopped_statement_is_seen_as_it_is() {
    let server = server("live-stopped");
    let mut observer = server.connect();
    let sql = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
               SELECT count(*) FROM s a JOIN t b ON a.id + b.id = -1";
    let busy = Busy::run(server.connect(), sql);
    let deadline = Instant::now() + TIMEOUT;
    while live(&mut observer, busy.pid)
        .first()
        .is_none_or(|node| node.age < 200.0)
    {
        assert!(Instant::now() < deadline, "it does not run");
    }
    send_signal(busy.pid as u32, "STOP");
    while !is_stopped(busy.pid as u32) {
        assert!(Instant::now() < deadline, "it does not stop");
    }
    let first = live(&mut observer, busy.pid);
    std::thread::sleep(Duration::from_millis(100));
    let second = live(&mut observer, busy.pid);
    send_signal(busy.pid as u32, "CONT");
    let rows = |nodes: &[Node]| {
        nodes
            .iter()
            .map(|node| (node.starts, node.rows, node.hits))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&first), rows(&second));
    let [_, _, outer, inner] = &first[..] else {
        panic!("{first:#?}")
    };
    // Each row of the outer side starts the inner side again. It may have stopped between the two.
    assert!(
        (inner.starts..=inner.starts + 1).contains(&outer.rows),
        "{first:#?}"
    );
    let size = if inner.object.as_deref() == Some("s") {
        3_000
    } else {
        20_000
    };
    let read = (inner.starts - 1) * size..=inner.starts * size;
    assert!(read.contains(&inner.rows), "{first:#?}");
    assert!(second[0].age - first[0].age >= 100.0, "time goes on: {second:#?}");
    busy.cancel(&mut observer);
}

#[test]
fn cursors_and_nested_statements_are_seen() {
    let server = server("live-nested");
    let mut observer = server.connect();
    let mut client = server.connect();
    let id = pid(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH 100 FROM c",
    );
    let nodes = live(&mut observer, id);
    let [scan] = &nodes[..] else { panic!("{nodes:#?}") };
    assert_eq!(
        (scan.state.as_str(), scan.rows, scan.is_running),
        ("idle in cursor", 100, false),
        "{nodes:#?}"
    );
    // The time of an idle cursor is not that of its nodes.
    assert!(scan.total < scan.age, "{nodes:#?}");
    run_each(&mut client, "COMMIT");
    assert!(live(&mut observer, id).is_empty());

    let created = observer.batch_execute(
        "CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           PERFORM count(*) FROM s WHERE pg_sleep(CASE WHEN id = 7 AND i = 3 THEN 60 ELSE 0 END) IS NOT NULL; RETURN i; END $$",
    );
    created.expect("a function");
    let nodes = seen_waiting(
        &server,
        &mut observer,
        "SELECT f(id) FROM s ORDER BY id LIMIT 5",
        "PgSleep",
    );
    let levels: Vec<i32> = nodes.iter().map(|node| node.level).collect();
    assert_eq!(
        (levels.first(), levels.last()),
        (Some(&0), Some(&1)),
        "{nodes:#?}"
    );
    let inner: Vec<Node> = nodes.iter().filter(|node| node.level == 1).cloned().collect();
    assert_runs(&inner, "Seq Scan", "PgSleep");
    assert_eq!(node(&inner, "Seq Scan").rows, 6, "{nodes:#?}");
    let outer: Vec<&Node> = nodes
        .iter()
        .filter(|node| node.level == 0 && node.is_running)
        .collect();
    assert_eq!(outer.len(), 1, "the node that calls the function: {nodes:#?}");
    assert_contains_wait(outer[0]);
}

#[test]
fn a_statement_that_waits_for_its_client_is_seen() {
    let server = server("live-client");
    let mut observer = server.connect();
    let mut client = server.connect();
    let id = pid(&mut client);
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let sql = "SELECT a.id, repeat(a.pad, 20) FROM t a, generate_series(1, 50)";
    let mut rows = client
        .query_raw(sql, std::iter::empty::<i32>())
        .expect("the statement");
    rows.next().expect("a row");
    until_waiting(&mut observer, id, "ClientWrite");
    let first = live(&mut observer, id);
    std::thread::sleep(Duration::from_millis(50));
    let second = live(&mut observer, id);
    // No node runs while a row is sent.
    assert!(first.iter().all(|node| !node.is_running), "{first:#?}");
    assert_eq!(first[0].event.as_deref(), Some("ClientWrite"), "{first:#?}");
    let figures = |nodes: &[Node]| {
        nodes
            .iter()
            .map(|node| (node.rows, node.hits))
            .collect::<Vec<_>>()
    };
    assert_eq!(figures(&first), figures(&second));
    assert!(first[0].rows > 0, "{first:#?}");
    drop(rows);
}

#[test]
fn parallel_workers_are_seen() {
    let server = server("live-parallel");
    let mut observer = server.connect();
    let sql =
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
               SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
               SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL";
    let busy = Busy::run(server.connect(), sql);
    let of_workers = format!(
        "SELECT coalesce(min(operation || ' ' || coalesce(object_name, '')), '') FROM pg_stat_rowsource_live l
         WHERE leader_pid = {} AND running AND wait_event = 'PgSleep' AND node_id IS NOT NULL
           AND queryid = (SELECT queryid FROM pg_stat_rowsource_live WHERE pid = l.leader_pid LIMIT 1)",
        busy.pid
    );
    let deadline = Instant::now() + TIMEOUT;
    while value::<String>(&mut observer, &of_workers) != "Parallel Seq Scan t" {
        assert!(Instant::now() < deadline, "{:#?}", live(&mut observer, busy.pid));
    }
    // The other worker reads the rest, and ends.
    let rows = format!(
        "SELECT sum(rows)::bigint FROM pg_stat_rowsource_live WHERE leader_pid = {} AND operation = 'Parallel Seq Scan'",
        busy.pid
    );
    let seen: i64 = value(&mut observer, &rows);
    assert!((0..20_000).contains(&seen), "{seen}");
    let nodes = live(&mut observer, busy.pid);
    assert!(
        nodes
            .iter()
            .any(|node| node.operation == "Gather" && node.is_running),
        "{nodes:#?}"
    );
    busy.cancel(&mut observer);
}

/// PostgreSQL tells workers the queryid of what the client sent, also if a function runs their statement.
#[test]
fn parallel_workers_of_a_statement_in_a_function_belong_to_it() {
    let server = server("live-parallel-nested");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS
           'BEGIN PERFORM count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL; RETURN 1; END'",
    );
    let sql =
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
               SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
               SELECT counted()";
    let busy = Busy::run(server.connect(), sql);
    for shown in ["pg_stat_rowsource_live", "rowsource_ash"] {
        until(
            &mut observer,
            &format!(
                "SELECT count(*) > 0 FROM {shown} WHERE leader_pid = {pid} AND wait_event = 'PgSleep' AND NOT toplevel
                   AND operation = 'Parallel Seq Scan' AND object_name = 't'
                   AND queryid = (SELECT queryid FROM pg_stat_rowsource_live WHERE pid = {pid} AND operation = 'Gather')",
                pid = busy.pid
            ),
        );
    }
    busy.cancel(&mut observer);
}

/// PostgreSQL removes the wrapper of a Parallel Hash Join in the leader, until the Gather's first call ends.
/// Its blocks were counted twice then, and its call seemed to have begun when the machine started.
#[test]
fn parallel_hash_joins_in_the_leader_are_seen_as_they_are() {
    let server = server("live-parallel-hash");
    let mut observer = server.connect();
    for is_timed in [true, false] {
        joins_are_seen_as_they_are(&server, &mut observer, is_timed, "t a JOIN t b ON a.id = b.id");
        // The outer input of the join is another join.
        let nested = "t a JOIN t b ON a.id = b.id JOIN s ON s.id = a.id";
        joins_are_seen_as_they_are(&server, &mut observer, is_timed, nested);
    }
}

/// Looks at an aggregate above Parallel Hash Joins, which are one above another: first the aggregate sleeps,
/// then the first join.
fn joins_are_seen_as_they_are(server: &Server, observer: &mut Client, is_timed: bool, tables: &str) {
    let joins = tables.matches("JOIN").count();
    let last = if joins == 1 { "b" } else { "s" };
    let sampfreq = if is_timed { 128 } else { 0 };
    println!("{tables}, sampfreq {sampfreq}");
    // The aggregate sleeps at its first row, and the join at a later one. No worker can start.
    let sql = format!(
        "SET max_parallel_workers = 0; SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET enable_mergejoin = off; SET enable_nestloop = off;
         SET join_collapse_limit = 1; SET pg_rowsource.sampfreq = {sampfreq};
         SELECT sum(CASE WHEN a.id = 1 AND pg_sleep(3) IS NULL THEN 0 ELSE 1 END) FROM {tables}
          WHERE pg_sleep(CASE WHEN a.id + {last}.id = 4000 THEN 600 ELSE 0 END) IS NOT NULL"
    );
    let busy = Busy::run(server.connect(), &sql);
    // The session is in its sleep for some time when the views are read.
    let pause = Duration::from_millis(300);
    until_waiting(observer, busy.pid, "PgSleep");
    std::thread::sleep(pause);
    let nodes = live(observer, busy.pid);
    let plan: Vec<&str> = nodes.iter().map(|node| node.operation.as_str()).collect();
    let first = plan
        .iter()
        .position(|operation| *operation == "Parallel Hash Join");
    let first = first.unwrap_or_else(|| panic!("no join: {plan:?}"));
    let chain = plan[first..]
        .iter()
        .take_while(|operation| **operation == "Parallel Hash Join");
    assert_eq!(chain.count(), joins, "{plan:?}");
    assert_runs(&nodes, "Partial Aggregate", "PgSleep");
    let blocks = |nodes: &[Node]| {
        let scans = nodes.iter().filter(|node| node.operation == "Parallel Seq Scan");
        let truth: i64 = scans.map(|scan| scan.hits).sum();
        let (join, aggregate) = (&nodes[first], node(nodes, "Partial Aggregate"));
        assert!(truth > 0);
        assert_eq!((join.hits, aggregate.hits), (truth, truth), "{nodes:#?}");
    };
    blocks(&nodes);
    let runs =
        "SELECT count(*) = 1 FROM pg_stat_rowsource_live WHERE running AND operation = 'Parallel Hash Join'";
    until(observer, runs);
    std::thread::sleep(pause);
    let nodes = live(observer, busy.pid);
    assert_runs(&nodes, "Parallel Hash Join", "PgSleep");
    assert!(nodes[first].is_running, "{nodes:#?}");
    blocks(&nodes);
    let aggregate = node(&nodes, "Partial Aggregate");
    if is_timed {
        assert!(aggregate.total - nodes[first].total > 2900.0, "{nodes:#?}");
    }
    let began = "SELECT coalesce((call_started_at >= query_start)::text, 'unknown')
                   FROM rowsource_progress JOIN pg_stat_activity USING (pid)";
    let expected = if is_timed { "true" } else { "unknown" };
    assert_eq!(value::<String>(observer, began), expected, "{nodes:#?}");
    let pid = busy.pid;
    let mut session = busy.cancel(observer);
    // Samples of the three seconds in which the aggregate slept, and of the time since then, in which the
    // first join did.
    let sampled = format!(
        "SELECT string_agg(DISTINCT operation || ' ' || node_id, ', ' ORDER BY operation || ' ' || node_id) FROM rowsource_ash
          WHERE pid = {pid} AND wait_event = 'PgSleep'"
    );
    assert_eq!(
        value::<String>(observer, &sampled),
        format!("Parallel Hash Join {first}, Partial Aggregate {}", first - 1)
    );
    let rest = "SELECT coalesce(bool_and(CASE operation WHEN 'Partial Aggregate' THEN self_time > 2900
                                    WHEN 'Parallel Hash Join' THEN self_time < 2900 END), false)
           FROM pg_stat_rowsource WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last())";
    if is_timed {
        assert!(
            value::<bool>(&mut session, rest),
            "the aggregate slept three seconds"
        );
    }
}

/// How far `rowsource_logical_io()` is: as many blocks as were got.
#[test]
fn gets_of_blocks_in_progress_are_seen() {
    let server = server("live-gets");
    let mut observer = server.connect();
    let busy = Busy::run(
        server.connect(),
        "SELECT * FROM rowsource_logical_io('t', blocks => 1000000000000)",
    );
    let mut seen = Vec::new();
    let began = Instant::now();
    while seen.len() < 3 {
        assert!(began.elapsed() < TIMEOUT, "{seen:?}");
        std::thread::sleep(Duration::from_millis(20));
        let nodes = live(&mut observer, busy.pid);
        // The system may refuse to show PostgreSQL's counters to others.
        if let Some(node) = nodes.first().filter(|node| node.until != "now") {
            println!("not to be seen: {node:?}");
            break;
        }
        let hits = nodes.first().map_or(0, |node| node.hits);
        if hits > seen.last().copied().unwrap_or(10_000) {
            seen.push(hits);
        }
    }
    busy.cancel(&mut observer);
}

/// Sessions that load the library themselves see each other.
#[test]
fn without_preloading_statements_are_seen_pg17_plus() {
    let server = Server::start("live-loaded", &["jit = off"]);
    let mut observer = server.session();
    run_each(
        &mut observer,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 2000) i",
    );
    let busy = Busy::run(
        server.session(),
        "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL",
    );
    until_waiting(&mut observer, busy.pid, "PgSleep");
    let nodes = live(&mut observer, busy.pid);
    assert_runs(&nodes, "Seq Scan", "PgSleep");
    assert_eq!(node(&nodes, "Seq Scan").rows, 999, "{nodes:#?}");
    busy.cancel(&mut observer);
}
