//! Executions that are kept whole: of each plan the slowest one, and the last ones that failed and were
//! cancelled.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::store::{basic_server, info, measuring};
use rowsource_tests::waiting::TIMEOUT;
use serde_json::Value;
use std::time::Instant;

const TABLE: &str =
    "CREATE TABLE n AS SELECT i AS id, i % 100 AS k FROM generate_series(1, 1000) i; ANALYZE n";
/// A statement that can be slow, can fail, and whose scan returns as many rows as its first parameter says.
const PREPARE: &str = "SET plan_cache_mode = force_generic_plan;
    PREPARE q (int, float8, int) AS SELECT count(1 / $3) FROM pg_sleep($2), n WHERE id <= $1";

/// Opens a session that has prepared the statement and times every call.
fn session(server: &Server) -> Client {
    let mut client = measuring(server);
    run_each(&mut client, PREPARE);
    client
}

fn server(name: &str) -> Server {
    let server = basic_server(name, &[]);
    run_each(&mut server.connect(), TABLE);
    server
}

/// Runs the statement: it returns `rows` rows of the table, and sleeps `ms` milliseconds before. Of two
/// executions that a test compares, the slower one sleeps 500 ms longer, because a busy machine may delay the
/// other one.
fn run(client: &mut Client, rows: u32, ms: u32) {
    run_each(client, &format!("EXECUTE q ({rows}, 0.001 * {ms}, 1)"));
}

/// Runs the statement so that it fails at the first row.
fn fail(client: &mut Client, rows: u32, ms: u32) {
    let (code, _) = must_fail(client, &format!("EXECUTE q ({rows}, 0.001 * {ms}, 0)"));
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
}

/// Runs the statement so that it is cancelled.
fn cancel(client: &mut Client, rows: u32) {
    run_each(client, "SET statement_timeout = '1s'");
    let (code, _) = must_fail(client, &format!("EXECUTE q ({rows}, 10, 1)"));
    assert_eq!(code, SqlState::QUERY_CANCELED);
    run_each(client, "SET statement_timeout = 0");
}

/// Returns the ids of the session's last statement, as arguments.
fn ids(client: &mut Client) -> String {
    value(
        client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    )
}

/// Returns a kept execution as JSON, or `None` if there is none.
fn printed(client: &mut Client, ids: &str, which: &str) -> Option<Value> {
    let sql = format!("SELECT rowsource_explain({ids}, '{which}', 'json')");
    match client.query_one(&sql, &[]) {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => None,
        row => {
            let document: Value = serde_json::from_str(row.expect("a document").get(0)).expect("JSON");
            Some(document[0].clone())
        }
    }
}

/// Returns the rows that the scan of the table returned in a kept execution.
fn scanned(client: &mut Client, ids: &str, which: &str) -> Option<f64> {
    let document = printed(client, ids, which)?;
    document["Plan"]["Plans"][0]["Plans"][1]["Actual Rows"].as_f64()
}

