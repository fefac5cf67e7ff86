//! Two hours of a load that does not change, on a server that is disturbed all the time:
//! rowsource_regressions() finds nothing. The test moves the clock of the worker that looks.

use postgres::Client;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::store::{basic_server, measuring};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The worker knows a plan's time of a quarter of an hour 75 minutes after its start.
const MINUTES: usize = 125;
const RESTART: usize = 5;

const TABLES: &str =
    "CREATE TABLE accounts AS SELECT i AS id, i % 20 AS branch, 0 AS balance, repeat('x', 100) AS pad FROM generate_series(1, 20000) i;
     CREATE UNIQUE INDEX ON accounts (id);
     CREATE TABLE branches AS SELECT i AS id, 'branch ' || i AS name FROM generate_series(0, 19) i;
     CREATE TABLE log (at timestamptz, id int, pad text); VACUUM ANALYZE";

/// `$` is a number.
const STATEMENTS: [&str; 8] = [
    "SELECT balance FROM accounts WHERE id = $",
    "SELECT branch, sum(balance) FROM accounts GROUP BY branch",
    "SELECT b.name, count(*) FROM accounts a JOIN branches b ON b.id = a.branch WHERE a.balance >= $ % 3 GROUP BY b.name",
    "SELECT id FROM accounts ORDER BY pad, id DESC LIMIT 10",
    "SELECT max(length(pad)) FROM accounts WHERE id BETWEEN $ AND $ + 2000",
    "UPDATE accounts SET balance = balance + 1 WHERE id = 1",
    "UPDATE accounts SET balance = balance + 1 WHERE id BETWEEN $ AND $ + 100",
    "INSERT INTO log SELECT now(), i, repeat('y', 100) FROM generate_series(1, 100) i",
];

/// Holds the row that the statements update while they run.
fn piling_up(holder: &mut Client, statements: impl FnOnce()) {
    run_each(
        holder,
        "BEGIN; UPDATE accounts SET balance = balance WHERE id = 1",
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(150));
            run_each(holder, "COMMIT");
        });
        statements();
    });
}

/// Takes two processors while something runs.
fn hogged(is_hogged: bool, body: impl FnOnce()) {
    let is_done = AtomicBool::new(!is_hogged);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        body();
        is_done.store(true, Relaxed);
    });
}

#[test]
fn two_hours_of_noisy_load_have_no_regression_timing_long() {
    let mut server = basic_server(
        "noisy",
        &[
            "pg_rowsource.snapshot_interval = 0",
            "autovacuum_naptime = '1s'",
            "autovacuum_vacuum_threshold = 50",
            "autovacuum_vacuum_scale_factor = 0",
            "shared_buffers = '2MB'",
        ],
    );
    run_each(&mut server.connect(), TABLES);
    let (mut client, mut other) = (measuring(&server), measuring(&server));
    for minute in 0..MINUTES {
        if minute == RESTART {
            // Nothing is in shared buffers afterwards.
            server.stop();
            server.launch();
            (client, other) = (measuring(&server), measuring(&server));
        }
        if minute % 5 == 0 {
            run_each(&mut other, "CHECKPOINT");
        }
        let mut statements = || {
            for (i, sql) in STATEMENTS.iter().enumerate() {
                let number = 1 + (minute * 7_919 + i) % 17_000;
                run_each(&mut client, &sql.replace('$', &number.to_string()));
            }
        };
        hogged((88..110).contains(&minute), || match minute {
            45..50 => piling_up(&mut other, statements),
            _ => statements(),
        });
        let moved = format!("SELECT rowsource_judge(now() + {minute} * interval '1 min')");
        run_each(&mut client, &moved);
        let found = texts(
            &mut client,
            "SELECT state, query, ratio::text FROM rowsource_regressions()",
        );
        assert!(found.is_empty(), "minute {minute}: {found:?}");
    }
    server.assert_no_crash();
}
