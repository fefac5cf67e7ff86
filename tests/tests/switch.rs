//! The switch `pg_rowsource.enabled`: a second after it is off, nothing is measured, counted, sampled or
//! written, in no session; what was recorded stays; and when it is on again, all works as before.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::callgrind::{SHORT, create_tables, of_statements};
use rowsource_tests::environment::environment;
use rowsource_tests::session::{cancel_backend, must_fail, run_each, texts, value};
use rowsource_tests::trace_file::folder;
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After this time, nothing may be recorded.
const A_SECOND: Duration = Duration::from_secs(1);
/// How long the tests watch what is recorded.
const WATCHED: Duration = Duration::from_secs(3);

/// Turns the switch on or off for the whole server.
fn turn(observer: &mut Client, state: &str) {
    run_each(
        observer,
        &format!("ALTER SYSTEM SET pg_rowsource.enabled = {state}; SELECT pg_reload_conf()"),
    );
}

/// Turns it off, and waits as long as it may take.
fn turn_off(observer: &mut Client) {
    turn(observer, "off");
    sleep(A_SECOND);
}

/// A second after this, all sessions that are between commands have read the setting.
fn turn_on(observer: &mut Client) {
    turn(observer, "on");
    sleep(A_SECOND);
}

/// What the server has recorded so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recorded {
    executions: i64,
    waits: i64,
    requests: i64,
    /// The time of the last sample, in microseconds. The ring has a limited number of samples.
    last_sample: i64,
    trace_bytes: u64,
}

impl Recorded {
    fn now(server: &Server, observer: &mut Client) -> Recorded {
        let row = observer
            .query_one(
                "SELECT (SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans),
                        (SELECT coalesce(sum(waits), 0)::bigint FROM pg_stat_rowsource_system_waits),
                        (SELECT coalesce(sum(small_reads + large_reads + small_writes + large_writes), 0)::bigint
                         FROM pg_stat_rowsource_tempfile_io),
                        (SELECT coalesce(max(1e6 * extract(epoch FROM sample_time)), 0)::bigint FROM rowsource_ash)",
                &[],
            )
            .expect("what is recorded");
        let files = fs::read_dir(folder(server)).into_iter().flatten().flatten();
        Recorded {
            executions: row.get(0),
            waits: row.get(1),
            requests: row.get(2),
            last_sample: row.get(3),
            trace_bytes: files
                .map(|file| file.metadata().map_or(0, |file| file.len()))
                .sum(),
        }
    }

    /// Returns whether everything has grown since then.
    fn is_all_above(&self, before: &Recorded) -> bool {
        self.executions > before.executions
            && self.waits > before.waits
            && self.requests > before.requests
            && self.last_sample > before.last_sample
            && self.trace_bytes > before.trace_bytes
    }
}

/// Waits until everything is recorded.
fn until_recorded(server: &Server, observer: &mut Client) {
    let before = Recorded::now(server, observer);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = Recorded::now(server, observer);
        if now.is_all_above(&before) {
            return;
        }
        assert!(Instant::now() < deadline, "not recorded: {before:?} {now:?}");
        sleep(Duration::from_millis(100));
    }
}

/// A load of pgbench, with these settings of its sessions. Dropping it ends it.
struct Load(Child);

