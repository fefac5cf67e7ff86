//! The files of SQL traces, and the reports that are made of them.

use crate::Server;
use crate::session::{texts, value};
use postgres::Client;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Returns the folder of the files.
pub fn folder(server: &Server) -> PathBuf {
    server.data().join("pgsql_tmp_rowsource_trace")
}

/// Begins a trace, and returns the name of its file.
pub fn start(client: &mut Client, arguments: &str) -> String {
    value(client, &format!("SELECT rowsource_trace_start({arguments})"))
}

/// Ends the trace, and returns the lines of its last file.
pub fn stopped(server: &Server, client: &mut Client) -> Vec<String> {
    let file: String = value(client, "SELECT rowsource_trace_stop()");
    lines(server, &file)
}

/// Returns the lines of a file, which must be UTF-8.
pub fn lines(server: &Server, file: &str) -> Vec<String> {
    let path = folder(server).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

/// Returns whether the last line says that the trace has ended.
pub fn has_ended(lines: &[String]) -> bool {
    lines.last().is_some_and(|line| line.starts_with("END #0:tim="))
}

/// Waits until the lines end with that of the trace's end, and returns them. A session that ends writes this
/// line after nobody can see it any more.
pub fn until_ended(lines: impl Fn() -> Vec<String>) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = lines();
        if has_ended(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "the trace does not end: {found:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a field of a line.
pub fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let fields = line.split_once(':')?.1.split(',');
    fields
        .filter_map(|field| field.split_once('='))
        .find(|field| field.0 == key)
        .map(|field| field.1)
}

/// Returns a field of a line that is a number. Counts that are missing are 0.
pub fn number(line: &str, key: &str) -> i64 {
    const COUNTS: [&str; 9] = ["c", "p", "cr", "cu", "r", "dep", "rows", "pr", "pw"];
    if COUNTS.contains(&key) && field(line, key).is_none() {
        return 0;
    }
    let found = field(line, key).unwrap_or_else(|| panic!("no {key} in {line}"));
    found.parse().unwrap_or_else(|_| panic!("{key} in {line}"))
}

/// Returns the lines that begin with a word.
pub fn of<'a>(lines: &'a [String], word: &str) -> Vec<&'a str> {
    let word = format!("{word} #");
    let found = lines.iter().map(String::as_str);
    found.filter(|line| line.starts_with(&word)).collect()
}

/// Returns the lines of waits for an event.
pub fn waits<'a>(lines: &'a [String], event: &str) -> Vec<&'a str> {
    let end = format!(",nam={event}");
    let found = of(lines, "WAIT").into_iter();
    found.filter(|line| line.ends_with(&end)).collect()
}

/// Returns the number of the cursor whose text contains this.
pub fn cursor(lines: &[String], text: &str) -> String {
    let found = of(lines, "PARSING IN CURSOR");
    let line = found
        .iter()
        .find(|line| line.split_once("sql=").is_some_and(|(_, sql)| sql.contains(text)));
    let line = line.unwrap_or_else(|| panic!("no cursor of {text} in {lines:#?}"));
    line.trim_start_matches("PARSING IN CURSOR #")
        .split(':')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the calls, nodes and binds of a cursor.
pub fn of_cursor<'a>(lines: &'a [String], word: &str, text: &str) -> Vec<&'a str> {
    let beginning = format!("{word} #{}:", cursor(lines, text));
    let found = lines.iter().map(String::as_str);
    found.filter(|line| line.starts_with(&beginning)).collect()
}

/// Returns the lines that an SQL function returns.
fn called(client: &mut Client, call: &str) -> Vec<String> {
    let rows = texts(client, &format!("SELECT {call}")).into_iter();
    rows.map(|mut row| row.remove(0).unwrap_or_default()).collect()
}

/// Returns the report of files.
pub fn tkprof(client: &mut Client, arguments: &str) -> Vec<String> {
    called(client, &format!("rowsource_tkprof({arguments})"))
}

/// Returns the report of the store.
pub fn tkprof_store(client: &mut Client, arguments: &str) -> Vec<String> {
    called(client, &format!("rowsource_tkprof_store({arguments})"))
}

/// Returns the part of a report that is about a statement.
pub fn section(report: &[String], text: &str) -> Vec<String> {
    let mut parts = report.split(|line| line.starts_with("****"));
    let found = parts.find(|part| part.iter().any(|line| line.starts_with(text)));
    found
        .unwrap_or_else(|| panic!("no {text} in {report:#?}"))
        .to_vec()
}

/// Returns the columns of a line that begins with a word.
pub fn columns<'a>(part: &'a [String], word: &str) -> Vec<&'a str> {
    let line = part.iter().find(|line| line.starts_with(word));
    line.unwrap_or_else(|| panic!("no {word} in {part:#?}"))
        .split_whitespace()
        .collect()
}
