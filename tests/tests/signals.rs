//! Functions that set timers, handle signals, or block in system calls behave as without the library: it
//! sends no signal to a session.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::attack::{Pair, wait_until};
use rowsource_tests::burn;
use rowsource_tests::busy::Busy;
use rowsource_tests::compiled::object;
use rowsource_tests::history::worker;
use rowsource_tests::measured::{assert_consistent_times, display};
use rowsource_tests::process::{context_switches, send_signal, sleeps, tracer};
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::verdict::{Limit, Side, Trial, Verdicts};
use rowsource_tests::waiting::{Ended, pid, until};
use rowsource_tests::{Server, measure};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SETTINGS: [&str; 2] = ["max_parallel_workers_per_gather = 0", "jit = off"];
/// Many calls of cheap nodes, not all of which are timed.
const LONG_SCAN: &str = "SELECT count(*) FROM n a, generate_series(1, 10) WHERE a.id % 7 >= 0";

/// Runs the same on a server without the library and on one that preloads it.
fn with_and_without(name: &str, setup: &str, check: impl Fn(&mut Client)) {
    for preloaded in [false, true] {
        let server = match preloaded {
            false => Server::start(name, &SETTINGS),
            true => Server::preloaded(name, &SETTINGS),
        };
        let mut client = if preloaded {
            server.session()
        } else {
            server.connect()
        };
        run_each(
            &mut client,
            "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n",
        );
        run_each(&mut client, setup);
        if preloaded {
            run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
        }
        println!("preloaded: {preloaded}");
        check(&mut client);
        drop(client);
        server.assert_no_crash();
    }
}

fn create_blocks(client: &mut Client) {
    let library = object("blocks/blocks.c");
    let library = library.display();
    run_each(
        client,
        &format!(
            "CREATE FUNCTION blocks(how text, ms int) RETURNS boolean AS '{library}' LANGUAGE c VOLATILE COST 0.001;
             CREATE FUNCTION count_signals() RETURNS void AS '{library}' LANGUAGE c VOLATILE;
             CREATE FUNCTION counted_signals() RETURNS int AS '{library}' LANGUAGE c VOLATILE"
        ),
    );
}

/// Perl puts the default action of the signal back when the function ends: to end the process.
#[test]
fn a_handler_of_plperl_is_harmless_needs_plperl() {
    const SETUP: &str = "CREATE EXTENSION plperlu;
        CREATE FUNCTION alarmed() RETURNS int LANGUAGE plperlu AS
        'local $SIG{ALRM} = sub { die qq(too late\\n) }; alarm(10); my $sum = 0; $sum += $_ for 1 .. 1000; alarm(0); return $sum;'";
    with_and_without("signals-plperl", SETUP, |client| {
        assert_eq!(value::<i32>(client, "SELECT alarmed()"), 500_500);
        assert_eq!(value::<i64>(client, LONG_SCAN), 3_000_000);
    });
}

#[test]
fn a_sleep_of_plperl_lasts_needs_plperl() {
    const SETUP: &str = "CREATE EXTENSION plperlu;
        CREATE FUNCTION slept(id int) RETURNS float8 LANGUAGE plperlu AS
        'use Time::HiRes; return 0 if $_[0] != 100; my $start = Time::HiRes::time(); sleep(2); return Time::HiRes::time() - $start;';
        CREATE FUNCTION selected(id int) RETURNS float8 LANGUAGE plperlu AS
        'use Time::HiRes; return 0 if $_[0] != 100; my $start = Time::HiRes::time(); select(undef, undef, undef, 2);
         return Time::HiRes::time() - $start;'";
    with_and_without("signals-sleep", SETUP, |client| {
        for function in ["slept", "selected"] {
            let seconds: f64 = value(
                client,
                &format!("SELECT max({function}(id)) FROM n WHERE id <= 5000"),
            );
            println!("{function}: {seconds:.3} s");
            assert!(seconds > 1.9, "{function}: {seconds} s");
        }
    });
}

