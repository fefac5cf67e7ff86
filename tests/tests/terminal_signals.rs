//! What `C` and `T` send: only what the user has agreed to, to the session and the statement that the
//! question named. What Ctrl-C and timeouts end, and what nobody else may read.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::process::send_signal;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::terminal::{Terminal, run};
use rowsource_tests::waiting::until;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Opens the sessions, and selects one.
fn select(server: &Server, pid: i32) -> Terminal {
    let terminal = Terminal::of(server, &["top", "--interval", "0.3", "--view", "sessions"]);
    let pid = pid.to_string();
    terminal.until(&pid);
    terminal.keys(&["/", &pid, "Enter"]);
    terminal.until(&format!("filter: {pid}"));
    terminal
}

fn runs(client: &mut Client, pid: i32) -> bool {
    value(
        client,
        &format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active' AND pid = {pid}"),
    )
}

#[test]
fn keys_in_one_burst_send_nothing_needs_terminal() {
    let server = Server::preloaded("terminal-bursts", &[]);
    let mut observer = server.connect();
    let pid = Busy::run(server.connect(), "SELECT pg_sleep(1000)").pid;
    let terminal = select(&server, pid);
    for keys in ["Cy", "Ty", "TyTyTyTy", "CyyyyyCy"] {
        terminal.keys(&[keys]);
        terminal.until("nothing was sent");
        terminal.keys(&["j"]);
        terminal.until_it("nothing is said", |screen| !screen.contains("nothing was sent"));
    }
    // A question that nobody answers goes, and what is typed then is no answer.
    terminal.keys(&["T"]);
    let screen = terminal.until(&format!("terminate the session of process {pid}?"));
    assert!(
        screen.contains("postgres (rowsource-tests), active: SELECT pg_sleep(1000)"),
        "{screen}"
    );
    terminal.until("nothing was sent: no answer for 10 s");
    terminal.keys(&["y"]);
    terminal.until("copied");
    sleep(Duration::from_millis(500));
    assert!(runs(&mut observer, pid));
    server.assert_no_crash();
}

#[test]
fn a_signal_is_for_the_session_and_the_statement_of_the_question_needs_terminal() {
    let server = Server::preloaded("terminal-addressees", &[]);
    let mut observer = server.connect();
    let busy = || Busy::run(server.connect(), "SELECT pg_sleep(1000)").pid;
    // The statement ends while the question stands there, and its session stays.
    let mut idle = server.connect();
    let ended: i32 = value(&mut idle, "SELECT pg_backend_pid()");
    let sleeps = std::thread::spawn(move || {
        drop(idle.batch_execute("SELECT pg_sleep(1000)"));
        idle
    });
    let terminal = select(&server, ended);
    terminal.keys(&["C"]);
    terminal.until(&format!("cancel the statement of process {ended}?"));
    run_each(&mut observer, &format!("SELECT pg_cancel_backend({ended})"));
    until(
        &mut observer,
        &format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND pid = {ended}"),
    );
    terminal.keys(&["y"]);
    terminal.until(&format!(
        "nothing was sent: this statement of process {ended} has ended"
    ));
    drop((terminal, sleeps.join()));
    // The session ends, and there is none with this process.
    let pid = busy();
    let terminal = select(&server, pid);
    terminal.keys(&["T"]);
    terminal.until(&format!("terminate the session of process {pid}?"));
    run_each(&mut observer, &format!("SELECT pg_terminate_backend({pid})"));
    until(
        &mut observer,
        &format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {pid}"),
    );
    terminal.keys(&["y"]);
    terminal.until(&format!("nothing was sent: process {pid} is gone"));
    drop(terminal);
    // The connection is gone: a signal makes no other one.
    let pid = busy();
    let terminal = select(&server, pid);
    terminal.keys(&["Space"]);
    terminal.until("PAUSED");
    terminal.keys(&["T"]);
    terminal.until(&format!("terminate the session of process {pid}?"));
    run_each(
        &mut observer,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rowsource'",
    );
    sleep(Duration::from_millis(500));
    terminal.keys(&["y"]);
    terminal.until("nothing was sent");
    assert!(runs(&mut observer, pid));
    server.assert_no_crash();
}

/// A prepared transaction has locks, and no process.
#[test]
fn a_prepared_transaction_gets_no_signal_needs_terminal() {
    let server = Server::preloaded("terminal-prepared", &["max_prepared_transactions = 2"]);
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE held (id int)",
    );
    run_each(&mut observer, "BEGIN; LOCK TABLE held; PREPARE TRANSACTION 'it'");
    let blocked = Busy::run(server.connect(), "SELECT count(*) FROM held").pid;
    let terminal = Terminal::of(&server, &["top", "--interval", "0.3", "--view", "locks"]);
    terminal.until(&blocked.to_string());
    for key in ["T", "C"] {
        terminal.keys(&["g", key]);
        terminal.until("a prepared transaction: ROLLBACK PREPARED ends it");
    }
    run_each(&mut observer, "ROLLBACK PREPARED 'it'");
}

/// Makes the report sleep.
fn slow_report(name: &str) -> (Server, Client) {
    let server = Server::preloaded(name, &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; ALTER FUNCTION rowsource_report(text, text, text) RENAME TO was;
         CREATE FUNCTION rowsource_report(text, text, text) RETURNS SETOF text LANGUAGE sql
         AS $$ SELECT pg_sleep(1000)::text $$",
    );
    (server, client)
}

const SLEEPS: &str = "FROM pg_stat_activity WHERE application_name = 'rowsource' AND wait_event = 'PgSleep'";

