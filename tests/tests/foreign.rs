//! Nothing that belongs to another extension runs because the library looks at a plan. The other extension is
//! a small one in C, `explain_probe`: its functions for EXPLAIN do what a setting says.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, texts, value};

/// The name of the library of `explain_probe`, without its ending.
const PROBE: &str = "rowsource_explain_probe";
/// Starts a server with `explain_probe` and the tables that it needs.
fn probed(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    let library = object("explain_probe/explain_probe.c");
    run_each(
        &mut server.session(),
        &format!(
            "CREATE TABLE probed (a int); CREATE TABLE effects (t text); CREATE TABLE kept (t text);
             CREATE FUNCTION explain_probe_calls() RETURNS int LANGUAGE c AS '{0}';
             CREATE FUNCTION explain_probe_fdw() RETURNS fdw_handler LANGUAGE c AS '{0}';
             CREATE FOREIGN DATA WRAPPER probe HANDLER explain_probe_fdw; CREATE SERVER probe FOREIGN DATA WRAPPER probe;
             CREATE FOREIGN TABLE far (a int) SERVER probe",
            library.display()
        ),
    );
    server
}

/// The operations of the plans of [`count`].
const OPERATIONS: &str =
    "SELECT DISTINCT operation FROM pg_stat_rowsource JOIN pg_stat_rowsource_plans USING (queryid, planid)
    WHERE query LIKE '%FROM probed'";

/// Opens a session whose functions for EXPLAIN do this.
fn session(server: &Server, action: &str) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        &format!(
            "LOAD '{}'; SET pg_rowsource.statistics_level = typical; SET explain_probe.action = '{}'",
            object("explain_probe/explain_probe.c").display(),
            action.replace('\'', "''")
        ),
    );
    client
}

/// Allows the library of `explain_probe` to run.
fn allow(client: &mut Client) {
    run_each(
        client,
        &format!("SET pg_rowsource.explain_callbacks = 'postgres_fdw, {PROBE}'"),
    );
}

/// A statement whose plan no other number gives. It counts the rows of the scan.
fn count(number: usize) -> String {
    let columns: Vec<String> = (1..=number).map(|column| column.to_string()).collect();
    format!("SELECT count(*), {} FROM probed", columns.join(", "))
}

fn calls(client: &mut Client) -> i32 {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let calls = value(client, "SELECT explain_probe_calls()");
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    calls
}

/// Fails unless the session is in no transaction, and what it commits is kept. `number` is that of the case.
fn assert_commits(server: &Server, client: &mut Client, number: usize, case: &str) {
    run_each(client, &format!("INSERT INTO kept VALUES ('{number}')"));
    run_each(
        client,
        &format!("BEGIN; INSERT INTO kept VALUES ('{number} in a block'); COMMIT"),
    );
    let kept: i64 = value(
        &mut server.connect(),
        &format!("SELECT count(*) FROM kept WHERE t IN ('{number}', '{number} in a block')"),
    );
    assert_eq!(kept, 2, "{case}: committed work is lost");
    let locks: i64 = value(
        &mut server.connect(),
        &format!(
            "SELECT count(*) FROM pg_locks WHERE pid = {} AND locktype <> 'virtualxid'",
            value::<i32>(client, "SELECT pg_backend_pid()")
        ),
    );
    assert_eq!(locks, 0, "{case}: locks");
}

/// What a function of EXPLAIN may do, and the settings of the session.
const ACTIONS: [(&str, &str); 15] = [
    ("none", ""),
    ("consume", ""),
    ("changes_rows", ""),
    ("sleep", ""),
    ("sleep", "SET statement_timeout = '1s'"),
    ("deaf", "SET statement_timeout = '1s'"),
    ("remote_cancel", ""),
    ("remote_shutdown", ""),
    ("error", ""),
    ("warning", ""),
    ("fatal", ""),
    ("spi INSERT INTO effects VALUES (1)", ""),
    ("spi SELECT 1/0", ""),
    ("subxact SELECT 1/0", ""),
    ("portal", ""),
];

