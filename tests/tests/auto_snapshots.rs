//! Snapshots that the server takes by itself, without set-up.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::until;

const FAST: &str = "pg_rowsource.snapshot_interval = 1s";
const USED: &str = "SELECT count(*) FROM rowsource_info()";
const TAKEN: &str = "SELECT snapshots_taken FROM rowsource_info()";
const FAILED: &str = "SELECT snapshots_failed FROM rowsource_info()";
const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource snapshot'";

/// Waits until the server has taken so many snapshots more.
fn until_taken(client: &mut Client, more: i64) {
    let before: i64 = value(client, TAKEN);
    until(
        client,
        &format!(
            "SELECT snapshots_taken >= {} FROM rowsource_info()",
            before + more
        ),
    );
}

/// Waits until one more has failed, and returns why.
fn until_failed(client: &mut Client) -> String {
    let before: i64 = value(client, FAILED);
    until(
        client,
        &format!("SELECT snapshots_failed > {before} FROM rowsource_info()"),
    );
    value(client, "SELECT last_snapshot_error FROM rowsource_info()")
}

fn registered(client: &mut Client) -> Option<String> {
    value(client, "SELECT snapshot_database FROM rowsource_info()")
}

#[test]
fn snapshots_come_after_one_use_and_after_a_restart() {
    let mut server = Server::preloaded("auto-snapshots", &[FAST]);
    let mut client = server.session();
    run_each(&mut client, USED);
    until_taken(&mut client, 3);
    let stored: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshots");
    assert!(stored >= 3, "{stored}");
    let lines: i64 = value(&mut client, "SELECT count(*) FROM rowsource_wait_report()");
    assert!(lines > 3, "{lines}");
    assert_eq!(registered(&mut client).as_deref(), Some("postgres"));
    drop(client);
    server.stop();
    server.launch();
    // The statistics file has the registration: this use has not committed yet.
    let mut client = server.connect();
    assert_eq!(registered(&mut client).as_deref(), Some("postgres"));
    let last: i64 = value(&mut client, "SELECT max(snap_id) FROM rowsource_snapshots");
    until(
        &mut client,
        &format!("SELECT max(snap_id) > {last} FROM rowsource_snapshots"),
    );
}

#[test]
fn the_first_database_that_commits_a_use_registers() {
    let server = Server::preloaded("auto-snapshots-databases", &[FAST]);
    let mut client = server.connect();
    run_each(&mut client, "DROP EXTENSION IF EXISTS pg_rowsource");
    for name in ["one", "two"] {
        run_each(&mut client, &format!("CREATE DATABASE {name}"));
    }
    let connect = |name: &str| server.try_connect_to("postgres", name).expect("a session");
    let mut one = connect("one");
    one.batch_execute("BEGIN; CREATE EXTENSION pg_rowsource; SELECT * FROM rowsource_info(); ROLLBACK")
        .expect("it is rolled back");
    let mut two = connect("two");
    run_each(&mut two, "CREATE EXTENSION pg_rowsource");
    run_each(&mut two, USED);
    run_each(&mut one, "CREATE EXTENSION pg_rowsource");
    run_each(&mut one, USED);
    assert_eq!(registered(&mut one).as_deref(), Some("two"));
    until_taken(&mut one, 1);
    let error = one
        .query("SELECT rowsource_wait_report()", &[])
        .expect_err("there are no snapshots here");
    let hint = error.as_db_error().and_then(|error| error.hint()).unwrap_or("");
    assert!(hint.contains("in the database \"two\""), "{hint}");

    // Without the extension, the next use registers another database.
    run_each(&mut two, "DROP EXTENSION pg_rowsource");
    let why = until_failed(&mut one);
    assert!(why.contains("not in the database"), "{why}");
    until(&mut one, "SELECT snapshot_database = 'one' FROM rowsource_info()");
    until_taken(&mut one, 1);

    // DROP DATABASE waits for a snapshot at most, and a dropped database is forgotten.
    run_each(&mut two, "CREATE EXTENSION pg_rowsource");
    drop(one);
    run_each(&mut client, "DROP DATABASE one");
    until(
        &mut two,
        "SELECT snapshot_database IS NOT DISTINCT FROM 'two' FROM rowsource_info()",
    );
    until_taken(&mut two, 1);
}

#[test]
fn a_snapshot_gives_up_when_it_must_wait() {
    let server = Server::preloaded("auto-snapshots-locked", &[FAST]);
    let mut client = server.session();
    run_each(&mut client, USED);
    until_taken(&mut client, 1);
    let mut other = server.session();
    run_each(&mut other, "BEGIN; LOCK TABLE rowsource_snapshots");
    let why = until_failed(&mut client);
    assert!(why.contains("lock"), "{why}");
    run_each(&mut other, "ROLLBACK");
    until_taken(&mut client, 1);
    // Cancelled and terminated while it waits.
    for (function, expected) in [
        ("pg_cancel_backend", "cancelled"),
        ("pg_terminate_backend", "terminated"),
    ] {
        run_each(&mut other, "BEGIN; LOCK TABLE rowsource_snapshots");
        let signal = format!(
            "SELECT coalesce(bool_or({function}(pid)), false) FROM pg_stat_activity
              WHERE backend_type = 'pg_rowsource snapshot' AND wait_event = 'relation'"
        );
        until(&mut client, &signal);
        until(
            &mut client,
            &format!("SELECT last_snapshot_error LIKE '%{expected}%' FROM rowsource_info()"),
        );
        run_each(&mut other, "ROLLBACK");
        until_taken(&mut client, 1);
    }
    assert_eq!(server.restarts(), 0);
}

#[test]
fn a_standby_takes_none() {
    let primary = Server::preloaded(
        "auto-snapshots-primary",
        &[FAST, "wal_level = replica", "max_wal_senders = 4"],
    );
    let mut client = primary.session();
    run_each(&mut client, USED);
    let standby = Server::standby_of(&primary, "auto-snapshots-standby");
    let mut there = standby.connect();
    run_each(&mut there, USED);
    assert_eq!(registered(&mut there).as_deref(), Some("postgres"));
    // Three intervals of the primary.
    until_taken(&mut client, 3);
    assert_eq!(value::<i64>(&mut there, TAKEN), 0);
    assert_eq!(value::<i64>(&mut there, FAILED), 0);
    assert_eq!(value::<i64>(&mut there, WORKERS), 0);
    run_each(&mut there, "SELECT pg_promote()");
    until_taken(&mut there, 1);
}

#[test]
fn a_refused_process_is_counted() {
    let server = Server::preloaded(
        "auto-snapshots-refused",
        // One for the launcher of logical replication, one for the history.
        &[FAST, "max_worker_processes = 2"],
    );
    let mut client = server.session();
    run_each(&mut client, USED);
    until(&mut client, "SELECT snapshots_refused > 1 FROM rowsource_info()");
    let why: String = value(&mut client, "SELECT last_snapshot_error FROM rowsource_info()");
    assert!(why.contains("max_worker_processes"), "{why}");
}
