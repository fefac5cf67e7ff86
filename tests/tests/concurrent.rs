//! Several sessions at once: rows that change under an update, and many sessions measuring.

use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::{pid, until_waiting};
use rowsource_tests::{Server, measure};
use std::time::Duration;

#[test]
fn rows_updated_by_another_session_are_checked_again() {
    let server = Server::preloaded("recheck", &["max_parallel_workers_per_gather = 0"]);
    let mut first = server.session();
    let mut second = server.session();
    let mut observer = server.connect();
    run_each(
        &mut first,
        "CREATE TABLE d (id int PRIMARY KEY, v int); INSERT INTO d SELECT i, 0 FROM generate_series(1, 100) i;
         CREATE TABLE w (id int PRIMARY KEY, x int); INSERT INTO w SELECT i, i FROM generate_series(1, 100) i;
         VACUUM ANALYZE d; VACUUM ANALYZE w",
    );
    for statement in [
        "UPDATE d SET v = v + 10 WHERE v = 0 AND id <= 50",
        "UPDATE d SET v = v + w.x FROM w WHERE w.id = d.id AND d.v < 5 AND (SELECT max(x) FROM w) > d.v",
        "SELECT d.* FROM d JOIN w USING (id) WHERE d.id <= 20 FOR UPDATE OF d",
        "DELETE FROM d USING w WHERE w.id = d.id AND d.id BETWEEN 5 AND 15 RETURNING d.id, w.x",
    ] {
        run_each(
            &mut first,
            "UPDATE d SET v = 0; BEGIN; UPDATE d SET v = 1 WHERE id = 7; UPDATE d SET v = 2 WHERE id = 9",
        );
        let id = pid(&mut second);
        let waiter = std::thread::spawn(move || {
            run_each(&mut second, "SET pg_rowsource.sampfreq = 1");
            (measure(&mut second, statement), second)
        });
        until_waiting(&mut observer, id, "transactionid");
        std::thread::sleep(Duration::from_millis(300));
        run_each(&mut first, "COMMIT");
        let (nodes, back) = waiter.join().expect("the waiting session");
        second = back;
        rowsource_tests::measured::assert_consistent_times(&nodes, statement);
        assert!(
            nodes[0].total_ms.is_some_and(|ms| ms > 299.0),
            "{statement}: the wait for the lock is time: {nodes:#?}"
        );
        assert!(nodes.iter().any(|node| node.rows > 0), "{statement}: {nodes:#?}");
    }
    assert_eq!(value::<i64>(&mut first, "SELECT count(*) FROM d"), 89);
    server.assert_no_crash();
}

#[test]
fn many_sessions_measure_at_once() {
    let server = Server::preloaded(
        "many",
        &[
            "max_parallel_workers_per_gather = 2",
            "parallel_setup_cost = 0",
            "min_parallel_table_scan_size = 0",
        ],
    );
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    // Each session has its own table and so its own plan: a plan's last values are those of the session that
    // ran it last.
    for session in 0..8 {
        let table = format!(
            "CREATE TABLE n{session} AS SELECT i AS id FROM generate_series(1, 5000) i; VACUUM ANALYZE n{session}"
        );
        run_each(&mut server.connect(), &table);
    }
    std::thread::scope(|scope| {
        for session in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.session();
                run_each(
                    &mut client,
                    "SET pg_rowsource.sampfreq = 1; SET pg_rowsource.track = 'all'",
                );
                for round in 1..=25 {
                    let wanted = 10 * session + round;
                    let nodes = measure(
                        &mut client,
                        &format!("SELECT id FROM n{session} WHERE id <= {wanted}"),
                    );
                    assert_eq!(nodes[0].rows, i64::from(wanted));
                }
            });
        }
    });
    server.assert_no_crash();
}
