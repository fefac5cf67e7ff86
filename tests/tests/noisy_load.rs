//! Hours of a load that does not change, on a server that is disturbed for so long that a plan could be taken
//! for a slow one: rowsource_regressions() finds nothing but the one statement that becomes slower. The test
//! moves the clock of the worker that looks.

use postgres::Client;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::store::{basic_server, measuring};
use rowsource_tests::waiting::Ended;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

const TABLES: &str =
    "CREATE TABLE accounts AS SELECT i AS id, i % 20 AS branch, 0 AS balance, repeat('x', 100) AS pad FROM generate_series(1, 20000) i;
     CREATE UNIQUE INDEX ON accounts (id);
     CREATE TABLE branches AS SELECT i AS id, 'branch ' || i AS name FROM generate_series(0, 19) i;
     CREATE TABLE pace AS SELECT repeat('x', 100) AS pad FROM generate_series(1, 1000);
     CREATE TABLE log (at timestamptz, id int, pad text); VACUUM ANALYZE";

/// `$` is a number.
const STATEMENTS: [&str; 8] = [
    "SELECT balance FROM accounts WHERE id = $",
    "SELECT branch, sum(balance) FROM accounts GROUP BY branch",
    "SELECT b.name, count(*) FROM accounts a JOIN branches b ON b.id = a.branch WHERE a.id >= $ % 3 GROUP BY b.name",
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

/// Takes each processor twice while something runs.
fn hogged(is_hogged: bool, body: impl FnOnce()) {
    let is_done = AtomicBool::new(!is_hogged);
    let threads = available_parallelism().map_or(2, |processors| 2 * processors.get());
    std::thread::scope(|scope| {
        let _ended = Ended(&is_done);
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        body();
    });
}

/// What happens to the server, by the minute. What lasts lasts for 65 minutes: three whole quarters of an
/// hour, in which a plan would have to be slow. Quiet is before it for as long as needed to be compared with.
struct Weather {
    name: &'static str,
    /// Snapshots have the hour of a week ago, so all is compared with that, also right after a restart.
    has_history: bool,
    restart: usize,
    /// Others take all processors.
    hog: Range<usize>,
    /// Somebody holds a row that a statement needs.
    pile_up: Range<usize>,
    /// Checkpoints come each minute, otherwise each five minutes.
    checkpoints: Range<usize>,
    /// From then on a table is 200 times as large: the one regression that there is.
    slower: usize,
    minutes: usize,
}

/// The worker knows a plan's time of a quarter of an hour 75 minutes after its start.
const WITHOUT_HISTORY: Weather = Weather {
    name: "noisy",
    has_history: false,
    restart: 5,
    hog: 100..165,
    pile_up: 205..270,
    checkpoints: 310..375,
    slower: 415,
    minutes: 480,
};

/// What a snapshot says of a week ago holds for two hours, as the worker sees the time.
const WITH_HISTORY: Weather = Weather {
    name: "noisy-history",
    has_history: true,
    restart: 62,
    hog: 0..62,
    pile_up: 62..118,
    checkpoints: 62..118,
    slower: 62,
    minutes: 118,
};

/// The statement that becomes slower.
const SLOWER: &str = "SELECT sum(length(pad)) FROM pace";

/// Runs each statement once.
fn run_all(client: &mut Client, minute: usize) {
    for (i, sql) in STATEMENTS.iter().chain([&SLOWER]).enumerate() {
        let number = 1 + (minute * 7_919 + i) % 17_000;
        run_each(client, &sql.replace('$', &number.to_string()));
    }
}

/// Stores two snapshots around some executions, and lets them be those of a week ago.
fn make_history(client: &mut Client) {
    for times in [3, 20] {
        (0..times).for_each(|minute| run_all(client, minute));
        run_each(client, "SELECT rowsource_snapshot()");
    }
    run_each(
        client,
        "UPDATE rowsource_snapshots SET taken_at = now() - interval '7 days 1 hour' + (snap_id - 1) * interval '61 min'",
    );
}

impl Weather {
    /// Runs the statements of all minutes. Nothing may be found but the statement that is slower, and that
    /// must be found: else nobody would know whether anything can be.
    fn pass(&self) {
        let mut server = basic_server(
            self.name,
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
        if self.has_history {
            make_history(&mut client);
        }
        let mut found = Vec::new();
        for minute in 0..self.minutes {
            if minute == self.restart {
                // Nothing is in shared buffers afterwards.
                server.stop();
                server.launch();
                (client, other) = (measuring(&server), measuring(&server));
            }
            if minute == self.slower {
                run_each(
                    &mut other,
                    "INSERT INTO pace SELECT repeat('x', 100) FROM generate_series(1, 199000)",
                );
            }
            if minute % 5 == 0 || self.checkpoints.contains(&minute) {
                run_each(&mut other, "CHECKPOINT");
            }
            let begun = Instant::now();
            let mut statements = || run_all(&mut client, minute);
            hogged(self.hog.contains(&minute), || {
                match self.pile_up.contains(&minute) {
                    true => piling_up(&mut other, statements),
                    false => statements(),
                }
            });
            println!("minute {minute}: {:?}", begun.elapsed());
            if self.has_history && (minute % 15 == 0 || minute == self.restart) {
                run_each(&mut client, "SELECT rowsource_snapshot()");
            }
            let moved = format!("SELECT rowsource_judge(now() + {minute} * interval '1 min')");
            run_each(&mut client, &moved);
            found = texts(
                &mut client,
                "SELECT query, state, basis, ratio::text FROM rowsource_regressions()",
            );
            let is_right =
                |row: &Vec<Option<String>>| minute >= self.slower && row[0].as_deref() == Some(SLOWER);
            assert!(found.iter().all(is_right), "minute {minute}: {found:?}");
        }
        println!("found: {found:?}");
        let reference = match self.has_history {
            true => "tested against the same hour a week ago",
            false => "tested against the quarter of an hour before",
        };
        let bases: Vec<_> = found.iter().map(|row| row[2].as_deref()).collect();
        assert_eq!(bases, [Some(reference)], "{found:?}");
        server.assert_no_crash();
    }
}

#[test]
fn hours_of_noisy_load_have_no_regression_timing_long() {
    WITHOUT_HISTORY.pass();
}

#[test]
fn noisy_load_has_no_regression_against_a_week_ago_timing_long() {
    WITH_HISTORY.pass();
}