#[test]
fn functions_for_explain_do_not_run() {
    let server = probed("foreign-callbacks");
    for (number, (action, settings)) in (1..).zip(ACTIONS) {
        let case = format!("{number}: {action} {settings}");
        let mut client = session(&server, action);
        run_each(&mut client, settings);
        server.clear_log();
        let rows: i64 = value(&mut client, &count(number));
        assert_eq!(rows, 3, "{case}");
        assert_eq!(calls(&mut client), 0, "{case}");
        assert_commits(&server, &mut client, number, &case);
        // A custom scan is described by what core knows of it.
        let shown = first_column(&mut client, OPERATIONS);
        assert!(
            shown.iter().any(|operation| operation.starts_with("Custom Scan")),
            "{case}: {shown:?}"
        );
        let log = server.log();
        assert!(
            !log.contains("WARNING") && !log.contains("ERROR"),
            "{case}: {log}"
        );
    }
    let written: i64 = value(&mut server.connect(), "SELECT count(*) FROM effects");
    assert_eq!(written, 0);
    server.assert_no_crash();
}

#[test]
fn functions_of_foreign_tables_and_hooks_do_not_run() {
    let server = probed("foreign-tables");
    let mut client = session(&server, "consume");
    run_each(
        &mut client,
        "CREATE TABLE indexed AS SELECT i AS id FROM generate_series(1, 10000) i; CREATE INDEX ON indexed (id); ANALYZE indexed;
         SET explain_probe.hooks = on",
    );
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM far"), 3);
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM far AS x JOIN far AS y USING (a)"
        ),
        3
    );
    run_each(
        &mut client,
        "INSERT INTO far VALUES (1), (2); INSERT INTO kept SELECT a FROM far",
    );
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM kept"), 3);
    assert_eq!(
        value::<i32>(&mut client, "SELECT id FROM indexed WHERE id = 7"),
        7
    );
    // The user's own call prints a plan too.
    let traced: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_call_trace('SELECT count(*) FROM far')",
    );
    assert!(traced > 3, "{traced} calls");
    assert_eq!(calls(&mut client), 0);
    // EXPLAIN itself calls them.
    run_each(&mut client, "EXPLAIN SELECT * FROM indexed WHERE id = 7");
    let by_hooks = calls(&mut client);
    assert!(by_hooks > 0, "the hooks are set again");
    run_each(&mut client, "EXPLAIN SELECT * FROM far");
    assert!(
        calls(&mut client) > by_hooks,
        "the foreign table has its functions again"
    );
    server.assert_no_crash();
}

/// Creates a type whose values and modifiers are printed by functions of `explain_probe`, and functions with
/// arguments of it.
fn create_type(client: &mut Client) {
    let library = object("explain_probe/explain_probe.c");
    let function = |name: &str, arguments: &str, result: &str, symbol: &str| {
        format!(
            "CREATE FUNCTION {name}({arguments}) RETURNS {result} IMMUTABLE STRICT LANGUAGE c AS '{}', '{symbol}'",
            library.display()
        )
    };
    run_each(
        client,
        &[
            "SET client_min_messages = error; CREATE TYPE probe".to_owned(),
            function("probe_in", "cstring, oid, int", "probe", "probe_in"),
            function("probe_out", "probe", "cstring", "probe_out"),
            function("probe_modifier_in", "cstring[]", "int", "probe_modifier_in"),
            function("probe_modifier_out", "int", "cstring", "probe_modifier_out"),
            "CREATE TYPE probe (INPUT = probe_in, OUTPUT = probe_out, TYPMOD_IN = probe_modifier_in,
                TYPMOD_OUT = probe_modifier_out, LIKE = int)"
                .to_owned(),
            function("probe_length", "probe, int", "probe", "probe_same"),
            "CREATE CAST (probe AS probe) WITH FUNCTION probe_length(probe, int)".to_owned(),
            "CREATE CAST (int AS probe) WITHOUT FUNCTION; CREATE DOMAIN probe_domain AS probe".to_owned(),
            "CREATE TYPE probe_row AS (p probe, t text)".to_owned(),
            function("same", "int, probe", "int", "probe_same"),
            function("same", "int, probe[]", "int", "probe_same"),
            function("same", "int, probe_domain", "int", "probe_same"),
            function("same", "int, probe_row", "int", "probe_same"),
            "CREATE TABLE ints AS SELECT i AS a FROM generate_series(1, 3) i; ANALYZE ints".to_owned(),
        ]
        .join("; "),
    );
}

