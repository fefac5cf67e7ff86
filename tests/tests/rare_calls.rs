//! Calls of some hundred microseconds that come each 127th or 400th time: samples alone miss most of them.
//! What a node's estimate misses, its stated error must say.

use postgres::Client;
use rowsource_tests::adversarial::{at_the_speed_of, with_burning};
use rowsource_tests::explain::explain_nodes;
use rowsource_tests::measured::measure_elapsed;
use rowsource_tests::session::run_each;
use rowsource_tests::{Server, burn};

/// Each of so many calls is long, and how many nanoseconds a call takes on average. Nine tenths of the time
/// are in long calls.
const SHAPES: [(u32, u32); 5] = [(30, 2500), (127, 2500), (127, 1000), (400, 2500), (400, 1000)];
/// The truth itself may be wrong by this part: the scan's own time is that of another run.
const OF_TRUTH: f64 = 0.05;
/// The part of the runs that may be farther from the truth than three errors. In simulations it is 1.5 %.
const MAX_DISHONEST: f64 = 0.1;
/// How far the mean of all runs may be from the truth.
const MAX_BIAS: f64 = 0.15;

/// Measures the scan once. Returns the estimate and its error, both as parts of the truth.
fn measure_once(client: &mut Client, statement: &str) -> (f64, f64) {
    let without = with_burning(statement, false);
    let base = explain_nodes(client, &without, "ANALYZE, BUFFERS OFF, FORMAT JSON");
    let burning = with_burning(statement, true);
    let ((nodes, elapsed_ms), burned_ms) = burn::during(client, |client| measure_elapsed(client, &burning));
    let base = at_the_speed_of(&base, burned_ms, elapsed_ms);
    assert_eq!(nodes[1].operation, "Seq Scan", "{nodes:#?}");
    let truth = burned_ms + base[1].total_ms.expect("the base is timed");
    let of = |ms: Option<f64>| ms.expect("it is timed") / truth;
    (of(nodes[1].total_ms), of(nodes[1].error_ms))
}

fn are_honest(name: &str, shapes: &[(u32, u32)], runs: usize) {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    let mut client = server.session();
    burn::create(&mut client);
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM (FREEZE, ANALYZE) n",
    );
    for (each, mean_ns) in shapes {
        let [short, long] =
            [0.1, 0.1 + 0.9 * f64::from(*each)].map(|part| part * f64::from(*mean_ns) / 1000.0);
        let statement = format!(
            "SELECT count(*) FROM n WHERE {{burn CASE WHEN id % {each} = 0 THEN {long} ELSE {short} END}}"
        );
        let found: Vec<_> = (0..runs).map(|_| measure_once(&mut client, &statement)).collect();
        let dishonest: Vec<_> = found
            .iter()
            .filter(|(estimate, error)| (estimate - 1.0).abs() > OF_TRUTH + 3.0 * error)
            .collect();
        let mean = found.iter().map(|(estimate, _)| estimate).sum::<f64>() / runs as f64;
        println!(
            "{long} us each {each}th call: mean {mean:.3} of the truth, dishonest {dishonest:.2?}\n{found:.2?}"
        );
        assert!(dishonest.len() as f64 <= MAX_DISHONEST * runs as f64);
        assert!((mean - 1.0).abs() <= MAX_BIAS);
    }
}

#[test]
fn rare_long_calls_have_an_honest_error_timing() {
    are_honest("rare-calls", &SHAPES[1..2], 20);
}

#[test]
fn rare_long_calls_of_all_kinds_have_an_honest_error_timing_long() {
    are_honest("rare-calls-long", &SHAPES, 50);
}