/// Python keeps the handler of a function that has ended.
#[test]
fn a_handler_of_plpython_is_harmless_needs_plpython3() {
    const SETUP: &str = "CREATE EXTENSION plpython3u;
        CREATE FUNCTION handled() RETURNS int LANGUAGE plpython3u AS '
import signal
def late(number, frame):
    raise Exception(\"too late\")
signal.signal(signal.SIGALRM, late)
signal.alarm(20)
signal.alarm(0)
return 1
';
        CREATE FUNCTION next(id int) RETURNS int LANGUAGE plpython3u AS 'return id + 1'";
    with_and_without("signals-plpython", SETUP, |client| {
        assert_eq!(value::<i32>(client, "SELECT handled()"), 1);
        assert_eq!(
            value::<i64>(client, "SELECT sum(next(id)) FROM n WHERE id <= 50000"),
            50_000 * 50_001 / 2 + 50_000
        );
    });
}

/// Tcl waits in a thread of its own, and R in select. Both compute in their own interpreters.
fn sleeps_and_computes(name: &str, setup: &str) {
    with_and_without(name, setup, |client| {
        let seconds: f64 = value(client, "SELECT max(slept(id)) FROM n WHERE id <= 5000");
        println!("slept {seconds:.3} s");
        assert!(seconds > 1.9, "{seconds} s");
        assert_eq!(
            value::<i64>(client, "SELECT sum(next(id)) FROM n WHERE id <= 20000"),
            20_000 * 20_001 / 2 + 20_000
        );
    });
}

#[test]
fn a_sleep_of_pltcl_lasts_needs_pltcl() {
    const SETUP: &str = "CREATE EXTENSION pltclu;
        CREATE FUNCTION slept(id int) RETURNS float8 LANGUAGE pltclu AS '
            if {$1 != 100} {return 0}
            set start [clock microseconds]
            after 2000
            return [expr {([clock microseconds] - $start) / 1e6}]';
        CREATE FUNCTION next(id int) RETURNS int LANGUAGE pltclu AS 'return [expr {$1 + 1}]'";
    sleeps_and_computes("signals-pltcl", SETUP);
}

#[test]
fn a_sleep_of_plr_lasts_needs_plr() {
    const SETUP: &str = "CREATE EXTENSION plr;
        CREATE FUNCTION slept(id int) RETURNS float8 LANGUAGE plr AS '
            if (id != 100) return(0)
            start <- Sys.time()
            Sys.sleep(2)
            as.numeric(Sys.time() - start, units = \"secs\")';
        CREATE FUNCTION next(id int) RETURNS int LANGUAGE plr AS 'id + 1L'";
    sleeps_and_computes("signals-plr", SETUP);
}

/// The connection string of the session's own server.
fn loopback(client: &mut Client) -> String {
    let folder: String = value(client, "SHOW unix_socket_directories");
    format!("host=''{folder}'' user=postgres dbname=postgres")
}

/// A foreign server that sends its rows slowly, in the middle of a scan of calls that are not all timed.
#[test]
fn a_slow_foreign_server_is_waited_for() {
    with_and_without("signals-fdw", "CREATE EXTENSION postgres_fdw", |client| {
        let folder: String = value(client, "SHOW unix_socket_directories");
        run_each(
            client,
            &format!(
                "CREATE VIEW slow AS SELECT id FROM n
                   WHERE id <= 20000 AND CASE WHEN id % 1000 = 0 THEN pg_sleep(0.05) IS NOT NULL ELSE true END;
                 CREATE SERVER own FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{folder}', dbname 'postgres', fetch_size '500');
                 CREATE USER MAPPING FOR CURRENT_USER SERVER own OPTIONS (user 'postgres');
                 CREATE FOREIGN TABLE slow_rows (id int) SERVER own OPTIONS (table_name 'slow')"
            ),
        );
        let began = Instant::now();
        let sum = "SELECT sum(s.id + n.id % 2) FROM slow_rows s JOIN n USING (id)";
        assert_eq!(value::<i64>(client, sum), 20_000 * 20_001 / 2 + 10_000);
        let took = began.elapsed();
        println!("took {took:?}");
        assert!(took > Duration::from_millis(950), "{took:?}");
    });
}

/// A connection to a server that accepts it and never answers ends after its own timeout, and one that
/// answers late is waited for. From 16 on dblink knows no timeout, and is cancelled.
#[test]
fn dblink_waits_as_long_as_it_should() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = silent.local_addr().expect("its address").port();
    with_and_without("signals-dblink", "CREATE EXTENSION dblink", |client| {
        let own = loopback(client);
        let late = format!(
            "SELECT count(*) FROM (SELECT CASE WHEN id % 10000 = 100
                 THEN (SELECT x FROM dblink('{own}', 'SELECT 1 FROM pg_sleep(0.2) WHERE ' || id || ' > 0') AS t(x int))
                 ELSE 1 END AS one FROM n WHERE id <= 50000 OFFSET 0) of_scan WHERE one = 1"
        );
        let began = Instant::now();
        assert_eq!(value::<i64>(client, &late), 50_000);
        let took = began.elapsed();
        println!("took {took:?}");
        assert!(took > Duration::from_secs(1), "{took:?}");
        let never = format!(
            "SELECT count(*) FROM n WHERE CASE WHEN id = 100000
                 THEN dblink_connect('host=127.0.0.1 port={port} user=postgres connect_timeout=2') = 'OK' ELSE true END"
        );
        let has_timeout = major(client) < 16;
        if !has_timeout {
            run_each(client, "SET statement_timeout = '2s'");
        }
        let began = Instant::now();
        let error = client.query_one(&never, &[]).expect_err("nobody answers");
        let took = began.elapsed();
        let error = error.as_db_error().expect("an error of the server");
        println!("took {took:?}: {error:?}");
        match has_timeout {
            true => assert!(
                error
                    .detail()
                    .is_some_and(|detail| detail.contains("timeout expired"))
            ),
            false => assert_eq!(error.code(), &SqlState::QUERY_CANCELED),
        }
        assert!(took > Duration::from_millis(1500), "{took:?}");
    });
}

