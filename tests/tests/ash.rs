//! Active session history: what the samples say, compared with exact waits and known states, and how the
//! worker that takes them behaves.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::worker;
use rowsource_tests::process::{prefer, sleeps};
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::time::{Duration, Instant};

/// How long a test waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "jit = off",
        "autovacuum = off",
        "max_parallel_workers_per_gather = 0",
    ];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE t AS SELECT i AS id, md5(i::text) AS pad FROM generate_series(1, 20000) i;
         VACUUM (FREEZE, ANALYZE)",
    );
    server
}

/// Runs a statement again and again, until a query of another session returns true.
fn repeat(session: &mut Client, sql: &str, observer: &mut Client, condition: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while !value::<bool>(observer, condition) {
        assert!(Instant::now() < deadline, "never: {condition}");
        run_each(session, sql);
    }
}

#[test]
fn shares_agree_with_exact_waits() {
    let server = server("ash-shares", &[]);
    let (mut session, mut observer) = (server.connect(), server.connect());
    let id = pid(&mut session);
    let waited = format!(
        "SELECT coalesce(sum(wait_time), 0)::float8 FROM pg_stat_rowsource_session_waits WHERE pid = {id} AND wait_event = 'PgSleep'"
    );
    // Else it takes its samples when the session has given up the processor.
    prefer(worker(&mut observer));
    let before: f64 = value(&mut session, &waited);
    // It sleeps and computes in turn, in steps that are not in step with the samples. Both times are taken
    // within the work: a SELECT list is computed from left to right.
    let times = session
        .query_one(
            "SELECT extract(epoch FROM min(began))::float8, extract(epoch FROM max(ended))::float8, count(slept), sum(computed)
             FROM (SELECT clock_timestamp() AS began, pg_sleep(0.001 * (i % 23)) AS slept,
                          (SELECT sum(sqrt(j)) FROM generate_series(1, 30000 + i) j) AS computed, clock_timestamp() AS ended
                   FROM generate_series(1, 200) i OFFSET 0) x",
            &[],
        )
        .expect("the work");
    let [from, to] = [0, 1].map(|column| times.get::<_, f64>(column));
    let after: f64 = value(&mut session, &waited);
    let row = observer
        .query_one(
            &format!(
                "SELECT count(*), count(*) FILTER (WHERE wait_event = 'PgSleep'), count(*) FILTER (WHERE wait_event IS NULL),
                        count(*) FILTER (WHERE operation IS NOT NULL)
                 FROM rowsource_ash(to_timestamp({from})::text, to_timestamp({to})::text) WHERE pid = {id}"
            ),
            &[],
        )
        .expect("samples");
    let [samples, asleep, on_cpu, with_node] = [0, 1, 2, 3].map(|column| row.get::<_, i64>(column) as f64);
    let exact = (after - before) / 1e3 / (to - from);
    let (share, sigma) = (asleep / samples, (exact * (1.0 - exact) / samples).sqrt());
    println!("PgSleep: exact {exact:.4}, sampled {share:.4} of {samples} samples, one sigma {sigma:.4}");
    assert!(samples > 50.0, "{samples} samples");
    assert!((0.2..0.95).contains(&exact), "{exact}");
    // Where the worker is not preferred, the session may have the processor at that moment.
    assert!(
        (share - exact).abs() < 5.0 * sigma + 0.1,
        "{share} is not {exact}"
    );
    assert!(
        asleep + on_cpu > 0.95 * samples,
        "{asleep} + {on_cpu} of {samples}"
    );
    assert!(with_node > 0.9 * samples, "{with_node} of {samples} with a node");
}

