//! Compares sampled with known time, on the adversarial plans of design 3.5 (`rowsource_tests::adversarial`). The bound is
//! loose, because the machine is shared; the pure crate has tight bounds, on a simulated clock.
//!
//! The machine may change its speed at any time. So each round measures the true times again: core's times of the statement
//! without burning, scaled to the time that the measured run took except for burning, by the client's clock.

use rowsource_tests::adversarial::{CASES, at_the_speed_of, create_tables, ratios, with_burning};
use rowsource_tests::explain::explain_nodes;
use rowsource_tests::measured::{assert_consistent_times, measure_elapsed};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::median;
use rowsource_tests::{Server, burn};
use std::collections::BTreeMap;

const ROUNDS: usize = 5;
/// The maximum relative error of the median over the rounds.
const BOUND: f64 = 0.10;

#[test]
fn sampled_time_is_close_to_known_time() {
    let server = Server::preloaded("accuracy", &["shared_buffers = '512MB'", "work_mem = '128MB'"]);
    burn::create(&mut server.connect());
    create_tables(&mut server.connect());
    let mut failures = Vec::new();
    println!(
        "{:<34} {:<26} {:>6}   {ROUNDS} rounds",
        "estimate / truth", "node", "median"
    );
    for case in CASES {
        let mut client = server.session();
        run_each(
            &mut client,
            "SET max_parallel_workers_per_gather = 0; SET jit = off",
        );
        run_each(&mut client, case.settings);
        let without_burning = with_burning(case.statement, false);
        let statement = with_burning(case.statement, true);
        // Fills the caches.
        run_each(&mut client, &without_burning);
        let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let base = explain_nodes(&mut client, &without_burning, "ANALYZE, BUFFERS OFF, FORMAT JSON");
            let _: f64 = value(&mut client, "SELECT burned()");
            let (nodes, elapsed_ms) = measure_elapsed(&mut client, &statement);
            let burned_ms = value(&mut client, "SELECT burned()");
            assert_eq!(nodes.len(), base.len(), "{}: another plan: {nodes:#?}", case.name);
            assert_consistent_times(&nodes, case.name);
            let base = at_the_speed_of(&base, burned_ms, elapsed_ms);
            for (name, ratio) in ratios(case, &nodes, &base, burned_ms) {
                found.entry(name).or_default().push(ratio);
            }
        }
        for (name, ratios) in found {
            // A node that burns nothing is listed only if it got too much time.
            if ratios.len() <= ROUNDS / 2 {
                continue;
            }
            let middle = median(&ratios);
            println!("{:<34} {name:<26} {middle:>6.3}   {ratios:.2?}", case.name);
            if (middle - 1.0).abs() > BOUND {
                failures.push(format!(
                    "{}: {name}: {middle:.3} of the truth {ratios:.2?}",
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
