//! Kills, cancels and errors at random moments while the server takes snapshots by itself and makes old ones
//! fewer: the tables are consistent each time, and it goes on.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, texts, value};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The process that takes a snapshot; 0 if there is none.
const TAKES: &str =
    "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource snapshot'";
/// Snapshots taken and failed since the server started.
const COUNTED: &str = "SELECT snapshots_taken, snapshots_failed FROM rowsource_info()";
const TIMEOUT: Duration = Duration::from_secs(90);

/// What is wrong in the tables of the snapshots: no row if nothing is.
const WRONG: &str = "
    SELECT format('%s has rows of snapshot %s', c.of, c.snap_id)
      FROM (SELECT 'tempfile_io' AS of, snap_id FROM rowsource_snapshot_tempfile_io
            UNION SELECT 'waits', snap_id FROM rowsource_snapshot_waits
            UNION SELECT 'ash', snap_id FROM rowsource_snapshot_ash
            UNION SELECT 'plans', snap_id FROM rowsource_snapshot_plans) c
     WHERE NOT EXISTS (SELECT FROM rowsource_snapshots s WHERE s.snap_id = c.snap_id)
    UNION ALL
    SELECT format('half of snapshot %s: %s bytes, %s in its rows', snap_id, bytes, rowsource_snapshot_bytes(snap_id))
      FROM rowsource_snapshots WHERE bytes IS DISTINCT FROM rowsource_snapshot_bytes(snap_id)
    UNION ALL
    SELECT format('half of the samples of snapshot %s are thinned', a.snap_id)
      FROM rowsource_snapshot_ash a JOIN rowsource_snapshots s ON s.snap_id = a.snap_id
     WHERE s.is_thinned AND a.moments BETWEEN 1 AND 999
    UNION ALL
    SELECT format('the sample of %s comes after the last', a.sample_time)
      FROM rowsource_snapshot_ash a
     WHERE a.sample_time > (SELECT max(last_sample_at) FROM rowsource_snapshots)
    UNION ALL
    SELECT format('plan %s of snapshot %s has no description', p.planid, p.snap_id)
      FROM rowsource_snapshot_plans p
     WHERE p.statistics IS NOT NULL
           AND NOT EXISTS (SELECT FROM rowsource_snapshot_descriptions d
                            WHERE (d.userid, d.datid, d.queryid, d.planid, d.toplevel)
                                = (p.userid, p.datid, p.queryid, p.planid, p.toplevel))
    UNION ALL
    SELECT format('a description is of snapshot %s, that is not there yet', d.first_snap_id)
      FROM rowsource_snapshot_descriptions d
     WHERE d.first_snap_id > (SELECT max(snap_id) FROM rowsource_snapshots)";

/// Everything that reads snapshots.
const READ: [&str; 5] = [
    "SELECT count(*) FROM rowsource_interval_tempfile_io",
    "SELECT count(*) FROM rowsource_interval_waits",
    "SELECT count(*) FROM rowsource_interval_plans",
    "SELECT rowsource_wait_report()",
    "SELECT rowsource_display_snapshot(queryid, planid, snap_id) FROM rowsource_snapshot_plans ORDER BY snap_id DESC LIMIT 1",
];

/// A check of each row that snapshots write: so many of these sleep for a while, and so many raise an error.
const CHECKS: &str = "
    CREATE TABLE chance (error float8, sleep float8);
    INSERT INTO chance VALUES (0, 0.1);
    CREATE FUNCTION moment() RETURNS boolean LANGUAGE plpgsql AS '
    BEGIN
        IF random() < (SELECT error FROM public.chance) THEN RAISE ''injected''; END IF;
        IF random() < (SELECT sleep FROM public.chance) THEN PERFORM pg_sleep(0.001); END IF;
        RETURN true;
    END';
    DO $$
    DECLARE part text;
    BEGIN
        FOR part IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'rowsource_snapshot%' LOOP
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT moment CHECK (moment()) NOT VALID', part);
        END LOOP;
        CREATE TABLE held (i int);
        FOR n IN 0 .. 9 LOOP EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS i', n); END LOOP;
    END $$";

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Blow {
    TerminateSnapshot,
    CancelSnapshot,
    Error,
    TerminateWorker,
    CancelWorker,
}

