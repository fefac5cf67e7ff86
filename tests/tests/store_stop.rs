//! What a stop of the server keeps: with smart and fast, every execution that has finished; with immediate,
//! none. With the background worker and without it, with sessions that are busy or stopped, on a standby, and
//! in a single-user backend.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::attack::{send, wait_until};
use rowsource_tests::environment::environment;
use rowsource_tests::process::{address_space, is_stopped, limit_address_space, send_signal};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, info, kept, measured, measuring, only_kept};
use rowsource_tests::waiting::{pid, until};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SESSIONS: usize = 6;
/// The statements that the busy sessions run in turn.
const STATEMENTS: [&str; 3] = [
    "SELECT count(*) FROM t WHERE id > 3",
    "SELECT id FROM t ORDER BY id DESC LIMIT 1",
    "SELECT 1 AS busy",
];
const STATEMENT: &str = STATEMENTS[0];
const WITHOUT_WORKER: &str = "max_worker_processes = 0";
const IS_WORKER: &str = "backend_type = 'pg_rowsource history'";

fn server(name: &str, settings: &[&str]) -> Server {
    let server = basic_server(name, settings);
    run_each(
        &mut server.connect(),
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 20) i; VACUUM ANALYZE t",
    );
    server
}

fn file(server: &Server) -> PathBuf {
    server.data().join("pg_stat/pg_rowsource.stat")
}

/// Returns the pid of the background worker; 0 if there is none.
fn worker(client: &mut Client) -> i32 {
    let pid = format!("SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE {IS_WORKER}");
    value(client, &pid)
}

/// How often a client sent each of [`STATEMENTS`], and how often it got the result.
#[derive(Default, Clone, Copy, Debug)]
struct Runs {
    sent: [i64; STATEMENTS.len()],
    finished: [i64; STATEMENTS.len()],
}

/// Runs the statements until told to end, or until the server ends the session. Counts what all sessions
/// finish.
fn run_until(client: &mut Client, has_ended: &AtomicBool, all_finished: &AtomicI64) -> Runs {
    let mut runs = Runs::default();
    for at in (0..STATEMENTS.len()).cycle() {
        if has_ended.load(Relaxed) {
            break;
        }
        runs.sent[at] += 1;
        if client.batch_execute(STATEMENTS[at]).is_err() {
            break;
        }
        runs.finished[at] += 1;
        all_finished.fetch_add(1, Relaxed);
    }
    runs
}

/// Stops the server with this signal while sessions run statements all the time. If it is a smart stop, they
/// end after a while.
fn stop_under_load(server: &mut Server, signal: &str) -> Runs {
    const ENOUGH: i64 = 600;
    let (has_ended, finished) = (AtomicBool::new(false), AtomicI64::new(0));
    let until_finished = |count: i64| {
        wait_until("the sessions work", Duration::from_secs(60), || {
            finished.load(Relaxed) >= count
        });
    };
    let mut all = Runs::default();
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let (mut client, has_ended, finished) = (measuring(server), &has_ended, &finished);
                scope.spawn(move || run_until(&mut client, has_ended, finished))
            })
            .collect();
        until_finished(ENOUGH);
        server.signal(signal);
        if signal == "TERM" {
            until_finished(finished.load(Relaxed) + ENOUGH);
            has_ended.store(true, Relaxed);
        }
        for session in sessions {
            let runs = session.join().expect("a session");
            for at in 0..STATEMENTS.len() {
                all.sent[at] += runs.sent[at];
                all.finished[at] += runs.finished[at];
            }
        }
    });
    let ended = server.stopped_by(signal);
    let is_clean = ended.is_some_and(|status| status.code() == Some(0));
    assert!(is_clean, "{signal}: {ended:?}\n{}", server.log());
    all
}

/// Stops a server under load in all modes, several times. Sessions of a fast stop end in all states.
fn assert_stops_keep_all(name: &str, settings: &[&str]) {
    let mut server = server(name, settings);
    for (round, signal) in ["INT", "TERM", "INT", "QUIT", "INT"].into_iter().enumerate() {
        run_each(&mut server.connect(), "SELECT rowsource_reset()");
        let runs = stop_under_load(&mut server, signal);
        server.clear_log();
        server.launch();
        let mut client = server.connect();
        println!("{signal}: {runs:?}");
        if signal == "QUIT" {
            assert_eq!(kept(&mut client, "%"), [], "round {round}");
            assert!(!file(&server).exists(), "round {round}");
            continue;
        }
        for (at, statement) in STATEMENTS.iter().enumerate() {
            let plan = only_kept(&mut client, statement);
            let finished = plan.calls - plan.failed_calls - plan.cancelled_calls;
            // A statement may have finished although its client lost the connection before it got the result.
            let possible = runs.finished[at]..=runs.sent[at];
            assert!(
                possible.contains(&finished),
                "round {round}, {signal}, {statement}: {finished} kept of {possible:?}"
            );
        }
        assert_eq!(server.log_of_library(), Vec::<String>::new(), "round {round}");
    }
}

