//! The store that all sessions share, as other sessions see it: totals, last values, spread, failures,
//! histograms, and the identity of plans.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::store::{basic_server, info, kept, measured, measuring, node_value, only_kept};
use std::time::Instant;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int, pad text);
    INSERT INTO t SELECT i, i % 10, repeat('x', 100) FROM generate_series(1, 10000) i; VACUUM (FREEZE, ANALYZE) t";

#[test]
fn another_session_sees_plans_at_once() {
    let server = basic_server("seen", &[]);
    let mut runner = measuring(&server);
    let mut reader = server.connect();
    run_each(&mut runner, TABLE);
    for (round, wanted) in [500, 1000, 300].into_iter().enumerate() {
        run_each(
            &mut runner,
            &format!("SELECT count(pad) FROM t WHERE grp >= 0 AND id + 0 <= {wanted}"),
        );
        let plan = only_kept(&mut reader, "SELECT count(pad) FROM t%");
        assert_eq!(plan.calls, round as i64 + 1);
        assert_eq!(node_value(&mut reader, &plan, 1, "last_rows"), f64::from(wanted));
    }
    let plan = only_kept(&mut reader, "SELECT count(pad) FROM t%");
    assert_eq!(
        (plan.failed_calls, plan.cancelled_calls, &*plan.last_outcome),
        (0, 0, "completed")
    );
    assert!(0.0 < plan.min_time && plan.min_time <= plan.mean_time && plan.mean_time <= plan.max_time);
    assert!((plan.min_time..=plan.max_time).contains(&plan.last_time));
    assert!((plan.mean_time * 3.0 - plan.total_time).abs() < 1e-6, "{plan:?}");
    assert!(plan.min_time + plan.max_time + plan.last_time <= plan.total_time + plan.max_time);
    assert!(plan.stddev_time >= 0.0 && plan.stddev_time <= plan.max_time - plan.min_time);
    for (expression, wanted) in [
        ("rows", 1800.0),
        ("executions", 3.0),
        ("starts", 3.0),
        ("last_starts", 1.0),
        ("timed_calls", 1803.0),
        ("last_timed_calls", 301.0),
        (
            "shared_blks_hit + shared_blks_read - 3 * last_shared_blks_hit",
            0.0,
        ),
    ] {
        assert_eq!(
            node_value(&mut reader, &plan, 1, expression),
            wanted,
            "{expression}"
        );
    }
    assert_eq!(node_value(&mut reader, &plan, 0, "rows * 10 + last_rows"), 31.0);
    let times = "total_time > last_total_time AND last_total_time >= last_self_time AND last_self_time > 0
                 AND total_time >= startup_time AND self_time > last_self_time";
    assert_eq!(node_value(&mut reader, &plan, 1, &format!("({times})::int")), 1.0);
    // The plan's total time is that of its root.
    let root = node_value(&mut reader, &plan, 0, "total_time");
    assert!(
        root > 0.0 && root <= plan.total_time,
        "{root} of {}",
        plan.total_time
    );
    shows(&mut reader, plan.queryid, plan.planid);
    server.assert_no_crash();
}

/// Checks rowsource_display of another session's plan, for the last execution and for the total.
fn shows(reader: &mut postgres::Client, queryid: i64, planid: i64) {
    let last = display(reader, queryid, planid, "ALLSTATS LAST");
    assert!(last.contains("executions 3"), "{last}");
    assert!(last.contains("|    300 |") && !last.contains("1800"), "{last}");
    assert!(last.contains("Filter:"), "{last}");
    let total = display(reader, queryid, planid, "ALLSTATS");
    assert!(
        total.contains("|   1800 |") && !total.contains("|    300 |"),
        "{total}"
    );
}

fn display(reader: &mut postgres::Client, queryid: i64, planid: i64, format: &str) -> String {
    first_column(
        reader,
        &format!("SELECT rowsource_display({queryid}, {planid}, format => '{format}')"),
    )
    .join("\n")
}

