//! Traces of other sessions: which sessions a target means, from when on, and until when.

use postgres::{Client, NoTls};
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::trace_file::{self, has_ended, until_ended};
use rowsource_tests::trace_target::{is_traced, lines, remove, server, target};
use rowsource_tests::waiting::{pid, until, until_waiting};

/// Opens a session with another application's name.
fn named(server: &Server, name: &str) -> Client {
    let mut client = server.connect();
    run_each(&mut client, &format!("SET application_name = '{name}'"));
    client
}

#[test]
fn another_session_is_traced_until_it_is_stopped() {
    let server = server("targets-pid", &[]);
    let (mut admin, mut session, mut other) = (server.connect(), server.connect(), server.connect());
    let id = pid(&mut session);
    assert!(!is_traced(&server, &mut session));
    let number = target(&mut admin, &format!("pid => {id}"));
    run_each(
        &mut session,
        "SELECT pg_sleep(0.001) AS first; SELECT pg_sleep(0.001)",
    );
    let found = lines(&server, id);
    for word in [
        "PARSE #", "PLAN #", "EXEC #", "FETCH #", "CLOSE #", "STAT #", "WAIT #", "XCTEND #",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(word)),
            "{word} in {found:#?}"
        );
    }
    assert!(found.iter().any(|line| line.ends_with("AS first")), "{found:#?}");
    assert!(!is_traced(&server, &mut other) && !is_traced(&server, &mut admin));
    let listed = "SELECT target::text, pid::text, with_waits::text, with_binds::text, set_by::text, sessions::text,
        (expires_at - set_at BETWEEN '9 minutes 59 seconds' AND '10 minutes')::text,
        num_nulls(application_name, usename, datname, client_addr, queryid)::text FROM rowsource_trace_targets";
    let (number_text, id_text) = (number.to_string(), id.to_string());
    let row = [
        &number_text,
        &id_text,
        "true",
        "false",
        "postgres",
        "1",
        "true",
        "5",
    ]
    .map(|text| Some(text.to_owned()));
    assert_eq!(texts(&mut admin, listed), [row]);
    remove(&mut admin, number);
    assert!(!is_traced(&server, &mut session));
    assert!(has_ended(&lines(&server, id)));
    assert!(texts(&mut admin, listed).is_empty());
    // The target goes with the session, so that another process with the same id is not traced.
    target(&mut admin, &format!("pid => {id}"));
    assert!(is_traced(&server, &mut session));
    value::<bool>(&mut admin, &format!("SELECT pg_terminate_backend({id})"));
    until(&mut admin, "SELECT count(*) = 0 FROM rowsource_trace_targets");
    until_ended(|| lines(&server, id));
    server.assert_no_crash();
}

