//! How far statements are, as other sessions see it, compared with known truths. A filter sleeps in a known
//! row.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::{Busy, CANCEL_TIMEOUT};
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::{TIMEOUT, pid, until_waiting};
use std::time::Instant;

/// A row of the view.
#[derive(Clone, Debug)]
struct Progress {
    done: Option<f64>,
    low: f64,
    high: f64,
    basis: String,
    left: Option<f64>,
    left_low: Option<f64>,
    left_high: Option<f64>,
    elapsed: f64,
    state: String,
    level: i32,
    operation: Option<String>,
    object: Option<String>,
    /// Milliseconds since the call of the node that runs began.
    running: Option<f64>,
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
         CREATE TABLE k AS SELECT * FROM t; ALTER TABLE k ADD PRIMARY KEY (id);
         CREATE TABLE p (id int, pad text) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (5001);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (5001) TO (10001);
         CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (10001) TO (100000);
         INSERT INTO p SELECT * FROM t;
         CREATE SEQUENCE n;
         VACUUM (FREEZE, ANALYZE)",
    );
    server
}

/// Returns what the view says of the statements of a process, the outermost first.
fn seen(observer: &mut Client, pid: i32) -> Vec<Progress> {
    let rows = observer
        .query(
            "SELECT percent_done, coalesce(percent_low, -1), coalesce(percent_high, -1), coalesce(basis, ''), time_left,
                    time_left_low, time_left_high, elapsed_time, state, nesting_level, operation, object_name,
                    (extract(epoch FROM clock_timestamp() - call_started_at) * 1000)::float8
             FROM rowsource_progress WHERE pid = $1 ORDER BY nesting_level",
            &[&pid],
        )
        .expect("rowsource_progress");
    let all = rows.iter().map(|row| Progress {
        done: row.get(0),
        low: row.get(1),
        high: row.get(2),
        basis: row.get(3),
        left: row.get(4),
        left_low: row.get(5),
        left_high: row.get(6),
        elapsed: row.get(7),
        state: row.get(8),
        level: row.get(9),
        operation: row.get(10),
        object: row.get(11),
        running: row.get(12),
    });
    let all: Vec<Progress> = all.collect();
    for progress in all.iter().filter(|progress| progress.done.is_some()) {
        let done = progress.done();
        assert!(
            0.0 <= progress.low && progress.low <= done && done <= progress.high && progress.high <= 100.0,
            "{progress:?}"
        );
    }
    all
}

impl Progress {
    fn done(&self) -> f64 {
        self.done.unwrap_or_else(|| panic!("no percent: {self:?}"))
    }

    /// Fails unless the progress is `truth`, with a tolerance, and `truth` lies within the bounds.
    fn assert_done(&self, truth: f64, tolerance: f64) {
        assert!((self.done() - truth).abs() <= tolerance, "{truth}: {self:?}");
    }
}

/// Runs a statement until it waits, and returns what another session sees then.
fn seen_waiting(server: &Server, observer: &mut Client, sql: &str, event: &str) -> Vec<Progress> {
    let busy = Busy::run(server.connect(), sql);
    until_waiting(observer, busy.pid, event);
    let progress = seen(observer, busy.pid);
    busy.cancel(observer);
    progress
}

/// Runs a statement that sleeps where `STOP` is, for several values of it. Fails if the lower bound ever
/// falls.
fn seen_at(server: &Server, observer: &mut Client, sql: &str, stops: &[i64]) -> Vec<Progress> {
    let mut all: Vec<Progress> = Vec::new();
    for stop in stops {
        run_each(observer, "ALTER SEQUENCE n RESTART");
        let sql = sql.replace("STOP", &stop.to_string());
        let progress = seen_waiting(server, observer, &sql, "PgSleep");
        println!("{stop}: {progress:?}");
        let [progress] = &progress[..] else {
            panic!("{progress:#?}")
        };
        let lowest = all.last().map_or(0.0, |before| before.low);
        assert!(progress.low >= lowest, "{lowest}: {progress:?}");
        all.push(progress.clone());
    }
    all
}

