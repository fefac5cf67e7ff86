//! `rowsource_report()`, with planted incidents that it must name, and `rowsource_health()`. Each command
//! that a report prints runs as it stands.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::explain::first_column;
use rowsource_tests::judging::{BURN, run};
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::store::{basic_server, measuring};
use rowsource_tests::waiting::{pid, until};
use std::thread::sleep;
use std::time::Duration;

/// Runs the commands that a report names, and returns them.
fn run_commands(client: &mut Client, report: &[String]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in report.iter().map(|line| line.trim()) {
        if is_open && let Some(last) = commands.last_mut() {
            last.push_str(line);
        } else if line.starts_with("SELECT * FROM") {
            commands.push(line.to_owned());
        }
        is_open = (is_open || line.starts_with("SELECT * FROM")) && line.ends_with(',');
    }
    for command in &commands {
        client
            .simple_query(command)
            .unwrap_or_else(|error| panic!("{command}: {error:?}"));
    }
    commands
}

/// Returns the lines below a heading, up to the next empty line.
fn section<'a>(report: &'a [String], heading: &str) -> &'a [String] {
    let begin = report
        .iter()
        .position(|line| line == heading)
        .unwrap_or_else(|| panic!("{heading} is missing: {report:#?}"));
    let below = &report[begin + 1..];
    &below[..below.iter().position(String::is_empty).unwrap_or(below.len())]
}

#[test]
fn a_quiet_server_has_a_report_whose_commands_run() {
    let server = Server::preloaded("report-quiet", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA rowsource; CREATE EXTENSION pg_rowsource SCHEMA rowsource",
    );
    until(
        &mut client,
        "SELECT count(*) = 0 FROM rowsource.rowsource_health() WHERE verdict <> 'ok'",
    );
    let report = first_column(&mut client, "SELECT * FROM rowsource.rowsource_report()");
    assert!(
        section(&report, "What is wrong").contains(&"  nothing was found".to_owned()),
        "{report:#?}"
    );
    let commands = run_commands(&mut client, &report);
    assert!(
        commands
            .iter()
            .all(|command| command.starts_with("SELECT * FROM rowsource.")),
        "{commands:#?}"
    );
}

/// Fails if a report does not name the statement whose index is gone, and why, and the index that it wants.
fn assert_statements(wrong: &[String]) {
    let wrong = wrong.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "another plan since",
        " is gone: SELECT count(*) FROM orders",
        "index for a filter: Seq Scan on orders (id 1) could save up to",
        "CREATE INDEX CONCURRENTLY ON public.orders (customer)",
    ] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
}

/// Fails if a report does not show that two sessions waited for a process.
fn assert_tree(report: &[String], blocker: i32) {
    let tree = section(report, "Who blocked whom");
    let root = format!("| {blocker} postgres import ");
    let is_waiter = |line: &&String| line.contains("\u{2514}\u{2500} ") && line.contains("relation on t");
    assert!(tree.iter().any(|line| line.starts_with(&root)), "{report:#?}");
    assert_eq!(tree.iter().filter(is_waiter).count(), 2, "{report:#?}");
}

/// Fails if a report does not say what a process does that keeps others waiting, since when, and what ends
/// it.
fn assert_state(client: &mut Client, blocker: i32) {
    let report = first_column(client, "SELECT * FROM rowsource_report('1 min')");
    let wrong = section(&report, "What is wrong").join(" ");
    let wrong = wrong.split_whitespace().collect::<Vec<_>>().join(" ");
    let state = wrong
        .split_once(", idle in transaction since 20")
        .map(|(_, state)| state);
    let ends = format!("which pg_terminate_backend({blocker}) ends, its last statement: LOCK TABLE");
    assert!(state.is_some_and(|state| state.contains(&ends)), "{report:#?}");
    let applications = report.iter().find(|line| line.starts_with("applications: "));
    assert!(applications.is_some(), "{report:#?}");
    assert!(report.contains(&"Top nodes".to_owned()), "{report:#?}");
}

