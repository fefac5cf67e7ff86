//! What a trace costs, in instructions, and what a statement without a trace pays for the possibility: where
//! one of its calls begins, it compares a word with zero. Where the statement begins, it compares the number
//! of the list of targets with the one that it has seen. On this kind of processor, that is two and four
//! instructions.
#![cfg(target_arch = "x86_64")]

use rowsource_tests::callgrind::{CountedServer, create_tables, executions};
use rowsource_tests::environment::library;
use rowsource_tests::session::{run_each, texts};
use rowsource_tests::trace_file::{lines, number, of};
use rowsource_tests::{Server, oltp};
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
    let library = library();
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
fn an_untraced_statement_pays_less_than_20_instructions_release() {
    let mut server = Server::preloaded("trace-cost", &[]);
    create_tables(&mut server.connect());
    server.stop();
    let places = comparisons();
    let counts = places.each_ref().map(HashSet::len);
    assert!(counts[0] >= 5 && counts[1] >= 3, "{counts:?} places");
    let kinds = [
        ("a lookup", "SELECT balance FROM accounts WHERE aid = 1"),
        ("a prepared lookup", "EXECUTE p(1)"),
        (
            "an update",
            "UPDATE accounts SET balance = balance + 1 WHERE aid = 1",
        ),
    ];
    let (first, few, many) = (20, 20, 70);
    let mut parts = vec!["PREPARE p(int) AS SELECT balance FROM accounts WHERE aid = $1;\n\n".to_owned()];
    for (_, statement) in kinds {
        parts.extend([first, few, many].map(|number| format!("{statement};\n\n").repeat(number)));
    }
    let counts = executions(
        &server.data(),
        &["shared_preload_libraries=pg_rowsource"],
        &parts,
        &places,
    );
    for ((kind, _), counts) in kinds.into_iter().zip(counts[1..].chunks(3)) {
        let (of_few, of_many) = (counts[1], counts[2]);
        let each = [(0, OF_CALL), (1, OF_STATEMENT)]
            .map(|(which, instructions)| (of_many[which] - of_few[which]) * instructions);
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

/// A traced session executes at most this many times the instructions of one that is measured in the same way
/// and not traced: "a traced session at sampfreq 128 loses at most 5 % on the OLTP-like workload". The
/// original lost 90 %.
const MAX_RATIO: f64 = 1.05;

/// Only the sessions of a running server are traced, so all of its processes run under callgrind.
#[test]
fn a_traced_session_loses_at_most_5_percent_release() {
    const LOOPS: [u64; 2] = [10, 40];
    const MEASURED: &str = "SET pg_rowsource.statistics_level = typical";
    let settings = [
        "plan_cache_mode = force_generic_plan",
        "jit = off",
        "pg_rowsource.sampfreq = 128",
        "pg_rowsource.track = 'all'",
    ];
    let mut server = Server::preloaded("trace-cost-traced", &settings);
    let mut client = server.connect();
    oltp::create(&mut client);
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    drop(client);
    server.stop();
    let server = CountedServer::launch(server);
    let count = |before: &str, loops: u64| {
        let mut file = None;
        let instructions = server.instructions(|client| {
            run_each(client, &format!("{before}; BEGIN; CALL oltp({loops}); COMMIT"));
            file = texts(client, "SELECT rowsource_trace_stop()").pop();
        });
        // What is cheap because it is not written does not count.
        if let Some(file) = file.and_then(|mut row| row.pop().flatten()) {
            let lines = lines(server.server(), &file);
            let executed = of(&lines, "EXEC").into_iter();
            let executed = executed.filter(|line| number(line, "dep") == 1).count();
            assert_eq!(executed, loops as usize * oltp::CURSORS.len());
            assert!(of(&lines, "LOST").is_empty());
        }
        instructions
    };
    // The first session describes the plans; the others find what it left.
    count(MEASURED, 1);
    let of_statement = |before: &str| {
        let [few, many] = LOOPS.map(|loops| count(before, loops) as f64);
        (many - few) / ((LOOPS[1] - LOOPS[0]) * oltp::CURSORS.len() as u64) as f64
    };
    let unmeasured = of_statement("SET pg_rowsource.statistics_level = basic");
    let measured = of_statement(MEASURED);
    println!(
        "instructions a statement: {unmeasured:.0} not measured, {measured:.0} measured ({:+.1} %)",
        (measured / unmeasured - 1.0) * 100.0
    );
    assert!(measured > unmeasured, "the statements are not measured");
    for waits in [false, true] {
        let traced = of_statement(&format!(
            "{MEASURED}; SELECT rowsource_trace_start(with_waits => {waits})"
        ));
        println!(
            "traced, with_waits => {waits}: {traced:.0}, {:+.1} % to measured, {:+.1} % to not measured",
            (traced / measured - 1.0) * 100.0,
            (traced / unmeasured - 1.0) * 100.0
        );
        assert!(traced > measured, "nothing is traced");
        assert!(
            traced <= MAX_RATIO * measured,
            "{traced:.0} instructions of a traced statement, {measured:.0} of a measured one"
        );
    }
}
