//! What a node did itself, without its inputs and without the InitPlans, CTEs and subplans that it called:
//! the sum over a plan's nodes is what its executions did.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::own_figures::{Figure, figures, wrong};
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::waiting::{until, until_waiting};

const TABLES: &str = "
    CREATE TABLE t AS SELECT i, repeat('x', 500) p FROM generate_series(1, 2000) i; CREATE INDEX t_i ON t (i);
    CREATE TABLE u (i int); CREATE TABLE log (i int);
    CREATE TABLE parts (i int, p text) PARTITION BY RANGE (i);
    CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (300);
    CREATE TABLE parts_b PARTITION OF parts FOR VALUES FROM (300) TO (600);
    CREATE TABLE parts_c PARTITION OF parts FOR VALUES FROM (600) TO (1001);
    INSERT INTO parts SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i;
    CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NULL; END';
    VACUUM ANALYZE";

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    run_each(&mut server.connect(), TABLES);
    server
}

/// Runs statements at level typical, and returns the figures of all plans that they used.
fn figures_of(client: &mut Client, sql: &str) -> Vec<Figure> {
    run_each(
        client,
        "SELECT rowsource_reset(); SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
    );
    run_each(client, sql);
    run_each(client, "SET pg_rowsource.statistics_level = basic");
    let figures = figures(client).expect("the sums");
    assert!(!figures.is_empty(), "{sql}");
    figures
}

/// Asserts that the nodes did themselves all that the executions did.
fn assert_adds_up(client: &mut Client, sql: &str) {
    let figures = figures_of(client, sql);
    for figure in &figures {
        assert!(
            figure.what == "ns" || figure.own == figure.total,
            "{sql}\n{figure:?}"
        );
    }
    let wrong = wrong(figures);
    assert!(wrong.is_empty(), "{sql}\n{wrong:#?}");
}

/// Returns a column of the nodes of all plans, by operation and object.
fn of_nodes(client: &mut Client, column: &str) -> Vec<(String, i64)> {
    let sql = format!(
        "SELECT operation || coalesce(' ' || object_name, ''), coalesce({column}, 0) FROM pg_stat_rowsource
         LEFT JOIN (SELECT queryid, planid, node_id, hits FROM pg_stat_rowsource_logical_io) io USING (queryid, planid, node_id) ORDER BY node_id"
    );
    let text = |row: &[Option<String>], i: usize| row[i].clone().unwrap_or_default();
    let rows = texts(client, &sql);
    let node = |row: &Vec<Option<String>>| (text(row, 0), text(row, 1).parse().expect("a number"));
    rows.iter().map(node).collect()
}

#[test]
fn a_cte_counts_once() {
    let server = server("own-cte");
    let mut client = server.session();
    let sql = "WITH x AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM x WHERE i > 1";
    assert_adds_up(&mut client, sql);
    let pages: i64 = value(&mut client, "SELECT pg_relation_size('t') / 8192");
    let hits = of_nodes(&mut client, "hits");
    let none = |name: &str| (name.to_string(), 0);
    assert_eq!(
        hits,
        [
            none("Aggregate"),
            ("Seq Scan t".to_string(), pages),
            none("CTE Scan x")
        ]
    );
    for sql in [
        "WITH x AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM x a, x b WHERE a.i = b.i",
        "WITH x AS MATERIALIZED (SELECT * FROM t) (SELECT i FROM x LIMIT 5) UNION ALL SELECT i FROM x ORDER BY 1",
        "WITH x AS MATERIALIZED (SELECT * FROM t), y AS MATERIALIZED (SELECT i FROM x WHERE i % 2 = 0) SELECT count(*) FROM y, (SELECT max(i) m FROM x) z WHERE y.i < z.m",
        "WITH x AS MATERIALIZED (SELECT * FROM t ORDER BY p, i) SELECT count(*) FROM x WHERE i > (SELECT avg(i) FROM x)",
        "WITH RECURSIVE r AS (SELECT min(i) i FROM t UNION ALL SELECT (SELECT min(t.i) FROM t WHERE t.i > r.i) FROM r WHERE r.i < 20) SELECT count(*) FROM r",
    ] {
        assert_adds_up(&mut client, sql);
    }
}

