//! rowsource_regressions(): statements that became slower. The tests move the time of the worker that looks.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::judging::{BURN, found, judge, run, states};
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};

const TABLE: &str =
    "CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
     CREATE INDEX orders_customer_idx ON orders (customer); VACUUM (FREEZE, ANALYZE) orders";
const QUERY: &str = "SELECT count(note) FROM orders WHERE customer = 42";
const NO_INDEX: &str = "SET enable_indexscan = off; SET enable_bitmapscan = off";

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let server = basic_server(name, settings);
    run_each(&mut server.connect(), TABLE);
    let client = measuring(&server);
    (server, client)
}

fn report(client: &mut Client) -> String {
    let rows = texts(
        client,
        "SELECT * FROM rowsource_report(now() - interval '5 min', now() + interval '1 day')",
    );
    rows.into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs the statement 20 times, and as often after its index was dropped.
fn drop_index(client: &mut Client) {
    run(client, QUERY, 20);
    judge(client, 0);
    assert_eq!(states(client), [] as [&str; 0]);
    run_each(client, "DROP INDEX orders_customer_idx");
    run(client, QUERY, 20);
    judge(client, 1);
}

#[test]
fn a_regression_names_the_index_that_is_gone() {
    let (server, mut client) = server("became-slower", &[]);
    drop_index(&mut client);
    let row = found(
        &mut client,
        "state, calls_before, calls_after, basis, cause, ratio >= 2, extra_time > 0, mean_busy_time_after > mean_busy_time_before, closed_at, dismissal_ends_at",
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        row,
        [[
            some("open"),
            some("20"),
            some("20"),
            some("tested against the plan before"),
            some("index orders_customer_idx is gone"),
            some("true"),
            some("true"),
            some("true"),
            None,
            None
        ]]
    );
    let command: String = value(&mut client, "SELECT command FROM rowsource_regressions()");
    let compared = texts(&mut client, &command);
    assert!(
        compared[0][0]
            .as_deref()
            .is_some_and(|line| line.contains("is gone")),
        "{compared:?}"
    );
    let shown = report(&mut client);
    assert!(
        shown.contains("another plan since") && shown.contains("executions), because index"),
        "{shown}"
    );
    let verdict: String = value(&mut client, "SELECT verdict FROM rowsource_plan_flips()");
    assert_eq!(verdict, "slower");
    server.assert_no_crash();
}

#[test]
fn a_regression_is_confirmed_and_over_when_the_index_is_back() {
    let (mut server, mut client) = server("slower-states", &["pg_rowsource.log_regressions = on"]);
    drop_index(&mut client);
    assert_eq!(states(&mut client), ["open"]);
    // Five minutes later it has not run ten times more.
    run(&mut client, QUERY, 5);
    judge(&mut client, 7);
    assert_eq!(states(&mut client), ["open"]);
    run(&mut client, QUERY, 5);
    judge(&mut client, 8);
    assert_eq!(states(&mut client), ["confirmed"]);
    // It survives a restart, and so does that somebody has dismissed it: also if the worker looks first.
    run_each(
        &mut client,
        "SELECT rowsource_dismiss(id, '2100-01-01') FROM rowsource_regressions()",
    );
    for is_first in [false, true] {
        server.stop();
        server.launch();
        client = measuring(&server);
        if is_first {
            judge(&mut client, 9);
        }
        let row = found(&mut client, "state, dismissal_ends_at > '2099-01-01'");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(row, [[some("confirmed"), some("true")]], "{is_first}");
    }
    run_each(
        &mut client,
        "SELECT rowsource_dismiss(id, now()) FROM rowsource_regressions()",
    );
    judge(&mut client, 9);
    assert_eq!(states(&mut client), ["confirmed"]);

    run_each(
        &mut client,
        "CREATE INDEX orders_customer_idx ON orders (customer)",
    );
    run(&mut client, QUERY, 20);
    judge(&mut client, 10);
    assert_eq!(states(&mut client), ["over"]);
    let reason = found(&mut client, "closing_reason");
    assert_eq!(reason, [[Some("another plan".to_owned())]]);
    let shown = report(&mut client);
    assert!(!shown.contains("another plan since"), "{shown}");
    let lines = server.log();
    for state in ["it is open: ", "it is confirmed: ", "it is over: another plan"] {
        let count = lines.matches(state).count();
        assert_eq!(count, 1, "{state}\n{lines}");
    }
    // What was over is not shown for a later time.
    let later: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_regressions(now() + interval '1 hour')",
    );
    let now: i64 = value(&mut client, "SELECT count(*) FROM rowsource_regressions('1 min')");
    assert_eq!((later, now), (0, 1));
    run_each(&mut client, "SELECT rowsource_reset()");
    assert_eq!(states(&mut client), [] as [&str; 0]);
    server.assert_no_crash();
}