/// Each condition means the sessions that have begun, and those that begin later.
#[test]
fn each_condition_must_hold() {
    // An address of its own, because other servers may have the same port.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{b}.{c}", a.saturating_add(1));
    let server = server(
        "targets-conditions",
        &[&format!("listen_addresses = '{address}'")],
    );
    let mut admin = server.connect();
    run_each(
        &mut admin,
        "CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b; GRANT regress_b TO regress_a; GRANT SELECT ON t TO regress_a, regress_b",
    );
    run_each(&mut admin, "CREATE DATABASE other TEMPLATE postgres");
    let user = || server.try_connect("regress_a").expect("a session");
    let elsewhere = || server.try_connect_to("postgres", "other").expect("a session");
    let over_ip = || {
        let mut config = postgres::Config::new();
        config.host(&address).user("postgres").dbname("postgres");
        config.connect(NoTls).expect("a session")
    };
    let plain = || server.connect();
    let shop = || named(&server, "shop");
    let none: &dyn Fn() -> Client = &plain;
    let both = || {
        let mut client = user();
        run_each(&mut client, "SET application_name = 'shop'");
        client
    };
    for (arguments, means, others) in [
        (
            "usename => 'regress_a'",
            &user as &dyn Fn() -> Client,
            vec![none, &shop],
        ),
        ("datname => 'other'", &elsewhere, vec![none, &user]),
        ("application_name => 'shop'", &shop, vec![none, &user]),
        ("client_addr => '127.0.0.1'", &over_ip, vec![none]),
        (
            "client_addr => '127.0.0.0/8', datname => 'postgres'",
            &over_ip,
            vec![none, &elsewhere],
        ),
        (
            "application_name => 'shop', usename => 'regress_a'",
            &both,
            vec![none, &shop, &user],
        ),
    ] {
        let mut before = means();
        let mut others_before: Vec<Client> = others.iter().map(|open| open()).collect();
        assert!(!is_traced(&server, &mut before), "{arguments}");
        let number = target(&mut admin, arguments);
        assert!(is_traced(&server, &mut before), "{arguments}");
        let mut after = means();
        assert!(is_traced(&server, &mut after), "{arguments}");
        let sessions = format!("SELECT sessions FROM rowsource_trace_targets WHERE target = {number}");
        assert_eq!(value::<i64>(&mut admin, &sessions), 2, "{arguments}");
        others_before.extend(others.iter().map(|open| open()));
        for other in &mut others_before {
            assert!(!is_traced(&server, other), "{arguments}");
        }
        drop(after);
        until(
            &mut admin,
            &format!("SELECT sessions = 1 FROM rowsource_trace_targets WHERE target = {number}"),
        );
        remove(&mut admin, number);
        assert!(!is_traced(&server, &mut before), "{arguments}");
    }
    // A session may fit later, and no longer.
    target(&mut admin, "application_name => 'shop'");
    target(
        &mut admin,
        "usename => 'regress_b', with_binds => true, with_waits => false",
    );
    let mut session = user();
    assert!(!is_traced(&server, &mut session));
    for (statement, fits) in [
        ("SET application_name = 'shop'", true),
        ("SET application_name = 'shop2'", false),
        ("SET ROLE regress_b", true),
        ("RESET ROLE", false),
    ] {
        run_each(&mut session, statement);
        assert_eq!(is_traced(&server, &mut session), fits, "{statement}");
    }
    run_each(&mut session, "BEGIN; SET LOCAL application_name = 'shop'");
    assert!(is_traced(&server, &mut session));
    run_each(&mut session, "ROLLBACK");
    assert!(!is_traced(&server, &mut session));
    let shown = texts(
        &mut admin,
        "SELECT application_name, usename::text, with_binds::text FROM rowsource_trace_targets ORDER BY target",
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        shown,
        [
            [some("shop"), None, some("false")],
            [None, some("regress_b"), some("true")]
        ]
    );
    assert_eq!(
        texts(&mut admin, "SELECT rowsource_trace_stop(all_targets => true)").len(),
        2
    );
    assert_eq!(
        value::<i64>(&mut admin, "SELECT count(*) FROM rowsource_trace_targets"),
        0
    );
    server.assert_no_crash();
}

