//! Every node's operation, starts, rows, blocks and WAL are equal to the counts of core's EXPLAIN (ANALYZE,
//! BUFFERS, WAL), and `pg_rowsource.explain` changes nothing in EXPLAIN's output but times.
//!
//! Each side of a comparison is a session of its own. Both did exactly the same before (same settings, newly
//! created tables, same warm-up), so caches, local buffers and relation sizes are equal, and the counters
//! must be equal too.
//!
//! A parallel plan divides its work by chance, and some counters depend on it (a worker that found no work
//! never looks up a function). So such a plan is compared three times. If the leader does all of the work, or
//! one worker does, everything must be equal. If the processes divide it freely, each of several runs must
//! meet the rules that hold in every run (`differences_from_runs`).

use rowsource_tests::cases::{self, Case};
use rowsource_tests::explain::{self, all_options, explain_json, nodes_of};
use rowsource_tests::session::{major, run_each};
use rowsource_tests::shape::{Division, shape_differences};
use rowsource_tests::warm_up::warmed_up;
use rowsource_tests::{
    MeasuredNode, NodeCounts, Server, differences, differences_from_runs, measure, schema,
};
use rowsource_tests::{facts, fold};
use std::sync::{Mutex, PoisonError};

/// How many runs of pg_rowsource are compared, each by itself, if the work is divided by chance.
const RUNS: usize = 2;
/// The maximum number of core's runs that they are compared with. Core runs again if something differs.
const MAX_CORE_RUNS: usize = 25;
/// The maximum number of processes: the leader and its workers.
const PROCESSES: u64 = 3;

/// How the processes of a plan divide its work, and the settings for it.
#[derive(Clone, Copy)]
struct Mode {
    division: Division,
    settings: &'static str,
}

const SERIAL: &[Mode] = &[Mode {
    division: Division::None,
    settings: "",
}];
const PARALLEL: &[Mode] = &[
    Mode {
        division: Division::OneOfSeveral,
        settings: "SET max_parallel_workers = 0",
    },
    Mode {
        division: Division::OneOfSeveral,
        settings: "SET max_parallel_workers = 1; SET parallel_leader_participation = off",
    },
    Mode {
        division: Division::ByChance,
        settings: "",
    },
];

/// Returns whether core is compared with itself, as requested in the environment. This shows whether a case's
/// counters are repeatable.
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

/// Opens a session and prepares it for the compared run.
fn prepared_session(server: &Server, case: &Case, mode: Mode) -> postgres::Client {
    let client = if self_test() {
        server.connect()
    } else {
        server.session()
    };
    warmed_up(client, case, mode.settings)
}