#[test]
fn the_slowest_execution_is_kept_whole() {
    let server = server("slowest");
    let mut client = session(&server);
    run(&mut client, 100, 5);
    let before: String = value(&mut client, "SELECT clock_timestamp()::text");
    run(&mut client, 300, 700);
    let after: String = value(&mut client, "SELECT clock_timestamp()::text");
    run(&mut client, 500, 10);
    let ids = ids(&mut client);
    let mut reader = server.connect();
    assert_eq!(scanned(&mut reader, &ids, "slowest"), Some(300.0));
    assert_eq!(scanned(&mut reader, &ids, "last"), Some(500.0));
    let document = printed(&mut reader, &ids, " Slowest").expect("an execution");
    assert!(document["Execution Time"].as_f64() >= Some(699.0), "{document}");
    assert_eq!(document["Outcome"], "completed");
    let ended = document["Execution Ended"].as_str().expect("a time");
    let is_between = format!("SELECT timestamptz '{ended}' BETWEEN '{before}' AND '{after}'");
    assert!(
        value::<bool>(&mut reader, &is_between),
        "{before} {ended} {after}"
    );
    // An execution that completed is EXPLAIN's, without these.
    let last = printed(&mut reader, &ids, "last").expect("an execution");
    assert!(
        last["Outcome"].is_null() && last["Execution Ended"].is_null(),
        "{last}"
    );

    let text = first_column(
        &mut reader,
        &format!("SELECT rowsource_explain({ids}, 'slowest', 'text')"),
    );
    assert_eq!(
        text[text.len() - 2..],
        [
            format!("Execution Ended: {ended}"),
            "Outcome: completed".to_owned()
        ]
    );
    for (format, expected) in [
        ("yaml", "  Outcome: \"completed\""),
        ("xml", "<Outcome>completed</Outcome>"),
    ] {
        let found = first_column(
            &mut reader,
            &format!("SELECT rowsource_explain({ids}, 'slowest', '{format}')"),
        );
        assert!(
            found[0].contains(expected) && found[0].contains(ended),
            "{}",
            found[0]
        );
    }
    let table = first_column(
        &mut reader,
        &format!("SELECT rowsource_display({ids}, format => 'ALLSTATS SLOWEST')"),
    );
    let header = table
        .iter()
        .find(|line| line.contains("slowest at"))
        .expect("a header");
    assert!(
        header.contains(&format!("slowest at {ended}  outcome completed")),
        "{table:#?}"
    );
    assert!(
        table
            .iter()
            .any(|line| line.contains("Seq Scan") && line.contains("|    300 |")),
        "{table:#?}"
    );
    // The other exports know the same words.
    let folded = first_column(&mut reader, &format!("SELECT rowsource_folded({ids}, 'slowest')"));
    let us = folded
        .iter()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    assert!(us.sum::<f64>() > 690_000.0, "{folded:#?}");
    let page = first_column(&mut reader, &format!("SELECT rowsource_html({ids}, 'slowest')"));
    assert!(
        page[0].contains("the slowest execution") && page[0].contains(ended),
        "{}",
        page[0]
    );
    assert_eq!(
        first_column(
            &mut reader,
            &format!("SELECT rowsource_speedscope({ids}, 'slowest')")
        )
        .len(),
        1
    );
    // Without ids it is that of the last statement's plan, without its literals.
    let own = first_column(&mut client, "SELECT rowsource_explain(which => 'slowest')");
    assert_eq!(own, text);
    server.assert_no_crash();
}

#[test]
fn the_last_failed_and_cancelled_executions_are_kept_whole() {
    let server = server("failed");
    let mut client = session(&server);
    fail(&mut client, 100, 1000);
    fail(&mut client, 200, 0);
    cancel(&mut client, 300);
    run(&mut client, 400, 5);
    let ids = ids(&mut client);
    let mut reader = server.connect();
    // It failed when the aggregate got the first row.
    let failed = printed(&mut reader, &ids, "failed").expect("an execution");
    assert_eq!(failed["Outcome"], "failed");
    assert!(
        failed["Execution Time"].as_f64() < Some(1000.0),
        "the last one: {failed}"
    );
    assert_eq!(scanned(&mut reader, &ids, "failed"), Some(1.0));
    let cancelled = printed(&mut reader, &ids, "cancelled").expect("an execution");
    assert_eq!(cancelled["Outcome"], "cancelled");
    assert!(cancelled["Execution Time"].as_f64() >= Some(500.0), "{cancelled}");
    // The slowest one is the slowest that completed.
    assert_eq!(scanned(&mut reader, &ids, "slowest"), Some(400.0));
    for (word, expected) in [("FAILED", "last failed at"), ("cancelled", "last cancelled at")] {
        let table = first_column(
            &mut reader,
            &format!("SELECT rowsource_display({ids}, format => '{word}')"),
        )
        .join("\n");
        assert!(
            table.contains(expected) && table.contains("statistics up to that moment"),
            "{table}"
        );
    }
    // The last one says it too if it did not complete.
    fail(&mut client, 200, 0);
    let last = printed(&mut reader, &ids, "last").expect("an execution");
    assert_eq!(last["Outcome"], "failed");
    server.assert_no_crash();
}