#[test]
fn only_one_statement_is_traced() {
    let server = server("targets-queryid", &["pg_rowsource.track = 'all'"]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    run_each(
        &mut admin,
        "CREATE FUNCTION called(i int) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) AS inner_one FROM t WHERE id = i); END';
         CREATE FUNCTION caller() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM t WHERE called(id) > 5); END'",
    );
    let wanted = "SELECT called(1) AS wanted";
    run_each(&mut admin, "SET pg_rowsource.statistics_level = typical");
    run_each(&mut admin, wanted);
    let queryid: i64 = value(
        &mut admin,
        "SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT called%wanted' AND toplevel",
    );
    run_each(&mut session, "SELECT 1 AS before");
    let number = target(
        &mut admin,
        &format!("queryid => {queryid}, datname => 'postgres'"),
    );
    run_each(&mut session, "SELECT 2 AS other");
    assert!(lines(&server, id).is_empty(), "nothing of other statements");
    run_each(
        &mut session,
        "SELECT called(5) AS wanted; SELECT 3 AS after; BEGIN; SELECT 4 AS within; COMMIT; SELECT pg_sleep(0.01)",
    );
    let _ = must_fail(&mut session, "SELECT 1 / 0 AS failing");
    run_each(&mut session, wanted);
    remove(&mut admin, number);
    run_each(&mut session, "SELECT 5 AS last");
    let found = lines(&server, id);
    let count = |word: &str| found.iter().filter(|line| line.starts_with(word)).count();
    let described: Vec<&String> = found
        .iter()
        .filter(|line| line.starts_with("PARSING IN CURSOR"))
        .collect();
    assert!(
        described.len() == 2 && described[0].contains("AS wanted") && described[1].contains("AS inner_one"),
        "{described:#?}"
    );
    // Two executions, and in each the statement that it calls.
    assert_eq!(
        ["EXEC #", "CLOSE #", "XCTEND #", "ERROR #", "WAIT #"].map(count),
        [4, 4, 2, 0, 0],
        "{found:#?}"
    );
    let parsed: Vec<&String> = found.iter().filter(|line| line.starts_with("PARSE #")).collect();
    assert_eq!(parsed.len(), 3, "{found:#?}");
    // What the session did before, which was not written, is not theirs.
    for line in parsed {
        assert!(
            trace_file::number(line, "cr") == 0 && trace_file::field(line, "e").is_none(),
            "{line}"
        );
    }
    // After its Parse, the session did nothing else.
    let alone = |found: &[String]| -> Vec<String> {
        let alone = found.iter().filter(|line| line.contains(",alone=1,"));
        alone
            .map(|line| line[..line.find(' ').expect("a word")].to_owned())
            .collect()
    };
    assert_eq!(alone(&found), Vec::<String>::new(), "{found:#?}");
    assert!(has_ended(&found));
    // A nested statement.
    let nested: i64 = value(
        &mut admin,
        "SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE '%inner_one%' AND NOT toplevel",
    );
    target(&mut admin, &format!("queryid => {nested}, with_waits => false"));
    run_each(&mut session, "SELECT called(7) AS outside");
    remove(&mut admin, number + 1);
    run_each(&mut session, "SELECT 1");
    let found = lines(&server, id)[found.len()..].to_vec();
    let executed: Vec<&String> = found.iter().filter(|line| line.starts_with("EXEC #")).collect();
    assert!(
        executed.len() == 1 && found.iter().all(|line| !line.contains("outside")),
        "{found:#?}"
    );
    // The statement that called it is not written, but it is nested all the same.
    for word in ["PLAN #", "EXEC #", "FETCH #", "CLOSE #", "STAT #"] {
        let mut of_word = found.iter().filter(|line| line.starts_with(word)).peekable();
        assert!(
            of_word.peek().is_some() && of_word.all(|line| line.contains("dep=1")),
            "{found:#?}"
        );
    }
    assert!(alone(&found).contains(&"PLAN".to_owned()), "{found:#?}");
    server.assert_no_crash();
}

