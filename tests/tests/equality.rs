//! Every node's operation, starts, rows, blocks and WAL are equal to what core's EXPLAIN (ANALYZE,
//! BUFFERS, WAL) counts, and `pg_rowsource.explain` changes nothing in EXPLAIN's output but times.
//!
//! Both sides of a comparison are a session of their own that did exactly the same before (same
//! settings, same tables made anew, same warming up), so that caches, local buffers and relation
//! sizes are equal, and equal counters are due.
//!
//! How a parallel plan divides its work is chance, and with it some counters (a worker that found no
//! work never looks up a function). So such a plan is compared three times: where the leader does all of
//! it, and where one worker does, everything must be equal; where the processes divide it as they like,
//! each of several runs must have what holds in each (`differences_from_runs`).

use rowsource_tests::cases::{self, Case};
use rowsource_tests::explain::{COUNTS, describe, explain_json, nodes_of};
use rowsource_tests::session::run_each;
use rowsource_tests::shape::{Division, shape_differences};
use rowsource_tests::{
    MeasuredNode, NodeCounts, Server, differences, differences_from_runs, explain_nodes, measure, schema,
};

/// How many runs of ours are compared, each by itself, where the work is divided by chance.
const RUNS: usize = 4;
/// How many runs of core's they are compared with, at most: it is run again where something differs.
const MOST_CORE_RUNS: usize = 25;
/// The leader and its workers, at most.
const PROCESSES: u64 = 3;

/// How the work of a parallel plan is divided among its processes, and the settings for it.
#[derive(Clone, Copy)]
struct Way {
    division: Division,
    settings: &'static str,
}

const SERIAL: &[Way] = &[Way {
    division: Division::None,
    settings: "",
}];
const PARALLEL: &[Way] = &[
    Way {
        division: Division::OneOfSeveral,
        settings: "SET max_parallel_workers = 0",
    },
    Way {
        division: Division::OneOfSeveral,
        settings: "SET max_parallel_workers = 1; SET parallel_leader_participation = off",
    },
    Way {
        division: Division::ByChance,
        settings: "",
    },
];

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
fn prepared_session(server: &Server, case: &Case, way: Way) -> postgres::Client {
    let client = if self_test() {
        server.connect()
    } else {
        server.session()
    };
    warmed_up(client, case, way)
}

/// One whose warming up was measured too, so that the run that counts is not the plan's first.
fn measuring_session(server: &Server, case: &Case, way: Way) -> postgres::Client {
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let mut client = warmed_up(client, case, way);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

fn warmed_up(mut client: postgres::Client, case: &Case, way: Way) -> postgres::Client {
    run_each(&mut client, case.settings);
    run_each(&mut client, way.settings);
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

fn core_counts(server: &Server, case: &Case, way: Way) -> Vec<NodeCounts> {
    let nodes = explain_nodes(&mut prepared_session(server, case, way), case.statement, COUNTS);
    for expected in case.expects {
        let found = nodes.iter().any(|node| node.operation == *expected);
        let plan: Vec<&str> = nodes.iter().map(|node| node.operation.as_str()).collect();
        assert!(found, "{}: no {expected} in its plan: {plan:?}", case.name);
    }
    nodes
}

fn our_counts(server: &Server, case: &Case, way: Way) -> Vec<MeasuredNode> {
    measure(&mut measuring_session(server, case, way), case.statement)
}

/// Runs again what should be done by one process and was not: a worker that is done before the next one is asked for
/// makes room for it.
fn by_one_process<T>(way: Way, run: impl Fn() -> T, starts: impl Fn(&T) -> Vec<(String, u64)>) -> T {
    const TRIES: usize = 20;
    let one = |ran: &T| {
        starts(ran)
            .windows(2)
            .all(|pair| !pair[0].0.starts_with("Gather") || pair[1].1 <= pair[0].1)
    };
    (0..TRIES)
        .map(|_| run())
        .find(|ran| way.division != Division::OneOfSeveral || one(ran))
        .expect("a run of one process")
}

fn starts_of_core(nodes: &[NodeCounts]) -> Vec<(String, u64)> {
    let starts = nodes.iter().map(|node| (node.operation.clone(), node.loops));
    starts.collect()
}

fn starts_of_ours(nodes: &[MeasuredNode]) -> Vec<(String, u64)> {
    let starts = nodes
        .iter()
        .map(|node| (node.operation.clone(), node.starts.unwrap_or(0) as u64));
    starts.collect()
}

/// What differs between each of our runs and core's: one and one, or several where the work is divided by chance; then core
/// is run again as long as something differs. Where one process should do all, the server may have had no worker to
/// spare just then: the same pair is compared anew, twice.
fn compare<C, O>(
    case: &Case,
    core: impl Fn(Way) -> C,
    ours: impl Fn(Way) -> O,
    differences: impl Fn(Division, &[C], &O) -> Vec<String>,
) -> Vec<String> {
    let compare_way = |&way: &Way| {
        let (runs, most) = match way.division {
            Division::ByChance => (RUNS, MOST_CORE_RUNS),
            _ => (1, 1),
        };
        let mut of_core = Vec::new();
        let mut of_ours = Vec::new();
        for _ in 0..runs {
            of_core.push(core(way));
            of_ours.push(ours(way));
        }
        let mut pairs = 1;
        loop {
            let each = of_ours.iter();
            let found: Vec<String> = each
                .flat_map(|ours| differences(way.division, &of_core, ours))
                .map(|difference| format!("{} {difference}", way.settings))
                .collect();
            if found.is_empty()
                || of_core.len() >= most && (way.division != Division::OneOfSeveral || pairs == 3)
            {
                return found;
            }
            if way.division == Division::OneOfSeveral {
                (of_core, of_ours) = (vec![core(way)], vec![ours(way)]);
                pairs += 1;
            } else {
                of_core.push(core(way));
            }
        }
    };
    let ways = if case.parallel { PARALLEL } else { SERIAL };
    ways.iter().flat_map(compare_way).collect()
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
        let core = |way| {
            by_one_process(
                way,
                || core_counts(server, case, way),
                |nodes| starts_of_core(nodes),
            )
        };
        if self_test() {
            return compare(
                case,
                core,
                core,
                |_, core: &[Vec<NodeCounts>], again| match core.contains(again) {
                    true => Vec::new(),
                    false => vec![format!("{:#?}\n{again:#?}", core[0])],
                },
            );
        }
        let ours = |way| {
            by_one_process(
                way,
                || our_counts(server, case, way),
                |nodes| starts_of_ours(nodes),
            )
        };
        compare(case, core, ours, |division, core, ours| match division {
            Division::ByChance => differences_from_runs(core, ours, PROCESSES),
            _ => differences(&core[0], ours),
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
        let explained = |way: Way, explain: &str| {
            let run = || {
                let mut client = prepared_session(server, case, way);
                run_each(&mut client, &format!("SET pg_rowsource.explain = {explain}"));
                explain_json(&mut client, case.statement, OPTIONS)
            };
            by_one_process(way, run, |json| starts_of_core(&nodes_of(json)))
        };
        let core = |way| explained(way, "off");
        let ours = |way| explained(way, "on");
        compare(case, core, ours, |division, core, ours| {
            let each = core
                .iter()
                .map(|core| shape_differences(core, ours, division, ""));
            each.min_by_key(Vec::len).unwrap_or_default()
        })
    });
}
