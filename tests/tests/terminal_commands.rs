//! The subcommands of the program `rowsource`, with right and wrong arguments: the plan that a process runs,
//! plans, comparisons and reports, JSON, and recordings, also damaged ones.

use postgres::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::terminal::{Terminal, VIEWS, run, run_as};
use rowsource_tests::waiting::until;
use serde_json::Value;
use std::fs;
use std::path::Path;

const STATEMENT: &str = "SELECT count(*) FROM orders WHERE id % 3 = 0";

/// Starts a server where [`STATEMENT`] ran with two plans, and a role that may see little.
fn server(name: &str) -> (Server, Client) {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE ROLE little LOGIN;
         CREATE TABLE orders AS SELECT i AS id FROM generate_series(1, 10000) i; CREATE INDEX ON orders (id); ANALYZE orders",
    );
    for setting in ["on", "off"] {
        run_each(&mut client, &format!("SET enable_seqscan = {setting}"));
        run_each(&mut client, STATEMENT);
    }
    run_each(&mut client, "RESET enable_seqscan");
    (server, client)
}

/// Returns the statement's queryid, and its plan that has such a node.
fn plan_with(client: &mut Client, operation: &str) -> [String; 2] {
    ["queryid", "planid"].map(|column| {
        let sql = format!(
            "SELECT {column}::text FROM pg_stat_rowsource WHERE operation LIKE '{operation}%' AND object_name LIKE 'orders%'"
        );
        value(client, &sql)
    })
}

#[test]
fn plans_and_comparisons_are_printed_needs_program() {
    let (server, mut client) = server("terminal-plan");
    let [queryid, slow] = plan_with(&mut client, "Seq Scan");
    let [_, other] = plan_with(&mut client, "Index Only Scan");
    let succeeds = |arguments: &[&str], has: &[&str], has_not: &[&str]| {
        let (passes, out, err) = run_as(&server, "postgres", arguments);
        assert!(passes && err.is_empty(), "{arguments:?}: {out}{err}");
        assert!(has.iter().all(|text| out.contains(text)), "{arguments:?}: {out}");
        assert!(
            !has_not.iter().any(|text| out.contains(text)),
            "{arguments:?}: {out}"
        );
    };
    // Without a planid, it is the plan that took the most time, and how many there are.
    succeeds(&["plan", &queryid], &["plan 1 of 2", "A-Rows", "3333"], &[]);
    succeeds(&["plan", &queryid, &slow], &["Seq Scan"], &["Index Only Scan"]);
    succeeds(
        &["plan", &queryid, &other, "--format", "TYPICAL"],
        &["Index Only Scan"],
        &["Seq Scan"],
    );
    succeeds(
        &["compare", &queryid, &slow, &other],
        // Which cause it names depends on the times.
        &[&slow, &other, "Index Only Scan", "| Cause"],
        &[],
    );
    succeeds(
        &[
            "compare",
            &queryid,
            &format!("{slow} mean"),
            &format!("{other} mean"),
        ],
        &[&slow, &other],
        &[],
    );
    succeeds(
        &["report", "1 hour", "--queryid", &queryid],
        &["What statement", &queryid],
        &[],
    );
    let file = server.folder().join("report.html").display().to_string();
    succeeds(&["report", "--html", "-o", &file], &[], &["html"]);
    assert!(fs::read_to_string(&file).expect("the page").contains("</html>"));
}

