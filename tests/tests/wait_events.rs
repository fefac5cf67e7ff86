//! Waits are counted exactly: of each process, and of all processes since the server started.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{major, must_fail, run_each, texts, value};
use rowsource_tests::waiting::{Lasted, TIMEOUT, cancel, hold, pid, until};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The waits of a session for one event, with times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waits {
    count: i64,
    total: f64,
    max: f64,
}

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, 0 AS v FROM generate_series(1, 10) i",
    );
    server
}

/// Returns what the view shows of a process and an event.
fn waits(observer: &mut Client, pid: i32, event: &str) -> Waits {
    let row = observer
        .query_opt(
            "SELECT waits, wait_time, max_time FROM pg_stat_rowsource_session_waits WHERE pid = $1 AND wait_event = $2",
            &[&pid, &event],
        )
        .expect("pg_stat_rowsource_session_waits");
    row.map_or(
        Waits {
            count: 0,
            total: 0.0,
            max: 0.0,
        },
        |row| Waits {
            count: row.get(0),
            total: row.get(1),
            max: row.get(2),
        },
    )
}

/// Fails unless there was one wait of this length.
fn assert_one(waits: Waits, lasted: Lasted, what: &str) {
    println!("{what}: {waits:?}, {lasted:?}");
    assert_eq!(waits.count, 1, "{what}: {waits:?}");
    assert!(lasted.contains(waits.total), "{what}: {waits:?}, {lasted:?}");
    assert_eq!(waits.total, waits.max, "{what}");
}

#[test]
fn a_sleep_is_one_wait() {
    let server = server("waits-sleep");
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    // A measured statement does not wake the process up.
    let lasted = Lasted::running(
        &mut client,
        400,
        "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1;
             SELECT count(*) FROM t WHERE CASE WHEN id = 5 THEN pg_sleep(0.4) IS NOT NULL ELSE true END",
    );
    assert_one(waits(&mut observer, id, "PgSleep"), lasted, "pg_sleep");
    run_each(
        &mut client,
        "SET pg_rowsource.wait_timing = off; SELECT pg_sleep(0.1)",
    );
    assert_eq!(waits(&mut observer, id, "PgSleep").count, 1, "switched off");
    run_each(
        &mut client,
        "RESET pg_rowsource.wait_timing; SELECT pg_sleep(0.1)",
    );
    assert_eq!(waits(&mut observer, id, "PgSleep").count, 2, "switched on");
}

#[test]
fn a_lock_is_one_wait() {
    let server = server("waits-lock");
    // The second one outlasts deadlock_timeout, at which the process wakes up.
    for (held, locks) in [
        (
            400,
            [
                "BEGIN; SELECT pg_advisory_xact_lock(1)",
                "SELECT pg_advisory_lock(1)",
                "advisory",
            ],
        ),
        (
            1300,
            [
                "BEGIN; UPDATE t SET v = 1 WHERE id = 1",
                "UPDATE t SET v = 2 WHERE id = 1",
                "transactionid",
            ],
        ),
    ] {
        let (mut observer, mut client) = (server.connect(), server.connect());
        let id = pid(&mut client);
        let (mut client, held) = hold(&mut observer, client, locks, Duration::from_millis(held));
        assert_one(waits(&mut observer, id, locks[2]), held, locks[2]);
        let buckets: i64 = value(
            &mut client,
            &format!(
                "SELECT sum(waits)::bigint FROM pg_stat_rowsource_wait_histogram
                 WHERE wait_event = '{}' AND wait_event_type = 'Lock' AND from_us <= {1} AND to_us > {1}",
                locks[2],
                waits(&mut observer, id, locks[2]).total * 1e3
            ),
        );
        assert_eq!(buckets, 1, "{locks:?}: its bucket");
    }
}

