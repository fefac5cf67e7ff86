//! The planner's rows, costs and widths that are shown are those of the executions that are shown, and not of
//! the one that was described. Rows of all executions are known, costs and widths only of the session's last
//! statement: else they are left out if they differ.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

const TABLE: &str = "
    CREATE EXTENSION pg_rowsource;
    CREATE TABLE cc AS SELECT i, i % 10 AS g, repeat('x', i % 7) AS t FROM generate_series(1, 100000) i;
    CREATE INDEX ON cc (i); VACUUM ANALYZE cc";

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["max_parallel_workers_per_gather = 0", "jit = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(&mut server.connect(), TABLE);
    server
}

fn lines(client: &mut Client, sql: &str) -> Vec<String> {
    texts(client, sql).into_iter().flatten().flatten().collect()
}

/// Returns what the planner expected, in lines of EXPLAIN: `(cost=... rows=... width=...)`.
fn expected(lines: &[String]) -> Vec<String> {
    let part = |line: &String| {
        let from = line.find("  (cost=").or_else(|| line.find("  (rows="))? + 2;
        let until = from + line[from..].find(')')? + 1;
        Some(line[from..until].to_owned())
    };
    lines.iter().filter_map(part).collect()
}

fn explain(client: &mut Client, sql: &str) -> Vec<String> {
    let lines = lines(client, &format!("EXPLAIN {sql}"));
    expected(&lines)
}

fn shown(client: &mut Client, arguments: &str) -> Vec<String> {
    let lines = lines(client, &format!("SELECT * FROM rowsource_explain({arguments})"));
    expected(&lines)
}

