//! The planner's estimates are compared with the rows of each execution, if the execution says something
//! about them.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measured, only_kept};

/// `k` is 1 in 10 rows and 2 in all others. The planner knows that.
const TABLES: &str = "
    CREATE TABLE skewed AS SELECT CASE WHEN i <= 10 THEN 1 ELSE 2 END AS k, i AS id FROM generate_series(1, 10000) i;
    CREATE TABLE small AS SELECT i AS id FROM generate_series(1, 100) i;
    CREATE INDEX small_id ON small (id);
    ALTER TABLE skewed ALTER k SET STATISTICS 10000;
    VACUUM ANALYZE skewed; VACUUM ANALYZE small";

fn server(name: &str) -> Server {
    let server = basic_server(name, &["enable_memoize = off"]);
    run_each(&mut server.connect(), TABLES);
    server
}

/// The estimates of one node.
#[derive(Debug, PartialEq)]
struct Judged {
    executions: i64,
    starts: i64,
    expected: f64,
    actual: i64,
    /// The largest factors, rounded.
    under: Option<f64>,
    over: Option<f64>,
}

/// The estimates of a node about which no execution says something.
const NOTHING: Judged = Judged {
    executions: 0,
    starts: 0,
    expected: 0.0,
    actual: 0,
    under: None,
    over: None,
};

/// Returns the estimates of the nodes of the only plan whose text is like this, with their operations.
fn judged(client: &mut Client, like: &str) -> Vec<(String, Judged)> {
    let plan = only_kept(client, like);
    let rows = client
        .query(
            "SELECT operation, compared_executions, compared_starts, compared_plan_rows, compared_rows,
                    round(max_underestimate)::float8, round(max_overestimate)::float8
             FROM pg_stat_rowsource WHERE queryid = $1 AND planid = $2 ORDER BY node_id",
            &[&plan.queryid, &plan.planid],
        )
        .expect("pg_stat_rowsource");
    let node = |row: &postgres::Row| Judged {
        executions: row.get(1),
        starts: row.get(2),
        expected: row.get(3),
        actual: row.get(4),
        under: row.get(5),
        over: row.get(6),
    };
    rows.iter().map(|row| (row.get(0), node(row))).collect()
}

/// Returns the operations that are judged.
fn judged_operations(client: &mut Client, like: &str) -> Vec<String> {
    let nodes = judged(client, like).into_iter();
    nodes
        .filter(|(_, node)| node.executions > 0)
        .map(|(operation, _)| operation)
        .collect()
}

#[test]
fn each_execution_is_compared_with_its_own_estimate() {
    let server = server("estimates");
    let mut client = server.connect();
    measured(
        &mut client,
        "SELECT id FROM skewed WHERE k = 1; SELECT id FROM skewed WHERE k = 2; SELECT id FROM skewed WHERE k = 2",
    );
    let right = |executions, rows| Judged {
        executions,
        starts: executions,
        expected: rows as f64,
        actual: rows,
        under: Some(1.0),
        over: Some(1.0),
    };
    let like = "SELECT id FROM skewed%";
    assert_eq!(
        judged(&mut client, like),
        [("Seq Scan".to_owned(), right(3, 19_990))]
    );
    let listed = "SELECT count(*) FROM rowsource_misestimates WHERE object_name = 'skewed'";
    assert_eq!(value::<i64>(&mut client, listed), 0);
    // The display shows the estimate of the last execution, or the mean.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT id FROM skewed WHERE k = 1",
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let display = |client: &mut Client, format: &str| {
        let lines = first_column(client, &format!("SELECT rowsource_display(format => '{format}')"));
        let line = lines
            .into_iter()
            .find(|line| line.contains("Seq Scan"))
            .expect("the scan");
        line.split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(display(&mut client, "ALLSTATS LAST").contains(&"10".to_owned()));
    assert!(display(&mut client, "ALLSTATS").contains(&"5000".to_owned()));
    let rows: f64 = value(
        &mut client,
        "SELECT plan_rows FROM pg_stat_rowsource WHERE object_name = 'skewed'",
    );
    assert_eq!(rows, 5_000.0);
}

#[test]
fn custom_plans_of_one_planid_are_compared_with_their_own_estimates() {
    let server = server("estimates-custom");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET plan_cache_mode = force_custom_plan; PREPARE p(int) AS SELECT id FROM skewed WHERE k = $1",
    );
    measured(&mut client, &"EXECUTE p(1); EXECUTE p(2);".repeat(3));
    let like = "PREPARE p%";
    let nodes = judged(&mut client, like);
    assert_eq!(
        (nodes[0].1.executions, nodes[0].1.under, nodes[0].1.over),
        (6, Some(1.0), Some(1.0))
    );
    // The generic plan expects 5,000 rows.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SET plan_cache_mode = force_generic_plan",
    );
    measured(&mut client, &"EXECUTE p(1); EXECUTE p(2);".repeat(3));
    let nodes = judged(&mut client, like);
    assert_eq!(
        (nodes[0].1.executions, nodes[0].1.under, nodes[0].1.over),
        (6, Some(2.0), Some(500.0))
    );
    let listed = texts(
        &mut client,
        "SELECT plan_rows, actual_rows, max_factor, verdict FROM rowsource_misestimates WHERE object_name = 'skewed'",
    );
    let row = ["5000", "5000", "500", "varying"].map(|cell| Some(cell.to_owned()));
    assert_eq!(listed, [row]);
}

