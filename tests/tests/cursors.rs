//! Cursors: many calls of the executor are one execution. `store_callgrind.rs` counts what open cursors cost.

use postgres::Client;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::{MeasuredNode, Server, measured_nodes};

const TABLE: &str = "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 10000) i; VACUUM ANALYZE n";

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0"]);
    run_each(&mut server.connect(), TABLE);
    server
}

/// Runs the statements at level typical, and returns the last one's nodes.
fn nodes_after(client: &mut Client, sql: &str) -> Vec<MeasuredNode> {
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    run_each(client, sql);
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    measured_nodes(client)
}

fn starts_and_rows(nodes: &[MeasuredNode]) -> Vec<(&str, i64, i64)> {
    nodes
        .iter()
        .map(|node| (node.operation.as_str(), node.starts.unwrap_or(-1), node.rows))
        .collect()
}

#[test]
fn partial_fetches_are_summed() {
    let server = server("cursor-partial");
    let mut client = server.session();
    let nodes = nodes_after(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM n; FETCH 10 FROM c; FETCH 7 FROM c; MOVE 3 IN c; CLOSE c; COMMIT",
    );
    assert_eq!(starts_and_rows(&nodes), [("Seq Scan", 1, 20)]);
}

#[test]
fn backward_fetches_count_as_rows() {
    let server = server("cursor-backward");
    let mut client = server.session();
    let nodes = nodes_after(
        &mut client,
        "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM n; FETCH 10 FROM c; FETCH BACKWARD 4 FROM c; CLOSE c; COMMIT",
    );
    assert_eq!(starts_and_rows(&nodes), [("Seq Scan", 1, 14)]);
}

#[test]
fn backward_through_a_sort() {
    let server = server("cursor-sort");
    let mut client = server.session();
    let nodes = nodes_after(
        &mut client,
        "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM n ORDER BY id DESC; FETCH LAST FROM c; FETCH FIRST FROM c; CLOSE c; COMMIT",
    );
    assert_eq!(
        nodes.last().map(|scan| (scan.operation.as_str(), scan.rows)),
        Some(("Seq Scan", 10_000))
    );
}

#[test]
fn a_held_cursor_is_read_at_commit() {
    let server = server("cursor-hold");
    let mut client = server.session();
    let nodes = nodes_after(
        &mut client,
        "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM n WHERE id <= 500; FETCH 10 FROM c; COMMIT; FETCH 5 FROM c; CLOSE c",
    );
    // At COMMIT the executor runs again from the start and materialises all rows. Rows fetched before count
    // too.
    assert!(nodes[0].rows >= 500 && nodes[0].rows <= 520, "{nodes:#?}");
}

#[test]
fn interleaved_cursors_and_statements_stay_separate() {
    let server = server("cursor-interleaved");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical; BEGIN");
    run_each(
        &mut client,
        "DECLARE a CURSOR FOR SELECT id FROM n; DECLARE b CURSOR FOR SELECT id + 1 FROM n WHERE id > 10",
    );
    run_each(
        &mut client,
        "FETCH 5 FROM a; FETCH 9 FROM b; SELECT count(*) FROM n; FETCH 6 FROM a; FETCH 1 FROM b",
    );
    run_each(&mut client, "CLOSE a");
    assert_eq!(
        starts_and_rows(&measured_at_basic(&mut client)),
        [("Seq Scan", 1, 11)]
    );
    run_each(&mut client, "CLOSE b");
    assert_eq!(
        starts_and_rows(&measured_at_basic(&mut client)),
        [("Seq Scan", 1, 10)]
    );
    run_each(&mut client, "COMMIT");
}

/// Reads the nodes at level basic, then restores the level.
fn measured_at_basic(client: &mut Client) -> Vec<MeasuredNode> {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let nodes = measured_nodes(client);
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    nodes
}

#[test]
fn rows_of_a_portal_read_in_pieces_are_summed() {
    let server = server("portal");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let mut transaction = client.transaction().expect("a transaction");
    let portal = transaction.bind("SELECT id FROM n", &[]).expect("a portal");
    assert_eq!(transaction.query_portal(&portal, 30).expect("rows").len(), 30);
    assert_eq!(transaction.query_portal(&portal, 12).expect("rows").len(), 12);
    drop(portal);
    transaction.commit().expect("commit");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    assert_eq!(
        starts_and_rows(&measured_nodes(&mut client)),
        [("Seq Scan", 1, 42)]
    );
}

#[test]
fn a_cursor_left_open_at_rollback_does_not_change_the_next_statement() {
    let server = server("cursor-rollback");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM n; FETCH 10 FROM c; ROLLBACK",
    );
    run_each(&mut client, "SELECT count(*) FROM n");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    assert_eq!(
        starts_and_rows(&measured_nodes(&mut client)),
        [("Aggregate", 1, 1), ("Seq Scan", 1, 10_000)]
    );
}

#[test]
fn loops_of_plpgsql_fetch_ahead() {
    let server = server("cursor-loop");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SET pg_rowsource.statistics_level = typical",
    );
    run_each(
        &mut client,
        "DO 'DECLARE r record; s bigint = 0; BEGIN FOR r IN SELECT id FROM n LOOP s = s + r.id; END LOOP; END'",
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let rows: i64 = rowsource_tests::session::value(
        &mut client,
        "SELECT max(rows)::bigint FROM pg_stat_rowsource WHERE operation = 'Seq Scan' AND NOT toplevel",
    );
    assert_eq!(rows, 10_000);
}

/// While a cursor is open that a function has opened, it is that of whoever has read it last.
#[test]
fn a_cursor_of_a_function_that_the_client_reads_is_the_clients() {
    let server = server("cursor-of-function");
    let (mut client, mut observer) = (server.connect(), server.connect());
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let mut is_toplevel = || -> bool {
        let sql = format!(
            "SELECT toplevel FROM pg_stat_rowsource_live WHERE pid = {pid} AND state = 'idle in cursor'"
        );
        value(&mut observer, &format!("{sql} LIMIT 1"))
    };
    run_each(
        &mut client,
        "CREATE EXTENSION IF NOT EXISTS pg_rowsource;
         CREATE FUNCTION opens(c refcursor) RETURNS refcursor LANGUAGE plpgsql AS 'BEGIN OPEN c FOR SELECT id FROM n; RETURN c; END';
         CREATE FUNCTION reads(c refcursor) RETURNS int LANGUAGE plpgsql AS 'DECLARE k int; BEGIN FETCH c INTO k; RETURN k; END';
         SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = 'all'; BEGIN; SELECT opens('c'); SELECT reads('c')",
    );
    assert!(!is_toplevel(), "a function has read it");
    run_each(&mut client, "FETCH 3 FROM c");
    assert!(is_toplevel(), "the client has read it");
    let lines = texts(&mut client, "SELECT rowsource_display()");
    let first = lines.first().and_then(|line| line.first()).cloned().flatten();
    let first = first.expect("a line");
    assert!(
        first.contains("SELECT id FROM n) reads a cursor that is still open"),
        "{first}"
    );
    run_each(&mut client, "SELECT reads('c')");
    assert!(!is_toplevel(), "a function has read it again");
    run_each(&mut client, "COMMIT");
}
