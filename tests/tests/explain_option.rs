//! EXPLAIN's option SAMPFREQ from PostgreSQL 18 on, and the same option in auto_explain's setting from 19 on.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};

const TABLE: &str = "CREATE TABLE e AS SELECT i AS id FROM generate_series(1, 20000) i; ANALYZE e";
const SETTINGS: &str =
    "SELECT current_setting('pg_rowsource.sampfreq') || ' ' || current_setting('pg_rowsource.explain')
    || ' ' || current_setting('pg_rowsource.statistics_level')";

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["max_parallel_workers_per_gather = 0", "jit = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(&mut server.session(), TABLE);
    server
}

fn plan(client: &mut Client, explain: &str) -> String {
    let lines = texts(client, explain);
    let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
    lines.join("\n")
}

/// Returns the frequency and the timed calls of the scan in the session's last statement.
fn last(client: &mut Client) -> (i32, i64) {
    let row = client
        .query_one(
            "SELECT p.sampfreq, s.last_timed_calls FROM rowsource_last()
             JOIN pg_stat_rowsource_plans p USING (queryid, planid) JOIN pg_stat_rowsource s USING (queryid, planid)
             WHERE s.operation = 'Seq Scan'",
            &[],
        )
        .expect("the last statement's scan");
    (row.get(0), row.get(1))
}

#[test]
fn it_measures_one_explain_pg18_plus() {
    let server = server("explain-option", &[]);
    let mut client = server.session();
    let wanted = "EXPLAIN (ANALYZE, SAMPFREQ 1) SELECT count(*) FROM e";
    let before: String = value(&mut client, SETTINGS);
    let text = plan(&mut client, wanted);
    assert!(text.contains("actual time="), "{text}");
    assert_eq!(last(&mut client), (1, 20_001), "every call is timed");
    let text = plan(
        &mut client,
        "EXPLAIN (SAMPFREQ 1000, ANALYZE) SELECT count(*) FROM e",
    );
    assert!(text.contains("actual time="), "{text}");
    let (sampfreq, timed) = last(&mut client);
    assert!(sampfreq == 1000 && timed < 5_000, "{sampfreq} {timed}");
    for untimed in [0, 3] {
        let text = plan(
            &mut client,
            &format!("EXPLAIN (ANALYZE, SAMPFREQ {untimed}) SELECT count(*) FROM e"),
        );
        assert!(
            text.contains("rows=20000") && !text.contains("actual time="),
            "{text}"
        );
    }
    run_each(&mut client, "PREPARE p AS SELECT count(*) FROM e WHERE id > 0");
    plan(&mut client, "EXPLAIN (ANALYZE, SAMPFREQ 2) EXECUTE p");
    assert_eq!(last(&mut client).0, 2);
    assert_eq!(value::<String>(&mut client, SETTINGS), before);
}

#[test]
fn it_reaches_parallel_workers_pg18_plus() {
    let server = server("explain-parallel", &["min_parallel_table_scan_size = 0"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
    );
    let text = plan(
        &mut client,
        "EXPLAIN (ANALYZE, SAMPFREQ 1) SELECT count(*) FROM e WHERE id % 2 = 0",
    );
    let row = client
        .query_one(
            "SELECT s.last_timed_calls, s.last_rows + s.last_starts FROM rowsource_last()
             JOIN pg_stat_rowsource s USING (queryid, planid) WHERE s.operation LIKE 'Parallel Seq Scan'",
            &[],
        )
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (timed, calls): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(timed, calls, "every call of every process\n{text}");
}

#[test]
fn wrong_uses_fail_and_leave_nothing_behind_pg18_plus() {
    let server = server("explain-wrong", &[]);
    let mut client = server.session();
    let before: String = value(&mut client, SETTINGS);
    let cases = [
        ("EXPLAIN (SAMPFREQ 1) SELECT 1", "requires ANALYZE"),
        (
            "EXPLAIN (ANALYZE, SAMPFREQ -1) SELECT 1",
            "outside the valid range",
        ),
        (
            "EXPLAIN (ANALYZE, SAMPFREQ often) SELECT 1",
            "requires an integer value",
        ),
        (
            "EXPLAIN (ANALYZE, SAMPFREQ 1) SELECT sum(1 / (id - 500)) FROM e",
            "division by zero",
        ),
    ];
    for (statement, expected) in cases {
        let (_, message) = must_fail(&mut client, statement);
        assert!(message.contains(expected), "{statement}: {message}");
        assert_eq!(value::<String>(&mut client, SETTINGS), before, "{statement}");
    }
    // An error caught inside a transaction that set sampfreq itself before.
    run_each(
        &mut client,
        "BEGIN; SET LOCAL pg_rowsource.sampfreq = 77;
         DO 'BEGIN EXECUTE ''EXPLAIN (ANALYZE, SAMPFREQ 1) SELECT 1 / (id - 500) FROM e''; EXCEPTION WHEN division_by_zero THEN NULL; END'",
    );
    let inside: String = value(&mut client, SETTINGS);
    assert!(inside.starts_with("77 "), "{inside}");
    run_each(&mut client, "COMMIT");
    assert_eq!(value::<String>(&mut client, SETTINGS), before);
}

#[test]
fn auto_explain_takes_it_from_its_setting_pg19_plus() {
    let server = Server::start(
        "explain-auto",
        &[
            "shared_preload_libraries = 'pg_rowsource, auto_explain'",
            "max_parallel_workers_per_gather = 0",
            "jit = off",
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on",
    );
    for wrong in ["sampfreq", "sampfreq often", "sampfreq -1", "sampfreq 10000000"] {
        must_fail(
            &mut client,
            &format!("SET auto_explain.log_extension_options = '{wrong}'"),
        );
    }
    let mut frequency = |options: &str| -> (i32, i64) {
        run_each(
            &mut client,
            &format!("SET auto_explain.log_extension_options = '{options}'"),
        );
        run_each(&mut client, "SELECT count(*) FROM e");
        last(&mut client)
    };
    // Core times every call itself, unless the option asks for sampling.
    assert_eq!(frequency("").1, 0);
    assert_eq!(frequency("sampfreq 1"), (1, 20_001));
    let (sampfreq, timed) = frequency("sampfreq 500");
    assert!(
        sampfreq == 500 && timed > 0 && timed < 5_000,
        "{sampfreq} {timed}"
    );
    let log = server.log();
    assert!(
        log.contains("Seq Scan on e") && log.contains("actual time="),
        "{log}"
    );
}
