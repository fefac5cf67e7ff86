//! Texts of any length and kind: the library adds little time and memory, and does not delay a cancel.

use rowsource_tests::attack::{Growth, Pair};

const SETTINGS: [&str; 1] = ["max_stack_depth = '7MB'"];

/// Beginnings of hints, comments and quotes, repeated.
const BEGINNINGS: [&str; 6] = [
    "/*+",
    "/*+ gather_plan_statistics ",
    "--+ gather_plan_statistics\n",
    "/* /*+ */ ",
    "/*+*/",
    "/",
];

fn repeated(what: &str, bytes: usize) -> String {
    what.repeat(bytes.div_ceil(what.len()))
}

#[test]
fn texts_of_any_length_cost_little_timing() {
    let mut pair = Pair::start("attack-length", &SETTINGS, "");
    for level in ["basic", "typical"] {
        pair.reconnect();
        pair.run_with(&format!("SET pg_rowsource.statistics_level = {level}"));
        pair.watch_memory();
        let mut growth = Growth::of(&format!("a literal, level {level}"));
        // The longest text takes seconds, mostly in the client: one run is enough.
        let longest = if level == "typical" {
            100_000_000
        } else {
            10_000_000
        };
        for bytes in [1_000, 1_000_000, longest] {
            let sql = format!("SELECT length('{}')", "x".repeat(bytes));
            let rounds = if bytes < 5_000_000 { 5 } else { 1 };
            growth.add(bytes, pair.elapsed_of(rounds, &sql));
        }
        pair.assert_memory(&format!("long literals, level {level}"));
    }
    let sql = format!("SELECT length('{}')", "x".repeat(20_000_000));
    let elapsed = pair.elapsed_of(1, &sql);
    pair.assert_cancelled_in_time("a literal of 20 MB", elapsed, &sql);
    pair.assert_store("long texts");
}

#[test]
fn beginnings_of_hints_cost_little_timing() {
    let mut pair = Pair::start("attack-hints", &SETTINGS, "");
    for level in ["basic", "typical"] {
        pair.run_with(&format!("SET pg_rowsource.statistics_level = {level}"));
        for what in BEGINNINGS {
            let mut growth = Growth::of(&format!("{what:?} in a literal, level {level}"));
            for bytes in [10_000, 40_000, 300_000, 3_000_000] {
                let sql = format!("SELECT length('{}')", repeated(what, bytes));
                growth.add(bytes, pair.elapsed_of(5, &sql));
            }
        }
    }
}

/// Comments outside of literals.
#[test]
fn comments_without_end_cost_little_timing() {
    let mut pair = Pair::start("attack-comments", &SETTINGS, "");
    pair.run_with("SET pg_rowsource.statistics_level = basic");
    for what in [
        "/*+ x */",
        "/* */",
        "--+\n",
        "/*/*+ gather */*/",
        "'/*+' || ",
        "$a$/*+$a$ || ",
    ] {
        let mut growth = Growth::of(&format!("{what:?} in the statement"));
        // PostgreSQL parses a chain of || recursively, so it cannot be long.
        let longest = if what.ends_with("|| ") { 30_000 } else { 10_000_000 };
        for bytes in [longest / 100, longest / 10, longest] {
            let sql = format!("SELECT length({}'x')", repeated(what, bytes));
            growth.add(bytes, pair.elapsed_of(5, &sql));
        }
    }
}

/// One message holds many statements, each with its own position.
#[test]
fn many_statements_in_one_message_cost_little_timing() {
    const TABLE: &str = "CREATE UNLOGGED TABLE t (id int)";
    let mut pair = Pair::start("attack-message", &SETTINGS, TABLE);
    for (level, statement) in [
        ("basic", "INSERT INTO t VALUES (1);"),
        ("typical", "INSERT INTO t VALUES (1);"),
        ("basic", "/* a */ SELECT 1 ;"),
    ] {
        pair.reconnect();
        pair.run_with(&format!("SET pg_rowsource.statistics_level = {level}"));
        let mut growth = Growth::of_short_statements(&format!("{statement} in one message, level {level}"));
        for statements in [1_000, 10_000, 100_000] {
            let sql = statement.repeat(statements);
            let rounds = if statements > 50_000 { 2 } else { 5 };
            growth.add(statements, pair.elapsed_of(rounds, &sql));
        }
        let sql = statement.repeat(40_000);
        let elapsed = pair.elapsed_of(1, &sql);
        pair.assert_cancelled_in_time("40,000 statements", elapsed, &sql);
        pair.both("TRUNCATE t");
    }
    pair.assert_store("many statements");
}