fn batch(client: &mut Client, sql: &str) {
    client.batch_execute(sql).expect("it works");
}

/// Without measured times, the weights are fixed: then the same rows are always the same percentage.
const UNTIMED: &str = "SET pg_rowsource.sampfreq = 0;";
/// Sleeps in this row of a table.
const SLEEP: &str = "pg_sleep(CASE WHEN t.id = STOP THEN 60 ELSE 0 END) IS NOT NULL";
/// Sleeps in this call.
const SLEEP_IN_CALL: &str = "pg_sleep(CASE WHEN nextval('n') = STOP THEN 60 ELSE 0 END) IS NOT NULL";

#[test]
fn a_scan_is_as_far_as_its_rows() {
    let server = server("progress-scan");
    let mut observer = server.connect();
    for sql in ["SELECT count(*) FROM t WHERE ", "SELECT * FROM t WHERE "] {
        let all = seen_at(
            &server,
            &mut observer,
            &format!("{sql}{SLEEP}"),
            &[200, 6_000, 19_900],
        );
        for (progress, truth) in all.iter().zip([1.0, 30.0, 99.5]) {
            progress.assert_done(truth, 1.0);
            assert_eq!(progress.basis, "rows");
            assert_eq!(
                (progress.operation.as_deref(), progress.object.as_deref()),
                (Some("Seq Scan"), Some("t"))
            );
            // What is left takes as long as what is done.
            let left = progress.left.expect("a time");
            let expected = progress.elapsed * (100.0 - progress.done()) / progress.done();
            assert!((left - expected).abs() <= 0.05 * expected + 1.0, "{progress:?}");
            assert!(
                progress.left_low.expect("a time") <= left && left <= progress.left_high.expect("a time")
            );
        }
    }

    // A row that another session has locked.
    let mut holder = server.connect();
    run_each(&mut holder, "BEGIN; UPDATE t SET pad = pad WHERE id = 6000");
    let busy = Busy::run(server.connect(), "SELECT id FROM t FOR UPDATE");
    until_waiting(&mut observer, busy.pid, "transactionid");
    let waited = Instant::now();
    while seen(&mut observer, busy.pid)[0]
        .running
        .is_none_or(|ms| ms < 500.0)
    {
        assert!(waited.elapsed() < TIMEOUT, "{:?}", seen(&mut observer, busy.pid));
    }
    let waited = waited.elapsed().as_secs_f64() * 1e3;
    let progress = seen(&mut observer, busy.pid).remove(0);
    progress.assert_done(30.0, 1.0);
    assert_eq!(progress.operation.as_deref(), Some("LockRows"));
    assert!(
        progress.running.expect("a time") >= waited - 5.0,
        "{waited}: {progress:?}"
    );
    busy.cancel(&mut observer);
    run_each(&mut holder, "ROLLBACK");
}

/// The statistics say that there are a hundredth of the rows, or hundred times as many, or nothing.
#[test]
fn a_scan_does_not_need_statistics() {
    let server = server("progress-statistics");
    let mut observer = server.connect();
    for rows in ["200", "2000000", "-1"] {
        run_each(
            &mut observer,
            &format!("UPDATE pg_class SET reltuples = {rows} WHERE relname = 't'"),
        );
        let sql = format!("SELECT count(*) FROM t WHERE {SLEEP}");
        let all = seen_at(&server, &mut observer, &sql, &[6_000]);
        // From 17 on, a scan asks for blocks ahead. A block has about 100 rows.
        all[0].assert_done(30.0, 25.0);
        assert!(all[0].low <= 30.0 && 30.0 <= all[0].high, "{all:?}");
        assert_eq!(all[0].basis, "rows");
    }
}