#[test]
fn what_is_not_kept_is_said() {
    let server = server("unkept");
    let mut client = session(&server);
    run(&mut client, 1, 0);
    let ids = ids(&mut client);
    let mut reader = server.connect();
    for which in ["failed", "cancelled"] {
        for shown in [
            format!("rowsource_display({ids}, format => '{which}')"),
            format!("rowsource_html({ids}, which => '{which}')"),
        ] {
            let (code, message) = must_fail(&mut reader, &format!("SELECT {shown}"));
            assert_eq!(code, SqlState::UNDEFINED_OBJECT);
            assert!(
                message.starts_with(&format!("no {which} execution is kept of queryid ")),
                "{message}"
            );
        }
    }
    let (code, message) = must_fail(
        &mut reader,
        &format!("SELECT rowsource_explain({ids}, 'slow', 'json')"),
    );
    assert_eq!(code, SqlState::INVALID_PARAMETER_VALUE);
    assert!(
        message.contains("Known words: last, mean, total, slowest, failed, cancelled."),
        "{message}"
    );
    // The statistics of executions by EXPLAIN (ANALYZE) are not kept.
    let slow = "EXPLAIN (ANALYZE) SELECT pg_sleep(0.01)";
    run_each(&mut client, slow);
    let (code, _) = must_fail(&mut client, "SELECT rowsource_explain(which => 'slowest')");
    assert_eq!(code, SqlState::UNDEFINED_OBJECT);
    server.assert_no_crash();
}

/// A session remembers how slow the kept execution is. It notices that the plan was deleted.
#[test]
fn a_reset_forgets_the_slowest_execution() {
    let server = server("forgotten");
    let mut client = session(&server);
    run(&mut client, 100, 500);
    let ids = ids(&mut client);
    let mut reader = server.connect();
    assert_eq!(scanned(&mut reader, &ids, "slowest"), Some(100.0));
    run_each(&mut reader, "SELECT rowsource_reset()");
    run(&mut client, 200, 600);
    run(&mut client, 300, 2);
    assert_eq!(scanned(&mut reader, &ids, "slowest"), Some(200.0));
    // Another session's execution takes its place, and then none of this session that is faster.
    let mut other = session(&server);
    run(&mut other, 400, 1300);
    run(&mut client, 500, 700);
    assert_eq!(scanned(&mut reader, &ids, "slowest"), Some(400.0));
    server.assert_no_crash();
}

#[test]
fn they_survive_a_restart_and_snapshots_have_them() {
    let mut server = server("restarted");
    let mut client = session(&server);
    run(&mut client, 100, 600);
    fail(&mut client, 200, 0);
    let ids = ids(&mut client);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let snapshot = |client: &mut Client| -> i64 { value(client, "SELECT rowsource_snapshot()") };
    let first = snapshot(&mut client);
    let expected = ["slowest", "failed"].map(|which| printed(&mut client, &ids, which));
    let table = first_column(
        &mut client,
        &format!("SELECT rowsource_display({ids}, format => 'SLOWEST')"),
    );
    drop(client);
    server.stop();
    server.launch();
    let mut client = session(&server);
    for (which, expected) in ["slowest", "failed"].into_iter().zip(expected) {
        assert_eq!(printed(&mut client, &ids, which), expected, "{which}");
    }
    // A faster one does not replace it, a slower one does.
    run(&mut client, 300, 5);
    assert_eq!(scanned(&mut client, &ids, "slowest"), Some(100.0));
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let second = snapshot(&mut client);
    let shown = |client: &mut Client, snapshot: i64| {
        let [queryid, planid] = [0, 1].map(|i| ids.split(", ").nth(i).expect("an id"));
        first_column(
            client,
            &format!("SELECT rowsource_display_snapshot({queryid}, {planid}, {snapshot}, 'SLOWEST')"),
        )
    };
    assert_eq!(shown(&mut client, first)[1..], table);
    let [queryid, planid] = [0, 1].map(|i| ids.split(", ").nth(i).expect("an id"));
    let (code, message) = must_fail(
        &mut client,
        &format!("SELECT rowsource_display_snapshot({queryid}, {planid}, {second}, 'SLOWEST')"),
    );
    assert_eq!(code, SqlState::UNDEFINED_OBJECT);
    assert!(
        message.contains("has no slowest execution of this plan"),
        "{message}"
    );
    server.assert_no_crash();
}

