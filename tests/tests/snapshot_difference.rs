//! What happened between two snapshots is the difference of the views at its ends, to the row.

use postgres::Client;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::basic_server;
use std::error::Error;

/// The columns of the counters of temporary files.
const IO: [&str; 12] = [
    "small_reads",
    "small_read_bytes",
    "small_read_time",
    "large_reads",
    "large_read_bytes",
    "large_read_time",
    "small_writes",
    "small_write_bytes",
    "small_write_time",
    "large_writes",
    "large_write_bytes",
    "large_write_time",
];
/// Those of plans.
const PLANS: [&str; 6] = [
    "calls",
    "total_time",
    "temp_blks_read",
    "temp_blks_written",
    "temp_blk_read_time",
    "temp_blk_write_time",
];
const PLAN_KEY: &str = "userid, datid, queryid, planid, toplevel";

/// What the views show before and after each snapshot, in one statement, so that no message of a client comes
/// between.
const SET_UP: &str = "
    CREATE TABLE ends (n int, snap_id bigint, taken_at timestamptz);
    CREATE TABLE intervals (n int, previous int, step int);
    CREATE TABLE seen_io AS SELECT 0 AS n, false AS after, v.* FROM pg_stat_rowsource_tempfile_io v WITH NO DATA;
    CREATE TABLE seen_waits AS SELECT 0 AS n, false AS after, v.* FROM pg_stat_rowsource_system_waits v WITH NO DATA;
    CREATE TABLE seen_plans AS SELECT 0 AS n, false AS after, v.* FROM pg_stat_rowsource_plans v WITH NO DATA;
    CREATE PROCEDURE see(n int, after boolean) LANGUAGE plpgsql AS '
    BEGIN
        INSERT INTO seen_plans SELECT n, after, v.* FROM pg_stat_rowsource_plans v WHERE queryid IS NOT NULL;
        INSERT INTO seen_io SELECT n, after, v.* FROM pg_stat_rowsource_tempfile_io v;
        INSERT INTO seen_waits SELECT n, after, v.* FROM pg_stat_rowsource_system_waits v;
    END';
    CREATE PROCEDURE take(n int) LANGUAGE plpgsql AS '
    DECLARE id bigint;
    BEGIN
        CALL see(n, false);
        id := rowsource_snapshot();
        CALL see(n, true);
        INSERT INTO ends SELECT n, s.snap_id, s.taken_at FROM rowsource_snapshots s WHERE s.snap_id = id;
    END';
    CREATE TABLE of_step AS SELECT 1 AS i;
    CREATE TABLE large AS SELECT i, repeat('x', 50) AS filler FROM generate_series(1, 20000) i";

/// Before this end, the server starts anew.
const RESTARTED: i32 = 7;

const NONE: [Vec<Option<String>>; 0] = [];

/// Of these, [`wrong`] must see each.
const FAULTS: [&str; 6] = [
    "UPDATE rowsource_snapshot_plans SET calls = calls + 1 WHERE snap_id = 4",
    "DELETE FROM rowsource_snapshot_plans WHERE snap_id = 4 AND planid = (SELECT min(planid) FROM rowsource_snapshot_plans WHERE snap_id = 4)",
    "UPDATE rowsource_snapshot_tempfile_io SET large_write_bytes = large_write_bytes + 1 WHERE snap_id = 4",
    "DELETE FROM rowsource_snapshot_tempfile_io WHERE snap_id = 4",
    "UPDATE rowsource_snapshot_waits SET waits = waits + 1 WHERE snap_id = 4 AND wait_event = 'PgSleep'",
    "DELETE FROM rowsource_snapshot_waits WHERE snap_id = 4",
];

/// Returns the rows that the first query has and the second does not, and the other way round.
fn different(client: &mut Client, shown: &str, expected: &str) -> Vec<Vec<Option<String>>> {
    texts(
        client,
        &format!(
            "WITH shown AS ({shown}), expected AS ({expected})
             SELECT 'shown', to_json(d) FROM (SELECT * FROM shown EXCEPT ALL SELECT * FROM expected) d
             UNION ALL
             SELECT 'expected', to_json(d) FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM shown) d"
        ),
    )
}