#[test]
fn executions_that_do_not_complete_say_nothing() {
    let server = server("estimates-partial");
    let mut client = server.connect();
    // A cursor that is closed early, one that is moved back, and one that is never read.
    for fetches in [
        "FETCH 10 FROM c",
        "FETCH ALL FROM c; FETCH BACKWARD ALL FROM c; FETCH ALL FROM c",
        "",
    ] {
        measured(
            &mut client,
            &format!(
                "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id AS cursor FROM skewed WHERE k = 2; {fetches}; CLOSE c; COMMIT"
            ),
        );
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    must_fail(&mut client, "SELECT 1 / (id - 5000) AS failed FROM skewed");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    for (like, calls) in [("%AS cursor%", 2), ("%AS failed%", 1)] {
        let nodes = judged(&mut client, like);
        assert!(
            nodes.iter().all(|(_, node)| *node == NOTHING),
            "{like}: {nodes:#?}"
        );
        let found: i64 = value(
            &mut client,
            &format!(
                "SELECT unfinished_calls + failed_calls FROM pg_stat_rowsource_plans WHERE query LIKE '{like}'"
            ),
        );
        assert!(found >= calls, "{like}: {found}");
        assert_eq!(
            texts(
                &mut client,
                &format!(
                    "SELECT DISTINCT verdict, plan_rows, actual_rows FROM rowsource_misestimates JOIN pg_stat_rowsource_plans USING (queryid, planid) WHERE query LIKE '{like}'"
                )
            ),
            [[Some("not completed".to_owned()), None, None]]
        );
    }
    // These read everything.
    run_each(&mut client, "SELECT rowsource_reset()");
    for fetches in [
        "FETCH ALL FROM c",
        "FETCH 10 FROM c; FETCH ALL FROM c",
        "FETCH 6000 FROM c; FETCH 6000 FROM c; FETCH 0 FROM c",
    ] {
        measured(
            &mut client,
            &format!(
                "BEGIN; DECLARE c CURSOR FOR SELECT id AS cursor FROM skewed WHERE k = 2; {fetches}; CLOSE c; COMMIT"
            ),
        );
    }
    let nodes = judged(&mut client, "%AS cursor%");
    assert_eq!((nodes[0].1.executions, nodes[0].1.actual), (3, 3 * 9_990));
    let unfinished: i64 = value(
        &mut client,
        "SELECT sum(unfinished_calls)::bigint FROM pg_stat_rowsource_plans",
    );
    assert_eq!(unfinished, 0);
}

/// PL/pgSQL asks for one row more than it needs, and then stops.
#[test]
fn what_was_read_before_the_reader_stopped_is_compared() {
    let server = server("estimates-into");
    let mut client = server.session();
    client
        .batch_execute(
            "CREATE FUNCTION sorted() RETURNS int LANGUAGE plpgsql AS
                 'DECLARE r int; BEGIN SELECT id INTO r FROM skewed AS into_sorted ORDER BY id; RETURN r; END';
             CREATE FUNCTION scanned() RETURNS int LANGUAGE plpgsql AS
                 'DECLARE r int; BEGIN SELECT id INTO r FROM skewed AS into_scan; RETURN r; END'",
        )
        .expect("functions");
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    measured(&mut client, "SELECT sorted(), scanned()");
    assert_eq!(judged_operations(&mut client, "%into_sorted%"), ["Seq Scan"]);
    assert!(judged_operations(&mut client, "%into_scan%").is_empty());
}

/// Which nodes are judged: (settings, statement, judged operations).
const STRUCTURES: &[(&str, &str, &[&str])] = &[
    ("", "SELECT 'limit', id FROM skewed LIMIT 3", &["Limit"]),
    (
        "",
        "SELECT 'top', id FROM skewed ORDER BY id LIMIT 3",
        &["Limit", "Seq Scan"],
    ),
    (
        "",
        "SELECT 'aggregate', k, count(*) FROM skewed GROUP BY 2 LIMIT 1",
        &["Limit", "Seq Scan"],
    ),
    (
        "",
        "SELECT 'exists', id FROM small WHERE EXISTS (SELECT FROM skewed WHERE k = 2)",
        &["Result", "Seq Scan"],
    ),
    (
        "",
        "SELECT 'scalar', (SELECT max(id) FROM skewed) FROM small",
        &["Seq Scan", "Aggregate", "Seq Scan"],
    ),
    (
        "SET enable_hashjoin = off; SET enable_mergejoin = off",
        "SELECT 'semi', id FROM small WHERE EXISTS (SELECT FROM skewed WHERE skewed.id > small.id)",
        &["Nested Loop Semi Join", "Seq Scan"],
    ),
    (
        "SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_indexscan = off; SET enable_indexonlyscan = off",
        "SELECT 'merge', a.id FROM small a JOIN skewed b ON a.id = b.id",
        &["Merge Join", "Seq Scan", "Seq Scan"],
    ),
    (
        "SET enable_mergejoin = off; SET enable_nestloop = off",
        "SELECT 'hash', a.id FROM small a JOIN skewed b ON a.id = b.id",
        &["Hash Join", "Seq Scan", "Hash", "Seq Scan"],
    ),
    (
        "",
        "WITH c AS MATERIALIZED (SELECT id FROM skewed) SELECT 'read', id FROM c",
        &["CTE Scan", "Seq Scan"],
    ),
    (
        "",
        "WITH c AS MATERIALIZED (SELECT id FROM skewed) SELECT 'partly', id FROM c LIMIT 5",
        &["Limit"],
    ),
    ("", "SELECT 'never', id FROM skewed WHERE false AND id = 5", &[]),
    // The executor counts no rows of a BitmapOr.
    (
        "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off",
        "SELECT 'bitmaps', id FROM small WHERE id < 5 OR id = 50",
        &["Bitmap Heap Scan", "Bitmap Index Scan", "Bitmap Index Scan"],
    ),
    (
        "",
        "SELECT 'any', id IN (SELECT id FROM skewed) FROM small",
        &["Seq Scan", "Seq Scan"],
    ),
    (
        "",
        "SELECT 'not hashed', id > ANY (SELECT id FROM skewed) FROM small",
        &["Seq Scan"],
    ),
];

#[test]
fn nodes_that_may_stop_early_say_nothing() {
    let server = server("estimates-structure");
    for (settings, statement, expected) in STRUCTURES {
        let mut client = server.connect();
        run_each(&mut client, settings);
        measured(&mut client, statement);
        let beginning = statement.split(',').next().unwrap_or_default();
        let found = judged_operations(&mut client, &format!("{beginning},%"));
        assert_eq!(&found, expected, "{statement}");
    }
}

/// Most executions had more rows than expected, and the worst one had fewer: then no direction is named
/// beside its factor.
#[test]
fn the_verdict_fits_the_factor() {
    let server = server("estimates-verdict");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan; PREPARE p (int) AS SELECT id, k FROM skewed WHERE k = $1",
    );
    let verdict = |client: &mut Client| {
        let sql = "SELECT verdict, max_factor::float8, actual_rows > plan_rows FROM rowsource_misestimates WHERE object_name = 'skewed'";
        let row = client.query_one(sql, &[]).expect("a node");
        (
            row.get::<_, String>(0),
            row.get::<_, f64>(1),
            row.get::<_, bool>(2),
        )
    };
    measured(&mut client, &["EXECUTE p (2)"; 5].join(";"));
    let (said, factor, is_more) = verdict(&mut client);
    assert!(
        said == "underestimated" && factor < 3.0 && is_more,
        "{said} {factor}"
    );
    measured(&mut client, "EXECUTE p (1)");
    let (said, factor, is_more) = verdict(&mut client);
    assert!(said == "varying" && factor > 100.0 && is_more, "{said} {factor}");
}

