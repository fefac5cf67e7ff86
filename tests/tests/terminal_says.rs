//! What the program says of what it cannot show, and that it shows all it can: lists that are cut, questions
//! that the server refuses or takes long for, recordings, and terminals that draw nothing.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::make_plans;
use rowsource_tests::terminal::{Terminal, VIEWS, program, run_as};
use rowsource_tests::waiting::until;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let server = Server::preloaded(
        name,
        &[&["max_parallel_workers_per_gather = 0", "jit = off"], settings].concat(),
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE held (id int);
         CREATE TABLE items AS SELECT i AS id FROM generate_series(1, 100000) i; ANALYZE items",
    );
    (server, client)
}

/// Prints a view of a database as JSON, as a user sees it.
fn json(server: &Server, user: &str, database: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(["-U", user, "-d", database, "-h"])
        .arg(server.folder())
        .args(["top", "--json"])
        .args(arguments)
        .stdout(Stdio::piped());
    command
}

fn parsed(output: std::process::Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns a key of each entry of a list.
fn words<'a>(json: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    let list = json[list].as_array().expect("a list").iter();
    list.map(|entry| entry[key].as_str().expect("a text")).collect()
}

/// More sessions wait than a list has rows: the list says so, and b finds the blocker of one that is not in
/// it.
#[test]
fn a_blocker_is_found_beyond_the_list_needs_terminal() {
    const WAITING: usize = 210;
    let (server, mut observer) = server("terminal-many-blocked", &["max_connections = 250"]);
    let mut holder = server.connect();
    let holds: i32 = value(&mut holder, "SELECT pg_backend_pid()");
    run_each(&mut holder, "BEGIN; LOCK TABLE held");
    let waiting: Vec<Busy> = (0..WAITING)
        .map(|_| Busy::run(server.connect(), "SELECT count(*) FROM held"))
        .collect();
    until(
        &mut observer,
        &format!("SELECT count(*) = {WAITING} + 1 FROM rowsource_blockers"),
    );
    let list = "SELECT pid FROM (SELECT pid FROM rowsource_blockers OFFSET 200) t LIMIT 1";
    let hidden: i32 = value(&mut observer, list);
    let terminal = Terminal::of(&server, &["top", "--view", "locks", "--interval", "0.5"]);
    terminal.until(&format!("200 of {} rows", WAITING + 1));
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let terminal = Terminal::of(&server, &["live", &hidden.to_string()]);
    terminal.until("FROM held");
    terminal.keys(&["b"]);
    terminal.until(&format!("rocess {hidden} waits for"));
    let screen = terminal.until("LOCK TABLE held");
    assert!(screen.contains(&format!("process {holds}")), "{screen}");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    run_each(&mut holder, "COMMIT");
    waiting.into_iter().for_each(|session| drop(session.join()));
}

