//! Which plans are evicted, and what remains of them.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{
    basic_server, everything, info, keeping, kept, make_plans, measure_all, measured, measuring, only_kept,
    run_cheaply,
};
use rowsource_tests::waiting::until;

/// Returns a statement that differs from the others in its numbers of columns and conditions.
fn different(i: usize) -> String {
    let (columns, conditions) = ("id, ".repeat(i / 50), "id IS NOT NULL AND ".repeat(i % 50));
    format!("SELECT {columns}id AS different FROM t WHERE {conditions}id > id - id")
}

fn run_different(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    for i in numbers {
        run_each(client, &different(i));
    }
}

/// Starts a server with room for a hundred plans, and a table.
fn small_server(name: &str) -> Server {
    server_with_room(name, 100)
}

fn server_with_room(name: &str, plans: i64) -> Server {
    let server = basic_server(name, &[&format!("pg_rowsource.max_plans = {plans}")]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE t AS SELECT 1 AS id; ANALYZE t; SELECT rowsource_reset()",
    );
    server
}

/// The sums of all executions ever: calls, failed calls, rows, blocks and milliseconds.
#[derive(Debug)]
struct Totals {
    calls: i64,
    failed: i64,
    rows: i64,
    blocks: i64,
    total_ms: f64,
}

fn totals(client: &mut Client, condition: &str) -> Totals {
    let row = client
        .query_one(
            &format!(
                "SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(failed_calls), 0)::bigint,
                        coalesce(sum(rows), 0)::bigint,
                        coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint,
                        coalesce(sum(total_time), 0)
                 FROM pg_stat_rowsource_plans WHERE {condition}"
            ),
            &[],
        )
        .expect("pg_stat_rowsource_plans");
    Totals {
        calls: row.get(0),
        failed: row.get(1),
        rows: row.get(2),
        blocks: row.get(3),
        total_ms: row.get(4),
    }
}

/// Fails unless both are the same. The order of the additions changes the last digits of a time.
fn assert_same(one: &Totals, other: &Totals) {
    let exact = |totals: &Totals| (totals.calls, totals.failed, totals.rows, totals.blocks);
    assert_eq!(exact(one), exact(other));
    let difference = (one.total_ms - other.total_ms).abs();
    assert!(difference <= 1e-9 * one.total_ms, "{one:?}, {other:?}");
}

const OTHERS: &str = "queryid IS NULL AND query = 'others'";

#[test]
fn what_costs_most_is_kept() {
    let server = small_server("cost");
    let (mut reader, mut runner) = (server.connect(), measuring(&server));
    // It runs once, and takes as long as thousands of the others.
    const REPORT: &str = "SELECT sum(i) FROM generate_series(1, 500000) i";
    const TWICE: &str = "SELECT count(id) FROM t";
    run_cheaply(&mut reader, &mut runner, &different(1));
    run_each(&mut runner, &format!("{REPORT}; {TWICE}; {TWICE}"));
    run_different(&mut runner, 2..=300);
    assert!(info(&mut reader, "evictions") >= 200);
    assert_eq!(
        only_kept(&mut reader, "SELECT sum(i) FROM generate_series%").calls,
        1
    );
    assert_eq!(only_kept(&mut reader, TWICE).calls, 2);
    // The newest of those that ran once are there, too.
    for i in 296..=300 {
        assert_eq!(only_kept(&mut reader, &different(i)).calls, 1);
    }
    // One that comes again after its eviction is worth as much as one that ran twice.
    assert_eq!(kept(&mut reader, &different(1)).len(), 0);
    run_each(&mut runner, &different(1));
    run_different(&mut runner, 301..=500);
    assert_eq!(only_kept(&mut reader, &different(1)).calls, 1);
    server.assert_no_crash();
}

