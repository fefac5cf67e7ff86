//! The daily views and the names in the wide ones: dropped users and databases, masked statements, nodes of
//! parallel plans.

use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::basic_server;
use rowsource_tests::waiting::hold;
use std::time::Duration;

fn row(client: &mut postgres::Client, sql: &str) -> Vec<Option<String>> {
    let mut rows = texts(client, sql);
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows.remove(0)
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[test]
fn dropped_users_and_databases_have_no_names() {
    let server = basic_server("daily-dropped", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE ROLE leaver LOGIN; CREATE DATABASE gone; GRANT pg_read_all_stats TO leaver",
    );
    let oids = row(
        &mut client,
        "SELECT (SELECT oid FROM pg_roles WHERE rolname = 'leaver'), (SELECT oid FROM pg_database WHERE datname = 'gone')",
    );
    let mut leaver = server.try_connect_to("leaver", "gone").expect("a session");
    run_each(
        &mut leaver,
        "SET pg_rowsource.statistics_level = typical; SELECT 815 AS left_behind",
    );
    let names = |table: &str| {
        format!(
            "SELECT DISTINCT usename, datname, userid, datid FROM {table} WHERE queryid IN
                 (SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE '%left_behind%')"
        )
    };
    let tables = [
        "pg_stat_rowsource",
        "pg_stat_rowsource_plans",
        "pg_stat_rowsource_histogram",
        "rowsource_top_statements",
        "rowsource_top_nodes",
    ];
    let expected = |names: Vec<Option<String>>| names.into_iter().chain(oids.clone()).collect::<Vec<_>>();
    for table in tables {
        let expected = expected(some(&["leaver", "gone"]));
        assert_eq!(row(&mut client, &names(table)), expected, "{table}");
    }
    drop(leaver);
    run_each(&mut client, "DROP DATABASE gone WITH (FORCE); DROP ROLE leaver");
    for table in tables {
        let expected = expected(vec![None, None]);
        assert_eq!(row(&mut client, &names(table)), expected, "{table}");
    }
}

#[test]
fn masked_statements_have_one_row_per_user() {
    let server = basic_server("daily-masked", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE ROLE reader LOGIN");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT 1; SELECT 2 FROM pg_class LIMIT 1;
         SET pg_rowsource.statistics_level = basic",
    );
    let mut reader = server.try_connect("reader").expect("a session");
    let seen = row(
        &mut reader,
        "SELECT usename, queryid, plans, calls, query FROM rowsource_top_statements",
    );
    let expected = [
        Some("postgres"),
        None,
        Some("2"),
        Some("2"),
        Some("<insufficient privilege>"),
    ];
    assert_eq!(seen, expected.map(|text| text.map(String::from)));
    let named: i64 = value(
        &mut reader,
        "SELECT count(*) FROM rowsource_top_nodes WHERE queryid IS NOT NULL OR object_name IS NOT NULL OR operation NOT LIKE '<%'",
    );
    assert_eq!(named, 0);
    for view in [
        "rowsource_top_reads",
        "rowsource_top_temp",
        "rowsource_top_rows_removed",
        "rowsource_top_waits",
        "rowsource_wal",
    ] {
        texts(&mut reader, &format!("SELECT * FROM {view}"));
    }
}

/// Programs that read the views need a key: user, database and queryid.
#[test]
fn a_statement_of_clients_and_of_functions_is_one_row() {
    let server = basic_server("daily-key", &["pg_rowsource.track = all"]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE FUNCTION inside() RETURNS void LANGUAGE plpgsql AS
             'BEGIN EXECUTE ''SELECT count(*) FROM pg_proc''; END'",
        )
        .expect("the function");
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT count(*) FROM pg_proc; SELECT inside(); SELECT inside();
         SET pg_rowsource.statistics_level = basic",
    );
    let of_view = "SELECT s.calls, s.plans, s.percent > 0 AND s.percent < 100, abs(s.total_time - p.total_time) < 1e-6
                     FROM rowsource_top_statements s,
                          (SELECT sum(total_time) AS total_time FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM pg_proc') p
                    WHERE query = 'SELECT count(*) FROM pg_proc'";
    assert_eq!(row(&mut client, of_view), some(&["3", "1", "t", "t"]));
    let twice: i64 = value(
        &mut client,
        "SELECT count(*) - count(DISTINCT (usename, datname, queryid)) FROM rowsource_top_statements",
    );
    assert_eq!(twice, 0);
}

/// Most of what a client waits for may be before the plan runs.
#[test]
fn statements_are_ranked_by_response_time() {
    let server = basic_server("daily-response", &[]);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE TABLE locked AS SELECT 1 AS id");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT pg_sleep(0.2) AS slept",
    );
    let sql = [
        "BEGIN; LOCK locked",
        "SELECT count(*) AS waited FROM locked",
        "relation",
    ];
    let (client, lasted) = hold(&mut observer, client, sql, Duration::from_millis(500));
    drop(client);
    let rows = observer
        .query(
            "SELECT response_time::float8, total_time::float8, percent::float8 FROM rowsource_top_statements WHERE query ~ 'waited|slept'",
            &[],
        )
        .expect("the view");
    let rows: Vec<[f64; 3]> = rows
        .iter()
        .map(|row| [row.get(0), row.get(1), row.get(2)])
        .collect();
    let [[response, total, percent], [_, slept, _]] = rows[..] else {
        panic!("{rows:?}")
    };
    assert!(
        lasted.contains(response) && total < slept && percent > 50.0,
        "{rows:?}, {lasted:?}"
    );
}

