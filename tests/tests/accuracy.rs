//! Compares sampled with known time, on the adversarial plans of design 3.5 (`rowsource_tests::adversarial`).
//! The bound is loose, because the machine is shared; the pure crate has tight bounds, on a simulated clock.
//!
//! The machine may change its speed at any time. So each round measures the true times again: core's times of
//! the statement without burning, scaled to the time that the measured run took except for burning, by the
//! client's clock.

use postgres::Client;
use rowsource_tests::adversarial::{CASES, Case, ROWS, at_the_speed_of, create_tables, ratios, with_burning};
use rowsource_tests::explain::explain_nodes;
use rowsource_tests::measured::{assert_consistent_times, measure_elapsed};
use rowsource_tests::session::run_each;
use rowsource_tests::verdict::{Limit, Trial, Verdict, Verdicts};
use rowsource_tests::{Server, burn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The relative error that is too much. An estimate without the timer, or with wrong weights, is off by a
/// half or more. The truth itself is off by up to 0.17 where reading the clock takes 20 ns: core's times,
/// which are a part of it, then count a fifth too much for nodes with cheap rows, and so too little for
/// others.
const BOUND: f64 = 0.25;

/// The ratios of estimate and truth of each node, by its name, in one run.
type Ratios = BTreeMap<String, f64>;

/// Measures a case once. Of nodes with the same name, the one that is farthest from the truth counts.
fn measure_once(client: &mut Client, case: &Case) -> Ratios {
    let (without_burning, statement) = (
        with_burning(case.statement, false),
        with_burning(case.statement, true),
    );
    let base = explain_nodes(client, &without_burning, "ANALYZE, BUFFERS OFF, FORMAT JSON");
    let ((nodes, elapsed_ms), burned_ms) = burn::during(client, |client| measure_elapsed(client, &statement));
    assert_eq!(nodes.len(), base.len(), "{}: another plan: {nodes:#?}", case.name);
    assert_consistent_times(&nodes, case.name);
    let base = at_the_speed_of(&base, burned_ms, elapsed_ms);
    let mut found = Ratios::new();
    for (name, ratio) in ratios(case, &nodes, &base, burned_ms) {
        let farthest = found.entry(name).or_insert(ratio);
        if (ratio - 1.0).abs() > (*farthest - 1.0).abs() {
            *farthest = ratio;
        }
    }
    found
}

/// Returns a comparison for each node that any run has. Each round is two runs, whose difference is the
/// control. A node that burns nothing is in a run only if it got too much time.
fn trials(case: &Case, rounds: &[[Ratios; 2]]) -> Vec<Trial> {
    let names: BTreeSet<&String> = rounds.iter().flatten().flat_map(Ratios::keys).collect();
    let of_node = |name: &String| {
        let mut trial = Trial::of_ratios(
            format!("{}: {name}, estimate / truth", case.name),
            Limit::Within(1.0 - BOUND, 1.0 + BOUND),
        );
        for round in rounds {
            let [first, second] = round.each_ref().map(|run| run.get(name).copied().unwrap_or(1.0));
            trial.add((first * second).sqrt(), second / first);
        }
        trial
    };
    names.into_iter().map(of_node).collect()
}

/// Compares these cases, with tables of which the largest has this number of rows.
fn compare<'a>(name: &str, rows: u32, rounds: RangeInclusive<usize>, cases: impl Iterator<Item = &'a Case>) {
    let server = Server::preloaded(name, &["shared_buffers = '512MB'", "work_mem = '128MB'"]);
    burn::create(&mut server.connect());
    create_tables(&mut server.connect(), rows);
    let mut verdicts = Verdicts::default();
    for case in cases {
        let mut client = server.session();
        run_each(
            &mut client,
            "SET max_parallel_workers_per_gather = 0; SET jit = off",
        );
        run_each(&mut client, case.settings);
        // Fills the caches.
        run_each(&mut client, &with_burning(case.statement, false));
        let mut found = Vec::new();
        let mut trials = Vec::new();
        while found.len() < *rounds.end() {
            found.push([0, 1].map(|_| measure_once(&mut client, case)));
            trials = self::trials(case, &found);
            let is_clear = |trial: &Trial| trial.verdict() != Verdict::Undecided;
            if found.len() >= *rounds.start() && trials.iter().all(is_clear) {
                break;
            }
        }
        for trial in &trials {
            verdicts.add(trial);
        }
    }
    verdicts.finish();
}

/// Calls of equal length, long calls that only the timer finds, and an inner side that is started often.
#[test]
fn sampled_time_is_close_to_known_time_timing() {
    const FEW: [&str; 3] = [
        "many rows out of a costly filter",
        "20 ms each 10,000th row",
        "inner side called twice a loop",
    ];
    let cases = CASES.iter().filter(|case| FEW.contains(&case.name));
    compare("accuracy", ROWS / 20, 8..=12, cases);
}

#[test]
fn sampled_time_is_close_to_known_time_timing_long() {
    compare("accuracy-long", ROWS, 8..=12, CASES.iter());
}