#[test]
fn samples_name_the_node_and_the_blocking_session() {
    let server = server("ash-nodes", &["pg_rowsource.track = all"]);
    let mut observer = server.connect();
    let seen = |pid: i32, condition: &str| {
        format!("SELECT count(*) > 3 FROM rowsource_ash WHERE pid = {pid} AND {condition}")
    };

    // A filter that sleeps. The names come from the stored plan, so the statement must have ended.
    let asleep = Busy::run(
        server.connect(),
        "SELECT count(*) FROM (SELECT id FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL OFFSET 0) x",
    );
    let id = asleep.pid;
    until_waiting(&mut observer, id, "PgSleep");
    until(&mut observer, &seen(id, "node_id = 1 AND wait_event = 'PgSleep'"));
    asleep.cancel(&mut observer);
    until(
        &mut observer,
        &seen(
            id,
            "(operation, object_name, wait_event_type) = ('Seq Scan', 't', 'Timeout') AND queryid <> 0 AND planid <> 0
             AND backend_type = 'client backend' AND datname = current_database() AND usename = current_user",
        ),
    );

    // A sort that computes, in a function.
    let function = "CREATE FUNCTION sorted() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN
             RETURN (SELECT count(*) FROM (SELECT * FROM t a, generate_series(1, 10) ORDER BY a.pad, a.id OFFSET 0) x); END$$";
    observer.batch_execute(function).expect("a function");
    let mut session = server.connect();
    run_each(
        &mut session,
        "SET application_name = 'sorter'; SET work_mem = '100MB'; SET max_parallel_workers_per_gather = 0",
    );
    let id = pid(&mut session);
    let sorts = seen(
        id,
        "operation = 'Sort' AND wait_event IS NULL AND application_name = 'sorter'",
    );
    let deadline = Instant::now() + TIMEOUT;
    while !value::<bool>(&mut observer, &sorts) {
        assert!(Instant::now() < deadline, "no sample of the sort");
        run_each(&mut session, "SELECT sorted()");
    }

    // A session that waits for a row lock knows which one has it.
    let mut holder = server.connect();
    run_each(&mut holder, "BEGIN; UPDATE t SET pad = pad WHERE id = 1");
    let holder_id = pid(&mut holder);
    let blocked = Busy::run(server.connect(), "UPDATE t SET pad = pad WHERE id = 1");
    let id = blocked.pid;
    until_waiting(&mut observer, id, "transactionid");
    until(
        &mut observer,
        &seen(
            id,
            &format!("blocking_pid = {holder_id} AND wait_event = 'transactionid'"),
        ),
    );
    run_each(&mut holder, "COMMIT");
    blocked.join();
    until(
        &mut observer,
        &seen(id, "(operation, object_name) = ('Update', 't')"),
    );
    let others = format!("SELECT count(*) FROM rowsource_ash WHERE blocking_pid <> {holder_id}");
    assert_eq!(value::<i64>(&mut observer, &others), 0);

    // The summaries agree with the samples.
    let sums = "SELECT sum(samples) >= 10 AND abs(sum(percent) - 100) < 1e-6 AND bool_and(average_active_sessions > 0)
                FROM rowsource_top_activity()";
    assert!(value::<bool>(&mut observer, sums));
    let report = texts(&mut observer, "SELECT rowsource_ash_report()");
    let report: Vec<String> = report.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let report = report.join("\n");
    println!("{report}");
    for part in [
        "Top statements",
        "Top nodes",
        "Seq Scan on t",
        "PgSleep",
        "sorter",
        "Blocking sessions",
        "per minute",
    ] {
        assert!(report.contains(part), "no {part} in\n{report}");
    }
    // The server has run for less than an hour, and was not sampled two days ago.
    assert!(report.contains("\nsamples from "), "{report}");
    let none = "SELECT string_agg(line, E'\n' ORDER BY n) LIKE '%\nno samples are kept of this interval; %no snapshot has older ones'
                FROM rowsource_ash_report('2 days', '1 day') WITH ORDINALITY AS x(line, n)";
    assert!(value::<bool>(&mut observer, none));
    server.assert_no_crash();
}

#[test]
fn parallel_workers_are_sampled_as_part_of_their_leaders_plan() {
    let server = server(
        "ash-parallel",
        &[
            "max_parallel_workers_per_gather = 2",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "min_parallel_table_scan_size = 0",
        ],
    );
    let mut observer = server.connect();
    let session = Busy::run(
        server.connect(),
        "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id % 500 = 0 THEN 0.5 ELSE 0 END) IS NOT NULL",
    );
    let id = session.pid;
    until(
        &mut observer,
        &format!(
            "SELECT count(DISTINCT pid) > 0 FROM rowsource_ash
             WHERE leader_pid = {id} AND wait_event = 'PgSleep' AND backend_type = 'parallel worker'"
        ),
    );
    session.cancel(&mut observer);
    until(
        &mut observer,
        &format!(
            "SELECT count(*) > 0 AND count(DISTINCT (queryid, planid)) = 1 FROM rowsource_ash
             WHERE (leader_pid = {id} OR pid = {id}) AND wait_event = 'PgSleep'
                   AND (operation, object_name) = ('Parallel Seq Scan', 't')"
        ),
    );
}