/// Most rounds end a snapshot: after its end, the worker that starts them is away for five seconds.
const BLOWS: [Blow; 10] = [
    Blow::TerminateSnapshot,
    Blow::CancelSnapshot,
    Blow::Error,
    Blow::TerminateSnapshot,
    Blow::TerminateWorker,
    Blow::CancelSnapshot,
    Blow::TerminateSnapshot,
    Blow::Error,
    Blow::CancelSnapshot,
    Blow::CancelWorker,
];

/// A server that takes a snapshot each second, and a session that watches it.
struct Watched {
    server: Server,
    client: Client,
    seed: u32,
    /// How long a snapshot takes that nobody disturbs.
    lasts: Duration,
    /// A session that keeps a lock, and one that waits for it: they have samples, and are in a tree of waits.
    _waiting: (Client, Busy),
}

impl Watched {
    fn start(name: &str) -> Watched {
        let server = Server::preloaded(
            name,
            &["pg_rowsource.snapshot_interval = 1s", "restart_after_crash = on"],
        );
        let mut client = server.session();
        client.batch_execute(CHECKS).expect("the checks");
        let _waiting = Watched::waiting(&server);
        let mut watched = Watched {
            server,
            client,
            seed: 43,
            lasts: Duration::ZERO,
            _waiting,
        };
        watched.work(0);
        watched.client.query(COUNTED, &[]).expect("a use");
        for _ in 0..3 {
            watched.until_one_begins();
            let began = Instant::now();
            watched.until_none_runs();
            watched.lasts = watched.lasts.max(began.elapsed());
        }
        println!("a snapshot takes {:?} or less", watched.lasts);
        watched
    }

    fn waiting(server: &Server) -> (Client, Busy) {
        let mut holder = server.connect();
        run_each(&mut holder, "BEGIN; LOCK TABLE held");
        (holder, Busy::run(server.connect(), "SELECT count(*) FROM held"))
    }

    /// Runs what a snapshot has something of, and makes all of them hours older, so that some are thinned,
    /// merged and deleted in each round.
    fn work(&mut self, round: usize) {
        run_each(
            &mut self.client,
            &format!(
                "SET pg_rowsource.statistics_level = typical;
                 SELECT count(*), pg_sleep(0.1) FROM t{};
                 SELECT i FROM t{} WHERE i = {round};
                 SET pg_rowsource.statistics_level = basic;
                 BEGIN; LOCK TABLE rowsource_snapshots;
                 UPDATE rowsource_snapshots SET taken_at = taken_at - interval '7 hours';
                 COMMIT",
                round % 10,
                round % 7
            ),
        );
    }

