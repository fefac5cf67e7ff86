//! The examples of README and of the book: every block of SQL runs on a real server, and its output is
//! compared as far as it is the same in each run. The reference of the views is compared with the server's
//! catalog.

use postgres::{Client, NoTls, SimpleQueryMessage};
use rowsource_tests::Server;
use rowsource_tests::documents::{self, Block, Output, blocks, compare, documents, statements};
use rowsource_tests::explain::describe;
use rowsource_tests::session::{major, value};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What another session runs beside an example: it waits at its thousandth row.
const BESIDE: &str =
    "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 600 ELSE 0 END) IS NOT NULL";

/// The queryid and the planid in examples.
const IDS: &str = "4711, 815";

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
        .batch_execute(&format!(
            "CREATE SCHEMA rowsource; GRANT USAGE ON SCHEMA rowsource TO PUBLIC; CREATE EXTENSION pg_rowsource SCHEMA rowsource;
             ALTER DATABASE {database} SET search_path = \"$user\", public, rowsource; SET search_path = \"$user\", public, rowsource;
             SELECT rowsource_reset()"
        ))
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
        let deadline = Instant::now() + Duration::from_secs(60);
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

/// Returns the queries that a shell script gives to psql with `-c "..."`.
fn queries_of_psql(script: &str) -> Result<Vec<&str>, String> {
    let mut queries = Vec::new();
    for line in script.lines().filter(|line| line.contains("psql ")) {
        let mut rest = line;
        while let Some((_, quoted)) = rest.split_once("c \"") {
            let wrong = || format!("the SQL does not end at its second quotation mark: {line}");
            let (sql, after) = quoted.split_once('"').ok_or_else(wrong)?;
            if sql.ends_with('\\') || !(after.is_empty() || after.starts_with(' ')) {
                return Err(wrong());
            }
            queries.extend(sql.to_lowercase().starts_with("select ").then_some(sql));
            rest = after;
        }
    }
    Ok(queries)
}

/// Runs the queries of a shell script. Each must return a row. The ids 4711 and 815 stand for those of the
/// session's last statement.
fn run_script(client: &mut Client, script: &str) -> Result<(), String> {
    for sql in queries_of_psql(script)? {
        let mut sql = sql.to_owned();
        if sql.contains(IDS) {
            let ids = "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()";
            sql = sql.replace(IDS, &value::<String>(client, ids));
        }
        if run(client, &sql)?.rows.is_empty() {
            return Err(format!("no row: {sql}"));
        }
    }
    Ok(())
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
            ("sh", _) if too_old || too_new => Ok(()),
            ("sql", _) => run_block(server, &mut client, &block).map(|output| last = Some(output)),
            ("sh", _) => run_script(&mut client, &block.text),
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
```text\nid\n| Id | Operation | Name |\n---\n| 0 | Sort | |\n---\n```\n
```sh\npsql -Atc \"x\" | cat\npsql -AtX -c \"select nosuch\" > file\n```\n
```sh\npsql -Atc \"select 1 where false\"\n```\n
```sh\npsql -c \"select 1\" -c \"select 2 as \\\"x\\\"\"\n```\n
<!-- test: from 99 -->\n```sh\npsql -c \"select nosuch\"\n```\n
<!-- test: until 9 -->\n```sh\npsql -c \"select nosuch\"\n```\n
```sh\npsql -c \"select rowsource_folded(4711, 815, 'nosuch')\" | cat\n```\n";
    let found = failures(&server, "wrong", "x", text);
    let lines: Vec<&str> = found
        .iter()
        .filter_map(|failure| failure.split(':').nth(1))
        .collect();
    assert_eq!(
        lines,
        ["1", "5", "13", "19", "28", "36", "41", "45", "59"],
        "{found:#?}"
    );
}

/// The first statement of a view of all users may be one whose ids are hidden.
#[test]
fn examples_that_display_a_top_plan_are_for_every_role() {
    let server = server("docs_roles");
    let mut client = session(&server, "roles");
    let work = "CREATE ROLE other LOGIN; SELECT count(*) FROM orders a JOIN orders b ON a.amount = b.amount";
    for statement in statements(work) {
        run(&mut client, &statement).expect("a statement");
    }
    let config = |user| {
        let mut config = postgres::Config::new();
        config.host_path(server.folder()).user(user).dbname("roles");
        config
    };
    let mut other = config("other").connect(NoTls).expect("a session");
    let hidden = "SELECT queryid IS NULL FROM rowsource_top_statements LIMIT 1";
    assert!(value::<bool>(&mut other, hidden), "the first statement is hidden");

    let readme = documents::read("README.md");
    let scripts = blocks(&readme).into_iter().filter(|block| block.info == "sh");
    let mut examples: Vec<String> = Vec::new();
    for script in scripts {
        let queries = queries_of_psql(&script.text).expect("queries");
        examples.extend(queries.into_iter().map(str::to_owned));
    }
    let cookbook = blocks(&documents::read("docs/cookbook.md"));
    examples.extend(cookbook.into_iter().map(|block| block.text));
    examples.retain(|sql| sql.contains("rowsource_top_") && sql.contains("rowsource_display("));
    assert_eq!(examples.len(), 2, "{examples:#?}");
    // The first time, the role has no plan that it may see, and then its own.
    for _ in 0..2 {
        for sql in &examples {
            let printed = run(&mut other, sql).unwrap_or_else(|error| panic!("{sql}\n{error}"));
            println!("{} rows: {sql}", printed.rows.len());
        }
        run(&mut other, "SELECT count(*) FROM generate_series(1, 1000)").expect("a statement");
    }
    for sql in &examples {
        let printed = run(&mut other, sql).unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert!(!printed.rows.is_empty(), "no plan: {sql}");
    }
}
