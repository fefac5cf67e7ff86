//! Long texts: the cost of a statement does not grow with its text, nor with its position in a message.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::{median, median_ratio};
use std::time::Instant;

/// Returns the milliseconds of a message.
fn milliseconds(client: &mut Client, message: &str) -> f64 {
    let start = Instant::now();
    client
        .batch_execute(message)
        .unwrap_or_else(|error| panic!("{error:?}: {:.100}", message));
    start.elapsed().as_secs_f64() * 1e3
}

/// Sends two messages in turn. Returns the median milliseconds of the first, and how many times as long the second takes.
fn in_turn(client: &mut Client, rounds: usize, messages: [&str; 2]) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, message) in times.iter_mut().zip(messages) {
            times.push(milliseconds(client, message));
        }
    }
    let [first, second] = times;
    (median(&first), median_ratio(&second, &first))
}

#[test]
fn a_literal_full_of_hints_costs_what_any_literal_costs_timing() {
    const BYTES: usize = 200_000;
    let server = Server::preloaded("hints", &[]);
    let mut client = server.session();
    let select = |unit: &str| format!("SELECT length('{}')", unit.repeat(BYTES / unit.len()));
    for level in ["basic", "typical"] {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.statistics_level = {level}; SET statement_timeout = '10s'"),
        );
        for unit in ["/*+", "/*+ */", "/*+ $a$ \"", "--/*+\n"] {
            let (plain, ratio) = in_turn(&mut client, 5, [&select("xyz"), &select(unit)]);
            println!("{level}: {unit:?}: {ratio:.2} times the {plain:.2} ms of any literal");
            assert!(
                ratio * plain < 3.0 * plain + 1.0,
                "{level}: {unit:?}: {ratio:.2} times {plain:.2} ms"
            );
        }
    }
}

#[test]
fn hints_count_only_in_comments() {
    let server = Server::preloaded("hints-found", &[]);
    let mut client = server.session();
    let measured = |client: &mut Client, message: &str| {
        run_each(client, "SELECT rowsource_reset()");
        client.batch_execute(message).expect("a message");
        let plans: i64 = value(client, "SELECT count(*) FROM pg_stat_rowsource_plans");
        plans
    };
    const HINT: &str = "/*+ gather_plan_statistics */";
    for (message, plans) in [
        (format!("{HINT} SELECT 1"), 1),
        (format!("SELECT 'it''s /*+', {HINT} 1"), 1),
        (format!("SELECT 1; {HINT} SELECT 2, 3; SELECT 4, 5, 6"), 1),
        (format!("SELECT 1; {HINT} SELECT 2, 3; SELECT {HINT} 4, 5, 6;"), 2),
        (format!("SELECT '{HINT}'"), 0),
        (
            format!("SELECT $${HINT}$$, \"{HINT}\".x FROM (SELECT 1 AS x) \"{HINT}\""),
            0,
        ),
        (format!("SELECT 1 -- {HINT}"), 0),
        (format!("/* {} */ {HINT} SELECT 1", "x".repeat(4_000)), 1),
        (format!("SELECT '{}', {HINT} 1", "x".repeat(100_000)), 0),
    ] {
        assert_eq!(measured(&mut client, &message), plans, "{message:.100}");
    }
}

#[test]
fn a_statement_costs_the_same_in_a_long_message_timing() {
    const SIZES: [usize; 3] = [1_000, 10_000, 40_000];
    let server = Server::preloaded("messages", &[]);
    let mut client = server.session();
    run_each(&mut client, "CREATE TABLE t (id int)");
    for level in ["basic", "typical"] {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.statistics_level = {level}"),
        );
        let mut each = SIZES.map(|_| Vec::new());
        for _ in 0..5 {
            for (each, size) in each.iter_mut().zip(SIZES) {
                let message = "INSERT INTO t VALUES (1);".repeat(size);
                each.push(milliseconds(&mut client, &message) * 1e3 / size as f64);
            }
        }
        let ratio = median_ratio(&each[2], &each[0]);
        let each = each.map(|each| median(&each));
        println!("{level}: {each:.2?} us a statement in messages of {SIZES:?}: {ratio:.2} times");
        assert!(ratio < 2.0, "{level}: {ratio:.2} times as much a statement");
        run_each(&mut client, "TRUNCATE t");
    }
}

#[test]
fn executions_do_not_read_the_whole_text_timing() {
    const EXECUTIONS: usize = 1_000;
    let server = Server::preloaded("executions", &[]);
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.track = 'all'");
    // A statement in a function, because EXECUTE itself copies the text. The planner folds its literal.
    for (name, bytes) in [("short", 1_000), ("long", 30_000_000)] {
        let literal = "x".repeat(bytes);
        client
            .batch_execute(&format!(
                "CREATE FUNCTION {name}(times int) RETURNS int LANGUAGE plpgsql AS $$
                 DECLARE n int; BEGIN FOR i IN 1..times LOOP
                    SELECT length('{literal}') + g INTO n FROM generate_series(1, 1) g;
                 END LOOP; RETURN n; END $$"
            ))
            .expect(name);
    }
    let select = |name: &str| format!("SELECT {name}({EXECUTIONS})");
    for level in ["basic", "typical"] {
        run_each(
            &mut client,
            &format!("SET pg_rowsource.statistics_level = {level}"),
        );
        // The first runs compile and plan.
        in_turn(&mut client, 1, [&select("short"), &select("long")]);
        let (short, ratio) = in_turn(&mut client, 5, [&select("short"), &select("long")]);
        println!(
            "{level}: {EXECUTIONS} executions of a text of 1 kB: {short:.1} ms, of 30 MB: {ratio:.2} times"
        );
        // Reading 64 kB takes some microseconds.
        assert!(ratio < 10.0, "{level}: {ratio:.2} times as long");
    }
}
