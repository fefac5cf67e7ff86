//! The views keep what EXPLAIN (ANALYZE) shows of a node besides rows, time and blocks: of the last execution
//! and of all of them, also of statements that did not complete. `equality` compares every such fact with
//! core's.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, must_fail, run_each, value};
use serde_json::{Value, json};

fn server(name: &str) -> (Server, Client) {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id, i % 100 AS k, repeat('x', 50) AS pad FROM generate_series(1, 20000) i;
         CREATE INDEX n_id ON n (id); VACUUM ANALYZE n; SET pg_rowsource.statistics_level = typical",
    );
    (server, client)
}

/// Returns an expression on the node of the last statement that has this operation.
fn of_node(client: &mut Client, operation: &str, expression: &str) -> Value {
    let text: String = value(
        client,
        &format!(
            "SELECT to_jsonb({expression})::text FROM pg_stat_rowsource
             WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last()) AND operation = '{operation}'"
        ),
    );
    serde_json::from_str(&text).expect("JSON")
}

fn details(client: &mut Client, operation: &str) -> Value {
    of_node(client, operation, "last_details")
}

#[test]
fn sums_are_kept_of_all_executions_and_of_the_last() {
    let (server, mut client) = server("facts");
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
         PREPARE q (int) AS SELECT count(*) FROM n WHERE id < 1000 AND k >= $1",
    );
    for k in [10, 20, 90] {
        run_each(&mut client, &format!("EXECUTE q ({k})"));
    }
    // Of the numbers below 1,000, ten have each remainder, but only nine have the remainder 0.
    let all = "ARRAY[rows, last_rows, rows_removed, last_rows_removed, heap_fetches]";
    assert_eq!(
        of_node(&mut client, "Index Scan", all),
        json!([900 + 800 + 100, 100, 99 + 199 + 899, 899, null])
    );
    let removed = "ARRAY[details -> 'Rows Removed by Filter', last_details -> 'Rows Removed by Filter']";
    assert_eq!(of_node(&mut client, "Index Scan", removed), json!([1197, 899]));
    // An aggregate without a filter removes nothing.
    let nothing = "coalesce(rows_removed, heap_fetches) IS NULL AND details IS NULL AND last_details IS NULL";
    assert_eq!(of_node(&mut client, "Aggregate", nothing), json!(true));

    // The index alone is enough after VACUUM, until a page changes.
    let only = "SELECT count(id) FROM n WHERE id < 500";
    run_each(&mut client, only);
    assert_eq!(
        of_node(&mut client, "Index Only Scan", "last_heap_fetches"),
        json!(0)
    );
    run_each(&mut client, "UPDATE n SET pad = '' WHERE id < 10");
    run_each(&mut client, only);
    let fetches = of_node(&mut client, "Index Only Scan", "last_heap_fetches");
    let sums = of_node(&mut client, "Index Only Scan", "heap_fetches");
    assert!(fetches.as_u64() > Some(9), "{fetches}");
    assert_eq!(sums, fetches);
    assert_eq!(details(&mut client, "Index Only Scan")["Heap Fetches"], fetches);
    server.assert_no_crash();
}

#[test]
fn peaks_and_methods_of_many_executions() {
    let (server, mut client) = server("facts-peaks");
    let sort = "SELECT count(*) FROM (SELECT id, pad FROM n ORDER BY pad, id DESC OFFSET 0) x";
    run_each(&mut client, "SET work_mem = '16MB'");
    run_each(&mut client, sort);
    assert_eq!(details(&mut client, "Sort")["Sort Method"], "quicksort");
    run_each(&mut client, "SET work_mem = '64kB'");
    run_each(&mut client, sort);
    let last = details(&mut client, "Sort");
    assert_eq!(
        (&last["Sort Method"], &last["Sort Space Type"]),
        (&json!("external merge"), &json!("Disk"))
    );
    assert_eq!(
        of_node(&mut client, "Sort", "last_disk_kb"),
        last["Sort Space Used"]
    );
    let total = of_node(&mut client, "Sort", "details");
    assert_eq!(total["Sort Method"], "external merge");
    assert_eq!(total["Sort Methods Used"], json!(["quicksort", "external merge"]));
    let all = value::<String>(
        &mut client,
        "SELECT rowsource_explain(queryid, planid, which => 'mean', format => 'json') FROM rowsource_last()",
    );
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let sort = &all[0]["Plan"]["Plans"][0];
    assert_eq!(
        (&sort["Sort Method"], &sort["Sort Methods Used"]),
        (&json!("external merge"), &json!(["quicksort", "external merge"])),
        "{all}"
    );

    let join = "SELECT count(*) FROM n a JOIN n b ON a.id = b.id";
    run_each(
        &mut client,
        "SET enable_mergejoin = off; SET enable_nestloop = off; SET work_mem = '64kB'",
    );
    run_each(&mut client, join);
    let small = details(&mut client, "Hash");
    assert!(small["Hash Batches"].as_u64() > Some(4), "{small}");
    server.assert_no_crash();
}

