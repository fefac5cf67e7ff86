//! What becomes of snapshots with age: no figure moves, and no part of the work stays undone.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};

const SETTINGS: [&str; 3] = [
    "autovacuum = off",
    "pg_rowsource.snapshot_interval = 0",
    "pg_rowsource.history_frequency = 0",
];

/// The snapshots, three days ago: the first one of the day before, the others every four minutes of an hour.
const SNAPSHOTS: i64 = 13;
/// Those of the baseline.
const KEPT: [i64; 2] = [5, 9];

/// Takes the snapshots. A plan runs in each interval, and one in few of them.
fn take_snapshots(client: &mut Client) {
    run_each(
        client,
        "CREATE TABLE often AS SELECT 1 AS i; CREATE TABLE seldom AS SELECT 1 AS i",
    );
    for number in 1..=SNAPSHOTS {
        run_each(client, "SET pg_rowsource.statistics_level = typical");
        for _ in 0..number {
            run_each(client, "SELECT count(*) FROM often");
        }
        if [2, 3, 7, 12].contains(&number) {
            run_each(client, "SELECT count(*) FROM seldom");
        }
        run_each(
            client,
            "SET pg_rowsource.statistics_level = basic; SELECT rowsource_snapshot()",
        );
    }
    run_each(
        client,
        "UPDATE rowsource_snapshots SET taken_at = CASE WHEN snap_id = 1 THEN a - interval '1 day' ELSE a + snap_id * interval '4 min' END,
                first_sample_at = a + snap_id * interval '4 min' - interval '3 min', last_sample_at = a + snap_id * interval '4 min' - interval '1 min',
                sampled_moments = 3
           FROM (SELECT date_trunc('hour', now(), 'UTC') - interval '3 days' AS a) x;
         INSERT INTO rowsource_snapshot_ash (snap_id, sample_time, pid, moments)
         SELECT snap_id, first_sample_at + i * interval '1 min', 1, 1 FROM rowsource_snapshots, generate_series(0, 2) i WHERE snap_id > 1",
    );
}

/// Returns the moment of a snapshot.
fn taken_at(client: &mut Client, snapshot: i64) -> String {
    let sql = format!("SELECT taken_at::text FROM rowsource_snapshots WHERE snap_id = {snapshot}");
    value(client, &sql)
}

/// Returns the sums of the intervals before, between and after two moments: executions of each plan, and
/// samples.
fn figures(client: &mut Client, [from, to]: &[String; 2]) -> Vec<Vec<Option<String>>> {
    let plans = texts(
        client,
        &format!(
            "SELECT substring(query, 'often|seldom'), to_at > '{from}', to_at > '{to}', sum(calls) FROM rowsource_interval_plans
              WHERE query ~ 'FROM (often|seldom)' AND snap_id > 0 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        ),
    );
    let samples = texts(
        client,
        &format!(
            "SELECT a.at > '{from}', a.at > '{to}', sum(a.moments) FROM (
                 SELECT sample_time AS at, moments FROM rowsource_ash((now() - interval '60 days')::text, (now() - interval '2 days')::text)) a
              GROUP BY 1, 2 ORDER BY 1, 2"
        ),
    );
    plans.into_iter().chain(samples).collect()
}

/// The last snapshot of an hour gets what the others had, but not across the edge of a baseline.
#[test]
fn what_is_merged_stays_beside_a_baseline() {
    let server = Server::preloaded("age-baseline", &SETTINGS);
    let mut client = server.session();
    take_snapshots(&mut client);
    let ends = KEPT.map(|snapshot| taken_at(&mut client, snapshot));
    run_each(
        &mut client,
        &format!("SELECT rowsource_baseline('quiet', '{}', '{}')", ends[0], ends[1]),
    );
    // They would be thinned by chance.
    run_each(&mut client, "UPDATE rowsource_snapshots SET is_thinned = true");
    let before = figures(&mut client, &ends);
    assert_eq!(before.len(), 9, "{before:?}");
    let left =
        "SELECT string_agg(snap_id::text, ' ' ORDER BY snap_id) FROM rowsource_snapshots WHERE snap_id <= 13";
    for _ in 0..9 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
        let kept: String = value(&mut client, left);
        println!("{kept}");
        assert_eq!(figures(&mut client, &ends), before, "{kept}");
    }
    assert_eq!(value::<String>(&mut client, left), "1 4 5 6 7 8 9 13");
}