/// Several plans of a statement are one row, and a plan's blocks belong to the node that read them.
#[test]
fn plans_are_summed_per_statement_and_blocks_belong_to_one_node() {
    let server = basic_server("daily-sums", &["shared_buffers = '1MB'"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE d AS SELECT i, repeat('x', 500) AS pad FROM generate_series(1, 10000) i; CREATE INDEX ON d (i);
         VACUUM ANALYZE d; SET max_parallel_workers_per_gather = 0; SET pg_rowsource.statistics_level = typical;
         SELECT count(pad) FROM d WHERE i < 5; SET enable_indexscan = off; SET enable_bitmapscan = off;
         SELECT count(pad) FROM d WHERE i < 5; SELECT count(pad) FROM d WHERE i < 5;
         SET pg_rowsource.statistics_level = basic",
    );
    let statement = row(
        &mut client,
        "SELECT plans, calls, rows, s.blks_read = p.blks_read FROM rowsource_top_statements s,
                (SELECT sum(shared_blks_read + local_blks_read) AS blks_read FROM pg_stat_rowsource_plans) p
          WHERE query LIKE 'SELECT count(pad)%'",
    );
    assert_eq!(statement, some(&["2", "3", "3", "t"]));
    let reads = texts(
        &mut client,
        "SELECT operation, object_name, processes FROM rowsource_top_reads WHERE self_blks_read > 500",
    );
    assert_eq!(reads, [some(&["Seq Scan", "d", "1"])]);
    let same: bool = value(
        &mut client,
        "SELECT (SELECT sum(self_blks_read) FROM pg_stat_rowsource) = (SELECT sum(shared_blks_read) FROM pg_stat_rowsource_plans)",
    );
    assert!(same, "the nodes' own blocks add up to those of the statements");
}

/// What was evicted is a row of its own, so that all rows add up to everything.
#[test]
fn evicted_plans_have_one_row() {
    let server = basic_server("daily-others", &["pg_rowsource.max_plans = 100"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SEQUENCE s; SET pg_rowsource.statistics_level = typical; SET pg_rowsource.track = 'all';
         DO 'BEGIN FOR n IN 1 .. 300 LOOP EXECUTE
                 ''SELECT '' || repeat(''n, '', n) || ''n FROM (SELECT nextval(''''s'''') AS n) s'';
             END LOOP; END';
         SET pg_rowsource.statistics_level = basic",
    );
    let others = row(
        &mut client,
        "SELECT usename, datname, plans, calls > 100, percent IS NULL FROM rowsource_top_statements WHERE query = 'others'",
    );
    let expected = [None, Some("postgres"), None, Some("t"), Some("t")];
    // They are part of the time of the DO, which has a row.
    assert_eq!(others, expected.map(|text| text.map(String::from)));
    let sums = row(
        &mut client,
        "SELECT sum(calls), abs(sum(s.total_time) - (SELECT sum(total_time) FROM pg_stat_rowsource_plans)) < 1
           FROM rowsource_top_statements s",
    );
    assert_eq!(sums, some(&["301", "t"]));
    for view in ["rowsource_top_nodes", "rowsource_top_reads", "rowsource_top_temp"] {
        texts(&mut client, &format!("SELECT * FROM {view}"));
    }
    // The WAL of statements whose plans are not stored has a row.
    let wal = row(
        &mut client,
        "SELECT sum(wal_bytes) = (SELECT sum(wal_bytes) FROM pg_stat_rowsource_plans),
                sum(wal_bytes) FILTER (WHERE operation = 'others') > 0
           FROM rowsource_wal",
    );
    assert_eq!(wal, some(&["t", "t"]));
}

#[test]
fn parallel_nodes_may_exceed_their_statement() {
    let server = basic_server(
        "daily-parallel",
        &[
            "max_parallel_workers_per_gather = 2",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "min_parallel_table_scan_size = 0",
        ],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE p AS SELECT i FROM generate_series(1, 100000) i; ANALYZE p; SET pg_rowsource.statistics_level = typical;
         SELECT count(*) FROM p; SET pg_rowsource.statistics_level = basic",
    );
    let scan: f64 = value(
        &mut client,
        "SELECT percent_of_statement FROM pg_stat_rowsource WHERE operation = 'Parallel Seq Scan'",
    );
    assert!(scan > 0.0 && scan < 400.0, "{scan}");
    // The views say how many processes' times add up.
    let launched: i64 = value(
        &mut client,
        "SELECT max(workers_launched) FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM p%'",
    );
    assert!(launched > 0, "no worker ran");
    for (operation, processes) in [
        ("Finalize Aggregate", 1),
        ("Gather", 1),
        ("Partial Aggregate", launched + 1),
        ("Parallel Seq Scan", launched + 1),
    ] {
        let shown = row(
            &mut client,
            &format!(
                "SELECT t.processes, n.processes, n.last_processes
                   FROM pg_stat_rowsource n JOIN rowsource_top_nodes t USING (queryid, planid, node_id)
                  WHERE n.operation = '{operation}'"
            ),
        );
        let number = processes.to_string();
        assert_eq!(shown, some(&[&number, &number, &number]), "{operation}");
    }
}

/// Parallel workers take over the leader's settings. The leader's client gets their messages.
#[test]
fn the_notice_of_sampfreq_3_comes_once_and_not_from_workers() {
    let server = basic_server(
        "daily-notice",
        &[
            "max_parallel_workers_per_gather = 2",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "min_parallel_table_scan_size = 0",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE TABLE p AS SELECT i FROM generate_series(1, 100000) i; ANALYZE p",
    );
    for _ in 0..2 {
        server.clear_log();
        let mut client = server.connect();
        run_each(
            &mut client,
            "SET log_min_messages = notice; SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 3;
             SELECT count(*) FROM p; SET pg_rowsource.sampfreq = 128; SET pg_rowsource.sampfreq = 3; SELECT count(*) FROM p",
        );
        let workers: i64 = value(
            &mut client,
            "SELECT sum(last_rows)::bigint - 1 FROM pg_stat_rowsource WHERE operation = 'Gather'",
        );
        assert!(workers > 0, "no worker ran");
        let notices = server.log().matches("sampfreq 3 counts rows only").count();
        assert_eq!(notices, 1, "one notice per session:\n{}", server.log());
    }
}