#[test]
fn changed_rows_are_counted() {
    let (server, mut client) = server("facts-dml");
    run_each(&mut client, "CREATE TABLE d (id int PRIMARY KEY, v int)");
    for (statement, operation, expected) in [
        (
            "INSERT INTO d SELECT i, 0 FROM generate_series(1, 50) i",
            "Insert",
            json!({"Tuples Inserted": 50}),
        ),
        (
            "INSERT INTO d SELECT i, 0 FROM generate_series(41, 60) i ON CONFLICT DO NOTHING",
            "Insert",
            json!({"Tuples Inserted": 10, "Conflicting Tuples": 10}),
        ),
        (
            "UPDATE d SET v = 1 WHERE id <= 30",
            "Update",
            json!({"Tuples Updated": 30}),
        ),
        ("DELETE FROM d WHERE id > 55", "Delete", json!({"Tuples Deleted": 5})),
        (
            "MERGE INTO d USING generate_series(51, 60) i ON d.id = i WHEN MATCHED AND i = 51 THEN DELETE
             WHEN MATCHED AND i < 54 THEN UPDATE SET v = 2 WHEN NOT MATCHED AND i < 60 THEN INSERT VALUES (i, 3)",
            "Merge",
            json!({"Tuples Inserted": 4, "Tuples Updated": 2, "Tuples Deleted": 1, "Tuples Skipped": 3}),
        ),
    ] {
        run_each(&mut client, statement);
        assert_eq!(details(&mut client, operation), expected, "{statement}");
    }
    // PostgreSQL counts the rows of the statement's result only, not those of a CTE.
    run_each(
        &mut client,
        "WITH gone AS (DELETE FROM d WHERE id < 4 RETURNING id) UPDATE d SET v = 5 FROM gone WHERE d.id = gone.id + 10",
    );
    assert_eq!(details(&mut client, "Update"), json!({"Tuples Updated": 3}));
    assert_eq!(of_node(&mut client, "Delete", "last_rows"), json!(3));
    assert_eq!(
        of_node(&mut client, "Delete", "last_details IS NULL"),
        json!(true)
    );
    server.assert_no_crash();
}

#[test]
fn statements_that_did_not_complete_keep_what_they_did() {
    let (server, mut client) = server("facts-failed");
    must_fail(
        &mut client,
        "SELECT id FROM n WHERE 1 / (id - 5000) = 1 OR id < 0 OFFSET 0",
    );
    let scan = details(&mut client, "Seq Scan");
    assert_eq!(scan["Rows Removed by Filter"], 4999, "{scan}");
    // How a scan read ahead is known from 19 on.
    let capacity = scan["Prefetch Capacity"].as_u64();
    assert_eq!(capacity > Some(0), major(&mut client) >= 19, "{scan}");
    // The hash table is complete when the join fails, and its sort has ended.
    run_each(
        &mut client,
        "SET enable_mergejoin = off; SET enable_nestloop = off; SET work_mem = '64kB'",
    );
    must_fail(
        &mut client,
        "SELECT count(*) FROM n a JOIN (SELECT id FROM n ORDER BY pad, id OFFSET 0) b ON a.id = b.id WHERE 1 / (b.id + a.id - 2) > 0",
    );
    let hash = details(&mut client, "Hash");
    assert!(hash["Hash Batches"].as_u64() > Some(1), "{hash}");
    let sort = details(&mut client, "Sort");
    assert_eq!(sort["Sort Method"], "external merge", "{sort}");

    // A cursor that a rollback closes. Memory of core may already be freed then.
    run_each(&mut client, "SET enable_seqscan = on; RESET work_mem");
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT a.id FROM n a WHERE a.id % 100 = 0",
    );
    run_each(&mut client, "FETCH 3 FROM c; ROLLBACK");
    let removed: i64 = value(
        &mut client,
        "SELECT last_rows_removed FROM pg_stat_rowsource JOIN pg_stat_rowsource_plans p USING (queryid, planid)
         WHERE p.query LIKE '%a.id \\% 100 = 0%' AND operation = 'Seq Scan'",
    );
    assert_eq!(removed, 3 * 99);
    server.assert_no_crash();
}

