//! The same plan has the same planid everywhere, and other plans have others.

use postgres::Client;
use rowsource_tests::environment::environment;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};
use rowsource_tests::{SHIPPED, Server};
use std::collections::HashMap;
use std::process::Command;

/// Runs a statement, and returns the planid of its plan.
fn planid(client: &mut Client, sql: &str) -> i64 {
    measured(client, sql);
    value(client, "SELECT planid FROM rowsource_last()")
}

const TABLES: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off;
    CREATE TABLE t (gone int, id int PRIMARY KEY, name text, state text);
    CREATE INDEX t_name ON t (lower(name) text_pattern_ops) INCLUDE (id) WHERE state = 'open';
    INSERT INTO t SELECT 1, i, 'name ' || i, 'open' FROM generate_series(1, 1000) i; ANALYZE t";
const BY_NAME: &str = "SELECT id FROM t WHERE lower(name) ~~ 'name 5%' AND state = 'open' ORDER BY name";

#[test]
fn what_is_made_again_is_the_same_plan() {
    let server = basic_server("identity-again", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLES);
    let first = planid(&mut client, BY_NAME);
    assert!(
        first_column(&mut client, &format!("EXPLAIN {BY_NAME}"))
            .join("")
            .contains("t_name")
    );
    let by_id = planid(&mut client, "SELECT name FROM t WHERE id = 5");
    for change in [
        "REINDEX TABLE t",
        "REINDEX INDEX CONCURRENTLY t_name",
        "DROP INDEX t_name;
         CREATE INDEX \"Other name\" ON public.t USING btree (pg_catalog.lower(name) text_pattern_ops ASC) INCLUDE (id)
                WITH (fillfactor = 50) WHERE state OPERATOR(pg_catalog.=) 'open'::text; ANALYZE t",
        "VACUUM FULL t; CREATE SCHEMA \"First\"",
    ] {
        run_each(&mut client, change);
        assert_eq!(planid(&mut client, BY_NAME), first, "{change}");
        // A session that knows nothing yet.
        let mut new = server.connect();
        run_each(&mut new, "SET enable_seqscan = off; SET enable_bitmapscan = off");
        assert_eq!(planid(&mut new, BY_NAME), first, "{change}");
    }
    for setting in [
        "search_path = pg_temp, \"First\", public",
        "search_path = public, pg_catalog",
        "quote_all_identifiers = on",
        "DateStyle = 'German'; SET standard_conforming_strings = off",
    ] {
        // The index gets another OID, so the plan is described in this session.
        let mut new = server.connect();
        run_each(&mut new, "REINDEX INDEX CONCURRENTLY \"Other name\"");
        run_each(&mut new, "SET enable_seqscan = off; SET enable_bitmapscan = off");
        run_each(&mut new, &format!("SET {setting}"));
        assert_eq!(planid(&mut new, BY_NAME), first, "{setting}");
    }
    // One row, although several sessions have run it with several indexes.
    let rows = texts(
        &mut client,
        &format!("SELECT planid::text, calls::text FROM pg_stat_rowsource_plans WHERE planid = {first}"),
    );
    assert_eq!(rows, [[Some(first.to_string()), Some("13".to_owned())]]);
    let nodes: i64 = value(
        &mut client,
        &format!("SELECT min(executions) FROM pg_stat_rowsource WHERE planid = {first}"),
    );
    assert_eq!(nodes, 13);
    // The column numbers differ now, and so does the queryid before 18.
    run_each(&mut client, "DROP TABLE t");
    run_each(&mut client, TABLES);
    run_each(&mut client, "ALTER TABLE t DROP gone");
    assert_eq!(planid(&mut client, BY_NAME), first);
    assert_eq!(planid(&mut client, "SELECT name FROM t WHERE id = 5"), by_id);
    let textids: i64 = value(
        &mut client,
        &format!("SELECT count(DISTINCT textid) FROM pg_stat_rowsource_plans WHERE planid = {first}"),
    );
    assert_eq!(textids, 1);
}

