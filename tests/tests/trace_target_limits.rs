//! Traces of other sessions: what is refused, who may ask for them, and what a crash leaves.

use rowsource_tests::Server;
use rowsource_tests::session::{major, must_fail, run_each, texts, value};
use rowsource_tests::trace_target::{is_traced, lines, remove, server, target};
use rowsource_tests::waiting::pid;

#[test]
fn wrong_targets_are_refused() {
    let server = server("targets-errors", &[]);
    let mut admin = server.connect();
    for (arguments, code, message) in [
        ("pid => 1", "22023", "no session of a client has the process id 1"),
        ("pid => 0", "22023", "no session of a client has the process id 0"),
        (
            "pid => -1",
            "22023",
            "no session of a client has the process id -1",
        ),
        (
            "pid => (SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer')",
            "22023",
            "client backend",
        ),
        (
            "usename => 'nobody'",
            "42704",
            "role \"nobody\" does not exist HINT: pg_roles",
        ),
        (
            "datname => 'nowhere'",
            "3D000",
            "database \"nowhere\" does not exist HINT: pg_database",
        ),
        (
            "client_addr => 'here'",
            "22P02",
            "invalid input syntax for type inet",
        ),
        ("queryid => 0", "22023", "no statement has the queryid 0"),
        (
            "application_name => repeat('x', 64)",
            "22023",
            "too long HINT: PostgreSQL cuts",
        ),
        ("application_name => repeat('x', 100000)", "22023", "too long"),
        (
            "pid => pg_backend_pid(), expires_after => '0'",
            "22023",
            "expires_after must be more than 0",
        ),
        (
            "pid => pg_backend_pid(), expires_after => '-1 day'",
            "22023",
            "expires_after",
        ),
        (
            "pid => pg_backend_pid(), expires_after => '1 day 1 us'",
            "22023",
            "expires_after",
        ),
        (
            "pid => pg_backend_pid(), expires_after => '170000000 years'",
            "22023",
            "expires_after",
        ),
        (
            "expires_after => '1 minute'",
            "22023",
            "expires_after is given, but no condition HINT: Without",
        ),
    ] {
        let (found, said) = must_fail(&mut admin, &format!("SELECT rowsource_trace_start({arguments})"));
        assert_eq!(found.code(), code, "{arguments}: {said}");
        assert!(said.contains(message), "{arguments}: {said}");
    }
    let (code, said) = must_fail(&mut admin, "SELECT rowsource_trace_stop(7)");
    assert_eq!(
        (
            code.code(),
            said.contains("there is no target 7 HINT: It may have expired")
        ),
        ("42704", true),
        "{said}"
    );
    // The list has a limit. What has expired makes room.
    run_each(
        &mut admin,
        "SELECT rowsource_trace_start(datname => 'template1', expires_after => '1 us')",
    );
    let numbers: Vec<i32> = (0..32)
        .map(|i| {
            target(
                &mut admin,
                &format!("application_name => 'none {i}', expires_after => '1 day'"),
            )
        })
        .collect();
    let (code, said) = must_fail(
        &mut admin,
        "SELECT rowsource_trace_start(application_name => 'none')",
    );
    assert_eq!(
        (code.code(), said.contains("there are already 32 targets")),
        ("53400", true),
        "{said}"
    );
    remove(&mut admin, numbers[7]);
    let number = target(&mut admin, "application_name => 'none'");
    assert!(!numbers.contains(&number));
    assert_eq!(
        value::<i64>(&mut admin, "SELECT count(*) FROM rowsource_trace_targets"),
        32
    );
    server.assert_no_crash();
}

#[test]
fn only_some_may_set_targets() {
    let server = server("targets-rights", &[]);
    let mut admin = server.connect();
    run_each(
        &mut admin,
        "CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b LOGIN; CREATE ROLE regress_stats LOGIN; GRANT pg_read_all_stats TO regress_stats",
    );
    let mut user = server.try_connect("regress_a").expect("a session");
    let id = pid(&mut admin);
    let start = format!("SELECT rowsource_trace_start(pid => {id})");
    let listed = "SELECT count(*) FROM rowsource_trace_targets";
    for forbidden in [
        start.as_str(),
        "SELECT rowsource_trace_stop(target => 1)",
        "SELECT rowsource_trace_stop(all_targets => true)",
        "SELECT rowsource_trace_targets()",
        listed,
    ] {
        let (code, message) = must_fail(&mut user, forbidden);
        assert_eq!(code.code(), "42501", "{forbidden}: {message}");
    }
    assert_eq!(
        value::<i64>(
            &mut server.try_connect("regress_stats").expect("a session"),
            listed
        ),
        0
    );
    run_each(
        &mut admin,
        "GRANT EXECUTE ON FUNCTION rowsource_trace_start, rowsource_trace_stop TO regress_a",
    );
    let number = target(&mut user, &format!("pid => {id}"));
    run_each(&mut admin, "SELECT 'sesame' AS word");
    let set_by: String = value(&mut admin, "SELECT set_by::text FROM rowsource_trace_targets");
    assert_eq!(set_by, "regress_a");
    // Who sets a target does not get to read the files by that.
    for call in [
        format!("rowsource_tkprof(pid => {id})"),
        format!("rowsource_trace_events(pid => {id})"),
    ] {
        let (code, message) = must_fail(&mut user, &format!("SELECT {call}"));
        assert_eq!(code.code(), "42501", "{message}");
    }
    assert_eq!(
        value::<i64>(&mut user, "SELECT count(*) FROM rowsource_trace_files"),
        0
    );
    remove(&mut user, number);
    assert!(lines(&server, id).iter().any(|line| line.contains("sesame")));
    // Who is traced can neither end that, nor read the files of others.
    let mut traced = server.try_connect("regress_b").expect("a session");
    target(&mut user, "usename => 'regress_b'");
    run_each(&mut traced, "SELECT 1 AS mine");
    assert_eq!(
        must_fail(&mut traced, "SET pg_rowsource.trace = off").0.code(),
        "42501"
    );
    let own = texts(&mut traced, "SELECT rowsource_tkprof()").concat();
    let own: String = own.into_iter().flatten().collect();
    assert!(own.contains("AS mine") && !own.contains("sesame"), "{own}");
    assert_eq!(
        value::<i64>(&mut traced, "SELECT count(*) FROM rowsource_trace_files"),
        1
    );
    assert_eq!(
        must_fail(&mut traced, &format!("SELECT rowsource_tkprof(pid => {id})"))
            .0
            .code(),
        "42501"
    );
}