#[test]
fn failed_and_cancelled_calls_keep_what_they_reached() {
    let server = basic_server("reached", &[]);
    let mut runner = measuring(&server);
    let mut reader = server.connect();
    run_each(&mut runner, TABLE);
    run_each(&mut runner, "SELECT sum(1 / (id - 50000)) FROM t");
    must_fail(&mut runner, "SELECT sum(1 / (id - 500)) FROM t");
    must_fail(&mut runner, "SELECT sum(1 / (id - 700)) FROM t");
    let plan = only_kept(&mut reader, "SELECT sum(1 /%");
    assert_eq!((plan.calls, plan.failed_calls, plan.cancelled_calls), (3, 2, 0));
    assert_eq!(plan.last_outcome, "failed");
    assert_eq!(
        node_value(&mut reader, &plan, 1, "rows"),
        10_000.0 + 500.0 + 700.0
    );
    assert_eq!(node_value(&mut reader, &plan, 1, "last_rows"), 700.0);
    assert_eq!(node_value(&mut reader, &plan, 0, "rows"), 1.0);
    assert!(display(&mut reader, plan.queryid, plan.planid, "ALLSTATS LAST").contains("fail"));

    run_each(&mut runner, "SET statement_timeout = 1000");
    let begin = Instant::now();
    must_fail(
        &mut runner,
        "SELECT count(pg_sleep(0.2)) FROM t a, t b, t c WHERE a.id <> b.id",
    );
    let took = begin.elapsed().as_secs_f64() * 1e3;
    let plan = only_kept(&mut reader, "SELECT count(pg_sleep(0.2)) FROM t a, t b%");
    assert_eq!((plan.calls, plan.failed_calls, plan.cancelled_calls), (1, 0, 1));
    assert_eq!(plan.last_outcome, "cancelled");
    // It has slept for each row but the last, and took no longer than the client saw.
    let rows = node_value(&mut reader, &plan, 1, "rows");
    assert!(rows > 0.0);
    assert!(
        ((rows - 1.0) * 199.0..took).contains(&plan.last_time),
        "{rows} rows, {took} ms: {plan:?}"
    );
    assert!(display(&mut reader, plan.queryid, plan.planid, "ALLSTATS LAST").contains("cancel"));
    server.assert_no_crash();
}

#[test]
fn histograms_add_up_and_count_reads() {
    let mut server = basic_server("histogram", &[]);
    run_each(&mut server.connect(), TABLE);
    server.stop();
    server.launch();
    let mut reader = server.connect();
    let statement = "SELECT count(pad) FROM t WHERE id > 0 AND grp < 9";
    measured(&mut server.connect(), statement);
    let plan = only_kept(&mut reader, statement);
    let reads = node_value(&mut reader, &plan, 1, "shared_blks_read");
    assert!(reads > 100.0, "{reads} reads after a restart");
    let sum = |reader: &mut postgres::Client, node: i32, read: &str| -> i64 {
        value(
            reader,
            &format!(
                "SELECT coalesce(sum(timed_calls), 0)::bigint FROM pg_stat_rowsource_histogram
                 WHERE queryid = {} AND planid = {} AND node_id = {node} AND did_read IN ({read})",
                plan.queryid, plan.planid
            ),
        )
    };
    let readers = sum(&mut reader, 1, "true");
    assert!(
        readers > 0 && readers as f64 <= reads,
        "{readers} reading calls, {reads} reads"
    );
    assert_eq!(sum(&mut reader, 0, "true"), 1);
    measured(&mut server.connect(), statement);
    assert_eq!(
        sum(&mut reader, 1, "true"),
        readers,
        "the second run read nothing"
    );
    assert_eq!(sum(&mut reader, 0, "true"), 1);
    for node in [0, 1] {
        let timed = node_value(&mut reader, &plan, node, "timed_calls");
        assert_eq!(sum(&mut reader, node, "true, false") as f64, timed, "node {node}");
    }
    assert_eq!(node_value(&mut reader, &plan, 1, "timed_calls"), 2.0 * 9001.0);
    let odd: i64 = value(
        &mut reader,
        "SELECT count(*) FROM pg_stat_rowsource_histogram
         WHERE timed_calls <= 0 OR from_us < 0 OR to_us <= from_us OR to_us IS NULL AND from_us < 1e6",
    );
    assert_eq!(odd, 0);
}

