//! Executions by EXPLAIN (ANALYZE) are told apart from real ones. Nested statements name their caller.

use postgres::Client;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured, only_kept};

/// Returns the first lines of the display of the last statement.
fn display(client: &mut Client) -> String {
    first_column(client, "SELECT rowsource_display()").join("\n")
}

fn explain_calls(client: &mut Client, like: &str) -> i64 {
    value(
        client,
        &format!(
            "SELECT coalesce(sum(explain_calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE '{like}'"
        ),
    )
}

#[test]
fn explain_analyze_is_counted_apart() {
    let server = basic_server("explained", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE t",
    );
    for explain in ["on", "off"] {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.explain = {explain}; SELECT rowsource_reset()"),
        );
        // The plan is new: its text is that of the statement inside.
        measured(
            &mut client,
            "EXPLAIN (ANALYZE, COSTS OFF) /* x */ SELECT count(*) FROM t WHERE id > 500",
        );
        let plan = only_kept(&mut client, "SELECT count(*) FROM t%");
        assert_eq!((plan.calls, plan.total_time), (0, 0.0));
        assert_eq!(explain_calls(&mut client, "%"), 1);
        let shown = display(&mut client);
        assert!(
            shown.contains("(EXPLAIN ANALYZE)") && shown.contains("500"),
            "{shown}"
        );
        let rows = texts(
            &mut client,
            "SELECT rows, starts, compared_executions FROM pg_stat_rowsource",
        );
        let nothing = [Some("0"), None, Some("0")].map(|value| value.map(String::from));
        assert!(rows.iter().all(|row| *row == nothing), "{rows:?}");
        for (which, is_counted) in [("last", true), ("mean", false), ("total", false)] {
            let sql = format!(
                "SELECT rowsource_explain(queryid, planid, which => '{which}') FROM rowsource_last()"
            );
            let lines = first_column(&mut client, &sql);
            let has_counts = lines.iter().any(|line| line.contains("actual "));
            assert_eq!(has_counts, is_counted, "{which}: {lines:#?}");
        }
        // Real executions are counted as always.
        measured(
            &mut client,
            "SELECT count(*) FROM t WHERE id > 500; EXPLAIN ANALYZE SELECT count(*) FROM t WHERE id > 500",
        );
        measured(&mut client, "SELECT count(*) FROM t WHERE id > 500");
        let plan = only_kept(&mut client, "SELECT count(*) FROM t%");
        assert_eq!((plan.calls, explain_calls(&mut client, "SELECT%")), (2, 2));
        assert!(!display(&mut client).contains("EXPLAIN"));
        let rows: i64 = value(
            &mut client,
            "SELECT sum(rows)::bigint FROM pg_stat_rowsource WHERE operation = 'Seq Scan'",
        );
        assert_eq!(rows, 1_000);
    }
}

/// A plan without shared memory.
#[test]
fn explain_analyze_is_counted_apart_without_a_store_before_pg17() {
    let server = rowsource_tests::Server::start("explained-local", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, "EXPLAIN ANALYZE SELECT 1 AS one");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let plan = only_kept(&mut client, "SELECT%AS one");
    assert_eq!((plan.calls, explain_calls(&mut client, "SELECT%AS one")), (0, 1));
}