#[test]
fn a_small_ring_wraps_around_and_times_never_step_back() {
    let server = server(
        "ash-wrap",
        &[
            "pg_rowsource.history_size = 128kB",
            // The ring is overwritten in about a second: a reader gets some of it even if it has to wait for
            // a processor.
            "pg_rowsource.history_frequency = 100",
        ],
    );
    let mut observer = server.connect();
    // The records of the ring, without its header.
    let capacity = 128 * 1024 / 64;
    let sleepers: Vec<_> = (0..5)
        .map(|_| Busy::run(server.connect(), "SELECT pg_sleep(300)"))
        .collect();
    let first: String = {
        until(&mut observer, "SELECT count(*) > 100 FROM rowsource_ash");
        value(&mut observer, "SELECT min(sample_time)::text FROM rowsource_ash")
    };
    until(
        &mut observer,
        // The first tier is; the others still stand for these moments.
        &format!("SELECT min(sample_time) FILTER (WHERE moments = 1) > '{first}' FROM rowsource_ash"),
    );
    for _ in 0..20 {
        // The rows are in the order of the samples.
        let times = texts(
            &mut observer,
            "SELECT extract(epoch FROM sample_time)::text, pid::text FROM rowsource_ash()",
        );
        assert!((1..capacity).contains(&times.len()), "{} samples", times.len());
        let times: Vec<f64> = times
            .iter()
            .map(|row| {
                row[0]
                    .as_deref()
                    .and_then(|time| time.parse().ok())
                    .expect("a time")
            })
            .collect();
        assert!(times.is_sorted(), "{times:?}");
    }
    for sleeper in sleepers {
        sleeper.cancel(&mut observer);
    }
    server.assert_no_crash();
}

#[test]
fn sampling_is_switched_off_and_on_and_drop_database_works() {
    let server = server("ash-switch", &[]);
    let mut observer = server.connect();
    let worker = worker(&mut observer);
    run_each(&mut observer, "CREATE DATABASE gone");
    let other = server.try_connect_to("postgres", "gone").expect("a connection");
    let other = Busy::run(other, "SELECT pg_sleep(300)");
    until(
        &mut observer,
        "SELECT count(*) > 3 FROM rowsource_ash WHERE datname = 'gone' AND wait_event = 'PgSleep'",
    );
    drop(other.cancel(&mut observer));
    until(
        &mut observer,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'gone'",
    );
    run_each(&mut observer, "DROP DATABASE gone");
    let kept = "SELECT count(*) > 3 FROM rowsource_ash WHERE datname IS NULL AND wait_event = 'PgSleep'";
    assert!(value::<bool>(&mut observer, kept));

    run_each(
        &mut observer,
        "ALTER SYSTEM SET pg_rowsource.history_frequency = 0; SELECT pg_reload_conf()",
    );
    // Then the worker sleeps, and there are no samples of the session that asks.
    let last = "SELECT max(sample_time)::text FROM rowsource_ash";
    let deadline = Instant::now() + TIMEOUT;
    let stopped = loop {
        let before: (String, _) = (value(&mut observer, last), sleeps(worker));
        run_each(&mut observer, "SELECT pg_sleep(0.5)");
        let slept = sleeps(worker) - before.1;
        if value::<String>(&mut observer, last) == before.0 && slept <= 2 {
            break before.0;
        }
        assert!(Instant::now() < deadline, "the worker does not sleep");
    };
    // It is there for DROP DATABASE, and for a new frequency.
    run_each(&mut observer, "CREATE DATABASE gone; DROP DATABASE gone");
    run_each(
        &mut observer,
        "ALTER SYSTEM RESET pg_rowsource.history_frequency; SELECT pg_reload_conf(); SELECT pg_sleep(0.3)",
    );
    until(
        &mut observer,
        &format!("SELECT count(*) > 0 FROM rowsource_ash((timestamptz '{stopped}' + interval '1 us')::text)"),
    );

    // Terminated, it comes back, and the samples are still there.
    value::<bool>(&mut observer, &format!("SELECT pg_terminate_backend({worker})"));
    until(
        &mut observer,
        &format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_rowsource history' AND pid <> {worker}"
        ),
    );
    until(
        &mut observer,
        &format!(
            "SELECT min(sample_time) <= '{stopped}' AND max(sample_time) > now() - interval '10 s' FROM rowsource_ash"
        ),
    );
    server.assert_no_crash();
}

