//! The ways to load the library into a session: with each, measuring starts when it should.

use postgres::Client;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::{Server, last, measured_nodes};

const TABLE: &str = "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 30000) i; VACUUM ANALYZE n";
const STATEMENT: &str = "SELECT count(*) FROM n";

/// Runs the statement with default settings, and fails unless it was measured.
fn assert_measures(client: &mut Client, how: &str) {
    run_each(client, "SET max_parallel_workers_per_gather = 0");
    client.simple_query(STATEMENT).expect("the statement");
    let nodes = measured_nodes(client);
    let found: Vec<_> = nodes
        .iter()
        .map(|node| (node.operation.as_str(), node.rows))
        .collect();
    assert_eq!(found, [("Aggregate", 1), ("Seq Scan", 30_000)], "{how}");
    assert!(nodes[1].total_ms.is_some(), "{how}: no time");
    assert_parallel_measured(client, how);
}

/// Fails unless parallel workers load the library too and report their statistics.
fn assert_parallel_measured(client: &mut Client, how: &str) {
    run_each(
        client,
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off",
    );
    client
        .simple_query("SELECT count(*) FROM n WHERE id > 0")
        .expect("the statement");
    run_each(client, "RESET parallel_leader_participation");
    let nodes = measured_nodes(client);
    let scan = nodes
        .iter()
        .find(|node| node.operation == "Parallel Seq Scan")
        .expect("a parallel scan");
    assert_eq!((scan.rows, scan.starts), (30_000, Some(2)), "{how}: {nodes:#?}");
    assert!(
        scan.total_ms.is_some_and(|ms| ms > 0.0),
        "{how}: the workers' time is missing: {scan:?}"
    );
}

#[test]
fn create_extension_measures_in_the_same_session() {
    let server = Server::start("load-create", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    assert_measures(&mut client, "CREATE EXTENSION");
}

#[test]
fn load_measures_from_then_on() {
    let server = Server::start("load-load", &[]);
    run_each(&mut server.connect(), TABLE);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    client.simple_query(STATEMENT).expect("the statement");
    run_each(&mut client, "LOAD 'pg_rowsource'");
    assert!(last(&mut client).is_none(), "nothing was measured before LOAD");
    assert_measures(&mut client, "LOAD");
}

#[test]
fn a_function_of_the_extension_loads_it() {
    let server = Server::start("load-function", &[]);
    run_each(&mut server.connect(), TABLE);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    assert!(last(&mut client).is_none());
    assert_measures(&mut client, "a function call");
}

#[test]
fn session_preload_measures_at_once() {
    let server = Server::start("load-session", &["session_preload_libraries = 'pg_rowsource'"]);
    run_each(&mut server.connect(), TABLE);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    assert_measures(&mut client, "session_preload_libraries");
}

#[test]
fn shared_preload_measures_at_once() {
    let server = Server::preloaded("load-shared", &[]);
    run_each(&mut server.connect(), TABLE);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    assert_measures(&mut client, "shared_preload_libraries");
}

#[test]
fn settings_come_from_file_role_and_session() {
    let server = Server::preloaded(
        "load-settings",
        &[
            "pg_rowsource.sampfreq = 16",
            "pg_rowsource.statistics_level = 'basic'",
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE ROLE regress_all LOGIN; ALTER ROLE regress_all SET pg_rowsource.statistics_level = 'all'; GRANT SELECT ON n TO regress_all",
    );
    assert_eq!(
        value::<String>(&mut client, "SELECT current_setting('pg_rowsource.sampfreq')"),
        "16"
    );
    client.simple_query(STATEMENT).expect("the statement");
    assert!(last(&mut client).is_none(), "level basic from the file");
    let mut client = server.try_connect("regress_all").expect("a session of the role");
    client.simple_query(STATEMENT).expect("the statement");
    let nodes = measured_nodes(&mut client);
    // The configuration file sets sampfreq explicitly, so level all does not time every call.
    let timed = nodes[1].timed_calls.expect("counted");
    assert!(
        (16..20_000).contains(&timed),
        "{timed} of 30,001 calls timed at sampfreq 16"
    );
}

#[test]
fn level_all_times_every_call_unless_told_otherwise() {
    let server = Server::preloaded("load-all", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; SET pg_rowsource.statistics_level = 'all'",
    );
    client.simple_query(STATEMENT).expect("the statement");
    assert_eq!(measured_nodes(&mut client)[1].timed_calls, Some(30_001));
    run_each(&mut client, "SET pg_rowsource.sampfreq = 128");
    client.simple_query(STATEMENT).expect("the statement");
    let timed = measured_nodes(&mut client)[1].timed_calls.expect("counted");
    assert!(timed < 10_000, "{timed} calls timed though sampfreq was set");
}

#[test]
fn a_user_without_rights_can_use_it() {
    let server = Server::preloaded("load-user", &["max_parallel_workers_per_gather = 0"]);
    let mut admin = server.connect();
    run_each(&mut admin, TABLE);
    run_each(
        &mut admin,
        "CREATE EXTENSION pg_rowsource; CREATE ROLE regress_user LOGIN; GRANT SELECT ON n TO regress_user",
    );
    let mut client = server.try_connect("regress_user").expect("a session of the role");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = 'all'; SET pg_rowsource.sampfreq = 5; SELECT count(*) FROM n",
    );
    assert_eq!(measured_nodes(&mut client)[1].rows, 30_000);
    must_fail(&mut client, "SET pg_rowsource.sampfreq = -1");
}