#[test]
fn a_stop_under_load_keeps_all_that_finished() {
    assert_stops_keep_all("stop-load", &[]);
}

#[test]
fn a_stop_under_load_without_a_worker_keeps_all_that_finished() {
    assert_stops_keep_all("stop-load-alone", &[WITHOUT_WORKER]);
}

#[test]
fn a_stop_under_load_with_evictions_keeps_the_sums() {
    let mut server = server(
        "stop-evict",
        &["pg_rowsource.max_plans = 100", "pg_rowsource.track = 'all'"],
    );
    let mut client = measuring(&server);
    send(
        &mut client,
        "DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE 'SELECT ' || repeat('id, ', i) || '1 AS many FROM t'; END LOOP; END$$",
    );
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    const CALLS: &str = "SELECT sum(calls)::bigint FROM pg_stat_rowsource_plans";
    let before: i64 = value(&mut client, CALLS);
    let evictions = info(&mut client, "evictions");
    assert!(
        before >= 300 && evictions >= 200,
        "{before} calls, {evictions} evictions"
    );
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(value::<i64>(&mut client, CALLS), before);
    assert_eq!(info(&mut client, "evictions"), evictions);
}

/// What the stop itself cancels has run, too, and may have been the reason for the stop.
#[test]
fn a_fast_stop_keeps_what_it_cancels() {
    let mut server = server("stop-cancel", &[]);
    let mut client = measuring(&server);
    let sleeper = pid(&mut client);
    let session = std::thread::spawn(move || client.batch_execute("SELECT pg_sleep(100)"));
    let running = format!("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {sleeper}");
    until(&mut server.connect(), &running);
    server.stop();
    assert!(session.join().expect("a session").is_err());
    server.launch();
    let plan = only_kept(&mut server.connect(), "SELECT pg_sleep%");
    assert_eq!(
        (plan.calls, plan.failed_calls + plan.cancelled_calls),
        (1, 1),
        "{plan:?}"
    );
}

/// The worker waits for a session at most five seconds. Then that one saves, as the last.
#[test]
fn a_session_that_ends_late_saves() {
    let mut server = server("stop-late", &[]);
    let mut client = measuring(&server);
    let late = pid(&mut client) as u32;
    for _ in 0..5 {
        run_each(&mut client, STATEMENT);
    }
    let mut reader = server.connect();
    let history = worker(&mut reader) as u32;
    assert_ne!(history, 0);
    drop(reader);
    send_signal(late, "STOP");
    wait_until("it is stopped", Duration::from_secs(60), || is_stopped(late));
    let began = Instant::now();
    server.signal("INT");
    wait_until("the worker has left", Duration::from_secs(60), || {
        !PathBuf::from(format!("/proc/{history}")).exists()
    });
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(4), "it left after {waited:?}");
    assert!(!file(&server).exists(), "the session is not there yet");
    send_signal(late, "CONT");
    server.stop();
    assert!(file(&server).exists());
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 5);
}

#[test]
fn a_worker_that_is_terminated_comes_back_and_saves() {
    let mut server = server("stop-worker", &["pg_rowsource.history_frequency = 10"]);
    let mut client = server.connect();
    measured(&mut client, STATEMENT);
    let first = worker(&mut client);
    assert_ne!(first, 0);
    let terminate = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {IS_WORKER}");
    let began = Instant::now();
    run_each(&mut client, &terminate);
    wait_until("it has ended", Duration::from_secs(60), || {
        worker(&mut client) != first
    });
    // It does not wait for the sessions, because the server goes on.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    until(
        &mut client,
        &format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE {IS_WORKER}"),
    );
    let samples =
        "SELECT count(*) FROM rowsource_ash WHERE sample_time > statement_timestamp() - interval '1 s'";
    wait_until("it samples", Duration::from_secs(60), || {
        let _ = client.batch_execute("SELECT pg_sleep(0.3)");
        value::<i64>(&mut client, samples) > 0
    });
    measured(&mut client, STATEMENT);
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(only_kept(&mut client, STATEMENT).calls, 2);
    // The stop comes before PostgreSQL starts it again.
    measured(&mut client, STATEMENT);
    let second = worker(&mut client);
    run_each(&mut client, &terminate);
    wait_until("it has ended", Duration::from_secs(60), || {
        worker(&mut client) != second
    });
    measured(&mut client, STATEMENT);
    drop(client);
    server.stop();
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 4);
}