#[test]
fn several_statements_in_one_message_keep_their_own_texts() {
    let server = basic_server("explained-message", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    client
        .batch_execute("SELECT 1 AS a; EXPLAIN (ANALYZE) SELECT 2 AS b FROM generate_series(1, 3); SELECT 3 AS c FROM pg_class")
        .expect("three statements");
    run_each(
        &mut client,
        "PREPARE p AS SELECT 4 AS d FROM pg_am; EXPLAIN ANALYZE EXECUTE p",
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    for (like, explained) in [
        ("%SELECT % AS a", 0),
        ("SELECT % AS b FROM generate_series(%)", 1),
        ("%SELECT % AS c FROM pg_class", 0),
        ("PREPARE%AS d%", 1),
    ] {
        only_kept(&mut client, like);
        assert_eq!(explain_calls(&mut client, like), explained, "{like}");
    }
    assert_eq!(explain_calls(&mut client, "%EXPLAIN%"), 0);
}

#[test]
fn nested_statements_name_their_caller() {
    let server = basic_server(
        "callers",
        &["pg_rowsource.track = 'all'", "compute_query_id = on"],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t (id int);
         CREATE FUNCTION inner_f() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) AS innermost FROM t); END';
         CREATE FUNCTION outer_f() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT inner_f() AS middle FROM t LIMIT 1); END';
         CREATE PROCEDURE proc() LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (1); PERFORM outer_f(); END';
         INSERT INTO t VALUES (0)",
    );
    measured(&mut client, "SELECT outer_f() AS outermost");
    let caller = |client: &mut Client, like: &str| -> Option<i64> {
        value(
            client,
            &format!("SELECT caller_queryid FROM pg_stat_rowsource_plans WHERE query LIKE '{like}'"),
        )
    };
    let outermost = only_kept(&mut client, "SELECT outer_f() AS outermost");
    let middle = only_kept(&mut client, "%inner_f() AS middle%");
    assert_eq!(caller(&mut client, "SELECT outer_f() AS outermost"), None);
    assert_eq!(
        caller(&mut client, "%inner_f() AS middle%"),
        Some(outermost.queryid)
    );
    assert_eq!(caller(&mut client, "%AS innermost%"), Some(middle.queryid));
    // Statements in a procedure name the CALL.
    measured(&mut client, "CALL proc()");
    let call = caller(&mut client, "INSERT INTO t VALUES (%");
    assert!(call.is_some_and(|call| call != 0), "{call:?}");
    let performed = "SELECT outer_f()";
    assert_eq!(caller(&mut client, performed), call);
    assert_ne!(call, Some(outermost.queryid));
}

/// EXPLAIN asks core for times unless it has the option TIMING. At `sampfreq` 0 and 3 nobody wants them.
#[test]
fn explain_has_no_times_if_nothing_is_timed() {
    let server = basic_server("explained-untimed", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE t;
         PREPARE p AS SELECT count(*) FROM t WHERE id > 10; SET pg_rowsource.explain = on;
         CREATE FUNCTION inside() RETURNS SETOF text LANGUAGE plpgsql AS
             'BEGIN RETURN QUERY EXECUTE ''EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF) SELECT count(*) FROM t''; END'",
    );
    let explain = |client: &mut Client, options: &str, level: &str, statement: &str| {
        run_each(client, &format!("SET pg_rowsource.statistics_level = {level}"));
        let options = format!("ANALYZE, COSTS OFF, SUMMARY OFF, BUFFERS OFF{options}");
        let text = first_column(client, &format!("EXPLAIN ({options}) {statement}")).join("\n");
        run_each(client, "SET pg_rowsource.statistics_level = basic");
        text
    };
    const COUNT: &str = "SELECT count(*) FROM t WHERE id > 10";
    let untimed = explain(&mut client, ", TIMING OFF", "basic", COUNT);
    for sampfreq in [0, 3] {
        run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
        for statement in [
            COUNT,
            "EXECUTE p",
            &format!("/*+ gather_plan_statistics */ {COUNT}"),
        ] {
            let level = if statement.starts_with("/*") {
                "basic"
            } else {
                "typical"
            };
            assert_eq!(
                explain(&mut client, "", level, statement),
                untimed,
                "{sampfreq}, {statement}"
            );
            let header = display(&mut client);
            assert!(
                header.contains(&format!("sampfreq {sampfreq}")) && !header.contains("clock core"),
                "{sampfreq}: core measured {statement}\n{header}"
            );
        }
        let settings = explain(&mut client, ", SETTINGS", "typical", COUNT);
        let named = format!("pg_rowsource.explain = 'on', pg_rowsource.sampfreq = '{sampfreq}'");
        assert!(settings.contains(&named), "{settings}");
        // Core measures what is asked for by name, and what pg_rowsource does not measure.
        let by_core = [
            explain(&mut client, ", TIMING", "typical", COUNT),
            explain(&mut client, "", "basic", COUNT),
        ];
        run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
        let inside = first_column(&mut client, "SELECT inside()").join("\n");
        for text in by_core.iter().chain([&inside]) {
            assert!(text.contains("actual time="), "{sampfreq}: {text}");
        }
        run_each(&mut client, "EXPLAIN SELECT 1");
    }
}