#[test]
fn a_call_that_blocks_is_not_interrupted() {
    with_and_without("signals-blocks", "SELECT 1", |client| {
        create_blocks(client);
        for how in ["poll", "select", "nanosleep"] {
            let interrupted: i64 = value(
                client,
                &format!(
                    "SELECT count(*) FILTER (WHERE NOT done) FROM (SELECT CASE WHEN id % 1000 = 100 THEN blocks('{how}', 60)
                       ELSE true END AS done FROM n WHERE id <= 20000 OFFSET 0) of_scan"
                ),
            );
            assert_eq!(interrupted, 0, "{how}");
        }
    });
}

/// No signal arrives in a session that computes for some seconds.
#[test]
fn no_signal_arrives_in_a_long_scan() {
    with_and_without("signals-none", "SELECT 1", |client| {
        create_blocks(client);
        run_each(client, "SELECT count_signals()");
        for _ in 0..3 {
            assert_eq!(value::<i64>(client, LONG_SCAN), 3_000_000);
        }
        assert_eq!(value::<i32>(client, "SELECT counted_signals()"), 0);
    });
}

/// A session that computes is not woken up by anybody.
#[test]
fn a_session_that_computes_never_sleeps() {
    with_and_without("signals-sleeps", "SELECT 1", |client| {
        // It may sleep once when the statement arrives.
        const FEW: u64 = 5;
        let pid = pid(client) as u32;
        let statement = "SELECT count(*) FROM n a, generate_series(1, 30) WHERE a.id % 7 >= 0";
        value::<i64>(client, LONG_SCAN);
        let before = sleeps(pid);
        assert_eq!(value::<i64>(client, statement), 9_000_000);
        let slept = sleeps(pid) - before;
        println!("slept {slept} times");
        assert!(slept <= FEW, "{slept}");
    });
}

/// In ten seconds, it has the context switches that it would have without the library.
#[test]
fn context_switches_are_those_without_the_library_timing_long() {
    const LASTS: f64 = 10.0;
    const FEW: i64 = 10;
    /// It may sleep when the statement arrives.
    const MAX_SLEEPS: u64 = 5;
    /// Some 500 beats come in ten seconds.
    const MAX_MORE: f64 = 150.0;
    let tables =
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM (FREEZE, ANALYZE) n";
    let mut pair = Pair::start("signals-switches", &[], tables);
    pair.run_with("SET pg_rowsource.statistics_level = typical");
    let pids = pair.clients.each_mut().map(|client| pid(client) as u32);
    let scan =
        |loops: i64| format!("SELECT count(*) FROM n a, generate_series(1, {loops}) WHERE a.id % 7 >= 0");
    let began = Instant::now();
    run_each(&mut pair.clients[0], &scan(FEW));
    let loops = (FEW as f64 * LASTS / began.elapsed().as_secs_f64()).ceil() as i64;
    let trial = Trial::of_differences("context switches", Limit::AtMost(MAX_MORE));
    let trial = trial.compare(8..=16, |side: Side| {
        let which = side as usize;
        let began = Instant::now();
        let before = [sleeps, context_switches].map(|count| count(pids[which]));
        let rows: i64 = value(&mut pair.clients[which], &scan(loops));
        let slept = sleeps(pids[which]) - before[0];
        let switches = context_switches(pids[which]) - before[1];
        println!(
            "{side:?}: {switches} in {:?}, slept {slept} times",
            began.elapsed()
        );
        assert_eq!(rows, 300_000 * loops);
        assert!(slept <= MAX_SLEEPS, "{side:?}: {slept}");
        switches as f64
    });
    let mut verdicts = Verdicts::default();
    verdicts.add(&trial);
    verdicts.finish();
}

