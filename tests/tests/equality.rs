//! Every node's operation, starts, rows, blocks and WAL are equal to what core's EXPLAIN (ANALYZE,
//! BUFFERS, WAL) counts, and `pg_rowsource.explain` changes nothing in EXPLAIN's output but times.
//!
//! Both sides of a comparison are a session of their own that did exactly the same before (same
//! settings, same tables made anew, same warming up), so that caches, local buffers and relation
//! sizes are equal, and equal counters are due.
//!
//! How a parallel plan divides its work is chance, and with it some counters (a worker that found no
//! work never looks up a function). So for those both sides are run again until one of our results
//! equals one of core's in everything. A wrong count would never be met.

use rowsource_tests::cases::{self, Case};
use rowsource_tests::explain::{COUNTS, describe, explain_json, nodes_of};
use rowsource_tests::session::run_each;
use rowsource_tests::shape::shape_differences;
use rowsource_tests::{MeasuredNode, NodeCounts, Server, differences, explain_nodes, measure, schema};

/// How often a parallel plan may be tried.
const PARALLEL_TRIES: usize = 25;

/// With this in the environment core is compared with itself: shows whether a case is fit for comparison.
fn self_test() -> bool {
    std::env::var_os("ROWSOURCE_SELF_TEST").is_some()
}

fn server(name: &str) -> Server {
    let server = if self_test() {
        Server::start(name, &[])
    } else {
        Server::preloaded(name, &[])
    };
    schema::create(&server);
    server
}

/// A session that has come to the point just before the run that counts.
fn prepared_session(server: &Server, case: &Case) -> postgres::Client {
    let client = if self_test() {
        server.connect()
    } else {
        server.session()
    };
    warmed_up(client, case)
}

/// One whose warming up was measured too, so that the run that counts is not the plan's first.
fn measuring_session(server: &Server, case: &Case) -> postgres::Client {
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let mut client = warmed_up(client, case);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

fn warmed_up(mut client: postgres::Client, case: &Case) -> postgres::Client {
    run_each(&mut client, case.settings);
    if !case.reset.is_empty() {
        // Once for nothing, so that the catalogues' pages are in memory on both sides.
        run_each(&mut client, case.reset);
        run(&mut client, case.statement);
        run_each(&mut client, case.reset);
    }
    // Naming everything in the plan fills the catalogue caches in the same way on both sides.
    run(&mut client, &format!("EXPLAIN (VERBOSE) {}", case.statement));
    if case.reset.is_empty() {
        for _ in 0..2 {
            run(&mut client, case.statement);
        }
    }
    client
}

fn run(client: &mut postgres::Client, sql: &str) {
    client
        .simple_query(sql)
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
}

fn core_counts(server: &Server, case: &Case) -> Vec<NodeCounts> {
    let nodes = explain_nodes(&mut prepared_session(server, case), case.statement, COUNTS);
    for expected in case.expects {
        let found = nodes.iter().any(|node| node.operation == *expected);
        let plan: Vec<&str> = nodes.iter().map(|node| node.operation.as_str()).collect();
        assert!(found, "{}: no {expected} in its plan: {plan:?}", case.name);
    }
    nodes
}

fn our_counts(server: &Server, case: &Case) -> Vec<MeasuredNode> {
    measure(&mut measuring_session(server, case), case.statement)
}

/// What differs in every pairing of our runs with core's; empty as soon as one pair is equal.
fn compare(case: &Case, mut difference: impl FnMut() -> Vec<String>) -> Vec<String> {
    let tries = if case.parallel { PARALLEL_TRIES } else { 1 };
    let mut last = Vec::new();
    for _ in 0..tries {
        last = difference();
        if last.is_empty() {
            break;
        }
    }
    last
}

fn report(failures: Vec<(&str, Vec<String>)>, compared: usize) {
    let text: String = failures
        .iter()
        .map(|(name, differences)| format!("{name}\n    {}\n", differences.join("\n    ")))
        .collect();
    println!("{} of {compared} statements equal", compared - failures.len());
    assert!(
        failures.is_empty(),
        "{} of {compared} statements differ:\n{text}",
        failures.len()
    );
}

/// Runs one comparison for every case and collects the failures, panics included.
fn compare_all(name: &str, compare_case: impl Fn(&Server, &Case) -> Vec<String> + std::panic::RefUnwindSafe) {
    let server = server(name);
    let only = std::env::var("ROWSOURCE_CASE").unwrap_or_default();
    let mut compared = 0;
    let mut failures = Vec::new();
    for case in cases::all().filter(|case| case.name.contains(&only)) {
        compared += 1;
        let attempt = std::panic::AssertUnwindSafe(|| compare_case(&server, case));
        let differences = std::panic::catch_unwind(attempt).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            vec![
                text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                    .unwrap_or_default(),
            ]
        });
        if !differences.is_empty() {
            failures.push((case.name, differences));
        }
    }
    report(failures, compared);
}

#[test]
fn every_node_counts_what_core_counts() {
    compare_all("equality", |server, case| {
        let (mut core, mut ours) = (Vec::new(), Vec::new());
        compare(case, || {
            core.push(core_counts(server, case));
            if self_test() {
                let again = core_counts(server, case);
                let equal = core.contains(&again);
                return if equal {
                    Vec::new()
                } else {
                    vec![format!("{:#?}\n{again:#?}", core[0])]
                };
            }
            ours.push(our_counts(server, case));
            let mut least: Option<Vec<String>> = None;
            for (core, ours) in core
                .iter()
                .flat_map(|core| ours.iter().map(move |ours| (core, ours)))
            {
                let found = differences(core, ours);
                if least.as_ref().is_none_or(|least| found.len() < least.len()) {
                    least = Some(found);
                }
            }
            least.unwrap_or_default()
        })
    });
}

#[test]
fn explain_keeps_its_shape_and_counts() {
    const OPTIONS: &str = "ANALYZE, BUFFERS, WAL, FORMAT JSON";
    if self_test() {
        return;
    }
    compare_all("explain-shape", |server, case| {
        let mut core = Vec::new();
        compare(case, || {
            core.push(explain_json(
                &mut prepared_session(server, case),
                case.statement,
                OPTIONS,
            ));
            let mut client = prepared_session(server, case);
            run_each(&mut client, "SET pg_rowsource.explain = on");
            let ours = explain_json(&mut client, case.statement, OPTIONS);
            assert!(!nodes_of(&ours).is_empty());
            core.iter()
                .map(|core| shape_differences(core, &ours, case.parallel, ""))
                .min_by_key(Vec::len)
                .unwrap_or_default()
        })
    });
}