#[test]
fn without_a_worker_the_last_session_saves() {
    let mut server = server("stop-alone", &[WITHOUT_WORKER]);
    let mut client = server.connect();
    assert_eq!(worker(&mut client), 0);
    measured(&mut client, STATEMENT);
    let mut other = server.connect();
    measured(&mut other, STATEMENT);
    drop(client);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!file(&server).exists(), "a session is still there");
    drop(other);
    wait_until("it saves", Duration::from_secs(60), || file(&server).exists());
    // Nobody is there when the server stops.
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(only_kept(&mut client, STATEMENT).calls, 2);
    assert!(!file(&server).exists(), "read once");
    drop(client);
    wait_until("it saves", Duration::from_secs(60), || file(&server).exists());
    let mut client = server.connect();
    run_each(&mut client, "SELECT rowsource_reset()");
    assert!(!file(&server).exists(), "what is deleted does not come back");
    drop(client);
    // A crash keeps nothing although there is a file. One session after the other saves only now and then.
    wait_until("one of them saves", Duration::from_secs(60), || {
        measured(&mut server.connect(), STATEMENT);
        std::thread::sleep(Duration::from_millis(100));
        file(&server).exists()
    });
    server.crash_a_backend();
    let mut client = server.connect();
    assert_eq!(kept(&mut client, "%"), []);
    assert!(!file(&server).exists());
}

/// Many sessions that come and go do not spend their time with the file.
#[test]
fn without_a_worker_saving_takes_a_small_part_of_the_time() {
    let server = server("stop-often", &[WITHOUT_WORKER, "pg_rowsource.track = 'all'"]);
    send(
        &mut measuring(&server),
        "DO $$BEGIN FOR i IN 1..1500 LOOP EXECUTE 'SELECT ' || repeat('id, ', i) || '1 AS many FROM t'; END LOOP; END$$",
    );
    wait_until("the first one saves", Duration::from_secs(60), || {
        file(&server).exists()
    });
    let time_of = || fs::metadata(file(&server)).and_then(|file| file.modified()).ok();
    let mut files = Vec::new();
    for _ in 0..60 {
        measured(&mut server.connect(), STATEMENT);
        files.extend(time_of().filter(|time| files.last() != Some(time)));
    }
    println!("60 sessions wrote {} files", files.len());
    assert!(files.len() <= 20, "60 sessions wrote {} files", files.len());
}

/// The file is there, but the stop was not clean: somebody has killed the checkpointer, or the disk is full.
#[test]
fn a_file_without_a_clean_stop_does_not_count() {
    let mut server = server("stop-failed", &[]);
    measured(&mut server.connect(), STATEMENT);
    server.stop();
    let saved = fs::read(file(&server)).expect("the file");
    for is_read in [true, false] {
        server.launch();
        if is_read {
            assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 1);
        }
        server.kill();
        fs::write(file(&server), &saved).expect("the file can be written");
        server.clear_log();
        server.launch();
        assert!(!file(&server).exists());
        let mut client = server.connect();
        assert_eq!(kept(&mut client, "%"), []);
        assert_eq!(server.log_of_library(), Vec::<String>::new());
        drop(client);
        server.stop();
        fs::write(file(&server), &saved).expect("the file can be written");
    }
    // After a clean stop, the same file counts.
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 1);
}

/// The control file of a standby has another state when it stops.
#[test]
fn a_standby_keeps_its_statistics() {
    let primary = server("stop-primary", &["wal_level = replica", "max_wal_senders = 4"]);
    let mut standby = Server::standby_of(&primary, "stop-standby");
    for signal in ["INT", "TERM"] {
        run_each(&mut standby.connect(), "SELECT rowsource_reset()");
        measured(&mut standby.connect(), STATEMENT);
        standby.stopped_by(signal);
        standby.launch();
        assert_eq!(only_kept(&mut standby.connect(), STATEMENT).calls, 1, "{signal}");
    }
    let mut client = standby.connect();
    measured(&mut client, STATEMENT);
    drop(client);
    standby.stopped_by("QUIT");
    standby.launch();
    assert_eq!(kept(&mut standby.connect(), "%"), []);
    // The primary has a walsender for it, which ends after the worker.
    let mut primary = primary;
    measured(&mut primary.connect(), STATEMENT);
    let began = Instant::now();
    primary.stop();
    println!("the primary stopped after {:?}", began.elapsed());
    primary.launch();
    assert_eq!(only_kept(&mut primary.connect(), STATEMENT).calls, 1);
}

