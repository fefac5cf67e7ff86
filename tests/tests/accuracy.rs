//! Sampled time against known time, on the adversarial plans of design 3.5 (`rowsource_tests::adversarial`). The bound is
//! generous, since the machine is shared; the tight ones are in the pure crate, on a clock of its own.

use rowsource_tests::adversarial::{CASES, base_times, create_tables, ratios, with_burning};
use rowsource_tests::measured::assert_consistent_times;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::median;
use rowsource_tests::{Server, burn, measure};

const RUNS: usize = 5;
/// How far the median over the runs may be from the truth.
const BOUND: f64 = 0.15;

#[test]
fn sampled_time_is_close_to_known_time() {
    let server = Server::preloaded("accuracy", &["shared_buffers = '512MB'", "work_mem = '128MB'"]);
    burn::create(&mut server.connect());
    create_tables(&mut server.connect());
    let mut failures = Vec::new();
    println!(
        "{:<34} {:<26} {:>6}   five runs",
        "estimate / truth", "node", "median"
    );
    for case in CASES {
        let mut client = server.session();
        run_each(
            &mut client,
            "SET max_parallel_workers_per_gather = 0; SET jit = off",
        );
        run_each(&mut client, case.settings);
        let base_statement = with_burning(case.statement, false);
        let base = base_times(&mut client, &base_statement);
        let statement = with_burning(case.statement, true);
        let mut runs: Vec<Vec<(String, f64)>> = Vec::new();
        for _ in 0..RUNS {
            let _: f64 = value(&mut client, "SELECT burned()");
            let nodes = measure(&mut client, &statement);
            let burned_ms = value(&mut client, "SELECT burned()");
            assert_eq!(nodes.len(), base.len(), "{}: another plan: {nodes:#?}", case.name);
            assert_consistent_times(&nodes, case.name);
            runs.push(ratios(case, &nodes, &base, burned_ms));
        }
        let names: std::collections::BTreeSet<&String> =
            runs.iter().flatten().map(|(name, _)| name).collect();
        for name in names {
            let values: Vec<f64> = runs
                .iter()
                .flatten()
                .filter(|(of, _)| of == name)
                .map(|&(_, ratio)| ratio)
                .collect();
            if values.len() <= RUNS / 2 {
                continue;
            }
            let middle = median(&values);
            println!("{:<34} {name:<26} {middle:>6.3}   {values:.2?}", case.name);
            if (middle - 1.0).abs() > BOUND {
                failures.push(format!(
                    "{}: {name}: {middle:.3} of the truth {values:.2?}",
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
