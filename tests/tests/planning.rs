//! The planner's times: `plans` and `..._plan_time` of `pg_stat_rowsource_plans`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::explain_json;
use rowsource_tests::session::{run_each, value};

/// A session in which everything is measured. `t` takes long to plan: it has many partitions.
fn session(server: &Server) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE t (id int, grp int) PARTITION BY RANGE (id)",
    );
    for i in 0..100 {
        let (from, to) = (10 * i, 10 * i + 10);
        run_each(
            &mut client,
            &format!("CREATE TABLE t{i} PARTITION OF t FOR VALUES FROM ({from}) TO ({to})"),
        );
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    client
}

/// Returns plans, calls, and the total, minimal, maximal and mean time of planning of the statement with this text.
fn planned(client: &mut Client, text: &str) -> (i64, i64, [f64; 4]) {
    let sql = format!(
        "SELECT sum(plans)::bigint, sum(calls)::bigint, sum(total_plan_time), min(min_plan_time), max(max_plan_time), max(mean_plan_time)
           FROM pg_stat_rowsource_plans WHERE query LIKE '%{text}%' AND query NOT LIKE '%pg_stat_rowsource_plans%'"
    );
    let row = client.query_one(&sql, &[]).expect(&sql);
    (row.get(0), row.get(1), [2, 3, 4, 5].map(|i| row.get(i)))
}

#[test]
fn each_planning_is_counted_with_its_plan() {
    let server = Server::preloaded("planning", &[]);
    let mut client = session(&server);
    for _ in 0..5 {
        run_each(&mut client, "SELECT count(grp) AS parsed FROM t");
    }
    let (plans, calls, [total, min, max, mean]) = planned(&mut client, "parsed");
    assert_eq!((plans, calls), (5, 5));
    assert!(
        0.0 < min && min <= mean && mean <= max && max <= total,
        "{min} {mean} {max} {total}"
    );
    assert!((mean * 5.0 - total).abs() < 1e-9 * total, "{mean} {total}");
    // A generic plan is planned once.
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT max(grp) AS prepared FROM t",
    );
    for _ in 0..7 {
        run_each(&mut client, "EXECUTE p");
    }
    let (plans, calls, _) = planned(&mut client, "prepared");
    assert_eq!((plans, calls), (1, 7));
}

/// The time is that of core's "Planning Time" for the same statement.
#[test]
fn the_time_is_that_of_explain_timing() {
    let server = Server::preloaded("planning-time", &[]);
    let mut client = session(&server);
    let mut by_core = Vec::new();
    for _ in 0..15 {
        run_each(&mut client, "SELECT count(grp) AS timed FROM t");
        let document = explain_json(&mut client, "SELECT count(grp) FROM t", "FORMAT JSON, SUMMARY");
        by_core.push(document[0]["Planning Time"].as_f64().expect("a time"));
    }
    by_core.sort_by(f64::total_cmp);
    let (_, _, [_, min, ..]) = planned(&mut client, "timed");
    let least = by_core[0];
    assert!(min < 1.5 * least && least < 1.5 * min, "{min} {least}");
}

#[test]
fn many_statements_that_are_never_executed_cost_nothing() {
    let server = Server::preloaded("planning-unused", &[]);
    let mut client = session(&server);
    for i in 0..50 {
        let columns = vec!["grp"; i + 1].join(", ");
        run_each(&mut client, &format!("EXPLAIN SELECT {columns} FROM t1"));
    }
    run_each(&mut client, "SELECT 1 AS used, id FROM t1");
    let (plans, calls, _) = planned(&mut client, "used");
    assert_eq!((plans, calls), (1, 1));
    // Those of EXPLAIN count with the next execution of the same statement, as in pg_stat_statements.
    run_each(
        &mut client,
        "EXPLAIN SELECT 2 AS explained, id, grp FROM t1; EXPLAIN SELECT 2 AS explained, id, grp FROM t1; SELECT 2 AS explained, id, grp FROM t1",
    );
    let (plans, calls, _) = planned(&mut client, "explained");
    assert_eq!((plans, calls), (3, 1));
}

#[test]
fn failed_and_nested_planning_does_no_harm() {
    let server = Server::preloaded("planning-failed", &[]);
    let mut client = session(&server);
    run_each(
        &mut client,
        "CREATE FUNCTION fails() RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1 / 0; END'",
    );
    for _ in 0..20 {
        // The planner evaluates the function, and fails.
        assert!(client.simple_query("SELECT fails() + grp FROM t1").is_err());
    }
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; DO 'BEGIN FOR i IN 1..3 LOOP PERFORM count(*) AS nested FROM t1; END LOOP; END'",
    );
    let (plans, calls, _) = planned(&mut client, "nested");
    assert!(calls >= 3 && (1..=3).contains(&plans), "{plans} {calls}");
    let level: String = value(&mut client, "SHOW pg_rowsource.statistics_level");
    assert_eq!(level, "typical");
    // At level basic nothing is measured, and nothing is left for later.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = basic; EXPLAIN SELECT 3 AS basic_one, grp, id FROM t1; SET pg_rowsource.statistics_level = typical;
         SELECT 3 AS basic_one, grp, id FROM t1",
    );
    let (plans, calls, _) = planned(&mut client, "basic_one");
    assert_eq!((plans, calls), (1, 1));
}
