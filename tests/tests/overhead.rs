//! The cost of measuring in processor time: two scans, compared with the same statement unmeasured.
//! `callgrind.rs` counts the instructions of a call, and compares them with those of core's EXPLAIN
//! (ANALYZE). What instructions cannot tell is what a reading of the clock costs.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::process::processor_time_when_idle;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::verdict::{Limit, ROUNDS, Side, Trial, Verdicts};
use rowsource_tests::waiting::pid;

const ROWS: u32 = 300_000;

/// What a row may cost at sampfreq 128, as a ratio to the unmeasured row. It is 1.02 to 1.07. Readings of the
/// clock at each call cost a quarter of a row and more.
const MAX_OF_SAMPLING: f64 = 1.2;

/// What a row may cost at sampfreq 1, in readings of the clock. It needs two.
const MAX_READINGS: f64 = 4.0;

/// The settings of the two sides.
const BASIC: &str = "SET pg_rowsource.statistics_level = basic";
const SAMPLED: &str = "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 128";
const EVERY_CALL: &str = "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1";

/// Compares a statement with these settings with the unmeasured one, in units of this many seconds.
fn compare(client: &mut Client, trial: Trial, settings: &str, statement: &str, unit: f64) -> Trial {
    let pid = pid(client).unsigned_abs();
    trial.compare(ROUNDS, |side| {
        run_each(client, if side == Side::Other { settings } else { BASIC });
        let before = processor_time_when_idle(pid);
        run_each(client, statement);
        (processor_time_when_idle(pid) - before) / unit
    })
}

#[test]
fn measuring_is_cheap_timing() {
    let server = Server::preloaded(
        "overhead",
        &[
            "shared_buffers = '256MB'",
            "max_parallel_workers_per_gather = 0",
            "jit = off",
        ],
    );
    let mut client = server.session();
    run_each(
        &mut client,
        &format!(
            "CREATE TABLE test (id int, pad text); INSERT INTO test SELECT i, '*' FROM generate_series(1, {ROWS}) i;
             CREATE INDEX test_id ON test (id); VACUUM (FREEZE, ANALYZE) test; CHECKPOINT"
        ),
    );
    // The least of many short measurements: other work has not interrupted that one.
    let reading_ns: f64 = value(
        &mut client,
        "SELECT min(reading_ns) FROM generate_series(1, 20), rowsource_clocks(20000) WHERE auto",
    );
    println!("{reading_ns:.1} ns a reading of the clock");
    let readings_of_all = f64::from(ROWS) * reading_ns / 1e9;
    let mut verdicts = Verdicts::default();
    for (name, settings, statement) in [
        (
            "full scan",
            "SET enable_seqscan = on",
            "SELECT count(pad) FROM test",
        ),
        (
            "full index scan",
            "SET enable_seqscan = off; SET enable_bitmapscan = off",
            "SELECT count(pad) FROM test WHERE id > 0",
        ),
    ] {
        run_each(&mut client, settings);
        let trial = Trial::of_ratios(format!("{name}, sampfreq 128"), Limit::AtMost(MAX_OF_SAMPLING));
        verdicts.add(&compare(&mut client, trial, SAMPLED, statement, 1.0));
        let what = format!("{name}, sampfreq 1, in readings of the clock");
        let trial = Trial::of_differences(what, Limit::AtMost(MAX_READINGS));
        verdicts.add(&compare(
            &mut client,
            trial,
            EVERY_CALL,
            statement,
            readings_of_all,
        ));
    }
    verdicts.finish();
}
