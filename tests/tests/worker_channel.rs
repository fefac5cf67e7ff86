//! Parallel workers find their leader's memory by an internal setting. Only the extension can set it.

use postgres::{Client, NoTls};
use rowsource_tests::session::{must_fail, run_each};
use rowsource_tests::{Server, measure};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["jit = off"]);
    run_each(
        &mut server.session(),
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 100000) i; VACUUM ANALYZE n",
    );
    server
}

/// Fails unless parallel workers report to their leader how many calls they timed.
fn assert_workers_report(client: &mut Client, what: &str) {
    run_each(
        client,
        "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET parallel_leader_participation = off; SET max_parallel_workers_per_gather = 2",
    );
    let nodes = measure(client, "SELECT count(*) FROM n");
    let scan = nodes.last().expect("nodes");
    assert_eq!(scan.operation, "Parallel Seq Scan", "{what}: {nodes:#?}");
    assert_eq!(scan.rows, 100_000, "{what}");
    assert!(
        scan.timed_calls > Some(0),
        "{what}: the workers reported nothing: {nodes:#?}"
    );
}

#[test]
fn users_cannot_set_the_channel() {
    let server = server("channel");
    let mut client = server.session();
    run_each(&mut client, "CREATE ROLE r LOGIN");
    for statement in [
        "SET pg_rowsource.worker_channel = 0",
        "SET pg_rowsource.worker_channel = 7",
        "SET LOCAL pg_rowsource.worker_channel = 0",
        "SELECT set_config('pg_rowsource.worker_channel', '0', false)",
        "ALTER ROLE r SET pg_rowsource.worker_channel = 0",
        "ALTER DATABASE postgres SET pg_rowsource.worker_channel = 0",
        "ALTER SYSTEM SET pg_rowsource.worker_channel = 0",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET pg_rowsource.worker_channel = 0 AS 'SELECT 1'",
    ] {
        let (_, message) = must_fail(&mut client, statement);
        assert!(message.contains("worker_channel"), "{statement}: {message}");
        assert_workers_report(&mut client, statement);
    }
    for statement in [
        "UPDATE pg_settings SET setting = '0' WHERE name = 'pg_rowsource.worker_channel'",
        "RESET pg_rowsource.worker_channel",
        "SET pg_rowsource.worker_channel TO DEFAULT",
        "RESET ALL",
        "DISCARD ALL",
    ] {
        run_each(&mut client, statement);
        assert_workers_report(&mut client, statement);
    }
    let refused = postgres::Config::new()
        .host_path(server.folder())
        .user("postgres")
        .dbname("postgres")
        .options("-c pg_rowsource.worker_channel=0")
        .connect(NoTls);
    assert!(refused.is_err(), "PGOPTIONS");
}

#[test]
fn a_value_set_before_the_library_was_loaded_is_ignored() {
    let server = Server::start("channel-before", &["jit = off"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 100000) i; VACUUM ANALYZE n;
         ALTER ROLE postgres SET pg_rowsource.worker_channel = 0;
         ALTER DATABASE postgres SET pg_rowsource.worker_channel = 5",
    );
    drop(client);
    for setting in [
        "SELECT 1",
        "SET pg_rowsource.worker_channel = 0",
        "SET pg_rowsource.worker_channel = 7",
    ] {
        let mut client = server.connect();
        run_each(&mut client, setting);
        run_each(
            &mut client,
            "SET client_min_messages = error; LOAD 'pg_rowsource'; CREATE EXTENSION IF NOT EXISTS pg_rowsource",
        );
        assert_workers_report(&mut client, setting);
    }
}
