//! The examples of README and of the book: every block of SQL runs on a real server, and its output is compared as far as it is
//! the same in each run. The reference of the views is compared with the server's catalog.

use postgres::{Client, NoTls, SimpleQueryMessage};
use rowsource_tests::Server;
use rowsource_tests::documents::{self, Block, Output, blocks, compare, documents, statements};
use rowsource_tests::explain::describe;
use rowsource_tests::session::{major, texts, value};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What another session runs beside an example: it waits at its thousandth row.
const BESIDE: &str =
    "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 600 ELSE 0 END) IS NOT NULL";

fn server(name: &str) -> Server {
    Server::preloaded(name, &["pg_rowsource.keep_constants = off"])
}

/// Opens a session in a new database with the extension and the tables of the examples.
fn session(server: &Server, database: &str) -> Client {
    let create = format!("CREATE DATABASE {database}");
    server
        .connect()
        .batch_execute(&create)
        .expect("a database can be created");
    let mut client = server.try_connect_to("postgres", database).expect("a session");
    client
        .batch_execute("CREATE EXTENSION pg_rowsource; SELECT rowsource_reset()")
        .expect("the extension can be created");
    for statement in statements(&documents::read("docs/examples.sql")) {
        run(&mut client, &statement)
            .unwrap_or_else(|error| panic!("docs/examples.sql: {statement}\n{error}"));
    }
    client
}

/// Runs one statement, and returns what it returned.
fn run(client: &mut Client, statement: &str) -> Result<Output, String> {
    let mut output = Output::default();
    for message in client.simple_query(statement).map_err(|error| describe(&error))? {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                output.columns = columns.iter().map(|column| column.name().to_owned()).collect();
            }
            SimpleQueryMessage::Row(row) => {
                output.rows.push(
                    (0..row.len())
                        .map(|place| row.get(place).map(str::to_owned))
                        .collect(),
                );
            }
            _ => {}
        }
    }
    Ok(output)
}

/// A statement that another session runs.
struct Beside {
    pid: i32,
    thread: JoinHandle<()>,
}