/// Its new blocks are not read. The reader does not know which ones are new, so the bounds must not depend on
/// it.
#[test]
fn a_table_may_grow_while_it_is_scanned() {
    let server = server("progress-growing");
    let mut observer = server.connect();
    for _ in 0..2 {
        let sql = format!("SELECT count(*) FROM s t WHERE {SLEEP}").replace("STOP", "2700");
        let busy = Busy::run(server.connect(), &sql);
        until_waiting(&mut observer, busy.pid, "PgSleep");
        run_each(&mut observer, "INSERT INTO s SELECT id + 3000, pad FROM t");
        let progress = seen(&mut observer, busy.pid).remove(0);
        assert!(progress.low <= 90.0 && 90.0 <= progress.high, "{progress:?}");
        busy.cancel(&mut observer);
        // The table is written again: what the session knows of its size is of no use.
        run_each(
            &mut observer,
            "TRUNCATE s; INSERT INTO s SELECT * FROM t WHERE id <= 3000",
        );
    }
}

/// Who has seen it far never sees it less far, in whatever session.
#[test]
fn it_never_goes_back() {
    let server = server("progress-furthest");
    let mut observers = [server.connect(), server.connect()];
    let sql = format!("SELECT count(*) FROM s t WHERE {SLEEP}").replace("STOP", "2700");
    let busy = Busy::run(server.connect(), &sql);
    until_waiting(&mut observers[0], busy.pid, "PgSleep");
    let before = seen(&mut observers[0], busy.pid).remove(0).done();
    assert!((85.0..95.0).contains(&before), "{before}");
    // Now the scan looks as if it were at its beginning.
    run_each(&mut observers[0], "INSERT INTO s SELECT id + 3000, pad FROM t");
    let after = observers
        .each_mut()
        .map(|observer| seen(observer, busy.pid).remove(0));
    assert!(
        after
            .iter()
            .all(|after| after.done() >= before && after.low < 20.0),
        "{after:?}"
    );
    busy.cancel(&mut observers[0]);
    // The next statement in the same place begins from nothing.
    let sql = format!("SELECT count(*) FROM s t WHERE {SLEEP}").replace("STOP", "300");
    let progress = seen_waiting(&server, &mut observers[0], &sql, "PgSleep").remove(0);
    assert!(progress.done() < 20.0, "{progress:?}");
}

/// Its new versions are in blocks that the scan does not read.
#[test]
fn an_update_of_a_whole_table_ends_at_its_end() {
    let server = server("progress-update");
    let mut observer = server.connect();
    for sql in [
        "UPDATE u SET pad = pad",
        "UPDATE u SET pad = pad || 'y'",
        "INSERT INTO u SELECT id + 100000, pad FROM u",
    ] {
        for (stop, truth) in [("2000", 10.0), ("10000", 50.0), ("19900", 99.5)] {
            // From 16 on, a new table has empty blocks at its end, unless they are vacuumed away.
            run_each(
                &mut observer,
                "DROP TABLE IF EXISTS u; CREATE TABLE u AS SELECT * FROM t; VACUUM (ANALYZE) u",
            );
            let sql = format!("{sql} WHERE {SLEEP}")
                .replace("t.id", "u.id")
                .replace("STOP", stop);
            let progress = seen_waiting(&server, &mut observer, &sql, "PgSleep").remove(0);
            println!("{sql}: {progress:?}");
            progress.assert_done(truth, 5.0);
        }
    }
    // Each partition grows by what is read from it.
    for (stop, truth) in [("2000", 10.0), ("10000", 50.0), ("19900", 99.5)] {
        run_each(
            &mut observer,
            "DROP TABLE IF EXISTS u; CREATE TABLE u (LIKE p) PARTITION BY RANGE (id);
             CREATE TABLE u1 PARTITION OF u FOR VALUES FROM (0) TO (12001);
             CREATE TABLE u2 PARTITION OF u FOR VALUES FROM (12001) TO (100000);
             INSERT INTO u SELECT * FROM t ORDER BY id; ANALYZE u",
        );
        let sql = format!("{UNTIMED} UPDATE u SET pad = pad WHERE {SLEEP}")
            .replace("t.id", "u.id")
            .replace("STOP", stop);
        let progress = seen_waiting(&server, &mut observer, &sql, "PgSleep").remove(0);
        println!("{sql}: {progress:?}");
        progress.assert_done(truth, 5.0);
    }
}