/// The memory of each plan is bounded, and comes back: also if a function catches errors in a loop.
#[test]
fn kept_executions_take_little_memory() {
    let server = server("exemplar-memory");
    let mut client = session(&server);
    let mut reader = server.connect();
    // An execution of more than 1 ms is kept: of the first one, which fills caches, or of one that a busy
    // machine delays. Then the store is emptied, and it runs again.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        run_each(&mut client, "SELECT rowsource_reset()");
        run(&mut client, 1, 0);
        let ids = ids(&mut client);
        if printed(&mut reader, &ids, "slowest").is_none() {
            break;
        }
        assert!(Instant::now() < deadline, "it always takes more than 1 ms");
    }
    let empty = info(&mut reader, "bytes");
    run(&mut client, 100, 250);
    let one = info(&mut reader, "bytes") - empty;
    fail(&mut client, 100, 0);
    cancel(&mut client, 100);
    let three = info(&mut reader, "bytes") - empty;
    println!(
        "a plan of four nodes takes {empty} bytes, its slowest execution {one}, three executions {three}"
    );
    assert!(one > 0 && one < empty / 8, "{one} of {empty} bytes");
    assert!(three < 4 * one, "{three} of {empty} bytes");
    run(&mut client, 500, 500);
    run(&mut client, 700, 750);
    fail(&mut client, 900, 0);
    let later = info(&mut reader, "bytes") - empty;
    assert!((later - three).abs() < 50, "{three} and then {later} bytes");

    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    client
        .batch_execute(
            "DO $$ BEGIN FOR i IN 1 .. 2000 LOOP
                 BEGIN PERFORM count(1 / (id - 5)) FROM n WHERE id < 10; EXCEPTION WHEN division_by_zero THEN END;
             END LOOP; END $$",
        )
        .expect("a loop");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let failed: i64 = value(
        &mut reader,
        "SELECT max(failed_calls) FROM pg_stat_rowsource_plans",
    );
    assert_eq!(failed, 2000);
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(info(&mut reader, "bytes"), 0);
    server.assert_no_crash();
}

/// Plans are evicted as without kept executions, and their memory with them.
#[test]
fn a_full_store_keeps_to_its_limit() {
    const LIMIT: i64 = 4 << 20;
    let server = basic_server("exemplars-full", &["pg_rowsource.max_memory = '4MB'"]);
    let mut client = measuring(&server);
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    let mut reader = server.connect();
    for from in [1, 201, 401, 601] {
        client
            .batch_execute(&format!(
                "DO $$ BEGIN FOR i IN {from} .. {from} + 199 LOOP
                     EXECUTE format('SELECT %s s FROM generate_series(1, 3) s, pg_sleep(0.002) WHERE %s true ORDER BY 1',
                                    repeat('s, ', i % 40), repeat('s < 5 AND ', i / 40));
                 END LOOP; END $$"
            ))
            .expect("statements");
        let bytes = info(&mut reader, "bytes");
        assert!(bytes <= LIMIT, "{bytes} bytes");
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    assert!(info(&mut reader, "evictions") > 100);
    // In a store as small as this, free memory may be in pieces too small for one of the 800 plans.
    let refused = info(&mut reader, "refused");
    assert!(refused < 8, "{refused} plans were refused");
    let kept: i64 = value(
        &mut reader,
        "SELECT count(*) FROM pg_stat_rowsource_plans p,
             LATERAL (SELECT count(*) AS lines FROM rowsource_explain(p.queryid, p.planid, 'slowest', 'text')) e
         WHERE p.query LIKE 'SELECT s,%' AND e.lines > 3",
    );
    let plans = info(&mut reader, "plans");
    println!("{kept} of {plans} plans have their slowest execution");
    assert!(kept > plans * 3 / 4, "{kept} of {plans} plans");
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(info(&mut reader, "bytes"), 0);
    server.assert_no_crash();
}

#[test]
fn without_shared_memory_a_session_keeps_them_before_pg17() {
    let server = Server::start("exemplars-alone", &["jit = off"]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, TABLE);
    run_each(&mut client, PREPARE);
    run(&mut client, 100, 5);
    run(&mut client, 300, 700);
    fail(&mut client, 400, 0);
    run(&mut client, 500, 10);
    let ids = ids(&mut client);
    assert_eq!(scanned(&mut client, &ids, "slowest"), Some(300.0));
    assert_eq!(scanned(&mut client, &ids, "failed"), Some(1.0));
    server.assert_no_crash();
}
