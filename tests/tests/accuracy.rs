//! Compares sampled with known time, on the adversarial plans of design 3.5 (`rowsource_tests::adversarial`). The bound is
//! loose, because the machine is shared; the pure crate has tight bounds, on a simulated clock. A median becomes only more
//! accurate with more rounds. So rounds continue until all are within the bound, or the rounds are used up.
//!
//! The machine may change its speed at any time. So each round measures the true times again: core's times of the statement
//! without burning, scaled to the time that the measured run took except for burning, by the client's clock.

use postgres::Client;
use rowsource_tests::adversarial::{CASES, Case, at_the_speed_of, create_tables, ratios, with_burning};
use rowsource_tests::explain::explain_nodes;
use rowsource_tests::measured::{assert_consistent_times, measure_elapsed};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::median;
use rowsource_tests::{Server, burn};
use std::collections::BTreeMap;

const MIN_ROUNDS: usize = 3;
const MAX_ROUNDS: usize = 9;
/// The maximum relative error of the median over the rounds. The truth itself is off by up to 0.17 where reading the clock takes
/// 20 ns: core's times, which are a part of it, then count a fifth too much for nodes with cheap rows, and so too little for others.
const BOUND: f64 = 0.25;

/// The ratios of estimate and truth of each node, by its name, one for each round.
type Ratios = BTreeMap<String, Vec<f64>>;

/// Returns the medians of the nodes that most rounds have. A node that burns nothing is in a round only if it got too much time.
fn medians(found: &Ratios, rounds: usize) -> BTreeMap<&str, f64> {
    let in_most = found.iter().filter(|(_, ratios)| 2 * ratios.len() > rounds);
    in_most
        .map(|(name, ratios)| (name.as_str(), median(ratios)))
        .collect()
}

/// Adds a round of a case.
fn measure_once(client: &mut Client, case: &Case, found: &mut Ratios) {
    let (without_burning, statement) = (
        with_burning(case.statement, false),
        with_burning(case.statement, true),
    );
    let base = explain_nodes(client, &without_burning, "ANALYZE, BUFFERS OFF, FORMAT JSON");
    let ((nodes, elapsed_ms), burned_ms) = burn::during(client, |client| measure_elapsed(client, &statement));
    assert_eq!(nodes.len(), base.len(), "{}: another plan: {nodes:#?}", case.name);
    assert_consistent_times(&nodes, case.name);
    let base = at_the_speed_of(&base, burned_ms, elapsed_ms);
    for (name, ratio) in ratios(case, &nodes, &base, burned_ms) {
        found.entry(name).or_default().push(ratio);
    }
}

#[test]
fn sampled_time_is_close_to_known_time_timing() {
    let server = Server::preloaded("accuracy", &["shared_buffers = '512MB'", "work_mem = '128MB'"]);
    burn::create(&mut server.connect());
    create_tables(&mut server.connect());
    let mut failures = Vec::new();
    println!("{:<34} {:<26} {:>6}", "estimate / truth", "node", "median");
    for case in CASES {
        let mut client = server.session();
        run_each(
            &mut client,
            "SET max_parallel_workers_per_gather = 0; SET jit = off",
        );
        run_each(&mut client, case.settings);
        // Fills the caches.
        run_each(&mut client, &with_burning(case.statement, false));
        let is_off = |median: f64| (median - 1.0).abs() > BOUND;
        let mut found = Ratios::new();
        for round in 1..=MAX_ROUNDS {
            measure_once(&mut client, case, &mut found);
            if round >= MIN_ROUNDS && !medians(&found, round).into_values().any(is_off) {
                break;
            }
        }
        let rounds = found.values().map(Vec::len).max().unwrap_or(0);
        for (name, median) in medians(&found, rounds) {
            let ratios = &found[name];
            println!("{:<34} {name:<26} {median:>6.3}   {ratios:.2?}", case.name);
            if is_off(median) {
                failures.push(format!(
                    "{}: {name}: {median:.3} of the truth {ratios:.2?}",
                    case.name
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "off by more than {BOUND}:\n{}",
        failures.join("\n")
    );
}