#[test]
fn the_ring_survives_a_terminated_session_and_is_empty_after_a_crash() {
    let server = server("ash-crash", &[]);
    let mut observer = server.connect();
    run_each(&mut observer, "SELECT pg_sleep(0.3); SELECT rowsource_snapshot()");
    let asleep = Busy::run(server.connect(), "SELECT pg_sleep(300)");
    let id = asleep.pid;
    let samples = format!("SELECT count(*) > 5 FROM rowsource_ash WHERE pid = {id}");
    until(&mut observer, &samples);
    value::<bool>(&mut observer, &format!("SELECT pg_terminate_backend({id})"));
    asleep.join();
    assert!(value::<bool>(&mut observer, &samples));

    server.crash_a_backend();
    let mut observer = server.connect();
    assert!(!value::<bool>(&mut observer, &samples));
    // The worker samples again.
    until(
        &mut observer,
        "SELECT pg_sleep(0.1) IS NOT NULL AND count(*) > 5 FROM rowsource_ash WHERE wait_event = 'PgSleep'",
    );
    assert!(value::<bool>(
        &mut observer,
        &format!("SELECT count(*) = 0 FROM rowsource_ash WHERE pid = {id}")
    ));
}

#[test]
fn others_see_that_a_session_was_active_but_not_what_it_did() {
    let server = server("ash-privileges", &[]);
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN; CREATE ROLE dan LOGIN;
         GRANT alice TO carol; GRANT pg_read_all_stats TO dan; GRANT alice TO dan",
    );
    let mut alice = server.try_connect("alice").expect("a connection");
    run_each(&mut alice, "SET application_name = 'secret'");
    // A session of the superuser that became alice.
    let mut hidden = server.connect();
    run_each(&mut hidden, "SET application_name = 'hidden'; SET ROLE alice");
    worker(&mut observer);
    let is_known =
        "wait_event = 'PgSleep' AND queryid IS NOT NULL AND planid IS NOT NULL AND node_id IS NOT NULL
                    AND operation IS NOT NULL AND backend_type IS NOT NULL";
    for (session, application) in [(&mut alice, "secret"), (&mut hidden, "hidden")] {
        let enough = format!(
            "SELECT count(*) > 10 FROM rowsource_ash WHERE usename = 'alice' AND application_name = '{application}' AND {is_known}"
        );
        repeat(session, "SELECT pg_sleep(0.3)", &mut observer, &enough);
    }
    let known = format!("count(*) FILTER (WHERE {is_known})");
    let of = |application: &str| format!("count(*) FILTER (WHERE application_name = '{application}')");
    let query = format!(
        "SELECT count(*), {known}, {}, {}, count(coalesce(leader_pid::text, backend_type, application_name, queryid::text,
                planid::text, node_id::text, operation, object_name, wait_event_type, wait_event, blocking_pid::text))
         FROM rowsource_ash WHERE usename = 'alice' AND sample_time < $1",
        of("secret"),
        of("hidden")
    );
    // The samples of a moment are written a little later.
    let end: std::time::SystemTime = value(&mut observer, "SELECT now()");
    let mut asleep = server.connect();
    let deadline = Instant::now() + TIMEOUT;
    while observer
        .query_one("SELECT max(sample_time) > $1 FROM rowsource_ash", &[&end])
        .is_ok_and(|row| !row.get::<_, bool>(0))
    {
        assert!(Instant::now() < deadline, "no more samples");
        run_each(&mut asleep, "SELECT pg_sleep(0.1)");
    }
    let counts = |user: &str| {
        let mut client = server.try_connect(user).expect("a connection");
        let row = client.query_one(&query, &[&end]).expect("samples");
        [0, 1, 2, 3, 4].map(|column| row.get::<_, i64>(column))
    };
    let all = counts("postgres");
    assert!(all[1] > 20 && all[2] > 10 && all[3] > 10, "{all:?}");
    assert_eq!(counts("dan"), all);
    // Alice sees her own session, but not that of the one who became alice; so does who has her rights.
    let own = counts("alice");
    assert_eq!(
        (own[0], own[2], own[3]),
        (all[0], all[2], 0),
        "{own:?} of {all:?}"
    );
    assert!(own[1] > 10 && own[1] < all[1], "{own:?} of {all:?}");
    assert_eq!(counts("carol"), own);
    assert_eq!(counts("bob"), [all[0], 0, 0, 0, 0]);

    let mut bob = server.try_connect("bob").expect("a connection");
    let report = texts(&mut bob, "SELECT rowsource_ash_report()");
    let report: Vec<String> = report.into_iter().flatten().flatten().collect();
    let report = report.join("\n");
    assert!(
        report.contains("you may not see more") && !report.contains("secret"),
        "{report}"
    );
    let groups = "SELECT count(*) FROM rowsource_top_activity() WHERE userid = 'alice'::regrole";
    assert_eq!(value::<i64>(&mut bob, groups), 0);
}