/// A cancelled wait counts once, for as long as it lasted. So does one that a timeout ends.
#[test]
fn a_cancelled_wait_ends() {
    let server = server("waits-cancel");
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    let statement = "SELECT pg_advisory_lock(1)";
    let (mut client, held) = cancel(&mut observer, client, statement, Duration::from_millis(300));
    assert_one(waits(&mut observer, id, "advisory"), held, "cancelled");
    run_each(&mut client, "SET lock_timeout = '200ms'");
    let (code, _) = must_fail(&mut client, "SELECT pg_advisory_lock(1)");
    assert_eq!(code, SqlState::LOCK_NOT_AVAILABLE);
    let after = waits(&mut observer, id, "advisory");
    assert_eq!(after.count, 2, "timed out");
    // Nothing more is added while the session does something else, nor afterwards.
    run_each(
        &mut client,
        "RESET lock_timeout; SELECT pg_sleep(0.2); DISCARD ALL",
    );
    assert_eq!(waits(&mut observer, id, "advisory"), after);
    assert_eq!(waits(&mut observer, id, "PgSleep").count, 1);
    // The next wait for the same event is another one, also if the session does not wait for its client in
    // between.
    run_each(&mut client, "SET statement_timeout = '1s'");
    client
        .batch_execute(
            "DO $$BEGIN PERFORM pg_sleep(60);
             EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0.2); END$$",
        )
        .expect("a caught timeout");
    assert_eq!(waits(&mut observer, id, "PgSleep").count, 3);
}

/// Returns the waits of all sessions for an event.
fn system(observer: &mut Client, event: &str) -> i64 {
    value(
        observer,
        &format!(
            "SELECT coalesce(sum(waits), 0)::bigint FROM pg_stat_rowsource_system_waits
             WHERE backend_type = 'client backend' AND wait_event = '{event}'"
        ),
    )
}

#[test]
fn ended_sessions_count_on() {
    let mut server = server("waits-ended");
    let mut observer = server.connect();
    // Each session gets the place of the one before it.
    for round in 1..=5 {
        let mut client = server.connect();
        let id = pid(&mut client);
        run_each(&mut client, "SELECT pg_sleep(0.01)");
        assert_eq!(waits(&mut observer, id, "PgSleep").count, 1, "its own waits only");
        drop(client);
        assert_eq!(system(&mut observer, "PgSleep"), round);
        let deadline = Instant::now() + TIMEOUT;
        let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {id}");
        while value::<i64>(&mut observer, &gone) > 0 {
            assert!(Instant::now() < deadline, "the session does not end");
        }
        let left = format!("SELECT count(*) FROM pg_stat_rowsource_session_waits WHERE pid = {id}");
        assert_eq!(
            value::<i64>(&mut observer, &left),
            0,
            "a session that has ended is not shown"
        );
    }
    // A killed process restarts the server, which then counts from zero.
    server.crash_a_backend();
    let mut observer = server.connect();
    assert_eq!(system(&mut observer, "PgSleep"), 0);
    run_each(&mut observer, "SELECT pg_sleep(0.01)");
    assert_eq!(system(&mut observer, "PgSleep"), 1);
    drop(observer);
    server.stop();
    server.launch();
    assert_eq!(
        system(&mut server.connect(), "PgSleep"),
        0,
        "nothing is kept across a restart"
    );
}

#[test]
fn other_processes_count_too() {
    let server = server("waits-others");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE TABLE big AS SELECT i AS id, repeat('x', 200) AS pad FROM generate_series(1, 50000) i; CHECKPOINT;
         SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
         SELECT count(*) FROM big WHERE CASE WHEN id % 25000 = 0 THEN pg_sleep(0.01) IS NOT NULL END",
    );
    let deadline = Instant::now() + TIMEOUT;
    for (of, kind, event) in [
        ("checkpointer", "IO", "DataFileWrite"),
        ("checkpointer", "Activity", "CheckpointerMain"),
        ("client backend", "Client", "ClientRead"),
        ("parallel worker", "Timeout", "PgSleep"),
    ] {
        let shown = format!(
            "SELECT coalesce(sum(waits), 0)::bigint FROM pg_stat_rowsource_system_waits
             WHERE backend_type = '{of}' AND wait_event_type = '{kind}' AND lower(wait_event) = lower('{event}')"
        );
        while value::<i64>(&mut observer, &shown) == 0 {
            let all = texts(&mut observer, "SELECT * FROM pg_stat_rowsource_system_waits");
            assert!(Instant::now() < deadline, "{of}, {event}: {all:#?}");
        }
    }
    let sums_agree: bool = value(
        &mut observer,
        "SELECT bool_and(mean_time <= max_time AND p99_time <= max_time AND abs(mean_time * waits - wait_time) < 0.001)
         FROM pg_stat_rowsource_system_waits",
    );
    assert!(sums_agree);
    // The names are those of pg_stat_activity.
    let unknown: i64 = value(
        &mut observer,
        "SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_rowsource_session_waits w USING (pid)
         WHERE w.wait_event_type IS NULL OR w.wait_event ~ 'unknown|\\?'",
    );
    assert_eq!(unknown, 0);
}

