//! Seventeen days in a minute: snapshots and their samples become fewer with age, and nothing that stays is
//! wrong.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::history::{ON_DISK, vacuum_snapshots};
use rowsource_tests::session::{run_each, texts, value};

const DAYS: i64 = 17;
/// A snapshot each half-hour.
const STEPS: i64 = 48;
/// Samples that each of them gets, at moments of their own.
const SAMPLES: i64 = 100;
/// The plan that is followed runs once in this number of steps, so most often not right before the snapshot
/// that stays.
const EVERY: i64 = 7;

/// Runs what half an hour had, and takes a snapshot.
fn step(client: &mut Client, number: i64) {
    let follow = if number % EVERY == 0 {
        "SELECT count(*) FROM followed;"
    } else {
        ""
    };
    // Other plans come and go.
    let other = number % 50;
    run_each(
        client,
        &format!(
            "SET pg_rowsource.statistics_level = typical; {follow} SELECT count(*) FROM t{other};
             SET pg_rowsource.statistics_level = basic;
             SELECT rowsource_snapshot();
             INSERT INTO rowsource_snapshot_ash (snap_id, sample_time, pid, toplevel)
             SELECT max(s.snap_id), '2026-01-01'::timestamptz + {number} * interval '30 min' + i * interval '17.123 s', 1, true
               FROM rowsource_snapshots s, generate_series(1, {SAMPLES}) i GROUP BY i"
        ),
    );
    if number % 40 == 0 {
        vacuum_snapshots(client);
    }
}