#[test]
fn what_says_nothing_comes_last_with_a_note() {
    let server = server("estimates-notes");
    let mut client = server.connect();
    measured(
        &mut client,
        "SELECT id FROM skewed WHERE id + 0 = id AND k = k + 0; SELECT id FROM skewed LIMIT 3;
         SELECT a.id FROM small a LEFT JOIN LATERAL (SELECT b.k FROM skewed b WHERE b.k = 2 AND b.id > a.id OFFSET 0) c ON true WHERE a.id < 0",
    );
    let rows = texts(
        &mut client,
        "SELECT object_name, verdict, max_factor, plan_rows, actual_rows FROM rowsource_misestimates
         WHERE object_name IN ('skewed', 'small') OR max_factor IS NOT NULL",
    );
    let judged = rows.iter().filter(|row| row[2].is_some()).count();
    assert!(judged > 0, "{rows:#?}");
    // What is not judged comes last, and shows no rows of other executions.
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(
            [2, 3, 4].map(|column| row[column].is_some()),
            [at < judged; 3],
            "{rows:#?}"
        );
    }
    for verdict in ["may stop early", "never started"] {
        let found = rows[judged..]
            .iter()
            .any(|row| row[1].as_deref() == Some(verdict));
        assert!(found, "{verdict}: {rows:#?}");
    }
}