/// Of a statement that has done next to nothing, nobody can say how long it takes.
#[test]
fn a_time_that_nobody_knows_is_null() {
    let server = server("progress-unknown-time");
    let mut observer = server.connect();
    let sql = "SET enable_hashjoin = off; SET enable_mergejoin = off;
               SELECT count(*) FROM t, k, k l WHERE t.id + k.id + l.id < pg_sleep(60)::text::int";
    let sql = sql.replace(
        "pg_sleep(60)::text::int",
        "(CASE WHEN nextval('n') = 10 AND pg_sleep(60) IS NULL THEN 1 ELSE 1 END)",
    );
    let progress = seen_waiting(&server, &mut observer, &sql, "PgSleep").remove(0);
    assert!(
        progress.low < 0.01 && progress.left_high.is_none(),
        "{progress:?}"
    );
}

#[test]
fn blocking_nodes_make_their_inputs_exact() {
    let server = server("progress-blocking");
    let mut observer = server.connect();
    // A sort that is being built, and a sort that returns its rows.
    let sql = format!("{UNTIMED} SELECT * FROM (SELECT id FROM t WHERE {SLEEP} OFFSET 0) x ORDER BY id DESC");
    let building = seen_at(&server, &mut observer, &sql, &[2_000, 10_000, 19_990]);
    assert!(
        building[0].high < 60.0 && building[1].high < 90.0 && building[2].high < 95.0,
        "{building:?}"
    );
    let sql = format!("{UNTIMED} SELECT * FROM (SELECT * FROM t ORDER BY id DESC OFFSET 0) t WHERE {SLEEP}");
    let returning = seen_at(&server, &mut observer, &sql, &[19_990, 10_000, 10]);
    assert!(
        returning[0].low > 50.0 && returning[2].low > 98.0,
        "{returning:?}"
    );
    assert!(returning.iter().all(|progress| progress.basis == "rows"));

    // A hash join that probes: it sleeps in a pair.
    let sql = format!(
        "{UNTIMED} SET work_mem = '64kB'; SET enable_mergejoin = off; SET enable_nestloop = off;
         SELECT count(*) FROM t JOIN k ON t.id = k.id AND t.id + k.id > 0 AND {SLEEP_IN_CALL}"
    );
    let joined = seen_at(&server, &mut observer, &sql, &[100, 5_000, 19_000]);
    assert!(
        joined[0].done() < joined[1].done() && joined[1].done() < joined[2].done(),
        "{joined:?}"
    );
    assert!(joined[0].low > 5.0, "the hash table is built: {joined:?}");
    assert!(joined[1].done() < 90.0 && joined[2].done() > 80.0, "{joined:?}");
}