    /// Returns a random number below one.
    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.seed >> 8) / f64::from(1 << 24)
    }

    /// Waits until the server takes a snapshot, and then for a random part of what it lasts. Returns its
    /// process.
    fn at_a_random_moment(&mut self) -> i32 {
        let taking = self.until_one_begins();
        let part = 1.1 * self.random();
        std::thread::sleep(self.lasts.mul_f64(part));
        taking
    }

    fn until_one_begins(&mut self) -> i32 {
        self.until("a snapshot", |client| {
            Some(value::<i32>(client, TAKES)).filter(|pid| *pid != 0)
        })
    }

    fn until_none_runs(&mut self) {
        self.until("the end of a snapshot", |client| {
            (value::<i32>(client, TAKES) == 0).then_some(())
        });
    }

    fn until<T>(&mut self, what: &str, mut condition: impl FnMut(&mut Client) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = condition(&mut self.client) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "never: {what}\n{}",
                self.server.log_extract()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns how many snapshots were taken and failed.
    fn counted(&mut self) -> [i64; 2] {
        let row = self.client.query_one(COUNTED, &[]).expect("counts");
        [0, 1].map(|column| row.get(column))
    }

    /// Sends a signal at a random moment, or makes a random row an error.
    fn blow(&mut self, blow: Blow) {
        let worker = "SELECT %(pid) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource history'";
        let signal = |watched: &mut Watched, function: &str, to_worker: bool| {
            let taking = watched.at_a_random_moment();
            let sql = if to_worker {
                worker.replace('%', function)
            } else {
                format!("SELECT {function}({taking})")
            };
            // It may have ended: then a warning comes.
            watched.client.query(&sql, &[]).expect("a signal");
        };
        match blow {
            Blow::TerminateSnapshot => signal(self, "pg_terminate_backend", false),
            Blow::CancelSnapshot => signal(self, "pg_cancel_backend", false),
            Blow::TerminateWorker => signal(self, "pg_terminate_backend", true),
            Blow::CancelWorker => signal(self, "pg_cancel_backend", true),
            Blow::Error => {
                let [_, failed] = self.counted();
                run_each(&mut self.client, "UPDATE chance SET error = 0.02");
                self.until("an error", |client| {
                    let now: i64 = value(client, "SELECT snapshots_failed FROM rowsource_info()");
                    (now > failed).then_some(())
                });
                run_each(&mut self.client, "UPDATE chance SET error = 0");
            }
        }
        self.until_none_runs();
    }

    /// Fails if something is wrong in the tables. A snapshot may run meanwhile.
    fn assert_consistent(&mut self, after: impl Debug) {
        let wrong = texts(&mut self.client, WRONG);
        assert!(wrong.is_empty(), "{after:?}: {wrong:?}");
        for sql in READ {
            self.client
                .query(sql, &[])
                .unwrap_or_else(|error| panic!("{after:?}: {sql}: {error}"));
        }
    }

    /// Fails unless there was something in each table that a snapshot that is ended may leave behind, and the
    /// older ones were made fewer.
    fn assert_all_tables_are_used(&mut self) {
        let rows = texts(
            &mut self.client,
            "SELECT (SELECT count(*) FROM rowsource_snapshots), (SELECT count(*) FROM rowsource_snapshots WHERE is_thinned),
                    (SELECT count(*) FROM rowsource_snapshot_ash),
                    (SELECT count(*) FROM rowsource_snapshot_ash WHERE moments = 0), (SELECT count(*) FROM rowsource_snapshot_plans),
                    (SELECT count(*) FROM rowsource_snapshot_descriptions)",
        );
        println!("snapshots, thinned ones, samples, blockers, plans, descriptions: {rows:?}");
        assert!(
            rows[0].iter().all(|count| count.as_deref() != Some("0")),
            "{rows:?}"
        );
    }

    /// Waits until the server has taken two more by itself.
    fn assert_goes_on(&mut self) {
        let [before, _] = self.counted();
        self.until("two snapshots more", |client| {
            let taken: i64 = value(client, "SELECT snapshots_taken FROM rowsource_info()");
            (taken >= before + 2).then_some(())
        });
    }
}

/// Ends, cancels and breaks snapshots, and the worker that starts them.
fn blows(name: &str, rounds: usize) {
    let mut watched = Watched::start(name);
    for round in 0..rounds {
        let blow = BLOWS[round % BLOWS.len()];
        watched.work(round);
        watched.blow(blow);
        watched.assert_consistent((round, blow));
    }
    let [taken, failed] = watched.counted();
    let last: i64 = value(
        &mut watched.client,
        "SELECT max(snap_id) FROM rowsource_snapshots",
    );
    println!("{rounds} rounds: {taken} snapshots were taken, {failed} failed; the last one is {last}");
    // Most of those that were hit had begun. One that was hit after its commit counts as none.
    assert!(failed as usize >= rounds / 3, "{failed} of {rounds} failed");
    watched.assert_goes_on();
    watched.assert_consistent("the end");
    watched.assert_all_tables_are_used();
    assert_eq!(watched.server.restarts(), 0);
    assert!(
        !watched.server.log().contains("panicked"),
        "{}",
        watched.server.log_extract()
    );
    watched.server.assert_no_crash();
}

