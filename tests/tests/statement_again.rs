//! `rowsource_statement()` prints the statement of a kept execution so that it runs again.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{major, must_fail, must_time_out, run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};
use std::io::Write;
use std::process::{Command, Stdio};

const IDS: &str = "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()";

/// Starts a server with a table, and opens a session that keeps constants and parameters.
fn keeping(name: &str) -> (Server, Client) {
    let server = basic_server(name, &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SET pg_rowsource.keep_parameters = on;
         CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE n",
    );
    (server, client)
}

/// Returns the lines of a script.
fn script(client: &mut Client, arguments: &str) -> Vec<String> {
    let sql = format!("SELECT rowsource_statement({arguments})");
    let mut lines = texts(client, &sql);
    lines.drain(..).filter_map(|mut row| row.remove(0)).collect()
}

/// Runs a script in psql with these settings, and returns its rows.
fn psql(server: &Server, script: &str, options: &str) -> Vec<String> {
    let mut psql = Command::new(environment().pgbin.join("psql"))
        .args(["-h".as_ref(), server.folder().as_os_str()])
        .args([
            "-U",
            "postgres",
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "id=nothing",
            "postgres",
        ])
        .env("PGOPTIONS", options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql can be run");
    let mut input = psql.stdin.take().expect("a pipe");
    input.write_all(script.as_bytes()).expect("psql reads");
    drop(input);
    let output = psql.wait_with_output().expect("psql ends");
    assert!(output.status.success(), "{script}");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    said.lines().map(str::to_owned).collect()
}

/// Settings under which values look otherwise, and which measure.
const OPTIONS: &str = "-c DateStyle=German -c IntervalStyle=sql_standard -c bytea_output=escape -c TimeZone=Asia/Kolkata -c pg_rowsource.statistics_level=typical -c pg_rowsource.sampfreq=1";

/// Runs what was printed of the session's last statement in psql. Fails unless it has these rows and this
/// plan.
fn assert_runs_again(server: &Server, client: &mut Client, ids: &str, which: &str, rows: &[String]) {
    let lines = script(client, &format!("{ids}, '{which}'"));
    let script = format!("{}\n{IDS};\n", lines.join("\n"));
    let mut found = psql(server, &script, OPTIONS);
    assert_eq!(found.pop().as_deref(), Some(ids), "{script}");
    assert_eq!(found, rows, "{script}");
}

/// Joins the columns of rows as psql does.
fn joined(rows: &[Vec<Option<String>>]) -> Vec<String> {
    let row = |row: &Vec<Option<String>>| {
        let columns = row.iter().map(|column| column.clone().unwrap_or_default());
        columns.collect::<Vec<_>>().join("|")
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_printed_statement_runs_again_with_the_same_plan() {
    let (_server, mut client) = keeping("statement_again");
    for text in [
        "SELECT count(*) FROM n, pg_sleep(0.01)",
        "SELECT '$1 it''s', '{\"a\": [1, null]}'::json, '\\x00ff'::bytea, ARRAY['a,b', NULL], date '2026-02-03'\n FROM n, pg_sleep(0.01) WHERE id = 7 -- $2",
        "(SELECT id FROM n, pg_sleep(0.01)) UNION ALL SELECT 1",
    ] {
        let rows = texts(&mut client, text);
        let ids: String = value(&mut client, IDS);
        let lines = script(&mut client, &ids);
        assert_eq!(texts(&mut client, &lines.join("\n")), rows, "{lines:?}");
        assert_eq!(value::<String>(&mut client, IDS), ids, "{lines:?}");
    }
}

#[test]
fn the_constants_are_those_of_the_execution() {
    let (_server, mut client) = keeping("statement_constants");
    // The first one is described. The last one is not kept.
    for ms in [10, 300, 20] {
        run_each(
            &mut client,
            &format!("SELECT id AS it FROM n, pg_sleep(0.001 * {ms}) WHERE id = {ms}"),
        );
    }
    let ids: String = value(&mut client, IDS);
    let lines = script(&mut client, &ids);
    assert_eq!(
        lines[0],
        "SELECT id AS it FROM n, pg_sleep(0.001 * 300) WHERE id = 300"
    );
    must_fail(&mut client, "SELECT 1 / (id - 7) FROM n WHERE id > 5");
    let ids: String = value(&mut client, IDS);
    must_fail(&mut client, "SELECT 1 / (id - 8) FROM n WHERE id > 6");
    let lines = script(&mut client, &format!("{ids}, 'failed'"));
    assert_eq!(lines[0], "SELECT 1 / (id - 8) FROM n WHERE id > 6");
    // A long text is that of the description.
    for id in [1, 2] {
        run_each(
            &mut client,
            &format!(
                "SELECT '{}' FROM n, pg_sleep({id} * 0.1) WHERE id = {id}",
                "x".repeat(5_000)
            ),
        );
    }
    let ids: String = value(&mut client, IDS);
    let lines = script(&mut client, &ids);
    assert_eq!(
        lines[0],
        "-- Its constants may be those of another execution with the same plan."
    );
}

/// Types, and values of them as SQL.
const VALUES: &[(&str, &str)] = &[
    ("bool", "true"),
    ("\"char\"", "'x'"),
    ("smallint", "-32768"),
    ("int", "-2147483648"),
    ("bigint", "-9223372036854775808"),
    ("real", "'-1.1754944e-38'"),
    ("float8", "0.1::float8 + 0.2"),
    ("float8", "'NaN'"),
    ("numeric", "-123456789012345678901234567890.0123456789"),
    ("numeric", "'Infinity'"),
    ("oid", "4294967295"),
    ("regclass", "'n'"),
    ("text", "E'it''s \\\\ \\n\\t\\r :id \\001 ü€𝄞 ?'"),
    ("text", "''"),
    ("text", "NULL"),
    ("text", "repeat('x', 256)"),
    ("varchar", "'$1; \\! true'"),
    ("bpchar", "'a  '"),
    ("name", "'A name'"),
    ("bytea", "'\\x00ff5c27'"),
    ("json", "'{\"a\": [1, null, \"it''s \\n\"]}'"),
    (
        "jsonb",
        "'{\"a\": [1, null, \"it''s \\n\"], \"b\": {\"c\": 1.50}}'",
    ),
    ("xml", "'<a>b</a>'"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("date", "'2026-02-03'"),
    ("date", "'0044-03-15 BC'"),
    ("time", "'23:59:59.999999'"),
    ("timetz", "'23:59:59.5+05:30'"),
    ("timestamp", "'2026-02-03 04:05:06.789012'"),
    ("timestamptz", "'2026-02-03 04:05:06.789012-03'"),
    ("timestamptz", "'infinity'"),
    ("interval", "'-1 year -2 days +03:04:05.6'"),
    ("inet", "'192.168.0.1/24'"),
    ("cidr", "'2001:db8::/32'"),
    ("bit", "'101'"),
    ("varbit", "'1010'"),
    ("tsvector", "'a:1 b:2A'"),
    ("int4range", "'[1,5)'"),
    ("tstzrange", "'[2026-02-03 04:05:06+00,)'"),
    ("int[]", "'{{1,2},{NULL,-4}}'"),
    ("text[]", "ARRAY['a,b', NULL, 'NULL', '\"', '\\', '', 'it''s']"),
    ("bytea[]", "ARRAY['\\x00'::bytea]"),
    ("timestamptz[]", "ARRAY['2026-02-03 04:05:06+00'::timestamptz]"),
    ("interval[]", "ARRAY['-1 day +2 hours'::interval]"),
    ("numeric[]", "'[2:3]={1.10,NaN}'"),
    ("jsonb[]", "ARRAY['{\"a\": 1}'::jsonb]"),
];

#[test]
fn parameters_of_all_types_come_back() {
    let (server, mut client) = keeping("statement_types");
    // The session prints values as psql will.
    run_each(
        &mut client,
        "SET DateStyle = German; SET IntervalStyle = sql_standard; SET bytea_output = escape; SET TimeZone = 'Asia/Kolkata'",
    );
    for (name, sql) in VALUES {
        let case = format!("{name} {sql}");
        run_each(
            &mut client,
            &format!(
                "SELECT rowsource_reset(); PREPARE q ({name}, int) AS
                 SELECT quote_nullable($1::text), n.id FROM n, pg_sleep(0.002) WHERE n.id <= $2"
            ),
        );
        let rows = texts(&mut client, &format!("EXECUTE q({sql}, 2)"));
        let ids: String = value(&mut client, IDS);
        run_each(&mut client, "DEALLOCATE q");
        // A value with a line break is two lines of psql's.
        let rows: Vec<String> = joined(&rows).join("\n").lines().map(str::to_owned).collect();
        assert!(!rows.is_empty(), "{case}");
        assert_runs_again(&server, &mut client, &ids, "slowest", &rows);
    }
}

#[test]
fn parameters_of_the_extended_protocol_come_back() {
    let (server, mut client) = keeping("statement_bound");
    let text = "SELECT id, $1::text[] AS it FROM n, pg_sleep($2) WHERE id <= $3 AND id = any ((ARRAY[1, 2, 3])[1:$4])";
    for mode in ["force_custom_plan", "force_generic_plan"] {
        run_each(
            &mut client,
            &format!("SELECT rowsource_reset(); SET plan_cache_mode = {mode}"),
        );
        let array = [Some("a,b"), None, Some("it's")];
        client
            .query(text, &[&&array[..], &0.002, &500, &2])
            .expect("rows");
        let ids: String = value(&mut client, IDS);
        let lines = script(&mut client, &ids);
        let forces = lines
            .iter()
            .any(|line| line == "SET plan_cache_mode = force_generic_plan;");
        assert_eq!(forces, mode == "force_generic_plan", "{lines:?}");
        assert!(
            lines
                .iter()
                .any(|line| line
                    .starts_with("PREPARE rowsource(text[], double precision, integer, integer) AS")),
            "{lines:?}"
        );
        let rows = ["1|{\"a,b\",NULL,it's}", "2|{\"a,b\",NULL,it's}"].map(str::to_owned);
        assert_runs_again(&server, &mut client, &ids, "slowest", &rows);
    }
}

#[test]
fn parameters_of_failed_and_cancelled_executions_are_kept() {
    let (server, mut client) = keeping("statement_failed");
    run_each(
        &mut client,
        "CREATE TABLE large AS SELECT repeat('abc', 1000000) AS it;
         CREATE FUNCTION large() RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT it FROM large); END';
         PREPARE q (text, int, int) AS SELECT $1, 1 / ($2 * id) FROM n, pg_sleep($3)",
    );
    let (code, _) = must_fail(&mut client, "EXECUTE q('it''s', 0, 0)");
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
    let failed: String = value(&mut client, IDS);
    let lines = script(&mut client, &format!("{failed}, 'failed'"));
    assert!(
        lines.contains(&"EXECUTE q('it''s', 0, 0);".to_owned()),
        "{lines:?}"
    );
    let (code, message) = must_fail(&mut client, &format!("DEALLOCATE q; {}", lines.join("\n")));
    assert_eq!(code, SqlState::DIVISION_BY_ZERO, "{message}");
    // What the script has prepared is still there.
    must_time_out(&mut client, 200, "EXECUTE q(E'a\\nb', 1, 60)");
    let cancelled: String = value(&mut client, IDS);
    let lines = script(&mut client, &format!("{cancelled}, 'cancelled'"));
    assert!(
        lines.contains(&"EXECUTE q(E'a\\nb', 1, 60);".to_owned()),
        "{lines:?}"
    );
    // Nothing is read from a table after an error.
    let (code, _) = must_fail(&mut client, "EXECUTE q(large(), 0, 0)");
    assert_eq!(code, SqlState::DIVISION_BY_ZERO);
    let failed: String = value(&mut client, IDS);
    let lines = script(&mut client, &format!("{failed}, 'failed'"));
    assert!(lines.contains(&"EXECUTE q(?, 0, 0);".to_owned()), "{lines:?}");
    server.assert_no_crash();
}

#[test]
fn what_is_not_kept_is_said() {
    let (_server, mut client) = keeping("statement_cut");
    run_each(
        &mut client,
        "CREATE TYPE \"Mood\nDROP\" AS ENUM ('ok'); CREATE DOMAIN small AS int;
         PREPARE q (text, \"Mood\nDROP\", bytea, int[], small) AS SELECT $1, $2, $3, $4, $5 FROM n, pg_sleep(0.002)",
    );
    run_each(
        &mut client,
        "EXECUTE q(E'a\\n' || repeat('ü', 1000), 'ok', decode(repeat('00', 300), 'hex'), array_fill(1, '{100}'), 3)",
    );
    let ids: String = value(&mut client, IDS);
    let lines = script(&mut client, &ids);
    let notes: Vec<&String> = lines.iter().filter(|line| line.starts_with("-- $")).collect();
    assert_eq!(notes.len(), 5, "{lines:#?}");
    let begins = format!(
        "-- $1 (text) is not kept whole: it has 2002 bytes, and begins with E'a\\n{}'",
        "ü".repeat(127)
    );
    assert_eq!(*notes[0], begins);
    assert_eq!(
        notes[1],
        "-- $2 (\"Mood DROP\") is not kept, because its type is none of PostgreSQL's own"
    );
    assert!(
        notes[2]
            .starts_with("-- $3 (bytea) is not kept whole: it has 300 bytes, and begins with E'\\\\x0000"),
        "{}",
        notes[2]
    );
    assert_eq!(
        notes[3],
        "-- $4 (integer[]) is not kept: it is too large, compressed, or stored elsewhere"
    );
    assert_eq!(
        notes[4],
        "-- $5 (small) is not kept, because its type is none of PostgreSQL's own"
    );
    assert!(
        lines.contains(&"EXECUTE q(?, ?, ?, ?, ?);".to_owned()),
        "{lines:#?}"
    );

    // All values together are limited.
    let text = format!(
        "SELECT {} FROM pg_sleep(0.002)",
        (1..=40)
            .map(|i| format!("${i}::text"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let long = "x".repeat(256);
    client
        .query(
            &text,
            &[&long.as_str() as &(dyn postgres::types::ToSql + Sync); 40],
        )
        .expect("a row");
    let ids: String = value(&mut client, IDS);
    let lines = script(&mut client, &ids);
    let kept: usize = lines.iter().map(|line| line.matches(&long).count()).sum();
    assert!((10..=16).contains(&kept), "{kept}");
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("and those after it are not kept: there are 40")),
        "{lines:#?}"
    );
}

#[test]
fn what_cannot_run_again_is_an_error() {
    let server = basic_server("statement_not_again", &["pg_rowsource.keep_constants = off"]);
    let mut client = measuring(&server);
    let refused = |client: &mut Client, expected: &str| {
        let ids: String = value(client, IDS);
        let (code, message) = must_fail(client, &format!("SELECT rowsource_statement({ids})"));
        assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{message}");
        assert!(message.contains(expected), "{message}");
    };
    // It is off by default.
    run_each(
        &mut client,
        "PREPARE q (int) AS SELECT $1, pg_sleep(0.01); EXECUTE q(1)",
    );
    refused(&mut client, "the values of its $1, $2 ... are not kept");
    run_each(
        &mut client,
        "DEALLOCATE q; SET pg_rowsource.keep_parameters = on; SELECT pg_sleep(0.01)",
    );
    refused(
        &mut client,
        "its constants are not kept, which $1, $2 ... replace",
    );
    run_each(
        &mut client,
        "PREPARE q (int) AS SELECT $1, 7 FROM pg_sleep(0.01); EXECUTE q(1)",
    );
    refused(
        &mut client,
        "its constants are not kept, which $1, $2 ... replace",
    );
    // Without constants, nothing is missing.
    run_each(
        &mut client,
        "PREPARE r (float8) AS SELECT pg_sleep($1); EXECUTE r(0.01)",
    );
    let ids: String = value(&mut client, IDS);
    assert!(script(&mut client, &ids).contains(&"EXECUTE r('0.01');".to_owned()));
    let (code, _) = must_fail(
        &mut client,
        &format!("SELECT rowsource_statement({ids}, 'failed')"),
    );
    assert_eq!(code, SqlState::UNDEFINED_OBJECT);
    let (code, _) = must_fail(&mut client, &format!("SELECT rowsource_statement({ids}, 'mean')"));
    assert_eq!(code, SqlState::INVALID_PARAMETER_VALUE);

    // A string where backslashes escape is several statements for psql.
    if major(&mut client) >= 19 {
        return;
    }
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; SET standard_conforming_strings = off; SET escape_string_warning = off",
    );
    client
        .batch_execute(r"SELECT pg_sleep(0.01), 'a\'; DROP TABLE t; --'")
        .expect("one statement");
    refused(&mut client, "psql would take it for several statements");
}

#[test]
fn parameters_are_seen_by_their_owner_and_by_whom_that_was_granted() {
    let (mut server, mut client) = keeping("statement_privileges");
    run_each(
        &mut client,
        "CREATE ROLE owner LOGIN; CREATE ROLE reader LOGIN; GRANT pg_read_all_stats TO reader; GRANT SELECT ON n TO owner;
         ALTER ROLE owner SET pg_rowsource.statistics_level = typical; ALTER ROLE owner SET pg_rowsource.keep_parameters = on;
         CREATE DATABASE other",
    );
    let mut owner = server.try_connect("owner").expect("a session");
    let (code, _) = must_fail(&mut owner, "SET pg_rowsource.keep_parameters = off");
    assert_eq!(code, SqlState::INSUFFICIENT_PRIVILEGE);
    run_each(
        &mut owner,
        "PREPARE q (text, float8) AS SELECT $1 FROM n, pg_sleep($2); EXECUTE q('a secret', 0.01)",
    );
    let ids: String = value(&mut owner, IDS);
    let sees = |client: &mut Client| {
        let lines = script(client, &ids);
        lines.iter().any(|line| line.contains("a secret"))
    };
    assert!(sees(&mut owner) && sees(&mut client));
    let mut reader = server.try_connect("reader").expect("a session");
    let (code, message) = must_fail(&mut reader, &format!("SELECT rowsource_statement({ids})"));
    assert_eq!(code, SqlState::INSUFFICIENT_PRIVILEGE);
    assert!(
        message.contains("GRANT EXECUTE ON FUNCTION rowsource_statement_read_all()"),
        "{message}"
    );
    run_each(
        &mut client,
        "GRANT EXECUTE ON FUNCTION rowsource_statement_read_all() TO reader",
    );
    assert!(sees(&mut reader));
    // Nothing else shows it.
    run_each(&mut client, "SELECT rowsource_snapshot()");
    for sql in [
        format!("SELECT rowsource_html({ids}, 'slowest') || rowsource_explain({ids}, 'slowest', 'json')"),
        format!("SELECT string_agg(l, '') FROM rowsource_display({ids}, format => 'ALLSTATS SLOWEST') l"),
        "SELECT string_agg(s::text, '') FROM rowsource_snapshot_plans s".to_owned(),
    ] {
        let found: String = value(&mut client, &sql);
        assert!(!found.contains("a secret"), "{found}");
        let as_hex = "6120736563726574";
        assert!(!found.contains(as_hex), "{found}");
    }
    assert!(!server.log().contains("a secret"), "it is in the log");
    // It is still there after a restart.
    drop((owner, reader, client));
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert!(sees(&mut client));
    let mut other = server.try_connect_to("postgres", "other").expect("a session");
    run_each(&mut other, "CREATE EXTENSION pg_rowsource");
    let (code, message) = must_fail(&mut other, &format!("SELECT rowsource_statement({ids})"));
    assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(
        message.contains("Connect to the database \"postgres\""),
        "{message}"
    );
}

#[test]
fn parameters_stay_when_the_commit_is_slow() {
    let (_server, mut client) = keeping("statement_commit");
    run_each(
        &mut client,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON n INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait();
         PREPARE q (int) AS INSERT INTO n SELECT $1 FROM pg_sleep(0.01); EXECUTE q(5000); SELECT 1",
    );
    let ids =
        "SELECT format('%s, %s', queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE q%'";
    let ids: String = value(&mut client, ids);
    let text: String = value(
        &mut client,
        &format!("SELECT string_agg(l, '') FROM rowsource_display({ids}, format => 'ALLSTATS SLOWEST') l"),
    );
    let commit = text
        .split("+ commit ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let commit: f64 = commit.and_then(|ms| ms.parse().ok()).expect("a time");
    assert!(commit >= 50.0, "{text}");
    let lines = script(&mut client, &ids);
    assert!(lines.contains(&"EXECUTE q(5000);".to_owned()), "{lines:?}");
}