#[test]
fn workers_are_counted() {
    let (server, mut client) = server("facts-workers");
    run_each(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET max_parallel_workers_per_gather = 2",
    );
    let parallel = "SELECT count(*) FROM n WHERE k = 7";
    run_each(&mut client, parallel);
    run_each(&mut client, "SET max_parallel_workers = 0");
    run_each(&mut client, parallel);
    let last = details(&mut client, "Gather");
    assert_eq!(last, json!({"Workers Planned": 2, "Workers Launched": 0}));
    let total = of_node(&mut client, "Gather", "details");
    assert_eq!(total["Workers Planned"], 4, "{total}");
    assert!(total["Workers Launched"].as_u64() > Some(0), "{total}");
    // The filters of all processes are summed up.
    assert_eq!(
        of_node(&mut client, "Parallel Seq Scan", "rows_removed"),
        json!(2 * 19_800)
    );
    server.assert_no_crash();
}

/// Returns an expression on the stored plan whose text is like this.
fn of_plan(client: &mut Client, like: &str, expression: &str) -> Value {
    let sql = format!(
        "SELECT to_jsonb({expression})::text FROM pg_stat_rowsource_plans p
         WHERE query LIKE '{like}' AND query NOT LIKE '%pg_stat_rowsource%' AND query NOT LIKE 'EXPLAIN%'"
    );
    let text: Option<String> = value(client, &sql);
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"))
}

/// Returns the calls and the milliseconds of the triggers whose names are wanted.
fn calls_of(triggers: &Value, is_wanted: impl Fn(&str) -> bool) -> (u64, f64) {
    let all = triggers.as_array().expect("a list");
    let of_name = all
        .iter()
        .filter(|trigger| is_wanted(trigger["Trigger"].as_str().unwrap_or_default()));
    of_name.fold((0, 0.0), |sum, trigger| {
        (
            sum.0 + trigger["Calls"].as_u64().expect("calls"),
            sum.1 + trigger["Time"].as_f64().expect("a time"),
        )
    })
}

