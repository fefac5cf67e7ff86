//! What a session does for its client between the calls of the planner and the executor: it parses
//! statements, binds values, ends transactions, and waits.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::trace_file::{columns, number, of, of_cursor, section, start, stopped, tkprof};
use rowsource_tests::waiting::{hold, pid, until_waiting};
use std::time::Duration;

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["jit = off", "autovacuum = off"]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 1000) i;
         ALTER TABLE t ADD PRIMARY KEY (id); VACUUM ANALYZE t",
    );
    server
}

/// Returns the seconds of a column of a call.
fn seconds(part: &[String], call: &str, column: usize) -> f64 {
    columns(part, call)[column].parse().expect("seconds")
}

/// Returns the seconds of the report's last lines: in all, in calls, in waits between them, and the rest.
fn summary(report: &[String]) -> Vec<f64> {
    let lines = report
        .iter()
        .skip_while(|line| *line != "Elapsed time of the trace, in seconds:");
    let seconds = lines
        .skip(1)
        .map_while(|line| line.split_whitespace().next()?.parse().ok());
    seconds.collect()
}

/// Returns how often and how long a statement waited for a lock of a relation, and what the other statement
/// did.
fn locked(report: &[String], waiting: &str, harmless: &str) -> (f64, f64) {
    let waited = section(report, waiting);
    let line = waited
        .iter()
        .find(|line| line.contains("Lock relation"))
        .unwrap_or_else(|| panic!("no wait in {waited:#?}"));
    let columns: Vec<&str> = line.split_whitespace().collect();
    let other = section(report, harmless).join("\n");
    assert!(!other.contains("Lock relation"), "{other}");
    (
        columns[2].parse().expect("times"),
        columns[4].parse().expect("seconds"),
    )
}

/// A statement waits for the lock of its table while it is parsed, before the trace knows which statement it
/// is. A prepared one waits while it is bound.
#[test]
fn a_wait_for_a_lock_is_that_of_the_statement_that_waits() {
    let server = server("trace-between-lock");
    let (mut holder, mut client) = (server.connect(), server.connect());
    let prepared = client
        .prepare("SELECT v, 'prepared' FROM t WHERE id = $1")
        .expect("it is parsed");
    client.query(&prepared, &[&1]).expect("it runs");
    start(&mut client, "");
    run_each(&mut client, "SELECT 'harmless'");
    let held = Duration::from_millis(300);
    let locks = [
        "BEGIN; LOCK TABLE t",
        "SELECT count(*) FROM t WHERE id = 4",
        "relation",
    ];
    let (mut client, of_simple) = hold(&mut holder, client, locks, held);
    run_each(&mut client, "SELECT 'harmless'");
    run_each(&mut holder, "BEGIN; LOCK TABLE t");
    let id = pid(&mut client);
    let session = std::thread::spawn(move || {
        client.query(&prepared, &[&5]).expect("it waits");
        client
    });
    until_waiting(&mut holder, id, "relation");
    std::thread::sleep(held);
    run_each(&mut holder, "COMMIT");
    let mut client = session.join().expect("the session");
    let lines = stopped(&server, &mut client);
    let report = tkprof(&mut client, "");
    for (text, call, least) in [
        ("SELECT count(*) FROM t WHERE id = 4", "Parse ", of_simple.least),
        ("SELECT v, 'prepared'", "Bind ", held),
    ] {
        let (times, waited) = locked(&report, text, "SELECT 'harmless'");
        let elapsed = seconds(&section(&report, text), call, 3);
        println!("{text}: {times} waits, {waited} s, {call} {elapsed} s");
        assert_eq!(times, 1.0, "{lines:#?}");
        assert!(waited >= 0.9 * least.as_secs_f64(), "{waited} of {least:?}");
        assert!(
            elapsed >= waited - 1e-5,
            "{elapsed} s, {waited} s of them are waits"
        );
    }
    // The parts are all of it, and no more.
    let [all, calls, between, rest] = summary(&report)[..] else {
        panic!("{:?}", summary(&report));
    };
    assert!(calls >= 2.0 * 0.9 * held.as_secs_f64(), "{calls}");
    assert!(
        (calls + between + rest - all).abs() < 1e-5,
        "{:?}",
        summary(&report)
    );
    server.assert_no_crash();
}