/// Nobody runs the statement any more, so nobody knows whether it would still be slow.
#[test]
fn a_regression_that_does_not_run_for_a_day_is_over_until_it_runs() {
    let (server, mut client) = server("slower-idle", &[]);
    drop_index(&mut client);
    assert_eq!(states(&mut client), ["open"]);
    for hour in 1..24 {
        judge(&mut client, 60 * hour);
        assert_eq!(states(&mut client), ["open"], "{hour}");
    }
    (24..26).for_each(|hour| judge(&mut client, 60 * hour));
    let row = found(&mut client, "state, closing_reason");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(row, [[some("over"), some("not run")]]);
    judge(&mut client, 60 * 26);
    assert_eq!(states(&mut client), ["over"]);
    run(&mut client, QUERY, 1);
    judge(&mut client, 60 * 27);
    assert_eq!(
        found(&mut client, "state, closing_reason"),
        [[some("open"), None]]
    );
    server.assert_no_crash();
}

/// Other plans that take as long, or less long.
#[test]
fn what_takes_no_longer_is_no_regression() {
    let (server, mut client) = server("not-slower", &[]);
    run_each(&mut client, NO_INDEX);
    run(&mut client, QUERY, 20);
    run_each(&mut client, "RESET enable_indexscan; RESET enable_bitmapscan");
    run(&mut client, QUERY, 20);
    // The same scan below another aggregate.
    let grouped = "SELECT id % 10, count(*) FROM orders GROUP BY 1";
    run(&mut client, grouped, 20);
    run_each(&mut client, "SET enable_hashagg = off; SET work_mem = '64MB'");
    run(&mut client, grouped, 20);
    for minutes in 0..8 {
        run(&mut client, QUERY, 5);
        judge(&mut client, minutes);
        let verdicts: i64 = value(
            &mut client,
            "SELECT count(*) FROM rowsource_plan_flips() WHERE verdict = 'slower'",
        );
        assert_eq!(states(&mut client).len() as i64, verdicts);
    }
    let faster = texts(
        &mut client,
        "SELECT verdict FROM rowsource_plan_flips WHERE query LIKE 'SELECT count(note)%'",
    );
    assert_eq!(faster, [[Some("faster".to_owned())]]);
    let slower = texts(
        &mut client,
        "SELECT query FROM rowsource_plan_flips WHERE query LIKE 'SELECT count(note)%' AND verdict = 'slower'",
    );
    assert!(slower.is_empty(), "{slower:?}");
    server.assert_no_crash();
}

/// One execution of the new plan burns 1.5 s: its filter is evaluated for each row, before the other
/// condition. What the index scan finds has other numbers, so that burns nothing.
#[test]
fn a_single_very_long_execution_is_a_regression_that_is_not_tested() {
    let (server, mut client) = server("few", &[]);
    client.batch_execute(BURN).expect("the function");
    client
        .batch_execute(
            "CREATE FUNCTION burns(id int) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS
             'BEGIN RETURN id <> 1 OR burn(1500); END'",
        )
        .expect("the function");
    let sql = "SELECT note FROM orders WHERE customer = 42 AND burns(id)";
    run(&mut client, sql, 10);
    run_each(&mut client, NO_INDEX);
    run(&mut client, sql, 1);
    judge(&mut client, 0);
    let row = found(
        &mut client,
        "state, calls_after, basis, chance, extra_time > 1000",
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        row,
        [[
            some("open"),
            some("1"),
            some("few executions"),
            None,
            some("true")
        ]]
    );
    server.assert_no_crash();
}