#[test]
fn wrong_arguments_are_errors_that_say_what_is_wrong_needs_program() {
    let (server, mut client) = server("terminal-wrong");
    let [queryid, planid] = plan_with(&mut client, "Seq Scan");
    let fails = |arguments: &[&str], says: &str| {
        let (passes, out, err) = run_as(&server, "postgres", arguments);
        assert!(!passes && out.is_empty(), "{arguments:?}: {out}{err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
        // One sentence and its hint; clap's errors have lines of their own.
        assert!(
            err.starts_with("error: ") || err.lines().count() == 1,
            "{arguments:?}: {err}"
        );
    };
    fails(&["plan", "42"], "no plan is kept for queryid 42");
    fails(&["plan", &queryid, "42"], "42");
    fails(&["plan", &queryid, &planid, "--format", "nonsense"], "nonsense");
    fails(&["plan", &queryid, &planid, "--format", "a'b\\c"], "a'b\\c");
    fails(&["plan", "orders"], "invalid value 'orders' for '<QUERYID>'");
    fails(&["plan", "99999999999999999999"], "number too large");
    fails(&["plan"], "<QUERYID>");
    fails(&["compare", "42", &planid, &planid], "42");
    fails(&["compare", &queryid, &planid, "42"], "42");
    fails(
        &["compare", &queryid, &planid, "nonsense"],
        "\"nonsense\" is no side of a comparison",
    );
    fails(&["compare", &queryid, &planid], "<B>");
    fails(&["report", "nonsense"], "\"nonsense\" is no moment");
    fails(&["report", "2020-01-02", "2020-01-01"], "ends before it begins");
    fails(
        &["report", "-o", "/nowhere/report"],
        "/nowhere/report: No such file",
    );
    fails(&["live", "orders"], "invalid value 'orders' for '<PID>'");
    fails(&["live", "1", "--interval", "0"], "not from 0.1 to 3600");
    fails(
        &["top", "--view", "nonsense", "--once"],
        "possible values: statements",
    );
    fails(&["top", "--record", "a", "--replay", "b"], "cannot be used with");
    fails(
        &["top", "--once", "--record", "/nowhere/recording"],
        "/nowhere/recording: No such file",
    );
    fails(&["top"], "there is no terminal");
    fails(&["-w", "-W", "top"], "cannot be used with");
    fails(&["nonsense"], "unrecognized subcommand");
}

/// A role without pg_read_all_stats has its own statements only, whatever it asks for.
#[test]
fn who_may_see_little_gets_no_plan_of_others_needs_program() {
    let (server, mut client) = server("terminal-little");
    let [queryid, planid] = plan_with(&mut client, "Seq Scan");
    let [_, other] = plan_with(&mut client, "Index Only Scan");
    let long = Busy::run(
        server.connect(),
        "SELECT count(*) FROM orders a, orders b, orders c",
    );
    let pid = long.pid.to_string();
    until(
        &mut client,
        &format!("SELECT count(*) > 0 FROM rowsource_progress WHERE pid = {pid}"),
    );
    for arguments in [
        vec!["plan", &queryid],
        vec!["plan", &queryid, &planid],
        vec!["compare", &queryid, &planid, &other],
    ] {
        let (passes, out, err) = run_as(&server, "little", &arguments);
        assert!(!passes && out.is_empty(), "{arguments:?}: {out}{err}");
        assert!(err.contains("pg_read_all_stats"), "{arguments:?}: {err}");
    }
    for arguments in [
        vec!["report"],
        vec!["live", &pid, "--once"],
        vec!["live", &pid, "--json"],
    ] {
        let (passes, out, err) = run_as(&server, "little", &arguments);
        assert!(passes, "{arguments:?}: {err}");
        assert!(!out.contains("orders"), "{arguments:?}: {out}");
        // The report has samples of the program's own statements.
        let is_of_own = arguments[0] == "report";
        assert!(is_of_own || !out.contains("Nested Loop"), "{arguments:?}: {out}");
    }
    long.cancel(&mut client);
}

/// As it moves, and until it ends.
#[test]
fn the_plan_that_a_process_runs_is_shown_needs_terminal() {
    let (server, mut client) = server("terminal-live");
    let long = Busy::run(
        server.connect(),
        "SELECT count(*) FROM orders a, orders b, orders c",
    );
    let pid = long.pid.to_string();
    until(
        &mut client,
        &format!("SELECT count(*) > 0 FROM rowsource_progress WHERE pid = {pid}"),
    );
    let (passes, out, err) = run_as(
        &server,
        "postgres",
        &["live", &pid, "--once", "--interval", "0.2"],
    );
    assert!(
        passes && out.contains("Nested Loop") && out.contains("-> "),
        "{out}{err}"
    );
    let (_, out, _) = run_as(
        &server,
        "postgres",
        &["live", &pid, "--json", "--interval", "0.2"],
    );
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert!(rows.len() >= 4, "{json}");
    let terminal = Terminal::of(&server, &["live", &pid, "--interval", "0.3"]);
    let screen = terminal.until("-> ");
    assert!(screen.contains(&format!("Process {pid}")), "{screen}");
    // Its figures move.
    terminal.until_it("the rows move", |later| {
        later.contains("-> ") && figures(later) != figures(&screen)
    });
    // Who only looks sends no signals.
    let looking = Terminal::of(&server, &["live", &pid, "--read-only", "--interval", "0.3"]);
    looking.until("-> ");
    for key in ["C", "T"] {
        looking.keys(&[key]);
        looking.until("--read-only: no signals are sent");
        looking.keys(&["y", "r"]);
        looking.until_it("the message goes", |screen| !screen.contains("no signals"));
    }
    looking.until("-> ");
    let idle = long.cancel(&mut client);
    terminal.until(&format!("process {pid} runs no measured statement now"));
    drop(idle);
    terminal.until(&format!("the server has no process {pid} now"));
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    // A process that is not there.
    for pid in ["4194304", "99999999999"] {
        let (passes, out, _) = run_as(&server, "postgres", &["live", pid, "--once"]);
        assert!(passes && out.contains("the server has no process"), "{out}");
    }
}

/// Returns what is below the title of a screen.
fn figures(screen: &str) -> Vec<&str> {
    screen.lines().skip(3).take(8).collect()
}

#[test]
fn each_view_is_json_with_all_rows_needs_program() {
    let (server, mut client) = server("terminal-json");
    let mut holding = server.connect();
    run_each(&mut holding, "BEGIN; LOCK TABLE orders");
    let blocked = Busy::run(server.connect(), "SELECT count(*) FROM orders");
    until(
        &mut client,
        &format!(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {}",
            blocked.pid
        ),
    );
    for view in VIEWS {
        let (passes, out, err) = run_as(
            &server,
            "postgres",
            &["top", "--view", view, "--json", "--interval", "0.2"],
        );
        assert!(passes && err.is_empty(), "{view}: {err}");
        let json: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{view}: {error}: {out}"));
        assert!(
            json["title"].is_string() && json["rows"].is_array(),
            "{view}: {json}"
        );
        let rows = json["rows"].to_string();
        if ["locks", "sessions"].contains(&view) {
            assert!(rows.contains(&blocked.pid.to_string()), "{view}: {json}");
        }
    }
    run_each(&mut holding, "ROLLBACK");
    blocked.join();
}

/// Records a few refreshes of a server under load, and returns the recording.
fn record(server: &Server, client: &mut Client, file: &Path) -> String {
    let name = file.display().to_string();
    let terminal = Terminal::of(
        server,
        &["top", "--interval", "0.3", "--record", &format!("'{name}'")],
    );
    terminal.until_it("five refreshes", |screen| {
        assert!(!screen.contains("left with"), "{screen}");
        run_each(client, STATEMENT);
        fs::read_to_string(file).is_ok_and(|text| text.lines().count() > 5)
    });
    terminal.until("FROM orders");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    fs::read_to_string(file).expect("the recording")
}

/// Replays a file in a view, without a server.
fn replay(file: &Path, view: &str) -> (Option<i32>, String, String) {
    let name = file.display().to_string();
    let arguments = [
        "-h", "/nowhere", "top", "--replay", &name, "--once", "--view", view,
    ];
    let output = run(&arguments, &[]);
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), out, err)
}

