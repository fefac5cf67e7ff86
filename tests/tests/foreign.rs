//! Nothing that belongs to another extension runs because the library looks at a plan. The other extension is
//! a small one in C, `explain_probe`: its functions for EXPLAIN do what a setting says.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::explain::first_column;
use rowsource_tests::explain_probe::{
    OPERATIONS, allow, assert_commits, calls, count, create_type, probed, session,
};
use rowsource_tests::process;
use rowsource_tests::session::{major, must_fail, run_each, texts, value};

/// What a function of EXPLAIN may do, and the settings of the session.
const ACTIONS: [(&str, &str); 15] = [
    ("none", ""),
    ("consume", ""),
    ("changes_rows", ""),
    ("sleep", ""),
    ("sleep", "SET statement_timeout = '2500ms'"),
    ("deaf", "SET statement_timeout = '2500ms'"),
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
    run_each(&mut client, "UPDATE far SET a = 7; DELETE FROM far WHERE a > 0");
    let changed = texts(
        &mut client,
        "SELECT split_part(query, ' ', 1), rows FROM rowsource_top_statements WHERE query ~ '^(UPDATE|DELETE)' ORDER BY 1",
    );
    let row = |command: &str| vec![Some(command.to_owned()), Some("3".to_owned())];
    assert_eq!(changed, [row("DELETE"), row("UPDATE")]);
    assert_eq!(calls(&mut client), 0);
    // EXPLAIN itself calls them.
    run_each(&mut client, "EXPLAIN SELECT * FROM indexed WHERE id = 7");
    let by_hooks = calls(&mut client);
    // From 18 on, there are one for each plan and one for each node, too.
    let expected = if major(&mut client) >= 18 { 3 } else { 1 };
    assert_eq!(by_hooks, expected, "the hooks are set again");
    run_each(&mut client, "EXPLAIN SELECT * FROM far");
    assert!(
        calls(&mut client) > by_hooks,
        "the foreign table has its functions again"
    );
    run_each(&mut client, "SET explain_probe.hooks = off");
    let before = calls(&mut client);
    for statement in ["INSERT INTO far VALUES (1)", "UPDATE far SET a = 7"] {
        run_each(&mut client, &format!("EXPLAIN {statement}"));
    }
    assert_eq!(calls(&mut client), before + 2, "so it has for changes");
    // Those that are allowed are called once for each plan.
    let mut client = session(&server, "none");
    allow(&mut client);
    run_each(
        &mut client,
        "INSERT INTO far VALUES (1), (2), (3); UPDATE far SET a = a + 7",
    );
    assert_eq!(calls(&mut client), 2);
    server.assert_no_crash();
}

/// The hooks of planner, object access and messages are not called while a query is described, which is when
/// the executor starts it.
#[test]
fn other_hooks_do_not_run() {
    let server = probed("foreign-hooks");
    let mut client = session(&server, "none");
    run_each(
        &mut client,
        "CREATE SCHEMA other; CREATE TABLE other.t (a int PRIMARY KEY, t text CHECK (length(t) < 9)); INSERT INTO other.t VALUES (1, 'x');
         SELECT count(*) FROM other.t; SELECT rowsource_reset(); SET explain_probe.hooks = on",
    );
    let statements = [
        "SELECT * FROM other.t WHERE a = 1 AND t LIKE 'x%'",
        "SELECT t::regclass, a::varchar(3), now() FROM other.t WHERE t = 'no table'",
        "SELECT t, sum(a) OVER (ORDER BY t) FROM other.t GROUP BY GROUPING SETS ((t, a), ())",
        "WITH x AS MATERIALIZED (SELECT * FROM other.t) SELECT * FROM x JOIN probed USING (a) JOIN far USING (a)",
        "INSERT INTO other.t SELECT a + 100, 'y' FROM far ON CONFLICT (a) DO UPDATE SET t = 'z'",
        "UPDATE other.t SET t = 'u' WHERE a IN (SELECT a FROM far)",
        "DELETE FROM other.t WHERE a > 1000",
    ];
    for keep in ["off", "on"] {
        run_each(&mut client, &format!("SET pg_rowsource.keep_constants = {keep}"));
        for statement in statements {
            run_each(&mut client, statement);
        }
    }
    let described: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query ~ 'other'",
    );
    assert!(described >= 7, "{described} plans");
    assert_eq!(calls(&mut client), 0);
    // A function for EXPLAIN that runs a query calls them.
    let mut client = session(&server, "spi SELECT count(*) FROM effects");
    allow(&mut client);
    run_each(
        &mut client,
        "SET explain_probe.hooks = on; SELECT count(*), 4 FROM probed",
    );
    assert!(
        calls(&mut client) > 1,
        "the hooks count while a query is described"
    );
    server.assert_no_crash();
}

