//! Thirty days of a busy server in some minutes, with settings as they are after CREATE EXTENSION: the
//! history stays below its limit on disk, and the last two weeks are there.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::history::{ON_DISK, vacuum_snapshots};
use rowsource_tests::process::{private_bytes, processor_time};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::{pid, until};
use std::time::{Duration, Instant};

const DAYS: i64 = 30;
/// A snapshot each half-hour.
const STEPS: i64 = 48;
/// Plans that run in half an hour, of [`TABLES`] tables and one hundred shapes: all ran after 17 hours.
const PLANS: i64 = 300;
const TABLES: i64 = 100;
/// A hundred sessions, of which each tenth is active: they have a sample each three seconds.
const SESSIONS: i64 = 100;
const LIMIT: i64 = 1 << 30;
/// Autovacuum looks each minute, and a day takes less than that here. So VACUUM is run, after so many steps.
const VACUUM_EACH: i64 = 8;
/// A snapshot by the server may take no longer.
const MAX_TIME: Duration = Duration::from_millis(3500);

/// Runs what half an hour had.
fn run_statements(client: &mut Client, step: i64) {
    let statements = format!(
        "DO $$ BEGIN FOR n IN {0} .. {0} + {PLANS} - 1 LOOP
             EXECUTE 'SELECT id' || repeat(', id', n / {TABLES} % 100) || ' FROM t' || n % {TABLES} || ' WHERE id < 3';
         END LOOP; END $$",
        step * PLANS
    );
    client.batch_execute(&statements).expect("the statements");
}

/// Adds the samples of half an hour to the newest snapshot. How old they are is told by its time.
fn add_samples(client: &mut Client, step: i64) {
    run_each(
        client,
        &format!(
            "INSERT INTO rowsource_snapshot_ash (snap_id, sample_time, pid, userid, datid, application_name, queryid, planid, toplevel,
                                                 node_id, operation, object_name, moments)
             SELECT (SELECT max(snap_id) FROM rowsource_snapshots), '2026-01-01'::timestamptz + {step} * interval '30 min' + i * interval '3 s', 10 * s + i % 10, 10, 5, 'shop',
                    i % 1000, i % 1000, true, 1, 'Seq Scan', 'orders', 300
               FROM generate_series(0, 599) i, generate_series(0, {SESSIONS} / 10 - 1) s"
        ),
    );
}

#[test]
fn a_month_of_churn_stays_below_the_limit_long() {
    let settings = [
        "autovacuum = off",
        "pg_rowsource.track = all",
        "pg_rowsource.max_plans = 10000",
        "pg_rowsource.snapshot_interval = 0",
    ];
    let server = Server::preloaded("snapshot-month", &settings);
    let mut client = server.session();
    let tables = format!(
        "DO $$ BEGIN FOR n IN 0 .. {TABLES} - 1 LOOP EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS id', n); END LOOP; END $$;
         SET pg_rowsource.statistics_level = typical"
    );
    client.batch_execute(&tables).expect("the tables");
    let mut other = server.connect();
    let pid = pid(&mut client) as u32;
    let written = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let midnight: String = value(&mut client, "SELECT date_trunc('day', now(), 'UTC')::text");
    let (mut highest, mut longest, mut of_snapshots, mut wal, mut resident) = (0, Duration::ZERO, 0.0, 0, 0);
    for day in 0..DAYS {
        let wal_before: i64 = value(&mut client, written);
        for number in 0..STEPS {
            run_statements(&mut client, day * STEPS + number);
            let (began, before) = (Instant::now(), processor_time(pid));
            run_each(&mut client, "SELECT rowsource_snapshot()");
            longest = longest.max(began.elapsed());
            of_snapshots += processor_time(pid) - before;
            resident = resident.max(private_bytes(pid));
            add_samples(&mut client, day * STEPS + number);
            run_each(
                &mut client,
                "UPDATE rowsource_snapshots SET bytes = NULL WHERE snap_id = (SELECT max(snap_id) FROM rowsource_snapshots)",
            );
            if number % VACUUM_EACH == 0 {
                vacuum_snapshots(&mut other);
            }
            highest = highest.max(value::<i64>(&mut other, ON_DISK));
            assert!(highest < LIMIT, "{highest} bytes on day {day}");
        }
        wal = value::<i64>(&mut client, written) - wal_before;
        // They were those of yesterday.
        run_each(
            &mut client,
            &format!(
                "UPDATE rowsource_snapshots SET taken_at = CASE
                     WHEN snap_id > {0} THEN '{midnight}'::timestamptz - interval '1 day' + (snap_id - {0} - 0.5) * interval '30 min'
                     ELSE taken_at - interval '1 day' END",
                day * STEPS
            ),
        );
    }
    let row = client
        .query_one(
            "SELECT count(*), extract(epoch FROM now() - min(taken_at))::float8 / 86400, (SELECT snapshots_removed FROM rowsource_info()),
                    (SELECT count(*) FROM rowsource_snapshot_ash), (SELECT count(*) FROM rowsource_snapshot_plans)
               FROM rowsource_snapshots",
            &[],
        )
        .expect("what is left");
    let (left, oldest, removed): (i64, f64, i64) = (row.get(0), row.get(1), row.get(2));
    let (samples, plans): (i64, i64) = (row.get(3), row.get(4));
    println!(
        "{left} snapshots with {plans} plans and {samples} samples; the oldest is of {oldest:.1} days ago; {removed} were deleted for want of space\n\
         at most {:.0} MB on disk, {:.0} MB of WAL on the last day, {:.1} MB of the session's memory\n\
         a snapshot takes {:.0} ms of a processor and at most {longest:?}",
        highest as f64 / 1e6,
        wal as f64 / 1e6,
        resident as f64 / 1e6,
        of_snapshots * 1000.0 / (DAYS * STEPS) as f64,
    );
    assert!(oldest > 13.9, "{oldest} days");
    assert_eq!(removed, 0);
    assert!(plans > 10_000, "{plans}");
    assert!(longest < MAX_TIME, "{longest:?}");
    until(&mut client, "SELECT plans >= 9000 FROM rowsource_info()");
}