/// Ctrl-C ends a command, and what the server does for it.
#[test]
fn a_command_that_is_interrupted_is_cancelled_on_the_server_needs_terminal() {
    let (server, mut observer) = slow_report("terminal-interrupted");
    let terminal = Terminal::of(&server, &["report"]);
    until(&mut observer, &format!("SELECT count(*) = 1 {SLEEPS}"));
    terminal.keys(&["C-c"]);
    terminal.until("left with 130");
    until(&mut observer, &format!("SELECT count(*) = 0 {SLEEPS}"));
    server.assert_no_crash();
}

/// What the user has set for `statement_timeout` holds, and without it there is one of a minute.
#[test]
fn a_command_has_a_timeout_needs_program() {
    let (server, mut observer) = slow_report("terminal-timeout");
    let folder = server.folder().display().to_string();
    let arguments = ["-h", &folder, "-U", "postgres", "-d", "postgres", "report"];
    let output = run(
        &arguments,
        &[("PGOPTIONS", "-c statement_timeout=300".to_owned())],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("statement timeout"), "{said}");
    run_each(
        &mut observer,
        "CREATE OR REPLACE FUNCTION rowsource_report(text, text, text) RETURNS SETOF text LANGUAGE sql
         AS $$ SELECT current_setting('statement_timeout') || E'\\u009b2J' $$",
    );
    let output = run(&arguments, &[]);
    // What would move the cursor of a terminal is a space.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1min 2J\n", "{output:?}");
    // A page, which has texts of statements, is for its owner.
    let page = server.folder().join("page");
    std::fs::write(&page, "another one").expect("a file");
    let name = page.display().to_string();
    let output = run(&[&arguments[..], &["-o", &name]].concat(), &[]);
    assert!(output.status.success(), "{output:?}");
    let mode = std::fs::metadata(&page).expect("the page").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.assert_no_crash();
}

/// Neither a network that is gone, nor a server that is stopped, holds a command for ever.
#[test]
fn a_command_without_an_answer_ends_needs_program() {
    let (server, mut observer) = slow_report("terminal-no-answer");
    let folder = server.folder().display().to_string();
    let command = std::thread::spawn(move || {
        let arguments = ["-h", &folder, "-U", "postgres", "-d", "postgres", "report"];
        let limit = "-c statement_timeout=2s".to_owned();
        run(&arguments, &[("PGOPTIONS", limit)])
    });
    until(&mut observer, &format!("SELECT count(*) = 1 {SLEEPS}"));
    let pid: i32 = value(&mut observer, &format!("SELECT min(pid) {SLEEPS}"));
    send_signal(pid as u32, "STOP");
    let output = command.join().expect("it ends");
    send_signal(pid as u32, "CONT");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no answer for 6 s"), "{said}");
    server.assert_no_crash();
}

/// A server under load takes its time for all that a command asks, not only for its page.
#[test]
fn a_command_waits_for_a_server_that_is_slow_needs_program() {
    let server = Server::preloaded("terminal-overload", &[]);
    let mut holder = server.connect();
    run_each(
        &mut holder,
        "CREATE EXTENSION pg_rowsource; BEGIN; LOCK TABLE pg_extension",
    );
    let folder = server.folder().display().to_string();
    let arguments = ["-h", &folder, "-U", "postgres", "-d", "postgres", "report"].map(str::to_owned);
    let command = std::thread::spawn(move || run(&arguments.each_ref().map(String::as_str), &[]));
    let mut observer = server.connect();
    until(
        &mut observer,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    );
    std::thread::sleep(Duration::from_secs(2));
    run_each(&mut holder, "COMMIT");
    let output = command.join().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    server.assert_no_crash();
}

/// psql takes a URI without an option; here only `top` does. What is said of one elsewhere has no password.
#[test]
fn a_connection_string_in_the_wrong_place_is_not_printed_needs_program() {
    for wrong in [
        &["postgresql://me:secret@h/d"][..],
        &["live", "postgres://me:secret@h/d"],
        &["top", "mydb", "postgres://me:secret@h/d"],
        &["host=h password=secret"],
        &["-d", "postgresql://me:secret%zz@h/d", "top", "--once"],
        &["-d", "password=my secret", "top", "--once"],
    ] {
        let output = run(wrong, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.starts_with("rowsource: "),
            "{said}"
        );
        assert!(!said.contains("secret") && said.lines().count() == 1, "{said}");
        assert!(wrong[0] == "-d" || said.contains("-d"), "{said}");
    }
}

/// A page that takes long holds up neither refreshes nor signals, and there is one at a time.
#[test]
fn a_page_that_takes_long_holds_nothing_up_needs_terminal() {
    let (server, mut observer) = slow_report("terminal-page");
    let pid = Busy::run(server.connect(), "SELECT pg_sleep(2000)").pid;
    let terminal = select(&server, pid);
    let begin = Instant::now();
    terminal.keys(&["w"]);
    until(&mut observer, &format!("SELECT count(*) = 1 {SLEEPS}"));
    terminal.keys(&["w"]);
    terminal.until("the server still works on what was asked for before");
    let clock = |screen: &str| screen.split(" UTC").next().map(str::to_owned);
    let before = clock(&terminal.screen());
    terminal.until_it("a refresh", |screen| clock(screen) != before);
    terminal.keys(&["T"]);
    terminal.until(&format!("terminate the session of process {pid}?"));
    terminal.keys(&["y"]);
    terminal.until(&format!("sent to process {pid}"));
    let still: i64 = value(&mut observer, &format!("SELECT count(*) {SLEEPS}"));
    assert!(
        still == 1 || begin.elapsed() > Duration::from_secs(10),
        "the page was asked for {still} times"
    );
    server.assert_no_crash();
}
