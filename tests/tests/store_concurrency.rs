//! Many sessions at once: totals are exact. With resets, evictions, readers and killed sessions, nothing
//! fails, and only what was reset or evicted is lost.

use rowsource_tests::Server;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{
    basic_server, everything, info, measured, measuring, node_value, only_kept, run_cheaply,
};
use rowsource_tests::waiting::until;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SESSIONS: usize = 8;
const ROUNDS: usize = 200;
const STATEMENTS: [&str; 4] = [
    "SELECT id FROM t WHERE id <= ",
    "SELECT sum(id) FROM t WHERE grp + 0 < ",
    "SELECT a.id FROM t a JOIN t b ON b.id = a.id + 1 WHERE a.id < ",
    "UPDATE own SET v = v + 1 WHERE id > 0 AND id <= ",
];

fn prepare(server: &Server) {
    run_each(
        &mut server.connect(),
        "CREATE TABLE t (id int PRIMARY KEY, grp int);
         INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 200) i; VACUUM (FREEZE, ANALYZE) t;
         CREATE TABLE own (id int PRIMARY KEY, v int); INSERT INTO own VALUES (1, 0); ANALYZE own",
    );
}

#[test]
fn totals_add_up_exactly() {
    let server = basic_server("add-up", &["pg_rowsource.max_plans = 100"]);
    prepare(&server);
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = server.connect();
                while running.load(Relaxed) {
                    everything(&mut reader);
                    // A copy never contains half an update: every execution returns one row from the
                    // aggregate.
                    let torn: i64 = value(
                        &mut reader,
                        "SELECT count(*) FROM pg_stat_rowsource
                         WHERE operation = 'Aggregate' AND NOT (rows = executions AND starts = executions)",
                    );
                    assert_eq!(torn, 0);
                }
            });
        }
        let runners: Vec<_> = (0..SESSIONS)
            .map(|session| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = measuring(server);
                    for round in 0..ROUNDS {
                        for statement in STATEMENTS {
                            let bound = 1 + (session + round) % 10;
                            run_each(&mut client, &format!("{statement}{bound}"));
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = runners.into_iter().map(|runner| runner.join()).collect();
        running.store(false, Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    let mut client = server.connect();
    let bounds = || (0..SESSIONS).flat_map(|s| (0..ROUNDS).map(move |r| 1 + (s + r) % 10));
    let calls = (SESSIONS * ROUNDS) as i64;
    let first: usize = bounds().sum();
    let second: usize = bounds().map(|bound| bound * 20).sum();
    let third: usize = bounds().map(|bound| bound - 1).sum();
    for (statement, rows, node) in [
        (STATEMENTS[0], first, 0),
        (STATEMENTS[1], second, 1),
        (STATEMENTS[2], third, 0),
        (STATEMENTS[3], calls as usize, 1),
    ] {
        let plan = only_kept(&mut client, &format!("{statement}%"));
        assert_eq!(
            (plan.calls, plan.failed_calls, plan.cancelled_calls),
            (calls, 0, 0),
            "{statement}"
        );
        assert_eq!(
            node_value(&mut client, &plan, node, "rows"),
            rows as f64,
            "{statement}"
        );
        assert_eq!(
            node_value(&mut client, &plan, 0, "starts"),
            calls as f64,
            "{statement}"
        );
        assert!(plan.min_time <= plan.mean_time && plan.mean_time <= plan.max_time);
        assert!((plan.mean_time * calls as f64 / plan.total_time - 1.0).abs() < 1e-9);
    }
    let updated: i32 = value(&mut client, "SELECT v FROM own");
    assert_eq!(i64::from(updated), calls);
    assert_eq!(
        (info(&mut client, "evictions"), info(&mut client, "refused")),
        (0, 0)
    );
    server.assert_no_crash();
}

#[test]
fn nothing_fails_with_resets_evictions_readers_and_kills() {
    const SECONDS: u64 = 5;
    let server = basic_server("storm", &["pg_rowsource.max_plans = 100"]);
    prepare(&server);
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let go = || Instant::now() < end;
    std::thread::scope(|scope| {
        let server = &server;
        for session in 0..4 {
            // Known plans.
            scope.spawn(move || {
                let mut client = measuring(server);
                let mut round = session;
                while go() {
                    round += 1;
                    run_each(&mut client, &format!("{}{}", STATEMENTS[round % 3], round % 10));
                }
            });
            // New plans all the time, with few queryids and with many.
            scope.spawn(move || {
                let mut client = measuring(server);
                let mut round = session * 50;
                while go() {
                    round = (round + 1) % 250;
                    run_each(
                        &mut client,
                        &format!("SELECT {} grp FROM t", "id, ".repeat(round)),
                    );
                }
            });
        }
        scope.spawn(move || {
            let mut client = measuring(server);
            while go() {
                run_each(&mut client, "SELECT rowsource_reset()");
                std::thread::sleep(Duration::from_millis(30));
                let plan: Option<i64> = client
                    .query_one("SELECT max(queryid) FROM pg_stat_rowsource_plans", &[])
                    .expect("plans")
                    .get(0);
                let queryid = plan.unwrap_or(1);
                run_each(
                    &mut client,
                    &format!("SELECT rowsource_reset(queryid => {queryid})"),
                );
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                let mut client = measuring(server);
                // What it reads is not measured, because it uses the extension.
                run_each(&mut client, "SELECT 1");
                while go() {
                    everything(&mut client);
                    run_each(
                        &mut client,
                        "SELECT * FROM rowsource_info(); SELECT count(*) FROM rowsource_misestimates;
                         SELECT count(*) FROM rowsource_plan_flips; SELECT count(*) FROM rowsource_display()",
                    );
                }
            });
        }
        // Sessions that are killed or cancelled at any moment.
        scope.spawn(move || {
            while go() {
                let mut client = measuring(server);
                let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
                run_each(&mut client, "SET statement_timeout = 3");
                let mut killer = server.connect();
                let victim = std::thread::spawn(move || {
                    for round in 0..1000 {
                        let heavy = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id = c.grp";
                        let _ = client.batch_execute(heavy);
                        if client
                            .batch_execute(&format!("SELECT {} 'v' FROM t", "id, ".repeat(round % 30)))
                            .is_err()
                            && client.is_closed()
                        {
                            return;
                        }
                    }
                });
                std::thread::sleep(Duration::from_millis(40));
                run_each(&mut killer, &format!("SELECT pg_terminate_backend({pid})"));
                victim.join().expect("the killed session's thread");
            }
        });
    });
    let mut client = server.connect();
    // Sessions that were killed may still add their executions.
    until(
        &mut client,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    let (shown, kept) = (
        value::<i64>(&mut client, "SELECT count(*) FROM pg_stat_rowsource_plans"),
        info(&mut client, "plans"),
    );
    assert_eq!(shown, kept);
    assert!(kept <= 100, "{kept}");
    assert_eq!(info(&mut client, "refused"), 0);
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!((info(&mut client, "plans"), info(&mut client, "bytes")), (0, 0));
    measured(&mut client, "SELECT sum(id) FROM t WHERE grp + 0 < 3");
    assert_eq!(only_kept(&mut client, "SELECT sum(id) FROM t%").calls, 1);
    server.assert_no_crash();
}

#[test]
fn pending_executions_are_seen_at_once_and_never_lost() {
    let server = basic_server("pending", &["pg_rowsource.max_plans = 100"]);
    prepare(&server);
    let (mut reader, mut runner) = (server.connect(), measuring(&server));
    const STATEMENT: &str = "SELECT id FROM t WHERE id <= 3";
    let calls = |reader: &mut postgres::Client| only_kept(reader, STATEMENT).calls;
    // Read while the runner is idle.
    for round in 1..=20 {
        run_each(&mut runner, STATEMENT);
        assert_eq!(calls(&mut reader), round);
        let plan = only_kept(&mut reader, STATEMENT);
        assert_eq!(node_value(&mut reader, &plan, 0, "rows"), 3.0 * round as f64);
    }
    // Another session resets the statistics.
    for pause in [0, 1100] {
        run_each(&mut reader, "SELECT rowsource_reset()");
        std::thread::sleep(Duration::from_millis(pause));
        for round in 1..=3 {
            run_each(&mut runner, STATEMENT);
            assert_eq!(calls(&mut reader), round, "after {pause} ms");
        }
    }
    // Another session's plans evict a plan that ran once.
    run_cheaply(&mut reader, &mut runner, STATEMENT);
    assert_eq!(calls(&mut reader), 1);
    let mut other = measuring(&server);
    let longer_ago = info(&mut reader, "evictions");
    for round in 0..200 {
        run_each(&mut other, &format!("SELECT {} grp FROM t", "id, ".repeat(round)));
    }
    assert!(info(&mut reader, "evictions") > longer_ago);
    run_each(&mut runner, STATEMENT);
    assert_eq!(calls(&mut reader), 1);
    // More plans than the session's buffer has slots, and the session ends with pending executions. All plans
    // have room.
    run_each(&mut reader, "SELECT rowsource_reset()");
    for round in 0..10 {
        for columns in 1..30 {
            run_each(
                &mut runner,
                &format!("SELECT {} 'g' FROM t", "id, ".repeat(columns)),
            );
        }
        if round % 3 == 0 {
            everything(&mut reader);
        }
    }
    for _ in 0..5 {
        run_each(&mut runner, STATEMENT);
    }
    drop(runner);
    let deadline = Instant::now() + Duration::from_secs(60);
    while calls(&mut reader) != 5 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(calls(&mut reader), 5);
    for columns in 1..30 {
        let statement = format!("SELECT {} 'g' FROM t", "id, ".repeat(columns));
        assert_eq!(only_kept(&mut reader, &statement).calls, 10, "{columns}");
    }
    assert_eq!(info(&mut reader, "refused"), 0);
    server.assert_no_crash();
}

#[test]
fn memory_is_given_back() {
    /// What the allocator may take at once when it has some megabytes.
    const SEGMENT: u64 = 2 << 20;
    let server = basic_server("give-back", &["pg_rowsource.max_plans = 100"]);
    prepare(&server);
    let mut client = measuring(&server);
    let churn = |client: &mut postgres::Client| {
        for round in 0..400 {
            run_each(client, &format!("SELECT {} grp FROM t", "id, ".repeat(round)));
        }
    };
    churn(&mut client);
    let mapped = || process::dynamic_shared_memory(server.postmaster());
    let before = mapped();
    for _ in 0..5 {
        churn(&mut client);
    }
    let after = mapped();
    println!("dynamic shared memory: {before} bytes, {after} after five times as many plans");
    assert!(
        before > 0 && after <= before + before / 4 + SEGMENT,
        "{before} bytes grew to {after}"
    );
}

#[test]
fn the_first_statements_of_many_sessions_count() {
    const FIRST: usize = 24;
    for round in 0..3 {
        let server = basic_server(&format!("first-{round}"), &[]);
        run_each(&mut server.connect(), "CREATE TABLE t AS SELECT 1 AS id");
        let mut clients: Vec<_> = (0..FIRST).map(|_| measuring(&server)).collect();
        // All at once, before the store exists.
        let start = std::sync::Barrier::new(FIRST);
        std::thread::scope(|scope| {
            for client in &mut clients {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    run_each(client, "SELECT id FROM t");
                });
            }
        });
        let plan = only_kept(&mut server.connect(), "SELECT id FROM t");
        assert_eq!(plan.calls, FIRST as i64, "round {round}");
    }
}