/// A third plan is as slow as the second one: the statement is still slower than with the first.
#[test]
fn a_plan_that_is_no_better_is_compared_with_the_plan_before_both() {
    let (server, mut client) = server("slower-third", &[]);
    let sql = "SELECT note FROM orders WHERE customer = 42 ORDER BY id";
    run(&mut client, sql, 20);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    run(&mut client, sql, 20);
    judge(&mut client, 0);
    assert_eq!(states(&mut client), ["open"]);
    run_each(
        &mut client,
        "CREATE INDEX orders_id ON orders (id); SET enable_seqscan = off; SET enable_bitmapscan = off",
    );
    run(&mut client, sql, 20);
    for minutes in 1..4 {
        judge(&mut client, minutes);
        assert_eq!(states(&mut client), ["over", "open"], "{minutes}");
    }
    let plans: bool = value(
        &mut client,
        "SELECT count(DISTINCT from_planid) = 1 AND count(DISTINCT to_planid) = 2 FROM rowsource_regressions()",
    );
    assert!(plans);
    run_each(
        &mut client,
        "RESET enable_seqscan; RESET enable_bitmapscan; CREATE INDEX ON orders (customer); ANALYZE orders",
    );
    run(&mut client, sql, 30);
    judge(&mut client, 4);
    assert_eq!(states(&mut client), ["over", "over"]);
    server.assert_no_crash();
}

#[test]
fn others_see_that_something_became_slower_but_not_what() {
    let (server, mut client) = server("slower-masked", &[]);
    run_each(&mut client, "CREATE ROLE regress_slower LOGIN");
    run(&mut client, QUERY, 10);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    run(&mut client, QUERY, 10);
    judge(&mut client, 0);
    assert_eq!(states(&mut client), ["open"]);
    let mut other = server.try_connect("regress_slower").expect("a session");
    let row = found(
        &mut other,
        "state, query, queryid, from_planid, to_planid, cause, command, calls_after",
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        row,
        [[
            some("open"),
            some("<insufficient privilege>"),
            None,
            None,
            None,
            None,
            None,
            some("10")
        ]]
    );
    assert!(!report(&mut other).contains("another plan"));
    for sql in ["SELECT rowsource_dismiss(1)", "SELECT rowsource_judge()"] {
        must_fail(&mut other, sql);
    }
    server.assert_no_crash();
}

#[test]
fn the_report_leaves_out_what_was_dismissed() {
    let (server, mut client) = server("slower-dismissed", &[]);
    run(&mut client, QUERY, 10);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    run(&mut client, QUERY, 10);
    judge(&mut client, 0);
    assert!(report(&mut client).contains("another plan"));
    must_fail(&mut client, "SELECT rowsource_dismiss(4711)");
    must_fail(&mut client, "SELECT rowsource_dismiss(NULL)");
    run_each(
        &mut client,
        "SELECT rowsource_dismiss(id, now() + interval '1 hour') FROM rowsource_regressions()",
    );
    assert!(!report(&mut client).contains("another plan"));
    let is_known: bool = value(
        &mut client,
        "SELECT state = 'open' AND dismissal_ends_at > now() FROM rowsource_regressions()",
    );
    assert!(is_known);
    run_each(
        &mut client,
        "SELECT rowsource_dismiss(id, now() - interval '1 hour') FROM rowsource_regressions()",
    );
    assert!(report(&mut client).contains("another plan"));
    server.assert_no_crash();
}

/// The worker of a standby looks there, too.
#[test]
fn a_standby_finds_what_became_slower_there() {
    let (primary, client) = server("slower-primary", &[]);
    drop(client);
    let standby = Server::standby_of(&primary, "slower-standby");
    let mut client = measuring(&standby);
    run(&mut client, QUERY, 20);
    run_each(&mut client, NO_INDEX);
    run(&mut client, QUERY, 20);
    judge(&mut client, 0);
    assert_eq!(states(&mut client), ["open"]);
    drop(client);
    drop(standby);
    primary.assert_no_crash();
}

