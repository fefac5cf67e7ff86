//! The database in which the server takes snapshots: how it registers, and what keeps that.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::attack::wait_until;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::until;
use std::process::Command;
use std::time::Duration;

const FAST: &str = "pg_rowsource.snapshot_interval = 1s";
const CREATE: &str = "CREATE EXTENSION pg_rowsource";

/// Waits until the server has taken two more snapshots. Uses no function of the extension, which would
/// register.
fn until_taken(client: &mut Client) {
    let before: i64 = value(
        client,
        "SELECT coalesce(max(snap_id), 0) FROM rowsource_snapshots",
    );
    until(
        client,
        &format!("SELECT coalesce(max(snap_id), 0) >= {before} + 2 FROM rowsource_snapshots"),
    );
}

fn registered(client: &mut Client) -> Option<String> {
    value(client, "SELECT snapshot_datname FROM rowsource_info()")
}

fn why_none(client: &mut Client) -> Option<String> {
    value(client, "SELECT last_snapshot_error FROM rowsource_info()")
}

fn connect(server: &Server, database: &str) -> Client {
    server.try_connect_to("postgres", database).expect("a session")
}

#[test]
fn create_extension_is_enough() {
    let server = Server::preloaded("registration-created", &[FAST]);
    let mut client = server.connect();
    for name in ["one", "two"] {
        run_each(&mut client, &format!("CREATE DATABASE {name}"));
    }
    let mut one = connect(&server, "one");
    run_each(&mut one, &format!("BEGIN; {CREATE}; ROLLBACK"));
    let mut two = connect(&server, "two");
    run_each(&mut two, CREATE);
    until_taken(&mut two);
    run_each(&mut one, CREATE);
    assert_eq!(registered(&mut one).as_deref(), Some("two"));
    assert_eq!(why_none(&mut one), None);
}

#[test]
fn a_restored_database_registers() {
    let server = Server::preloaded("registration-dumped", &[FAST]);
    run_each(&mut server.connect(), CREATE);
    let restored = Server::preloaded("registration-restored", &[FAST]);
    let dump = server.folder().join("dump");
    let run = |name: &str, server: &Server, arguments: &[&str]| {
        let output = Command::new(environment().pgbin.join(name))
            .args(["-U", "postgres", "-d", "postgres", "-h"])
            .arg(server.folder())
            .args(arguments)
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    std::fs::write(&dump, run("pg_dump", &server, &["-Fc"])).expect("the dump is written");
    run("pg_restore", &restored, &["-1", &dump.to_string_lossy()]);
    until_taken(&mut restored.connect());
}

/// Who creates the extension in a template wants it in the copies.
#[test]
fn a_template_does_not_register() {
    let server = Server::preloaded("registration-template", &[FAST]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE DATABASE model IS_TEMPLATE true");
    let mut model = connect(&server, "model");
    run_each(&mut model, CREATE);
    assert_eq!(registered(&mut model), None);
    let why = why_none(&mut model).unwrap_or_default();
    assert!(why.contains("template"), "{why}");
    drop(model);
    run_each(&mut client, "CREATE DATABASE copied TEMPLATE model");
    let mut copied = connect(&server, "copied");
    assert_eq!(registered(&mut copied), None);
    until_taken(&mut copied);
    assert_eq!(registered(&mut copied).as_deref(), Some("copied"));
    let stored = "SELECT count(*) FROM rowsource_snapshots";
    assert_eq!(value::<i64>(&mut connect(&server, "model"), stored), 0);
    // A database that becomes a template is one.
    run_each(&mut client, "ALTER DATABASE copied IS_TEMPLATE true");
    until(
        &mut copied,
        "SELECT snapshot_datname IS NULL FROM rowsource_info()",
    );
}

/// Waits until a crash would not lose the registration.
fn until_kept(server: &Server) {
    let file = server.data().join("pg_stat/pg_rowsource_database");
    wait_until("the registration is kept", Duration::from_secs(60), || {
        file.exists()
    });
}

#[test]
fn the_registration_outlives_crashes() {
    let mut server = Server::preloaded("registration-crashed", &[FAST, "pg_rowsource.save = off"]);
    run_each(&mut server.connect(), CREATE);
    until_kept(&server);
    server.crash_a_backend();
    until_taken(&mut server.connect());
    server.kill();
    server.launch();
    until_taken(&mut server.connect());
    // A clean stop without pg_rowsource.save.
    server.stop();
    server.launch();
    let mut client = server.connect();
    until_taken(&mut client);
    assert_eq!(registered(&mut client).as_deref(), Some("postgres"));
    // Without the extension it is given up, and a file that nobody has written is none.
    run_each(&mut client, "DROP EXTENSION pg_rowsource");
    let kept = server.data().join("pg_stat/pg_rowsource_database");
    let is_given_up = || std::fs::read_to_string(&kept).is_ok_and(|kept| kept.trim() == "0");
    wait_until(
        "the registration is given up",
        Duration::from_secs(60),
        is_given_up,
    );
    drop(client);
    server.stop();
    std::fs::write(&kept, "postgres\n").expect("the file is written");
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, CREATE);
    until_taken(&mut client);
}

#[test]
fn a_promoted_standby_goes_on_or_says_what_to_do() {
    let settings = [FAST, "wal_level = replica", "max_wal_senders = 4"];
    let primary = Server::preloaded("registration-primary", &settings);
    let mut client = primary.connect();
    // This one was copied before the database registered.
    let early = Server::standby_of(&primary, "registration-early");
    run_each(&mut client, CREATE);
    until_kept(&primary);
    let late = Server::standby_of(&primary, "registration-late");
    let last: i64 = value(
        &mut client,
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint",
    );
    for standby in [&early, &late] {
        let mut there = standby.connect();
        until(
            &mut there,
            &format!("SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') >= {last}"),
        );
        run_each(&mut there, "SELECT pg_promote()");
    }
    until_taken(&mut late.connect());
    let mut there = early.connect();
    let why = why_none(&mut there).unwrap_or_default();
    assert!(why.contains("no database has registered"), "{why}");
    until_taken(&mut there);
    assert_eq!(why_none(&mut there), None);
}

/// Nobody has to guess why there is no snapshot.
#[test]
fn info_says_why_no_snapshot_is_taken() {
    let server = Server::preloaded(
        "registration-why",
        &["pg_rowsource.snapshot_interval = 0", "pg_rowsource.enabled = on"],
    );
    let mut client = server.connect();
    run_each(&mut client, CREATE);
    for (set, why) in [
        ("snapshot_interval = 0", "pg_rowsource.snapshot_interval is 0"),
        ("enabled = off", "pg_rowsource.enabled is off"),
    ] {
        run_each(
            &mut client,
            "ALTER SYSTEM RESET pg_rowsource.snapshot_interval; ALTER SYSTEM RESET pg_rowsource.enabled",
        );
        run_each(&mut client, &format!("ALTER SYSTEM SET pg_rowsource.{set}"));
        run_each(&mut client, "SELECT pg_reload_conf()");
        until(
            &mut client,
            &format!("SELECT coalesce(last_snapshot_error = '{why}', false) FROM rowsource_info()"),
        );
    }
}