/// Does the same with a measured warm-up, so that the compared run is not the plan's first.
fn measuring_session(server: &Server, case: &Case, mode: Mode) -> postgres::Client {
    let mut client = server.session();
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    let mut client = warmed_up(client, case, mode.settings);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

fn core_counts(server: &Server, case: &Case, mode: Mode) -> Vec<NodeCounts> {
    let mut client = prepared_session(server, case, mode);
    let nodes = explain::core_counts(&mut client, case.statement);
    for expected in case.expects {
        let found = nodes.iter().any(|node| node.operation == *expected);
        let plan: Vec<&str> = nodes.iter().map(|node| node.operation.as_str()).collect();
        assert!(found, "{}: no {expected} in its plan: {plan:?}", case.name);
    }
    fold::folded(&mut client, nodes)
}

fn measured_counts(server: &Server, case: &Case, mode: Mode) -> Vec<MeasuredNode> {
    measure(&mut measuring_session(server, case, mode), case.statement)
}

/// Repeats a run that should use one process, until only one did all of the work. If a worker ends early,
/// another one can start in its place.
fn by_one_process<T>(mode: Mode, run: impl Fn() -> T, starts: impl Fn(&T) -> Vec<(String, u64)>) -> T {
    const TRIES: usize = 20;
    let one = |ran: &T| {
        starts(ran)
            .windows(2)
            .all(|pair| !pair[0].0.starts_with("Gather") || pair[1].1 <= pair[0].1)
    };
    (0..TRIES)
        .map(|_| run())
        .find(|ran| mode.division != Division::OneOfSeveral || one(ran))
        .expect("a run that only one process did")
}

fn core_starts(nodes: &[NodeCounts]) -> Vec<(String, u64)> {
    let starts = nodes.iter().map(|node| (node.operation.clone(), node.loops));
    starts.collect()
}

fn measured_starts(nodes: &[MeasuredNode]) -> Vec<(String, u64)> {
    let starts = nodes
        .iter()
        .map(|node| (node.operation.clone(), node.starts.unwrap_or(0) as u64));
    starts.collect()
}

/// Returns the differences between pg_rowsource's runs and core's. If the work is divided by chance, it
/// compares several runs, and runs core again as long as something differs. If one process should do all, the
/// server may have had no free worker: then a new pair is compared, at most twice.
fn compare<C, O>(
    case: &Case,
    core: impl Fn(Mode) -> C,
    measured: impl Fn(Mode) -> O,
    differences: impl Fn(Division, &[C], &O) -> Vec<String>,
) -> Vec<String> {
    let compare_mode = |&mode: &Mode| {
        let (runs, max_core_runs) = match mode.division {
            Division::ByChance => (RUNS, MAX_CORE_RUNS),
            _ => (1, 1),
        };
        let mut core_runs = Vec::new();
        let mut measured_runs = Vec::new();
        for _ in 0..runs {
            core_runs.push(core(mode));
            measured_runs.push(measured(mode));
        }
        let mut pairs = 1;
        loop {
            let each = measured_runs.iter();
            let found: Vec<String> = each
                .flat_map(|measured| differences(mode.division, &core_runs, measured))
                .map(|difference| format!("{} {difference}", mode.settings))
                .collect();
            if found.is_empty()
                || core_runs.len() >= max_core_runs && (mode.division != Division::OneOfSeveral || pairs == 3)
            {
                return found;
            }
            if mode.division == Division::OneOfSeveral {
                (core_runs, measured_runs) = (vec![core(mode)], vec![measured(mode)]);
                pairs += 1;
            } else {
                core_runs.push(core(mode));
            }
        }
    };
    let modes = if case.parallel { PARALLEL } else { SERIAL };
    modes.iter().flat_map(compare_mode).collect()
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
    let seen: Mutex<(Vec<String>, i32)> = Mutex::default();
    let note = |server: &Server, nodes: &[NodeCounts]| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.1 == 0 {
            seen.1 = major(&mut server.connect());
        }
        let known = nodes.iter().flat_map(|node| facts::known(&node.facts));
        seen.0.extend(known.cloned());
    };
    compare_all("equality", |server, case| {
        let core = |mode| {
            by_one_process(
                mode,
                || core_counts(server, case, mode),
                |nodes| core_starts(nodes),
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
        let measured = |mode| {
            by_one_process(
                mode,
                || measured_counts(server, case, mode),
                |nodes| measured_starts(nodes),
            )
        };
        compare(case, core, measured, |division, core, measured| {
            note(server, &core[0]);
            match division {
                Division::ByChance => differences_from_runs(core, measured, PROCESSES),
                _ => differences(&core[0], measured),
            }
        })
    });
    let (seen, major) = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    if std::env::var_os("ROWSOURCE_CASE").is_none() && !self_test() {
        assert_eq!(
            facts::missing(&seen, major),
            Vec::<&str>::new(),
            "facts that no case has"
        );
    }
}

#[test]
fn explain_keeps_its_shape_and_counts() {
    const OPTIONS: &str = "ANALYZE, BUFFERS, WAL, FORMAT JSON";
    if self_test() {
        return;
    }
    compare_all("explain-shape", |server, case| {
        let options = all_options(&mut server.connect(), OPTIONS);
        let explained = |mode: Mode, explain: &str| {
            let run = || {
                let mut client = prepared_session(server, case, mode);
                run_each(&mut client, &format!("SET pg_rowsource.explain = {explain}"));
                explain_json(&mut client, case.statement, &options)
            };
            by_one_process(mode, run, |json| core_starts(&nodes_of(json)))
        };
        let core = |mode| explained(mode, "off");
        let measured = |mode| explained(mode, "on");
        compare(case, core, measured, |division, core, measured| {
            let each = core
                .iter()
                .map(|core| shape_differences(core, measured, division, ""));
            each.min_by_key(Vec::len).unwrap_or_default()
        })
    });
}