/// What a role may not see, what the server refuses, and what happened meanwhile is in JSON.
#[test]
fn json_says_what_is_missing_needs_program() {
    let (server, mut client) = server("terminal-missing", &[]);
    run_each(
        &mut client,
        "CREATE ROLE guest LOGIN; REVOKE SELECT ON pg_stat_rowsource_system_waits FROM PUBLIC; CREATE DATABASE bare",
    );
    let child = json(
        &server,
        "guest",
        "postgres",
        &["--view", "waits", "--interval", "4"],
    );
    let child = { child }.spawn().expect("the program runs");
    // The first refreshes are over.
    until(
        &mut client,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'rowsource' AND state LIKE 'idle%'
            AND now() - query_start > interval '1 s'",
    );
    run_each(&mut client, "SELECT rowsource_reset()");
    let found = parsed(child.wait_with_output().expect("it ends"));
    assert_eq!(
        words(&found, "missing", "what"),
        ["privilege", "answer"],
        "{found}"
    );
    assert!(
        words(&found, "missing", "why")[1].contains("permission denied"),
        "{found}"
    );
    assert_eq!(words(&found, "events", "kind"), ["reset"], "{found}");
    let bare = json(&server, "postgres", "bare", &["--interval", "0.2"]).output();
    let bare = parsed(bare.expect("the program runs"));
    assert_eq!(words(&bare, "missing", "what"), ["extension"], "{bare}");
    assert_eq!(bare["view"], "sessions");
    let fine = json(&server, "postgres", "postgres", &["--interval", "0.2"]).output();
    let fine = parsed(fine.expect("the program runs"));
    assert_eq!(
        (&fine["missing"], &fine["events"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
}

/// A terminal that cannot move its cursor gets a sentence, and not a byte that moves it.
#[test]
fn a_dumb_terminal_is_told_to_print_needs_script() {
    for term in ["TERM=dumb", "-u TERM"] {
        let command = format!("env {term} '{}' -h /nowhere -U nobody top", program());
        let output = Command::new("script")
            .args(["-qfc", &command, "/dev/null"])
            .stdin(Stdio::null())
            .output()
            .expect("script runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("TERM") && text.contains("--once"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("nowhere"), "{text}");
    }
}

/// Has a server make three findings, each in these seconds.
fn findings_take(client: &mut Client, seconds: f64) {
    run_each(
        client,
        &format!("ALTER FUNCTION rowsource_regressions(text, text) RENAME TO fast_regressions;
         CREATE FUNCTION rowsource_regressions(from_time text DEFAULT NULL, to_time text DEFAULT NULL)
           RETURNS TABLE (id bigint, state text, changed_at timestamptz, queryid bigint, calls_after bigint,
             mean_time_before float8, mean_time_after float8, ratio float8, extra_time float8, basis text, cause text,
             command text, query text)
           LANGUAGE SQL VOLATILE AS $$
             SELECT 1, 'open', now(), 1, 1, 1, 2, 2, 1, 'tested', 'cause number ' || n, NULL, 'SELECT 1'
               FROM generate_series(1, 3) n WHERE pg_sleep({seconds}) IS NOT NULL $$"),
    );
}

/// A server that takes seconds for the findings: the rest is refreshed meanwhile, and they come.
#[test]
fn slow_findings_come_and_hold_nothing_up_needs_terminal() {
    let (server, mut client) = server("terminal-slow-findings", &[]);
    findings_take(&mut client, 1.0);
    let terminal = Terminal::of(&server, &["top", "--view", "findings", "--interval", "0.5"]);
    let is_awaited = |screen: &str| screen.contains("is awaited") && screen.contains(" UTC ");
    let clock = |screen: &str| screen.split(" UTC ").next().unwrap_or_default().to_owned();
    let first = clock(&terminal.until_it("the findings are awaited", is_awaited));
    terminal.until_it("a refresh meanwhile", |screen| {
        is_awaited(screen) && clock(screen) != first
    });
    let screen = terminal.until("cause number 3");
    assert!(!screen.contains("not refreshed"), "{screen}");
    // It is not asked for each refresh: three seconds of work follow at the earliest ten seconds later.
    terminal.until_it("findings that are eight seconds old", |screen| {
        let age = screen
            .split("as of ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        age.and_then(|age| age.parse().ok())
            .is_some_and(|age: u32| age >= 8)
    });
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let slow = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rowsource'";
    until(&mut client, &format!("SELECT ({slow}) = 0"));
}

/// What was open while it was recorded is there in the replay, without a server.
#[test]
fn plans_and_texts_are_recorded_and_replayed_needs_terminal() {
    let (server, mut client) = server("terminal-recording", &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                run_each(&mut client, "SELECT count(*) FROM items WHERE id % 3 = 0");
            }
        });
        let played = std::panic::catch_unwind(|| {
            let terminal = Terminal::of(&server, &["top", "--interval", "0.5", "--record", "it.jsonl"]);
            terminal.until("what was added");
            open_items(&terminal);
            terminal.keys(&["e"]);
            terminal.until("Filter: ");
            terminal.keys(&["Escape"]);
            terminal.until("Seq Scan | items");
            terminal.keys(&["Escape"]);
            terminal.until("what was added");
            terminal.until("FROM items");
            terminal.keys(&["q"]);
            terminal.until("left with 0");
        });
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = played {
            std::panic::resume_unwind(panic);
        }
    });
    let terminal = Terminal::of(&server, &["top", "--replay", "it.jsonl"]);
    terminal.until("the replay has ended");
    open_items(&terminal);
    terminal.keys(&["e"]);
    terminal.until("Filter: ");
    terminal.keys(&["Escape"]);
    terminal.until("Seq Scan | items");
    terminal.keys(&["c", "c"]);
    terminal.until("does not have this text");
}

/// Opens the plan of the statement that reads `items`.
fn open_items(terminal: &Terminal) {
    terminal.keys(&["/", "from items", "Enter"]);
    terminal.until_it("only its row", |screen| {
        screen.contains("SELECT count(*) FROM items") && !screen.contains("rowsource_")
    });
    terminal.keys(&["Enter"]);
    terminal.until("Seq Scan | items");
}

/// The text of a statement that only has a temporary file comes.
#[test]
fn temporary_files_have_the_texts_of_their_statements_needs_terminal() {
    let (server, _client) = server("terminal-temp-texts", &[]);
    let mut sorting = server.connect();
    let terminal = Terminal::of(&server, &["top", "--view", "temp", "--interval", "0.5"]);
    terminal.until("no temporary file is there now");
    run_each(
        &mut sorting,
        "SET work_mem = '64kB'; BEGIN;
         DECLARE c CURSOR FOR SELECT id, repeat('x', 50) FROM items ORDER BY 2, 1 DESC; FETCH 1 FROM c",
    );
    terminal.resize(200, 40);
    let screen = terminal.until("statement");
    assert!(screen.contains("Temporary files"), "{screen}");
    terminal.until("FETCH 1 FROM c");
}

/// A server without a free connection: the findings come by the one that there is.
#[test]
fn findings_need_no_second_connection_needs_terminal() {
    let (server, mut client) = server("terminal-full", &["max_connections = 12"]);
    findings_take(&mut client, 0.0);
    let terminal = Terminal::of(&server, &["top", "--view", "waits", "--interval", "0.5"]);
    terminal.until("what was added");
    let others: Vec<Client> = std::iter::from_fn(|| server.try_connect("postgres").ok()).collect();
    assert!(others.len() > 2, "{}", others.len());
    terminal.keys(&["5"]);
    terminal.until("cause number 3");
}

/// The first line has the time in UTC: no other clock stands on the screen.
#[test]
fn findings_have_the_clock_of_the_first_line_needs_program() {
    let (server, mut client) = server("terminal-zone", &[]);
    findings_take(&mut client, 0.0);
    let mut hour = || {
        value::<String>(
            &mut client,
            "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:')",
        )
    };
    let before = hour();
    let mut program = json(&server, "postgres", "postgres", &["--view", "findings"]);
    let zone = program.env("PGOPTIONS", "-c timezone=Asia/Tokyo");
    let found = parsed(zone.output().expect("the program runs"));
    let since = found["rows"][0]["since"].as_str().unwrap_or_default();
    assert!(
        since.starts_with(&before) || since.starts_with(&hour()),
        "{found}"
    );
}

/// After evictions, the sum of what is not stored any more is a row like others: with NULL as its user.
#[test]
fn evictions_take_nothing_from_the_statements_needs_terminal() {
    let (server, mut client) = server(
        "terminal-evicted",
        &["pg_rowsource.track = 'all'", "pg_rowsource.max_plans = 100"],
    );
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id; ANALYZE t");
    let terminal = Terminal::of(&server, &["top", "--interval", "0.5"]);
    terminal.until("what was added");
    make_plans(&mut client, 400, 2);
    terminal.until("plans were evicted");
    terminal.keys(&["g"]);
    // A plan that is too large for the store is not stored, and evicts none.
    let selects: Vec<String> = (0..510)
        .map(|i| format!("SELECT count(*) + {i} FROM t"))
        .collect();
    let large = selects.join(" UNION ALL ");
    let screen = terminal.until_it("the row others", |screen| {
        run_each(&mut client, &large);
        screen.contains("others: ")
    });
    assert!(!screen.contains("not refreshed"), "{screen}");
    terminal.keys(&["2"]);
    let screen = terminal.until("Nodes of the statements");
    assert!(!screen.contains("not refreshed"), "{screen}");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let found = json(&server, "postgres", "postgres", &["--interval", "0.2"]).output();
    let found = parsed(found.expect("the program runs"));
    assert_eq!(found["missing"], Value::Array(vec![]), "{found}");
}

/// A role that may see little gets each view, and of the statements of others that they run.
#[test]
fn what_a_role_may_not_see_takes_nothing_from_it_needs_program() {
    let (server, mut client) = server("terminal-masked", &["pg_rowsource.track = 'all'"]);
    run_each(&mut client, "CREATE ROLE guest LOGIN");
    let slow = Busy::run(server.connect(), "SELECT count(*) FROM items a, items b");
    let many = Busy::run(
        server.connect(),
        "DO $$BEGIN LOOP PERFORM count(*) FROM items WHERE id < 10; PERFORM count(*) FROM held; END LOOP; END$$",
    );
    let is_seen = format!(
        "SELECT count(*) > 0 FROM rowsource_progress WHERE pid = {}",
        slow.pid
    );
    until(&mut client, &is_seen);
    until(
        &mut client,
        "SELECT count(*) > 0 FROM pg_stat_rowsource_plans WHERE NOT toplevel",
    );
    for view in VIEWS {
        let found = json(
            &server,
            "guest",
            "postgres",
            &["--view", view, "--interval", "0.5"],
        )
        .output();
        let found = parsed(found.expect("the program runs"));
        assert_eq!(words(&found, "missing", "what"), ["privilege"], "{view}: {found}");
        let rows = found["rows"].as_array().expect("rows");
        if view == "live" {
            let row = rows.iter().find(|row| row["pid"] == slow.pid);
            let row = row.unwrap_or_else(|| panic!("{} is not shown: {found}", slow.pid));
            assert_eq!(row["node"], Value::Null, "{row}");
        }
        if view == "statements" {
            let is_other = |row: &&Value| row["statement"].as_str().is_some_and(|it| it.contains("others"));
            assert_eq!(rows.iter().find(is_other), None, "{found}");
        }
    }
    let (is_fine, out, _) = run_as(&server, "guest", &["live", &slow.pid.to_string(), "--once"]);
    assert!(is_fine && out.contains("<insufficient privilege>"), "{out}");
    assert!(!out.contains("for 0") && !out.contains("not refreshed"), "{out}");
    slow.cancel(&mut client);
    many.cancel(&mut client);
}

/// A server that is restarted as an administrator does keeps its plans: what they did before is not what
/// they did since the last refresh.
#[test]
fn plans_of_before_a_restart_are_no_interval_needs_terminal() {
    let (mut server, mut client) = server("terminal-restarted", &[]);
    for _ in 0..50 {
        run_each(&mut client, "SELECT count(*) FROM items WHERE id % 3 = 0");
    }
    let terminal = Terminal::of(&server, &["top", "--interval", "0.5"]);
    terminal.until("FROM items");
    terminal.until("what was added");
    drop(client);
    server.stop();
    server.launch();
    drop(server.connect());
    let began = "sums so far, an interval follows";
    terminal.until_it("all plans after the restart", |screen| {
        screen.contains(began) && screen.contains("FROM items")
    });
    let begin = Instant::now();
    let mut refreshes = BTreeSet::new();
    while begin.elapsed() < Duration::from_secs(5) {
        let screen = terminal.screen();
        if screen.contains(began) && refreshes.is_empty() {
            continue;
        }
        refreshes.extend(screen.split(" UTC ").next().map(str::to_owned));
        assert!(
            screen.contains("what was added") && !screen.contains("FROM items"),
            "{screen}"
        );
    }
    assert!(refreshes.len() > 3, "{refreshes:?}");
}

/// A view that the server has no time for is not asked for at the pace: the server would do nothing else.
#[test]
fn a_view_that_takes_long_is_asked_for_less_often_needs_terminal() {
    let (server, mut client) = server("terminal-slow-view", &["log_statement = 'all'"]);
    run_each(
        &mut client,
        "ALTER VIEW pg_stat_rowsource_system_waits RENAME TO fast_waits;
         CREATE VIEW pg_stat_rowsource_system_waits AS SELECT w.* FROM fast_waits w, pg_sleep(5)",
    );
    let asked = || {
        let log = server.log();
        log.matches("canceling statement due to statement timeout")
            .count()
    };
    let terminal = Terminal::of(&server, &["top", "--view", "waits", "--interval", "0.5"]);
    terminal.until("not refreshed");
    let before = asked();
    std::thread::sleep(Duration::from_secs(8));
    let more = asked() - before;
    assert!((1..=4).contains(&more), "{more}");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

/// What the store says of itself may take long while something holds it. The rest is shown all the same.
#[test]
fn a_store_that_answers_late_hides_nothing_else_needs_program() {
    let (server, mut client) = server("terminal-slow-store", &[]);
    run_each(
        &mut client,
        "ALTER FUNCTION rowsource_info() RENAME TO fast_info;
         CREATE FUNCTION rowsource_info() RETURNS TABLE (stats_reset timestamptz, evictions int8)
         LANGUAGE sql AS 'SELECT now(), 0::int8 FROM pg_sleep(5)'",
    );
    run_each(&mut client, "BEGIN; SELECT 4711");
    for (view, shows) in [("sessions", "SELECT 4711"), ("statements", "")] {
        let arguments = ["--view", view, "--interval", "0.5"];
        let found = json(&server, "postgres", "postgres", &arguments).output();
        let found = parsed(found.expect("the program runs"));
        let rows = found["rows"].to_string();
        assert!(rows.contains(shows), "{found}");
        assert_eq!(found["missing"], serde_json::json!([]));
        assert_eq!(found["events"], serde_json::json!([]));
    }
}

/// The program's own queries are left out, and not what an application writes like them.
#[test]
fn only_its_own_queries_are_left_out_needs_terminal() {
    let (server, mut client) = server("terminal-own", &["pg_rowsource.track = 'all'"]);
    let terminal = Terminal::of(&server, &["top", "--interval", "0.5"]);
    terminal.until("what was added");
    let screen = terminal.until_it("the application's statement", |screen| {
        run_each(&mut client, "SELECT /* rowsource */ count(*) FROM items");
        screen.contains("/* rowsource */ count(*)") && screen.contains("own queries are left out")
    });
    assert!(!screen.contains("rowsource */ json"), "{screen}");
    // Other queries than those of the first refreshes, and what keys ask for.
    for key in ["2", "3", "4", "6", "7", "8", "9", "1"] {
        terminal.keys(&[key]);
        terminal.until_it("figures", |screen| !screen.contains("is awaited"));
    }
    run_each(&mut client, "SELECT /* rowsource */ count(*) FROM items");
    let call = "SELECT /* rowsource */ public.rowsource_report(NULL::text, NULL::text, 'text')";
    run_each(&mut client, call);
    let found = json(&server, "postgres", "postgres", &["--interval", "1"]);
    let child = { found }.spawn().expect("the program runs");
    let (is_fine, ..) = run_as(&server, "postgres", &["report"]);
    assert!(is_fine);
    let found = parsed(child.wait_with_output().expect("it ends"));
    let texts = found["rows"].as_array().expect("rows").iter();
    let texts: Vec<_> = texts.filter_map(|row| row["statement"].as_str()).collect();
    let is_own = |text: &&str| text.contains("rowsource */ json") || text.contains("*/ public.rowsource_");
    assert!(!texts.iter().any(is_own), "{texts:?}");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}
