//! What is left of a function for EXPLAIN of another extension that may run, and fails. The other extension
//! is a small one in C, `explain_probe`.

use postgres::error::SqlState;
use rowsource_tests::compiled::object;
use rowsource_tests::explain::first_column;
use rowsource_tests::explain_probe::{OPERATIONS, allow, assert_commits, calls, count, probed, session};
use rowsource_tests::session::{must_fail, must_time_out, run_each, texts, value};

/// A superuser allows the functions. What they do to the result is theirs, but their errors are not the
/// statement's.
#[test]
fn an_allowed_function_that_fails_leaves_nothing() {
    let server = probed("foreign-allowed");
    let mut client = session(&server, "none");
    allow(&mut client);
    assert_eq!(value::<i64>(&mut client, &count(1)), 3);
    assert_eq!(calls(&mut client), 1, "it is called");
    let actions = ["error", "remote_cancel", "remote_shutdown", "state", "lock"];
    for (number, action) in (2..).zip(actions) {
        let mut client = session(&server, action);
        allow(&mut client);
        server.clear_log();
        assert_eq!(value::<i64>(&mut client, &count(number)), 3, "{action}");
        assert_eq!(calls(&mut client), 1, "{action}");
        assert_commits(&server, &mut client, number, action);
        // The same in a transaction, and in a function that uses SPI itself.
        run_each(
            &mut client,
            "BEGIN; INSERT INTO kept VALUES ('before'); SET LOCAL pg_rowsource.track = 'all'",
        );
        let block = format!(
            "DO $$DECLARE n int; BEGIN EXECUTE '{}' INTO n; IF n <> 3 THEN RAISE 'rows: %', n; END IF;
                 EXECUTE '{}' INTO n; IF current_setting('work_mem') = '12MB' THEN RAISE 'a setting is left'; END IF;
                 IF current_user <> session_user THEN RAISE 'a user is left'; END IF; END$$",
            count(number + 20),
            count(number + 40),
        );
        client
            .batch_execute(&block)
            .unwrap_or_else(|error| panic!("{action}: {error:?}"));
        // The locks of the statements themselves are held until the transaction ends.
        let locked = texts(
            &mut client,
            "SELECT relation::regclass, mode FROM pg_locks WHERE pid = pg_backend_pid()
             AND (locktype = 'relation' AND mode = 'ExclusiveLock' OR relation = 'effects'::regclass)",
        );
        assert_eq!(locked, Vec::<Vec<_>>::new(), "{action}");
        run_each(
            &mut client,
            "SELECT 1 FROM kept; INSERT INTO kept VALUES ('after'); COMMIT; DELETE FROM kept WHERE t IN ('before', 'after')",
        );
        assert_eq!(calls(&mut client), 3, "{action}");
        let log = server.log();
        assert!(
            !log.contains("WARNING") && !log.contains("ERROR"),
            "{action}: {log}"
        );
    }
    server.assert_no_crash();
}

/// What a failed function has written, and a subtransaction, a cursor or a connection of SPI that it leaves
/// open, are taken away only with the transaction. So the user gets the error, once, and what is reported as
/// committed is committed.
#[test]
fn what_cannot_be_undone_fails_the_statement() {
    let server = probed("foreign-raised");
    let cases = [
        ("subxact SELECT 1/0", SqlState::DIVISION_BY_ZERO),
        ("portal", SqlState::INTERNAL_ERROR),
        ("cursor", SqlState::INTERNAL_ERROR),
        ("spi SELECT 1/0", SqlState::DIVISION_BY_ZERO),
        (
            "spi INSERT INTO effects SELECT 1/(2-i) FROM generate_series(1, 3) i",
            SqlState::DIVISION_BY_ZERO,
        ),
    ];
    for (number, (action, expected)) in (1..).zip(cases) {
        let mut client = session(&server, action);
        allow(&mut client);
        let (code, message) = must_fail(&mut client, &count(number));
        assert_eq!(code, expected, "{action}: {message}");
        assert_commits(&server, &mut client, number, action);
        assert_eq!(
            value::<i64>(&mut client, &count(number)),
            3,
            "{action}: the second time"
        );
        // The trace of a statement's calls describes it each time.
        for time in 1..=2 {
            let traced = format!(
                "SELECT count(*) FROM rowsource_call_trace('{}')",
                count(number + 60)
            );
            let (code, message) = must_fail(&mut client, &traced);
            assert_eq!(code, expected, "{action}, traced: {message}");
            assert_commits(&server, &mut client, 100 * number + time, action);
        }
        // In a transaction, and in a subtransaction, which ends with the error.
        run_each(&mut client, "BEGIN; INSERT INTO kept VALUES ('lost')");
        must_fail(&mut client, &count(number + 20));
        let (code, message) = must_fail(&mut client, "SELECT 1");
        assert_eq!(code, SqlState::IN_FAILED_SQL_TRANSACTION, "{action}: {message}");
        run_each(
            &mut client,
            &format!(
                "ROLLBACK; BEGIN; INSERT INTO kept VALUES ('before'); SAVEPOINT s; SET LOCAL explain_probe.action = '{}'",
                action
            ),
        );
        must_fail(&mut client, &count(number + 40));
        run_each(
            &mut client,
            "ROLLBACK TO s; INSERT INTO kept VALUES ('after'); COMMIT",
        );
        let kept: i64 = value(
            &mut server.connect(),
            "SELECT count(*) FROM kept WHERE t IN ('before', 'after', 'lost')",
        );
        assert_eq!(kept, 2, "{action}");
        run_each(&mut client, "DELETE FROM kept WHERE t IN ('before', 'after')");
    }
    server.assert_no_crash();
}