/// One row of 15 sleeps for 20 ms, so the median is short, and the 95th and the 99th percentile are long.
#[test]
fn percentiles_of_calls_come_from_the_histogram() {
    let server = basic_server("percentiles", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 300) i; ANALYZE t",
    );
    let sleeping =
        "SELECT count(*) FROM t WHERE CASE WHEN id % 15 = 0 THEN pg_sleep(0.02) IS NOT NULL ELSE true END";
    measured(&mut client, sleeping);
    let plan = only_kept(&mut client, "SELECT count(*) FROM t WHERE CASE%");
    let mut scan = |expression: &str| node_value(&mut client, &plan, 1, expression);
    assert_eq!(scan("timed_calls"), 301.0);
    let [p50, p95, p99] = ["p50_time", "p95_time", "p99_time"].map(&mut scan);
    assert!(p50 > 0.0 && p50 < 5.0, "{p50}");
    // The bucket of 20 ms begins here. Nothing took longer than the whole statement.
    assert!(p95 >= 16.777 && p99 >= p95 && p99 <= plan.max_time, "{p95} {p99}");
    // Each of them lies in the bucket that contains the call of this rank.
    for (part, found) in [(0.5, p50), (0.95, p95), (0.99, p99)] {
        let bounds = client
            .query_one(
                "SELECT from_us / 1000, to_us / 1000 FROM (
                     SELECT from_us, to_us, sum(timed_calls) OVER (ORDER BY from_us) AS calls FROM (
                         SELECT from_us, to_us, sum(timed_calls) AS timed_calls FROM pg_stat_rowsource_histogram
                         WHERE queryid = $1 AND node_id = 1 GROUP BY 1, 2) b) b
                 WHERE calls >= 301 * $2::float8 ORDER BY from_us LIMIT 1",
                &[&plan.queryid, &part],
            )
            .expect("a bucket");
        let (from, to): (f64, f64) = (bounds.get(0), bounds.get(1));
        assert!(
            (from..=to).contains(&found),
            "{part}: {found}, not {from} to {to}"
        );
    }

    // Without times there are none.
    run_each(
        &mut client,
        "SET pg_rowsource.sampfreq = 0; SET pg_rowsource.statistics_level = 'typical';
         SELECT min(id) FROM t; SET pg_rowsource.statistics_level = 'basic'",
    );
    let untimed: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans USING (queryid, planid)
         WHERE query LIKE 'SELECT min(id)%' AND num_nulls(n.p50_time, n.p95_time, n.p99_time) = 3",
    );
    assert_eq!(untimed, 2);
    server.assert_no_crash();
}

#[test]
fn a_plan_keeps_its_identity() {
    let mut server = basic_server("identity", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let of = |client: &mut postgres::Client, id: i32| {
        measured(client, &format!("SELECT pad FROM t WHERE id = {id}"))
    };
    of(&mut client, 17);
    of(&mut client, 18);
    of(&mut server.connect(), 19);
    // The text is that of the first execution, because a known plan is not described again.
    let first = only_kept(&mut client, "SELECT pad FROM t%");
    assert_eq!(
        (first.calls, &*first.query),
        (3, "SELECT pad FROM t WHERE id = 17")
    );
    // A generic prepared statement by protocol has another queryid (a parameter is not a constant) and the
    // same planid.
    measured(
        &mut client,
        "PREPARE p(int) AS SELECT pad FROM t WHERE id = $1; EXECUTE p(20); SET plan_cache_mode = force_generic_plan;
         EXECUTE p(21)",
    );
    let mut protocol = measuring(&server);
    let statement = protocol
        .prepare("SELECT pad FROM t WHERE id = $1")
        .expect("prepare");
    protocol.query(&statement, &[&22]).expect("execute");
    drop(protocol);
    let prepared = kept(&mut client, "%SELECT pad FROM t WHERE id = $1");
    assert!(!prepared.is_empty());
    assert!(
        prepared.iter().all(|plan| plan.planid == first.planid),
        "{prepared:#?}"
    );
    assert_eq!(prepared.iter().map(|plan| plan.calls).sum::<i64>(), 3);
    // A restart and a rewrite of the table change nothing.
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "VACUUM FULL t");
    of(&mut client, 23);
    let again = only_kept(&mut client, "SELECT pad FROM t WHERE id = 17");
    assert_eq!((again.planid, again.calls), (first.planid, 4));
}

