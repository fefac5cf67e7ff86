//! The store on a hot standby, in read-only transactions, in several databases with several encodings, and
//! while the extension is dropped and created again.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, info, kept, measure_all, measured, measuring, only_kept};
use rowsource_tests::waiting::until;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn a_hot_standby_keeps_its_own() {
    let primary = basic_server("primary", &["wal_level = 'replica'", "hot_standby = on"]);
    let mut client = primary.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 100) i; ANALYZE t",
    );
    measured(&mut client, "SELECT count(*), 'primary' FROM t");
    let mut standby = Server::standby_of(&primary, "standby");
    let mut client = standby.connect();
    assert!(value::<bool>(&mut client, "SELECT pg_is_in_recovery()"));
    until(&mut client, "SELECT to_regclass('t') IS NOT NULL");
    measured(&mut client, "SELECT count(*), 'standby' FROM t");
    assert_eq!(only_kept(&mut client, "%'standby'%").calls, 1);
    assert_eq!(kept(&mut client, "%'primary'%"), []);
    run_each(
        &mut client,
        "SELECT rowsource_display(); SELECT * FROM rowsource_misestimates; SELECT * FROM rowsource_plan_flips;
         SELECT * FROM rowsource_info(); SELECT * FROM pg_stat_rowsource_histogram",
    );
    let error = client
        .simple_query("SELECT rowsource_snapshot()")
        .expect_err("a standby cannot store a snapshot");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(
        error.message(),
        "rowsource_snapshot() cannot store a snapshot on a standby"
    );
    let hint = error.hint().unwrap_or_default();
    assert!(hint.starts_with("Call it on the primary"), "{hint}");
    run_each(&mut primary.connect(), "SELECT rowsource_snapshot()");
    drop(client);
    standby.stop();
    standby.launch();
    let mut client = standby.connect();
    assert_eq!(only_kept(&mut client, "%'standby'%").calls, 1);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!(info(&mut client, "plans"), 0);
    assert_eq!(only_kept(&mut primary.connect(), "%'primary'%").calls, 1);
    standby.assert_no_crash();
}

#[test]
fn read_only_transactions_are_measured() {
    let server = basic_server("read-only", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET default_transaction_read_only = on; SET default_transaction_isolation = 'serializable'; BEGIN",
    );
    measure_all(&mut client);
    run_each(
        &mut client,
        "SELECT count(*), 'read only' FROM pg_class; SELECT rowsource_display(); SELECT count(*) FROM pg_stat_rowsource;
         SET pg_rowsource.statistics_level = 'basic'; COMMIT",
    );
    assert_eq!(only_kept(&mut client, "%'read only'%").calls, 1);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!(info(&mut client, "plans"), 0);
}

#[test]
fn dropped_and_created_again_while_sessions_measure() {
    let server = basic_server("dropped", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 100) i; ANALYZE t",
    );
    let running = AtomicBool::new(true);
    let executions: i64 = std::thread::scope(|scope| {
        let runners: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = measuring(&server);
                    let mut executions = 0;
                    while running.load(Relaxed) {
                        run_each(&mut client, "SELECT count(*) FROM t");
                        executions += 1;
                    }
                    executions
                })
            })
            .collect();
        for _ in 0..20 {
            run_each(
                &mut client,
                "DROP EXTENSION pg_rowsource; CREATE EXTENSION pg_rowsource; SELECT count(*) FROM pg_stat_rowsource",
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        running.store(false, Relaxed);
        runners
            .into_iter()
            .map(|runner| runner.join().expect("a session"))
            .sum()
    });
    assert_eq!(only_kept(&mut client, "SELECT count(*) FROM t").calls, executions);
    server.assert_no_crash();
}