#[test]
fn two_scans_of_a_cte_share_it() {
    let server = server("own-shared-cte");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET enable_hashjoin = off; SET enable_mergejoin = on; SET enable_nestloop = off",
    );
    // A merge join pulls rows of both scans by turns.
    assert_adds_up(
        &mut client,
        "WITH x AS MATERIALIZED (SELECT i FROM t WHERE i > 0 ORDER BY i) SELECT count(*) FROM x a JOIN x b ON a.i = b.i",
    );
    run_each(&mut client, "SET enable_sort = off");
    assert_adds_up(
        &mut client,
        "WITH x AS MATERIALIZED (SELECT i FROM t WHERE i > 0 ORDER BY i) (SELECT i FROM x LIMIT 7) UNION ALL SELECT i FROM x",
    );
    let nodes = texts(
        &mut client,
        "SELECT operation, self_time <= total_time FROM pg_stat_rowsource ORDER BY node_id",
    );
    assert!(
        nodes.iter().all(|row| row[1].as_deref() == Some("t")),
        "{nodes:?}"
    );
}

#[test]
fn init_plans_count_once() {
    let server = server("own-init-plan");
    let mut client = server.session();
    for sql in [
        "SELECT count(*) FROM t WHERE i > (SELECT avg(i) FROM t b)",
        "SELECT i FROM t ORDER BY i LIMIT (SELECT 3 + count(*) FROM u)",
        "SELECT count(*) FROM t a, t b WHERE a.i = b.i AND b.i < (SELECT avg(i) FROM t)",
        "SELECT (SELECT max(i) FROM t), count(*) FROM u",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE p = 'y')",
        "SELECT count(*) FROM t WHERE i > (SELECT avg(i) FROM t b WHERE b.i < (SELECT max(i) FROM t c)) AND i < (SELECT 1 + max(i) FROM t)",
        "SELECT count(*) FROM t WHERE i IN ((SELECT min(i) FROM t), (SELECT max(i) FROM t))",
    ] {
        assert_adds_up(&mut client, sql);
    }
    run_each(
        &mut client,
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_indexscan = off; SET enable_seqscan = off",
    );
    for sql in [
        "SELECT count(*) FROM t a, t b WHERE a.i < 30 AND b.i = a.i AND b.i < (SELECT avg(i) FROM t)",
        "SELECT p FROM t WHERE i = (SELECT min(i) FROM parts)",
    ] {
        assert_adds_up(&mut client, sql);
    }
    run_each(
        &mut client,
        "RESET ALL; SET enable_indexonlyscan = off; SET enable_indexscan = off",
    );
    let pages: i64 = value(&mut client, "SELECT pg_relation_size('t') / 8192");
    figures_of(
        &mut client,
        "SELECT count(*) FROM t WHERE i > (SELECT avg(i) FROM t b)",
    );
    let hits: Vec<i64> = of_nodes(&mut client, "hits")
        .iter()
        .map(|(_, hits)| *hits)
        .collect();
    assert_eq!(hits, [0, 0, pages, pages]);
}

#[test]
fn subplans_count_once() {
    let server = server("own-subplan");
    let mut client = server.session();
    for sql in [
        "SELECT count(*) FROM t WHERE (SELECT count(*) FROM u WHERE u.i = t.i) = 0",
        "SELECT i, (SELECT max(b.i) FROM t b WHERE b.i < a.i) FROM t a WHERE i < 40",
        "SELECT count(*) FROM t WHERE i NOT IN (SELECT i FROM parts)",
        // Each partition calls the same subplan.
        "SELECT count(*) FROM parts WHERE (SELECT count(*) FROM t WHERE t.i = parts.i) = 1",
        "SELECT count(*) FROM parts WHERE i NOT IN (SELECT i FROM t WHERE i > 500)",
        "SELECT count(*) FROM t, parts WHERE t.i < 5 AND parts.i <> t.i AND (SELECT count(*) FROM u WHERE u.i = parts.i) = 0 AND (SELECT count(*) FROM u WHERE u.i > parts.i) = 0",
        // A hash table is built of it by a node that core calls.
        "SELECT count(*) FROM u RIGHT JOIN parts a ON u.i = (SELECT max(t.i) FROM t WHERE t.i < a.i)",
    ] {
        assert_adds_up(&mut client, sql);
    }
}

