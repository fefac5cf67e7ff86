//! An error in the library's own work does not affect the user's statement: it continues, and so does
//! measuring.

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use rowsource_tests::compiled::object;
use rowsource_tests::measured::display;
use rowsource_tests::session::{must_fail, must_time_out, run_each, value};
use rowsource_tests::waiting::until;
use rowsource_tests::{Server, last, measure};
use std::sync::{Arc, Mutex};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 100000) i; VACUUM ANALYZE n",
    );
    run_each(
        &mut client,
        &format!(
            "CREATE FUNCTION failing(text) RETURNS void AS '{}' LANGUAGE c STRICT",
            object("failing/failing.c").display()
        ),
    );
    server
}

/// Makes pg_rowsource's next call of a function of the server fail.
fn fail_next_call(client: &mut Client, function: &str) {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    run_each(client, &format!("SELECT failing('{function}')"));
    run_each(client, "SET pg_rowsource.statistics_level = typical");
}

#[test]
fn an_error_that_cannot_be_copied() {
    let server = server("copy-error");
    let mut client = server.session();
    for statement in [
        "SELECT sum(1 / (id - 500)) FROM n",
        "DO 'BEGIN PERFORM sum(1 / (id - 500)) FROM n; END'",
        "CALL fails()",
    ] {
        run_each(
            &mut client,
            "CREATE OR REPLACE PROCEDURE fails() LANGUAGE plpgsql AS
                 'BEGIN PERFORM sum(1 / (id - 500)) FROM n; END'",
        );
        fail_next_call(&mut client, "CopyErrorData");
        let (code, _) = must_fail(&mut client, statement);
        assert_eq!(code, SqlState::OUT_OF_MEMORY, "{statement}: the copy was to fail");
        // The session's next statements are measured as before, and at top level.
        for _ in 0..3 {
            let nodes = measure(&mut client, "SELECT count(*) FROM n");
            assert_eq!(nodes[1].rows, 100_000, "{statement}: {nodes:#?}");
            let toplevel: bool = value(
                &mut client,
                "SELECT bool_and(toplevel) FROM pg_stat_rowsource_plans
                 WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last())",
            );
            assert!(toplevel, "{statement}");
        }
    }
    let failed: i64 = value(
        &mut client,
        "SELECT failed_calls FROM pg_stat_rowsource_plans WHERE toplevel AND query LIKE 'SELECT sum(%'",
    );
    assert_eq!(failed, 1, "the statement is on record as a failed one");
}