#[test]
fn databases_are_separate() {
    let server = basic_server("databases", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE DATABASE second");
    let mut second = server.try_connect_to("postgres", "second").expect("a session");
    run_each(&mut second, "CREATE EXTENSION pg_rowsource");
    // Both databases have the same system table, so the queryid and planid are equal.
    let statement = "SELECT count(*), 'both' FROM pg_class";
    measured(&mut client, statement);
    measured(&mut client, statement);
    measured(&mut second, statement);
    let plans = kept(&mut client, statement);
    assert_eq!(plans.len(), 2, "{plans:#?}");
    assert_eq!(
        (plans[0].queryid, plans[0].planid),
        (plans[1].queryid, plans[1].planid)
    );
    assert_eq!((plans[0].calls, plans[1].calls), (2, 1));
    // The plan of the session's own database comes first.
    for (client, calls) in [(&mut client, 2), (&mut second, 1)] {
        let shown = texts(
            client,
            &format!(
                "SELECT rowsource_display({}, {})",
                plans[0].queryid, plans[0].planid
            ),
        );
        let executions = format!("executions {calls} ");
        let lines = shown.iter().flatten().flatten();
        assert!(lines.clone().any(|line| line.contains(&executions)), "{shown:?}");
    }
    run_each(
        &mut client,
        "SELECT rowsource_reset(datid => (SELECT oid FROM pg_database WHERE datname = 'second'))",
    );
    assert_eq!(only_kept(&mut second, statement).calls, 2);
}

/// Runs a statement with a text and a table name that are not ASCII. Returns its display.
fn run_umlauts(client: &mut Client, word: &str) -> String {
    run_each(
        client,
        &format!("CREATE TABLE \"{word}\" AS SELECT 1 AS id; ANALYZE \"{word}\""),
    );
    measured(
        client,
        &format!("SELECT '{word}' FROM \"{word}\" WHERE id::text <> '{word}'"),
    );
    format!("{:?}", texts(client, "SELECT rowsource_display()"))
}

#[test]
fn databases_of_several_encodings() {
    let server = basic_server("encodings", &[]);
    let mut utf8 = server.connect();
    for encoding in ["LATIN1", "EUC_JP", "SQL_ASCII"] {
        run_each(
            &mut utf8,
            &format!("CREATE DATABASE {encoding} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"),
        );
    }
    let mut others: Vec<Client> = ["latin1", "euc_jp", "sql_ascii"]
        .map(|name| server.try_connect_to("postgres", name).expect("a session"))
        .into();
    for client in &mut others {
        run_each(client, "CREATE EXTENSION pg_rowsource");
    }
    let mut failures = Vec::new();
    let mut check = |what: &str, shown: String, word: &str| {
        if !shown.contains(word) {
            failures.push(format!("{what}: {shown}"));
        }
    };
    check("UTF8", run_umlauts(&mut utf8, "größer"), "größer");
    check("LATIN1", run_umlauts(&mut others[0], "größer"), "größer");
    check("EUC_JP", run_umlauts(&mut others[1], "日本"), "日本");
    check("UTF8", run_umlauts(&mut utf8, "日本"), "日本");
    let own: Vec<_> = kept(&mut others[0], "SELECT '%")
        .into_iter()
        .map(|plan| plan.query)
        .collect();
    check(
        "LATIN1 in its own database",
        format!("{own:?}"),
        "SELECT 'größer'",
    );
    // A word with other bytes in the database's encoding works like any other word.
    for (client, word) in others.iter_mut().zip(["größe", "日本"]) {
        let (_, message) = must_fail(client, &format!("SELECT rowsource_display(format => '{word}')"));
        check("an unknown word", message, "unknown word \"");
    }
    // A view never fails because of another database's text.
    let mut databases = vec![utf8];
    databases.append(&mut others);
    for client in &mut databases {
        let name: String = value(client, "SELECT current_database()::text");
        for view in [
            "pg_stat_rowsource",
            "pg_stat_rowsource_plans",
            "rowsource_misestimates",
        ] {
            if let Err(error) = client.simple_query(&format!("SELECT v::text FROM {view} v")) {
                failures.push(format!("{view} in {name}: {error:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