#[test]
fn another_plan_of_a_query_is_another_row() {
    let server = basic_server("other-plan", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    let statement = "SELECT max(pad) FROM t WHERE id < 100";
    for settings in [
        "SELECT",
        "SET enable_indexscan = off; SET enable_indexonlyscan = off",
        "SET enable_bitmapscan = off",
        "RESET ALL; ALTER TABLE t DROP CONSTRAINT t_pkey",
    ] {
        run_each(&mut client, settings);
        measured(&mut client, statement);
    }
    // An index scan, a bitmap scan, and a sequential scan twice.
    let plans = kept(&mut client, statement);
    assert_eq!(plans.len(), 3, "{plans:#?}");
    assert!(plans.iter().all(|plan| plan.queryid == plans[0].queryid));
    assert_eq!(plans.iter().map(|plan| plan.calls).sum::<i64>(), 4);
}

#[test]
fn the_order_of_a_self_join_is_part_of_the_plan() {
    let server = basic_server("self-join", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "SET enable_mergejoin = off; SET enable_nestloop = off; SET enable_indexscan = off;
         SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
         SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'enable_self_join_elimination'",
    );
    for (a, b) in [(100, 9000), (9000, 100)] {
        measured(
            &mut client,
            &format!("SELECT count(*) FROM t a JOIN t b USING (id) WHERE a.id < {a} AND b.id < {b}"),
        );
    }
    let plans = kept(&mut client, "SELECT count(*) FROM t a JOIN%");
    assert!(
        plans.len() == 2 && plans[0].queryid == plans[1].queryid,
        "a hashed and b hashed are two plans: {plans:#?}"
    );
}

#[test]
fn misestimates_are_listed_by_their_cost() {
    let server = basic_server("misestimates", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    // 10,000 rows, but the planner expects 1: the filter is always true.
    measured(
        &mut client,
        "SELECT count(pad) FROM t WHERE id + 0 = id AND grp = grp + 0; SELECT count(*) FROM t",
    );
    let rows = client
        .query(
            "SELECT m.operation, m.verdict, m.max_factor::float8, m.self_time::float8, m.actual_rows::float8
             FROM rowsource_misestimates m
             JOIN pg_stat_rowsource_plans p USING (queryid, planid)
             WHERE p.query LIKE 'SELECT count(%'",
            &[],
        )
        .expect("rowsource_misestimates");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].get::<_, String>(0), "Seq Scan");
    assert_eq!(rows[0].get::<_, String>(1), "underestimated");
    assert!(rows[0].get::<_, f64>(2) > 1000.0 && rows[0].get::<_, f64>(3) > 0.0);
    assert_eq!(rows[0].get::<_, f64>(4), 10_000.0);
}