/// Returns the condition of the scan, as it is stored.
fn filter(client: &mut Client) -> String {
    let lines = first_column(
        client,
        "SELECT rowsource_display(queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM ints%'",
    );
    let line = lines.iter().find(|line| line.to_lowercase().contains("filter"));
    line.unwrap_or_else(|| panic!("no filter: {lines:?}")).clone()
}

/// Values and modifiers of types of others are symbols in conditions.
#[test]
fn functions_of_types_do_not_run() {
    let server = probed("foreign-types");
    let mut client = session(&server, "none");
    create_type(&mut client);
    let conditions = [
        ("same(a, '5'::probe) > 0", "same(a, $"),
        ("same(a, '{5,6}'::probe[]) > 0", "same(a, $"),
        ("same(a, '5'::probe_domain) > 0", "same(a, $"),
        ("same(a, '(5,x)'::probe_row) > 0", "same(a, $"),
        ("a::probe::probe(3) IS NOT NULL", "::probe IS NOT NULL"),
        (
            "CASE WHEN a = 1 THEN a::probe ELSE NULL::probe(3) END IS NOT NULL",
            "NULL::probe",
        ),
    ];
    for keep in ["off", "on"] {
        run_each(&mut client, &format!("SET pg_rowsource.keep_constants = {keep}"));
        for (condition, expected) in conditions {
            let case = format!("{condition}, keep_constants {keep}");
            let before = calls(&mut client);
            run_each(&mut client, "SELECT rowsource_reset()");
            let statement = format!("SELECT count(*) FROM ints WHERE {condition}");
            let rows: i64 = value(&mut client, &statement);
            assert!(rows > 0, "{case}");
            assert_eq!(calls(&mut client), before, "{case}");
            let shown = filter(&mut client);
            assert!(shown.contains(expected), "{case}: {shown}");
            // The plan is as it was: a cached one runs again, and the user's EXPLAIN shows its constants.
            run_each(&mut client, &format!("PREPARE again AS {statement}"));
            for _ in 0..7 {
                assert_eq!(value::<i64>(&mut client, "EXECUTE again"), rows, "{case}");
            }
            assert_eq!(calls(&mut client), before, "{case}, prepared");
            let explained = first_column(&mut client, "EXPLAIN EXECUTE again").join(" ");
            run_each(&mut client, "DEALLOCATE again");
            assert!(calls(&mut client) > before, "{case}: {explained}");
        }
    }
    // EXPLAIN prints the columns of an Append as its first child computes them, also if that was pruned.
    run_each(
        &mut client,
        "CREATE TABLE parts (k int, a int) PARTITION BY LIST (k); CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2); CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
         INSERT INTO parts SELECT i % 3 + 1, i FROM generate_series(1, 30) i; ANALYZE parts;
         SET plan_cache_mode = force_generic_plan; SET pg_rowsource.keep_constants = off; SELECT rowsource_reset();
         PREPARE pruned(int) AS SELECT a FROM parts WHERE k >= $1 ORDER BY same(a, '5'::probe), a || 'a secret'",
    );
    let before = calls(&mut client);
    assert_eq!(client.query("EXECUTE pruned(2)", &[]).expect("rows").len(), 20);
    assert_eq!(calls(&mut client), before, "a pruned child");
    // Only the session itself sees its literals.
    let kept = "SELECT rowsource_explain(queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE pruned%'";
    let explained = first_column(&mut server.connect(), kept).join("\n");
    assert!(
        explained.contains("Sort Key: (same(") && !explained.contains("a secret"),
        "{explained}"
    );
    run_each(&mut client, "RESET plan_cache_mode");
    // A query without a text is printed to make one.
    let body = "SELECT count(*) FROM ints WHERE same(a, '5'::probe) > 0 AND a::probe::probe(3) IS NOT NULL";
    client
        .batch_execute(&format!(
            "CREATE FUNCTION atomic() RETURNS bigint VOLATILE LANGUAGE sql BEGIN ATOMIC {body}; END"
        ))
        .expect("the function");
    let mut client = session(&server, "none");
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SELECT rowsource_reset()",
    );
    assert_eq!(value::<i64>(&mut client, "SELECT atomic()"), 3);
    assert_eq!(calls(&mut client), 0, "a query without a text");
    let query: String = value(
        &mut client,
        "SELECT query FROM pg_stat_rowsource_plans WHERE NOT toplevel AND query LIKE '%ints%'",
    );
    assert!(
        query.contains("same(a, $1)") && query.contains("::probe IS NOT NULL"),
        "{query}"
    );
    // What PostgreSQL prints itself is printed.
    run_each(
        &mut client,
        "SET pg_rowsource.keep_constants = on; CREATE DOMAIN small AS int; CREATE TYPE mood AS ENUM ('ok')",
    );
    for (condition, expected) in [
        ("a < 1000 AND a::small IN (1, 2)", "1000"),
        ("CASE WHEN a < 9 THEN 'ok'::mood END = 'ok'", "'ok'::mood"),
        ("int4range(a, 9) && '[1,7)'::int4range", "'[1,7)'::int4range"),
        ("a::varchar(10) < '77'", "varying(10)"),
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        run_each(
            &mut client,
            &format!("SELECT count(*) FROM ints WHERE {condition}"),
        );
        let shown = filter(&mut client);
        assert!(shown.contains(expected), "{condition}: {shown}");
    }
    server.assert_no_crash();
}