/// What a commit does is a call of its own, and not a part of the next statement.
#[test]
fn a_commit_has_its_own_figures() {
    let server = server("trace-between-commit");
    let mut client = server.connect();
    start(&mut client, "");
    run_each(
        &mut client,
        "BEGIN; CREATE TEMP TABLE tt (a int PRIMARY KEY, b text) ON COMMIT DROP; COMMIT WORK; SELECT 'innocent'",
    );
    let lines = stopped(&server, &mut client);
    let parsed = number(of_cursor(&lines, "PARSE", "SELECT 'innocent'")[0], "cr");
    let committed: i64 = of_cursor(&lines, "XCTEND", "COMMIT WORK")
        .iter()
        .map(|line| number(line, "cr"))
        .sum();
    assert!(parsed <= 5 && committed > 100, "{parsed} {committed}\n{lines:#?}");
    let part = section(&tkprof(&mut client, "sort => 'cmtqry'"), "COMMIT WORK");
    assert_eq!(columns(&part, "Commit ")[1], "1", "{part:#?}");
    assert_eq!(columns(&part, "Commit ")[5], committed.to_string(), "{part:#?}");
    server.assert_no_crash();
}

/// Deferred triggers run when the transaction ends. Their statements are nested in that.
#[test]
fn statements_of_deferred_triggers_are_recursive() {
    let server = server("trace-between-deferred");
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE TABLE d (id int);
             CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()",
        )
        .expect("a trigger");
    start(&mut client, "");
    run_each(
        &mut client,
        "INSERT INTO d VALUES (1); BEGIN; INSERT INTO d VALUES (1); COMMIT",
    );
    let lines = stopped(&server, &mut client);
    for word in ["PARSE", "PLAN", "EXEC", "FETCH", "CLOSE"] {
        for line in of_cursor(&lines, word, "SELECT pg_sleep(0.1)") {
            assert_eq!(number(line, "dep"), 1, "{line}");
        }
    }
    assert!(
        of_cursor(&lines, "STAT", "SELECT pg_sleep(0.1)")
            .iter()
            .all(|line| number(line, "dep") == 1)
    );
    let report = tkprof(&mut client, "");
    let slept = section(&report, "SELECT pg_sleep(0.1)");
    assert!(
        slept.iter().any(|line| line.contains("(recursive depth: 1)")),
        "{slept:#?}"
    );
    assert_eq!(columns(&slept, "Fetch ")[1], "2", "{slept:#?}");
    // Each transaction ends after its sleep: the first with the INSERT, the second with the COMMIT.
    for text in ["INSERT INTO d", "COMMIT"] {
        let part = section(&report, text);
        assert!(seconds(&part, "Commit ", 3) > 0.09, "{part:#?}");
    }
    server.assert_no_crash();
}

