//! Plans with a custom scan above a ModifyTable, as those of TimescaleDB and Citus. A small extension in C,
//! `modify_wrapper`, puts it there.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{run_each, texts};

/// Starts a server with `modify_wrapper`, whose custom scan runs the ModifyTable's own function itself.
fn wrapped(name: &str) -> (Server, Client) {
    let server = Server::preloaded(name, &[]);
    let mut client = server.session();
    run_each(
        &mut client,
        &format!(
            "CREATE TABLE wrapped (a int); LOAD '{}'; SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
            object("modify_wrapper/modify_wrapper.c").display()
        ),
    );
    (server, client)
}

const INSERT: &str = "INSERT INTO wrapped SELECT generate_series(1, 20000)";
const EXPLAIN_ANALYZE: &str = "EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF)";

/// The wrapper's function for EXPLAIN makes two nodes share their instrumentation, which is harmless after a
/// run, but not before it.
#[test]
fn a_custom_scan_above_a_modify_table_can_be_explained() {
    let (server, mut client) = wrapped("foreign-explained");
    for explain in ["off", "on"] {
        for statement in [INSERT, "UPDATE wrapped SET a = a + 1", "DELETE FROM wrapped"] {
            run_each(&mut client, &format!("SET pg_rowsource.explain = {explain}"));
            let lines = first_column(&mut client, &format!("{EXPLAIN_ANALYZE} {statement}"));
            assert!(lines[0].contains("ModifyWrapper"), "{lines:?}");
        }
    }
    server.assert_no_crash();
}

#[test]
fn rows_below_a_custom_scan_count() {
    let (server, mut client) = wrapped("foreign-rows");
    run_each(&mut client, INSERT);
    run_each(
        &mut client,
        "UPDATE wrapped SET a = a + 100000 WHERE a <= 1000; DELETE FROM wrapped WHERE a BETWEEN 2001 AND 2500;
         INSERT INTO wrapped SELECT generate_series(1, 7) RETURNING a",
    );
    let rows = texts(
        &mut client,
        "SELECT split_part(query, ' ', 1), rows FROM rowsource_top_statements WHERE query ~ '^(INSERT|UPDATE|DELETE).* wrapped'
         ORDER BY 1, rows",
    );
    let expected = [
        ("DELETE", "500"),
        ("INSERT", "7"),
        ("INSERT", "20000"),
        ("UPDATE", "1000"),
    ];
    let expected = expected.map(|(command, rows)| vec![Some(command.to_owned()), Some(rows.to_owned())]);
    assert_eq!(rows, expected);
    server.assert_no_crash();
}

/// The node that nobody calls through ExecProcNode is shown as not measured, and the node below it keeps its
/// time.
#[test]
fn a_node_that_is_not_called_bounds_nobody() {
    let (server, mut client) = wrapped("foreign-times");
    for hijack in ["on", "off"] {
        run_each(
            &mut client,
            &format!("SET modify_wrapper.hijack = {hijack}; SELECT rowsource_reset(); {INSERT}"),
        );
        let nodes = texts(
            &mut client,
            "SELECT operation, starts, total_time > 0.1 FROM pg_stat_rowsource ORDER BY node_id LIMIT 3",
        );
        let row = |operation: &str, starts: Option<&str>, has_time: Option<&str>| {
            [Some(operation), starts, has_time]
                .map(|text| text.map(str::to_owned))
                .to_vec()
        };
        let measured = (Some("1"), Some("t"));
        let insert = if hijack == "on" { (None, None) } else { measured };
        let expected = [
            row("Custom Scan (ModifyWrapper)", measured.0, measured.1),
            row("Insert", insert.0, insert.1),
            row("ProjectSet", measured.0, measured.1),
        ];
        assert_eq!(nodes, expected, "hijack {hijack}");
    }
    run_each(&mut client, "SET modify_wrapper.hijack = on");
    for explain in ["off", "on"] {
        run_each(&mut client, &format!("SET pg_rowsource.explain = {explain}"));
        let shown = first_column(&mut client, &format!("{EXPLAIN_ANALYZE} {INSERT}"));
        let node = |lines: &[String]| {
            let line = lines.iter().find(|line| line.contains("ProjectSet"));
            line.expect("ProjectSet").clone()
        };
        let line = node(&shown);
        assert!(!line.contains("..0.000 "), "explain {explain}: {shown:?}");
        let displayed = first_column(&mut client, "SELECT rowsource_display()");
        let line = node(&displayed);
        println!("{line}");
        assert!(!line.contains(" 0.000 "), "explain {explain}: {displayed:?}");
    }
    server.assert_no_crash();
}

/// A scan without nodes below it has run or not: its own state tells it, if it is one that opens its table
/// for the first row.
#[test]
fn a_scan_that_is_not_called_is_not_measured() {
    let (server, mut client) = wrapped("foreign-leaves");
    run_each(
        &mut client,
        "INSERT INTO wrapped SELECT generate_series(1, 9); CREATE INDEX ON wrapped (a); VACUUM ANALYZE wrapped;
         SET modify_wrapper.scans = on; SET enable_bitmapscan = off",
    );
    let scans = [
        ("Seq Scan", "SELECT a FROM wrapped", Some("0")),
        (
            "Sample Scan",
            "SELECT a FROM wrapped TABLESAMPLE SYSTEM (100)",
            Some("0"),
        ),
        (
            "Tid Scan",
            "SET enable_seqscan = off; SELECT a FROM wrapped WHERE ctid = '(0,1)'",
            Some("0"),
        ),
        ("Index Only Scan", "SELECT a FROM wrapped WHERE a > 3", Some("0")),
        ("Index Scan", "SELECT a, ctid FROM wrapped WHERE a > 3", Some("0")),
        ("Function Scan", "SELECT a FROM generate_series(1, 3) a", None),
        ("Values Scan", "SELECT * FROM (VALUES (1), (2)) v", None),
    ];
    for (operation, statement, idle) in scans {
        for (hijack, runs, expected) in [("on", true, None), ("off", true, Some("1")), ("on", false, idle)] {
            let case = format!("{operation}, hijack {hijack}, runs {runs}");
            run_each(
                &mut client,
                &format!(
                    "SELECT rowsource_reset(); SET modify_wrapper.hijack = {hijack}; SET modify_wrapper.idle = {}",
                    !runs
                ),
            );
            run_each(&mut client, statement);
            run_each(&mut client, "SET modify_wrapper.idle = off");
            let nodes = texts(
                &mut client,
                "SELECT operation, starts, total_time IS NOT NULL FROM pg_stat_rowsource ORDER BY node_id",
            );
            let has_time = (expected == Some("1")).to_string()[..1].to_owned();
            let leaf = vec![
                Some(operation.to_owned()),
                expected.map(str::to_owned),
                Some(has_time),
            ];
            assert_eq!(nodes.len(), 2, "{case}: {nodes:?}");
            assert_eq!(nodes[1], leaf, "{case}");
        }
    }
    server.assert_no_crash();
}