/// A plan that does not change takes ten times as long for three quarters of an hour.
#[test]
fn a_statement_that_is_slower_with_the_same_plan_is_found() {
    let (server, mut client) = server("slower-same-plan", &[]);
    client.batch_execute(BURN).expect("the function");
    run_each(&mut client, "CREATE TABLE pace AS SELECT 1 AS ms");
    let slow = "SELECT burn(ms) FROM pace";
    // Plans that stay as they are: they say how fast the machine is.
    let others = (1..=6).map(|i| format!("SELECT {}burn(0.3)", "1, ".repeat(i)));
    let others = others.collect::<Vec<_>>().join("; ");
    let quarter = |client: &mut Client, number: i32| {
        run(client, slow, 6);
        run(client, &others, 6);
        judge(client, 15 * number);
        states(client)
    };
    for number in 0..6 {
        assert_eq!(quarter(&mut client, number), [] as [&str; 0], "{number}");
    }
    run_each(&mut client, "UPDATE pace SET ms = 10");
    for number in 6..8 {
        assert_eq!(quarter(&mut client, number), [] as [&str; 0], "{number}");
    }
    assert_eq!(quarter(&mut client, 8), ["open"]);
    for number in 9..15 {
        let found = quarter(&mut client, number);
        assert!(found == ["open"] || found == ["confirmed"], "{number}: {found:?}");
    }
    assert_eq!(states(&mut client), ["confirmed"]);
    let row = found(&mut client, "from_planid = to_planid, cause, ratio > 3, basis");
    let some = |text: &str| Some(text.to_owned());
    let basis = some("tested against the quarter of an hour before");
    assert_eq!(row, [[some("true"), None, some("true"), basis]]);
    // No snapshot has the time before.
    let compared = compared(&mut client);
    assert!(
        compared.contains(" -> ") && compared.contains("slowest execution"),
        "{compared}"
    );
    let shown = report(&mut client);
    assert!(shown.contains("slower with the same plan since"), "{shown}");
    run_each(&mut client, "UPDATE pace SET ms = 1");
    for number in 15..18 {
        quarter(&mut client, number);
    }
    assert_eq!(states(&mut client), ["over"]);
    server.assert_no_crash();
}

/// Runs the command of the only regression.
fn compared(client: &mut Client) -> String {
    let command: String = value(client, "SELECT command FROM rowsource_regressions()");
    let rows = texts(client, &command);
    let lines = rows.into_iter().flatten().flatten();
    lines.collect::<Vec<_>>().join("\n")
}

/// A server on which a statement burns a tenth of a millisecond for each of ten rows. Other plans stay as
/// they are: they say how fast the machine is. An hour of the past lies between two snapshots.
struct Past {
    server: Server,
    client: Client,
    others: String,
}

impl Past {
    const SLOW: &str = "SELECT count(*) FROM pace WHERE burn(0.1 * ms)";

    /// `moved` is how long ago that hour began.
    fn new(name: &str, moved: &str) -> Past {
        let (server, mut client) = server(name, &["pg_rowsource.snapshot_interval = 0"]);
        client.batch_execute(BURN).expect("the function");
        run_each(
            &mut client,
            "CREATE TABLE pace AS SELECT 1 AS ms FROM generate_series(1, 10)",
        );
        let others = (1..=6).map(|i| format!("SELECT {}burn(0.3)", "1, ".repeat(i)));
        let others = others.collect::<Vec<_>>().join("; ");
        let mut past = Past {
            server,
            client,
            others,
        };
        for times in [3, 20] {
            past.run(times);
            run_each(&mut past.client, "SELECT rowsource_snapshot()");
        }
        let moved = format!(
            "UPDATE rowsource_snapshots SET taken_at = now() - {moved} + (snap_id - 1) * interval '61 min'"
        );
        run_each(&mut past.client, &moved);
        past
    }

    fn run(&mut self, times: usize) {
        run(&mut self.client, Past::SLOW, times);
        run(&mut self.client, &self.others, times);
    }

