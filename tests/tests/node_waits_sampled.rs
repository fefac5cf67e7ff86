//! What nodes waited whose calls are sampled.

use rowsource_tests::Server;
use rowsource_tests::history::worker;
use rowsource_tests::process::send_signal;
use rowsource_tests::session::run_each;

/// Hardly any of the calls that wait is timed, and no beat comes in them, because the worker is stopped. How
/// long a node waited is known all the same.
#[test]
fn a_sampled_node_takes_no_less_than_it_waited() {
    let server = Server::preloaded(
        "node-waits-sampled",
        &["max_parallel_workers_per_gather = 0", "jit = off"],
    );
    let (mut observer, mut client) = (server.session(), server.session());
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 120000) i; VACUUM ANALYZE n",
    );
    let worker = worker(&mut observer);
    send_signal(worker, "STOP");
    let ran = client.batch_execute(
        "SELECT sum(id % 13) FROM n WHERE CASE WHEN id % 10000 = 7777 THEN pg_sleep(0.05) IS NOT NULL ELSE true END",
    );
    send_signal(worker, "CONT");
    ran.expect("the statement");
    let rows = observer.query(
        "SELECT n.operation, n.self_time, n.total_time, n.time_error, n.wait_time FROM pg_stat_rowsource n
         JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
         WHERE p.query LIKE '%FROM n WHERE CASE%' ORDER BY n.node_id",
        &[],
    );
    let rows = rows.expect("pg_stat_rowsource");
    let [root, scan] = [0, 1].map(|i| [1, 2, 3, 4].map(|column| rows[i].get::<_, f64>(column)));
    println!("root {root:?}, scan {scan:?}");
    let [itself, total, error, waited] = scan;
    assert!(waited >= 12.0 * 50.0, "{waited}");
    assert!(
        itself >= waited && total >= itself && root[1] >= total,
        "{root:?}, {scan:?}"
    );
    assert!(error > 0.0, "it is estimated");
    // What is left is rounding.
    assert!(error <= root[1] - waited + 1e-6, "{root:?}, {scan:?}");
}
