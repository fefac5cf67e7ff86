//! What the process that looks for regressions needs: time, the snapshots of a week ago, all plans of the
//! last run, and thousands of plans.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{keeping, make_plans, measuring};
use rowsource_tests::waiting::{TIMEOUT, until};
use std::fs;
use std::time::{Duration, Instant};

/// An hour after midnight, the same hour of a week ago began on the day before. The snapshots around it are
/// not merged yet.
#[test]
fn the_hour_of_a_week_ago_is_there_after_midnight() {
    let server = Server::preloaded("judged-midnight", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = server.session();
    for _ in 0..4 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    // The last one is of 00:40 (UTC) of tomorrow, and the others of a week before.
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET is_thinned = snap_id < 4, taken_at = date_trunc('day', now() + interval '1 day', 'UTC')
           + (ARRAY['-7 days -65 min', '-7 days -5 min', '-7 days +45 min', '40 min'])[snap_id]::interval;
         SELECT rowsource_snapshot()",
    );
    let left = texts(
        &mut client,
        "SELECT string_agg(snap_id::text, ' ' ORDER BY snap_id) FROM rowsource_snapshots",
    );
    assert_eq!(left[0][0].as_deref(), Some("1 2 3 4 5"));
    server.assert_no_crash();
}

/// A statement that was 20 times as fast, and another plan of it.
fn change_plan(client: &mut Client) {
    run_each(
        client,
        "CREATE TABLE u AS SELECT i AS n FROM generate_series(1, 60000) i; CREATE INDEX u_n ON u (n); VACUUM ANALYZE u",
    );
    let run = |client: &mut Client| (0..20).for_each(|_| run_each(client, "SELECT n FROM u WHERE n = 7"));
    run(client);
    run_each(client, "SELECT rowsource_judge(); DROP INDEX u_n");
    run(client);
}

/// Without a moment, the worker looks at once, and goes on to look each minute.
#[test]
fn the_worker_goes_on_after_it_was_asked_to_look_long() {
    let server = keeping("judged-on", &[]);
    let mut client = measuring(&server);
    change_plan(&mut client);
    let mut reader = server.connect();
    until(&mut reader, "SELECT EXISTS (SELECT FROM rowsource_regressions())");
    server.assert_no_crash();
}

/// The statements of ten seconds, before the plan changed, are loaded for some seconds. Who looks meanwhile
/// would take those that are missing for new ones a moment later: then the regression is too small a part of
/// the time of all statements since.
#[test]
fn who_looks_while_the_plans_are_loaded_waits_for_all_of_them() {
    let settings = [
        "pg_rowsource.statistics_level = 'basic'",
        "pg_rowsource.snapshot_interval = 0",
        "max_parallel_workers_per_gather = 0",
        "jit = off",
    ];
    let object = object("slow_loads/slow_loads.c");
    let mut server = Server::overridden("judged-loading", &settings, &object);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = measuring(&server);
    for i in 0..500 {
        let columns = "1, ".repeat(i);
        run_each(&mut client, &format!("SELECT {columns}pg_sleep(0.02)"));
    }
    change_plan(&mut client);
    let look = "SELECT rowsource_judge(now())";
    let state = "SELECT state, closing_reason FROM rowsource_regressions()";
    run_each(&mut client, look);
    let open = [[Some("open".to_owned()), None]];
    assert_eq!(texts(&mut client, state), open);
    drop(client);
    server.stop();
    let (file, slow) = ("pg_stat/pg_rowsource.stat", "slow_loads");
    let [file, slow] = [file, slow].map(|name| server.data().join(name));
    fs::write(&slow, "30000").expect("the file");
    server.launch();
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| run_each(&mut measuring(&server), "SELECT 1"));
        let deadline = Instant::now() + TIMEOUT;
        while file.exists() {
            assert!(Instant::now() < deadline, "nobody loads the plans");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!loading.is_finished(), "the plans are loaded at once");
        run_each(&mut server.connect(), look);
    });
    let mut client = server.connect();
    run_each(&mut client, look);
    assert_eq!(texts(&mut client, state), open);
    server.assert_no_crash();
}

const MANY: usize = 5_000;
/// How many statements become slower with the same plan. The causes of 16 are looked for.
const SLOWER: usize = 20;
const MAX_TIME: Duration = Duration::from_secs(2);
/// Who wants a lock that a snapshot has waits no longer.
const MAX_SNAPSHOT: Duration = Duration::from_secs(4);

/// Returns how long a statement took.
fn time_of(client: &mut Client, sql: &str) -> Duration {
    let began = Instant::now();
    run_each(client, sql);
    let time = began.elapsed();
    println!("{:.0} ms: {sql}", time.as_secs_f64() * 1e3);
    time
}

const ASKED: &str = "SELECT * FROM rowsource_regressions()";
/// A call must take this long, so that a timeout can end it inside.
const LEAST_TIME: Duration = Duration::from_millis(80);

/// Cancels a call early and in its middle. It is over after less than half of the time that the whole call
/// takes, and then three quarters of it: code that looks for no cancel request inside would run to its end.
fn is_cancelled_inside(client: &mut Client) {
    let whole = (0..3).map(|_| time_of(client, ASKED)).min().unwrap_or_default();
    assert!(whole >= LEAST_TIME, "{whole:?} is too short to tell");
    for [timeout, limit] in [[whole / 8, whole / 2], [whole * 3 / 8, whole * 3 / 4]] {
        run_each(
            client,
            &format!("SET statement_timeout = {}", timeout.as_millis()),
        );
        let began = Instant::now();
        let (code, message) = must_fail(client, ASKED);
        let cancelled = began.elapsed();
        println!("cancelled after {cancelled:?} of {whole:?}, at {timeout:?}");
        assert_eq!(code.code(), "57014", "{message}");
        assert!(cancelled < limit, "{cancelled:?} of {whole:?}");
    }
    run_each(client, "RESET statement_timeout");
}