/// A walsender may run statements, too. It ends after the checkpoint, so nobody can wait for it.
#[test]
fn a_walsender_does_not_delay_the_stop() {
    let mut server = server("stop-walsender", &[]);
    let environment = environment();
    let mut psql = environment.as_server(&environment.pgbin.join("psql"));
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]).arg(format!(
        "host={} user=postgres dbname=postgres replication=database",
        server.folder().display()
    ));
    let mut psql = psql
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql");
    let mut input = psql.stdin.take().expect("its input");
    let sent =
        format!("SET pg_rowsource.statistics_level = 'typical';\n{STATEMENT};\n{STATEMENT};\n{STATEMENT};\n");
    input.write_all(sent.as_bytes()).expect("psql reads");
    let mut client = server.connect();
    wait_until("it has run them", Duration::from_secs(60), || {
        kept(&mut client, STATEMENT)
            .first()
            .is_some_and(|plan| plan.calls == 3)
    });
    let walsenders = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'";
    assert_eq!(value::<i64>(&mut client, walsenders), 1);
    drop(client);
    let began = Instant::now();
    server.stop();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "the stop took {took:?}");
    drop(input);
    psql.wait().expect("psql ends");
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 3);
}

/// A single-user backend is alone, so it saves as the last session.
#[test]
fn a_single_user_backend_keeps_the_statistics() {
    let mut server = server("stop-single", &[]);
    measured(&mut server.connect(), STATEMENT);
    server.stop();
    let single = |sql: &str| {
        let environment = environment();
        let mut command = environment.as_server(&environment.pgbin.join("postgres"));
        command
            .arg("--single")
            .arg("-D")
            .arg(server.data())
            .arg("postgres");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a single-user backend");
        let mut input = child.stdin.take().expect("its input");
        input.write_all(sql.as_bytes()).expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !said.contains("pg_rowsource"),
            "{said}"
        );
    };
    // One that measures nothing leaves the file as it is.
    single("SELECT 1\n");
    single(&format!(
        "SET pg_rowsource.statistics_level = 'typical'\n{STATEMENT}\n{STATEMENT}\n"
    ));
    server.launch();
    let mut client = server.connect();
    assert_eq!(only_kept(&mut client, STATEMENT).calls, 3);
}

/// A service manager takes anything but exit status 0 for a crash.
#[test]
fn a_clean_stop_ends_with_status_0() {
    for settings in [&[][..], &["pg_rowsource.save = off"], &[WITHOUT_WORKER]] {
        let mut server = server("stop-status", settings);
        measured(&mut server.connect(), STATEMENT);
        let ended = server.stopped();
        let is_clean = ended.is_some_and(|status| status.code() == Some(0));
        assert!(is_clean, "{settings:?}: {ended:?}\n{}", server.log());
        assert!(!server.data().join("postmaster.pid").exists(), "{settings:?}");
        assert_eq!(file(&server).exists(), settings != ["pg_rowsource.save = off"]);
    }
}

/// A postmaster and a worker without memory save the statistics, or log that they cannot.
#[test]
fn a_stop_without_memory() {
    const MB: u64 = 1 << 20;
    let mut server = server("stop-memory", &["pg_rowsource.track = 'all'"]);
    let mut seen = [false, false];
    for megabytes in [0, 1, 2, 4, 8, 16, 32, 64, 128] {
        let mut client = measuring(&server);
        send(
            &mut client,
            "DO $$BEGIN FOR i IN 1..1000 LOOP EXECUTE 'SELECT ' || repeat('id, ', i) || '1 AS many FROM t'; END LOOP; END$$",
        );
        let worker = worker(&mut client) as u32;
        drop(client);
        for pid in [server.postmaster(), worker] {
            limit_address_space(pid, Some(address_space(pid) + megabytes * MB));
        }
        server.clear_log();
        let ended = server.stopped();
        let is_clean = ended.is_some_and(|status| status.code() == Some(0));
        assert!(is_clean, "{megabytes} MB more: {ended:?}\n{}", server.log());
        let temporary = file(&server).with_extension("stat.tmp");
        assert!(!temporary.exists(), "half a file");
        let failure = "could not save its statistics to \"pg_stat/pg_rowsource.stat\"";
        let says_why = server.log().contains(failure);
        assert!(
            file(&server).exists() != says_why,
            "{megabytes} MB more: {}",
            server.log()
        );
        seen[usize::from(says_why)] = true;
        server.launch();
    }
    assert_eq!(seen, [true, true], "the limits limited nothing, or all");
}