impl Load {
    fn start(server: &Server, script: &str, options: &str) -> Load {
        let path = server.folder().join("load.sql");
        fs::write(&path, script).expect("a script");
        let child = Command::new(environment().pgbin.join("pgbench"))
            .args(["-n", "-c", "3", "-T", "600", "-U", "postgres", "-h"])
            .arg(server.folder())
            .arg("-f")
            .arg(&path)
            .arg("postgres")
            .env("PGOPTIONS", options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbench can be run");
        Load(child)
    }

    fn assert_runs(&mut self) {
        assert!(matches!(self.0.try_wait(), Ok(None)), "the load has ended");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let server = Server::preloaded(name, settings);
    let mut observer = server.connect();
    run_each(
        &mut observer,
        // The names of columns do not tell statements apart, but tables do.
        "CREATE EXTENSION pg_rowsource; CREATE SEQUENCE done; CREATE TABLE first (); CREATE TABLE second (); CREATE TABLE third ();
         CREATE TABLE t AS SELECT i AS id, md5(i::text) AS pad FROM generate_series(1, 20000) i;
         ALTER TABLE t ADD PRIMARY KEY (id); CREATE TABLE log (id int); VACUUM (FREEZE, ANALYZE)",
    );
    (server, observer)
}

/// Finds a row, writes a temporary file, waits, and commits a change.
const LOAD: &str = "SELECT pad FROM t WHERE id = 5;
    SELECT count(*) FROM (SELECT pad FROM t ORDER BY pad OFFSET 0) s;
    SELECT pg_sleep(0.002);
    INSERT INTO log VALUES (1);
    SELECT nextval('done');\n";

fn done(observer: &mut Client) -> i64 {
    value(observer, "SELECT last_value FROM done")
}

#[test]
fn nothing_is_recorded_a_second_later() {
    let (server, mut observer) = server("switch-load", &["max_parallel_workers_per_gather = 0"]);
    let options = "-c work_mem=64kB -c pg_rowsource.trace=all -c pg_rowsource.track=all";
    let mut load = Load::start(&server, LOAD, options);
    until_recorded(&server, &mut observer);
    for _ in 0..2 {
        turn_off(&mut observer);
        let (before, began) = (Recorded::now(&server, &mut observer), done(&mut observer));
        sleep(WATCHED);
        let (after, ended) = (Recorded::now(&server, &mut observer), done(&mut observer));
        load.assert_runs();
        println!("{} transactions meanwhile, {before:?}", ended - began);
        assert!(ended > began + 10, "the load runs: {began} to {ended}");
        assert_eq!(before, after);
        turn_on(&mut observer);
        until_recorded(&server, &mut observer);
    }
    // The trace of a session goes on where it was.
    load.assert_runs();
    let files: i64 = value(&mut observer, "SELECT count(*) FROM rowsource_trace_files");
    assert_eq!(files, 3, "one file a session");
}

/// The executions of a statement with these words.
fn calls(observer: &mut Client, words: &str) -> i64 {
    value(
        observer,
        &format!(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE '%{words}%' AND query NOT LIKE '%pg_stat%'"
        ),
    )
}

#[test]
fn a_long_function_stops_being_measured_within_a_second() {
    let (server, mut observer) = server("switch-function", &["pg_rowsource.track = all"]);
    let mut client = server.connect();
    let id = pid(&mut client);
    let waits = format!(
        "SELECT coalesce(sum(waits), 0)::bigint FROM pg_stat_rowsource_session_waits WHERE pid = {id}"
    );
    let session = std::thread::spawn(move || {
        let error = must_fail(
            &mut client,
            "DO $$ DECLARE n int; BEGIN LOOP SELECT count(*) INTO n FROM t WHERE id = 815; PERFORM pg_sleep(0.005);
             PERFORM nextval('done'); END LOOP; END $$",
        );
        assert_eq!(error.0, SqlState::QUERY_CANCELED, "{}", error.1);
        client
    });
    until(
        &mut observer,
        "SELECT coalesce(sum(calls), 0) > 20 FROM pg_stat_rowsource_plans WHERE query LIKE '%id = 815%'",
    );
    turn_off(&mut observer);
    let recorded = |observer: &mut Client| (calls(observer, "id = 815"), value::<i64>(observer, &waits));
    let (before, began) = (recorded(&mut observer), done(&mut observer));
    sleep(WATCHED);
    assert_eq!(before, recorded(&mut observer));
    // The command has begun before. So it stays as it is until its end, also when the switch is on again.
    turn_on(&mut observer);
    sleep(A_SECOND);
    assert_eq!(before, recorded(&mut observer));
    let ended = done(&mut observer);
    assert!(ended > began + 100, "the function runs: {began} to {ended}");
    cancel_backend(&mut observer, id);
    let mut client = session.join().expect("the session");
    assert_eq!(calls(&mut observer, "DO "), 0, "a part of it was not measured");
    run_each(
        &mut client,
        "SELECT count(*) FROM t WHERE id = 815; SELECT pg_sleep(0.01)",
    );
    let after = recorded(&mut observer);
    assert_eq!(after.0, before.0 + 1);
    assert!(after.1 > before.1, "waits are counted again");
}

#[test]
fn what_runs_across_a_change_is_not_recorded() {
    let (server, mut observer) = server("switch-across", &[]);
    let (mut runs, mut fetches) = (server.connect(), server.connect());
    let id = pid(&mut runs);
    run_each(
        &mut fetches,
        "INSERT INTO second SELECT FROM t; BEGIN; DECLARE c CURSOR FOR SELECT * FROM second; FETCH 10 FROM c",
    );
    let session = std::thread::spawn(move || {
        run_each(
            &mut runs,
            "SELECT pg_sleep(5) FROM (SELECT count(*) FROM first) s",
        );
        runs
    });
    until_waiting(&mut observer, id, "PgSleep");
    turn_off(&mut observer);
    run_each(&mut fetches, "FETCH 10 FROM c");
    turn_on(&mut observer);
    run_each(&mut fetches, "FETCH 10 FROM c; CLOSE c; COMMIT");
    let mut runs = session.join().expect("the session");
    let recorded = |observer: &mut Client| ["FROM first", "FROM second"].map(|words| calls(observer, words));
    assert_eq!(recorded(&mut observer), [0, 0]);
    let shown = display(&mut runs);
    assert!(
        shown.contains("was not recorded: pg_rowsource.enabled was off while it ran"),
        "{shown}"
    );
    run_each(&mut runs, "SELECT count(*) FROM first");
    run_each(
        &mut fetches,
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM second; FETCH 10 FROM c; CLOSE c; COMMIT",
    );
    assert_eq!(recorded(&mut observer), [1, 1]);
}

#[test]
fn only_the_configuration_turns_it_off() {
    let (server, mut observer) = server("switch-roles", &[]);
    run_each(
        &mut observer,
        "CREATE ROLE somebody LOGIN; GRANT SET ON PARAMETER pg_rowsource.enabled TO somebody",
    );
    let mut somebody = server.try_connect("somebody").expect("a session");
    for statement in [
        "SET pg_rowsource.enabled = off",
        "BEGIN; SET LOCAL pg_rowsource.enabled = off",
        "SELECT set_config('pg_rowsource.enabled', 'off', true)",
        "ALTER ROLE somebody SET pg_rowsource.enabled = off",
        "ALTER DATABASE postgres SET pg_rowsource.enabled = off",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET pg_rowsource.enabled = off AS 'SELECT 1'",
    ] {
        for client in [&mut observer, &mut somebody] {
            must_fail(client, statement);
            let _ = client.batch_execute("ROLLBACK");
        }
    }
    let connected = Command::new(environment().pgbin.join("psql"))
        .args(["-U", "postgres", "-d", "postgres", "-c", "SELECT 1", "-h"])
        .arg(server.folder())
        .env("PGOPTIONS", "-c pg_rowsource.enabled=off")
        .output()
        .expect("psql can be run");
    assert!(!connected.status.success(), "{connected:?}");
    run_each(
        &mut somebody,
        "CREATE TEMP TABLE fourth (); SELECT count(*) FROM fourth",
    );
    assert_eq!(calls(&mut observer, "FROM fourth"), 1);
}

#[test]
fn it_is_said_that_it_is_off_and_what_was_recorded_stays() {
    let (mut server, mut observer) = server("switch-said", &[]);
    let disabled_at = "SELECT disabled_at::text FROM rowsource_info()";
    assert_eq!(texts(&mut observer, disabled_at), [[None]]);
    let (mut used, mut unused) = (server.connect(), server.connect());
    run_each(&mut used, "SELECT count(*) FROM first");
    turn_off(&mut observer);
    let is_now: bool = value(
        &mut observer,
        "SELECT disabled_at BETWEEN now() - interval '30 seconds' AND now() FROM rowsource_info()",
    );
    assert!(is_now);
    run_each(&mut used, "SELECT count(*) FROM second");
    let shown = display(&mut used);
    assert!(
        shown.contains("because pg_rowsource.enabled is off; this is the last measured one")
            && shown.contains("FROM first"),
        "{shown}"
    );
    run_each(&mut unused, "SELECT 1");
    let shown = must_fail(&mut unused, "SELECT rowsource_display()").1;
    assert!(
        shown.contains("because pg_rowsource.enabled is off. Turn it on"),
        "{shown}"
    );
    for call in [
        "SELECT rowsource_trace_start()",
        "SELECT * FROM rowsource_call_trace('SELECT 1')",
    ] {
        let shown = must_fail(&mut unused, call).1;
        assert!(shown.contains("pg_rowsource.enabled is off"), "{shown}");
    }
    assert_eq!(
        (
            calls(&mut observer, "FROM first"),
            calls(&mut observer, "FROM second")
        ),
        (1, 0)
    );
    turn_on(&mut observer);
    assert_eq!(texts(&mut observer, disabled_at), [[None]]);
    let shown = display(&mut used);
    assert!(
        shown.contains("pg_rowsource.enabled was off while it ran; this is one before it"),
        "{shown}"
    );
    run_each(&mut used, "SELECT count(*) FROM third");
    let shown = display(&mut used);
    assert!(
        shown.contains("FROM third") && !shown.contains("enabled"),
        "{shown}"
    );
    // The file is written while the switch is off, too.
    turn_off(&mut observer);
    drop((used, unused, observer));
    server.stop();
    server.launch();
    let mut observer = server.connect();
    assert_eq!(
        (
            calls(&mut observer, "FROM first"),
            calls(&mut observer, "FROM third")
        ),
        (1, 1)
    );
}

fn display(client: &mut Client) -> String {
    let lines = texts(client, "SELECT rowsource_display()");
    // Long lines are broken.
    let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
    lines.join(" ")
}

/// A server that starts with the switch off has everything when it is turned on: also what processes without
/// hooks wait for.
#[test]
fn a_server_that_started_without_it_is_turned_on() {
    let (server, mut observer) = server(
        "switch-later",
        &[
            "pg_rowsource.enabled = off",
            "work_mem = '64kB'",
            "max_parallel_workers_per_gather = 0",
        ],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "SELECT count(*) FROM (SELECT pad FROM t ORDER BY pad OFFSET 0) s",
    );
    let before = Recorded::now(&server, &mut observer);
    let nothing = Recorded {
        executions: 0,
        waits: 0,
        requests: 0,
        last_sample: 0,
        trace_bytes: 0,
    };
    assert_eq!(before, nothing);
    turn_on(&mut observer);
    let mut load = Load::start(&server, LOAD, "-c pg_rowsource.trace=all");
    until_recorded(&server, &mut observer);
    load.assert_runs();
    // This session is older than the change.
    run_each(
        &mut client,
        "SELECT count(*) FROM first; SELECT count(*) FROM (SELECT pad FROM t ORDER BY pad OFFSET 0) s",
    );
    assert_eq!(calls(&mut observer, "FROM first"), 1);
    let row = observer
        .query_one(
            &format!(
                "SELECT sum(waits)::bigint FROM pg_stat_rowsource_session_waits WHERE pid = {} AND wait_event ILIKE 'BufFile%'",
                pid(&mut client)
            ),
            &[],
        )
        .expect("waits");
    assert!(
        row.get::<_, Option<i64>>(0).is_some_and(|waits| waits > 0),
        "its waits are counted"
    );
    run_each(&mut observer, "CHECKPOINT");
    until(
        &mut observer,
        "SELECT count(*) > 0 FROM pg_stat_rowsource_system_waits WHERE backend_type = 'checkpointer'",
    );
}

/// Sessions that cannot look at the shared word look at their own setting.
#[test]
fn a_session_that_loads_the_library_looks_at_its_own_setting() {
    let server = Server::start("switch-loaded", &[]);
    let (mut client, mut observer) = (server.connect(), server.connect());
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE first (); CREATE TABLE second (); CREATE TABLE third ()",
    );
    run_each(&mut client, "LOAD 'pg_rowsource'; SELECT count(*) FROM first");
    turn_off(&mut observer);
    run_each(&mut client, "SELECT count(*) FROM second");
    let shown = display(&mut client);
    assert!(
        shown.contains("enabled is off") && shown.contains("first"),
        "{shown}"
    );
    turn_on(&mut observer);
    run_each(&mut client, "SELECT count(*) FROM third");
    let shown = display(&mut client);
    assert!(shown.contains("third") && !shown.contains("enabled"), "{shown}");
}

/// The switch is turned often while all kinds of statements run, beside a logger, which has no shared memory.
#[test]
fn it_is_turned_under_load() {
    const LOAD: &str = "SELECT pad FROM t WHERE id = 5;
        BEGIN;
        DECLARE c CURSOR FOR SELECT * FROM t ORDER BY pad;
        FETCH 3 FROM c;
        SELECT pg_sleep(0.01);
        FETCH 3 FROM c;
        COMMIT;
        SELECT count(*), sum(length(pad)) FROM t a JOIN t b USING (id, pad);
        DO 'BEGIN FOR i IN 1..50 LOOP PERFORM count(*) FROM t WHERE id = i; BEGIN PERFORM 1 / (i % 10); EXCEPTION WHEN others THEN NULL; END; END LOOP; END';
        EXPLAIN (ANALYZE) SELECT count(*) FROM t;
        SELECT nextval('done');\n";
    let (server, mut observer) = server(
        "switch-often",
        &[
            "logging_collector = on",
            "log_min_duration_statement = 0",
            "min_parallel_table_scan_size = 0",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "max_parallel_workers_per_gather = 2",
        ],
    );
    let options =
        "-c work_mem=64kB -c pg_rowsource.trace=all -c pg_rowsource.track=all -c pg_rowsource.explain=on";
    let mut load = Load::start(&server, LOAD, options);
    let started: String = value(&mut observer, "SELECT pg_postmaster_start_time()::text");
    let began = done(&mut observer);
    for turned in 0..60 {
        turn(&mut observer, if turned % 2 == 0 { "off" } else { "on" });
        sleep(Duration::from_millis(20 + 7 * (turned % 13)));
    }
    until(
        &mut observer,
        &format!("SELECT last_value > {began} + 3 FROM done"),
    );
    load.assert_runs();
    until_recorded(&server, &mut observer);
    assert_eq!(
        started,
        value::<String>(&mut observer, "SELECT pg_postmaster_start_time()::text")
    );
    let wrong: i64 = value(
        &mut observer,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE total_time < 0 OR calls < 0 OR failed_calls > calls",
    );
    assert_eq!(wrong, 0);
    drop(load);
}

/// What a statement still costs while the switch is off: 340 to 430 instructions.
#[test]
fn statements_while_off_cost_less_than_at_level_basic_release() {
    /// The most instructions that the library may add to a statement. At level basic, it adds more than 500.
    const MAX_ADDED: f64 = 490.0;
    let mut server = Server::preloaded("switch-cost", &[]);
    let mut client = server.connect();
    create_tables(&mut client);
    drop(client);
    server.stop();
    let [without, with] = ["", "pg_rowsource"].map(|library| {
        let library = format!("shared_preload_libraries={library}");
        let before = SHORT.map(|_| "SET enable_sort = on");
        let statements = SHORT.map(|(.., statements)| statements);
        let short: Vec<_> = before.into_iter().zip(statements).take(SHORT.len() - 1).collect();
        of_statements(&server.data(), &[&library, "pg_rowsource.enabled=off"], &short)
    });
    let mut failures = Vec::new();
    for ((kind, ..), (with, without)) in SHORT.iter().zip(with.into_iter().zip(without)) {
        let added = with - without;
        println!(
            "{kind}: {without:.0} instructions without the library, {with:.0} with it turned off, {added:+.0}"
        );
        if added > MAX_ADDED {
            failures.push(format!("{kind}: {added:.0} instructions, {MAX_ADDED} at most"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