#[test]
fn names_are_those_of_the_catalog_pg17_plus() {
    let server = server("waits-names");
    let mut observer = server.connect();
    run_each(&mut observer, "CHECKPOINT");
    let unknown = texts(
        &mut observer,
        "SELECT wait_event_type, wait_event FROM pg_stat_rowsource_system_waits
         EXCEPT SELECT type, name FROM pg_wait_events",
    );
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_session_that_loads_the_library_counts_its_own() {
    let server = Server::start("waits-load", &["shared_preload_libraries = ''"]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    let id = pid(&mut client);
    let lasted = Lasted::running(
        &mut client,
        100,
        "SELECT pg_sleep(0.01); LOAD 'pg_rowsource'; SELECT pg_sleep(0.1)",
    );
    assert_one(waits(&mut client, id, "PgSleep"), lasted, "after LOAD");
    let (code, message) = must_fail(&mut client, "SELECT * FROM pg_stat_rowsource_system_waits");
    assert_eq!(code, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(message.contains("shared_preload_libraries"), "{message}");
    let pids: Vec<Vec<Option<String>>> = texts(
        &mut client,
        "SELECT DISTINCT pid FROM pg_stat_rowsource_session_waits",
    );
    assert_eq!(pids, [[Some(id.to_string())]]);
}

/// The server's program without section headers: it runs, but does not say where its import slots are.
#[test]
fn a_program_that_cannot_be_patched_says_so() {
    let environment = environment();
    let program = environment
        .pgbin
        .join(format!("postgres-waits-{}", std::process::id()));
    let mut bytes = fs::read(environment.pgbin.join("postgres")).expect("the server's program");
    // e_shoff; then e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    fs::write(&program, bytes).expect("a copy");
    let made = Command::new("chmod").arg("755").arg(&program).status();
    assert!(made.expect("chmod").success());
    let server = Server::of_program("waits-cut", &["log_min_messages = 'log'"], &program);
    let _ = fs::remove_file(&program);
    assert_eq!(
        server.log().matches("pg_rowsource does not count waits").count(),
        1
    );
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    for view in [
        "pg_stat_rowsource_system_waits",
        "pg_stat_rowsource_session_waits",
        "pg_stat_rowsource_wait_histogram",
    ] {
        let rows = texts(&mut client, &format!("SELECT wait_event, waits FROM {view}"));
        assert_eq!(rows.len(), 1, "{view}: {rows:?}");
        let reason = rows[0][0].as_deref().unwrap_or_default();
        assert!(reason.starts_with("not counted: "), "{view}: {reason}");
        assert_eq!(rows[0][1], None, "{view}");
    }
}

#[test]
fn processes_of_others_are_hidden() {
    let server = server("waits-privileges");
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE ROLE regress_one LOGIN; CREATE ROLE regress_two LOGIN; CREATE ROLE regress_reader LOGIN;
         GRANT pg_read_all_stats TO regress_reader; GRANT USAGE ON SCHEMA public TO PUBLIC",
    );
    let mut sessions = ["regress_one", "regress_two", "regress_reader"]
        .map(|user| server.try_connect(user).expect("a session"));
    for session in &mut sessions {
        run_each(session, "SELECT pg_sleep(0.01)");
    }
    let pids = "SELECT count(DISTINCT pid) FROM pg_stat_rowsource_session_waits WHERE wait_event = 'PgSleep'";
    let seen = sessions.each_mut().map(|session| value::<i64>(session, pids));
    assert_eq!(seen, [1, 1, 3]);
    let (code, message) = must_fail(&mut sessions[0], "SET pg_rowsource.wait_timing = off");
    assert_eq!(code.code(), "42501", "{message}");
}

/// Returns how often a process made each system call, from the summary that `strace -c` prints.
fn calls(summary: &str, names: &[&str]) -> i64 {
    let lines = summary
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|fields| fields.len() >= 5 && fields.last().is_some_and(|name| names.contains(name)))
        .map(|fields| {
            let number = |text: &str| text.parse::<i64>().expect("a number of calls");
            // Calls that a signal has interrupted are no waits of their own.
            let interrupted = if fields.len() > 5 { number(fields[4]) } else { 0 };
            number(fields[3]) - interrupted
        })
        .sum()
}

/// Each call of the system in which a session waits counts as a wait.
#[test]
fn counts_are_those_of_a_trace() {
    let server = Server::preloaded(
        "waits-trace",
        &[
            "fsync = on",
            "shared_buffers = '1MB'",
            "autovacuum = off",
            "jit = off",
        ],
    );
    let (mut observer, mut client) = (server.connect(), server.connect());
    let work =
        "SELECT count(*) FROM big; INSERT INTO big SELECT 1, repeat('y', 500) FROM generate_series(1, 100);
         SELECT pg_sleep(0.001); SELECT 1";
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; SET max_parallel_workers_per_gather = 0;
         CREATE TABLE big AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 10000) i; CHECKPOINT",
    );
    run_each(&mut client, work);
    let id = pid(&mut client);
    let sums = format!(
        "SELECT coalesce(sum(waits) FILTER (WHERE wait_event_type = 'IO'), 0)::bigint,
                coalesce(sum(waits) FILTER (WHERE wait_event_type IN ('Client', 'Timeout')), 0)::bigint
         FROM pg_stat_rowsource_session_waits WHERE pid = {id}"
    );
    let mut waits = || {
        let row = observer
            .query_one(&sums, &[])
            .expect("pg_stat_rowsource_session_waits");
        [row.get::<_, i64>(0), row.get::<_, i64>(1)]
    };
    let output = environment().run.join(format!("waits-{id}.strace"));
    let mut trace = Command::new("strace")
        .args(["-c", "-w", "-p", &id.to_string(), "-o"])
        .arg(&output)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("strace can be run");
    let deadline = Instant::now() + TIMEOUT;
    while rowsource_tests::process::tracer(id as u32) == Some(0) {
        assert!(Instant::now() < deadline, "strace cannot attach");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The wait that strace interrupted when it attached ends with this statement.
    run_each(&mut client, "SELECT 1");
    let before = waits();
    for _ in 0..20 {
        run_each(&mut client, work);
    }
    let after = waits();
    let stopped = Command::new("kill")
        .args(["-INT", &trace.id().to_string()])
        .status();
    assert!(stopped.expect("kill").success());
    let _ = trace.wait();
    let summary = fs::read_to_string(&output).expect("the summary");
    let _ = fs::remove_file(&output);
    let files = [
        "pread64",
        "preadv",
        "pwrite64",
        "pwritev",
        "fdatasync",
        "fsync",
        "fallocate",
    ];
    let traced = [calls(&summary, &files), calls(&summary, &["epoll_wait"])];
    let counted = [after[0] - before[0], after[1] - before[1]];
    println!("traced {traced:?}, counted {counted:?}\n{summary}");
    assert!(traced[0] > 100 && traced[1] >= 20, "{traced:?}");
    // From 18 on, a session also waits for the workers that read files for it, with an event of the class IO.
    if major(&mut client) < 18 {
        assert_eq!(counted[0], traced[0], "requests to files");
    }
    // The statement before the first reading, and the last wait for the client, are in the trace only. A call
    // that an old signal of the latch ends belongs to the wait after it. The process then reads the latch's
    // descriptor.
    let missing = traced[0] + traced[1] - counted[0] - counted[1];
    let woken = calls(&summary, &["read"]);
    assert!((0..=3 + woken).contains(&missing), "{traced:?}, {counted:?}");
}