/// Returns what each plan did in each interval of the baseline.
fn in_baseline(client: &mut Client, [from, to]: &[String; 2]) -> Vec<Vec<Option<String>>> {
    let sql = format!(
        "SELECT snap_id, queryid, planid, usename, datname, query, calls, total_time, temp_blks_read FROM rowsource_interval_plans
          WHERE to_at > '{from}' AND to_at <= '{to}' AND query ~ 'FROM (often|seldom)' ORDER BY snap_id, query"
    );
    let rows = texts(client, &sql);
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert!(rows.iter().all(|row| row[6].is_some()), "{rows:?}");
    rows
}

#[test]
fn a_baseline_has_its_figures_when_all_before_it_is_gone() {
    let server = Server::preloaded("age-retention", &SETTINGS);
    let mut client = server.session();
    take_snapshots(&mut client);
    let ends = KEPT.map(|snapshot| taken_at(&mut client, snapshot));
    let all = "SELECT snap_id, query, calls FROM rowsource_interval_plans WHERE snap_id BETWEEN 1 AND 13 ORDER BY 1, 2";
    let whole = texts(&mut client, all);
    let before = in_baseline(&mut client, &ends);
    run_each(
        &mut client,
        &format!("SELECT rowsource_baseline('quiet', '{}', '{}')", ends[0], ends[1]),
    );
    assert_eq!(texts(&mut client, all), whole);
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '30 days';
         UPDATE rowsource_baselines SET from_at = from_at - interval '30 days', to_at = to_at - interval '30 days'",
    );
    for _ in 0..5 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    let left =
        "SELECT string_agg(snap_id::text, ' ' ORDER BY snap_id) FROM rowsource_snapshots WHERE snap_id <= 13";
    assert_eq!(value::<String>(&mut client, left), "5 6 7 8 9");
    let ends = KEPT.map(|snapshot| taken_at(&mut client, snapshot));
    assert_eq!(in_baseline(&mut client, &ends), before);
}

/// Reads lines of another server. Returns how many were new.
fn import(client: &mut Client, lines: &[Vec<Option<String>>]) -> i64 {
    let import = client
        .prepare("SELECT rowsource_import($1)")
        .expect("a statement");
    let lines = lines.iter().flatten().flatten();
    lines
        .map(|line| {
            i64::from(
                client
                    .query_one(&import, &[line])
                    .expect("a line")
                    .get::<_, bool>(0),
            )
        })
        .sum()
}

#[test]
fn a_part_has_the_same_figures_on_another_server() {
    let server = Server::preloaded("age-exported", &SETTINGS);
    let mut client = server.session();
    take_snapshots(&mut client);
    let ends = KEPT.map(|snapshot| taken_at(&mut client, snapshot));
    let export = |from: &str, to: &str| format!("SELECT rowsource_export('{from}', '{to}')");
    let lines = texts(&mut client, &export(&ends[0], &ends[1]));
    let other = Server::preloaded("age-imported", &SETTINGS);
    let mut there = other.session();
    assert_eq!(import(&mut there, &lines), lines.len() as i64);
    run_each(
        &mut there,
        "SELECT set_config('pg_rowsource.history_origin', origin, false) FROM rowsource_imported LIMIT 1",
    );
    let here = in_baseline(&mut client, &ends);
    assert_eq!(in_baseline(&mut there, &ends), here);

    // A part that was read already does not count again, whatever has become of it, and whoever exports it.
    let later = taken_at(&mut client, 11);
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET is_thinned = true, bytes = 1, sampled_moments = 7;
         UPDATE rowsource_snapshot_ash SET moments = 1000 WHERE snap_id < 8;
         SET TimeZone = 'Asia/Tokyo'; SET bytea_output = escape; SET extra_float_digits = 0; SET DateStyle = 'German'",
    );
    let lines = texts(&mut client, &export(&ends[0], &later));
    assert!(import(&mut there, &lines) > 0);
    let twice = "SELECT count(*) - count(DISTINCT (table_name, key)) FROM (
            SELECT table_name, CASE table_name WHEN 'rowsource_snapshot_ash' THEN content ->> 'sample_time'
                       WHEN 'rowsource_snapshots' THEN content ->> 'snap_id'
                       WHEN 'rowsource_snapshot_plans' THEN concat(content -> 'snap_id', content -> 'queryid', content -> 'planid') END AS key
              FROM rowsource_imported) x WHERE key IS NOT NULL";
    assert_eq!(value::<i64>(&mut there, twice), 0);
    assert_eq!(in_baseline(&mut there, &ends), here);
    let ends = [ends[0].clone(), later];
    let all = |client: &mut Client| {
        texts(
            client,
            &format!(
                "SELECT snap_id, query, calls, total_time, temp_blks_read FROM rowsource_interval_plans
                  WHERE to_at > '{}' AND to_at <= '{}' ORDER BY snap_id, query, planid",
                ends[0], ends[1]
            ),
        )
    };
    run_each(&mut client, "RESET extra_float_digits");
    assert_eq!(all(&mut there), all(&mut client));
    assert_eq!(import(&mut there, &lines), 0);
}

