//! Waiting sessions cost nothing: no timer wakes them up. Long calls are found after a wait too.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use rowsource_tests::measured::assert_consistent_times;
use rowsource_tests::process::sleeps;
use rowsource_tests::session::{cancel_backend, run_each, value};
use rowsource_tests::{Server, burn, measure};
use std::time::{Duration, Instant};

/// How long the test watches a wait.
const WATCHED: Duration = Duration::from_secs(2);
/// The maximum number of wake-ups meanwhile. The server itself causes a few.
const MAX_WAKE_UPS: u64 = 6;
/// The maximum time until a session waits.
const TIMEOUT: Duration = Duration::from_secs(30);

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    let mut client = server.session();
    burn::create(&mut client);
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n",
    );
    server
}

/// Waits until a session waits for this event, and fails if the session then wakes up often.
fn assert_sleeps(observer: &mut Client, pid: i32, event: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let waits = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = '{event}'");
    while value::<i64>(observer, &waits) == 0 {
        assert!(Instant::now() < deadline, "the session does not wait for {event}");
    }
    let before = sleeps(pid as u32);
    std::thread::sleep(WATCHED);
    assert_eq!(
        value::<i64>(observer, &waits),
        1,
        "the session waits no more for {event}"
    );
    let woken = sleeps(pid as u32) - before;
    println!("{event}: {woken} wake-ups in {WATCHED:?}");
    assert!(woken <= MAX_WAKE_UPS, "{event}: {woken} wake-ups in {WATCHED:?}");
}

fn pid(client: &mut Client) -> i32 {
    value(client, "SELECT pg_backend_pid()")
}

/// Runs a statement that waits at its 2,000th row, long after sampling began. Fails if the session wakes up
/// often.
fn assert_sleeps_inside(server: &Server, waiting: &str, event: &str) {
    let mut observer = server.session();
    run_each(&mut observer, "SELECT pg_advisory_lock(1)");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let pid = pid(&mut client);
    let statement = format!(
        "SELECT count(*) FROM n WHERE CASE WHEN id = 2000 THEN {waiting} IS NOT NULL ELSE burn(1) END"
    );
    let session = std::thread::spawn(move || client.simple_query(&statement).is_err());
    assert_sleeps(&mut observer, pid, event);
    cancel_backend(&mut observer, pid);
    assert!(
        session.join().expect("the session"),
        "the statement was cancelled"
    );
}

#[test]
fn a_session_sleeps_while_it_waits_for_a_lock() {
    assert_sleeps_inside(&server("wait-lock"), "pg_advisory_lock(1)", "advisory");
}

#[test]
fn a_session_sleeps_in_pg_sleep() {
    assert_sleeps_inside(&server("wait-sleep"), "pg_sleep(60)", "PgSleep");
}

#[test]
fn a_session_sleeps_while_its_client_does_not_read() {
    let server = server("wait-client");
    let mut observer = server.session();
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let pid = pid(&mut client);
    let parameters: [&str; 0] = [];
    let mut rows = client
        .query_raw("SELECT repeat('x', 1000) FROM n WHERE burn(1)", parameters)
        .expect("rows");
    assert_sleeps(&mut observer, pid, "ClientWrite");
    assert!(rows.next().expect("a row").is_some());
}

#[test]
fn a_session_sleeps_between_fetches() {
    let server = server("wait-cursor");
    let mut observer = server.session();
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical;
         BEGIN; DECLARE c CURSOR FOR SELECT * FROM n WHERE burn(5); MOVE 5000 IN c",
    );
    let pid = pid(&mut client);
    assert_sleeps(&mut observer, pid, "ClientRead");
}

/// PostgreSQL does not know that a function waits without a wait event.
#[test]
fn a_session_sleeps_during_an_unknown_wait() {
    let server = server("wait-unknown");
    let mut observer = server.session();
    let library = rowsource_tests::compiled::object("doze/doze.c");
    run_each(
        &mut observer,
        &format!(
            "CREATE FUNCTION doze(ms int) RETURNS boolean AS '{}' LANGUAGE c VOLATILE COST 0.001",
            library.display()
        ),
    );
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let pid = pid(&mut client);
    let statement = "SELECT count(*) FROM n WHERE CASE WHEN id = 2000 THEN doze(4000) ELSE burn(1) END";
    let session = std::thread::spawn(move || client.simple_query(statement).is_ok());
    let deadline = Instant::now() + TIMEOUT;
    let running = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND now() - query_start > '2 seconds'"
    );
    while value::<i64>(&mut observer, &running) == 0 {
        assert!(Instant::now() < deadline, "the session does not run");
    }
    let before = sleeps(pid as u32);
    std::thread::sleep(WATCHED / 2);
    let woken = sleeps(pid as u32) - before;
    assert!(woken <= MAX_WAKE_UPS, "{woken} wake-ups in {:?}", WATCHED / 2);
    assert!(session.join().expect("the session"), "the statement ends well");
}

/// Each call that burns is longer than most distances of two beats. So nearly all of them are found if the
/// beats go on after the wait, and else one of a hundred is.
#[test]
fn long_calls_are_found_after_a_wait() {
    const SLEPT_MS: f64 = 300.0;
    const LONG_US: u32 = 20_000;
    let server = server("wait-accuracy");
    let mut client = server.session();
    for sampfreq in [128, 1000] {
        run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
        let statement = format!(
            "SELECT count(*) FROM n WHERE CASE WHEN id = 20000 THEN pg_sleep({}) IS NOT NULL ELSE
                 burn(CASE WHEN id % 10000 = 0 THEN {LONG_US} ELSE 0 END) END",
            SLEPT_MS / 1000.0
        );
        let (nodes, burned_ms) = burn::during(&mut client, |client| measure(client, &statement));
        assert_consistent_times(&nodes, "after a wait");
        let scan_ms = nodes[1].total_ms.expect("a time") - SLEPT_MS;
        println!("sampfreq {sampfreq}: the scan {scan_ms:.0} ms, of which {burned_ms:.0} ms burned");
        // Other work makes calls longer, and may end while the timer waits: so not all that burned is in the
        // estimate.
        assert!(
            scan_ms > 0.5 * burned_ms,
            "the scan {scan_ms} ms, of which {burned_ms} ms burned: {nodes:#?}"
        );
    }
}