/// Stops a process. Returns whether it had not ended before: then a signal that kills it ends it.
fn stops(pid: u32) -> bool {
    process::send_signal(pid, "STOP");
    while !process::is_stopped(pid) {
        if process::title(pid).is_empty() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Kills them without a warning: PostgreSQL restarts as a whole.
fn kills(name: &str, rounds: usize) {
    let mut watched = Watched::start(name);
    for round in 0..rounds {
        watched.work(round);
        let before = watched.server.restarts();
        let kills_worker = round % 4 == 3;
        // It may end before the signal reaches it: then the next one is tried.
        loop {
            let taking = watched.at_a_random_moment().unsigned_abs();
            let victim = if kills_worker {
                history::worker(&mut watched.client)
            } else {
                taking
            };
            if process::title(victim).contains("pg_rowsource") && stops(victim) {
                watched.server.kill_process(victim);
                break;
            }
        }
        let deadline = Instant::now() + TIMEOUT;
        while watched.server.restarts() == before {
            assert!(Instant::now() < deadline, "no restart");
            std::thread::sleep(Duration::from_millis(10));
        }
        watched.client = watched.server.session();
        watched._waiting = Watched::waiting(&watched.server);
        watched.assert_consistent((round, kills_worker));
        // This use registers the database again.
        watched.assert_goes_on();
        watched.assert_consistent((round, "goes on"));
    }
    assert_eq!(watched.server.restarts(), rounds);
    watched.server.assert_no_crash();
}

/// What [`WRONG`] must see, each in a transaction of its own.
const FAULTS: [&str; 9] = [
    "DELETE FROM rowsource_snapshots WHERE snap_id = 2",
    "DELETE FROM rowsource_snapshot_tempfile_io WHERE snap_id = 2",
    "DELETE FROM rowsource_snapshot_waits WHERE snap_id = 2",
    "DELETE FROM rowsource_snapshot_ash WHERE snap_id = (SELECT min(snap_id) FROM rowsource_snapshot_ash)",
    "DELETE FROM rowsource_snapshot_plans WHERE snap_id = (SELECT min(snap_id) FROM rowsource_snapshot_plans)",
    "DELETE FROM rowsource_snapshot_descriptions",
    "UPDATE rowsource_snapshots SET is_thinned = true",
    "UPDATE rowsource_snapshots SET last_sample_at = '2020-01-01'",
    "UPDATE rowsource_snapshot_descriptions SET first_snap_id = 1000000",
];

#[test]
fn what_a_snapshot_may_leave_behind_is_seen() {
    let mut watched = Watched::start("snapshot-faults");
    watched.work(1);
    watched.assert_goes_on();
    watched.assert_consistent("before");
    for fault in FAULTS {
        // Without the foreign keys, as if half a transaction had been kept.
        run_each(
            &mut watched.client,
            &format!("BEGIN; SET LOCAL session_replication_role = replica; {fault}"),
        );
        let wrong = texts(&mut watched.client, WRONG);
        assert!(!wrong.is_empty(), "{fault}");
        run_each(&mut watched.client, "ROLLBACK");
    }
    watched.assert_consistent("after");
}

#[test]
fn snapshots_that_are_ended_leave_nothing_behind() {
    blows("snapshot-blows", 20);
}

#[test]
fn snapshots_that_are_ended_leave_nothing_behind_200_times_long() {
    blows("snapshot-blows-long", 200);
}

#[test]
fn snapshots_that_are_killed_leave_nothing_behind() {
    kills("snapshot-kills", 2);
}

#[test]
fn snapshots_that_are_killed_leave_nothing_behind_20_times_long() {
    kills("snapshot-kills-long", 20);
}