/// The system calls of a session say the same of a scan of half a minute: no signal arrives. One that the
/// test sends does.
#[test]
fn strace_sees_no_signal_in_a_scan_of_half_a_minute_long() {
    const LASTS: Duration = Duration::from_secs(30);
    const PATIENCE: Duration = Duration::from_secs(60);
    let server = Server::preloaded("signals-strace", &SETTINGS);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n;
         SET pg_rowsource.statistics_level = typical",
    );
    let pid = pid(&mut client) as u32;
    let scan =
        |loops: i64| format!("SELECT count(*) FROM n a, generate_series(1, {loops}) WHERE a.id % 7 >= 0");
    const FEW: i64 = 30;
    let began = Instant::now();
    run_each(&mut client, &scan(FEW));
    let loops = (FEW as f64 * LASTS.as_secs_f64() / began.elapsed().as_secs_f64()) as i64;
    // A session that becomes idle has a timer of PostgreSQL itself, for its statistics.
    std::thread::sleep(Duration::from_secs(12));
    let output = server.folder().join("signals");
    let mut strace = Command::new("strace")
        .args(["-qq", "-e", "trace=none", "-e", "signal=all", "-o"])
        .arg(&output)
        .args(["-p", &pid.to_string()])
        .spawn()
        .expect("strace can be run");
    wait_until("strace watches", PATIENCE, || tracer(pid).is_some());
    let began = Instant::now();
    assert_eq!(value::<i64>(&mut client, &scan(loops)), 300_000 * loops);
    println!("it took {:?}", began.elapsed());
    let seen = || std::fs::read_to_string(&output).unwrap_or_default();
    assert_eq!(seen(), "");
    send_signal(pid, "HUP");
    wait_until("the signal is seen", PATIENCE, || seen().contains("SIGHUP"));
    strace.kill().expect("strace can be ended");
    strace.wait().expect("strace ends");
    server.assert_no_crash();
}

/// The worker wakes up for beats while a statement needs them, and else not at all.
#[test]
fn beats_stop_when_nothing_needs_them() {
    const WATCHED: Duration = Duration::from_secs(2);
    let mut settings = SETTINGS.to_vec();
    settings.push("pg_rowsource.history_frequency = 0");
    let server = Server::preloaded("signals-beats", &settings);
    let mut observer = server.session();
    burn::create(&mut observer);
    run_each(
        &mut observer,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n;
         CREATE FUNCTION many() RETURNS SETOF bigint LANGUAGE sql ROWS 10 VOLATILE AS
             'SELECT generate_series(1, 3000000)';
         SET pg_rowsource.statistics_level = basic",
    );
    let worker = worker(&mut observer);
    let woken = |what: &str| {
        let before = sleeps(worker);
        std::thread::sleep(WATCHED);
        let woken = sleeps(worker) - before;
        println!("{what}: {woken} wake-ups in {WATCHED:?}");
        woken
    };
    std::thread::sleep(Duration::from_millis(200));
    assert!(woken("idle") <= 3);
    let during = |what: &str, setting: &str, statement: &str| {
        let mut client = server.session();
        run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
        run_each(&mut client, setting);
        let token = client.cancel_token();
        let statement = statement.to_string();
        let session = std::thread::spawn(move || client.simple_query(&statement).is_err());
        // It is no longer young then, and the looks at one that waits have become rare.
        std::thread::sleep(Duration::from_secs(1));
        let woken = woken(what);
        token.cancel_query(postgres::NoTls).expect("it can be cancelled");
        assert!(
            session.join().expect("the session"),
            "the statement was cancelled"
        );
        woken
    };
    const BURNING: &str = "SELECT count(*) FROM n a, n b WHERE burn(0.2)";
    let woken_by_scan = during("a scan", "SET pg_rowsource.sampfreq = 128", BURNING);
    assert!((50..2000).contains(&woken_by_scan), "{woken_by_scan}");
    // The planner expects ten rows, so the statement does not wake up the worker, which finds it.
    let woken_by_surprise = during(
        "a scan that the planner takes for a short one",
        "SET pg_rowsource.sampfreq = 128",
        "SELECT count(*) FROM many() WHERE burn(2)",
    );
    assert!((50..2000).contains(&woken_by_surprise), "{woken_by_surprise}");
    let woken_by_waiting = during(
        "a scan that waits",
        "SET pg_rowsource.sampfreq = 128",
        "SELECT count(*) FROM n WHERE CASE WHEN id = 2000 THEN pg_sleep(60) IS NOT NULL ELSE burn(1) END",
    );
    assert!(woken_by_waiting <= 30, "{woken_by_waiting}");
    let woken_by_all = during("every call timed", "SET pg_rowsource.sampfreq = 1", BURNING);
    assert!(woken_by_all <= 3, "{woken_by_all}");
    std::thread::sleep(Duration::from_millis(200));
    assert!(woken("idle again") <= 3);
}

