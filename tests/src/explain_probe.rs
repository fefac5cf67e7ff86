//! A small extension in C, `explain_probe`: its functions for EXPLAIN do what a setting says, and are
//! counted.

use crate::Server;
use crate::compiled::object;
use crate::session::{run_each, value};
use postgres::Client;

/// The name of the library of `explain_probe`, without its ending.
const PROBE: &str = "rowsource_explain_probe";

/// Starts a server with `explain_probe` and the tables that it needs.
pub fn probed(name: &str) -> Server {
    let server = Server::preloaded(name, &[]);
    let library = object("explain_probe/explain_probe.c");
    run_each(
        &mut server.session(),
        &format!(
            "CREATE TABLE probed (a int); CREATE TABLE effects (t text); CREATE TABLE kept (t text);
             CREATE FUNCTION explain_probe_calls() RETURNS int LANGUAGE c AS '{0}';
             CREATE FUNCTION explain_probe_searches() RETURNS int LANGUAGE c AS '{0}';
             CREATE FUNCTION explain_probe_fdw() RETURNS fdw_handler LANGUAGE c AS '{0}';
             CREATE FOREIGN DATA WRAPPER probe HANDLER explain_probe_fdw; CREATE SERVER probe FOREIGN DATA WRAPPER probe;
             CREATE FOREIGN TABLE far (a int) SERVER probe",
            library.display()
        ),
    );
    server
}

/// Opens a session whose functions for EXPLAIN do this.
pub fn session(server: &Server, action: &str) -> Client {
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
pub fn allow(client: &mut Client) {
    run_each(
        client,
        &format!("SET pg_rowsource.explain_callbacks = 'postgres_fdw, {PROBE}'"),
    );
}

/// Returns how often functions of `explain_probe` that print something were called in this session.
pub fn calls(client: &mut Client) -> i32 {
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let calls = value(client, "SELECT explain_probe_calls()");
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    calls
}

/// Creates a type whose values and modifiers are printed by functions of `explain_probe`, and functions with
/// arguments of it.
pub fn create_type(client: &mut Client) {
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

/// The operations of the plans of [`count`].
pub const OPERATIONS: &str =
    "SELECT DISTINCT operation FROM pg_stat_rowsource JOIN pg_stat_rowsource_plans USING (queryid, planid)
    WHERE query LIKE '%FROM probed'";

/// A statement whose plan no other number gives. It counts the rows of the scan.
pub fn count(number: usize) -> String {
    let columns: Vec<String> = (1..=number).map(|column| column.to_string()).collect();
    format!("SELECT count(*), {} FROM probed", columns.join(", "))
}

/// Fails unless the session is in no transaction, and what it commits is kept. `number` is that of the case.
pub fn assert_commits(server: &Server, client: &mut Client, number: usize, case: &str) {
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