#[test]
fn a_recording_is_replayed_without_a_server_needs_terminal() {
    let (server, mut client) = server("terminal-record");
    let file = server.folder().join("a recording.jsonl");
    record(&server, &mut client, &file);
    for view in VIEWS {
        let (code, out, err) = replay(&file, view);
        assert!(code == Some(0) && err.is_empty(), "{view}: {out}{err}");
        assert!(out.starts_with("rowsource  PostgreSQL"), "{view}: {out}");
        assert!(!out.contains("not refreshed"), "{view}: {out}");
        assert!(view != "statements" || out.contains("FROM orders"), "{out}");
    }
    let terminal = Terminal::of(&server, &["top", "--replay", "'a recording.jsonl'"]);
    let screen = terminal.until("the replay has ended");
    assert!(screen.contains("replay of a recording.jsonl"), "{screen}");
    // Its keys work; what needs a server says that there is none.
    terminal.keys(&["4"]);
    terminal.until("Activity of the last minute");
    terminal.keys(&["1", "e"]);
    terminal.until("the recording does not have this text");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

#[test]
fn a_damaged_recording_is_an_error_that_names_the_line_needs_terminal() {
    let (server, mut client) = server("terminal-damaged");
    let text = record(&server, &mut client, &server.folder().join("recording"));
    let damaged = server.folder().join("damaged");
    let lines: Vec<&str> = text.lines().collect();
    let cut = text.len() - lines.last().expect("a line").len() / 2;
    let (first, whole) = (&lines[0][..lines[0].len() / 2], lines[0]);
    let wrong_type = whole.replacen("\"parts\":[", "\"parts\":[7,", 1);
    for (what, bytes, says) in [
        ("empty", String::new(), "the file is empty: no recording"),
        (
            "garbage",
            "\u{1b}[2Jgarbage\n".to_owned(),
            "line 1 is no refresh of a recording",
        ),
        (
            "JSON",
            "{\"rows\": []}\n".to_owned(),
            "line 1 is no refresh of a recording",
        ),
        (
            "an empty line",
            format!("{whole}\n\n"),
            "line 2 is no refresh of a recording",
        ),
        (
            "a list",
            format!("{whole}\n[]\n"),
            "line 2 is no refresh of a recording",
        ),
        (
            "wrong types",
            format!("{whole}\n{wrong_type}\n"),
            "line 2 is no refresh of a recording",
        ),
        (
            "deep JSON",
            "[".repeat(1 << 20),
            "line 1 is no refresh of a recording",
        ),
        (
            "cut in the first refresh",
            first.to_owned(),
            "line 1 is no refresh of a recording",
        ),
        (
            "cut, and more",
            format!("{first}\n{whole}\n"),
            "line 1 is no refresh of a recording",
        ),
    ] {
        fs::write(&damaged, bytes).expect("a file");
        let (code, out, err) = replay(&damaged, "statements");
        assert!(code == Some(1) && out.is_empty(), "{what}: {code:?} {out}{err}");
        assert!(err.contains(says) && err.contains("damaged"), "{what}: {err}");
        assert!(!err.contains('\u{1b}'), "{what}: {err:?}");
    }
    // In a terminal, the screen goes and the error stays.
    let terminal = Terminal::of(&server, &["top", "--replay", "damaged"]);
    let screen = terminal.until("left with 1");
    assert!(screen.contains("damaged: line 1 is no refresh"), "{screen}");
    // What was written before the program was killed is replayed.
    fs::write(&damaged, &text[..cut]).expect("a file");
    let (code, out, err) = replay(&damaged, "statements");
    assert!(
        code == Some(0) && out.starts_with("rowsource  PostgreSQL"),
        "{out}{err}"
    );
    assert!(err.contains("does not end with a whole line"), "{err}");
    for (name, says) in [("/nowhere/file", "No such file"), ("/tmp", "Is a directory")] {
        let (code, _, err) = replay(Path::new(name), "statements");
        assert!(
            code == Some(1) && err.contains(name) && err.contains(says),
            "{err}"
        );
    }
}

/// Whatever stands in a file: a screen or an error, no panic.
#[test]
fn recordings_with_random_damage_do_no_harm_needs_terminal() {
    let (server, mut client) = server("terminal-damage");
    let file = server.folder().join("recording");
    let text = record(&server, &mut client, &file).into_bytes();
    let mut random = StdRng::seed_from_u64(7);
    let (mut errors, mut screens) = (0, 0);
    for round in 0..150 {
        let mut bytes = text.clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            // Every second time, only numbers change, so that it often stays a recording.
            match random.random_range(0..3) * (round % 2) {
                0 => {
                    let digit = (at..bytes.len())
                        .find(|at| bytes[*at].is_ascii_digit())
                        .unwrap_or(at);
                    let more = ["0", "-7", "99999999999", "1e300", "-0.0"][random.random_range(0..5)];
                    bytes.splice(digit..digit + 1, more.bytes());
                }
                1 => bytes[at] = random.random_range(0..=255),
                _ => {
                    let end = (at + random.random_range(1..200)).min(bytes.len());
                    bytes.drain(at..end);
                }
            }
        }
        fs::write(&file, &bytes).expect("a file");
        let (code, out, err) = replay(&file, VIEWS[round % VIEWS.len()]);
        match code {
            Some(0) => screens += 1,
            Some(1) => errors += 1,
            _ => panic!("round {round}: {code:?} {out}{err}"),
        }
    }
    println!("{screens} screens, {errors} errors");
    assert!(screens > 10 && errors > 10);
}