/// Without the worker, nobody makes beats, and the reader is told so.
#[test]
fn sessions_without_beats_are_counted() {
    const NOTE: &str = "long calls without I/O may be missed";
    const COUNT: &str = "SELECT sessions_without_beats FROM rowsource_info()";
    for has_worker in [true, false] {
        let mut settings = SETTINGS.to_vec();
        if !has_worker {
            settings.push("max_worker_processes = 0");
        }
        let server = Server::preloaded("signals-without", &settings);
        let mut client = server.session();
        if has_worker {
            worker(&mut client);
        }
        run_each(
            &mut client,
            "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 30000) i; VACUUM ANALYZE n;
             SET pg_rowsource.statistics_level = typical",
        );
        run_each(&mut client, "SELECT count(*) FROM n WHERE id % 7 = 0");
        let shown = display(&mut client, "ALLSTATS LAST");
        assert_eq!(shown.contains(NOTE), !has_worker, "{shown}");
        // Another session reads it while it runs.
        let mut watched = server.session();
        run_each(&mut watched, "SET pg_rowsource.sampfreq = 128");
        let scan = Busy::run(watched, "SELECT count(*) FROM n a, n b WHERE a.id % 7 = b.id % 7");
        let of_other = format!("rowsource_display(pid => {})", scan.pid);
        until(
            &mut client,
            &format!(
                "SELECT count(*) > 0 FROM pg_stat_rowsource_live WHERE pid = {} AND time_error > 0",
                scan.pid
            ),
        );
        let shown = texts(&mut client, &format!("SELECT * FROM {of_other}"));
        let is_noted = shown.iter().flatten().flatten().any(|line| line.contains(NOTE));
        assert_eq!(is_noted, !has_worker, "{shown:#?}");
        drop(scan.cancel(&mut client));
        let mut other = server.session();
        run_each(
            &mut other,
            "SET pg_rowsource.statistics_level = typical; SELECT count(*) FROM n",
        );
        let expected = if has_worker { 0 } else { 2 };
        // The one that was watched may still be ending.
        until(&mut client, &format!("SELECT ({COUNT}) = {expected}"));
        let why = value::<Option<String>>(&mut client, "SELECT without_beats_because FROM rowsource_info()");
        assert_eq!(
            why.is_some_and(|why| why.contains("max_worker_processes")),
            !has_worker
        );
    }
}

/// A worker that is stopped, and one that ends and is started again, leave statements as they are, and go on.
#[test]
fn statements_outlive_the_worker() {
    const MIN_BEATS: u64 = 20;
    let mut settings = SETTINGS.to_vec();
    settings.push("pg_rowsource.history_frequency = 0");
    let server = Server::preloaded("signals-worker", &settings);
    let mut observer = server.session();
    run_each(
        &mut observer,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n",
    );
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let mut scan = |what: &str| {
        let nodes = measure(&mut client, LONG_SCAN);
        assert_consistent_times(&nodes, what);
        assert!(
            nodes.iter().any(|node| node.rows == 3_000_000),
            "{what}: {nodes:#?}"
        );
    };
    let first = worker(&mut observer);
    send_signal(first, "STOP");
    scan("the worker is stopped");
    send_signal(first, "CONT");
    let before = sleeps(first);
    scan("the worker goes on");
    assert!(sleeps(first) > before + MIN_BEATS, "{}", sleeps(first) - before);
    run_each(&mut observer, &format!("SELECT pg_terminate_backend({first})"));
    scan("there is no worker");
    // PostgreSQL starts another one after five seconds.
    until(
        &mut observer,
        &format!(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_rowsource history' AND pid <> {first}"
        ),
    );
    let second = worker(&mut observer);
    let before = sleeps(second);
    scan("another worker");
    assert!(sleeps(second) > before + MIN_BEATS, "{}", sleeps(second) - before);
    server.assert_no_crash();
}

