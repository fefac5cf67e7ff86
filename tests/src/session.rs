//! Helpers that run statements in a session.

use crate::explain::describe;
use postgres::error::SqlState;
use postgres::{Client, SimpleQueryMessage};

/// Runs statements one by one, each in its own transaction (VACUUM requires that). Splits at semicolons
/// outside single quotes.
pub fn run_each(client: &mut Client, sql: &str) {
    let mut quoted = false;
    let statements = sql.split(|character| {
        quoted ^= character == '\'';
        character == ';' && !quoted
    });
    for statement in statements
        .map(str::trim)
        .filter(|statement| !statement.is_empty())
    {
        client
            .batch_execute(statement)
            .unwrap_or_else(|error| panic!("{statement}\n{}", describe(&error)));
    }
}

/// Runs a statement that must fail, and returns its SQLSTATE and message.
pub fn must_fail(client: &mut Client, sql: &str) -> (SqlState, String) {
    match client.simple_query(sql) {
        Ok(_) => panic!("{sql}\nsucceeded, but must fail"),
        Err(error) => {
            let server = error.as_db_error().unwrap_or_else(|| panic!("{sql}\n{error}"));
            let hint = server
                .hint()
                .map(|hint| format!(" HINT: {hint}"))
                .unwrap_or_default();
            (server.code().clone(), format!("{}{hint}", server.message()))
        }
    }
}

/// Cancels what a session runs. For the request of a client, the server sends two signals, and the second may
/// end the next statement.
pub fn cancel_backend(observer: &mut Client, pid: i32) {
    let is_sent: bool = value(observer, &format!("SELECT pg_cancel_backend({pid})"));
    assert!(is_sent, "{pid} cannot be cancelled");
}

/// Runs a statement that must fail because it takes longer than this. The limit ends with its transaction: a
/// SET that ends it would have to meet it, which a busy machine may prevent.
pub fn must_time_out(client: &mut Client, milliseconds: u32, sql: &str) {
    run_each(
        client,
        &format!("BEGIN; SET LOCAL statement_timeout = {milliseconds}"),
    );
    let (code, message) = must_fail(client, sql);
    assert_eq!(code, SqlState::QUERY_CANCELED, "{sql}: {message}");
    run_each(client, "ROLLBACK");
}

/// Returns the server's major version, for expected values that differ between majors. A test that does not
/// fit a major says so in its name (`..._pg18_plus`, `..._before_pg17`), and is skipped there.
pub fn major(client: &mut Client) -> i32 {
    value(
        client,
        "SELECT current_setting('server_version_num')::int / 10000",
    )
}

/// Returns one value.
pub fn value<T>(client: &mut Client, sql: &str) -> T
where
    T: for<'a> postgres::types::FromSql<'a>,
{
    client
        .query_one(sql, &[])
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)))
        .get(0)
}

/// Returns the rows of a query, each column as text.
pub fn texts(client: &mut Client, sql: &str) -> Vec<Vec<Option<String>>> {
    client
        .simple_query(sql)
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)))
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(String::from)).collect())
            }
            _ => None,
        })
        .collect()
}