/// Returns the sums of the differences of columns of `b` and `a`; of `b` alone where `a` has no row.
fn differences(columns: &[&str]) -> String {
    let of = columns
        .iter()
        .map(|column| format!("round(sum(b.{column} - coalesce(a.{column}, 0))::numeric, 3) AS {column}"));
    of.collect::<Vec<_>>().join(", ")
}

/// Returns the sums of columns. An interval has a row for each reset in it.
fn sums(columns: &[&str]) -> String {
    let of = columns
        .iter()
        .map(|column| format!("round(sum({column})::numeric, 3) AS {column}"));
    of.collect::<Vec<_>>().join(", ")
}

/// Returns what is wrong if the interval that ends with each of these ends does not show the difference to
/// the previous one.
fn wrong(client: &mut Client, ends: &[i32]) -> Vec<Vec<Option<String>>> {
    run_each(client, "DELETE FROM intervals");
    for pair in ends.windows(2) {
        run_each(
            client,
            &format!(
                "INSERT INTO intervals SELECT {}, {}, i FROM generate_series({} + 1, {0}) i",
                pair[1], pair[0], pair[0]
            ),
        );
    }
    let shown = format!(
        "SELECT e.n, v.datid, v.datname, v.filetype, v.source, {}
           FROM rowsource_interval_tempfile_io v JOIN ends e USING (snap_id) JOIN (SELECT DISTINCT n FROM intervals) i USING (n)
          GROUP BY 1, 2, 3, 4, 5",
        sums(&IO)
    );
    let expected = format!(
        "SELECT i.n, b.datid, b.datname, b.filetype, b.source, {}
           FROM intervals i JOIN seen_io b ON b.n = i.step AND b.after
                LEFT JOIN seen_io a ON a.n = i.step - 1 AND a.after AND a.datid IS NOT DISTINCT FROM b.datid
                     AND a.filetype = b.filetype AND a.stats_reset = b.stats_reset
          GROUP BY 1, 2, 3, 4, 5",
        differences(&IO)
    );
    let rows: i64 = value(
        client,
        &format!("SELECT count(*) FROM ({expected}) e WHERE small_reads > 0"),
    );
    assert!(
        rows as usize >= ends.len() - 1,
        "{rows} rows with requests to files"
    );
    let mut wrong = different(client, &shown, &expected);

    let shown = format!(
        "SELECT e.n, {PLAN_KEY}, v.usename::text, v.datname::text, v.query, {}
           FROM rowsource_interval_plans v JOIN ends e USING (snap_id) JOIN (SELECT DISTINCT n FROM intervals) i USING (n)
          GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9",
        sums(&PLANS)
    );
    let key = "(b.userid, b.datid, b.queryid, b.planid, b.toplevel)";
    let expected = format!(
        "SELECT i.n, b.userid, b.datid, b.queryid, b.planid, b.toplevel, b.usename::text, b.datname::text, b.query, {}
           FROM intervals i JOIN ends e ON e.n = i.step - 1
                JOIN seen_plans b ON b.n = i.step AND b.after AND b.last_seen_at >= e.taken_at
                LEFT JOIN seen_plans a ON a.n = i.step - 1 AND a.after AND a.first_seen_at = b.first_seen_at
                     AND {key} = {}
          GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9",
        differences(&PLANS),
        key.replace("b.", "a.")
    );
    let rows: i64 = value(client, &format!("SELECT count(*) FROM ({expected}) e"));
    assert!(rows as usize >= 5 * (ends.len() - 1), "{rows} rows of plans");
    wrong.extend(different(client, &shown, &expected));

    wrong.extend(wrong_waits(client, ends.len() - 1));
    wrong
}

