//! The calls of a statement's nodes, one by one: `rowsource_call_trace()`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::explain_json;
use rowsource_tests::session::{major, must_fail, must_time_out, run_each, texts, value};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE numbers AS SELECT i AS id, i % 10 AS part FROM generate_series(1, 1000) i;
         CREATE INDEX ON numbers (id); VACUUM ANALYZE numbers",
    );
    server
}

/// Runs statements that may have semicolons inside.
fn batch(client: &mut Client, statements: &str) {
    client.batch_execute(statements).expect(statements);
}

/// A line of a listing.
#[derive(Debug)]
struct Line {
    at_us: f64,
    depth: i32,
    event: String,
    node: Option<i32>,
    wait: Option<String>,
    elapsed_us: Option<f64>,
    rows: Option<i64>,
}

/// Returns the lines of a statement's listing, but not what was left out.
fn listing(client: &mut Client, statement: &str) -> Vec<Line> {
    let sql = "SELECT at_us, depth, event, node_id, wait_event, elapsed_us, rows FROM rowsource_call_trace($1, 100000)
                WHERE event <> 'OMITTED' ORDER BY seq";
    let rows = client.query(sql, &[&statement]).expect(statement);
    rows.iter()
        .map(|row| Line {
            at_us: row.get(0),
            depth: row.get(1),
            event: row.get(2),
            node: row.get(3),
            wait: row.get(4),
            elapsed_us: row.get(5),
            rows: row.get(6),
        })
        .collect()
}