#[test]
fn totals_agree_before_and_after_evictions() {
    let mut server = server_with_room("totals", 200);
    let (mut reader, mut runner) = (server.connect(), measuring(&server));
    run_different(&mut runner, (1..=80).chain(1..=20));
    let _ = runner.batch_execute("SELECT 1 / (id - 1) FROM t");
    run_each(&mut reader, "CREATE DATABASE second");
    let mut second = server.try_connect_to("postgres", "second").expect("second");
    run_each(&mut second, "CREATE TABLE t AS SELECT 1 AS id");
    measure_all(&mut second);
    run_different(&mut second, 1..=10);
    let before = totals(&mut reader, "true");
    assert_eq!((before.calls, before.failed), (111, 1));
    assert_eq!(totals(&mut reader, OTHERS).calls, 0);
    let incomplete_at = "SELECT incomplete_at::text FROM rowsource_info()";
    assert_eq!(texts(&mut reader, incomplete_at), [[None]]);

    // Newer plans evict all of these. They are told apart by their text, and those that are gone by the known
    // number.
    let mut third = measuring(&server);
    let started: String = value(&mut reader, "SELECT clock_timestamp()::text");
    for i in 1..=400 {
        let columns = "id + id, ".repeat(i);
        run_each(&mut third, &format!("SELECT {columns}id AS newer FROM t"));
    }
    let after = totals(&mut reader, "true");
    assert_eq!(
        (after.calls, after.failed, after.rows),
        (511, 1, before.rows + 400)
    );
    assert!(after.blocks >= before.blocks, "{after:?}");
    let others = totals(&mut reader, OTHERS);
    assert_eq!(others.calls as u64, {
        let kept = totals(&mut reader, &format!("NOT ({OTHERS})"));
        (after.calls - kept.calls) as u64
    });
    assert!(others.calls > 250 && others.rows > 250, "{others:?}");
    // A sum for each database.
    let by_database = texts(
        &mut reader,
        &format!(
            "SELECT datname, userid IS NULL AND planid IS NULL AND toplevel
             FROM pg_stat_rowsource_plans WHERE {OTHERS} ORDER BY 1"
        ),
    );
    let row = |name: &str| vec![Some(name.to_string()), Some("t".to_string())];
    assert_eq!(by_database, [row("postgres"), row("second")]);
    let since_then: bool = value(
        &mut reader,
        &format!("SELECT incomplete_at BETWEEN '{started}' AND now() FROM rowsource_info()"),
    );
    assert!(since_then);

    // Everyone may see the sums, which hold no text.
    run_each(&mut reader, "CREATE ROLE regress_anyone LOGIN");
    let mut anyone = server.try_connect("regress_anyone").expect("a session");
    assert_eq!(totals(&mut anyone, OTHERS).calls, others.calls);

    // All of it survives a restart.
    let history = "SELECT evictions || ' ' || incomplete_at || ' ' || stats_reset FROM rowsource_info()";
    let (all, known): (String, String) = (everything(&mut reader), value(&mut reader, history));
    drop((reader, runner, second, third, anyone));
    server.stop();
    server.launch();
    let mut reader = server.connect();
    assert_eq!(everything(&mut reader), all);
    assert_eq!(value::<String>(&mut reader, history), known);

    // If the store is smaller then, what finds no room is added to the sums.
    let plans = info(&mut reader, "plans");
    drop(reader);
    server.stop();
    server.configure("pg_rowsource.max_plans = 100");
    server.launch();
    let mut reader = server.connect();
    let evictions: i64 = known
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert_eq!(info(&mut reader, "plans"), 100);
    assert_eq!(info(&mut reader, "evictions"), evictions + plans - 100);
    assert_same(&totals(&mut reader, "true"), &after);

    // A reset of a database clears its sum, and a reset of everything clears all.
    run_each(
        &mut reader,
        "SELECT rowsource_reset(datid => oid) FROM pg_database WHERE datname = 'second'",
    );
    assert_eq!(
        texts(
            &mut reader,
            &format!("SELECT datname FROM pg_stat_rowsource_plans WHERE {OTHERS}")
        ),
        [[Some("postgres".to_string())]]
    );
    run_each(&mut reader, "SELECT rowsource_reset(queryid => 4711)");
    assert_ne!(totals(&mut reader, OTHERS).calls, 0);
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(totals(&mut reader, "true").calls, 0);
    assert_eq!(info(&mut reader, "evictions"), 0);
    assert_eq!(texts(&mut reader, incomplete_at), [[None]]);
    server.assert_no_crash();
}

/// The totals are exact to the last digits when only evictions happen.
#[test]
fn evictions_change_no_total() {
    let server = basic_server("exact", &[]);
    let mut reader = server.connect();
    run_each(&mut reader, "CREATE TABLE t AS SELECT 1 AS id; ANALYZE t");
    let mut runner = measuring(&server);
    run_different(&mut runner, 1..=2_000);
    let before = totals(&mut reader, "true");
    assert_eq!(info(&mut reader, "evictions"), 0);
    run_each(
        &mut reader,
        "ALTER SYSTEM SET pg_rowsource.max_memory = '2MB'; SELECT pg_reload_conf()",
    );
    // One more plan, as soon as the session sees the setting.
    let mut i = 2_000;
    while info(&mut reader, "evictions") == 0 {
        i += 1;
        run_each(&mut runner, &different(i));
        assert!(i < 10_000, "the setting has no effect");
    }
    let newer: Vec<String> = (2_001..=i).map(|i| format!("'{}'", different(i))).collect();
    let newest = totals(&mut reader, &format!("query IN ({})", newer.join(", ")));
    assert_eq!(newest.calls, i as i64 - 2_000, "the newest plans are kept");
    let after = totals(
        &mut reader,
        &format!("coalesce(query, '') NOT IN ({})", newer.join(", ")),
    );
    assert_same(&before, &after);
    assert!(totals(&mut reader, OTHERS).calls > 0);
    server.assert_no_crash();
}