#[test]
fn a_snapshot_keeps_the_samples_of_one_moment_in_each_tenth_of_a_second() {
    let server = server("ash-snapshot", &["pg_rowsource.history_frequency = 1000"]);
    let mut observer = server.connect();
    let sleeper = Busy::run(server.connect(), "SELECT pg_sleep(300)");
    let mut watcher = server.connect();
    let snapshots = 3;
    for i in 1..=snapshots {
        let moments = "SELECT count(DISTINCT sample_time) FROM rowsource_ash";
        let before: i64 = value(&mut observer, moments);
        until(&mut observer, &format!("SELECT ({moments}) > {before} + 500"));
        run_each(&mut observer, "BEGIN; SELECT rowsource_snapshot()");
        if i == snapshots {
            // Another one at the same time stores no sample twice.
            let mut client = server.connect();
            let id = pid(&mut client);
            let other = std::thread::spawn(move || run_each(&mut client, "SELECT rowsource_snapshot()"));
            until_waiting(&mut watcher, id, "transactionid");
            run_each(&mut observer, "COMMIT");
            other.join().expect("the other snapshot");
        } else {
            run_each(&mut observer, "COMMIT");
        }
    }
    sleeper.cancel(&mut observer);
    let row = observer
        .query_one(
            "SELECT count(DISTINCT sample_time), count(DISTINCT snap_id), count(*) - count(DISTINCT (sample_time, pid)),
                    (SELECT count(DISTINCT a.sample_time) FROM rowsource_ash a
                      WHERE a.sample_time <= (SELECT max(sample_time) FROM rowsource_snapshot_ash)),
                    count(*) FILTER (WHERE k.moments > 0 AND NOT EXISTS (
                        SELECT FROM rowsource_ash a WHERE (a.sample_time, a.pid) = (k.sample_time, k.pid)
                               AND a.wait_event IS NOT DISTINCT FROM k.wait_event)),
                    count(*) FILTER (WHERE operation = 'Result' AND wait_event = 'PgSleep'),
                    (SELECT sum(moments)::bigint FROM (SELECT DISTINCT sample_time, moments FROM rowsource_snapshot_ash) x)
             FROM rowsource_snapshot_ash k",
            &[],
        )
        .expect("kept samples");
    let [kept, ids, twice, all, unknown, named, stand_for] =
        [0, 1, 2, 3, 4, 5, 6].map(|column| row.get::<_, i64>(column));
    assert_eq!((twice, unknown), (0, 0));
    // The other one may have found nothing new.
    assert!((snapshots..=snapshots + 1).contains(&ids), "{ids} snapshots");
    // The plan is stored when the statement has ended, so its node has no name yet; the queries for the
    // samples have one.
    println!("{kept} of {all} moments kept, which stand for {stand_for}, {named} named");
    assert!(kept < all / 5, "{kept} of {all}");
    // They stand for all, once. The first and the last one stand for others of their tenth of a second, too.
    assert!(
        (all - 100..all + 200).contains(&stand_for),
        "{stand_for} of {all}"
    );
}

#[test]
fn a_snapshot_keeps_samples_of_processes_without_a_user() {
    let settings = [
        "pg_rowsource.history_frequency = 1000",
        "autovacuum = on",
        "autovacuum_naptime = 1",
        "autovacuum_vacuum_cost_delay = 100",
        "autovacuum_vacuum_cost_limit = 1",
    ];
    let server = server("ash-autovacuum", &settings);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE dead AS SELECT i FROM generate_series(1, 200000) i; DELETE FROM dead",
    );
    // One moment in ten is kept: of 300, at least one.
    let of_worker = "backend_type = 'autovacuum worker' AND userid IS NULL AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let sampled = format!("SELECT count(DISTINCT sample_time) > 300 FROM rowsource_ash WHERE {of_worker}");
    until(&mut client, &sampled);
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let kept = format!("SELECT count(*) FROM rowsource_snapshot_ash WHERE {of_worker}");
    assert!(value::<i64>(&mut client, &kept) > 0);
}
