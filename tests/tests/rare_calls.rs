//! Calls of some hundred microseconds that come each 127th or 400th time: samples alone miss most of them.
//! What a node's estimate misses, its stated error must say.

use postgres::Client;
use rowsource_tests::adversarial::{at_the_speed_of, with_burning};
use rowsource_tests::explain::explain_nodes;
use rowsource_tests::history::worker;
use rowsource_tests::measured::{measure, measure_elapsed};
use rowsource_tests::process::{address_of_library, waited_for_processor};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::{pid, until};
use rowsource_tests::{Server, burn};
use std::collections::BTreeSet;

const SETTINGS: [&str; 2] = ["max_parallel_workers_per_gather = 0", "jit = off"];

/// Each of so many calls is long, and how many nanoseconds a call takes on average. Nine tenths of the time
/// are in long calls.
const SHAPES: [(u32, u32); 5] = [(30, 2500), (127, 2500), (127, 1000), (400, 2500), (400, 1000)];
/// The truth itself may be wrong by this part: the scan's own time is that of another run.
const OF_TRUTH: f64 = 0.05;
/// The part of the runs that may be farther from the truth than three errors. In simulations it is 1.5 %.
const MAX_DISHONEST: f64 = 0.1;
/// How many times as large as the actual errors the stated ones may be.
const MAX_STATED: f64 = 2.5;
/// How far the mean of all runs may be from the truth.
const MAX_BIAS: f64 = 0.15;

/// A run in which the session waited longer than this part of the truth for a processor does not count: the
/// calls that it interrupted are no more those of the statement.
const MAX_WAITED: f64 = 0.02;
/// How often a run is tried that is to count.
const TRIES: usize = 10;

/// Measures the scan once. Returns the estimate and its error, both as parts of the truth. Returns `None` if
/// the run does not count.
fn measure_once(client: &mut Client, statement: &str) -> Option<(f64, f64)> {
    let pid = pid(client) as u32;
    let without = with_burning(statement, false);
    let base = explain_nodes(client, &without, "ANALYZE, BUFFERS OFF, FORMAT JSON");
    let burning = with_burning(statement, true);
    let before = waited_for_processor(pid);
    let ((nodes, elapsed_ms), burned_ms) = burn::during(client, |client| measure_elapsed(client, &burning));
    let waited = waited_for_processor(pid) - before;
    let base = at_the_speed_of(&base, burned_ms, elapsed_ms);
    assert_eq!(nodes[1].operation, "Seq Scan", "{nodes:#?}");
    let truth = burned_ms + base[1].total_ms.expect("the base is timed");
    let of = |ms: Option<f64>| ms.expect("it is timed") / truth;
    (waited * 1000.0 <= MAX_WAITED * truth).then(|| (of(nodes[1].total_ms), of(nodes[1].error_ms)))
}

/// Creates the table and the function of the scan.
fn create(client: &mut Client) {
    burn::create(client);
    run_each(
        client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM (FREEZE, ANALYZE) n",
    );
}

fn are_honest(client: &mut Client, shapes: &[(u32, u32)], runs: usize) {
    for (each, mean_ns) in shapes {
        let [short, long] =
            [0.1, 0.1 + 0.9 * f64::from(*each)].map(|part| part * f64::from(*mean_ns) / 1000.0);
        let statement = format!(
            "SELECT count(*) FROM n WHERE {{burn CASE WHEN id % {each} = 0 THEN {long} ELSE {short} END}}"
        );
        let found = (0..TRIES * runs).filter_map(|_| measure_once(client, &statement));
        let found: Vec<_> = found.take(runs).collect();
        if found.len() < runs {
            println!(
                "UNDECIDED rare_calls: only {} of {runs} runs had their processor",
                found.len()
            );
        }
        let dishonest: Vec<_> = found
            .iter()
            .filter(|(estimate, error)| (estimate - 1.0).abs() > OF_TRUTH + 3.0 * error)
            .collect();
        let mean = found.iter().map(|(estimate, _)| estimate).sum::<f64>() / found.len().max(1) as f64;
        println!(
            "{long} us each {each}th call: mean {mean:.3} of the truth, dishonest {dishonest:.2?}\n{found:.2?}"
        );
        assert!(dishonest.len() as f64 <= MAX_DISHONEST * found.len() as f64);
        let root_mean_square = |of: &dyn Fn(&(f64, f64)) -> f64| {
            (found.iter().map(|run| of(run).powi(2)).sum::<f64>() / found.len().max(1) as f64).sqrt()
        };
        let (stated, actual) = (
            root_mean_square(&|run| run.1),
            root_mean_square(&|run| run.0 - 1.0),
        );
        println!("stated {stated:.3}, actual {actual:.3}");
        assert!(stated <= MAX_STATED * actual.max(OF_TRUTH));
        assert!(found.is_empty() || (mean - 1.0).abs() <= MAX_BIAS);
    }
}

#[test]
fn rare_long_calls_have_an_honest_error_timing() {
    let server = Server::preloaded("rare-calls", &SETTINGS);
    let mut client = server.session();
    create(&mut client);
    are_honest(&mut client, &SHAPES[1..2], 20);
}

#[test]
fn rare_long_calls_of_all_kinds_have_an_honest_error_timing_long() {
    let server = Server::preloaded("rare-calls-long", &SETTINGS);
    let mut client = server.session();
    create(&mut client);
    are_honest(&mut client, &SHAPES, 50);
}

/// If the library is not preloaded, it lies elsewhere in each process. The worker's beats reach it all the
/// same, also in a page that another session had before.
#[test]
fn beats_reach_a_library_at_another_address_pg17_plus() {
    let server = Server::start("rare-calls-address", &SETTINGS);
    let mut observer = server.session();
    create(&mut observer);
    run_each(&mut observer, "SELECT rowsource_ash_start()");
    let mut addresses = BTreeSet::from([address_of_library(worker(&mut observer))]);
    // What the session has in memory before is in the way of the library.
    for bytes in [100_000_000, 200_000_000] {
        let mut client = server.connect();
        let load = format!("DO $$ DECLARE t text := repeat('x', {bytes}); BEGIN LOAD 'pg_rowsource'; END $$");
        client.batch_execute(&load).expect("the library");
        addresses.insert(address_of_library(pid(&mut client) as u32));
        // Only a beat finds that call, unless it happens to be timed.
        let one_of_a_second =
            "SELECT count(*) FROM n WHERE burn(CASE WHEN id = 15000 THEN 1000000 ELSE 0.1 END)";
        for _ in 0..3 {
            let (nodes, burned_ms) = burn::during(&mut client, |client| measure(client, one_of_a_second));
            let found_ms = nodes[1].total_ms.expect("it is timed");
            assert!(
                (0.8..1.3).contains(&(found_ms / burned_ms)),
                "{found_ms} of {burned_ms}"
            );
        }
        drop(client);
        until(
            &mut observer,
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'",
        );
    }
    assert_eq!(addresses.len(), 3, "{addresses:x?}");
    assert_eq!(
        value::<i64>(
            &mut observer,
            "SELECT sessions_without_beats FROM rowsource_info()"
        ),
        0
    );
}
