//! Features of PostgreSQL 18 and newer.

use rowsource_tests::compiled;
use rowsource_tests::explain::explain_json;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int); INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) i;
    CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); VACUUM ANALYZE";

#[test]
fn another_extensions_plan_id_is_shown_beside_ours_pg18_plus() {
    let library = compiled::object("planid/planid.c");
    let server = basic_server(
        "planid",
        &[
            "plan_cache_mode = 'force_generic_plan'",
            &format!("shared_preload_libraries = 'pg_rowsource, {}'", library.display()),
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    measured(&mut client, "SELECT count(*) FROM t WHERE grp = 1");
    let planids: Vec<Vec<Option<String>>> = texts(
        &mut client,
        "SELECT assigned_planid, planid <> 42 FROM pg_stat_rowsource_plans WHERE query LIKE '%count(*) FROM t%'",
    );
    assert_eq!(planids, [[Some("42".to_owned()), Some("t".to_owned())]]);
    // Its number is shown of a plan of partitions, too, which is one plan whichever of them is scanned.
    run_each(
        &mut client,
        "PREPARE pruned (int) AS SELECT count(*) FROM p WHERE id = $1",
    );
    for id in [1, 1, 11] {
        measured(&mut client, &format!("EXECUTE pruned({id})"));
    }
    let scans = texts(
        &mut client,
        "SELECT p.assigned_planid, s.object_name, s.executions FROM pg_stat_rowsource s
         JOIN pg_stat_rowsource_plans p USING (queryid, planid) WHERE p.query LIKE 'PREPARE pruned%' AND s.operation = 'Seq Scan'
         GROUP BY 1, 2, 3 ORDER BY 2",
    );
    let scans: Vec<String> = scans
        .into_iter()
        .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(scans, ["42 p 3"]);
}

#[test]
fn auto_respects_the_servers_clock_pg19_plus() {
    let server = basic_server("clock-source", &[]);
    let mut client = server.connect();
    const AUTO: &str = "SELECT clock_source FROM rowsource_clocks(1000) WHERE auto";
    let chosen: String = value(&mut client, AUTO);
    run_each(&mut client, "SET timing_clock_source = 'system'");
    assert_eq!(value::<String>(&mut client, AUTO), "system");
    measured(&mut client, "SELECT 4711");
    assert_eq!(
        value::<String>(
            &mut client,
            "SELECT p.clock_source FROM rowsource_last() JOIN pg_stat_rowsource_plans p USING (queryid, planid)"
        ),
        "system"
    );
    run_each(&mut client, "SET timing_clock_source = 'auto'");
    assert_eq!(value::<String>(&mut client, AUTO), chosen);
    // The user's own choice stays in effect.
    run_each(
        &mut client,
        "SET timing_clock_source = 'system'; SET pg_rowsource.clock_source = 'coarse'",
    );
    measured(&mut client, "SELECT 4711");
    assert_eq!(
        value::<String>(
            &mut client,
            "SELECT p.clock_source FROM rowsource_last() JOIN pg_stat_rowsource_plans p USING (queryid, planid)"
        ),
        "coarse"
    );
}

fn scan_below(node: &serde_json::Value) -> Option<&serde_json::Value> {
    if node["Node Type"] == "Seq Scan" {
        return Some(node);
    }
    node["Plans"].as_array()?.iter().find_map(scan_below)
}

/// 19 shows each scan's asynchronous I/O, with core's counts, whether core or the sampler takes the times.
#[test]
fn the_servers_io_is_shown_as_ever_pg19_plus() {
    let server = basic_server("io", &["shared_buffers = '64MB'"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_buffercache; CREATE TABLE read AS SELECT i AS id, repeat('x', 100) AS pad FROM generate_series(1, 100000) i;
         VACUUM (FREEZE, ANALYZE) read; CHECKPOINT; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
    );
    for workers in [0, 2] {
        run_each(
            &mut client,
            &format!("SET max_parallel_workers_per_gather = {workers}"),
        );
        let [core, sampled] = ["ANALYZE, IO", "ANALYZE, IO, SAMPFREQ 16"].map(|options| {
            run_each(&mut client, "SELECT pg_buffercache_evict_relation('read')");
            let json = explain_json(
                &mut client,
                "SELECT count(pad) FROM read",
                &format!("{options}, FORMAT JSON"),
            );
            scan_below(&json[0]["Plan"])
                .and_then(|node| node.as_object().cloned())
                .unwrap_or_else(|| panic!("no scan: {json:#}"))
        });
        let names =
            |node: &serde_json::Map<String, serde_json::Value>| node.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&sampled), names(&core), "{workers} workers");
        assert!(
            core["I/O Count"].as_i64().is_some_and(|count| count > 10),
            "{core:#?}"
        );
        if workers == 0 {
            assert_eq!(sampled["I/O Count"], core["I/O Count"]);
        }
    }
}

/// pg_plan_advice says what makes the planner choose a plan again. The command in a regression's row brings
/// the plan before back.
#[test]
fn a_regression_has_the_command_that_brings_the_plan_before_back_pg19_plus() {
    let server = basic_server(
        "plan-advice",
        &[
            "shared_preload_libraries = 'pg_rowsource, pg_plan_advice'",
            "pg_rowsource.snapshot_interval = 0",
        ],
    );
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
         CREATE INDEX ON orders (customer); VACUUM (FREEZE, ANALYZE) orders;
         SET pg_rowsource.statistics_level = typical; SET enable_bitmapscan = off;
         SET pg_plan_advice.always_store_advice_details = on",
    );
    const QUERY: &str = "SELECT count(note) FROM orders \"it's\" WHERE customer = 42";
    let mut run = |sql: &str| {
        run_each(&mut client, sql);
        (0..20).for_each(|_| run_each(&mut client, QUERY));
    };
    run("SELECT");
    run(
        "SET seq_page_cost = 0; SET cpu_tuple_cost = 0; SET cpu_operator_cost = 0; SET random_page_cost = 1000",
    );
    run_each(&mut client, "SELECT rowsource_judge()");
    let advice = texts(
        &mut client,
        "SELECT plan_advice FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(note)%' ORDER BY first_seen_at",
    );
    let advice: Vec<String> = advice.into_iter().flatten().flatten().collect();
    assert_eq!(advice.len(), 2, "{advice:?}");
    assert!(
        advice[0].contains("INDEX_SCAN") && advice[1].contains("SEQ_SCAN"),
        "{advice:?}"
    );
    let command: String = value(&mut client, "SELECT advice_command FROM rowsource_regressions()");
    let plan = |client: &mut postgres::Client| format!("{:?}", texts(client, &format!("EXPLAIN {QUERY}")));
    assert!(plan(&mut client).contains("Seq Scan"));
    run_each(&mut client, &command);
    assert!(plan(&mut client).contains("Index Scan"), "{command}");
    server.assert_no_crash();
}

/// Without that module, nothing but the advice is missing.
#[test]
fn without_pg_plan_advice_there_is_no_command_pg19_plus() {
    let server = basic_server("no-plan-advice", &[]);
    let mut client = server.session();
    measured(&mut client, "SELECT 4711 AS marker");
    let advice = texts(
        &mut client,
        "SELECT plan_advice FROM pg_stat_rowsource_plans WHERE query LIKE '%AS marker'",
    );
    assert_eq!(advice, [[None]]);
    server.assert_no_crash();
}