/// Copies the first snapshot: one of each hour of two weeks, each with 2,100 of its plans. These are as many
/// rows as the largest size of the history has room for.
fn make_history(client: &mut Client) {
    client
        .batch_execute(
            "INSERT INTO rowsource_snapshots
             SELECT (jsonb_populate_record(s, jsonb_build_object('snap_id', 2 + n, 'taken_at', now() - (337 - n) * interval '1 h'))).*
               FROM rowsource_snapshots s, generate_series(1, 336) n WHERE s.snap_id = 1;
             INSERT INTO rowsource_snapshot_plans
             SELECT (jsonb_populate_record(p, jsonb_build_object('snap_id', 2 + n))).*
               FROM (SELECT p.*, row_number() OVER () AS number FROM rowsource_snapshot_plans p WHERE p.snap_id = 1) q
                    JOIN rowsource_snapshot_plans p USING (snap_id, userid, datid, queryid, planid, toplevel, first_seen_at)
                    JOIN generate_series(1, 336) n ON (q.number / 300 + n) % 17 < 7;
             SELECT setval('rowsource_snapshots_snap_id_seq', 1000);
             ANALYZE rowsource_snapshots; ANALYZE rowsource_snapshot_plans",
        )
        .expect("the history");
}

/// Starts a server that has thousands of plans. Returns statements of which the last ones can become slower.
fn many_plans() -> (Server, Client, Vec<String>) {
    let settings = [
        "pg_rowsource.max_plans = 6000",
        "pg_rowsource.max_memory = '200MB'",
        "pg_rowsource.snapshot_interval = 0",
        "pg_rowsource.track = 'top'",
    ];
    let server = keeping("judged-many", &settings);
    let mut client = measuring(&server);
    client
        .batch_execute(
            "CREATE FUNCTION burn(ms float8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS
             'DECLARE until timestamptz := clock_timestamp() + ms * interval ''1 ms'';
              BEGIN WHILE clock_timestamp() < until LOOP END LOOP; RETURN true; END';
             CREATE TABLE pace AS SELECT 1 AS ms FROM generate_series(1, 5)",
        )
        .expect("the function");
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    make_plans(&mut client, MANY, 1);
    run_each(&mut client, "SET pg_rowsource.track = 'top'");
    let statement = |table: &str, i: usize| {
        format!(
            "SELECT {}count(*) FROM {table} WHERE burn(0.1 * ms)",
            "1, ".repeat(i)
        )
    };
    run_each(&mut client, "CREATE TABLE even AS SELECT 1 AS ms");
    // Most plans stay as they are: they say how fast the machine is.
    let even = (0..2 * SLOWER).map(|i| statement("even", i));
    let slower = (0..SLOWER).map(|i| statement("pace", i));
    let statements: Vec<String> = even.chain(slower).collect();
    (server, client, statements)
}

/// What is looked at each minute, and what is asked for, with as many plans as are kept and two weeks of
/// snapshots.
#[test]
fn thousands_of_plans_and_two_weeks_of_snapshots_are_judged_in_two_seconds_long() {
    let (server, mut client, statements) = many_plans();
    let run = |client: &mut Client, times: usize| {
        (0..times).for_each(|_| statements.iter().for_each(|sql| run_each(client, sql)));
    };
    // What the plans did in an hour of the past is a baseline.
    for times in [2, 6] {
        run(&mut client, times);
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = now() - interval '20 days' + snap_id * interval '61 min';
         SELECT rowsource_baseline('good', min(taken_at)::text, max(taken_at)::text) FROM rowsource_snapshots;
         INSERT INTO pace SELECT 1 FROM generate_series(1, 45)",
    );
    make_history(&mut client);
    run(&mut client, 1);
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    make_plans(&mut client, MANY, 1);
    run_each(&mut client, "SET pg_rowsource.track = 'top'");
    // It also notes what each plan that ran is compared with.
    let taken = time_of(&mut client, "SELECT rowsource_snapshot()");
    assert!(taken < MAX_SNAPSHOT, "{taken:?}");
    for number in 0..5 {
        run(&mut client, 2);
        let looked = time_of(
            &mut client,
            &format!("SELECT rowsource_judge(now() + {number} * interval '15 min')"),
        );
        assert!(looked < MAX_TIME, "{looked:?}");
    }
    let plans: i64 = value(&mut client, "SELECT plans FROM rowsource_info()");
    let row = texts(
        &mut client,
        "SELECT count(*)::text, count(cause)::text FROM rowsource_regressions()",
    );
    let stored: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_plans");
    println!("{plans} plans, {stored} of snapshots, {row:?} regressions and causes");
    assert!(plans >= MANY as i64 && stored > 600_000, "{plans}, {stored}");
    assert_eq!(row, [[Some("20".to_owned()), Some("16".to_owned())]]);
    let asked = time_of(&mut client, ASKED);
    assert!(asked < MAX_TIME, "{asked:?}");
    // The interval is of the last snapshots, and the time before of the hours before them.
    for interval in ["", "'1 day'"] {
        let report = format!("SELECT * FROM rowsource_report({interval})");
        let reported = time_of(&mut client, &report);
        println!("the report on {interval} took {reported:?}");
        assert!(reported < MAX_TIME, "{interval}: {reported:?}");
    }
    is_cancelled_inside(&mut client);
    server.assert_no_crash();
}