/// Fails unless calls are nested, and times agree. Returns the number of calls that are in progress at the
/// end.
fn check_nesting(lines: &[Line]) {
    let mut open: Vec<&Line> = Vec::new();
    let mut before = 0.0;
    for line in lines {
        assert!(line.at_us >= before, "{line:?}: time runs backwards");
        before = line.at_us;
        match line.event.as_str() {
            "ENTER" => {
                assert_eq!(line.depth as usize, open.len(), "{line:?}");
                open.push(line);
            }
            "LEAVE" => {
                let entered = open.pop().expect("a call in progress");
                assert_eq!((line.depth, line.node), (entered.depth, entered.node), "{line:?}");
                let elapsed = line.elapsed_us.expect("a time");
                assert!((line.at_us - entered.at_us - elapsed).abs() < 0.01, "{line:?}");
                assert!(line.rows.is_some());
            }
            _ => {
                assert_eq!(line.depth as usize, open.len(), "{line:?}");
                assert_eq!(line.node, open.last().and_then(|call| call.node), "{line:?}");
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Returns how many rows each node returned per loop, rounded, and how many loops there were, as EXPLAIN
/// counts them.
fn rows_by_explain(client: &mut Client, statement: &str) -> Vec<(f64, f64)> {
    fn visit(node: &serde_json::Value, found: &mut Vec<(f64, f64)>) {
        let number = |key: &str| node[key].as_f64().expect("a number");
        found.push((number("Actual Rows"), number("Actual Loops")));
        let inputs = node["Plans"].as_array();
        inputs.into_iter().flatten().for_each(|node| visit(node, found));
    }
    let mut found = Vec::new();
    let plan = explain_json(client, statement, "ANALYZE, TIMING OFF, FORMAT JSON");
    visit(&plan[0]["Plan"], &mut found);
    found
}

#[test]
fn every_call_is_listed() {
    let server = server("call-trace");
    let mut client = server.connect();
    for statement in [
        "SELECT part, count(*) FROM numbers WHERE id < 100 GROUP BY part ORDER BY 2",
        "SELECT * FROM numbers a JOIN numbers b USING (id) WHERE a.part = 3",
        "SELECT id, (SELECT max(part) FROM numbers b WHERE b.id < a.id + 5 AND b.id > a.id) FROM numbers a LIMIT 20",
        "WITH x AS (UPDATE numbers SET part = part WHERE id < 10 RETURNING *) SELECT count(*) FROM x",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 50) SELECT * FROM r",
    ] {
        run_each(&mut client, "BEGIN");
        let expected = rows_by_explain(&mut client, statement);
        run_each(&mut client, "ROLLBACK; BEGIN");
        let lines = listing(&mut client, statement);
        run_each(&mut client, "ROLLBACK");
        check_nesting(&lines);
        let mut rows = vec![0; expected.len()];
        let mut called = vec![false; expected.len()];
        for line in lines.iter().filter(|line| line.event == "LEAVE") {
            let node = line.node.expect("a node") as usize;
            rows[node] += line.rows.expect("a number of rows");
            called[node] = true;
        }
        assert!(called[0] && rows[0] > 0, "{statement}: {rows:?}");
        for (node, (per_loop, loops)) in expected.into_iter().enumerate() {
            // Hash nodes are not called for rows.
            let difference = (rows[node] as f64 - per_loop * loops).abs();
            assert!(
                !called[node] || difference <= loops / 2.0,
                "{statement}: node {node}: {rows:?}, {per_loop} x {loops}"
            );
        }
    }
}

/// Waits are where they belong: in the node that waited.
#[test]
fn waits_are_listed_inside_their_calls() {
    let server = server("call-trace-waits");
    let mut client = server.connect();
    // A delay before a sleep begins to wait makes the wait shorter.
    let lines = listing(&mut client, "SELECT pg_sleep(0.1) FROM numbers LIMIT 3");
    check_nesting(&lines);
    let sleeps: Vec<&Line> = lines
        .iter()
        .filter(|line| line.wait.as_deref() == Some("PgSleep"))
        .collect();
    assert_eq!(sleeps.len(), 3, "{lines:#?}");
    for sleep in sleeps {
        assert!(sleep.elapsed_us.is_some_and(|us| us >= 20_000.0), "{sleep:?}");
        assert_eq!((sleep.depth, sleep.node), (2, Some(1)), "{sleep:?}");
    }
    // A function's statements are not listed, but their waits are those of the node that called it.
    batch(
        &mut client,
        "CREATE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
             BEGIN PERFORM pg_sleep(0.1) FROM numbers WHERE id = i; PERFORM 1 / (i - 2); EXCEPTION WHEN division_by_zero THEN NULL; END;
             RETURN i; END $$",
    );
    let lines = listing(&mut client, "SELECT slow(id) FROM numbers WHERE id < 4");
    check_nesting(&lines);
    let sleeps = lines
        .iter()
        .filter(|line| line.wait.as_deref() == Some("PgSleep") && line.elapsed_us > Some(9_000.0));
    assert!(
        sleeps.clone().count() == 3 && sleeps.into_iter().all(|sleep| sleep.node == Some(0)),
        "{lines:#?}"
    );
    run_each(&mut client, "SET pg_rowsource.wait_timing = off");
    assert!(
        listing(&mut client, "SELECT pg_sleep(0.01)")
            .iter()
            .all(|line| line.wait.is_none())
    );
}

/// Each read of a block is in the call that read it.
#[test]
fn reads_are_listed() {
    let mut server = server("call-trace-reads");
    // An I/O worker may have read the blocks before somebody waits for them.
    if major(&mut server.connect()) >= 18 {
        server.configure("io_method = sync");
    }
    server.stop();
    server.launch();
    let mut client = server.connect();
    let blocks: i64 = value(&mut client, "SELECT pg_relation_size('numbers') / 8192");
    run_each(&mut client, "EXPLAIN SELECT part FROM numbers");
    let lines = listing(&mut client, "SELECT part FROM numbers");
    check_nesting(&lines);
    let reads = lines.iter().filter(|line| {
        let is_read = line.wait.as_deref().is_some_and(|wait| wait == "DataFileRead");
        is_read && line.node == Some(0)
    });
    let reads = reads.count() as i64;
    // From 17 on, one read may be of several blocks.
    let expected = if major(&mut client) < 17 {
        blocks..=blocks
    } else {
        1..=blocks
    };
    assert!(
        expected.contains(&reads),
        "{reads} reads of {blocks} blocks: {lines:#?}"
    );
}

#[test]
fn the_listing_is_bounded_but_the_statement_ends() {
    let server = server("call-trace-bounded");
    let mut client = server.connect();
    let sql = "SELECT event, count(*)::text, max(line) FROM rowsource_call_trace('INSERT INTO numbers SELECT i, 0 FROM generate_series(2001, 2500) i', 4, keep => true)
                GROUP BY event ORDER BY event";
    let found = texts(&mut client, sql);
    let count = |row: usize| found[row][1].as_deref().unwrap_or_default().to_owned();
    assert_eq!(
        (count(0), count(1), count(2)),
        ("4".into(), "4".into(), "1".into()),
        "{found:?}"
    );
    let last = found[2][2].clone().unwrap_or_default();
    // The scan is called 501 times, the insert once.
    assert!(
        last.starts_with("498 more calls and ") && last.ends_with("because max_calls is 4"),
        "{last}"
    );
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM numbers WHERE id > 2000"),
        500
    );
    for (max_calls, expected) in [
        ("0", true),
        ("-1", true),
        ("2147483647", true),
        ("100001", true),
        ("100000", false),
    ] {
        let call = format!("SELECT count(*) FROM rowsource_call_trace('SELECT 1', {max_calls})");
        if expected {
            let (code, message) = must_fail(&mut client, &call);
            assert_eq!(code.code(), "22023");
            assert!(message.contains("must be between 1 and 100000"), "{message}");
        } else {
            assert_eq!(value::<i64>(&mut client, &call), 4);
        }
    }
    let (_, message) = must_fail(&mut client, "SELECT rowsource_call_trace('SELECT 1', 2147483648)");
    assert!(message.contains("does not exist"), "{message}");
    assert!(texts(&mut client, "SELECT * FROM rowsource_call_trace(NULL)").is_empty());
}

/// The user gets the error of the statement, and nothing of the trace remains.
#[test]
fn what_fails_is_the_statements_own_error() {
    let server = server("call-trace-errors");
    let mut client = server.connect();
    let utility = "cannot trace this: it is a utility statement";
    for (statement, code, expected) in [
        ("", "22023", "there is no statement"),
        ("-- nothing", "22023", "there is no statement"),
        ("SELECT 1; SELECT 2", "22023", "there are several statements"),
        ("EXPLAIN SELECT 1", "22023", utility),
        ("SELECT 1 INTO t UNION SELECT 2", "22023", utility),
        ("CREATE TABLE t AS SELECT 1", "22023", utility),
        ("COMMIT", "22023", utility),
        ("DECLARE c CURSOR FOR SELECT 1", "22023", utility),
        ("SELECT $1", "42P02", "there is no parameter $1"),
        ("SELEC 1", "42601", "syntax error"),
        ("SELECT * FROM nothing", "42P01", "does not exist"),
        ("SELECT 1 / (id - 5) FROM numbers", "22012", "division by zero"),
        (
            "SELECT * FROM rowsource_call_trace('SELECT 1')",
            "55006",
            "already traces a statement",
        ),
    ] {
        let (found, message) = must_fail(
            &mut client,
            &format!("SELECT rowsource_call_trace($x${statement}$x$)"),
        );
        assert_eq!(found.code(), code, "{statement}: {message}");
        assert!(message.contains(expected), "{statement}: {message}");
    }
    must_time_out(
        &mut client,
        200,
        "SELECT rowsource_call_trace('SELECT count(*) FROM numbers a, numbers b, numbers c')",
    );
    check_nesting(&listing(&mut client, "SELECT * FROM numbers"));
    // A function may catch the error, and trace again.
    batch(
        &mut client,
        "DO $$ BEGIN PERFORM rowsource_call_trace('SELECT 1 / (id - 5) FROM numbers'); EXCEPTION WHEN division_by_zero THEN
             PERFORM rowsource_call_trace('SELECT 1'); END $$",
    );
    // Other statements are measured as before.
    run_each(&mut client, "SELECT count(*) FROM numbers");
    assert_eq!(
        value::<String>(&mut client, "SELECT outcome FROM rowsource_last()"),
        "completed"
    );
    let shown = texts(&mut client, "SELECT rowsource_display()");
    assert!(
        shown
            .iter()
            .flatten()
            .flatten()
            .any(|line| line.contains("numbers")),
        "{shown:?}"
    );
}

#[test]
fn the_statement_runs_with_the_callers_rights() {
    let server = server("call-trace-rights");
    let mut client = server.connect();
    run_each(&mut client, "CREATE ROLE reader; SET ROLE reader");
    let (code, message) = must_fail(
        &mut client,
        "SELECT rowsource_call_trace('SELECT * FROM numbers')",
    );
    assert_eq!(code.code(), "42501", "{message}");
    check_nesting(&listing(&mut client, "SELECT 1"));
    run_each(
        &mut client,
        "RESET ROLE; GRANT SELECT ON numbers TO reader; SET ROLE reader",
    );
    check_nesting(&listing(&mut client, "SELECT * FROM numbers WHERE id < 10"));
    run_each(&mut client, "RESET ROLE; SET default_transaction_read_only = on");
    let (code, _) = must_fail(&mut client, "SELECT rowsource_call_trace('DELETE FROM numbers')");
    assert_eq!(code.code(), "25006");
}

/// What a statement changes is rolled back, also by functions, unless it shall be kept. A transaction goes on
/// either way.
#[test]
fn what_the_statement_changes_is_rolled_back() {
    let server = server("call-trace-rollback");
    let mut client = server.connect();
    let count = |client: &mut Client| value::<i64>(client, "SELECT count(*) FROM numbers");
    let lines = listing(&mut client, "DELETE FROM numbers");
    check_nesting(&lines);
    assert!(!lines.is_empty());
    assert_eq!(count(&mut client), 1000);
    batch(
        &mut client,
        "CREATE FUNCTION emptied() RETURNS int LANGUAGE plpgsql AS
         'BEGIN BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN DELETE FROM numbers; END; RETURN 1; END'",
    );
    assert!(!listing(&mut client, "SELECT emptied()").is_empty());
    batch(
        &mut client,
        "BEGIN; INSERT INTO numbers VALUES (1001, 1); CREATE TEMP TABLE mine (i int)",
    );
    assert!(!listing(&mut client, "DELETE FROM numbers").is_empty());
    batch(&mut client, "INSERT INTO mine VALUES (1); COMMIT");
    assert_eq!(count(&mut client), 1001);
    // An error in it leaves a session that goes on.
    must_fail(
        &mut client,
        "SELECT rowsource_call_trace('DELETE FROM numbers WHERE 1 / (id - 5) > 0')",
    );
    assert_eq!(count(&mut client), 1001);
    texts(
        &mut client,
        "SELECT rowsource_call_trace('DELETE FROM numbers WHERE id <= 10', keep => true)",
    );
    assert_eq!(count(&mut client), 991);
}

/// Of a parallel plan, it lists the calls of this process. Also if the statement is measured otherwise, a
/// rule makes two of it, or it is huge.
#[test]
fn plans_of_all_kinds_can_be_listed() {
    let server = server("call-trace-plans");
    let mut client = server.connect();
    let force = if major(&mut client) < 16 {
        "force_parallel_mode"
    } else {
        "debug_parallel_query"
    };
    run_each(
        &mut client,
        &format!(
            "SET pg_rowsource.track = 'all'; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             SET {force} = on"
        ),
    );
    for statement in [
        "SELECT count(*) FROM numbers a JOIN numbers b ON a.part = b.id",
        "SELECT * FROM numbers ORDER BY part",
        "SELECT 1",
    ] {
        let lines = listing(&mut client, statement);
        check_nesting(&lines);
        assert!(!lines.is_empty(), "{statement}");
    }
    run_each(
        &mut client,
        "CREATE TABLE log (id int); CREATE RULE logged AS ON INSERT TO numbers DO ALSO INSERT INTO log VALUES (new.id)",
    );
    let lines = listing(&mut client, "INSERT INTO numbers VALUES (5000, 1)");
    check_nesting(&lines);
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM log"), 0);
    assert!(
        lines
            .iter()
            .filter(|line| line.event == "ENTER" && line.node == Some(0))
            .count()
            >= 2,
        "{lines:#?}"
    );
    // 20 MB.
    let call =
        "SELECT count(*) FROM rowsource_call_trace('SELECT length(''' || repeat('x', 20000000) || ''')')";
    assert!(value::<i64>(&mut client, call) >= 2);
}
