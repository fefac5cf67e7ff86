//! Snapshots that the server takes by itself, without set-up.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::attack::wait_until;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::waiting::until;
use std::time::{Duration, Instant};

const FAST: &str = "pg_rowsource.snapshot_interval = 1s";
const USED: &str = "SELECT count(*) FROM rowsource_info()";
const TAKEN: &str = "SELECT snapshots_taken FROM rowsource_info()";
const FAILED: &str = "SELECT snapshots_failed FROM rowsource_info()";
const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource snapshot'";

/// Waits until the server has taken `more` more snapshots.
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
    value(client, "SELECT snapshot_datname FROM rowsource_info()")
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
    let last: i64 = value(&mut client, "SELECT max(snap_id) FROM rowsource_snapshots");
    drop(client);
    server.stop();
    // No session of this run attaches to the store, nor uses a function.
    server.configure("pg_rowsource.statistics_level = basic");
    server.launch();
    let mut client = server.connect();
    until(
        &mut client,
        &format!("SELECT max(snap_id) > {last} + 10 FROM rowsource_snapshots"),
    );
    assert_eq!(registered(&mut client).as_deref(), Some("postgres"));
    assert_eq!(value::<i64>(&mut client, FAILED), 0);
}

#[test]
fn a_failed_connect_keeps_the_registration() {
    let server = Server::preloaded("auto-snapshots-connect", &[FAST]);
    let mut client = server.session();
    run_each(&mut client, USED);
    until_taken(&mut client, 1);
    // Nobody can connect to a database whose DROP was interrupted.
    run_each(
        &mut client,
        "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'postgres'",
    );
    let why = until_failed(&mut client);
    assert!(why.contains("before it had connected"), "{why}");
    assert_eq!(registered(&mut client).as_deref(), Some("postgres"));
    run_each(
        &mut client,
        "UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'postgres'",
    );
    until_taken(&mut client, 2);
}

#[test]
fn what_stays_wrong_is_logged_once() {
    let server = Server::preloaded(
        "auto-snapshots-wrong",
        &[FAST, "pg_rowsource.snapshot_database = nowhere"],
    );
    let mut client = server.session();
    let no_database = || {
        server
            .log()
            .matches("took no snapshot: the database does not exist")
            .count()
    };
    let set = |client: &mut Client, name: &str| {
        run_each(
            client,
            &format!("ALTER SYSTEM SET pg_rowsource.snapshot_database = '{name}'"),
        );
        run_each(client, "SELECT pg_reload_conf()");
    };
    for _ in 0..3 {
        let why = until_failed(&mut client);
        assert!(why.contains("does not exist"), "{why}");
    }
    assert_eq!(no_database(), 1);
    // No process tried to connect.
    assert!(
        !server.log().contains("FATAL:  database \"nowhere\""),
        "{}",
        server.log()
    );
    assert_eq!(registered(&mut client).as_deref(), Some("nowhere"));
    set(&mut client, "postgres");
    until_taken(&mut client, 1);
    set(&mut client, "nowhere");
    until(
        &mut client,
        "SELECT current_setting('pg_rowsource.snapshot_database') = 'nowhere'",
    );
    until_failed(&mut client);
    until_failed(&mut client);
    assert_eq!(no_database(), 2);
    // A database without the extension, and one that is read-only.
    set(&mut client, "template1");
    until(
        &mut client,
        "SELECT last_snapshot_error LIKE 'the extension is not in the database%' FROM rowsource_info()",
    );
    set(&mut client, "postgres");
    run_each(
        &mut client,
        "ALTER DATABASE postgres SET default_transaction_read_only = on",
    );
    until(
        &mut client,
        "SELECT last_snapshot_error LIKE 'the database is read-only%' FROM rowsource_info()",
    );
    run_each(
        &mut client,
        "ALTER DATABASE postgres RESET default_transaction_read_only",
    );
    until_taken(&mut client, 1);
}

/// Starts a statement while a snapshot sleeps for a minute. Returns how long it took.
fn beside_a_snapshot(observer: &mut Client, client: &mut Client, sql: &str) -> Duration {
    until(
        observer,
        &format!("{WORKERS} AND wait_event = 'PgSleep'").replace("count(*)", "count(*) > 0"),
    );
    let began = Instant::now();
    run_each(client, sql);
    println!("{sql}: {:?}", began.elapsed());
    began.elapsed()
}

