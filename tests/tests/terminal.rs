//! The program `rowsource`, as a user runs it: printed once, and in a real terminal (tmux) that somebody
//! types into.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::pgbench::pgbench;
use rowsource_tests::process::processor_time;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::make_plans;
use rowsource_tests::terminal::{Terminal, VIEWS, program};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0"]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE orders AS SELECT i AS id FROM generate_series(1, 100000) i; ANALYZE orders",
    );
    server
}

/// Runs the program with arguments against a server.
fn run(server: &Server, arguments: &[&str]) -> Output {
    Command::new(program())
        .args(["-U", "postgres", "-d", "postgres", "-h"])
        .arg(server.folder())
        .args(arguments)
        .env_remove("PGHOST")
        .output()
        .expect("the program runs")
}

#[test]
fn each_view_is_printed_once_needs_terminal() {
    let server = server("terminal-once");
    let mut client = server.connect();
    run_each(&mut client, "SELECT count(*) FROM orders WHERE id % 3 = 0");
    for view in VIEWS {
        let output = run(&server, &["top", "--view", view, "--once", "--interval", "0.2"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{view}: {output:?}");
        assert!(text.starts_with("rowsource  PostgreSQL"), "{view}: {text}");
    }
    let json = run(
        &server,
        &["top", "--view", "waits", "--once", "--json", "--interval", "0.2"],
    );
    serde_json::from_slice::<serde_json::Value>(&json.stdout).expect("JSON");
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_name_needs_terminal() {
    let output = Command::new(program())
        .args([
            "-h", "/nowhere", "-U", "postgres", "-d", "postgres", "top", "--once",
        ])
        .output()
        .expect("the program runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/nowhere"), "{text}");
}

/// From the list of statements to the plan of the one that takes the most time, back, to the help, and out.
#[test]
fn three_keys_lead_to_the_plan_and_q_leaves_needs_terminal() {
    let server = server("terminal-keys");
    let mut client = server.connect();
    let terminal = Terminal::of(&server, &["top", "--interval", "0.5"]);
    terminal.until("Statements");
    let begin = Instant::now();
    // The statement must have run between two refreshes.
    let screen = loop {
        run_each(&mut client, "SELECT count(*) FROM orders WHERE id % 3 = 0");
        let screen = terminal.screen();
        if screen.contains("FROM orders") {
            break screen;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{screen}");
    };
    let first = screen
        .lines()
        .find(|line| line.contains("SELECT") || line.contains("select"));
    assert!(first.is_some_and(|line| line.contains("FROM orders")), "{screen}");
    terminal.keys(&["Enter"]);
    let plan = terminal.until("Seq Scan");
    assert!(plan.contains("Aggregate") && plan.contains("orders"), "{plan}");
    terminal.keys(&["?"]);
    terminal.until("select a row");
    terminal.keys(&["x"]);
    terminal.keys(&["Escape"]);
    terminal.until("Statements");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

/// Twice a second, beside a thousand plans and a hundred sessions: less than 1 % of a processor.
#[test]
fn the_screen_costs_the_server_little_long() {
    const MOST: f64 = 0.01;
    const SECONDS: u64 = 30;
    let server = Server::preloaded(
        "terminal-cost",
        &[
            "max_parallel_workers_per_gather = 0",
            "max_connections = 150",
            "pg_rowsource.track = 'all'",
        ],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT 1 AS id",
    );
    make_plans(&mut client, 1_000, 2);
    let script = server.folder().join("load.sql");
    std::fs::write(&script, "SELECT count(*) FROM t WHERE id = 1;\n\\sleep 900 ms\n").expect("the script");
    let seconds = (4 * (SECONDS + 10)).to_string();
    let arguments = [
        "-n",
        "-c",
        "100",
        "-T",
        &seconds,
        "-f",
        &script.display().to_string(),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| pgbench(&server, "", &arguments));
        for view in ["statements", "nodes", "live", "activity"] {
            let share = share_of(&server, &mut client, view, Duration::from_secs(SECONDS));
            println!("{view}: {:.2} % of a processor", 100.0 * share);
            assert!(share <= MOST, "{view}: {share}");
        }
    });
}

/// Returns which share of a processor the server takes for a view that is refreshed twice a second.
fn share_of(server: &Server, client: &mut Client, view: &str, time: Duration) -> f64 {
    let terminal = Terminal::of(server, &["top", "--interval", "0.5", "--view", view]);
    terminal.until("every 0.5 s");
    // The first refreshes read all plans.
    std::thread::sleep(Duration::from_secs(5));
    let pid: i32 = value(
        client,
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'rowsource'",
    );
    let (before, begin) = (processor_time(pid as u32), Instant::now());
    std::thread::sleep(time);
    let share = (processor_time(pid as u32) - before) / begin.elapsed().as_secs_f64();
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    share
}
