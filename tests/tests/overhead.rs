//! The cost of measuring: the two scans of design 3, interleaved with the same statement unmeasured and with core's
//! EXPLAIN (ANALYZE), in processor time. Rounds continue until the ratios are within their bounds or the rounds are used up, because
//! both kinds of ratio only become more accurate with more rounds (`undisturbed_ratio`).

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::process::processor_time_when_idle;
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::{median, median_ratio, minimum, undisturbed_ratio};
use rowsource_tests::waiting::pid;

const ROWS: u32 = 1_000_000;
const MIN_ROUNDS: usize = 11;
const MAX_ROUNDS: usize = 33;

struct Variant {
    name: &'static str,
    settings: &'static str,
    prefix: &'static str,
}

const BASIC: usize = 0;
const SAMPLED: usize = 1;
const EVERY_CALL: usize = 2;
const CORE: usize = 3;
const VARIANTS: [Variant; 4] = [
    Variant {
        name: "level basic",
        settings: "SET pg_rowsource.statistics_level = basic",
        prefix: "",
    },
    Variant {
        name: "sampfreq 128",
        settings: "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 128",
        prefix: "",
    },
    Variant {
        name: "sampfreq 1",
        settings: "SET pg_rowsource.statistics_level = typical; SET pg_rowsource.sampfreq = 1",
        prefix: "",
    },
    Variant {
        name: "core, TIMING OFF, BUFFERS OFF",
        settings: "SET pg_rowsource.statistics_level = basic",
        prefix: "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) ",
    },
];

/// Returns the milliseconds of processor time of one run in this session.
fn milliseconds(client: &mut Client, pid: u32, variant: &Variant, statement: &str) -> f64 {
    run_each(client, variant.settings);
    let sql = format!("{}{statement}", variant.prefix);
    let before = processor_time_when_idle(pid);
    client.simple_query(&sql).expect("the statement");
    (processor_time_when_idle(pid) - before) * 1000.0
}

/// The clock that `auto` chooses, and the cost of one reading on this machine.
struct Clock {
    name: String,
    reading_ns: f64,
}

/// Returns the bound at sampfreq 1 with the time stamp counter. A call needs two readings. If these alone take more than a
/// quarter of a row's time (RDTSC of a virtual machine, and a fast row), the bound is their cost, half of it again for
/// processing them, and the cost of the wrapper.
fn bound_of_every_call(clock: &Clock, row_ns: f64) -> f64 {
    f64::max(1.35, 1.08 + 2.0 * 1.5 * clock.reading_ns / row_ns)
}

/// Returns the bound at sampfreq 128: 8 % of a row of 46 ns, and the same time for a faster row.
fn bound_of_sampling(row_ns: f64) -> f64 {
    f64::max(1.08, 1.0 + 0.08 * 46.0 / row_ns)
}

/// A ratio of at most this is good enough, even if core's own counting is cheaper: that of 19 costs a slow row almost nothing.
const LOW_RATIO: f64 = 1.07;

/// Returns why the ratios are not within their bounds yet.
fn shortcomings(ratios: &[f64], clock: &Clock, row_ns: f64) -> Vec<String> {
    let mut found = Vec::new();
    let bound = bound_of_sampling(row_ns);
    if ratios[SAMPLED] > bound {
        found.push(format!(
            "sampfreq 128 costs {:.3}, more than {bound:.3}",
            ratios[SAMPLED]
        ));
    }
    if ratios[SAMPLED] >= f64::max(ratios[CORE], LOW_RATIO) {
        found.push(format!(
            "sampfreq 128 costs {:.3}, core's EXPLAIN {:.3}",
            ratios[SAMPLED], ratios[CORE]
        ));
    }
    let bound = bound_of_every_call(clock, row_ns);
    if clock.name == "tsc" && ratios[EVERY_CALL] > bound {
        found.push(format!(
            "sampfreq 1 costs {:.3}, more than {bound:.3}",
            ratios[EVERY_CALL]
        ));
    }
    found
}

fn compare(client: &mut Client, name: &str, statement: &str, clock: &Clock) -> Vec<String> {
    let pid = pid(client).unsigned_abs();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); VARIANTS.len()];
    let mut wanting = Vec::new();
    for round in 1..=MAX_ROUNDS {
        for (variant, times) in VARIANTS.iter().zip(&mut times) {
            times.push(milliseconds(client, pid, variant, statement));
        }
        if round < MIN_ROUNDS {
            continue;
        }
        let base = minimum(&times[BASIC]);
        let ratios: Vec<f64> = times
            .iter()
            .map(|own| undisturbed_ratio(own, &times[BASIC]))
            .collect();
        wanting = shortcomings(&ratios, clock, base * 1e6 / f64::from(ROWS));
        if wanting.is_empty() {
            break;
        }
    }
    let base = minimum(&times[BASIC]);
    println!(
        "{name}: {} rounds of {ROWS} rows, {:.1} ns a row, clock {} at {:.1} ns a reading (bound at sampfreq 1: {:.3})",
        times[BASIC].len(),
        base * 1e6 / f64::from(ROWS),
        clock.name,
        clock.reading_ns,
        bound_of_every_call(clock, base * 1e6 / f64::from(ROWS)),
    );
    for (variant, own) in VARIANTS.iter().zip(&times) {
        println!(
            "    {:<30} minimum {:>8.2} ms, median {:>8.2} ms, ratio of minima {:.3}, median of ratios {:.3}",
            variant.name,
            minimum(own),
            median(own),
            minimum(own) / base,
            median_ratio(own, &times[BASIC])
        );
    }
    wanting
        .into_iter()
        .map(|what| format!("{name}: {what}"))
        .collect()
}

#[test]
fn measuring_is_cheap_timing() {
    let server = Server::preloaded(
        "overhead",
        &[
            "shared_buffers = '1GB'",
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
    let row = client
        .query_one(
            "SELECT clock_source, reading_ns FROM rowsource_clocks(1000000) WHERE auto",
            &[],
        )
        .expect("one clock is picked");
    let clock = Clock {
        name: row.get(0),
        reading_ns: row.get(1),
    };
    let mut failures = compare(&mut client, "full scan", "SELECT count(pad) FROM test", &clock);
    run_each(
        &mut client,
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
    );
    failures.extend(compare(
        &mut client,
        "full index scan",
        "SELECT count(pad) FROM test WHERE id > 0",
        &clock,
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