/// A superuser allows the functions. What they do to the result is theirs, but their errors are not the
/// statement's.
#[test]
fn an_allowed_function_that_fails_leaves_nothing() {
    let server = probed("foreign-allowed");
    let mut client = session(&server, "none");
    allow(&mut client);
    assert_eq!(value::<i64>(&mut client, &count(1)), 3);
    assert_eq!(calls(&mut client), 1, "it is called");
    let actions = ["error", "remote_cancel", "remote_shutdown", "state"];
    for (number, action) in (2..).zip(actions) {
        let mut client = session(&server, action);
        allow(&mut client);
        server.clear_log();
        assert_eq!(value::<i64>(&mut client, &count(number)), 3, "{action}");
        assert_eq!(calls(&mut client), 1, "{action}");
        assert_commits(&server, &mut client, number, action);
        // The same in a transaction, and in a function that uses SPI itself.
        run_each(
            &mut client,
            "BEGIN; INSERT INTO kept VALUES ('before'); SET LOCAL pg_rowsource.track = 'all'",
        );
        let block = format!(
            "DO $$DECLARE n int; BEGIN EXECUTE '{}' INTO n; IF n <> 3 THEN RAISE 'rows: %', n; END IF;
                 EXECUTE '{}' INTO n; IF current_setting('work_mem') = '12MB' THEN RAISE 'a setting is left'; END IF;
                 IF current_user <> session_user THEN RAISE 'a user is left'; END IF; END$$",
            count(number + 20),
            count(number + 40),
        );
        client
            .batch_execute(&block)
            .unwrap_or_else(|error| panic!("{action}: {error:?}"));
        run_each(
            &mut client,
            "SELECT 1 FROM kept; INSERT INTO kept VALUES ('after'); COMMIT; DELETE FROM kept WHERE t IN ('before', 'after')",
        );
        assert_eq!(calls(&mut client), 3, "{action}");
        let log = server.log();
        assert!(
            !log.contains("WARNING") && !log.contains("ERROR"),
            "{action}: {log}"
        );
    }
    server.assert_no_crash();
}