fn snapshot(client: &mut Client) -> i64 {
    value(client, "SELECT rowsource_snapshot()")
}

fn report(client: &mut Client, arguments: &str) -> Vec<String> {
    let lines = texts(client, &format!("SELECT rowsource_wait_report({arguments})"));
    lines.into_iter().flatten().flatten().collect()
}

/// Returns arguments: the moments at which two snapshots were taken.
fn between(first: i64, last: i64) -> String {
    let taken = |id| format!("(SELECT taken_at FROM rowsource_snapshots WHERE snap_id = {id})");
    format!("{}, {}", taken(first), taken(last))
}

/// Returns the cells of an event's line in a report.
fn cells(report: &[String], event: &str) -> Vec<String> {
    let line = report
        .iter()
        .find(|line| line.starts_with(&format!("| {event} ")));
    let line = line.unwrap_or_else(|| panic!("no {event}: {report:#?}"));
    let cells = line.trim_matches('|').split('|');
    cells.map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn a_report_shows_what_sessions_waited_for() {
    let mut server = server("waits-report");
    let mut observer = server.connect();
    run_each(&mut observer, "SELECT pg_sleep(0.1)");
    let first = snapshot(&mut observer);
    let mut client = server.connect();
    run_each(&mut client, "SELECT pg_sleep(0.2); SELECT pg_sleep(0.2)");
    drop(client);
    // The session's time is in pg_stat_database once it has ended.
    let deadline = Instant::now() + TIMEOUT;
    let active = "SELECT coalesce(sum(active_time), 0)::float8 FROM pg_stat_database";
    while value::<f64>(&mut observer, active) < 400.0 {
        assert!(
            Instant::now() < deadline,
            "the time of the session is not reported"
        );
    }
    let second = snapshot(&mut observer);
    let lines = report(&mut observer, &between(first, second));
    println!("{lines:#?}");
    assert_eq!(lines[0], "Top timed events");
    let sleep = cells(&lines, "PgSleep");
    assert_eq!(sleep[1..3], ["Timeout", "2"], "the waits of the interval only");
    let number = |text: &str| {
        text.split(' ')
            .next()
            .and_then(|it| it.parse::<f64>().ok())
            .expect("a number")
    };
    assert!(number(&sleep[3]) >= 0.399, "{sleep:?}");
    let shares: f64 = lines
        .iter()
        .skip_while(|line| !line.starts_with("| Event "))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            number(
                line.trim_end_matches('|')
                    .rsplit('|')
                    .next()
                    .expect("a share")
                    .trim(),
            )
        })
        .sum();
    assert!((99.0..101.0).contains(&shares), "{shares} %: {lines:#?}");
    // After a restart, the waits since then are shown.
    drop(observer);
    server.stop();
    server.launch();
    let mut observer = server.connect();
    run_each(&mut observer, "SELECT pg_sleep(0.01)");
    let third = snapshot(&mut observer);
    let since = report(&mut observer, &between(second, third));
    assert_eq!(cells(&since, "PgSleep")[2], "1");
    let all = report(&mut observer, &between(first, third));
    assert_eq!(cells(&all, "PgSleep")[2], "3");
}