/// An index is gone, and a session that is idle in a transaction blocks two others.
#[test]
fn the_report_names_the_change_of_a_plan_and_who_blocks() {
    let server = Server::preloaded(
        "report-incident",
        &["max_parallel_workers_per_gather = 0", "jit = off"],
    );
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE orders AS SELECT i AS id, i AS customer FROM generate_series(1, 200000) i;
         CREATE INDEX orders_customer ON orders (customer); VACUUM ANALYZE orders; CREATE TABLE t (id int); CREATE ROLE other LOGIN",
    );
    let statement = "SELECT count(*) FROM orders WHERE customer = 7";
    for _ in 0..30 {
        run_each(&mut client, statement);
    }
    // Executions of a session within a second are one batch.
    sleep(Duration::from_millis(1_200));
    run_each(&mut client, "DROP INDEX orders_customer");
    for _ in 0..30 {
        run_each(&mut client, statement);
    }
    let mut idle = server.connect();
    let blocker = pid(&mut idle);
    run_each(&mut idle, "SET application_name = 'import'; BEGIN; LOCK TABLE t");
    let blocked = [(); 2].map(|()| Busy::run(server.connect(), "SELECT count(*) FROM t"));
    until(
        &mut client,
        "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    );
    until(
        &mut client,
        "SELECT count(*) > 100 FROM rowsource_ash WHERE wait_event_type = 'Lock'",
    );
    assert_state(&mut client, blocker);
    run_each(&mut idle, "ROLLBACK");
    for session in blocked {
        session.join();
    }
    until(&mut client, "SELECT count(*) > 0 FROM rowsource_plan_flips");
    run_each(&mut client, "SELECT rowsource_judge()");

    let report = first_column(&mut client, "SELECT * FROM rowsource_report('1 min')");
    let wrong = section(&report, "What is wrong");
    let blocks =
        format!("  process {blocker} (client backend postgres import) kept 2 sessions waiting, for ");
    assert!(wrong.iter().any(|line| line.starts_with(&blocks)), "{report:#?}");
    assert_statements(wrong);
    assert_tree(&report, blocker);
    let commands = run_commands(&mut client, &report);
    for part in ["rowsource_compare(", "rowsource_blockers(", "rowsource_display("] {
        assert!(
            commands.iter().any(|command| command.contains(part)),
            "{commands:#?}"
        );
    }
    assert!(
        section(&report, "Top events")
            .iter()
            .any(|line| line.contains("relation")),
        "{report:#?}"
    );
    let widest = report.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(120), "{report:#?}");

    // Who may not see the statements sees the load, and that something is hidden.
    let mut other = server.try_connect("other").expect("a connection");
    let report = first_column(&mut other, "SELECT * FROM rowsource_report('1 min')");
    assert!(!report.iter().any(|line| line.contains("orders")), "{report:#?}");
    assert!(
        section(&report, "What this report does not know")
            .iter()
            .any(|line| line.contains("of which you may not see more")),
        "{report:#?}"
    );
    run_commands(&mut other, &report);
}

/// A statement is slower with the same plan since the last snapshot. The worker would need 45 minutes to
/// confirm that. What has not changed is not listed.
#[test]
fn what_is_slower_with_the_same_plan_is_listed_at_once() {
    let server = basic_server("report-same-plan", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = measuring(&server);
    client.batch_execute(BURN).expect("the function");
    run_each(&mut client, "CREATE TABLE pace AS SELECT 1 AS ms");
    let others = (1..=6).map(|i| format!("SELECT {}burn(0.3)", "1, ".repeat(i)));
    let others = others.collect::<Vec<_>>().join("; ");
    let work = |client: &mut Client, ms: i32| {
        run_each(client, &format!("UPDATE pace SET ms = {ms}"));
        run(client, "SELECT burn(ms) FROM pace", 20);
        run(client, &others, 20);
        run_each(client, "SELECT rowsource_snapshot()");
    };
    let taken = "(SELECT taken_at FROM rowsource_snapshots ORDER BY snap_id DESC LIMIT 1)";
    let report = |client: &mut Client| {
        let sql = format!("SELECT * FROM rowsource_report({taken})");
        first_column(client, &sql)
    };
    run_each(&mut client, "SELECT rowsource_snapshot()");
    work(&mut client, 1);
    run(&mut client, "SELECT burn(ms) FROM pace", 20);
    run(&mut client, &others, 20);
    run(&mut client, "SELECT burn(5) AS added", 3);
    let unchanged = report(&mut client);
    let new = section(&unchanged, "New since then");
    assert!(
        new.iter()
            .any(|line| line.contains("|     3 |") && line.contains("AS added")),
        "{unchanged:#?}"
    );
    assert!(!new.join(" ").contains("pace"), "{unchanged:#?}");
    let is_rate = |line: &&String| line.starts_with("statements per second: ") && line.contains("; before: ");
    assert!(unchanged.iter().any(|line| is_rate(&line)), "{unchanged:#?}");
    assert!(!unchanged.join(" ").contains("not confirmed"), "{unchanged:#?}");
    run_each(
        &mut client,
        "SELECT rowsource_snapshot(); UPDATE pace SET ms = 10",
    );
    run(&mut client, "SELECT burn(ms) FROM pace", 20);
    run(&mut client, &others, 20);
    let slower = report(&mut client);
    let wrong = section(&slower, "What is wrong").join(" ");
    assert_eq!(
        wrong.matches("slower with the same plan since ").count(),
        1,
        "{slower:#?}"
    );
    assert!(wrong.contains("not confirmed: 1."), "{slower:#?}");
    assert!(wrong.contains("SELECT burn(ms) FROM pace"), "{slower:#?}");
    let commands = run_commands(&mut client, &slower);
    assert!(commands[0].contains("rowsource_compare("), "{commands:#?}");
}

#[test]
fn health_names_what_is_off_and_what_mends_it() {
    let server = Server::preloaded(
        "report-health",
        &[
            "pg_rowsource.history_frequency = 0",
            "pg_rowsource.enabled = off",
            "pg_rowsource.snapshot_interval = 0",
        ],
    );
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let bad = texts(
        &mut client,
        "SELECT component, mend FROM rowsource_health() WHERE verdict = 'attention' ORDER BY component",
    );
    let parts: Vec<&str> = bad.iter().filter_map(|row| row[0].as_deref()).collect();
    assert_eq!(parts, ["samples", "snapshots", "switch"], "{bad:#?}");
    run_each(
        &mut client,
        "ALTER SYSTEM SET pg_rowsource.snapshot_interval = '15 min'; ALTER SYSTEM SET pg_rowsource.enabled = on; ALTER SYSTEM SET pg_rowsource.history_frequency = 100; SELECT pg_reload_conf()",
    );
    until(
        &mut client,
        "SELECT count(*) = 0 FROM rowsource_health() WHERE verdict <> 'ok'",
    );
}