/// After a crash, nothing of the targets is left, whoever was killed.
#[test]
fn a_kill_ends_all_targets() {
    let server = server("targets-kill", &[]);
    for kills_traced in [true, false] {
        let (mut admin, mut session) = (server.connect(), server.connect());
        let (setter, id) = (pid(&mut admin), pid(&mut session));
        target(&mut admin, "datname => 'postgres'");
        assert!(is_traced(&server, &mut session));
        let before = server.restarts();
        server.kill_process(if kills_traced { id } else { setter } as u32);
        while server.restarts() == before {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut after = server.connect();
        assert_eq!(
            value::<i64>(&mut after, "SELECT count(*) FROM rowsource_trace_targets"),
            0
        );
        assert!(!is_traced(&server, &mut after));
        // What was written is readable.
        let report = texts(&mut after, &format!("SELECT rowsource_tkprof(pid => {id})"));
        assert!(!report.is_empty());
    }
    server.assert_no_crash();
}

/// Without shared memory, other sessions cannot be traced. From 17 on, there is some for each session that
/// has loaded the library.
#[test]
fn a_library_that_was_not_preloaded_says_so() {
    let server = Server::start("targets-loaded", &["jit = off"]);
    let (mut admin, mut session) = (server.session(), server.session());
    run_each(&mut admin, "CREATE TABLE t AS SELECT 1 AS id");
    let id = pid(&mut session);
    if major(&mut admin) < 17 {
        let (code, said) = must_fail(&mut admin, &format!("SELECT rowsource_trace_start(pid => {id})"));
        assert_eq!(
            (code.code(), said.contains("shared_preload_libraries")),
            ("55000", true),
            "{said}"
        );
        assert!(texts(&mut admin, "SELECT * FROM rowsource_trace_targets").is_empty());
        assert!(
            must_fail(&mut admin, "SELECT rowsource_trace_stop(1)")
                .1
                .contains("shared_preload_libraries")
        );
    } else {
        target(&mut admin, &format!("pid => {id}"));
        assert!(is_traced(&server, &mut session) && !is_traced(&server, &mut admin));
    }
}

/// PostgreSQL replaces them, and from 16 on a name may then have 252 bytes.
#[test]
fn a_name_with_other_characters_is_that_of_pg_stat_activity() {
    let server = server("targets-name", &[]);
    let (mut admin, mut session) = (server.connect(), server.connect());
    let id = pid(&mut session);
    let name = "магазин".repeat(6);
    run_each(&mut session, &format!("SET application_name = '{name}'"));
    let error = must_fail(
        &mut admin,
        &format!("SELECT rowsource_trace_start(application_name => '{name}')"),
    );
    assert!(error.1.contains("ASCII"), "{error:?}");
    let shown: String = value(
        &mut admin,
        &format!("SELECT application_name FROM pg_stat_activity WHERE pid = {id}"),
    );
    target(&mut admin, &format!("application_name => '{shown}'"));
    assert!(is_traced(&server, &mut session), "{shown}");
}

#[test]
fn a_dropped_database_is_still_a_condition() {
    let server = server("targets-dropped", &[]);
    let mut admin = server.connect();
    run_each(&mut admin, "CREATE DATABASE gone");
    target(&mut admin, "datname => 'gone'");
    run_each(&mut admin, "DROP DATABASE gone");
    let shown: String = value(&mut admin, "SELECT datname::text FROM rowsource_trace_targets");
    assert!(shown.starts_with("unknown (OID="), "{shown}");
}

/// A statement of a function with its owner's rights may have no cursor.
#[test]
fn what_has_no_cursor_is_hidden() {
    let server = server("targets-hidden", &[]);
    let mut admin = server.connect();
    run_each(
        &mut admin,
        "CREATE ROLE regress_user LOGIN; CREATE TABLE secret AS SELECT i AS secret_id FROM generate_series(1, 100) i",
    );
    let function = "CREATE FUNCTION owned() RETURNS bigint LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC SELECT count(*) FROM secret; END";
    admin.batch_execute(function).expect("a function");
    let mut user = server.try_connect("regress_user").expect("a session");
    let id = pid(&mut user);
    target(&mut admin, "usename => 'regress_user'");
    run_each(&mut user, "SELECT owned()");
    let found = lines(&server, id);
    assert!(
        found.iter().any(|line| line.contains("Scan on secret")),
        "{found:#?}"
    );
    for shown in ["rowsource_tkprof()", "rowsource_trace_events()"] {
        let lines = texts(&mut user, &format!("SELECT {shown}::text"));
        assert!(!format!("{lines:?}").contains("on secret"), "{shown}: {lines:#?}");
    }
}
