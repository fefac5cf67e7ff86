//! What SQL traces say of statements: their texts in any encoding, and the values of their parameters.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::trace_file::{number, of, stopped};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

/// A value of more than a megabyte is not printed. Neither are the values after it, if they exceed that
/// together.
#[test]
fn large_values_are_not_printed() {
    let server = server("trace-large");
    let mut client = server.connect();
    let statement = client
        .prepare("SELECT length($1), length($2), length($3), $4::int, $5::bytea")
        .expect("it is parsed");
    run_each(&mut client, "SELECT rowsource_trace_start(with_binds => true)");
    let (small, middle, large) = ("ä\n".repeat(3_000), "m".repeat(600_000), "x".repeat(2_000_000));
    let none: Option<Vec<u8>> = None;
    client
        .query(&statement, &[&large, &middle, &middle, &7, &none])
        .expect("it runs");
    client
        .query(&statement, &[&small, &"", &"", &8, &none])
        .expect("it runs");
    let lines = stopped(&server, &mut client);
    let binds: Vec<String> = of(&lines, "VALUE")
        .iter()
        .map(|line| line.split_once(":").expect("fields").1.to_owned())
        .collect();
    let printed = |number: u32, text: &str| format!("n={number},type=25,value={text}");
    let expected = [
        "n=1,type=25,size=2000004".to_owned(),
        printed(2, &"m".repeat(4_000)),
        "n=3,type=25,size=600004".to_owned(),
        "n=4,type=23,value=7".to_owned(),
        "n=5,type=17".to_owned(),
        // A line feed is two characters in the file, but one of the value.
        printed(1, &"ä\\n".repeat(4_000)[..1333 * 4]),
        printed(2, ""),
        printed(3, ""),
        "n=4,type=23,value=8".to_owned(),
        "n=5,type=17".to_owned(),
    ];
    for (bind, expected) in binds.iter().zip(&expected) {
        assert!(
            bind == expected,
            "{bind:.100} ({}) {expected:.100} ({})",
            bind.len(),
            expected.len()
        );
    }
    assert_eq!(binds.len(), expected.len());
    server.assert_no_crash();
}

/// A file that begins while a cursor is open has the text of the cursor's statement before its first line.
#[test]
fn open_cursors_have_their_text() {
    let server = server("trace-cursors");
    let mut client = server.connect();
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT relname FROM pg_class; FETCH 3 FROM c; SELECT rowsource_trace_start(); CLOSE c; COMMIT",
    );
    let lines = stopped(&server, &mut client);
    let at = lines
        .iter()
        .position(|line| line.starts_with("NODE #") && line.contains("on pg_class"));
    let at = at.unwrap_or_else(|| panic!("no NODE line: {lines:#?}"));
    let number = lines[at].split([' ', ':']).nth(1).expect("a cursor");
    let described = format!("PARSING IN CURSOR {number}:");
    let line = lines[..at].iter().find(|line| line.starts_with(&described));
    let text = line.and_then(|line| line.split_once("sql=")).map(|(_, sql)| sql);
    assert!(
        text.is_some_and(|sql| sql.contains("SELECT relname FROM pg_class")),
        "{lines:#?}"
    );
    server.assert_no_crash();
}

/// A query inside a utility statement or a function is run, fetched and closed under its own text, also if
/// PostgreSQL gave it no queryid, and whatever is measured.
#[test]
fn queries_without_queryid_have_their_text() {
    let server = server("trace-utilities");
    let mut client = server.connect();
    let function = "CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql VOLATILE BEGIN ATOMIC SELECT count(*) FROM pg_am; END";
    client.batch_execute(function).expect("a function");
    assert_named(&server, &mut client);
    run_each(
        &mut client,
        "DROP TABLE made; DROP MATERIALIZED VIEW kept; SET pg_rowsource.statistics_level = basic",
    );
    assert_named(&server, &mut client);
    server.assert_no_crash();
}

const PHASES: [&str; 6] = ["PARSE", "PLAN", "EXEC", "FETCH", "FINISH", "CLOSE"];