/// However much there is to do for old snapshots, each call does a part of it, and the next one goes on.
#[test]
fn a_backlog_is_worked_off_in_parts() {
    let server = Server::preloaded("age-backlog", &SETTINGS);
    let mut client = server.session();
    // Thirty that are too old, of which the first has many samples, and two that are to be thinned.
    run_each(
        &mut client,
        "INSERT INTO rowsource_snapshots (snap_id, taken_at, sampled_moments, first_sample_at, last_sample_at)
         SELECT -i, now() - CASE WHEN i > 2 THEN interval '40 days' ELSE interval '30 hours' END - i * interval '1 min', 1, now(), now() - interval '29 hours'
           FROM generate_series(1, 32) i;
         INSERT INTO rowsource_snapshot_ash (snap_id, sample_time, pid)
         SELECT s.snap_id, s.taken_at + i * interval '1 ms', i
           FROM rowsource_snapshots s, generate_series(1, CASE WHEN s.snap_id = -32 THEN 300000 WHEN s.snap_id >= -2 THEN 130000 ELSE 100 END) i;
         INSERT INTO rowsource_snapshot_waits SELECT s.snap_id, 'x', 'x', i::text, 1, 1, now() FROM rowsource_snapshots s, generate_series(1, 50) i;
         ANALYZE",
    );
    let state = "SELECT count(*) FILTER (WHERE taken_at < now() - interval '14 days'), count(*) FILTER (WHERE bytes IS NULL),
            (SELECT count(*) FROM rowsource_snapshot_ash WHERE snap_id < -2), (SELECT count(*) FROM rowsource_snapshot_ash WHERE snap_id >= -2 AND moments < 1000)
        FROM rowsource_snapshots WHERE snap_id < 0";
    let state = |client: &mut Client| -> [i64; 4] {
        let row = client.query_one(state, &[]).expect("a row");
        [row.get(0), row.get(1), row.get(2), row.get(3)]
    };
    let mut before = state(&mut client);
    assert_eq!(before, [30, 32, 302_900, 260_000]);
    let mut calls = 0;
    while before[0] > 0 || before[3] > 0 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
        let after = state(&mut client);
        println!("{after:?}");
        let done = [0, 2, 3].map(|at| before[at] - after[at]);
        assert!(done[0] <= 8 && done[1] + done[2] <= 200_000, "{done:?}");
        assert!(done.iter().any(|done| *done > 0), "{done:?}");
        before = after;
        calls += 1;
        assert!(calls < 30, "it does not end");
    }
    let left: i64 = value(
        &mut client,
        "SELECT sum(moments) FROM rowsource_snapshot_ash WHERE snap_id < 0",
    );
    assert!(
        (1_300_000..3_900_000).contains(&left),
        "{left} of 2600000 moments"
    );
}

/// What others had must not cost this server its own history.
#[test]
fn a_large_import_takes_no_snapshot_away() {
    let server = Server::preloaded("age-import", &SETTINGS);
    let mut client = server.session();
    run_each(
        &mut client,
        "ALTER SYSTEM SET pg_rowsource.snapshot_max_size = '3MB'; SELECT pg_reload_conf()",
    );
    rowsource_tests::waiting::until(
        &mut client,
        "SELECT current_setting('pg_rowsource.snapshot_max_size') = '3MB'",
    );
    for _ in 0..5 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    let line = r#"SELECT rowsource_import(format('{"rowsource_export": 1, "line": 1, "origin": "1", "table": "rowsource_snapshot_plans",
            "snap_id": %1$s, "row": {"snap_id": %1$s, "query": "%2$s"}}', i, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 1000))))
        FROM generate_series(GENERATED) i"#;
    for batch in 0..15 {
        let statement = line.replace("GENERATED", &format!("{0}, {0} + 0", batch));
        run_each(&mut client, &statement);
    }
    let (code, message) = must_fail(&mut client, &line.replace("GENERATED", "100, 300"));
    assert_eq!(code.code(), "53400", "{message}");
    assert!(message.contains("VACUUM FULL"), "{message}");
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let own = "SELECT count(*) FROM rowsource_snapshots";
    assert_eq!(value::<i64>(&mut client, own), 6);
    // There is room again.
    run_each(
        &mut client,
        "DELETE FROM rowsource_imported; VACUUM FULL rowsource_imported",
    );
    run_each(&mut client, &line.replace("GENERATED", "1, 2"));
}