#[test]
fn reset_deletes_the_requested_plans() {
    let server = basic_server("reset", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    measured(
        &mut client,
        "SELECT count(*) FROM t; SELECT sum(id) FROM t; SELECT min(pad) FROM t",
    );
    let plan = only_kept(&mut client, "SELECT sum(id)%");
    run_each(
        &mut client,
        &format!("SELECT rowsource_reset(queryid => {})", plan.queryid),
    );
    assert_eq!(info(&mut client, "plans"), 2);
    run_each(
        &mut client,
        "SELECT rowsource_reset(userid => 4711), rowsource_reset(datid => 4711)",
    );
    assert_eq!(info(&mut client, "plans"), 2);
    measured(&mut client, "SELECT sum(id) FROM t");
    assert_eq!(only_kept(&mut client, "SELECT sum(id)%").calls, 1);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!((info(&mut client, "plans"), info(&mut client, "bytes")), (0, 0));
    let fresh: bool = value(
        &mut client,
        "SELECT stats_reset BETWEEN now() - interval '1 minute' AND clock_timestamp() FROM rowsource_info()",
    );
    assert!(fresh);
    measured(&mut client, "SELECT sum(id) FROM t");
    assert_eq!(info(&mut client, "plans"), 1);
}

/// From 17 on, PostgreSQL gives shared memory to libraries that it did not preload.
#[test]
fn without_preloading_sessions_share_pg17_plus() {
    let server = Server::start("registry", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, TABLE);
    run_each(&mut client, "SELECT count(pad) FROM t");
    let mut others: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for other in &mut others {
        run_each(other, "LOAD 'pg_rowsource'; SELECT count(pad) FROM t");
    }
    for session in others.iter_mut().chain([&mut client]) {
        assert_eq!(only_kept(session, "SELECT count(pad)%").calls, 4);
    }
    assert!(info(&mut client, "plans") > 1);
    drop(others);
    // The plans outlive the sessions. They are lost when the server stops, because it does not save them.
    drop(client);
    let mut client = server.connect();
    assert_eq!(only_kept(&mut client, "SELECT count(pad)%").calls, 4);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert!(kept(&mut client, "SELECT count(pad)%").is_empty());
    run_each(&mut client, "SELECT count(pad) FROM t");
    assert_eq!(only_kept(&mut client, "SELECT count(pad)%").calls, 1);
    server.assert_no_crash();
    // A crash of another backend removes the memory; the next sessions create it again.
    drop(client);
    server.crash_a_backend();
    let mut client = server.connect();
    run_each(&mut client, "LOAD 'pg_rowsource'");
    assert!(kept(&mut client, "SELECT count(pad)%").is_empty());
    run_each(&mut client, "SELECT count(pad) FROM t");
    assert_eq!(only_kept(&mut client, "SELECT count(pad)%").calls, 1);
    drop(client);
    let mut server = server;
    server.stop();
    assert!(!server.data().join("pg_stat/pg_rowsource.stat").exists());
}

#[test]
fn without_shared_memory_a_session_keeps_its_own_before_pg17() {
    let server = Server::start("unshared", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, TABLE);
    let (code, message) = must_fail(&mut client, "SELECT * FROM rowsource_info()");
    assert_eq!(code.code(), "55000");
    assert!(message.contains("shared_preload_libraries"), "{message}");
    run_each(&mut client, "SELECT count(pad) FROM t");
    assert_eq!(only_kept(&mut client, "SELECT count(pad)%").calls, 1);
    let mut other = server.connect();
    run_each(&mut other, "LOAD 'pg_rowsource'");
    assert!(kept(&mut other, "SELECT count(pad)%").is_empty());
    run_each(&mut client, "SELECT rowsource_reset()");
    assert!(kept(&mut client, "SELECT count(pad)%").is_empty());
    server.assert_no_crash();
}

#[test]
fn plans_that_ran_since_a_time_are_read_alone() {
    let server = basic_server("store-since", &[]);
    let (mut runner, mut reader) = (measuring(&server), server.connect());
    run_each(&mut runner, TABLE);
    run_each(
        &mut runner,
        "SELECT count(*) FROM t WHERE grp = 1; SELECT count(pad) FROM t",
    );
    let both = "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(%'";
    assert_eq!(value::<i64>(&mut reader, both), 2);
    // Sessions ask for the time of day ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let moment: String = value(&mut reader, "SELECT clock_timestamp()::text");
    run_each(&mut runner, "SELECT pg_sleep(0.3); SELECT count(pad) FROM t");
    for read in ["pg_stat_rowsource_plans", "pg_stat_rowsource"] {
        let found: Vec<String> = first_column(
            &mut reader,
            &format!(
                "SELECT DISTINCT p.query FROM {read}('{moment}') r JOIN pg_stat_rowsource_plans p USING (queryid)
                 WHERE p.query LIKE 'SELECT count(%'"
            ),
        );
        assert_eq!(found, ["SELECT count(pad) FROM t"], "{read}");
    }
    let calls =
        format!("SELECT calls FROM pg_stat_rowsource_plans('{moment}') WHERE query LIKE 'SELECT count(%'");
    assert_eq!(value::<i64>(&mut reader, &calls), 2);
}