fn assert_named(server: &Server, client: &mut Client) {
    // The statements, the beginning of the text of the query, and the rows of each of its fetches.
    let cases: [(&str, &str, &[u32]); 6] = [
        ("SELECT counted()", " SELECT count(*)", &[1]),
        (
            "CREATE TABLE made AS SELECT generate_series(1, 31)",
            "CREATE TABLE made",
            &[31],
        ),
        (
            "CREATE MATERIALIZED VIEW kept AS SELECT generate_series(1, 32)",
            "CREATE MATERIALIZED",
            &[32],
        ),
        ("REFRESH MATERIALIZED VIEW kept", "REFRESH", &[32]),
        (
            "BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 40); FETCH 7 FROM c; FETCH 8 FROM c; CLOSE c; COMMIT",
            "DECLARE c ",
            &[7, 8],
        ),
        (
            "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT generate_series(1, 33); COMMIT; FETCH 9 FROM h; CLOSE h",
            "DECLARE h ",
            &[33],
        ),
    ];
    for (sql, text, rows) in cases {
        run_each(client, "SELECT rowsource_trace_start()");
        run_each(client, sql);
        let lines = stopped(server, client);
        let described = of(&lines, "PARSING IN CURSOR");
        let numbers: Vec<&str> = described
            .iter()
            .filter(|line| {
                line.split_once("sql=")
                    .is_some_and(|(_, sql)| sql.starts_with(text))
            })
            .filter_map(|line| line.split([' ', ':']).nth(3))
            .collect();
        let ours = |word: &str| -> Vec<&str> {
            of(&lines, word)
                .into_iter()
                .filter(|line| {
                    numbers
                        .iter()
                        .any(|number| line.starts_with(&format!("{word} {number}:")))
                })
                .collect()
        };
        let fetched: Vec<u32> = ours("FETCH")
            .iter()
            .filter_map(|line| line.split(',').find_map(|field| field.strip_prefix("r=")))
            .filter_map(|rows| rows.parse().ok())
            .collect();
        assert_eq!(fetched, rows, "{sql}: {lines:#?}");
        assert_eq!(ours("CLOSE").len(), 1, "{sql}: {lines:#?}");
        // It is described at the level of its calls.
        let mut compared = 0;
        for line in described {
            let cursor = line.split([' ', ':']).nth(3).expect("a cursor");
            let mut calls = PHASES.iter().flat_map(|word| of(&lines, word));
            let own = format!(" {cursor}:");
            let call = calls.find(|line| line.contains(&own));
            if let Some(call) = call {
                assert_eq!(number(line, "dep"), number(call, "dep"), "{line}\n{call}");
                compared += 1;
            }
        }
        assert!(compared > 0, "{sql}: {lines:#?}");
        for word in ["PLAN", "EXEC", "FETCH", "CLOSE", "STAT", "WAIT"] {
            let nameless = format!("{word} #0:");
            assert!(
                !lines.iter().any(|line| line.starts_with(&nameless)),
                "{sql}: {lines:#?}"
            );
        }
    }
}

/// Texts that are cut are cut between characters, and the file is UTF-8 in each database.
#[test]
fn databases_have_any_encoding() {
    let server = server("trace-encodings");
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP", "UTF8"] {
        let database = format!("db_{}", encoding.to_lowercase());
        // A comma of East Asia has three bytes in UTF-8, and two in EUC_JP.
        let letter = if encoding == "EUC_JP" { "\u{3001}" } else { "ä" };
        run_each(
            &mut server.connect(),
            &format!("CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"),
        );
        let mut client = server.try_connect_to("postgres", &database).expect("a session");
        run_each(
            &mut client,
            "CREATE EXTENSION pg_rowsource; SELECT rowsource_trace_start(with_binds => true)",
        );
        // One of the two is cut within a character, if it is cut at a byte.
        for (shift, more) in [("", ""), ("x", ", 1")] {
            let long = format!("SELECT '{shift}{}' {more}", letter.repeat(20_000));
            client.simple_query(&long).expect("it runs");
            // The spaces before a statement are no part of its text.
            let spaced = format!(
                "{}SELECT 'spaced {shift}{}', true {more}",
                " ".repeat(1_001),
                letter.repeat(20_000)
            );
            client.simple_query(&spaced).expect("it runs");
            let bound = format!("{shift}{}", letter.repeat(9_000));
            client.query("SELECT length($1)", &[&bound]).expect("it runs");
        }
        client
            .simple_query(&format!("SELECT '{letter}' AS short, 1, 2"))
            .expect("it runs");
        let report: Vec<String> = texts(&mut client, "SELECT rowsource_tkprof()")
            .into_iter()
            .filter_map(|mut row| row.remove(0))
            .collect();
        let lines = stopped(&server, &mut client);
        for shift in ["", "x", "spaced ", "spaced x"] {
            let beginning = format!("sql=SELECT '{shift}{letter}");
            let cursors = of(&lines, "PARSING IN CURSOR");
            let long = cursors
                .iter()
                .find(|line| line.contains(&beginning) && line.len() > 10_000);
            let long = long.unwrap_or_else(|| panic!("{encoding}: no {beginning}"));
            assert!(
                long.len() < 17_000 && long.ends_with(letter),
                "{encoding}: {} bytes",
                long.len()
            );
        }
        let values: Vec<&str> = of(&lines, "VALUE")
            .iter()
            .filter_map(|line| line.split_once("value="))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(values.len(), 2, "{encoding}");
        assert!(
            values
                .iter()
                .all(|value| value.len() > 3_900 && value.len() <= 4_000 && value.ends_with(letter)),
            "{encoding}"
        );
        assert!(
            !lines
                .iter()
                .any(|line| line.contains(char::REPLACEMENT_CHARACTER)),
            "{encoding}"
        );
        let short = format!("SELECT '{letter}' AS short, 1, 2");
        assert!(report.contains(&short), "{encoding}: {report:#?}");
    }
    server.assert_no_crash();
}