#[test]
fn loops_limits_and_partitions_are_bounded() {
    let server = server("progress-shapes");
    let mut observer = server.connect();
    let loops = format!(
        "{UNTIMED} SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off;"
    );
    // Each outer row starts the inner side, and finds one row by its key.
    let sql = format!(
        "{loops} SELECT count(k.pad) FROM (SELECT * FROM t OFFSET 0) t JOIN k USING (id) WHERE {SLEEP}"
    );
    let all = seen_at(&server, &mut observer, &sql, &[2_000, 10_000, 18_000]);
    for (progress, truth) in all.iter().zip([10.0, 50.0, 90.0]) {
        progress.assert_done(truth, 5.0);
        assert!(progress.low <= truth && truth <= progress.high, "{progress:?}");
    }
    // Each outer row reads all of the inner side: the planner expects 200 times fewer outer rows.
    let sql = format!(
        "{loops} SELECT count(*) FROM s t JOIN s ON s.id > t.id - 3 AND s.id < t.id WHERE t.id % 1 = 0 AND {SLEEP}"
    );
    let all = seen_at(&server, &mut observer, &sql, &[300, 1_500, 2_700]);
    for (progress, truth) in all.iter().zip([10.0, 50.0, 90.0]) {
        progress.assert_done(truth, 8.0);
        assert!(progress.low <= truth && truth <= progress.high, "{progress:?}");
    }

    // A Limit bounds its input.
    let sql = format!("{UNTIMED} SELECT * FROM t WHERE {SLEEP} LIMIT 4000");
    let all = seen_at(&server, &mut observer, &sql, &[400, 2_000, 3_600]);
    for (progress, truth) in all.iter().zip([10.0, 50.0, 90.0]) {
        progress.assert_done(truth, 3.0);
        assert!(progress.low <= truth && truth <= progress.high, "{progress:?}");
    }
    // A plan for all parameters does not know its limit.
    let sql = format!(
        "{UNTIMED} SET plan_cache_mode = force_generic_plan; PREPARE q(int) AS SELECT * FROM t WHERE {SLEEP} LIMIT $1; EXECUTE q(10000)"
    );
    let all = seen_at(&server, &mut observer, &sql, &[2_500, 5_000, 9_900]);
    assert!(all[0].low <= 25.0 && all[1].low <= 50.0, "{all:?}");

    let sql = format!("{UNTIMED} SELECT count(*) FROM p t WHERE {SLEEP}");
    let all = seen_at(&server, &mut observer, &sql, &[2_000, 7_000, 18_000]);
    for (progress, truth) in all.iter().zip([10.0, 35.0, 90.0]) {
        progress.assert_done(truth, 3.0);
        assert!(progress.low <= truth && truth <= progress.high, "{progress:?}");
    }
    assert_eq!(all[1].object.as_deref(), Some("p2"));
    server.assert_no_crash();
}

#[test]
fn the_planner_alone_is_named() {
    let server = server("progress-planner");
    let mut observer = server.connect();
    batch(
        &mut observer,
        "CREATE FUNCTION many() RETURNS SETOF int LANGUAGE plpgsql ROWS 10 AS
         $$ BEGIN RETURN QUERY SELECT * FROM generate_series(1, 10000); END $$",
    );
    let sql = "SELECT count(*) FROM many() AS t(id) WHERE pg_sleep(CASE WHEN t.id = STOP THEN 60 ELSE 0 END) IS NOT NULL";
    for progress in seen_at(&server, &mut observer, sql, &[5, 1_000, 9_000]) {
        assert_eq!(
            (progress.basis.as_str(), progress.low, progress.high),
            ("planner", 0.0, 100.0)
        );
    }
}

#[test]
fn parallel_workers_are_added_to_their_leader() {
    let server = server("progress-parallel");
    let mut observer = server.connect();
    let sql = "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
               SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
               SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id % 1000 = 999 THEN 60 ELSE 0 END) IS NOT NULL";
    let busy = Busy::run(server.connect(), sql);
    let sleeping = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE leader_pid = {} AND wait_event = 'PgSleep'",
        busy.pid
    );
    let scanned = format!(
        "SELECT coalesce(sum(rows), 0)::bigint FROM pg_stat_rowsource_live
         WHERE leader_pid = {} AND operation = 'Parallel Seq Scan'",
        busy.pid
    );
    let deadline = Instant::now() + CANCEL_TIMEOUT;
    // Workers that still scan have other rows afterwards.
    let (rows, all) = loop {
        assert!(Instant::now() < deadline, "the workers do not sleep");
        let sleep = value::<i64>(&mut observer, &sleeping);
        let before: i64 = value(&mut observer, &scanned);
        let all = seen(&mut observer, busy.pid);
        if sleep > 0 && before > 0 && before == value::<i64>(&mut observer, &scanned) {
            break (before, all);
        }
    };
    let [progress] = &all[..] else { panic!("{all:#?}") };
    progress.assert_done(rows as f64 / 200.0, 1.5);
    assert_eq!(progress.operation.as_deref(), Some("Gather"), "{progress:?}");
    busy.cancel(&mut observer);
}