/// A deferred trigger fires when no portal runs any more, but the cursors of functions are there.
#[test]
fn a_cursor_that_is_left_when_no_portal_runs_fails_the_statement() {
    let server = probed("foreign-portals");
    let mut client = session(&server, "cursor");
    allow(&mut client);
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    client
        .batch_execute(&format!(
            "CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE '{}'; RETURN NULL; END$$;
             CREATE CONSTRAINT TRIGGER later AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION later()",
            count(1)
        ))
        .expect("the trigger");
    let (code, message) = must_fail(&mut client, "INSERT INTO effects VALUES ('lost')");
    assert_eq!(code, SqlState::INTERNAL_ERROR, "{message}");
    assert!(message.contains("only a cursor"), "{message}");
    assert_commits(&server, &mut client, 1, "cursor");
    let cursors: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_cursors WHERE name = 'explain_probe'",
    );
    assert_eq!(cursors, 0);
    run_each(&mut client, "INSERT INTO effects VALUES ('kept')");
    let effects: i64 = value(&mut server.connect(), "SELECT count(*) FROM effects");
    assert_eq!(effects, 1, "the second time");
    server.assert_no_crash();
}

/// What is written to a temporary or unlogged table is in no WAL.
#[test]
fn what_is_written_without_wal_fails_the_statement() {
    let server = probed("foreign-unlogged");
    run_each(&mut server.session(), "CREATE UNLOGGED TABLE unlogged (a int)");
    for (number, table) in [(1, "own"), (2, "unlogged")] {
        let mut client = session(&server, "none");
        allow(&mut client);
        run_each(
            &mut client,
            &format!(
                "CREATE TEMPORARY TABLE own (a int); SET explain_probe.action = 'wrote INSERT INTO {table} VALUES (1)'"
            ),
        );
        let (_, message) = must_fail(&mut client, &count(number));
        assert!(message.contains("failed after it wrote"), "{table}: {message}");
        assert_eq!(
            value::<i64>(&mut client, &format!("SELECT count(*) FROM {table}")),
            0
        );
        assert_commits(&server, &mut client, number, table);
    }
    server.assert_no_crash();
}

/// The session's own cancel ends the statement, but only the first time in all sessions.
#[test]
fn a_cancelled_description_is_not_tried_again() {
    let server = probed("foreign-cancelled");
    for (number, action) in [(1, "sleep"), (2, "deaf")] {
        let mut client = session(&server, action);
        allow(&mut client);
        run_each(&mut client, "SET pg_rowsource.keep_constants = off");
        must_time_out(&mut client, 1000, &count(number));
        assert_eq!(calls(&mut client), 1, "{action}: it was called before the end");
        assert_eq!(value::<i64>(&mut client, &count(number)), 3, "{action}");
        assert_eq!(calls(&mut client), 1, "{action}");
        assert_commits(&server, &mut client, number, action);
        let mut other = session(&server, action);
        allow(&mut other);
        run_each(&mut other, "SET pg_rowsource.keep_constants = off");
        assert_eq!(value::<i64>(&mut other, &count(number)), 3, "{action}");
        assert_eq!(calls(&mut other), 0, "{action}: another session");
        let described = texts(&mut client, OPERATIONS);
        assert!(
            described.len() >= 2,
            "{action}: it is kept without conditions: {described:?}"
        );
    }
    server.assert_no_crash();
}

/// An error with the code of a cancel is a failure, unless this session was cancelled.
#[test]
fn an_error_with_the_code_of_a_cancel_is_a_failure() {
    let server = probed("foreign-codes");
    let mut client = session(&server, "none");
    client
        .batch_execute(
            "CREATE FUNCTION remote() RETURNS int LANGUAGE plpgsql AS
                 $$BEGIN RAISE 'the remote server cancelled' USING ERRCODE = 'query_canceled'; END$$",
        )
        .expect("the function");
    let (code, _) = must_fail(&mut client, "SELECT remote()");
    assert_eq!(code, SqlState::QUERY_CANCELED);
    must_fail(&mut client, "DO $$BEGIN PERFORM remote(); END$$");
    must_time_out(&mut client, 1000, "SELECT pg_sleep(60)");
    let ends = texts(
        &mut client,
        "SELECT failed_calls, cancelled_calls FROM pg_stat_rowsource_plans WHERE query ~ 'remote|sleep' AND toplevel
         ORDER BY left(query, 10) DESC, query",
    );
    let row = |numbers: [&str; 2]| numbers.map(|number| Some(number.to_owned())).to_vec();
    assert_eq!(ends, [row(["1", "0"]), row(["0", "1"]), row(["1", "0"])]);
}

/// The library of a custom scan is muted while that of the scan below it may run, and fails. Then both have
/// their functions again.
#[test]
fn a_muted_library_beside_one_that_fails() {
    let server = probed("foreign-beside");
    let mut client = session(&server, "first");
    allow(&mut client);
    run_each(
        &mut client,
        &format!(
            "CREATE TABLE wrapped (a int); LOAD '{}'",
            object("modify_wrapper/modify_wrapper.c").display()
        ),
    );
    // The wrapper's function makes two nodes share what core counts, which fails before a run and shows after
    // it.
    let lines = first_column(
        &mut client,
        "EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF) INSERT INTO wrapped SELECT a FROM far",
    );
    assert_eq!(
        calls(&mut client),
        2,
        "one failed, and one is EXPLAIN's own: {lines:?}"
    );
    let insert = lines.iter().find(|line| line.contains("Insert")).expect("Insert");
    assert!(
        insert.contains("actual"),
        "the wrapper has its function again: {lines:?}"
    );
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM wrapped"), 3);
    server.assert_no_crash();
}