/// Returns what is wrong with the waits of these intervals, of which each has some of pg_sleep().
fn wrong_waits(client: &mut Client, intervals: usize) -> Vec<Vec<Option<String>>> {
    // The session that sees them waits itself, so some have a lower and an upper bound. A start of the server
    // begins anew.
    let bounds = format!(
        "SELECT i.n, k.*, coalesce(b.waits, 0) - coalesce(aa.waits, 0) AS least, ba.waits - coalesce(a.waits, 0) AS most,
                coalesce(b.wait_time, 0) - coalesce(aa.wait_time, 0) - 1e-6 AS least_time,
                ba.wait_time - coalesce(a.wait_time, 0) + 1e-6 AS most_time
           FROM (SELECT DISTINCT n, CASE WHEN n <> {RESTARTED} THEN previous END AS previous FROM intervals) i
                CROSS JOIN (SELECT DISTINCT backend_type, coalesce(wait_event_type, '') AS wait_event_type, wait_event FROM seen_waits) k
                JOIN waits_of(i.n, true) ba USING (backend_type, wait_event_type, wait_event)
                LEFT JOIN waits_of(i.n, false) b USING (backend_type, wait_event_type, wait_event)
                LEFT JOIN waits_of(i.previous, true) aa USING (backend_type, wait_event_type, wait_event)
                LEFT JOIN waits_of(i.previous, false) a USING (backend_type, wait_event_type, wait_event)"
    );
    let judged = format!(
        "WITH judged AS (
             SELECT d.*, v.waits, v.wait_time
               FROM ({bounds}) d
                    FULL JOIN (SELECT e.n, w.* FROM rowsource_interval_waits w JOIN ends e USING (snap_id) JOIN (SELECT DISTINCT n FROM intervals) i USING (n)) v
                    ON v.n = d.n AND v.backend_type = d.backend_type AND v.wait_event = d.wait_event
                       AND coalesce(v.wait_event_type, '') = d.wait_event_type)"
    );
    let slept: i64 = value(
        client,
        &format!(
            "{judged} SELECT count(*) FROM judged WHERE wait_event = 'PgSleep' AND least = most AND least > 0"
        ),
    );
    assert!(slept as usize >= intervals, "{slept} rows of pg_sleep()");
    texts(
        client,
        &format!(
            "{judged} SELECT 'waits', to_json(j) FROM judged j
              WHERE coalesce(waits, 0) NOT BETWEEN least AND most OR coalesce(wait_time, 0) NOT BETWEEN least_time AND most_time
                    OR n IS NULL"
        ),
    )
}

/// Runs what happens before the end with this number: some plans each time, some now and then, failed ones,
/// cancelled ones, and ones that write files.
fn work(client: &mut Client, n: i32) {
    let attempts = [
        "SELECT 1 / (i - 1) FROM of_step".to_owned(),
        "SET statement_timeout = 20; SELECT count(*) FROM of_step WHERE pg_sleep(10) IS NOT NULL".to_owned(),
    ];
    run_each(client, "SET pg_rowsource.statistics_level = typical");
    for run in 0..=n {
        run_each(
            client,
            &format!(
                "SELECT count(*) FROM (SELECT i, filler FROM large WHERE i < {} ORDER BY filler, i DESC OFFSET 0) s;
                 SELECT i, {n} AS n FROM of_step;
                 SELECT i, {} AS n FROM of_step, pg_sleep(0.01)",
                20_000 - run,
                100 + n % 3
            ),
        );
    }
    run_each(
        client,
        &format!(
            "CREATE TEMP TABLE temporary{n} AS SELECT * FROM large; SELECT count(*) FROM temporary{n}; DROP TABLE temporary{n}"
        ),
    );
    for attempt in attempts {
        // Their errors are intended.
        let failed = client.batch_execute(&attempt).expect_err("an error");
        assert!(failed.source().is_some(), "{failed}");
        run_each(client, "RESET statement_timeout");
    }
    run_each(client, "SET pg_rowsource.statistics_level = basic");
}