/// A new search path is computed by whoever needs it first. That asks object_access_hook for each schema, so
/// it is not the library.
#[test]
fn the_search_path_is_left_to_the_statement() {
    let server = probed("foreign-path");
    let mut client = session(&server, "none");
    run_each(
        &mut client,
        "CREATE SCHEMA other; CREATE TABLE other.t (a int PRIMARY KEY, t text);
         SELECT rowsource_reset(); SET pg_rowsource.track = 'all'",
    );
    let function =
        "CREATE FUNCTION atomic() RETURNS bigint VOLATILE LANGUAGE sql SET search_path = other, pg_catalog
             BEGIN ATOMIC SELECT count(*) FROM other.t; END";
    client.batch_execute(function).expect("the function");
    // Names are not looked up in these, or not after the path has changed.
    let statements = [
        "SET search_path = other, public; TABLE other.t",
        "SET search_path = public; SELECT 'x'::pg_catalog.text, a FROM other.t WHERE t IS NULL",
        "SET search_path = other; SELECT public.atomic()",
    ];
    let asked = |client: &mut Client, statement: &str| {
        value::<i32>(client, "SELECT public.explain_probe_searches()");
        run_each(client, statement);
        value::<i32>(client, "SELECT public.explain_probe_searches()")
    };
    let mut each = |level: &str| {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.statistics_level = {level}"),
        );
        statements.map(|statement| asked(&mut client, statement))
    };
    let without = each("basic");
    assert!(
        without.iter().any(|asked| *asked > 0),
        "the hook is called: {without:?}"
    );
    assert_eq!(each("typical"), without);
    let recorded = first_column(
        &mut client,
        "SELECT query FROM public.pg_stat_rowsource_plans WHERE query !~ 'explain_probe|SET|rowsource' ORDER BY 1",
    );
    // The function's query has no text of its own, and printing it needs the path.
    assert_eq!(
        recorded,
        [
            "(no text)",
            "SELECT 'x'::pg_catalog.text, a FROM other.t WHERE t IS NULL",
            "SELECT public.atomic()",
            "TABLE other.t"
        ]
    );
    server.assert_no_crash();
}

/// Where nothing can be written, or the transaction fails, or other processes share it.
#[test]
fn a_description_in_any_transaction() {
    let server = probed("foreign-transactions");
    let mut client = session(&server, "none");
    run_each(
        &mut client,
        "CREATE FUNCTION one() RETURNS int LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1000000 AS
             'DECLARE n int; BEGIN EXECUTE ''SELECT count(*), 91 FROM kept k JOIN effects e ON k.t = e.t'' INTO n; RETURN 1 + n; END';
         CREATE TABLE many AS SELECT i AS a FROM generate_series(1, 1000) i; ALTER TABLE many SET (parallel_workers = 2); ANALYZE many;
         SELECT rowsource_reset(); SET pg_rowsource.track = 'all'",
    );
    run_each(&mut client, "BEGIN READ ONLY");
    assert_eq!(value::<i64>(&mut client, &count(1)), 3);
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM far"), 3);
    run_each(&mut client, "COMMIT");
    // Its statements are described in a subtransaction that fails, after one that has failed.
    let failing = format!(
        "DO $$BEGIN BEGIN EXECUTE '{}'; PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN EXECUTE '{}'; END; EXECUTE '{}'; PERFORM 1/0; END$$",
        count(2),
        count(3),
        count(4)
    );
    let (code, message) = must_fail(&mut client, &failing);
    assert_eq!(code, SqlState::DIVISION_BY_ZERO, "{message}");
    for number in 2..5 {
        assert_eq!(value::<i64>(&mut client, &count(number)), 3);
    }
    // In workers, and in a leader that works alone.
    let setting = if major(&mut client) >= 16 {
        "debug_parallel_query"
    } else {
        "force_parallel_mode"
    };
    for workers in [2, 0] {
        run_each(
            &mut client,
            &format!(
                "SET {setting} = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
                 SET max_parallel_workers = {workers}"
            ),
        );
        assert_eq!(
            value::<i64>(&mut client, "SELECT sum(one()) FROM many"),
            1000,
            "{workers} workers"
        );
        let shown = first_column(
            &mut client,
            "SELECT rowsource_display(queryid, planid) FROM pg_stat_rowsource_plans WHERE query LIKE '%FROM many'",
        );
        assert!(shown.iter().any(|line| line.contains("Gather")), "{shown:?}");
    }
    assert_eq!(calls(&mut client), 0);
    let log = server.log();
    let errors = log.matches("ERROR").count();
    assert!(!log.contains("WARNING") && errors == 1, "{errors} errors: {log}");
    server.assert_no_crash();
}

/// There is not enough memory for a description. The statement then fails for lack of memory, or its plan has
/// none.
#[test]
fn a_description_without_memory_does_not_crash() {
    let server = probed("foreign-memory");
    create_type(&mut session(&server, "none"));
    let (mut failed, mut succeeded) = (0, 0);
    for round in 0..24u64 {
        // A new session for each, because memory that one statement freed would be available to the next.
        let mut client = session(&server, "none");
        if round % 2 == 1 {
            allow(&mut client);
        }
        let parts: Vec<String> = (0..300)
            .map(|part| format!("same(a, '{}'::probe) > {part}", part + round))
            .collect();
        let statement = format!(
            "SELECT count(*) FROM ints JOIN probed USING (a) JOIN far USING (a) WHERE a > {round} OR {}",
            parts[..100 + round as usize].join(" OR ")
        );
        let pid = value::<i32>(&mut client, "SELECT pg_backend_pid()") as u32;
        run_each(
            &mut client,
            "SELECT count(*) FROM far; SELECT count(*), 1 FROM probed",
        );
        let more = (128 * 1024) << (round / 4);
        process::limit_address_space(pid, Some(process::address_space(pid) + more));
        match client.batch_execute(&statement) {
            Ok(()) => succeeded += 1,
            Err(error) => {
                let said = error
                    .as_db_error()
                    .unwrap_or_else(|| panic!("{more} bytes: {error}\n{}", server.log_extract()));
                assert_eq!(*said.code(), SqlState::OUT_OF_MEMORY, "{more} bytes: {said}");
                failed += 1;
            }
        }
        process::limit_address_space(pid, None);
        assert_eq!(value::<i64>(&mut client, &count(2)), 3, "the session works");
        assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM far"), 3);
    }
    println!("{failed} failed, {succeeded} succeeded");
    assert!(
        failed > 3 && succeeded > 3,
        "the limits are too low or too high: {failed} failed"
    );
    server.assert_no_crash();
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