/// Returns a column of the session's display.
fn column(client: &mut Client, arguments: &str, heading: &str) -> Vec<String> {
    let lines = lines(client, &format!("SELECT rowsource_display({arguments})"));
    let cells = |line: &String| {
        line.split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = lines
        .iter()
        .filter(|line| line.starts_with('|'))
        .map(cells)
        .collect();
    let at = rows[0].iter().position(|cell| cell == heading);
    let at = at.unwrap_or_else(|| panic!("{heading}: {lines:#?}"));
    rows[1..].iter().map(|row| row[at].clone()).collect()
}

/// Fails unless the session's last statement is shown with what EXPLAIN expects of it.
fn assert_as_explained(client: &mut Client, sql: &str, what: &str) {
    run_each(client, sql);
    let shown_now = shown(client, "");
    let total = |text: &String| {
        let cost = text
            .split_once("..")
            .expect("costs")
            .1
            .split_once(' ')
            .expect("rows")
            .0;
        cost.parse::<f64>().expect("a number")
    };
    let costs: Vec<f64> = column(client, "format => 'ALLSTATS LAST +COST'", "Cost")
        .iter()
        .map(|cost| cost.parse().expect("a cost below 100,000"))
        .collect();
    let json: String = value(
        client,
        "SELECT jsonb_path_query_array(x::jsonb, 'strict $.**.\"Total Cost\"')::text FROM rowsource_explain(format => 'json') x",
    );
    let explained = explain(client, sql);
    assert_eq!(shown_now, explained, "{what}: {sql}");
    for (shown, explained) in costs.iter().zip(&explained) {
        assert!(
            (shown - total(explained)).abs() < 1.0,
            "{what}: {costs:?} {explained:?}"
        );
    }
    for explained in &explained {
        assert!(
            json.contains(&total(explained).to_string()),
            "{what}: {json} {explained}"
        );
    }
}

#[test]
fn the_last_statement_has_its_own() {
    let server = server("estimates-last", &[]);
    let mut client = server.connect();
    for keep in ["off", "on"] {
        run_each(
            &mut client,
            &format!(
                "SET pg_rowsource.keep_constants = {keep}; SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off"
            ),
        );
        for below in [10, 90_000, 50_000, 10] {
            let sql = format!("SELECT count(*) FROM cc WHERE i < {below}");
            assert_as_explained(&mut client, &sql, keep);
        }
    }
    // The table has grown, or only its statistics have changed.
    let sql = "SELECT g, max(t) FROM cc WHERE i < 90000 GROUP BY g ORDER BY g";
    assert_as_explained(&mut client, sql, "at first");
    run_each(
        &mut client,
        "INSERT INTO cc SELECT i, i % 20, 'a longer text' FROM generate_series(1, 50000) i",
    );
    assert_as_explained(&mut client, sql, "larger");
    run_each(&mut client, "ANALYZE cc");
    assert_as_explained(&mut client, sql, "analysed");

    // Two plans of one statement, which are not planned again.
    run_each(&mut client, "SET plan_cache_mode = force_generic_plan");
    let text = "AS SELECT count(*) FROM cc WHERE g < $1 AND i < 100";
    run_each(
        &mut client,
        &format!("PREPARE first(int) {text}; EXECUTE first(3)"),
    );
    let first = shown(&mut client, "");
    run_each(&mut client, "SET default_statistics_target = 10; ANALYZE cc");
    run_each(&mut client, "SET enable_hashagg = on; SET seq_page_cost = 2");
    run_each(
        &mut client,
        &format!("PREPARE second(int) {text}; EXECUTE second(3)"),
    );
    let second = shown(&mut client, "");
    assert_ne!(first, second);
    for (name, own) in [("second", &second), ("second", &second)] {
        run_each(&mut client, &format!("EXECUTE {name}(4)"));
        assert_eq!(shown(&mut client, ""), *own, "{name}");
    }
}

#[test]
fn other_executions_have_their_rows_and_no_costs_of_another() {
    let server = server(
        "estimates-stored",
        &[
            "pg_rowsource.keep_constants = off",
            "enable_indexscan = off",
            "enable_bitmapscan = off",
            "enable_indexonlyscan = off",
        ],
    );
    let mut client = server.connect();
    let mut other = server.connect();
    let statement = |below: i32| format!("SELECT count(*) FROM cc WHERE i < {below}");
    run_each(&mut client, &statement(10));
    let first = shown(&mut client, "");
    let ids: String = value(
        &mut client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    );
    for which in ["last", "mean", "total", "slowest"] {
        assert_eq!(
            shown(&mut other, &format!("{ids}, which => '{which}'")),
            first,
            "{which}"
        );
    }
    // It takes longer: more rows are counted.
    run_each(
        &mut client,
        &format!(
            "SELECT rowsource_reset(); {}; {}",
            statement(10),
            statement(90_000)
        ),
    );
    let explained = explain(&mut client, &statement(90_000));
    let rows = |of: &[String]| -> Vec<f64> {
        let number = |text: &String| {
            let digits = text.split_once("rows=").expect("rows").1;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().expect("a number")
        };
        of.iter().map(number).collect()
    };
    assert_eq!(shown(&mut client, ""), explained, "the session knows its own");
    let (few, many) = (rows(&first)[1], rows(&explained)[1]);
    for (which, expected) in [
        ("last", many),
        ("mean", (few + many) / 2.0),
        ("total", (few + many) / 2.0),
    ] {
        let shown = shown(&mut other, &format!("{ids}, which => '{which}'"));
        assert!(
            (rows(&shown)[1] - expected).abs() <= 1.0,
            "{which}: {shown:?}, not {expected}"
        );
        assert!(
            shown.iter().all(|text| !text.contains("cost=")),
            "{which}: {shown:?}"
        );
    }
    let slowest = shown(&mut other, &format!("{ids}, which => 'slowest'"));
    assert!(
        slowest == first || rows(&slowest)[1] == many && !slowest[1].contains("cost="),
        "{slowest:?}"
    );
    assert_eq!(
        column(
            &mut other,
            &format!("{ids}, format => 'ALLSTATS LAST +COST'"),
            "E-Rows"
        )[1],
        (many as i64).to_string()
    );
    let costs = lines(
        &mut other,
        &format!("SELECT rowsource_display({ids}, format => 'ALLSTATS LAST +COST')"),
    );
    let cost = first[1]
        .split_once("..")
        .expect("costs")
        .1
        .split_once('.')
        .expect("decimals")
        .0;
    assert!(
        costs.iter().all(|line| !line.contains(&format!("| {cost} "))),
        "{costs:#?}"
    );
    let fields: String = value(
        &mut other,
        &format!("SELECT x FROM rowsource_explain({ids}, format => 'json') x"),
    );
    assert!(
        fields.contains("\"Plan Rows\"") && !fields.contains("Total Cost"),
        "{fields}"
    );
}