#[test]
fn nobody_waits_long_for_a_snapshot() {
    let server = Server::preloaded(
        "auto-snapshots-away",
        &[FAST, "pg_rowsource.snapshot_database = held"],
    );
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, "CREATE DATABASE held");
    let slow = "CREATE EXTENSION pg_rowsource;
        CREATE OR REPLACE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN true; END';
        ALTER TABLE rowsource_snapshots ADD CHECK (slow()) NOT VALID";
    let mut there = server.try_connect_to("postgres", "held").expect("a session");
    run_each(&mut there, slow);
    let mut waits = vec![
        beside_a_snapshot(&mut observer, &mut there, "VACUUM FULL rowsource_snapshots"),
        beside_a_snapshot(
            &mut observer,
            &mut there,
            "ALTER EXTENSION pg_rowsource DROP TABLE rowsource_snapshots; ALTER EXTENSION pg_rowsource ADD TABLE rowsource_snapshots",
        ),
        beside_a_snapshot(&mut observer, &mut there, "DROP EXTENSION pg_rowsource"),
    ];
    run_each(&mut there, slow);
    drop(there);
    for sql in [
        "CREATE DATABASE copied TEMPLATE held",
        "ALTER DATABASE held RENAME TO renamed",
        "ALTER DATABASE renamed RENAME TO held",
        "DROP DATABASE held",
    ] {
        if sql.starts_with("ALTER DATABASE renamed") {
            run_each(&mut client, sql);
        } else {
            waits.push(beside_a_snapshot(&mut observer, &mut client, sql));
        }
    }
    // It gives up after 3.5 seconds. PostgreSQL refuses what must wait for another session for longer than
    // five.
    assert!(
        waits.iter().all(|wait| *wait < Duration::from_secs(5)),
        "{waits:?}"
    );
    assert_eq!(server.restarts(), 0);
    // From 19 on, PostgreSQL ends it at once.
    let was_ended = || {
        server
            .log()
            .contains("took no snapshot: its process was terminated")
    };
    match major(&mut client) {
        19.. => wait_until("the snapshot is ended", Duration::from_secs(60), was_ended),
        _ => assert!(!was_ended()),
    }
}

#[test]
fn a_publication_of_all_tables_makes_no_snapshot_fail() {
    let server = Server::preloaded("auto-snapshots-published", &["wal_level = logical"]);
    let mut client = server.session();
    run_each(&mut client, "CREATE PUBLICATION everything FOR ALL TABLES");
    for age in ["0", "1 day", "1 year", "0"] {
        run_each(
            &mut client,
            &format!(
                "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '{age}'; SELECT rowsource_snapshot()"
            ),
        );
    }
    let kept: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshots");
    assert_eq!(kept, 2);
    let without_key: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_class c WHERE relkind = 'r' AND relname LIKE 'rowsource%'
            AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)",
    );
    assert_eq!(without_key, 0);
}

/// The process that takes snapshots is a superuser, and so is the owner of `rowsource_snapshot()`.
#[test]
fn nothing_of_others_runs_in_a_snapshot() {
    let server = Server::preloaded("auto-snapshots-triggers", &[FAST]);
    let mut client = server.session();
    run_each(&mut client, USED);
    until_taken(&mut client, 1);
    run_each(
        &mut client,
        "CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe;
         GRANT ALL ON ALL TABLES IN SCHEMA public TO joe",
    );
    let mut joe = server.try_connect("joe").expect("a session");
    run_each(
        &mut joe,
        "CREATE TABLE runs (who text);
         CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.runs VALUES (current_user); RETURN NULL; END'",
    );
    for (make, named, drop) in [
        (
            "CREATE TRIGGER mine AFTER INSERT ON rowsource_snapshot_waits EXECUTE FUNCTION become()",
            "trigger mine on",
            "DROP TRIGGER mine ON rowsource_snapshot_waits",
        ),
        (
            "CREATE TABLE mine (snap_id bigint REFERENCES rowsource_snapshots ON DELETE CASCADE)",
            "constraint mine_snap_id_fkey on",
            "DROP TABLE mine",
        ),
    ] {
        run_each(&mut joe, make);
        let why = until_failed(&mut client);
        assert!(why.contains("a trigger for its tables"), "{why}");
        let error = client
            .query("SELECT rowsource_snapshot()", &[])
            .expect_err("it refuses");
        let message = error.as_db_error().expect("of the server").message().to_owned();
        assert!(message.contains(named), "{message}");
        run_each(&mut client, drop);
        until_taken(&mut client, 1);
    }
    let runs: i64 = value(&mut joe, "SELECT count(*) FROM runs");
    assert_eq!(runs, 0);
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
    let report = texts(&mut one, "SELECT rowsource_wait_report()").concat();
    let says_where = |line: &String| line.contains("in the database \"two\": connect to it");
    assert!(report.iter().flatten().any(says_where), "{report:#?}");

    // Without the extension, the next use registers another database.
    run_each(&mut two, "DROP EXTENSION pg_rowsource");
    let why = until_failed(&mut one);
    assert!(why.contains("not in the database"), "{why}");
    until(&mut one, "SELECT snapshot_datname = 'one' FROM rowsource_info()");
    until_taken(&mut one, 1);

    // DROP DATABASE waits for a snapshot at most, and a dropped database is forgotten.
    run_each(&mut two, "CREATE EXTENSION pg_rowsource");
    drop(one);
    run_each(&mut client, "DROP DATABASE one");
    until(
        &mut two,
        "SELECT snapshot_datname IS NOT DISTINCT FROM 'two' FROM rowsource_info()",
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
    let why: String = value(&mut there, "SELECT last_snapshot_error FROM rowsource_info()");
    assert!(why.contains("standby"), "{why}");
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