#[test]
fn triggers_are_counted_and_timed() {
    let (server, mut client) = server("facts-triggers");
    run_each(
        &mut client,
        "CREATE TABLE parent (id int PRIMARY KEY);
         CREATE TABLE d (id int PRIMARY KEY, v int REFERENCES parent) PARTITION BY RANGE (id);
         CREATE TABLE d1 PARTITION OF d FOR VALUES FROM (0) TO (100);
         CREATE TABLE d2 PARTITION OF d FOR VALUES FROM (100) TO (200);
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END'",
    );
    run_each(
        &mut client,
        "CREATE TRIGGER slow_row BEFORE INSERT ON d2 FOR EACH ROW EXECUTE FUNCTION slow();
         CREATE TRIGGER slow_all AFTER INSERT ON d FOR EACH STATEMENT EXECUTE FUNCTION slow();
         INSERT INTO parent SELECT generate_series(1, 3)",
    );
    let insert = "INSERT INTO d SELECT i, 1 + i % 3 FROM generate_series(90, 104) i";
    for _ in 0..2 {
        run_each(&mut client, insert);
        run_each(&mut client, "TRUNCATE d");
    }
    let triggers = of_plan(&mut client, "INSERT INTO d SELECT%", "details -> 'Triggers'");
    let calls = |name: &str| calls_of(&triggers, |shown| shown.starts_with(name));
    let (rows, ms) = calls("slow_row on public.d2");
    assert_eq!(rows, 10, "{triggers}");
    assert!(ms >= 20.0, "ten calls of 2 ms: {triggers}");
    assert_eq!(calls("slow_all on public.d").0, 2, "{triggers}");
    // The foreign key is checked for each row.
    assert_eq!(calls("\"RI_ConstraintTrigger").0, 30, "{triggers}");

    // A statement without triggers has no such facts.
    let parents = of_plan(&mut client, "INSERT INTO parent%", "details");
    assert_eq!(parents, Value::Null);
    // Data that a CTE changes has triggers too, and an error keeps what ran before it.
    run_each(
        &mut client,
        "WITH added AS (INSERT INTO d SELECT i, 1 FROM generate_series(101, 103) i RETURNING id) SELECT count(*) FROM added",
    );
    must_fail(
        &mut client,
        "INSERT INTO d SELECT i, 1 / (i - 112) FROM generate_series(110, 120) i",
    );
    for (like, times) in [("WITH added%", 3), ("INSERT INTO d SELECT i, 1 / %", 2)] {
        let found = of_plan(&mut client, like, "details -> 'Triggers'");
        let row_trigger = found.as_array().into_iter().flatten().find(|trigger| {
            let name = trigger["Trigger"].as_str();
            name.is_some_and(|name| name.starts_with("slow_row"))
        });
        assert_eq!(
            row_trigger.map(|t| &t["Calls"]),
            Some(&json!(times)),
            "{like}: {found}"
        );
    }
    // A trigger that was dropped has no name, but its calls are known.
    run_each(&mut client, "DROP TABLE d");
    let dropped = of_plan(
        &mut client,
        "INSERT INTO d SELECT i, 1 + %",
        "details -> 'Triggers'",
    );
    let nameless = dropped.as_array().into_iter().flatten();
    assert!(
        nameless.clone().count() > 0 && nameless.clone().all(|t| t["Trigger"].is_null()),
        "{dropped}"
    );
    server.assert_no_crash();
}

#[test]
fn compilation_and_workers_of_statements() {
    let (server, mut client) = server("facts-statement");
    run_each(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET max_parallel_workers_per_gather = 2",
    );
    for _ in 0..2 {
        run_each(&mut client, "SELECT count(*) FROM n WHERE k = 7");
    }
    let workers = of_plan(
        &mut client,
        "SELECT count(*) FROM n WHERE k =%",
        "ARRAY[workers_planned, workers_launched]",
    );
    assert_eq!(workers[0], 4, "{workers}");
    assert!(workers[1].as_u64() <= Some(4), "{workers}");

    run_each(
        &mut client,
        "SET max_parallel_workers_per_gather = 0; SET jit = on; SET jit_above_cost = 0; SET jit_optimize_above_cost = -1",
    );
    let has_jit: bool = value(&mut client, "SELECT pg_jit_available()");
    run_each(&mut client, "SELECT sum(k + 1) FROM n WHERE k % 2 = 0");
    let compiled = of_plan(&mut client, "SELECT sum(k + %", "details");
    if has_jit {
        assert!(compiled["JIT"]["Functions"].as_u64() > Some(0), "{compiled}");
        assert!(
            compiled["JIT"]["Timing"]["Total"].as_f64() > Some(0.0),
            "{compiled}"
        );
    } else {
        assert_eq!(compiled["JIT"], Value::Null);
    }
    server.assert_no_crash();
}

/// PostgreSQL opens the other table only when it fires its trigger.
#[test]
fn triggers_of_referring_tables_are_counted() {
    let (server, mut client) = server("facts-referring");
    run_each(
        &mut client,
        "CREATE TABLE one (id int PRIMARY KEY);
         CREATE TABLE many (id int PRIMARY KEY, one_id int REFERENCES one ON UPDATE CASCADE);
         INSERT INTO one VALUES (1), (2); INSERT INTO many SELECT i, 1 FROM generate_series(1, 5) i",
    );
    run_each(&mut client, "UPDATE one SET id = 7 WHERE id = 1");
    let triggers = of_plan(&mut client, "UPDATE one SET%", "details -> 'Triggers'");
    let calls = |table: &str| calls_of(&triggers, |shown| shown.ends_with(table)).0;
    assert_eq!((calls("public.one"), calls("public.many")), (1, 5), "{triggers}");
    server.assert_no_crash();
}