    /// Names that hour as a baseline.
    fn name(&mut self, name: &str) {
        let moments = "min(taken_at)::text, max(taken_at)::text";
        let sql = format!("SELECT rowsource_baseline('{name}', {moments}) FROM rowsource_snapshots");
        run_each(&mut self.client, &sql);
    }

    /// From now on, the statement has a hundred rows.
    fn slow_down(&mut self) {
        run_each(
            &mut self.client,
            "INSERT INTO pace SELECT 1 FROM generate_series(1, 90)",
        );
    }

    /// Runs quarters of an hour, the first of which has this number. Returns what was found.
    fn quarters(&mut self, numbers: std::ops::Range<i32>) -> Vec<Option<String>> {
        for number in numbers {
            self.run(6);
            judge(&mut self.client, 15 * number);
        }
        let rows = found(&mut self.client, "basis");
        rows.into_iter().flatten().collect()
    }
}

/// Who compares with the baseline, without another plan, must not do so when it is gone.
#[test]
fn a_baseline_that_was_dropped_is_no_reference() {
    let mut past = Past::new("slower-dropped", "interval '40 days'");
    past.name("good");
    past.run(1);
    run_each(&mut past.client, "SELECT rowsource_snapshot()");
    past.slow_down();
    run_each(&mut past.client, "SELECT rowsource_baseline_drop('good')");
    past.run(1);
    run_each(&mut past.client, "SELECT rowsource_snapshot()");
    assert_eq!(past.quarters(0..5), []);
    past.server.assert_no_crash();
}

/// What a snapshot says that rolls back is not known to anybody else.
#[test]
fn a_snapshot_that_rolls_back_is_no_reference() {
    let mut past = Past::new("slower-rolled-back", "interval '7 days 1 hour'");
    past.slow_down();
    past.run(1);
    for sql in [
        "BEGIN; SELECT rowsource_snapshot(); ROLLBACK",
        "BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT rowsource_snapshot(); RELEASE b; ROLLBACK TO a; COMMIT",
    ] {
        run_each(&mut past.client, sql);
    }
    assert_eq!(past.quarters(0..4), []);
    run_each(
        &mut past.client,
        "BEGIN; SAVEPOINT a; SELECT rowsource_snapshot(); RELEASE a; COMMIT",
    );
    let basis = Some("tested against the same hour a week ago".to_owned());
    assert_eq!(past.quarters(4..5), [basis]);
    past.server.assert_no_crash();
}

/// The plan has been slow since before the server started. What it took before that is in the snapshots. The
/// cause and the command compare with that, too.
#[test]
fn what_was_slow_before_a_restart_is_found_by_the_history() {
    for (name, reference, moved) in [
        (
            "slower-week",
            "the same hour a week ago",
            "interval '7 days 1 hour'",
        ),
        (
            "slower-yesterday",
            "the same hour yesterday",
            "interval '1 day 1 hour'",
        ),
        ("slower-baseline", "the baseline \"good\"", "interval '40 days'"),
    ] {
        let mut past = Past::new(name, moved);
        if reference.starts_with("the baseline") {
            // The newest of two names of the same hour is shown.
            ["old", "good"].iter().for_each(|name| past.name(name));
        }
        past.slow_down();
        past.run(6);
        past.server.stop();
        past.server.launch();
        past.client = measuring(&past.server);
        past.run(6);
        run_each(&mut past.client, "SELECT rowsource_snapshot()");
        assert_eq!(past.quarters(0..3), [], "{name}");
        let basis = format!("tested against {reference}");
        assert_eq!(past.quarters(3..4), [Some(basis)], "{name}");
        let client = &mut past.client;
        let row = found(client, "state, from_planid = to_planid, calls_before, cause");
        let some = |text: &str| Some(text.to_owned());
        let cause = "it handles more data (10 rows -> 100 rows)";
        assert_eq!(
            row,
            [[some("open"), some("true"), some("20"), some(cause)]],
            "{name}"
        );
        let compared = compared(client);
        let first = compared.lines().take(2).collect::<Vec<_>>().join(" ");
        assert!(first.contains("because it handles more data"), "{compared}");
        assert!(compared.contains("mean of 20 executions"), "{compared}");
        past.server.assert_no_crash();
    }
}