/// PostgreSQL looks for a deadlock after a while: then the wait counts, and its time so far. The rest of its
/// time follows at its end, which is after a snapshot here.
#[test]
fn a_lock_wait_that_crosses_a_snapshot_keeps_its_time() {
    let server = server("waits-crossing");
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE TABLE crossed (n int)");
    let first = snapshot(&mut observer);
    let mut holder = server.connect();
    let mut client = server.connect();
    run_each(&mut client, "SET deadlock_timeout = '10ms'");
    run_each(&mut holder, "BEGIN; LOCK crossed");
    let mut middle = 0;
    let waiting = Lasted::during(Duration::from_millis(300), || {
        let session = std::thread::spawn(move || run_each(&mut client, "SELECT count(*) FROM crossed"));
        until(
            &mut observer,
            "SELECT coalesce(sum(waits), 0) > 0 FROM pg_stat_rowsource_system_waits WHERE wait_event = 'relation'",
        );
        middle = snapshot(&mut observer);
        std::thread::sleep(Duration::from_millis(300));
        run_each(&mut holder, "COMMIT");
        session.join().expect("the session");
    });
    let last = snapshot(&mut observer);
    let rows = observer
        .query(
            "SELECT waits, wait_time, mean_time FROM rowsource_interval_waits WHERE wait_event = 'relation' ORDER BY snap_id",
            &[],
        )
        .expect("the history");
    let rows: Vec<(i64, f64, Option<f64>)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let [(1, before, Some(_)), (0, rest, None)] = rows[..] else {
        panic!("{rows:?}")
    };
    assert!(
        rest >= 299.0 && waiting.contains(before + rest),
        "{rows:?}, {waiting:?}"
    );
    let both = report(&mut observer, &between(first, last));
    assert_eq!(cells(&both, "relation")[1..3], ["Lock", "1"], "{both:#?}");
    let rest = report(&mut observer, &between(middle, last));
    assert_eq!(cells(&rest, "relation")[1..3], ["Lock", "0"], "{rest:#?}");
}
