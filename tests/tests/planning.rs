//! The planner's times, and generic and custom plans: `plans`, `..._plan_time`, `generic_plan_calls` and
//! `custom_plan_calls` of `pg_stat_rowsource_plans`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::explain_json;
use rowsource_tests::session::{major, run_each, value};

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

/// Returns plans, calls, and the total, minimal, maximal and mean time of planning of the statement with this
/// text.
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

/// The time is that of core's "Planning Time": the same plannings are timed by both. Each execution takes
/// over the time of the EXPLAIN before it, and needs no planning itself. Core reads its clock before and
/// after the library does, so its time is longer: by little, unless another process runs in between, which it
/// does not each time.
#[test]
fn the_time_is_that_of_explain() {
    const PLANNINGS: usize = 15;
    /// EXPLAIN shows whole microseconds.
    const ROUNDED_MS: f64 = 0.001;
    let server = Server::preloaded("planning-time", &[]);
    let mut client = session(&server);
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(grp) AS timed FROM t; EXECUTE p; SELECT rowsource_reset()",
    );
    let mut before = 0.0;
    let mut ratios = Vec::new();
    for number in 1..=PLANNINGS as i64 {
        let statement = "SELECT count(grp) AS timed FROM t";
        let document = explain_json(&mut client, statement, "FORMAT JSON, SUMMARY");
        let by_core = document[0]["Planning Time"].as_f64().expect("a time");
        run_each(&mut client, "EXECUTE p");
        let (plans, calls, [total, ..]) = planned(&mut client, "timed");
        assert_eq!((plans, calls), (number, number));
        let took = total - before;
        assert!(took <= by_core + ROUNDED_MS, "{took} ms, {by_core} ms");
        ratios.push(took / by_core);
        before = total;
    }
    let closest = ratios.iter().copied().fold(0.0, f64::max);
    println!("the time of planning, over core's: {ratios:.3?}");
    assert!(closest > 0.9, "{closest}");
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

/// Planning reads the catalogue the first time that a session needs a table. Each execution takes over what
/// was read since the one before, as it does with the time.
#[test]
fn blocks_that_planning_used_are_counted() {
    let server = Server::preloaded("planning-blocks", &[]);
    session(&server);
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let explained = explain_json(
        &mut client,
        "SELECT count(grp) AS counted FROM t",
        "BUFFERS, FORMAT JSON",
    );
    let by_core = explained[0]["Planning"]["Shared Hit Blocks"]
        .as_i64()
        .expect("blocks")
        + explained[0]["Planning"]["Shared Read Blocks"]
            .as_i64()
            .expect("blocks");
    assert!(by_core > 100, "{explained}");
    // The planning for the execution itself finds everything in the session's caches.
    run_each(&mut client, "SELECT count(grp) AS counted FROM t");
    let last: String = value(
        &mut client,
        "SELECT rowsource_explain(format => 'json')::json -> 0 -> 'Planning' ->> 'Shared Hit Blocks'",
    );
    assert_eq!(last, "0");
    run_each(&mut client, "SELECT count(grp) AS counted FROM t");
    let blocks: i64 = value(
        &mut client,
        "SELECT sum(coalesce((details -> 'Planning' ->> 'Shared Hit Blocks')::bigint, 0)
                    + coalesce((details -> 'Planning' ->> 'Shared Read Blocks')::bigint, 0))::bigint
           FROM pg_stat_rowsource_plans WHERE query LIKE '%counted%' AND query NOT LIKE '%pg_stat_rowsource_plans%'",
    );
    assert_eq!(blocks, by_core);
    server.assert_no_crash();
}

/// Returns how often the statement with this text ran with a generic plan, with a custom plan, and with any
/// plan.
fn origins(client: &mut Client, text: &str) -> [i64; 3] {
    let sql = format!(
        "SELECT sum(generic_plan_calls)::bigint, sum(custom_plan_calls)::bigint, sum(calls)::bigint
           FROM pg_stat_rowsource_plans WHERE query LIKE '%{text}%' AND query NOT LIKE '%pg_stat_rowsource_plans%'"
    );
    let row = client.query_one(&sql, &[]).expect(&sql);
    [0, 1, 2].map(|i| row.get::<_, Option<i64>>(i).unwrap_or(0))
}

/// Creates a small table in a session in which nested statements are measured too.
fn session_with_values(server: &Server) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE v AS SELECT i FROM generate_series(1, 100) i; ANALYZE v;
         SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = 'all'",
    );
    client
}

