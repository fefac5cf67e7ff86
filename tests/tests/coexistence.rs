//! Runs together with pg_stat_statements and auto_explain, loaded before and after them: each library
//! measures correctly.

use rowsource_tests::explain::core_counts;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, differences, measure};

const TABLE: &str = "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 5000) i; VACUUM ANALYZE n";
const STATEMENT: &str = "SELECT count(*) FROM n WHERE id % 7 = 0";

fn check(name: &str, libraries: &str) {
    let server = Server::start(
        name,
        &[
            &format!("shared_preload_libraries = '{libraries}'"),
            "max_parallel_workers_per_gather = 0",
            "pg_stat_statements.track = 'all'",
            "auto_explain.log_min_duration = -1",
            "auto_explain.log_analyze = on",
            "auto_explain.log_buffers = on",
            "auto_explain.log_format = 'text'",
            "log_min_messages = 'log'",
        ],
    );
    run_each(&mut server.connect(), TABLE);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_stat_statements");
    let mut client = server.session();
    run_each(&mut client, "SELECT pg_stat_statements_reset()");
    run_each(&mut client, STATEMENT);
    run_each(&mut client, STATEMENT);
    let core = core_counts(&mut client, STATEMENT);
    for auto_explain in ["-1", "0"] {
        for (explain, timing) in [("off", "on"), ("on", "on"), ("on", "off")] {
            run_each(
                &mut client,
                &format!(
                    "SET auto_explain.log_min_duration = {auto_explain}; SET pg_rowsource.explain = {explain};
                     SET auto_explain.log_timing = {timing}"
                ),
            );
            let what =
                format!("{libraries}, auto_explain {auto_explain}, explain {explain}, timing {timing}");
            let measured = measure(&mut client, STATEMENT);
            assert_eq!(differences(&core, &measured), Vec::<String>::new(), "{what}");
            assert!(
                measured.iter().all(|node| node.total_ms.is_some()),
                "{what}: times are missing: {measured:#?}"
            );
        }
    }
    run_each(&mut client, "SET auto_explain.log_min_duration = -1");
    let row = client
        .query_one("SELECT calls, rows, shared_blks_hit + shared_blks_read FROM pg_stat_statements WHERE query LIKE 'SELECT count(*) FROM n WHERE%'", &[])
        .expect("pg_stat_statements knows the statement");
    let (calls, rows, blocks): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!((calls, rows), (8, 8), "{libraries}: pg_stat_statements");
    assert_eq!(
        blocks,
        8 * core[0].counters[0],
        "{libraries}: pg_stat_statements' blocks"
    );
    let ids: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_statements s JOIN pg_stat_rowsource_plans p USING (userid, queryid)
         WHERE s.dbid = p.datid AND s.query LIKE 'SELECT count(*) FROM n WHERE%'",
    );
    assert!(ids >= 1, "{libraries}: the query ids differ");
    check_log(&server.log(), libraries);
}

/// Checks auto_explain's plans: rows and loops are exact, and times are there if requested.
fn check_log(log: &str, libraries: &str) {
    let timed = log.lines().filter(|line| {
        line.contains("Seq Scan on n")
            && (line.contains("rows=714 loops=1)") || line.contains("rows=714.00 loops=1)"))
    });
    let (mut with_time, mut without_time) = (0, 0);
    for line in timed {
        if line.contains("actual time=") {
            with_time += 1
        } else {
            without_time += 1
        }
    }
    assert_eq!(
        (with_time, without_time),
        (2, 1),
        "{libraries}: auto_explain's plans in the log:\n{log}"
    );
    for line in log.lines().filter(|line| line.contains("Seq Scan on n")) {
        let end = line
            .split_once("actual time=")
            .and_then(|(_, times)| times.split_once(".."))
            .and_then(|(_, end)| end.split_once(' '));
        assert!(
            end.is_none_or(|(end, _)| end.parse::<f64>().is_ok_and(|ms| ms > 0.0 && ms < 10_000.0)),
            "{libraries}: {line}\n{log}"
        );
    }
    assert!(
        log.contains("Buffers: shared hit="),
        "{libraries}: auto_explain's buffers are missing"
    );
}

#[test]
fn works_when_loaded_last() {
    check(
        "coexistence-last",
        "pg_stat_statements, auto_explain, pg_rowsource",
    );
}

#[test]
fn works_when_loaded_first() {
    check(
        "coexistence-first",
        "pg_rowsource, pg_stat_statements, auto_explain",
    );
}

#[test]
fn works_when_loaded_between() {
    check(
        "coexistence-between",
        "auto_explain, pg_rowsource, pg_stat_statements",
    );
}