impl Beside {
    /// Returns when the views show the statement.
    fn start(server: &Server, client: &mut Client) -> Beside {
        let mut config = postgres::Config::new();
        config.host_path(server.folder()).user("postgres");
        config.dbname(&value::<String>(client, "SELECT current_database()::text"));
        let thread = thread::spawn(move || {
            let mut other = config.connect(NoTls).expect("another session");
            other.simple_query(BESIDE).expect_err("it is cancelled");
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let waits = "SELECT DISTINCT pid FROM pg_stat_rowsource_live WHERE wait_event = 'PgSleep'";
        loop {
            if let [row] = client.query(waits, &[]).expect("the live view").as_slice() {
                return Beside {
                    pid: row.get(0),
                    thread,
                };
            }
            assert!(Instant::now() < deadline, "the other session does not run");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(self, client: &mut Client) {
        client
            .execute("SELECT pg_cancel_backend($1)", &[&self.pid])
            .expect("it can be cancelled");
        self.thread.join().expect("the other session ends");
    }

    /// Puts the pid in the place of numbers after `pid =` and `pid =>`.
    fn with_pid(&self, sql: &str) -> String {
        let mut parts = sql.split("pid =");
        let mut text = parts.next().unwrap_or("").to_owned();
        for part in parts {
            let number = part.trim_start_matches(['>', ' ']);
            let sign = &part[..part.len() - number.len()];
            let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
            let pid = if rest.len() < number.len() {
                self.pid.to_string()
            } else {
                String::new()
            };
            text += &format!("pid ={sign}{pid}{rest}");
        }
        text
    }
}

/// Runs a block of SQL. Returns the output of the last statement that returned columns.
fn run_block(server: &Server, client: &mut Client, block: &Block) -> Result<Output, String> {
    for statement in statements(block.directive("setup").unwrap_or("")) {
        run(client, &statement)?;
    }
    let beside = block.directive("running").map(|_| Beside::start(server, client));
    let sql = beside
        .as_ref()
        .map_or(block.text.clone(), |beside| beside.with_pid(&block.text));
    let mut result = Ok(Output::default());
    for statement in statements(&sql) {
        match run(client, &statement) {
            Ok(output) if output.columns.is_empty() => {}
            Ok(output) => result = Ok(output),
            Err(error) => {
                result = Err(format!("{statement}\n{error}"));
                break;
            }
        }
    }
    if let Some(beside) = beside {
        beside.end(client);
    }
    match (block.directive("fails"), result) {
        (Some(_), Ok(_)) => Err("succeeded, but must fail".to_owned()),
        (Some(_), Err(_)) => Ok(Output::default()),
        (None, result) => result,
    }
}

/// Returns the major that a directive names.
fn number(block: &Block, word: &str) -> Option<i32> {
    let digits = block
        .directive(word)?
        .split(|c: char| !c.is_ascii_digit())
        .next()?;
    Some(
        digits
            .parse()
            .unwrap_or_else(|_| panic!("line {}: {word} {digits}", block.line)),
    )
}

/// Runs all examples of a document. Returns what failed or differed.
fn failures(server: &Server, database: &str, name: &str, text: &str) -> Vec<String> {
    let mut client = session(server, database);
    let major = major(&mut client);
    let (mut found, mut last) = (Vec::new(), None);
    for block in blocks(text) {
        let too_old = number(&block, "from").is_some_and(|from| major < from);
        let too_new = number(&block, "until").is_some_and(|until| major > until);
        let result = match (block.info.as_str(), last.take()) {
            ("sql", _) if too_old => Ok(()),
            ("sql", _) => run_block(server, &mut client, &block).map(|output| last = Some(output)),
            ("text", Some(output)) if block.follows && !too_new => compare(&block, &output),
            _ => Ok(()),
        };
        found.extend(
            result
                .err()
                .map(|error| format!("{name}:{}: {error}", block.line)),
        );
    }
    found
}

#[test]
fn examples_run_and_print_what_they_say() {
    let server = server("docs_examples");
    let (mut found, mut executed) = (Vec::new(), 0);
    for (number, file) in documents().into_iter().enumerate() {
        let text = documents::read(&file);
        executed += blocks(&text).iter().filter(|block| block.info == "sql").count();
        found.extend(failures(&server, &format!("chapter_{number}"), &file, &text));
    }
    assert!(executed > 60, "only {executed} blocks were executed");
    assert!(
        found.is_empty(),
        "{} examples fail:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn wrong_examples_are_found() {
    let server = server("docs_wrong");
    let text = "```sql\nSELECT node_id, nosuch FROM pg_stat_rowsource;\n```\n
```sql\nSELECT rowsource_nosuch();\n```\n
```sql\nSELECT calls FROM pg_stat_rowsource_plans;\n```\n\n```text\n call\n------\n```\n
<!-- test: fails -->\n```sql\nSELECT 1;\n```\n
```sql\nselect count(pad) from test;\nselect rowsource_display();\n```\n
```text\nid\n| Id | Operation | Name |\n---\n| 0 | Sort | |\n---\n```\n";
    let found = failures(&server, "wrong", "x", text);
    let lines: Vec<&str> = found
        .iter()
        .filter_map(|failure| failure.split(':').nth(1))
        .collect();
    assert_eq!(lines, ["1", "5", "13", "19", "28"], "{found:#?}");
}

/// The reference of the views is made from the comments of the columns. This test prints the lines that differ.
#[test]
fn the_reference_equals_the_catalog() {
    let server = server("docs_reference");
    let mut client = server.session();
    let rows = texts(
        &mut client,
        "SELECT c.relname, obj_description(c.oid, 'pg_class'),
             format('| `%s` | %s | %s |', attname, format_type(atttypid, atttypmod), col_description(c.oid, attnum))
           FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
             JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
          WHERE relkind IN ('v', 'r') ORDER BY relname, attnum",
    );
    let reference = documents::read("docs/views.md");
    let mut wrong = Vec::new();
    for row in &rows {
        let [Some(view), Some(comment), Some(line)] = row.as_slice() else {
            panic!("an object without a comment: {row:?}");
        };
        let section = reference
            .split("\n### ")
            .find(|section| section.starts_with(&format!("{view} (")));
        let section = section.unwrap_or_default();
        if !section.contains(comment.as_str()) || !section.contains(&format!("\n{line}")) {
            wrong.push(format!("{view}: {comment}\n{line}"));
        }
    }
    let listed = reference.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        listed,
        rows.len(),
        "docs/views.md has columns that the server does not have, or lacks some"
    );
    assert!(
        rows.len() > 400 && wrong.is_empty(),
        "docs/views.md lacks:\n{}",
        wrong.join("\n")
    );
}
