//! The cost of the hot path in instructions per call, counted by callgrind on a single-user backend.
//!
//! Two table sizes, each measured and not: the difference of the differences over the difference of the
//! calls leaves out start-up, planning and the once-per-plan work, and is the same on every machine.

use rowsource_tests::Server;
use rowsource_tests::callgrind::instructions;
use rowsource_tests::session::run_each;

const SMALL_ROWS: u64 = 20_000;
const LARGE_ROWS: u64 = 220_000;
/// Instructions a call over a bare call that the hot path may take (design 3.2).
const BUDGET: f64 = 40.0;

fn script(level: &str, statement: &str) -> String {
    format!(
        "SET pg_rowsource.statistics_level = {level};\n\nSET pg_rowsource.sampfreq = 128;\n\n{statement};\n\n"
    )
}

#[test]
fn a_call_costs_few_instructions() {
    let mut server = Server::preloaded("callgrind", &[]);
    run_each(
        &mut server.connect(),
        &format!(
            "CREATE TABLE small AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {SMALL_ROWS}) i;
             CREATE TABLE large AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {LARGE_ROWS}) i;
             VACUUM (FREEZE, ANALYZE) small; VACUUM (FREEZE, ANALYZE) large; CREATE EXTENSION pg_rowsource"
        ),
    );
    server.stop();
    let mut failures = Vec::new();
    // The aggregate that only counts lets its scan be tail-called; the one that compares texts does not.
    for (node, statement) in [
        ("a scan that is only drained", "SELECT count(pad) FROM"),
        ("any other node", "SELECT max(pad) FROM"),
    ] {
        let count = |level: &str, table: &str| {
            let script = script(level, &format!("{statement} {table}"));
            instructions(
                &server.data(),
                &["shared_preload_libraries=pg_rowsource"],
                &script,
            ) as f64
        };
        let large = count("typical", "large") - count("basic", "large");
        let small = count("typical", "small") - count("basic", "small");
        // The scan is called once for each row and once more, the aggregate twice.
        let a_call = (large - small) / (LARGE_ROWS - SMALL_ROWS) as f64;
        println!(
            "{node}: {a_call:.1} instructions a call over a bare call at sampfreq 128 (budget {BUDGET})"
        );
        if !(0.5..=BUDGET).contains(&a_call.round()) {
            failures.push(format!("{node}: {a_call:.1} instructions a call"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