#[test]
fn other_indexes_are_other_plans() {
    let server = basic_server("identity-indexes", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_trgm; CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE SCHEMA other;
         CREATE FUNCTION other.lower(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT pg_catalog.lower($1) || $$$$';
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
         CREATE TABLE t (id int NOT NULL, other int, name text, mood mood);
         INSERT INTO t SELECT i, i, 'name ' || i, 'sad' FROM generate_series(1, 100) i; ANALYZE t",
    );
    let mut known: HashMap<i64, String> = HashMap::new();
    // The statements of a group have the same text and so the same queryid.
    let groups: [(&str, &[&str]); 5] = [
        (
            "SELECT id, other FROM t WHERE id = 5",
            &[
                "INDEX i ON t (id)",
                "UNIQUE INDEX i ON t (id)",
                "INDEX i ON t (id DESC)",
                "INDEX i ON t (id NULLS FIRST)",
                "INDEX i ON t (id, other)",
                "INDEX i ON t (id) INCLUDE (other)",
                "INDEX i ON t (id) INCLUDE (name)",
                "INDEX i ON t USING hash (id)",
                "INDEX i ON t (id) WHERE id > 0",
                "INDEX i ON t (id) WHERE id > 1",
                "INDEX i ON t (id) WHERE id > -1",
                "INDEX i ON t (id) WHERE id >= 1",
                "INDEX i ON t (id) WHERE id IS NOT NULL",
                "INDEX i ON t (id, (other + 1))",
                "INDEX i ON t (id, (other + 2))",
                "INDEX i ON t (id, (other - 1))",
                "INDEX i ON t (id, (other + id))",
            ],
        ),
        (
            "SELECT id FROM t WHERE mood = 'sad'",
            &[
                "INDEX i ON t (mood)",
                "INDEX i ON t (mood) WHERE mood = 'sad'",
                "INDEX i ON t (mood) WHERE mood < 'happy'",
                "INDEX i ON t (mood) WHERE mood IN ('sad', 'happy')",
            ],
        ),
        (
            "SELECT id FROM t WHERE name = 'name 5'",
            &[
                "INDEX i ON t (name)",
                "INDEX i ON t (name text_pattern_ops)",
                "INDEX i ON t (name, pg_catalog.lower(name))",
                "INDEX i ON t (name, other.lower(name))",
                "INDEX i ON t (name, upper(name))",
                "INDEX i ON t (name, (name COLLATE \"POSIX\"))",
                "INDEX i ON t (name, (name::varchar(5)))",
                "INDEX i ON t (name, (name::varchar(6)))",
            ],
        ),
        (
            "SELECT id FROM t WHERE name COLLATE \"C\" > 'x' ORDER BY name COLLATE \"C\"",
            &[
                "INDEX i ON t (name COLLATE \"C\")",
                "INDEX i ON t (name COLLATE \"C\" DESC)",
            ],
        ),
        (
            "SELECT id FROM t WHERE name LIKE '%ame 5%'",
            &[
                "INDEX i ON t USING gin (name gin_trgm_ops)",
                "INDEX i ON t USING gist (name gist_trgm_ops)",
                "INDEX i ON t USING gist (name gist_trgm_ops (siglen = 32))",
                "INDEX i ON t USING gist (name gist_trgm_ops (siglen = 64))",
            ],
        ),
    ];
    for (statement, indexes) in groups {
        let is_bitmap = statement.contains("LIKE");
        run_each(&mut client, &format!("SET enable_bitmapscan = {is_bitmap}"));
        for index in indexes {
            run_each(&mut client, &format!("CREATE {index}"));
            let plan = first_column(&mut client, &format!("EXPLAIN {statement}")).join("\n");
            assert!(plan.contains(" i "), "{index}: {plan}");
            let id = planid(&mut client, statement);
            run_each(&mut client, "DROP INDEX i");
            run_each(
                &mut client,
                &format!("CREATE {}", index.replace(" i ON", " j ON")),
            );
            assert_eq!(planid(&mut client, statement), id, "{index}");
            run_each(&mut client, "DROP INDEX j");
            if let Some(same) = known.insert(id, format!("{statement} {index}")) {
                panic!("{statement} {index} has the planid of {same}");
            }
        }
    }
}

#[test]
fn other_strategies_and_relations_are_other_plans() {
    let server = basic_server("identity-others", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA other; CREATE TABLE t AS SELECT i AS id, i AS val FROM generate_series(1, 1000) i;
         CREATE TABLE u AS SELECT * FROM t; CREATE TABLE other.t AS SELECT * FROM t; CREATE TABLE v AS SELECT * FROM t; ANALYZE;
         SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET join_collapse_limit = 1",
    );
    let mut known: HashMap<i64, String> = HashMap::new();
    let serial = "SET max_parallel_workers_per_gather = 0";
    let mut check = |settings: &str, statement: &str| {
        run_each(&mut client, settings);
        let id = planid(&mut client, statement);
        if let Some(same) = known.insert(id, format!("{settings}: {statement}")) {
            let explained = first_column(&mut client, &format!("EXPLAIN {statement}"));
            panic!("{settings}: {statement} has the planid of {same}: {explained:#?}");
        }
    };
    check("", "SELECT * FROM t WHERE val < 5");
    check(serial, "SELECT * FROM t WHERE val < 5");
    check("", "SELECT * FROM u WHERE val < 5");
    check("", "SELECT * FROM other.t WHERE val < 5");
    check("", "SELECT * FROM t JOIN u USING (id) JOIN v USING (id)");
    check("", "SELECT * FROM t JOIN v USING (id) JOIN u USING (id)");
    check("", "SELECT * FROM u JOIN t USING (id) JOIN v USING (id)");
    check("SET enable_hashjoin = off", "SELECT * FROM t JOIN u USING (id)");
    check("RESET enable_hashjoin", "SELECT * FROM t JOIN u USING (id)");
    check("", "SELECT * FROM t LEFT JOIN u USING (id)");
    check(
        "",
        "SELECT * FROM t WHERE EXISTS (SELECT FROM u WHERE u.id = t.id)",
    );
    check("", "SELECT * FROM t ORDER BY id");
    check("", "SELECT * FROM t ORDER BY id DESC");
    check("", "SELECT * FROM t ORDER BY id NULLS FIRST");
    check("", "SELECT * FROM t ORDER BY val");
    check("", "SELECT * FROM t ORDER BY val, id");
    check("", "SELECT val, count(*) FROM t GROUP BY 1");
    check(
        "SET enable_hashagg = off",
        "SELECT val, count(*) FROM t GROUP BY 1",
    );
    check("", "SELECT id, count(*) FROM t GROUP BY 1");
    check("", "SELECT DISTINCT val FROM t");
    check("", "SELECT DISTINCT id FROM t");
    check("", "SELECT val, count(*) FROM t GROUP BY GROUPING SETS ((1), ())");
    check(
        "",
        "SELECT val, id, count(*) FROM t GROUP BY GROUPING SETS ((1), (2), ())",
    );
    check(
        "SET enable_incremental_sort = off",
        "SELECT rank() OVER (PARTITION BY val) FROM t ORDER BY val, id",
    );
    check(
        "",
        "SELECT rank() OVER (PARTITION BY val ORDER BY id) FROM t ORDER BY val, id",
    );
    check("", "SELECT id FROM t EXCEPT SELECT id FROM u");
    check("RESET enable_hashagg", "SELECT id FROM t EXCEPT SELECT id FROM u");
    check("", "SELECT id FROM t INTERSECT SELECT id FROM u");
    check("", "SELECT id FROM t EXCEPT ALL SELECT id FROM u");
    check("", "DELETE FROM t WHERE id < 0");
    check("", "UPDATE t SET val = 0 WHERE id < 0");
    check("", "SELECT * FROM generate_series(1, 2)");
    check("", "SELECT * FROM json_array_elements('[1]')");
    // How many workers there are does not count.
    let statement = "SELECT * FROM t WHERE val < 5";
    for workers in [1, 2] {
        run_each(
            &mut client,
            &format!("SET max_parallel_workers_per_gather = {workers}"),
        );
        assert_eq!(
            known.get(&planid(&mut client, statement)).map(String::as_str),
            Some(": SELECT * FROM t WHERE val < 5")
        );
    }
}

/// Constants of an index may contain the OIDs of types and labels.
#[test]
fn types_that_are_made_again_are_the_same() {
    let server = basic_server("identity-types", &[]);
    let mut client = server.connect();
    let statement = "SELECT id FROM t WHERE mood IN ('sad', 'happy') AND span <@ '[1,9)'::span AND id > 5";
    let mut make = |labels: &str, conditions: &str| {
        run_each(
            &mut client,
            &format!(
                "DROP TABLE IF EXISTS t; DROP TYPE IF EXISTS mood, span, point3;
                 CREATE TYPE mood AS ENUM ({labels}); CREATE TYPE span AS RANGE (subtype = int8); CREATE TYPE point3 AS (x int, y mood);
                 CREATE TABLE t (id int, mood mood, span span, point point3);
                 INSERT INTO t SELECT i, 'sad', '[1,2)' FROM generate_series(1, 100) i; ANALYZE t;
                 CREATE INDEX i ON t (id, (point = ANY (ARRAY['(1,)', '(2,)']::point3[]))) WHERE {conditions};
                 SET enable_seqscan = off; SET enable_bitmapscan = off"
            ),
        );
        let plan = first_column(&mut client, &format!("EXPLAIN {statement}")).join("\n");
        assert!(plan.contains(" i on t"), "{conditions}: {plan}");
        planid(&mut client, statement)
    };
    let conditions = "mood IN ('sad', 'happy') AND span <@ '[1,9)'::span";
    let first = make("'sad', 'happy'", conditions);
    assert_eq!(make("'none', 'sad', 'happy'", conditions), first);
    let others = [
        "mood IN ('sad', 'happy')",
        "mood IN ('sad', 'happy', NULL)",
        "span <@ '[1,9)'::span",
        "span <@ '[1,9)'::span AND id > 3",
        "mood IN ('sad', 'happy') AND id > 4",
    ];
    let mut planids: Vec<i64> = others.map(|other| make("'sad', 'happy'", other)).to_vec();
    planids.extend([
        first,
        make("'sad', 'happy', 'other'", "mood IN ('sad', 'happy', 'other')"),
    ]);
    planids.sort_unstable();
    planids.dedup();
    assert_eq!(planids.len(), 7, "{planids:?}");
}

/// A relation that gets another name is another plan, although the session keeps it ready under the same
/// OIDs.
#[test]
fn a_renamed_table_is_another_plan() {
    let server = basic_server("identity-renamed", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id; CREATE SCHEMA s");
    let first = planid(&mut client, "SELECT * FROM t");
    assert_eq!(planid(&mut client, "SELECT * FROM t"), first);
    run_each(&mut client, "ALTER TABLE t RENAME TO u");
    let renamed = planid(&mut client, "SELECT * FROM u");
    assert_eq!(planid(&mut client, "SELECT * FROM u"), renamed);
    run_each(&mut client, "ALTER TABLE u SET SCHEMA s");
    let moved = planid(&mut client, "SELECT * FROM s.u");
    assert_eq!(planid(&mut server.connect(), "SELECT * FROM s.u"), moved);
    assert!(
        first != renamed && renamed != moved && moved != first,
        "{first} {renamed} {moved}"
    );
    run_each(
        &mut client,
        "ALTER TABLE s.u SET SCHEMA public; ALTER TABLE u RENAME TO t",
    );
    assert_eq!(planid(&mut client, "SELECT * FROM t"), first);
    let shown: i64 = value(
        &mut client,
        &format!(
            "SELECT count(*) FROM pg_stat_rowsource_plans WHERE planid IN ({first}, {renamed}, {moved})"
        ),
    );
    assert_eq!(shown, 3);
}

/// Planids stay after a restart, and after a dump is restored elsewhere.
#[test]
fn a_restart_and_a_restored_dump_change_nothing() {
    let mut server = basic_server("identity-dump", &[]);
    let mut client = server.connect();
    run_each(&mut client, TABLES);
    run_each(&mut client, "ALTER TABLE t DROP gone");
    let first = planid(&mut client, BY_NAME);
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
    );
    assert_eq!(planid(&mut client, BY_NAME), first);
    let calls: i64 = value(
        &mut client,
        &format!("SELECT sum(calls)::int8 FROM pg_stat_rowsource_plans WHERE planid = {first}"),
    );
    assert_eq!(calls, 2);
    run_each(&mut client, "CREATE DATABASE restored");
    let socket = server.folder().to_string_lossy().into_owned();
    let dump = server.folder().join("dump.sql");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(environment().pgbin.join(program))
            .args(
                ["-X", "-h", &socket, "-U", "postgres"]
                    .iter()
                    .filter(|option| program == "psql" || **option != "-X"),
            )
            .args(arguments)
            .output()
            .expect("the program runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    std::fs::write(&dump, run("pg_dump", &["postgres"])).expect("the dump is written");
    run(
        "psql",
        &[
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "restored",
            "-f",
            &dump.to_string_lossy(),
        ],
    );
    let mut client = server
        .try_connect_to("postgres", "restored")
        .expect("a connection");
    run_each(
        &mut client,
        "SET enable_seqscan = off; SET enable_bitmapscan = off; ANALYZE t",
    );
    assert_eq!(planid(&mut client, BY_NAME), first);
    let queryids: i64 = value(
        &mut client,
        &format!("SELECT count(DISTINCT queryid) FROM pg_stat_rowsource_plans WHERE planid = {first}"),
    );
    // The planid is made of names. The queryid has the OID of the table before 18, and in each major the
    // numbers of the columns, which have moved up: the dropped one is not restored.
    assert_eq!(queryids, 2);
}

/// Runs a statement in a new session, and returns how often that searched indexes of catalogs: a description
/// does more of it.
fn scans_of_catalogs(server: &Server, sql: &str) -> i64 {
    let mut new = server.connect();
    run_each(
        &mut new,
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET pg_rowsource.statistics_level = typical",
    );
    run_each(&mut new, "BEGIN");
    new.simple_query(sql).expect("the statement runs");
    run_each(&mut new, "SET pg_rowsource.statistics_level = basic");
    value(
        &mut new,
        "SELECT sum(pg_stat_get_xact_numscans(indexrelid))::int8 FROM pg_index
          WHERE indrelid < 16384",
    )
}

/// A new session describes nothing that the store has.
#[test]
fn a_new_session_describes_no_known_plan() {
    let server = basic_server("identity-known", &[SHIPPED]);
    let mut client = server.connect();
    run_each(&mut client, TABLES);
    let statement = BY_NAME.replace(" t ", " public.t ");
    let scans = || scans_of_catalogs(&server, &statement);
    let (first, known) = (scans(), scans());
    assert!(first > known, "{first} {known}");
    assert_eq!(scans(), known);
    // Its index has another OID and the same name: one session describes it again, and no other.
    run_each(&mut client, "REINDEX INDEX CONCURRENTLY t_name");
    let again = scans();
    assert!(again > known, "{again} {known}");
    assert_eq!(scans(), known);
    let calls: Vec<i64> = client
        .query(
            "SELECT calls FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM public.t WHERE lower%'",
            &[],
        )
        .expect("the view is read")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(calls.iter().sum::<i64>(), 5);
}