#[test]
fn a_target_expires() {
    let server = server("targets-expiry", &[]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    target(&mut admin, &format!("pid => {id}, expires_after => '1 second'"));
    // In the middle of a procedure, too.
    run_each(
        &mut session,
        "DO 'DECLARE ended timestamptz := clock_timestamp() + interval ''1.2 seconds''; n int;
             BEGIN WHILE clock_timestamp() < ended LOOP SELECT count(*) INTO n FROM t; END LOOP; END'",
    );
    let found = lines(&server, id);
    assert!(
        found.iter().filter(|line| line.starts_with("EXEC #")).count() > 1,
        "{found:#?}"
    );
    assert!(has_ended(&found), "{:?}", found.last());
    assert!(!is_traced(&server, &mut session));
    assert!(texts(&mut admin, "SELECT * FROM rowsource_trace_targets").is_empty());
    // The session's own trace goes on.
    let file: String = value(&mut session, "SELECT rowsource_trace_start(with_waits => false)");
    let number = target(&mut admin, &format!("pid => {id}"));
    assert!(is_traced(&server, &mut session));
    remove(&mut admin, number);
    assert!(is_traced(&server, &mut session));
    // And a target goes on when that ends.
    let number = target(&mut admin, &format!("pid => {id}"));
    assert!(is_traced(&server, &mut session));
    assert_eq!(
        value::<String>(&mut session, "SELECT rowsource_trace_stop()"),
        file
    );
    assert!(is_traced(&server, &mut session));
    assert!(texts(&mut session, "SELECT rowsource_trace_stop()").is_empty());
    remove(&mut admin, number);
    assert!(!is_traced(&server, &mut session));
    server.assert_no_crash();
}

/// A procedure that runs already is traced from its next statement on.
#[test]
fn a_running_procedure_is_traced() {
    let server = server("targets-running", &[]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    run_each(&mut admin, "SELECT pg_advisory_lock(1)");
    let running = std::thread::spawn(move || {
        run_each(
            &mut session,
            "DO 'DECLARE n int; BEGIN PERFORM pg_advisory_lock(1); SELECT count(*) AS late INTO n FROM t; END'; SELECT 1 AS next",
        );
    });
    until_waiting(&mut admin, id, "advisory");
    target(&mut admin, &format!("pid => {id}"));
    run_each(&mut admin, "SELECT pg_advisory_unlock(1)");
    running.join().expect("the session");
    let found = lines(&server, id);
    for text in ["AS late", "AS next"] {
        assert!(
            found.iter().any(|line| line.contains(text)),
            "{text} in {found:#?}"
        );
    }
    server.assert_no_crash();
}

#[test]
fn values_are_listed_only_on_request() {
    let server = server("targets-binds", &[]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    let statement = session
        .prepare("SELECT v FROM t WHERE id = $1")
        .expect("it is parsed");
    for (binds, count) in [(false, 0), (true, 1)] {
        let number = target(&mut admin, &format!("pid => {id}, with_binds => {binds}"));
        // A prepared statement is not parsed, so it begins when the executor starts.
        session.query(&statement, &[&5]).expect("it runs");
        remove(&mut admin, number);
        let found = lines(&server, id);
        assert_eq!(
            found.iter().filter(|line| line.starts_with("BIND #")).count(),
            count,
            "{found:#?}"
        );
        assert_eq!(found.iter().any(|line| line.ends_with("value=5")), binds);
        session.query(&statement, &[&6]).expect("it runs");
    }
}

/// A pooler changes the role or the application's name for each client.
#[test]
fn a_session_that_changes_its_role_keeps_its_file() {
    let server = server("targets-toggle", &[]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    run_each(
        &mut admin,
        "CREATE ROLE regress_web; GRANT SELECT ON t TO regress_web",
    );
    let number = target(&mut admin, "usename => 'regress_web', with_waits => true");
    // It sleeps, and gets a block 500 times.
    let outside = "SELECT pg_sleep(0.001) AS outside, count((SELECT count(*) FROM t WHERE id > i)) FROM generate_series(1, 500) i";
    for i in 1..=5 {
        run_each(&mut session, outside);
        run_each(
            &mut session,
            &format!("BEGIN; SET LOCAL ROLE regress_web; SELECT {i} AS inside, count(*) FROM t; COMMIT"),
        );
    }
    run_each(&mut session, outside);
    let files = format!("SELECT count(*) FROM rowsource_trace_files WHERE pid = {id}");
    assert_eq!(value::<i64>(&mut admin, &files), 1);
    remove(&mut admin, number);
    run_each(&mut session, outside);
    let found = lines(&server, id);
    let count = |word: &str| found.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!(count("TRACE #0"), 1, "{found:#?}");
    assert_eq!(count("XCTEND #"), 5, "{found:#?}");
    for line in &found {
        assert!(
            !line.contains("outside") && !line.contains("PgSleep"),
            "{found:#?}"
        );
        assert!(
            !line.starts_with("PARSE #") || trace_file::number(line, "cr") == 0,
            "{found:#?}"
        );
    }
    // The statement and COMMIT, each with its one execution.
    assert_eq!(count("EXEC #"), 10, "{found:#?}");
    assert!(has_ended(&found));
}

/// What a trace contains changes at once, also inside a call.
#[test]
fn a_function_may_keep_its_values_out() {
    let server = server("targets-function", &[]);
    let mut session = server.connect();
    let id = pid(&mut session);
    run_each(
        &mut session,
        "SELECT rowsource_trace_start(with_waits => true, with_binds => true)",
    );
    for (name, set) in [("open", ""), ("closed", "SET pg_rowsource.trace = 'statements'")] {
        run_each(
            &mut session,
            &format!(
                "CREATE FUNCTION {name}(wanted int) RETURNS bigint LANGUAGE plpgsql {set} AS
                 'BEGIN PERFORM pg_sleep(0.001); RETURN (SELECT count(*) FROM t WHERE id = wanted); END'"
            ),
        );
        let before = lines(&server, id).len();
        run_each(&mut session, &format!("SELECT {name}(424242)"));
        let found = lines(&server, id)[before..].to_vec();
        let count = |word: &str| found.iter().filter(|line| line.starts_with(word)).count();
        let expected = if set.is_empty() { (1, true) } else { (0, false) };
        let slept = found
            .iter()
            .any(|line| line.starts_with("WAIT #") && line.contains("PgSleep"));
        assert_eq!((count("VALUE #"), slept), expected, "{name}: {found:#?}");
    }
}