#[test]
fn cursors_and_nested_statements_have_rows() {
    let server = server("progress-nested");
    let mut observer = server.connect();
    let mut client = server.connect();
    let id = pid(&mut client);
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH 5000 FROM c",
    );
    let all = seen(&mut observer, id);
    let [cursor] = &all[..] else { panic!("{all:#?}") };
    cursor.assert_done(25.0, 1.0);
    assert_eq!(
        (
            cursor.state.as_str(),
            cursor.left,
            cursor.operation.as_deref(),
            cursor.running
        ),
        ("idle in cursor", None, None, None)
    );
    run_each(&mut client, "COMMIT");
    assert!(seen(&mut observer, id).is_empty());

    batch(
        &mut observer,
        "CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           PERFORM count(*) FROM s WHERE pg_sleep(CASE WHEN id = 1500 AND i = 5000 THEN 60 ELSE 0 END) IS NOT NULL
             AND i = 5000; RETURN i; END $$",
    );
    let all = seen_waiting(&server, &mut observer, "SELECT sum(f(id)) FROM t", "PgSleep");
    let levels: Vec<i32> = all.iter().map(|progress| progress.level).collect();
    assert_eq!(levels, [0, 1], "{all:#?}");
    all[0].assert_done(25.0, 1.0);
    all[1].assert_done(50.0, 1.5);

    // Nothing is known of a statement without a plan.
    let busy = Busy::run(
        server.connect(),
        "SELECT * FROM rowsource_logical_io('t', blocks => 1000000000000)",
    );
    let deadline = Instant::now() + TIMEOUT;
    while seen(&mut observer, busy.pid).is_empty() {
        assert!(Instant::now() < deadline, "it does not run");
    }
    busy.cancel(&mut observer);
    server.assert_no_crash();
}

#[test]
fn other_users_and_databases_see_no_names() {
    let server = server("progress-privileges");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE ROLE other LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_read_all_stats; CREATE DATABASE elsewhere",
    );
    let mut elsewhere = server.try_connect_to("postgres", "elsewhere").expect("a session");
    run_each(&mut elsewhere, "CREATE EXTENSION pg_rowsource");
    let busy = Busy::run(
        server.connect(),
        &format!("SELECT count(*) FROM t WHERE {SLEEP}").replace("STOP", "6000"),
    );
    until_waiting(&mut observer, busy.pid, "PgSleep");
    let shown = |client: &mut Client, pid: i32| -> Vec<Vec<Option<String>>> {
        let sql = format!(
            "SELECT num_nonnulls(userid, datid),
                    num_nonnulls(queryid, planid, toplevel, nesting_level, state, elapsed_time, percent_done, percent_low,
                                 percent_high, basis, operation, object_name) FROM rowsource_progress WHERE pid = {pid}",
        );
        texts(client, &sql)
    };
    let truth = |values: [&str; 2]| [values.map(|value| Some(value.to_owned())).to_vec()];
    let (hidden, visible) = (truth(["2", "0"]), truth(["2", "12"]));
    let mut other = server.try_connect("other").expect("a session");
    assert_eq!(shown(&mut other, busy.pid), hidden);
    let mut monitor = server.try_connect("monitor").expect("a session");
    assert_eq!(shown(&mut monitor, busy.pid), visible);
    // Another database's tables have no size there: then nothing bounds the scan.
    let progress = seen(&mut elsewhere, busy.pid).remove(0);
    assert_eq!(
        (progress.low, progress.high, progress.basis.as_str()),
        (0.0, 100.0, "planner")
    );
    busy.cancel(&mut observer);

    // A superuser's session that acts as this user is not his.
    run_each(&mut observer, "GRANT SELECT ON t TO other");
    let sql = format!("SET ROLE other; SELECT count(*) FROM t WHERE {SLEEP}").replace("STOP", "6000");
    for (user, expected) in [("postgres", &hidden), ("other", &visible)] {
        let busy = Busy::run(server.try_connect(user).expect("a session"), &sql);
        until_waiting(&mut observer, busy.pid, "PgSleep");
        assert_eq!(&shown(&mut other, busy.pid), expected, "{user}");
        assert_eq!(shown(&mut monitor, busy.pid), visible, "{user}");
        busy.cancel(&mut observer);
    }
}
