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

/// Returns the frequency in the header of the session's last statement, which was an EXPLAIN (ANALYZE).
fn last_sampfreq(client: &mut Client) -> i32 {
    let shown = plan(client, "SELECT * FROM rowsource_display()");
    assert!(shown.contains("(EXPLAIN ANALYZE)"), "{shown}");
    shown
        .split_once("sampfreq ")
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("no frequency: {shown}"))
}

#[test]
fn it_measures_one_explain_pg18_plus() {
    let server = server("explain-option", &[]);
    let mut client = server.session();
    let wanted = "EXPLAIN (ANALYZE, SAMPFREQ 1) SELECT count(*) FROM e";
    let before: String = value(&mut client, SETTINGS);
    let text = plan(&mut client, wanted);
    assert!(text.contains("actual time="), "{text}");
    assert_eq!(last_sampfreq(&mut client), 1);
    let text = plan(
        &mut client,
        "EXPLAIN (SAMPFREQ 1000, ANALYZE) SELECT count(*) FROM e",
    );
    assert!(text.contains("actual time="), "{text}");
    assert_eq!(last_sampfreq(&mut client), 1000);
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
    // The option has priority over the setting.
    run_each(
        &mut client,
        "SET pg_rowsource.explain = on; SET pg_rowsource.sampfreq = 0",
    );
    let text = plan(&mut client, wanted);
    assert!(text.contains("actual time="), "{text}");
    assert_eq!(last_sampfreq(&mut client), 1);
    run_each(
        &mut client,
        "RESET pg_rowsource.explain; RESET pg_rowsource.sampfreq",
    );
    run_each(&mut client, "PREPARE p AS SELECT count(*) FROM e WHERE id > 0");
    plan(&mut client, "EXPLAIN (ANALYZE, SAMPFREQ 2) EXECUTE p");
    assert_eq!(last_sampfreq(&mut client), 2);
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
    // A process returns its rows only if it has the frequency.
    let text = plan(
        &mut client,
        "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SAMPFREQ 7) SELECT id FROM e WHERE current_setting('pg_rowsource.sampfreq') = '7'",
    );
    let has = |line: &str| text.lines().any(|found| found.trim() == line);
    assert!(has("Workers Launched: 2"), "{text}");
    assert!(text.starts_with("Gather (actual rows=20000"), "{text}");
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

/// Returns the frequency and the timed calls of the scan in the session's last statement, which was a real
/// execution.
fn last_timed(client: &mut Client) -> (i32, i64) {
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
        last_timed(&mut client)
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
