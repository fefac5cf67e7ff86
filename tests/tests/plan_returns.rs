//! Why a statement takes longer, if an index is gone.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};

const TABLE: &str =
    "CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
     VACUUM (FREEZE, ANALYZE) orders";
const QUERY: &str = "SELECT count(note) FROM orders WHERE customer = 42";

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let server = basic_server(name, settings);
    run_each(&mut server.connect(), TABLE);
    let client = measuring(&server);
    (server, client)
}

/// Runs a statement a few times, and returns its planid.
fn run(client: &mut Client, sql: &str, times: usize) -> i64 {
    (0..times).for_each(|_| run_each(client, sql));
    value(client, "SELECT planid FROM rowsource_last()")
}

/// Returns the cause of a comparison of the session's last statement.
fn cause(client: &mut Client, queryid: i64, sides: &str) -> Option<String> {
    let sql = format!("SELECT rowsource_compare({queryid}{sides}, format => 'json')::jsonb->>'cause'");
    texts(client, &sql).concat().remove(0)
}

fn queryid(client: &mut Client) -> i64 {
    value(client, "SELECT queryid FROM rowsource_last()")
}

/// Lets the worker look, and returns columns of the regressions.
fn judged(client: &mut Client, columns: &str) -> Vec<Vec<Option<String>>> {
    run_each(client, "SELECT rowsource_judge(now())");
    let columns = columns.split(", ").map(|column| format!("({column})::text"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    texts(
        client,
        &format!("SELECT {columns} FROM rowsource_regressions() WHERE state <> 'over' ORDER BY id"),
    )
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// What SQL needs quotes for is named, too: its schema, the index and its table.
#[test]
fn an_index_whose_name_needs_quotes_is_the_cause() {
    let (server, mut client) = server("quoted-index", &[]);
    run_each(
        &mut client,
        "CREATE SCHEMA \"Sales \"\"A\"\"\"; ALTER TABLE orders SET SCHEMA \"Sales \"\"A\"\"\";
         SET search_path = \"Sales \"\"A\"\"\", public;
         CREATE INDEX \"IX_Orders_CustomerId\" ON orders (customer)",
    );
    run(&mut client, QUERY, 6);
    run_each(&mut client, "DROP INDEX \"IX_Orders_CustomerId\"");
    run(&mut client, QUERY, 5);
    let queryid = queryid(&mut client);
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("index gone"));
    let lines = texts(&mut client, &format!("SELECT rowsource_compare({queryid})"));
    let sentence = lines[0][0].as_deref().unwrap_or_default();
    assert!(
        sentence.ends_with(", because index IX_Orders_CustomerId is gone"),
        "{sentence}"
    );
    let cause = judged(&mut client, "cause");
    assert_eq!(cause, [[some("index IX_Orders_CustomerId is gone")]]);
    server.assert_no_crash();
}