/// A session is idle with executions in its buffer, and their plan is evicted.
#[test]
fn executions_of_an_evicted_plan_are_seen_while_their_session_is_idle() {
    let server = small_server("idle");
    let (mut reader, mut idle, mut runner) = (server.connect(), measuring(&server), measuring(&server));
    run_cheaply(&mut reader, &mut idle, &different(1));
    run_different(&mut runner, 2..=200);
    assert_eq!(kept(&mut reader, &different(1)).len(), 0);
    assert_eq!(totals(&mut reader, "true").calls, 200);
    for calls in 201..=203 {
        run_each(&mut idle, &different(1));
        assert_eq!(totals(&mut reader, "true").calls, calls);
    }
    server.assert_no_crash();
}

#[test]
fn refused_executions_are_in_the_sum() {
    let mut server = small_server("refused");
    let (mut reader, mut runner) = (server.connect(), measuring(&server));
    let shown = "SELECT evictions || ' ' || refused || ' ' || coalesce((incomplete_at <= now())::text, 'complete') FROM rowsource_info()";
    assert_eq!(value::<String>(&mut reader, shown), "0 0 complete");
    let selects: Vec<String> = (0..510)
        .map(|i| format!("SELECT count(*) + {i} FROM t"))
        .collect();
    run_each(&mut runner, &selects.join(" UNION ALL "));
    let others = totals(&mut reader, OTHERS);
    assert_eq!((others.calls, others.rows), (1, 510));
    assert_eq!(value::<String>(&mut reader, shown), "0 1 true");
    // They agree after a restart too, and after a reset.
    drop((reader, runner));
    server.stop();
    server.launch();
    let mut reader = server.connect();
    assert_eq!(value::<String>(&mut reader, shown), "0 1 true");
    run_each(&mut reader, "SELECT rowsource_reset()");
    assert_eq!(value::<String>(&mut reader, shown), "0 0 complete");
    server.assert_no_crash();
}

/// The log names the limit that was reached, and names it again only if it has changed.
#[test]
fn the_first_eviction_is_logged_once() {
    let server = small_server("logged");
    let mut reader = server.connect();
    let lines = || {
        let log = server.log();
        log.lines()
            .filter(|line| line.contains("has no room for all plans"))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    for round in 0..2 {
        measured(&mut reader, "SELECT 'room'");
        assert_eq!(lines().len(), round);
        for session in 0..3 {
            let mut runner = measuring(&server);
            run_different(&mut runner, (1..=150).map(|i| session * 150 + i));
        }
        assert!(info(&mut reader, "evictions") > 300);
        assert_eq!(lines().len(), 1, "{:?}", lines());
        run_each(&mut reader, "SELECT rowsource_reset()");
    }
    let line = lines().remove(0);
    assert!(
        line.contains("LOG:") && line.contains("pg_rowsource.max_plans (100)"),
        "{line}"
    );
    assert!(!line.contains("max_memory"), "{line}");
    server.assert_no_crash();
}

#[test]
fn evictions_for_memory_are_logged_once() {
    let server = keeping("logged-memory", &["pg_rowsource.max_memory = '2MB'"]);
    let mut client = server.connect();
    measure_all(&mut client);
    for limits in [&["2MB"][..], &["2MB"], &["2MB", "3MB"]] {
        let limit = limits[limits.len() - 1];
        run_each(
            &mut client,
            &format!(
                "SELECT rowsource_reset(); ALTER SYSTEM SET pg_rowsource.max_memory = '{limit}'; SELECT pg_reload_conf()"
            ),
        );
        until(
            &mut client,
            &format!("SELECT current_setting('pg_rowsource.max_memory') = '{limit}'"),
        );
        make_plans(&mut client, 600, 6);
        assert!(info(&mut client, "evictions") > 0);
        let lines: Vec<String> = server
            .log_of_library()
            .into_iter()
            .filter(|line| line.contains("has no room for all plans"))
            .collect();
        let named = limits
            .iter()
            .map(|limit| format!("to keep more plans, raise pg_rowsource.max_memory ({limit})"));
        assert!(
            lines.len() == limits.len() && lines.iter().zip(named).all(|(line, named)| line.contains(&named)),
            "{lines:#?}"
        );
    }
    server.assert_no_crash();
}

/// A dropped database leaves its sum.
#[test]
fn a_dropped_database_does_no_harm() {
    let server = small_server("dropped");
    let mut reader = server.connect();
    run_each(&mut reader, "CREATE DATABASE short");
    let mut short = server.try_connect_to("postgres", "short").expect("short");
    run_each(&mut short, "CREATE TABLE t AS SELECT 1 AS id");
    measure_all(&mut short);
    run_cheaply(&mut reader, &mut short, "SELECT id FROM t");
    drop(short);
    run_different(&mut measuring(&server), 1..=200);
    // The server waits until the session has ended.
    run_each(&mut reader, "DROP DATABASE short");
    assert_eq!(totals(&mut reader, "true").calls, 201);
    let names = format!("SELECT datname FROM pg_stat_rowsource_plans WHERE {OTHERS} ORDER BY 1 NULLS LAST");
    assert_eq!(
        texts(&mut reader, &names),
        [[Some("postgres".to_string())], [None]]
    );
    server.assert_no_crash();
}