/// What a failed function has written, and a subtransaction, a cursor or a connection of SPI that it leaves
/// open, are taken away only with the transaction. So the user gets the error, once, and what is reported as
/// committed is committed.
#[test]
fn what_cannot_be_undone_fails_the_statement() {
    let server = probed("foreign-raised");
    let cases = [
        ("subxact SELECT 1/0", SqlState::DIVISION_BY_ZERO),
        ("portal", SqlState::INTERNAL_ERROR),
        ("spi SELECT 1/0", SqlState::DIVISION_BY_ZERO),
        (
            "spi INSERT INTO effects SELECT 1/(2-i) FROM generate_series(1, 3) i",
            SqlState::DIVISION_BY_ZERO,
        ),
    ];
    for (number, (action, expected)) in (1..).zip(cases) {
        let mut client = session(&server, action);
        allow(&mut client);
        let (code, message) = must_fail(&mut client, &count(number));
        assert_eq!(code, expected, "{action}: {message}");
        assert_commits(&server, &mut client, number, action);
        assert_eq!(
            value::<i64>(&mut client, &count(number)),
            3,
            "{action}: the second time"
        );
        // In a transaction, and in a subtransaction, which ends with the error.
        run_each(&mut client, "BEGIN; INSERT INTO kept VALUES ('lost')");
        must_fail(&mut client, &count(number + 20));
        let (code, message) = must_fail(&mut client, "SELECT 1");
        assert_eq!(code, SqlState::IN_FAILED_SQL_TRANSACTION, "{action}: {message}");
        run_each(
            &mut client,
            &format!(
                "ROLLBACK; BEGIN; INSERT INTO kept VALUES ('before'); SAVEPOINT s; SET LOCAL explain_probe.action = '{}'",
                action
            ),
        );
        must_fail(&mut client, &count(number + 40));
        run_each(
            &mut client,
            "ROLLBACK TO s; INSERT INTO kept VALUES ('after'); COMMIT",
        );
        let kept: i64 = value(
            &mut server.connect(),
            "SELECT count(*) FROM kept WHERE t IN ('before', 'after', 'lost')",
        );
        assert_eq!(kept, 2, "{action}");
        run_each(&mut client, "DELETE FROM kept WHERE t IN ('before', 'after')");
    }
    server.assert_no_crash();
}

/// The session's own cancel ends the statement, but only the first time.
#[test]
fn a_cancelled_description_is_not_tried_again() {
    let server = probed("foreign-cancelled");
    for (number, action) in [(1, "sleep"), (2, "deaf")] {
        let mut client = session(&server, action);
        allow(&mut client);
        run_each(&mut client, "SET statement_timeout = '200ms'");
        let (code, message) = must_fail(&mut client, &count(number));
        assert_eq!(code, SqlState::QUERY_CANCELED, "{action}: {message}");
        assert_eq!(value::<i64>(&mut client, &count(number)), 3, "{action}");
        assert_eq!(calls(&mut client), 1, "{action}");
        assert_commits(&server, &mut client, number, action);
        let described = texts(&mut client, OPERATIONS);
        assert!(
            described.len() >= 2,
            "{action}: it is kept without conditions: {described:?}"
        );
    }
    server.assert_no_crash();
}

/// An error with the code of a cancel is a failure, unless this session was cancelled.
#[test]
fn an_error_with_the_code_of_a_cancel_is_a_failure() {
    let server = probed("foreign-codes");
    let mut client = session(&server, "none");
    client
        .batch_execute(
            "CREATE FUNCTION remote() RETURNS int LANGUAGE plpgsql AS
                 $$BEGIN RAISE 'the remote server cancelled' USING ERRCODE = 'query_canceled'; END$$",
        )
        .expect("the function");
    let (code, _) = must_fail(&mut client, "SELECT remote()");
    assert_eq!(code, SqlState::QUERY_CANCELED);
    must_fail(&mut client, "DO $$BEGIN PERFORM remote(); END$$");
    run_each(&mut client, "SET statement_timeout = '50ms'");
    must_fail(&mut client, "SELECT pg_sleep(10)");
    run_each(&mut client, "RESET statement_timeout");
    let ends = texts(
        &mut client,
        "SELECT failed_calls, cancelled_calls FROM pg_stat_rowsource_plans WHERE query ~ 'remote|sleep' AND toplevel
         ORDER BY left(query, 10) DESC, query",
    );
    let row = |numbers: [&str; 2]| numbers.map(|number| Some(number.to_owned())).to_vec();
    assert_eq!(ends, [row(["1", "0"]), row(["0", "1"]), row(["1", "0"])]);
}

/// Only a superuser may name libraries.
#[test]
fn users_cannot_allow_functions() {
    let server = probed("foreign-setting");
    run_each(&mut server.session(), "CREATE ROLE somebody LOGIN");
    let mut client = server.try_connect("somebody").expect("a session");
    let (code, _) = must_fail(&mut client, "SET pg_rowsource.explain_callbacks = 'anything'");
    assert_eq!(code, SqlState::INSUFFICIENT_PRIVILEGE);
    let shown: String = value(&mut client, "SHOW pg_rowsource.explain_callbacks");
    assert_eq!(shown, "postgres_fdw");
}