#[test]
fn an_interval_is_the_difference_of_the_views_at_its_ends() {
    let mut server = basic_server(
        "snapshot-difference",
        &[
            "pg_rowsource.snapshot_interval = 0",
            "pg_rowsource.history_frequency = 0",
            "work_mem = '256kB'",
            "temp_buffers = '800kB'",
        ],
    );
    let mut observer = server.connect();
    observer.batch_execute(SET_UP).expect("the tables");
    run_each(
        &mut observer,
        "CREATE FUNCTION waits_of(wanted int, is_after boolean)
             RETURNS TABLE (backend_type text, wait_event_type text, wait_event text, waits bigint, wait_time float8)
             LANGUAGE sql AS 'SELECT w.backend_type, coalesce(w.wait_event_type, ''''), w.wait_event, w.waits, w.wait_time
                                FROM seen_waits w WHERE w.n = wanted AND w.after = is_after'",
    );
    let mut client = server.connect();
    for n in 0..=RESTARTED {
        if n == 3 {
            // What was before a reset, and after the last end, is in no difference.
            run_each(
                &mut observer,
                "SELECT rowsource_tempfile_reset();
                 SELECT rowsource_reset(0, 0, (SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM (SELECT i, filler%' LIMIT 1))",
            );
        }
        work(&mut client, n);
        if n == RESTARTED {
            // What sessions waited until then is in no snapshot.
            server.stop();
            server.launch();
            (observer, client) = (server.connect(), server.connect());
            work(&mut client, n);
        }
        run_each(&mut observer, &format!("CALL take({n})"));
    }
    // Nothing ran meanwhile.
    for (seen, columns) in [
        ("seen_io", format!("n, datid, filetype, {}", IO.join(", "))),
        ("seen_plans", format!("n, {PLAN_KEY}, {}", PLANS.join(", "))),
    ] {
        let side = |after| format!("SELECT {columns} FROM {seen} WHERE after = {after}");
        let moved = different(&mut observer, &side(false), &side(true));
        assert!(moved.is_empty(), "{seen}: {moved:#?}");
    }
    let all: Vec<i32> = (0..=RESTARTED).collect();
    assert_eq!(wrong(&mut observer, &all), NONE);
    // The functions show the same of an interval.
    let ends = texts(&mut observer, "SELECT snap_id, taken_at FROM ends ORDER BY n");
    for pair in ends.windows(2) {
        let [id, from, to] =
            [&pair[1][0], &pair[0][1], &pair[1][1]].map(|cell| cell.as_deref().expect("a value"));
        for name in [
            "rowsource_interval_tempfile_io",
            "rowsource_interval_waits",
            "rowsource_interval_plans",
        ] {
            let shown = format!("SELECT * FROM {name}('{from}', '{to}')");
            let view = format!("SELECT * FROM {name} WHERE snap_id = {id}");
            assert_eq!(
                different(&mut observer, &shown, &view),
                NONE,
                "{name} until snapshot {id}"
            );
        }
    }
    for fault in FAULTS {
        run_each(&mut observer, &format!("BEGIN; {fault}"));
        assert_ne!(wrong(&mut observer, &all), NONE, "{fault}");
        run_each(&mut observer, "ROLLBACK");
    }

    // Two days later, the last one of an hour stands for the others.
    run_each(
        &mut observer,
        "UPDATE rowsource_snapshots s
            SET taken_at = CASE WHEN e.n = 0 THEN now() - interval '80 hours'
                                ELSE date_trunc('hour', now() - interval '72 hours') + e.n * interval '1 min' END
           FROM ends e WHERE e.snap_id = s.snap_id AND e.n <= 4",
    );
    for _ in 0..8 {
        run_each(&mut observer, "SELECT rowsource_snapshot()");
    }
    let left = texts(
        &mut observer,
        "SELECT n FROM ends JOIN rowsource_snapshots USING (snap_id) ORDER BY 1",
    );
    let left: Vec<&str> = left.iter().flatten().flatten().map(String::as_str).collect();
    assert_eq!(left, ["0", "4", "5", "6", "7"]);
    assert_eq!(wrong(&mut observer, &[0, 4, 5, 6, RESTARTED]), NONE);
}
