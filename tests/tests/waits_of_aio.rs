//! From 18 on, sessions read in several ways (`io_method`). What they wait for that belongs to the nodes that
//! read.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

/// What a node waited for blocks: its operation, how many it read, the event, the waits, and their
/// milliseconds and its own.
#[derive(Debug)]
struct Row {
    operation: String,
    blocks: i64,
    event: String,
    waits: i64,
    ms: f64,
    node_ms: f64,
}

fn rows(observer: &mut Client) -> Vec<Row> {
    let rows = observer.query(
        "SELECT coalesce(n.operation, ''), coalesce(n.self_blks_read, 0), w.wait_event, w.waits, w.wait_time,
                coalesce(n.total_time, 'infinity')
         FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
         LEFT JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel, node_id)
         WHERE p.query LIKE '%/* cold */' AND w.wait_event ~ '^(DataFileRead|Aio)' ORDER BY 1, 3",
        &[],
    );
    let rows = rows.expect("pg_stat_rowsource_waits");
    rows.iter()
        .map(|row| Row {
            operation: row.get(0),
            blocks: row.get(1),
            event: row.get(2),
            waits: row.get(3),
            ms: row.get(4),
            node_ms: row.get(5),
        })
        .collect()
}

#[test]
fn cold_reads_belong_to_the_nodes_that_read_pg18_plus() {
    let mut server = Server::preloaded(
        "waits-aio",
        &[
            "shared_buffers = '1MB'",
            "jit = off",
            "max_parallel_workers_per_gather = 0",
            "pg_rowsource.statistics_level = 'typical'",
            // Waits are exact, so they may be longer than an estimate of the node's time.
            "pg_rowsource.sampfreq = 1",
        ],
    );
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE big AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 30000) i;
         CREATE INDEX ON big (id); VACUUM ANALYZE big; CHECKPOINT",
    );
    let built: bool = value(
        &mut observer,
        "SELECT 'io_uring' = ANY (enumvals) FROM pg_settings WHERE name = 'io_method'",
    );
    println!("io_uring is built in: {built}");
    drop(observer);
    let methods = ["sync", "worker", "io_uring"];
    for method in &methods[..2 + usize::from(built)] {
        server.configure(&format!("io_method = {method}"));
        server.stop();
        server.launch();
        let (mut observer, mut client) = (server.connect(), server.connect());
        run_each(
            &mut client,
            "SELECT rowsource_reset(); SELECT count(pad) FROM big /* cold */; SET enable_seqscan = off; SET enable_bitmapscan = off;
             SELECT count(pad) FROM big WHERE id BETWEEN 100 AND 20000 /* cold */",
        );
        let rows = rows(&mut observer);
        println!("{method}: {rows:#?}");
        for row in rows.iter().filter(|row| !row.operation.is_empty()) {
            // A request reads one block or several. With io_uring a request is a wait when it is made, and
            // another one until it ends.
            assert!(
                (1..=2 * row.blocks).contains(&row.waits),
                "{method}: a node that read {} blocks: {row:?}",
                row.blocks
            );
            assert!(row.ms > 0.0 && row.ms <= row.node_ms, "{method}: {row:?}");
        }
        for node in ["Seq Scan", "Index Scan"] {
            assert!(
                rows.iter().any(|row| row.operation == node),
                "{method}: {node} has no waits: {rows:?}"
            );
        }
        if *method == "sync" {
            assert!(rows.iter().all(|row| row.event == "DataFileRead"), "{rows:?}");
        }
        let wrong = texts(
            &mut observer,
            "SELECT * FROM pg_stat_rowsource_system_waits WHERE backend_type = 'client backend' AND max_time > 60000
               AND wait_event_type = 'IO'",
        );
        assert!(wrong.is_empty(), "{method}: {wrong:?}");
    }
}
