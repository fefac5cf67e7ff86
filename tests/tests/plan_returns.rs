//! Why a statement takes longer, if an index is gone, and if a plan is used again that ran before.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measuring};

const TABLE: &str =
    "CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
     VACUUM (FREEZE, ANALYZE) orders";
const INDEX: &str = "CREATE INDEX orders_customer_idx ON orders (customer)";
const DROP: &str = "DROP INDEX orders_customer_idx";
const QUERY: &str = "SELECT count(note) FROM orders WHERE customer = 42";
const NO_INDEX: &str = "SET enable_indexscan = off; SET enable_bitmapscan = off";
const NO_SCAN: &str = "RESET enable_indexscan; RESET enable_bitmapscan";

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let server = basic_server(name, settings);
    run_each(&mut server.connect(), TABLE);
    let client = measuring(&server);
    (server, client)
}

/// Runs a statement a few times, and returns its planid.
fn run(client: &mut Client, sql: &str, times: usize) -> i64 {
    (0..times).for_each(|_| run_each(client, sql));
    value(client, "SELECT planid FROM rowsource_last()")
}

/// Returns the cause of a comparison of the session's last statement.
fn cause(client: &mut Client, queryid: i64, sides: &str) -> Option<String> {
    let sql = format!("SELECT rowsource_compare({queryid}{sides}, format => 'json')::jsonb->>'cause'");
    texts(client, &sql).concat().remove(0)
}

fn queryid(client: &mut Client) -> i64 {
    value(client, "SELECT queryid FROM rowsource_last()")
}

/// Lets the worker look, and returns columns of the regressions.
fn judged(client: &mut Client, columns: &str) -> Vec<Vec<Option<String>>> {
    run_each(client, "SELECT rowsource_judge(now())");
    let columns = columns.split(", ").map(|column| format!("({column})::text"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    texts(
        client,
        &format!("SELECT {columns} FROM rowsource_regressions() WHERE state <> 'over' ORDER BY id"),
    )
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// What SQL needs quotes for is named, too: its schema, the index and its table.
#[test]
fn an_index_whose_name_needs_quotes_is_the_cause() {
    let (server, mut client) = server("quoted-index", &[]);
    run_each(
        &mut client,
        "CREATE SCHEMA \"Sales \"\"A\"\"\"; ALTER TABLE orders SET SCHEMA \"Sales \"\"A\"\"\";
         SET search_path = \"Sales \"\"A\"\"\", public;
         CREATE INDEX \"IX_Orders_CustomerId\" ON orders (customer)",
    );
    run(&mut client, QUERY, 6);
    run_each(&mut client, "DROP INDEX \"IX_Orders_CustomerId\"");
    run(&mut client, QUERY, 5);
    let queryid = queryid(&mut client);
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("index gone"));
    let lines = texts(&mut client, &format!("SELECT rowsource_compare({queryid})"));
    let sentence = lines[0][0].as_deref().unwrap_or_default();
    assert!(
        sentence.ends_with(", because index IX_Orders_CustomerId is gone"),
        "{sentence}"
    );
    let cause = judged(&mut client, "cause");
    assert_eq!(cause, [[some("index IX_Orders_CustomerId is gone")]]);
    server.assert_no_crash();
}

/// The plan without the index was first described before there was one.
#[test]
fn an_index_that_came_and_went_is_the_cause() {
    let (server, mut client) = server("index-came", &[]);
    let before = run(&mut client, QUERY, 5);
    run_each(&mut client, INDEX);
    run(&mut client, QUERY, 6);
    run_each(&mut client, DROP);
    assert_eq!(run(&mut client, QUERY, 5), before);
    let queryid = queryid(&mut client);
    let gone: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE gone_indexes IS NOT NULL",
    );
    assert_eq!(gone, 0);
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("index gone"));
    let cause_of = judged(&mut client, "cause");
    assert_eq!(cause_of, [[some("index orders_customer_idx is gone")]]);
    // An index of that name on another table is another one.
    run_each(
        &mut client,
        "CREATE TABLE others (customer int); CREATE INDEX orders_customer_idx ON others (customer)",
    );
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("index gone"));
    // Another database has no such index, nor does it know whether this one has.
    run_each(&mut client, "CREATE DATABASE elsewhere");
    let mut other = server.try_connect_to("postgres", "elsewhere").expect("a session");
    run_each(&mut other, "CREATE EXTENSION pg_rowsource");
    assert_eq!(cause(&mut other, queryid, "").as_deref(), Some("another plan"));
    let cause_there = judged(&mut other, "cause");
    assert_eq!(cause_there, [[some("the plan is another one")]]);
    server.assert_no_crash();
}