/// Returns numbers of snapshots.
fn numbers(client: &mut Client, sql: &str) -> Vec<i64> {
    let rows = client.query(sql, &[]).expect("numbers");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn snapshots_thin_with_age() {
    let server = Server::preloaded(
        "snapshot-lapse",
        &["autovacuum = off", "pg_rowsource.history_frequency = 0"],
    );
    let mut client = server.session();
    let tables = "CREATE TABLE followed AS SELECT 1 AS i;
        DO $$ BEGIN FOR n IN 0 .. 49 LOOP EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS i', n); END LOOP; END $$";
    client.batch_execute(tables).expect("the tables");
    let midnight: String = value(&mut client, "SELECT date_trunc('day', now(), 'UTC')::text");
    let mut highest = 0;
    for day in 0..DAYS {
        for number in 1..=STEPS {
            step(&mut client, day * STEPS + number);
            highest = highest.max(value::<i64>(&mut client, ON_DISK));
        }
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
    // A snapshot makes only a few others fewer.
    let all = DAYS * STEPS;
    for _ in 0..60 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    let left = numbers(
        &mut client,
        &format!("SELECT snap_id FROM rowsource_snapshots WHERE snap_id <= {all} ORDER BY 1"),
    );
    let expected = numbers(
        &mut client,
        &format!(
            "WITH made AS (
                 SELECT id, '{midnight}'::timestamptz - interval '1 day' * ({DAYS} - (id - 1) / {STEPS})
                            + ((id - 1) % {STEPS} + 0.5) * interval '30 min' AS at,
                        (SELECT max(taken_at) FROM rowsource_snapshots) AS newest
                   FROM generate_series(1, {all}) id
             ), of_units AS (
                 SELECT *, max(id) OVER (PARTITION BY CASE
                            WHEN at < date_trunc('day', newest - interval '7 days 03:00', 'UTC') THEN to_char(at AT TIME ZONE 'UTC', 'YYYYMMDD')
                            WHEN at < date_trunc('hour', newest - interval '2 days', 'UTC') THEN to_char(at AT TIME ZONE 'UTC', 'YYYYMMDDHH24')
                            ELSE id::text END) AS last
                   FROM made
             )
             SELECT id::bigint FROM of_units WHERE id = last AND at >= newest - interval '14 days' ORDER BY 1"
        ),
    );
    println!(
        "{} of {all} snapshots; at most {highest} bytes on disk",
        left.len()
    );
    assert_eq!(left, expected);
    assert!((150..250).contains(&left.len()), "{left:?}");
    assert!(highest < 16 << 20, "{highest}");

    // Each snapshot that stays has the plan, if it ran since the one before, with what it had run until then.
    let kept = texts(
        &mut client,
        "SELECT s.snap_id, p.calls FROM rowsource_snapshots s
                LEFT JOIN rowsource_snapshot_plans p ON p.snap_id = s.snap_id AND p.query = 'SELECT count(*) FROM followed'
          ORDER BY 1",
    );
    let kept: Vec<[Option<i64>; 2]> = kept
        .iter()
        .map(|row| {
            [0, 1].map(|column| {
                row[column]
                    .as_ref()
                    .map(|number| number.parse().expect("a number"))
            })
        })
        .collect();
    for pair in kept.windows(2) {
        let [before, at] = [pair[0][0], pair[1][0]].map(|id| id.expect("an id").min(all) / EVERY);
        // The first one of a day may have it also if it did not run.
        assert!(
            pair[1][1] == Some(at) || pair[1][1].is_none() && at == before,
            "{pair:?}"
        );
    }
    // And it can be shown.
    let shown = texts(
        &mut client,
        "SELECT rowsource_display_snapshot(queryid, planid, snap_id) FROM rowsource_interval_plans
          WHERE query = 'SELECT count(*) FROM followed'",
    );
    assert!(shown.len() > 5 * 20, "{}", shown.len());
    let lost: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshot_plans p WHERE NOT EXISTS (
             SELECT FROM rowsource_snapshot_descriptions d
              WHERE (d.userid, d.datid, d.queryid, d.planid, d.toplevel)
                  = (p.userid, p.datid, p.queryid, p.planid, p.toplevel))",
    );
    assert_eq!(lost, 0, "plans without their nodes");

    // The samples that are left stand for all.
    let row = client
        .query_one(
            "SELECT count(*), sum(moments) / 10.0::float8, count(*) FILTER (WHERE moments = 10),
                    extract(epoch FROM max(sample_time) FILTER (WHERE moments > 10) - min(sample_time))::float8 / 1800
               FROM rowsource_snapshot_ash",
            &[],
        )
        .expect("samples");
    let (left, stand_for, fine): (i64, f64, i64) = (row.get(0), row.get(1), row.get(2));
    let thinned = row.get::<_, f64>(3) * SAMPLES as f64;
    println!("{left} samples stand for {stand_for}");
    assert!(fine / SAMPLES <= STEPS, "{fine}");
    // Each of the others was kept by a chance of one in a hundred.
    let sigma = (thinned * 100.0).sqrt();
    let expected = thinned + fine as f64;
    assert!(
        (stand_for - expected).abs() < 5.0 * sigma,
        "{stand_for} for {expected}"
    );
}

#[test]
fn samples_that_were_left_out_do_not_come_back() {
    let server = Server::preloaded("snapshot-again", &["pg_rowsource.history_frequency = 1000"]);
    let mut client = server.session();
    run_each(&mut client, "SELECT pg_sleep(5); SELECT rowsource_snapshot()");
    // The ring keeps its samples, and gets no more.
    run_each(
        &mut client,
        "ALTER SYSTEM SET pg_rowsource.history_frequency = 0; SELECT pg_reload_conf()",
    );
    let last = "SELECT max(sample_time) FROM rowsource_ash";
    loop {
        let before = texts(&mut client, last);
        run_each(&mut client, "SELECT pg_sleep(0.1)");
        if texts(&mut client, last) == before {
            break;
        }
    }
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let stored: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_ash");
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '3 days';
         SELECT rowsource_snapshot(); SELECT rowsource_snapshot(); SELECT rowsource_snapshot()",
    );
    let left: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_ash");
    println!("{left} of {stored} samples are left");
    assert!(stored > 20 && left < stored / 3, "{left} of {stored}");
}
