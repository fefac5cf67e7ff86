//! Waits for parallel workers belong to the Gather whose workers they are.

use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts};

/// A Limit stops the outer Gather, and waits for its workers. The Gather of the InitPlan has ended long
/// before.
#[test]
fn waits_for_workers_belong_to_their_gather() {
    let server = Server::preloaded(
        "gather-waits",
        &[
            "jit = off",
            "autovacuum = off",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "min_parallel_table_scan_size = 0",
            "parallel_leader_participation = off",
        ],
    );
    let (mut observer, mut client) = (server.connect(), server.connect());
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE FUNCTION nap(i int) RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS
             'BEGIN IF i % 300 = 0 THEN PERFORM pg_sleep(0.4); END IF; RETURN i; END';
         CREATE TABLE many AS SELECT i FROM generate_series(1, 4000) i; ALTER TABLE many SET (parallel_workers = 2);
         CREATE TABLE other AS SELECT i FROM generate_series(1, 4000) i; ANALYZE many, other;
         SET max_parallel_workers_per_gather = 2",
    );
    for (sql, place) in [
        (
            "SELECT i, (SELECT min(i) FROM other) FROM many WHERE nap(i) > 0 LIMIT 700",
            "in the output",
        ),
        (
            "SELECT i FROM many WHERE i > (SELECT min(i) - 5 FROM other) AND nap(i) > 0 LIMIT 700",
            "in the condition",
        ),
        ("SELECT i FROM many WHERE nap(i) > 0 LIMIT 700", "alone"),
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        run_each(&mut client, sql);
        let rows = texts(
            &mut observer,
            "SELECT g.node_id, bool_or(s.object_name ~ 'many'), max(g.wait_time), max(g.total_time),
                    max(abs(g.self_time - g.total_time + s.total_time / s.starts))
               FROM pg_stat_rowsource g JOIN pg_stat_rowsource s
                    ON (s.queryid, s.planid) = (g.queryid, g.planid) AND s.node_id > g.node_id
                       AND s.depth > g.depth AND s.operation LIKE '%Seq Scan'
                       AND NOT EXISTS (SELECT FROM pg_stat_rowsource b WHERE (b.queryid, b.planid) = (g.queryid, g.planid)
                                          AND b.node_id > g.node_id AND b.node_id < s.node_id AND b.depth <= g.depth)
              WHERE g.operation LIKE 'Gather%' GROUP BY 1 ORDER BY 1",
        );
        let waited = |row: &[Option<String>], column: usize| -> f64 {
            row[column]
                .as_deref()
                .unwrap_or("0")
                .parse()
                .expect("milliseconds")
        };
        println!("{place}: {rows:?}");
        let gathers = if place == "alone" { 1 } else { 2 };
        assert_eq!(rows.len(), gathers, "{place}: {rows:?}");
        for row in &rows {
            let is_outer = row[1].as_deref() == Some("t");
            // The workers nap for 0.4 s, and the leader waits for the rest of that.
            if is_outer {
                assert!(waited(row, 2) > 100.0, "{place}: {rows:?}");
                // Only the workers run what is below: the leader does not help them.
                assert!(place != "alone" || waited(row, 4) < 1.0, "{place}: {rows:?}");
            } else {
                assert!(waited(row, 2) <= waited(row, 3) * 1.01 + 0.1, "{place}: {rows:?}");
            }
        }
    }
}
