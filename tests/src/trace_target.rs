//! Traces of other sessions, and their files.

use crate::Server;
use crate::session::{run_each, texts, value};
use crate::trace_file::folder;
use postgres::Client;
use std::fs;

/// Starts a server with a table, at level basic.
pub fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec!["pg_rowsource.statistics_level = 'basic'", "jit = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 100) i",
    );
    server
}

/// Sets a target, and returns its number.
pub fn target(client: &mut Client, arguments: &str) -> i32 {
    let said: String = value(client, &format!("SELECT rowsource_trace_start({arguments})"));
    let number = said
        .strip_prefix("target ")
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{said}"))
}

/// Removes a target.
pub fn remove(client: &mut Client, number: i32) {
    let said: String = value(
        client,
        &format!("SELECT rowsource_trace_stop(target => {number})"),
    );
    assert_eq!(said, format!("target {number}"));
}

/// Returns the lines of all files of a process.
pub fn lines(server: &Server, pid: i32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder(server)) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{pid}_"))
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).expect("a trace file");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// Runs a statement, and returns whether it is in the session's trace.
pub fn is_traced(server: &Server, client: &mut Client) -> bool {
    // In the simple protocol, because the lines of a portal are written when it is closed.
    let mut rows = texts(client, "SELECT pg_backend_pid()");
    let id = rows.pop().and_then(|mut row| row.pop().flatten());
    let id = id.and_then(|id| id.parse().ok()).expect("a pid");
    let executed = || {
        let lines = lines(server, id);
        lines.iter().filter(|line| line.starts_with("EXEC #")).count()
    };
    let before = executed();
    run_each(client, "SELECT count(*) FROM t");
    let added = executed() - before;
    assert!(added <= 1, "{added} executions of one statement");
    added == 1
}
