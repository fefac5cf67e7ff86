//! What a statement without a trace pays for it. Where one of its calls begins, it compares a word with zero. Where the statement
//! begins, it compares the number of the list of targets with the one that it has seen. On this kind of processor, that is two and
//! four instructions.
#![cfg(target_arch = "x86_64")]

use rowsource_tests::Server;
use rowsource_tests::callgrind::{create_tables, executions};
use rowsource_tests::environment::{environment, pg_config};
use std::collections::HashSet;
use std::process::Command;

/// The most instructions that a statement may pay.
const BUDGET: u64 = 19;
/// A comparison and a jump.
const OF_CALL: u64 = 2;
/// The same, and the load of the number and of its address.
const OF_STATEMENT: u64 = 4;

/// Returns the addresses at which the library compares the word, and those at which it compares the number.
fn comparisons() -> [HashSet<u64>; 2] {
    let major = pg_config("--version");
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let major = digits(major.trim_start_matches("PostgreSQL "));
    let library = environment()
        .root
        .join(format!("target/pg{major}/pg_rowsource.so"));
    let output = Command::new("objdump")
        .args([
            "--disassemble",
            "--demangle",
            "--no-show-raw-insn",
            "--section=.text",
        ])
        .arg(&library)
        .output()
        .expect("objdump can be run (package binutils)");
    assert!(output.status.success(), "{}", library.display());
    let found = String::from_utf8_lossy(&output.stdout);
    let at = |name: &str| {
        let end = format!("<pg_rowsource::pg::sql_trace::{name}>");
        let lines = found
            .lines()
            .filter(|line| line.contains("cmp") && line.ends_with(&end));
        lines
            .filter_map(|line| u64::from_str_radix(line.split(':').next()?.trim(), 16).ok())
            .collect()
    };
    [at("level::ON"), at("targets::SEEN")]
}

#[test]
fn an_untraced_statement_pays_less_than_20_instructions() {
    let mut server = Server::preloaded("trace-cost", &[]);
    create_tables(&mut server.connect());
    server.stop();
    let [of_call, of_statement] = comparisons();
    let counts = [of_call.len(), of_statement.len()];
    assert!(counts[0] >= 5 && counts[1] >= 3, "{counts:?} places");
    for (kind, statement) in [
        ("a lookup", "SELECT balance FROM accounts WHERE aid = 1"),
        ("a prepared lookup", "EXECUTE p(1)"),
        (
            "an update",
            "UPDATE accounts SET balance = balance + 1 WHERE aid = 1",
        ),
    ] {
        let count = |number: usize, places: &HashSet<u64>| {
            let script = format!(
                "PREPARE p(int) AS SELECT balance FROM accounts WHERE aid = $1;\n\n{}",
                format!("{statement};\n\n").repeat(number)
            );
            executions(
                &server.data(),
                &["shared_preload_libraries=pg_rowsource"],
                &script,
                places,
            )
        };
        let (few, many) = (20, 70);
        let each = [(&of_call, OF_CALL), (&of_statement, OF_STATEMENT)]
            .map(|(places, instructions)| (count(many, places) - count(few, places)) * instructions);
        let statements = (many - few) as u64;
        println!(
            "{kind}: {:.1} instructions",
            each.iter().sum::<u64>() as f64 / statements as f64
        );
        // The executor runs and ends, and the statement is parsed or executed.
        assert!(each[0] >= 2 * OF_CALL * statements && each[1] >= OF_STATEMENT * statements);
        let each: u64 = each.iter().sum();
        let range = 0..=BUDGET * statements;
        assert!(
            range.contains(&each),
            "{kind}: {each} instructions of {} statements",
            many - few
        );
    }
}
