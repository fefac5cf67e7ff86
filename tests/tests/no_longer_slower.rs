//! Regressions end: when the statement is fast again, and when its figures are reset. The tests move the time
//! of the worker that looks.

use rowsource_tests::judging::{BURN, found, judge, run, states};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, measuring};

/// The plan without the index is slow while the table is large. All of its executions together are slow long
/// after the table was emptied.
#[test]
fn another_plan_that_is_fast_again_is_no_longer_slower() {
    const QUERY: &str = "SELECT count(note) FROM orders WHERE customer = 42";
    const ROWS: &str =
        "INSERT INTO orders SELECT i, i % 5000, repeat('x', 50) FROM generate_series(1, 60000) i";
    let server = basic_server("fast-again", &[]);
    let mut client = measuring(&server);
    run_each(
        &mut client,
        "CREATE TABLE orders (id int, customer int, note text)",
    );
    run_each(
        &mut client,
        "CREATE INDEX orders_customer_idx ON orders (customer)",
    );
    run_each(&mut client, ROWS);
    run_each(&mut client, "VACUUM (FREEZE, ANALYZE) orders");
    run(&mut client, QUERY, 20);
    judge(&mut client, 0);
    run_each(&mut client, "DROP INDEX orders_customer_idx");
    run(&mut client, QUERY, 200);
    judge(&mut client, 1);
    assert_eq!(states(&mut client), ["open"]);
    run_each(&mut client, "TRUNCATE orders");
    for minute in [16, 31] {
        run(&mut client, QUERY, 20);
        judge(&mut client, minute);
    }
    let over = || Some(["over", "no longer slower"].map(|text| Some(text.to_owned())));
    let row = |client: &mut _| {
        found(client, "state, closing_reason")
            .pop()
            .and_then(|row| row.try_into().ok())
    };
    assert_eq!(row(&mut client), over());
    // All executions together take more than twice as long as those before still.
    let ratio = "ratio > 2, mean_time_after > 2 * mean_time_before";
    let all = found(&mut client, ratio);
    assert_eq!(all, [[Some("true".to_owned()), Some("true".to_owned())]]);
    run(&mut client, QUERY, 20);
    judge(&mut client, 32);
    assert_eq!(row(&mut client), over());
    run_each(&mut client, ROWS);
    run(&mut client, QUERY, 40);
    judge(&mut client, 48);
    assert_eq!(states(&mut client), ["open"]);
    server.assert_no_crash();
}

/// The worker looks at all plans each quarter of an hour, and keeps what it found until then.
#[test]
fn a_reset_also_resets_what_the_worker_found() {
    let server = basic_server("slower-reset", &[]);
    let mut client = measuring(&server);
    client.batch_execute(BURN).expect("the function");
    run_each(&mut client, "CREATE TABLE pace AS SELECT 1 AS ms");
    // Plans that stay as they are: they say how fast the machine is.
    let others = (1..=6).map(|i| format!("SELECT {}burn(0.3)", "1, ".repeat(i)));
    let others = others.collect::<Vec<_>>().join("; ");
    for quarter in 0..9 {
        if quarter == 6 {
            run_each(&mut client, "UPDATE pace SET ms = 10");
        }
        run(&mut client, "SELECT burn(ms) FROM pace", 6);
        run(&mut client, &others, 6);
        judge(&mut client, 15 * quarter);
    }
    assert_eq!(states(&mut client), ["open"]);
    let figures = "calls_after, round(mean_busy_time_after / 10), round(extra_time / 100)";
    let number = |number: &str| Some(number.to_owned());
    // Six executions in each of three quarters of an hour, all of ten milliseconds.
    assert_eq!(
        found(&mut client, figures),
        [[number("18"), number("1"), number("2")]]
    );
    run_each(&mut client, "SELECT rowsource_reset()");
    for minute in [121, 122, 135] {
        judge(&mut client, minute);
        assert_eq!(states(&mut client), [] as [&str; 0], "{minute}");
    }
    server.assert_no_crash();
}

/// A job runs once a night, with the same plan. One run that takes long is enough.
#[test]
fn a_nightly_job_is_slower_after_one_run() {
    let server = basic_server("nightly", &[]);
    let mut client = measuring(&server);
    client.batch_execute(BURN).expect("the function");
    run_each(&mut client, "CREATE TABLE pace AS SELECT 60 AS ms");
    for night in 0..7 {
        judge(&mut client, night * 1440 - 15);
        if night == 6 {
            run_each(&mut client, "SELECT rowsource_snapshot()");
            run_each(&mut client, "UPDATE pace SET ms = 1500");
        }
        run_each(&mut client, "SELECT burn(ms) FROM pace");
        assert_eq!(states(&mut client), [] as [&str; 0], "{night}");
        judge(&mut client, night * 1440);
    }
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let row = found(
        &mut client,
        "state, basis, calls_before, calls_after, ratio > 15, closed_at",
    );
    let some = |text: &str| Some(text.to_owned());
    let wanted = ["open", "few executions", "6", "1", "true"].map(some);
    assert_eq!(row, [[&wanted[..], &[None]].concat()]);
    // It compares what was before with what is since. (That is in the future, which has no history.)
    let command: String = value(&mut client, "SELECT command FROM rowsource_regressions()");
    assert!(
        command.contains("rowsource_compare(") && command.ends_with("..')"),
        "{command}"
    );
    // The next nights are as before.
    run_each(&mut client, "UPDATE pace SET ms = 60");
    for night in 7..10 {
        assert_eq!(states(&mut client), ["open"], "{night}");
        judge(&mut client, night * 1440 - 15);
        run_each(&mut client, "SELECT burn(ms) FROM pace");
        judge(&mut client, night * 1440);
    }
    let row = found(&mut client, "state, closing_reason");
    assert_eq!(row, [["over", "no longer slower"].map(some)]);
    server.assert_no_crash();
}