#[test]
fn generic_and_custom_plans_are_counted_as_for_pg_prepared_statements() {
    let server = Server::preloaded("plan-origin", &[]);
    let mut client = session_with_values(&server);
    run_each(
        &mut client,
        "PREPARE p (int) AS SELECT count(*) AS prepared FROM v WHERE i < $1;
         PREPARE w (int) AS UPDATE v SET i = i + 1000 WHERE i = $1;
         PREPARE n AS SELECT count(*) AS without_parameters FROM v",
    );
    for mode in [
        "auto",
        "force_custom_plan",
        "force_generic_plan",
        "auto",
        "force_custom_plan",
    ] {
        run_each(&mut client, &format!("SET plan_cache_mode = {mode}"));
        for i in 0..7 {
            run_each(&mut client, &format!("EXECUTE p ({i}); EXECUTE w ({i})"));
        }
        run_each(&mut client, "EXECUTE n");
    }
    for (name, text) in [
        ("p", "AS prepared"),
        ("w", "UPDATE v"),
        ("n", "without_parameters"),
    ] {
        let sql = format!(
            "SELECT ARRAY[generic_plans, custom_plans] FROM pg_prepared_statements WHERE name = '{name}'"
        );
        let plans: Vec<i64> = value(&mut client, &sql);
        let [generic, custom, calls] = origins(&mut client, text);
        assert_eq!(
            (vec![generic, custom], calls),
            (plans, generic + custom),
            "{name}"
        );
        assert_eq!((generic > 0, custom > 0), (true, name != "n"), "{name}");
    }
    // A custom plan that is only explained is no call, and the next one is what it is.
    let [generic, custom, _] = origins(&mut client, "AS prepared");
    run_each(
        &mut client,
        "SET plan_cache_mode = force_custom_plan; EXPLAIN EXECUTE p (1); SET plan_cache_mode = force_generic_plan; EXECUTE p (1)",
    );
    assert_eq!(
        origins(&mut client, "AS prepared"),
        [generic + 1, custom, generic + 1 + custom]
    );
    // The same in the protocol with parameters. The client prepares the statement.
    run_each(&mut client, "SET plan_cache_mode = force_custom_plan");
    let statement = client
        .prepare("SELECT i AS by_protocol FROM v WHERE i < $1")
        .expect("a statement");
    for _ in 0..3 {
        client.query(&statement, &[&7i32]).expect("rows");
    }
    run_each(&mut client, "SET plan_cache_mode = force_generic_plan");
    client.query(&statement, &[&7i32]).expect("rows");
    assert_eq!(origins(&mut client, "by_protocol"), [1, 3, 4]);
    // Statements without a plan of the plan cache are neither.
    run_each(
        &mut client,
        "SELECT 1 AS simple FROM v; BEGIN; DECLARE c CURSOR FOR SELECT max(i) AS of_cursor FROM v; FETCH ALL FROM c; COMMIT",
    );
    assert_eq!(origins(&mut client, "AS simple"), [0, 0, 1]);
    assert_eq!(origins(&mut client, "AS of_cursor"), [0, 0, 1]);
    server.assert_no_crash();
}

#[test]
fn plans_of_functions_are_generic_or_custom() {
    let server = Server::preloaded("plan-origin-nested", &[]);
    let mut client = session_with_values(&server);
    run_each(
        &mut client,
        "CREATE FUNCTION nested(n int) RETURNS void LANGUAGE plpgsql AS
         'DECLARE x int; r record;
          BEGIN
              SELECT count(*) AS of_variable INTO x FROM v WHERE i < n;
              SELECT count(*) AS of_none INTO x FROM v;
              FOR r IN SELECT i AS of_loop FROM v WHERE i < n LOOP END LOOP;
              EXECUTE ''SELECT max(i) AS of_using FROM v WHERE i < $1'' USING n;
              SELECT 1 / (i - n) AS of_error INTO x FROM v WHERE i = n;
          EXCEPTION WHEN division_by_zero THEN NULL;
          END';
         CREATE FUNCTION in_sql(n int) RETURNS bigint LANGUAGE sql VOLATILE SET work_mem = '1MB' AS
         'SELECT sum(i) AS of_sql FROM v WHERE i < n'",
    );
    for (mode, times) in [("force_custom_plan", 2), ("force_generic_plan", 3)] {
        run_each(&mut client, &format!("SET plan_cache_mode = {mode}"));
        for _ in 0..times {
            run_each(&mut client, "SELECT nested(7); SELECT in_sql(7)");
        }
    }
    for (text, expected) in [
        ("of_variable", [3, 2, 5]),
        ("of_none", [5, 0, 5]),
        ("of_loop", [3, 2, 5]),
        ("of_using", [0, 5, 5]),
        ("of_error", [3, 2, 5]),
    ] {
        assert_eq!(origins(&mut client, text), expected, "{text}");
    }
    // Before 18, SQL functions plan their statements for themselves.
    let of_sql = if major(&mut client) >= 18 {
        [3, 2, 5]
    } else {
        [0, 0, 5]
    };
    assert_eq!(origins(&mut client, "of_sql"), of_sql);
    server.assert_no_crash();
}