/// The plan without the index was first described when that was gone. Later it is used for another reason.
#[test]
fn an_index_that_is_there_again_is_not_the_cause() {
    let (server, mut client) = server("index-again", &[]);
    run_each(&mut client, INDEX);
    let with = run(&mut client, QUERY, 6);
    run_each(&mut client, DROP);
    let without = run(&mut client, QUERY, 5);
    run_each(&mut client, INDEX);
    let queryid = queryid(&mut client);
    let sides = format!(", '{with}', '{without}'");
    // That change is the one at which the plan was described.
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("index gone"));
    assert_eq!(run(&mut client, QUERY, 6), with);
    assert_eq!(cause(&mut client, queryid, &sides).as_deref(), Some("index gone"));
    run_each(&mut client, NO_INDEX);
    assert_eq!(run(&mut client, QUERY, 5), without);
    for sides in ["", &sides] {
        assert_eq!(
            cause(&mut client, queryid, sides).as_deref(),
            Some("another plan"),
            "{sides}"
        );
    }
    let cause_of = judged(&mut client, "cause");
    assert_eq!(cause_of, [[some("the plan is another one")]]);
    run_each(&mut client, NO_SCAN);
    server.assert_no_crash();
}

const BURN: &str = "CREATE FUNCTION burn(ms float8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS
     'DECLARE until timestamptz := clock_timestamp() + ms * interval ''1 ms'';
      BEGIN WHILE clock_timestamp() < until LOOP END LOOP; RETURN true; END'";
const SLOW: &str = "SELECT count(*) FROM pace WHERE id = 7 AND burn(ms)";
const ONLY_INDEX: &str = "RESET enable_indexscan; SET enable_seqscan = off";
const ONLY_SCAN: &str = "RESET enable_seqscan; SET enable_indexscan = off";
/// How often a plan ran before another one took over, and how often each of them ran then.
const LONG: usize = 600;
const THEN: usize = 15;

/// A plan burns a millisecond for long, another one does, and then the first one takes five of them. Returns
/// both planids, the one before first.
fn return_to_a_plan(client: &mut Client, between: impl Fn(&mut Client)) -> [i64; 2] {
    client.batch_execute(BURN).expect("the function");
    run_each(
        client,
        "CREATE TABLE pace AS SELECT i AS id, 1 AS ms FROM generate_series(1, 10) i; CREATE INDEX pace_id ON pace (id);
         VACUUM ANALYZE pace",
    );
    run_each(client, NO_INDEX);
    let returned = run(client, SLOW, LONG);
    run_each(client, ONLY_INDEX);
    let other = run(client, SLOW, THEN);
    assert_ne!(returned, other);
    between(client);
    run_each(client, &format!("{ONLY_SCAN}; UPDATE pace SET ms = 5"));
    assert_eq!(run(client, SLOW, THEN), returned);
    [other, returned]
}