/// A cursor that another statement closes than the one that opened it is one execution.
#[test]
fn a_cursor_that_its_transaction_closes_is_in_one_place() {
    let server = server("trace-between-cursor");
    let mut client = server.connect();
    start(&mut client, "");
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT id, 'c' FROM t; FETCH 3 FROM c; COMMIT WORK",
    );
    stopped(&server, &mut client);
    let report = tkprof(&mut client, "");
    // The end of the transaction is that of the statement that ended it.
    assert_eq!(columns(&section(&report, "COMMIT WORK"), "Commit ")[1], "1");
    let parts: Vec<_> = report
        .split(|line| line.starts_with("****"))
        .filter(|part| {
            part.iter()
                .any(|line| line.contains("Seq Scan on t") || line.contains("Close          1"))
        })
        .collect();
    let with_nodes: Vec<_> = parts
        .iter()
        .filter(|part| part.iter().any(|line| line.contains("Seq Scan on t")))
        .collect();
    let [part] = with_nodes[..] else {
        panic!("{with_nodes:#?}");
    };
    for (call, count) in [("Execute ", "1"), ("Fetch ", "1"), ("Close ", "1")] {
        assert_eq!(columns(part, call)[1], count, "{part:#?}");
    }
    assert!(
        part.iter().any(|line| line == "Executions by elapsed time:"),
        "{part:#?}"
    );
    server.assert_no_crash();
}

/// A statement that fails before its first call is in the report with its text.
#[test]
fn statements_that_fail_while_they_are_parsed_are_listed() {
    let server = server("trace-between-failed");
    let mut client = server.connect();
    let prepared = client
        .prepare("SELECT v FROM t WHERE id = $1 + 0")
        .expect("it is parsed");
    start(&mut client, "");
    let fail = |client: &mut Client, sql: &str| {
        client.simple_query(sql).expect_err(sql);
    };
    fail(&mut client, "SELEC 'misspelt'");
    fail(&mut client, "SELECT * FROM missing");
    fail(&mut client, "SELECT * FROM missing");
    client.query(&prepared, &[&1]).expect("it runs");
    let lines = stopped(&server, &mut client);
    let failed = of(&lines, "PARSE ERROR");
    assert_eq!(failed.len(), 3, "{lines:#?}");
    assert!(failed[1].ends_with("sql=SELECT * FROM missing"), "{failed:?}");
    // Nor is the end of their transactions that of the statement before.
    for line in of(&lines, "XCTEND").iter().filter(|line| line.contains("rlbk=1")) {
        assert!(line.starts_with("XCTEND #0:"), "{line}");
    }
    let report = tkprof(&mut client, "").join("\n");
    for line in [
        "42601, 1 times",
        "42P01, 2 times",
        "SELEC 'misspelt'",
        "SELECT * FROM missing",
    ] {
        assert!(report.contains(line), "{line} in\n{report}");
    }
    server.assert_no_crash();
}

/// The report of a session that runs a statement counts that one as not ended.
#[test]
fn a_running_statement_is_not_lost() {
    let server = server("trace-between-running");
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    run_each(&mut observer, "SELECT pg_advisory_lock(1)");
    start(&mut client, "");
    let session = std::thread::spawn(move || {
        run_each(
            &mut client,
            "DO 'DECLARE n int; BEGIN FOR i IN 1..3000 LOOP SELECT v INTO n FROM t WHERE id = 1 + i % 900; END LOOP; PERFORM pg_advisory_lock(1); END'",
        );
    });
    until_waiting(&mut observer, id, "advisory");
    let report = tkprof(&mut observer, &format!("pid => {id}"));
    let unended = report
        .iter()
        .find(|line| line.ends_with("in a call that had not ended when the file ended"))
        .unwrap_or_else(|| panic!("{report:#?}"));
    let unended: f64 = unended
        .split_whitespace()
        .next()
        .and_then(|s| s.parse().ok())
        .expect("seconds");
    let calls: f64 = section(&report, "SELECT v")
        .iter()
        .find(|line| line.starts_with("total "))
        .and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
        .expect("seconds");
    assert!(
        unended >= calls && calls > 0.0,
        "{unended} s, {calls} s in nested calls"
    );
    run_each(&mut observer, "SELECT pg_advisory_unlock(1)");
    session.join().expect("the session");
    let ended: i64 = value(
        &mut observer,
        &format!("SELECT count(*) FROM rowsource_tkprof(pid => {id}) line WHERE line LIKE '%had not ended%'"),
    );
    assert_eq!(ended, 0);
    server.assert_no_crash();
}