#[test]
fn a_statement_that_cannot_be_set_up_runs_unmeasured() {
    const STATEMENT: &str = "SELECT count(*) FROM n";
    let server = server("set-up");
    let mut client = server.session();
    fail_next_call(&mut client, "contain_volatile_functions");
    assert_eq!(value::<i64>(&mut client, STATEMENT), 100_000);
    assert!(
        server.log().contains("out of memory, as a test wants it"),
        "{}",
        server.log()
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    assert!(last(&mut client).is_none(), "it was not measured");
    let nodes = measure(&mut client, STATEMENT);
    assert_eq!(nodes[1].rows, 100_000, "{nodes:#?}");
}

#[test]
fn executions_that_cannot_be_recorded_are_counted_and_logged_once() {
    const STATEMENT: &str = "SELECT id FROM n ORDER BY id % 7, id LIMIT 3";
    let server = server("not-recorded");
    let mut client = server.session();
    for errors in [1, 2] {
        fail_next_call(&mut client, "tuplesort_get_stats");
        run_each(&mut client, STATEMENT);
        assert_eq!(
            value::<i64>(&mut client, "SELECT errors FROM rowsource_info()"),
            errors,
            "{}",
            server.log()
        );
    }
    let line = "pg_rowsource could not record a statement: out of memory, as a test wants it";
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
    let nodes = measure(&mut client, STATEMENT);
    assert_eq!(nodes[2].rows, 100_000, "{nodes:#?}");
}

/// An error that PostgreSQL calls internal is a fault. That there is no memory is none.
#[test]
fn a_session_whose_library_gets_an_internal_error_twice_measures_no_more() {
    const STATEMENT: &str = "SELECT count(*) FROM (SELECT id FROM n ORDER BY -id OFFSET 0) s";
    const STATE: &str = "SELECT errors || ' ' || sessions_stopped FROM rowsource_info()";
    let server = server("internal-errors");
    let mut other = server.session();
    let mut client = server.session();
    for (fails, state) in [
        ("tuplesort_get_stats", "1 0"),
        ("tuplesort_get_stats", "2 0"),
        ("tuplesort_get_stats internally", "3 0"),
        ("tuplesort_get_stats", "4 0"),
        ("tuplesort_get_stats internally", "5 1"),
    ] {
        fail_next_call(&mut client, fails);
        run_each(&mut client, STATEMENT);
        assert_eq!(value::<String>(&mut other, STATE), state, "{}", server.log());
    }
    let line = "pg_rowsource: this session measures no more statements, because pg_rowsource failed twice";
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
}

/// Rust's library panics where a folder cannot be closed. The library lists the trace files when their sum
/// comes near its limit.
#[test]
fn a_session_whose_library_panics_twice_measures_no_more() {
    const STATEMENT: &str = "SELECT count(*) FROM n";
    const STATE: &str = "SELECT errors || ' ' || sessions_stopped FROM rowsource_info()";
    let server = server("panics");
    let mut other = server.session();
    run_each(
        &mut other,
        "ALTER SYSTEM SET pg_rowsource.trace_max_total_size = '64kB'; SELECT pg_reload_conf()",
    );
    let mut client = server.session();
    until(
        &mut client,
        "SELECT current_setting('pg_rowsource.trace_max_total_size') = '64kB'",
    );
    run_each(&mut client, "SET pg_rowsource.trace = on");
    for state in ["1 0", "2 1"] {
        run_each(&mut client, "SELECT failing('closedir')");
        let before: String = value(&mut other, STATE);
        let ran = (1..10_000).find(|_| {
            run_each(&mut client, "SELECT 1");
            value::<String>(&mut other, STATE) != before
        });
        println!("it panicked after {ran:?} statements");
        assert_eq!(value::<String>(&mut other, STATE), state, "{}", server.log());
        assert_eq!(value::<i64>(&mut client, STATEMENT), 100_000);
    }
    run_each(&mut client, "SET pg_rowsource.trace = off");
    run_each(
        &mut client,
        "/*+ gather_plan_statistics */ SELECT count(*) FROM n WHERE id < 3",
    );
    run_each(&mut client, STATEMENT);
    let shown = display(&mut client, "ALLSTATS LAST");
    // Long lines are wrapped.
    let text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("was not measured: the session measures no more, because pg_rowsource failed twice;"),
        "{shown}"
    );
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let last: String = value(&mut other, "SELECT last_stop FROM rowsource_info()");
    assert!(
        last.starts_with(&format!("process {pid} at ")) && last.ends_with(": pg_rowsource failed twice"),
        "{last}"
    );
    let log = server.log();
    for line in [
        "pg_rowsource could not write the trace file: unexpected error during closedir",
        "pg_rowsource: this session measures no more statements, because pg_rowsource failed twice",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    // It concerns no other session, and ends with another limit.
    assert_eq!(measure(&mut other, STATEMENT)[1].rows, 100_000);
    run_each(&mut client, "SET pg_rowsource.max_overhead = 20");
    assert_eq!(measure(&mut client, STATEMENT)[1].rows, 100_000);
    assert_eq!(value::<String>(&mut other, STATE), "2 0");
}

/// Fails unless the session reacts to a cancel request.
fn assert_cancellable(client: &mut Client, after: &str) {
    must_time_out(client, 200, &format!("SELECT pg_sleep(20) /* {after} */"));
}

#[test]
fn a_plan_that_cannot_be_kept_leaves_the_session_cancellable() {
    let server = server("not-kept");
    let mut client = server.session();
    // Statistics are recorded when a statement ends, when a transaction is rolled back, and when an error
    // ends both.
    for (statement, fails) in [
        ("SELECT id, 0 FROM n LIMIT 1", false),
        (
            "BEGIN; DECLARE c CURSOR FOR SELECT id, 1 + 1 FROM n ORDER BY 1; FETCH c; ROLLBACK",
            false,
        ),
        ("SELECT sum(1 / (id - 500)), 3 FROM n", true),
        (
            "DO 'BEGIN PERFORM sum(1 / (id - 500)), 4, 4 FROM n; EXCEPTION WHEN division_by_zero THEN END'",
            false,
        ),
    ] {
        run_each(&mut client, "SET pg_rowsource.track = 'all'");
        fail_next_call(&mut client, "dsa_allocate_extended");
        match fails {
            true => drop(must_fail(&mut client, statement)),
            false => run_each(&mut client, statement),
        }
        assert_cancellable(&mut client, statement);
        let nodes = measure(&mut client, "SELECT count(*) FROM n");
        assert_eq!(nodes[1].rows, 100_000, "{statement}: {nodes:#?}");
    }
    let lines = server
        .log()
        .matches("pg_rowsource got no more shared memory: out of memory, as a test wants it")
        .count();
    assert_eq!(lines, 1, "{}", server.log());
}

#[test]
fn workers_without_shared_memory_to_report_in() {
    let server = server("no-channel");
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = notices.clone();
    let mut client = postgres::Config::new()
        .host_path(server.folder())
        .user("postgres")
        .dbname("postgres")
        .notice_callback(move |notice| {
            heard
                .lock()
                .expect("the notices")
                .push(notice.message().to_string())
        })
        .connect(NoTls)
        .expect("a session");
    run_each(
        &mut client,
        "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET parallel_leader_participation = off; SET max_parallel_workers_per_gather = 2",
    );
    let mut timed_calls = Vec::new();
    for fails in [true, false] {
        if fails {
            fail_next_call(&mut client, "dsm_create");
        }
        let nodes = measure(&mut client, "SELECT count(*) FROM n");
        assert_eq!(nodes[3].rows, 100_000, "{nodes:#?}");
        timed_calls.push(nodes[3].timed_calls);
    }
    assert_eq!(timed_calls[0], Some(0), "the workers had nowhere to report");
    assert!(
        timed_calls[1] > Some(0),
        "the workers of the next statement report"
    );
    assert_eq!(*notices.lock().expect("the notices"), Vec::<String>::new());
}