/// At random moments of statements the worker is stopped, goes on, ends, and is started again: rows are
/// exact, and the time of a scan is within three of its errors. The truth is known, however busy the machine
/// is: the scan takes what it burns and a part of what neither it nor the node above it burns.
#[test]
fn statements_outlive_the_worker_at_random_moments() {
    const MOMENTS: usize = 60;
    /// In each so many rounds, the worker ends. PostgreSQL starts another one after five seconds.
    const ENDS_EACH: usize = 6;
    const ROWS: i64 = 60_000;
    const MIN_WITHIN: f64 = 0.94;
    const BURNS: &str =
        "SELECT count(*) FROM (SELECT id FROM n WHERE burn(1) OFFSET 0) s WHERE burn_above(1)";
    let server = Server::preloaded("signals-moments", &SETTINGS);
    let mut observer = server.session();
    burn::create(&mut observer);
    run_each(
        &mut observer,
        &format!("CREATE TABLE n AS SELECT i AS id FROM generate_series(1, {ROWS}) i; VACUUM ANALYZE n"),
    );
    let mut client = server.session();
    let running = format!(
        "SELECT query_start::text FROM pg_stat_activity WHERE pid = {} AND state = 'active' AND query = '{BURNS}'",
        pid(&mut client)
    );
    let enough = AtomicBool::new(false);
    let (within, statements) = std::thread::scope(|scope| {
        let ended = Ended(&enough);
        let session = scope.spawn(|| {
            let (mut within, mut statements, mut timed) = (0, 0, 0);
            while !enough.load(Ordering::Relaxed) {
                let _: f64 = value(&mut client, "SELECT burned_above()");
                let (nodes, burned) = burn::during(&mut client, |client| measure(client, BURNS));
                let above_burned: f64 = value(&mut client, "SELECT burned_above()");
                assert_consistent_times(&nodes, "beside a worker that changes");
                let [root, above, scan] = &nodes[..] else {
                    panic!("{nodes:#?}")
                };
                assert_eq!((root.rows, above.rows, scan.rows), (1, ROWS, ROWS));
                timed += scan.timed_calls.expect("calls that were timed");
                let [all, ms] = [root, scan].map(|node| node.total_ms.expect("a time"));
                let slack = 3.0 * scan.error_ms.expect("an error");
                let is_within = (burned - slack..=all - above_burned + slack).contains(&ms);
                if !is_within {
                    println!("burned {burned} and {above_burned} ms: {root:?}\n{scan:?}");
                }
                within += usize::from(is_within);
                statements += 1;
            }
            // Most calls are timed of a statement that loses its processor all the time.
            assert!(timed < statements * ROWS / 2, "{timed} of {statements}");
            (within, statements)
        });
        let (mut moments, mut rounds) = (0, 0);
        while moments < MOMENTS && !session.is_finished() {
            let worker = worker(&mut observer);
            rounds += 1;
            for signal in ["STOP", "CONT"] {
                let wait: f64 = value(&mut observer, "SELECT 0.1 * random()");
                std::thread::sleep(Duration::from_secs_f64(wait));
                let before = texts(&mut observer, &running);
                if signal == "STOP" && rounds % ENDS_EACH == 0 {
                    send_signal(worker, "TERM");
                }
                send_signal(worker, signal);
                let is_during = !before.is_empty() && before == texts(&mut observer, &running);
                moments += usize::from(is_during);
            }
        }
        drop(ended);
        println!("{moments} moments in statements, {rounds} rounds");
        session.join().expect("the session")
    });
    println!("{within} of {statements} statements are within three errors");
    assert!(within as f64 >= MIN_WITHIN * statements as f64);
    server.assert_no_crash();
}