/// Runs the command of the only regression.
fn compared(client: &mut Client) -> String {
    let command: String = value(client, "SELECT command FROM rowsource_regressions()");
    let lines = texts(client, &command).into_iter().flatten().flatten();
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the report's words.
fn report(client: &mut Client) -> String {
    let sql = "SELECT * FROM rowsource_report(now() - interval '5 min', now() + interval '1 day')";
    let lines = texts(client, sql).into_iter().flatten().flatten();
    let words = lines.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.collect::<Vec<_>>().join(" ")
}

/// Of all its executions, the mean is hardly longer than with the plan before.
#[test]
fn a_plan_that_returns_is_compared_since_it_did() {
    let (server, mut client) = server("plan-returns", &["pg_rowsource.snapshot_interval = 0"]);
    let [before, after] = return_to_a_plan(&mut client, |client| {
        run_each(client, "SELECT rowsource_snapshot()")
    });
    let row = judged(&mut client, "from_planid, to_planid, ratio > 2, cause");
    let planids = [before, after].map(|planid| Some(planid.to_string()));
    let [before_id, after_id] = planids.clone();
    assert_eq!(
        row,
        [[before_id, after_id, some("true"), some("the plan is another one")]]
    );
    let shown = compared(&mut client);
    let first = shown.lines().next().unwrap_or_default();
    assert!(
        first.contains(&format!("x, {THEN} executions): "))
            && first.ends_with("because the plan is another one"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("A: planid {before}, mean of {THEN} executions"))
            && shown.contains(&format!("B: planid {after}, mean of {THEN} executions from ")),
        "{shown}"
    );
    // So it is without any sides. Who asks for the mean gets it.
    let queryid: i64 = value(&mut client, "SELECT queryid FROM rowsource_regressions()");
    assert_eq!(cause(&mut client, queryid, "").as_deref(), Some("another plan"));
    let all = texts(
        &mut client,
        &format!("SELECT rowsource_compare({queryid}, '{before}', '{after} mean')"),
    );
    let all = all.concat();
    assert!(
        all[2]
            .as_deref()
            .is_some_and(|line| line.contains(&format!("mean of {} executions", LONG + THEN))),
        "{all:?}"
    );
    assert!(report(&mut client).contains("because the plan is another one"));
    server.assert_no_crash();
}

/// The plan before has had an earlier run, too, which took longer.
#[test]
fn both_plans_are_compared_without_their_earlier_runs() {
    let (server, mut client) = server("plans-return", &["pg_rowsource.snapshot_interval = 0"]);
    let [before, after] = return_to_a_plan(&mut client, |client| {
        run_each(client, &format!("{ONLY_SCAN}; UPDATE pace SET ms = 5"));
        run(client, SLOW, THEN);
        run_each(client, &format!("{ONLY_INDEX}; UPDATE pace SET ms = 1"));
        run(client, SLOW, THEN);
        run_each(client, "SELECT rowsource_snapshot()");
        run(client, SLOW, THEN - 1);
    });
    let queryid = queryid(&mut client);
    let shown = texts(&mut client, &format!("SELECT rowsource_compare({queryid})")).concat();
    let shown = shown.into_iter().flatten().collect::<Vec<_>>().join("\n");
    assert!(
        shown.contains(&format!(
            "A: planid {before}, mean of {} executions from ",
            THEN - 1
        )) && shown.contains(&format!("B: planid {after}, mean of {THEN} executions from ")),
        "{shown}"
    );
    server.assert_no_crash();
}

/// Without a snapshot, nobody knows what the plan took since it returned.
#[test]
fn a_plan_that_returns_has_no_false_equality_without_snapshots() {
    let (server, mut client) = server("plan-returns-unseen", &["pg_rowsource.snapshot_interval = 0"]);
    let [_, after] = return_to_a_plan(&mut client, |_| {});
    let row = judged(&mut client, "to_planid, ratio > 2, cause");
    assert_eq!(row, [[Some(after.to_string()), some("true"), None]]);
    let shown = compared(&mut client);
    assert!(!shown.contains("no difference"), "{shown}");
    assert!(
        shown.contains("executions of B before it took over at 20") && shown.contains("are included"),
        "{shown}"
    );
    let shown = report(&mut client);
    assert!(
        shown.contains("no snapshot tells the executions before that apart"),
        "{shown}"
    );
    server.assert_no_crash();
}