/// A recording that cannot be written ends the program with the reason.
#[test]
fn a_full_disk_ends_a_recording_with_an_error_needs_program() {
    let (server, _) = server("terminal-full");
    let (passes, _, err) = run_as(&server, "postgres", &["top", "--once", "--record", "/dev/full"]);
    assert!(!passes && err.contains("No space left on device"), "{err}");
}

/// The screen, which is needed most then, goes on without it.
#[test]
fn a_full_disk_takes_no_screen_needs_terminal() {
    let (server, _) = server("terminal-full-screen");
    let arguments = ["top", "--interval", "0.5", "--record", "/dev/full"];
    let terminal = Terminal::of(&server, &arguments);
    terminal.until("the recording has ended: No space left on device");
    terminal.keys(&["g"]);
    terminal.until_it("the screen", |screen| {
        !screen.contains("No space left") && screen.contains("what was added in the last")
    });
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

/// As psql: a database or a string may follow. A password in it can be seen by others, which is said.
#[test]
fn a_database_follows_top_and_passwords_there_are_warned_of_needs_program() {
    let (server, _) = server("terminal-positional");
    let folder = server.folder().display().to_string();
    let uri = format!(
        "postgresql://postgres:hush-42@/postgres?host={}",
        folder.replace('/', "%2F")
    );
    let words = format!("host='{folder}' user=postgres dbname=postgres password=hush-42");
    for (arguments, warns) in [
        (&["-h", &folder, "-U", "postgres", "top", "postgres"][..], false),
        (&["top", &uri], true),
        (&["-d", &uri, "top"], true),
        (&["-d", &words, "top"], true),
    ] {
        let output = run(&[arguments, &["--once", "--interval", "0.5"]].concat(), &[]);
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("a text"));
        assert!(
            output.status.success() && out.contains("Statements"),
            "{out}{err}"
        );
        let warned = err.matches("others on this machine can see the password").count();
        assert_eq!(warned, usize::from(warns), "{err}");
        assert!(!err.contains("hush-42") && !out.contains("hush-42"), "{out}{err}");
    }
    // One that comes from elsewhere is not seen.
    let variables = [("PGPASSWORD", "hush-42".to_owned())];
    let output = run(
        &["-h", &folder, "-U", "postgres", "top", "postgres", "--once"],
        &variables,
    );
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let output = run(&["-d", "postgres", "top", "postgres"], &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && err.contains("there twice"),
        "{err}"
    );
}