/// The inner side is started 10,000 times. The planner cannot expect less than one row of each start.
#[test]
fn starts_without_a_row_are_no_overestimate() {
    let server = server("estimates-no-row");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off",
    );
    measured(
        &mut client,
        "SELECT a.id AS inner FROM skewed a JOIN small b ON b.id = a.id",
    );
    let nodes = judged(&mut client, "SELECT a.id AS inner%");
    let inner = &nodes.last().expect("the inner side").1;
    assert_eq!(
        (inner.starts, inner.actual, inner.over),
        (10_000, 100, Some(1.0)),
        "{nodes:#?}"
    );
    assert_eq!(misestimates(&mut client), Vec::<Vec<Option<String>>>::new());
}

/// Returns the nodes that the view lists with a factor.
fn misestimates(client: &mut Client) -> Vec<Vec<Option<String>>> {
    texts(
        client,
        "SELECT operation, plan_rows, actual_rows, max_factor FROM rowsource_misestimates WHERE max_factor IS NOT NULL",
    )
}

/// Below a Gather, the estimate of a scan is for one of the processes that share its rows.
#[test]
fn parallel_scans_are_compared_with_the_estimate_of_all_processes() {
    let server = basic_server(
        "estimates-parallel",
        &[
            "min_parallel_table_scan_size = 0",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, TABLES);
    for (what, settings) in [
        ("two workers", "SET max_parallel_workers_per_gather = 2"),
        (
            "no leader",
            "SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off",
        ),
        (
            "no worker",
            "SET max_parallel_workers_per_gather = 2; SET max_parallel_workers = 0",
        ),
        (
            "fewer workers than planned",
            "SET max_parallel_workers_per_gather = 2; SET max_parallel_workers = 1",
        ),
    ] {
        run_each(&mut client, "SELECT rowsource_reset(); RESET ALL");
        run_each(&mut client, settings);
        measured(&mut client, "SELECT id FROM skewed WHERE k = 2");
        let nodes = judged(&mut client, "SELECT id FROM skewed%");
        let scan = nodes
            .iter()
            .find(|(operation, _)| operation == "Parallel Seq Scan");
        let (_, scan) = scan.unwrap_or_else(|| panic!("{what}: {nodes:#?}"));
        assert_eq!(
            (scan.actual, scan.under, scan.over),
            (9_990, Some(1.0), Some(1.0)),
            "{what}: {nodes:#?}"
        );
        assert!((scan.expected - 9_990.0).abs() < 20.0, "{what}: {nodes:#?}");
        // Partial aggregates, a Gather Merge and an Append have the number of rows that follows from the
        // processes that ran.
        for statement in [
            "SELECT count(*) FROM skewed",
            "SELECT k, count(*) FROM skewed GROUP BY k",
            "SELECT DISTINCT k FROM skewed",
            "SELECT id FROM skewed ORDER BY k + id",
            "SELECT count(*) FROM (SELECT FROM skewed UNION ALL SELECT FROM small) AS unioned",
        ] {
            run_each(&mut client, "SELECT rowsource_reset()");
            measured(&mut client, statement);
            let nodes = judged(&mut client, &format!("{statement}%"));
            let gather = nodes
                .iter()
                .find(|(operation, _)| operation.starts_with("Gather"));
            assert!(
                gather.is_some_and(|(_, gather)| gather.executions == 1),
                "{what}: {statement}: {nodes:#?}"
            );
            let listed = misestimates(&mut client);
            assert!(listed.is_empty(), "{what}: {statement}: {listed:#?}");
        }
    }
    // An estimate that is wrong is wrong in all processes together.
    run_each(
        &mut client,
        "SELECT rowsource_reset(); RESET ALL; SET max_parallel_workers_per_gather = 2",
    );
    measured(&mut client, "SELECT id FROM skewed WHERE k + 0 = k");
    // The planner expects 50 of 10,000 rows.
    let factors: Vec<f64> = misestimates(&mut client)
        .iter()
        .filter_map(|row| row[3].as_deref()?.parse().ok())
        .collect();
    assert!(
        factors.len() == 2 && factors.iter().all(|factor| (190.0..=200.0).contains(factor)),
        "{factors:?}"
    );
    // A limit above a Gather may stop all processes. What they read to the end before is compared.
    for (statement, expected) in [
        ("SELECT id FROM skewed LIMIT 3", &["Limit"][..]),
        (
            "SELECT id FROM skewed ORDER BY k + id LIMIT 3",
            &["Limit", "Parallel Seq Scan"],
        ),
        ("SELECT EXISTS (SELECT FROM skewed WHERE k = 2)", &["Result"]),
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        measured(&mut client, statement);
        let plan = judged(&mut client, &format!("{}%", &statement[..20]));
        assert!(
            plan.iter().any(|(operation, _)| operation.starts_with("Gather")),
            "{plan:#?}"
        );
        assert_eq!(
            judged_operations(&mut client, &format!("{}%", &statement[..20])),
            expected
        );
    }
}

#[test]
fn partitions_that_are_one_node_are_compared_by_their_sums() {
    let server = server("estimates-partitions");
    let mut client = server.connect();
    // The planner takes the columns for independent. In the first partition they are equal: 100 rows, where
    // it expects 10. In the second one they exclude each other: no row, where it expects 90.
    run_each(
        &mut client,
        "CREATE TABLE parts (part int, k bool, j bool) PARTITION BY LIST (part);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
         INSERT INTO parts SELECT 1, i <= 100, i <= 100 FROM generate_series(1, 1000) i;
         INSERT INTO parts SELECT 2, i <= 900, i > 8100 FROM generate_series(1, 9000) i;
         VACUUM ANALYZE parts",
    );
    measured(
        &mut client,
        "SELECT FROM parts WHERE k AND j; SELECT FROM parts WHERE k AND j",
    );
    let nodes = judged(&mut client, "SELECT FROM parts%");
    let sums = Judged {
        executions: 2,
        starts: 4,
        expected: 200.0,
        actual: 200,
        under: Some(1.0),
        over: Some(1.0),
    };
    assert_eq!(nodes.last(), Some(&("Seq Scan".to_owned(), sums)), "{nodes:?}");
    let listed = "SELECT count(*) FROM rowsource_misestimates WHERE object_name = 'parts'";
    assert_eq!(value::<i64>(&mut client, listed), 0);
    // One of both alone.
    measured(&mut client, "SELECT 1 FROM parts WHERE part = 1 AND k AND j");
    let nodes = judged(&mut client, "SELECT 1 FROM parts%");
    let scan = &nodes.last().expect("a scan").1;
    assert_eq!(
        (scan.starts, scan.actual, scan.under),
        (1, 100, Some(10.0)),
        "{nodes:?}"
    );
}