#[test]
fn a_modifying_cte_counts_once() {
    let server = server("own-modifying");
    let mut client = server.session();
    let sql = "WITH d AS (INSERT INTO u SELECT i FROM t RETURNING i) SELECT count(*) FROM d";
    assert_adds_up(&mut client, sql);
    let wal = of_nodes(&mut client, "self_wal_records");
    assert_eq!(wal[0], ("Aggregate".to_string(), 0));
    assert!(wal[1].0 == "Insert u" && wal[1].1 >= 2_000, "{wal:?}");
    assert_eq!(wal[3], ("CTE Scan d".to_string(), 0));
    let records = |client: &mut Client, condition: &str| -> i64 {
        value(
            client,
            &format!("SELECT coalesce(sum(wal_records), 0)::int8 FROM rowsource_wal WHERE {condition}"),
        )
    };
    let total: i64 = value(
        &mut client,
        "SELECT wal_records FROM pg_stat_rowsource_plans WHERE query LIKE 'WITH d%'",
    );
    assert_eq!(records(&mut client, "operation = 'Insert'"), wal[1].1);
    assert_eq!(records(&mut client, "true"), total);
    // Nobody reads all of it, so PostgreSQL completes it after all other nodes.
    for sql in [
        "WITH d AS (INSERT INTO u SELECT i FROM t RETURNING i) SELECT 1",
        "WITH d AS (INSERT INTO u SELECT i FROM t RETURNING i) SELECT i FROM d LIMIT 3",
        "WITH d AS (DELETE FROM u WHERE i < 9 RETURNING i) INSERT INTO log SELECT i FROM d",
    ] {
        let figures = figures_of(&mut client, sql);
        let wal = figures
            .iter()
            .find(|figure| figure.what == "WAL records")
            .expect("WAL");
        assert_eq!(wal.own, wal.total, "{sql}");
        assert!(wal.own > 20, "{wal:?}");
        let found = wrong(figures);
        assert!(found.is_empty(), "{sql}\n{found:#?}");
        assert_eq!(
            records(&mut client, "operation = 'outside the nodes'"),
            0,
            "{sql}"
        );
    }
    // What a trigger writes is outside of the nodes.
    run_each(
        &mut client,
        "CREATE TRIGGER noted AFTER INSERT ON u FOR EACH STATEMENT EXECUTE FUNCTION noted()",
    );
    let figures = figures_of(&mut client, sql);
    let found = wrong(figures);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn executions_that_do_not_complete_add_up() {
    let server = server("own-partial");
    let mut client = server.session();
    assert_adds_up(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR WITH x AS MATERIALIZED (SELECT * FROM t) SELECT * FROM x WHERE i > (SELECT min(i) FROM parts);
         FETCH 5 FROM c; FETCH 300 FROM c; CLOSE c; COMMIT",
    );
    // The error comes inside of a CTE, of an InitPlan, and of a subplan.
    for sql in [
        "WITH x AS MATERIALIZED (SELECT 1 / (900 - i) AS i FROM t) SELECT count(*) FROM x",
        "SELECT count(*) FROM u RIGHT JOIN t USING (i) WHERE i > (SELECT sum(1 / (900 - i)) FROM t)",
        "SELECT count(*) FROM parts WHERE (SELECT sum(1 / (400 - t.i)) FROM t WHERE t.i = parts.i) IS NOT NULL",
    ] {
        run_each(
            &mut client,
            "SELECT rowsource_reset(); SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
        );
        must_fail(&mut client, sql);
        run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
        let figures = figures(&mut client).expect("the sums");
        let hits = figures.iter().find(|figure| figure.what == "hits").expect("hits");
        assert!(hits.own > 0 && hits.own == hits.total, "{sql}: {hits:?}");
        let found = wrong(figures);
        assert!(found.is_empty(), "{sql}\n{found:#?}");
    }
}

#[test]
fn parallel_plans_add_up() {
    let server = server("own-parallel");
    let mut client = server.session();
    run_each(
        &mut client,
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0",
    );
    for leader in ["on", "off"] {
        run_each(
            &mut client,
            &format!("SET parallel_leader_participation = {leader}"),
        );
        for sql in [
            "SELECT count(*) FROM t WHERE i > (SELECT avg(i) FROM t b)",
            "SELECT count(*) FROM t WHERE (SELECT count(*) FROM parts WHERE parts.i = t.i % 20) = 1 AND i < 100",
            "SELECT count(*) FROM t WHERE i NOT IN (SELECT i FROM parts)",
            "WITH x AS MATERIALIZED (SELECT i FROM t WHERE i > 0) SELECT count(*) FROM x, parts WHERE x.i = parts.i",
        ] {
            assert_adds_up(&mut client, sql);
        }
    }
}

/// An Append calls the InitPlan for its first asynchronous scan, which core measures.
#[test]
fn asynchronous_scans_add_up() {
    let server = server("own-async");
    let mut client = server.session();
    let foreign = format!(
        "CREATE EXTENSION postgres_fdw;
         CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{}', dbname 'postgres', port '5432', async_capable 'true');
         CREATE USER MAPPING FOR CURRENT_USER SERVER loopback OPTIONS (user 'postgres', password_required 'false');
         CREATE TABLE split (i int, p text) PARTITION BY LIST (p);
         CREATE FOREIGN TABLE split_a PARTITION OF split FOR VALUES IN ('a') SERVER loopback OPTIONS (table_name 't');
         CREATE FOREIGN TABLE split_b PARTITION OF split FOR VALUES IN ('b') SERVER loopback OPTIONS (table_name 't')",
        server.folder().display()
    );
    run_each(&mut client, &foreign);
    for sql in [
        "SELECT count(*) FROM split WHERE i > (SELECT min(i) FROM parts)",
        "SELECT count(*) FROM split WHERE i > (SELECT min(i) FROM parts, pg_sleep(0.5))",
    ] {
        assert_adds_up(&mut client, sql);
    }
}

#[test]
fn each_way_to_measure_adds_up() {
    let server = server("own-levels");
    let mut client = server.session();
    const STATEMENTS: [&str; 3] = [
        "WITH x AS MATERIALIZED (SELECT i FROM t WHERE i > 0 ORDER BY i) SELECT count(*) FROM x a, (SELECT i FROM x WHERE i % 3 = 0) b WHERE a.i = b.i",
        "SELECT count(*) FROM parts WHERE (SELECT count(*) FROM t WHERE t.i = parts.i) = 1 AND i > (SELECT min(i) FROM t)",
        "SELECT count(*) FROM t a, t b WHERE a.i = b.i AND b.i < (SELECT avg(i) FROM t)",
    ];
    for (level, sampfreq) in [("typical", 128), ("typical", 0), ("all", 1), ("typical", 4)] {
        run_each(
            &mut client,
            &format!(
                "SELECT rowsource_reset(); SET pg_rowsource.statistics_level = '{level}'; SET pg_rowsource.sampfreq = {sampfreq}"
            ),
        );
        for sql in STATEMENTS {
            for _ in 0..3 {
                run_each(&mut client, sql);
            }
        }
        run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
        let figures = figures(&mut client).expect("the sums");
        assert!(figures.len() > 5);
        for figure in &figures {
            assert!(
                figure.what == "ns" || figure.own == figure.total,
                "{level} {sampfreq}: {figure:?}"
            );
        }
        let found = wrong(figures);
        assert!(found.is_empty(), "{level} {sampfreq}: {found:#?}");
    }
}

#[test]
fn of_a_running_statement_times_add_up() {
    let server = server("own-live");
    let mut observer = server.session();
    for sql in [
        // It sleeps in a CTE, in an InitPlan, and in a subplan of the second partition.
        "WITH x AS MATERIALIZED (SELECT i, pg_sleep(CASE WHEN i = 900 THEN 1000 ELSE 0 END) IS NULL FROM t) SELECT count(*) FROM x a, (SELECT * FROM x) b",
        "SELECT count(*) FROM t WHERE i > (SELECT count(pg_sleep(CASE WHEN i = 900 THEN 1000 ELSE 0 END)) FROM t)",
        "SELECT count(*) FROM parts WHERE (SELECT count(pg_sleep(CASE WHEN t.i = 400 THEN 1000 ELSE 0 END)) FROM t WHERE t.i = parts.i) = 1",
    ] {
        let busy = Busy::run(server.session(), sql);
        until_waiting(&mut observer, busy.pid, "PgSleep");
        let nodes = format!("pg_stat_rowsource_live WHERE pid = {}", busy.pid);
        until(
            &mut observer,
            &format!("SELECT coalesce(max(total_time) > 300, false) FROM {nodes}"),
        );
        let (sum, root): (f64, f64) = {
            let sql = format!("SELECT sum(self_time), max(total_time) FROM {nodes}");
            let row = observer.query_one(&sql, &[]).expect("the sums");
            (row.get(0), row.get(1))
        };
        assert!((sum - root).abs() < 1e-6 * root, "{sql}: {sum} of {root} ms");
        busy.cancel(&mut observer);
    }
}

/// The errors of the node and of the nodes below it count, in all executions and in the last one.
#[test]
fn own_times_have_errors() {
    let server = server("own_errors");
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    for _ in 0..3 {
        run_each(
            &mut client,
            "SELECT count(*) FROM t a, t b WHERE a.i % 10 = b.i % 10 AND a.i < b.i",
        );
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let sql = "
        SELECT count(*) FILTER (WHERE n.self_time_error >= n.time_error AND n.self_time_error > 0)
          FROM pg_stat_rowsource n,
               LATERAL (SELECT coalesce(sum(time_error ^ 2), 0) AS all, coalesce(sum(last_time_error ^ 2), 0) AS last
                          FROM pg_stat_rowsource i
                         WHERE (i.queryid, i.planid, i.parent_id) = (n.queryid, n.planid, n.node_id)) below
         WHERE abs(n.self_time_error ^ 2 - n.time_error ^ 2 - below.all) <= 1e-6 * (n.self_time_error ^ 2)
           AND abs(n.last_self_time_error ^ 2 - n.last_time_error ^ 2 - below.last) <= 1e-6 * (n.last_self_time_error ^ 2)";
    let nodes = "SELECT operation, node_id, parent_id, self_time_error, time_error, last_self_time_error, last_time_error FROM pg_stat_rowsource";
    let right: i64 = value(&mut client, sql);
    assert!(right >= 3, "{right}: {:#?}", texts(&mut client, nodes));
    for view in [
        "rowsource_top_nodes",
        "rowsource_misestimates",
        "rowsource_top_rows_removed",
    ] {
        let shown = format!(
            "SELECT count(*) > 0 AND bool_and(v.self_time_error = n.self_time_error) AND max(v.self_time_error) > 0
               FROM {view} v JOIN pg_stat_rowsource n USING (queryid, planid, node_id) WHERE v.self_time > 0"
        );
        assert!(value::<bool>(&mut client, &shown), "{view}");
    }
    let page: String = value(
        &mut client,
        "SELECT rowsource_html(queryid, planid) FROM rowsource_top_nodes WHERE self_time_error > 0 LIMIT 1",
    );
    assert!(page.contains(" ms +/- ") && page.contains(", A-Time"), "{page}");
}
