//! TPC-H's queries with parallel query off and on, also compared with EXPLAIN (ANALYZE): all peers over small
//! tables, and few at scale factor 1.

use super::hosts::{HOSTS, Host, Hosts, SHORT_STATEMENT_HOSTS, VARIANTS};
use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{Series, interleave, ratios_to_first};
use crate::measure::session::{Elapsed, Session};
use crate::measure::tpch;
use crate::measure::tpch_queries::QUERIES;
use crate::model::chart::{BarChart, BarSeries};
use crate::model::check::Goal;
use crate::model::spread::{ratio, spread};
use crate::model::table::Table;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::value;
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};

const SETTINGS: [&str; 4] = [
    SHIPPED,
    "shared_buffers = '512MB'",
    "jit = off",
    "work_mem = '16MB'",
];

/// The EXPLAIN options that are compared, in sessions of the base's server.
const EXPLAINS: [(&str, &str); 4] = [
    (
        "EXPLAIN, TIMING OFF",
        "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) ",
    ),
    (
        "EXPLAIN, TIMING OFF, BUFFERS",
        "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS ON) ",
    ),
    ("EXPLAIN, TIMING ON", "EXPLAIN (ANALYZE, TIMING ON, BUFFERS OFF) "),
    (
        "EXPLAIN, TIMING ON, BUFFERS",
        "EXPLAIN (ANALYZE, TIMING ON, BUFFERS ON) ",
    ),
];

/// The modes and their settings. The parallel settings also hold for small tables.
const PARALLEL: [(&str, &str); 2] = [
    ("serial", "SET max_parallel_workers_per_gather = 0"),
    (
        "parallel",
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 10; SET parallel_tuple_cost = 0.001;
         SET min_parallel_table_scan_size = '64kB'; SET min_parallel_index_scan_size = '64kB'",
    ),
];

/// One run of all queries.
struct Run {
    queries: Vec<Elapsed>,
    /// The CPU seconds of the parallel workers.
    workers_s: f64,
}

impl Run {
    fn elapsed_s(&self) -> f64 {
        self.queries.iter().map(|elapsed| elapsed.wall_s).sum()
    }

    fn cpu_s(&self) -> f64 {
        self.queries.iter().map(|elapsed| elapsed.cpu_s).sum::<f64>() + self.workers_s
    }
}

/// A session, the text before each of its statements, and the postmaster whose children are its workers.
struct Runner {
    session: Session,
    prefix: &'static str,
    postmaster: u32,
}

impl Runner {
    /// Runs all queries once.
    fn run(&mut self) -> Run {
        let children = cpu::children(self.postmaster);
        let before = cpu::seconds_of_children(self.postmaster);
        let queries = QUERIES
            .iter()
            .map(|query| self.session.time(&format!("{}{}", self.prefix, query.text)))
            .collect();
        cpu::wait_for_children(self.postmaster, children);
        Run {
            queries,
            workers_s: cpu::seconds_of_children(self.postmaster) - before,
        }
    }
}

/// All peers, over small tables.
pub fn run(context: &mut ExperimentContext) {
    let factor = context.sizes.of(10, 50) as f64 / 1000.0;
    let rounds = context.sizes.rounds(1, 5);
    compare(
        context,
        "peers-analytical",
        factor,
        rounds,
        &HOSTS.each_ref(),
        &EXPLAINS,
    );
}

/// The experiment at scale factor 1.
const LARGE: &str = "tpch";

/// What always runs, at scale factor 1. A second server with nothing loaded shows how far two servers differ
/// by themselves.
pub fn run_large(context: &mut ExperimentContext) {
    let factor = context.sizes.of(10, 1000) as f64 / 1000.0;
    let rounds = context.sizes.rounds(1, 3);
    let [bare, rowsource, statements, ..] = &HOSTS;
    let hosts = [bare, &SHORT_STATEMENT_HOSTS[0], rowsource, statements];
    compare(context, LARGE, factor, rounds, &hosts, &EXPLAINS[3..]);
}

fn compare(
    context: &mut ExperimentContext,
    name: &str,
    factor: f64,
    rounds: usize,
    hosts: &[&Host],
    explains: &[(&str, &'static str)],
) {
    context.setting("TPC-H scale factor", factor);
    context.setting("rounds", rounds);
    context.at(0.0, "loading");
    let mut original = Server::start(name, &SETTINGS);
    context.server(&original);
    tpch::load(&mut original.connect(), factor);
    original.stop();
    let hosts = Hosts::start(context, hosts.iter().copied(), &original, &SETTINGS);
    let variants = hosts.variants();
    let mut names = Vec::new();
    let mut runners = Vec::new();
    for &(variant, server) in &variants {
        names.push(variant.name.to_string());
        runners.push(Runner {
            session: variant.session(server),
            prefix: "",
            postmaster: server.postmaster(),
        });
    }
    let (base, server) = variants[0];
    for &(name, prefix) in explains {
        names.push(name.to_string());
        runners.push(Runner {
            session: base.session(server),
            prefix,
            postmaster: server.postmaster(),
        });
    }
    if factor == 1.0 {
        check_rows(context, &mut runners[0].session);
    }
    let mut results: Vec<Vec<Series<Run>>> = Vec::new();
    for (at, (mode, settings)) in PARALLEL.into_iter().enumerate() {
        context.begin_part(0.1 + 0.45 * at as f64, 0.55 + 0.45 * at as f64);
        for runner in &mut runners {
            runner.session.run(settings);
        }
        let gathers = QUERIES
            .iter()
            .filter(|query| {
                let plan = first_column(&mut runners[0].session.client, &format!("EXPLAIN {}", query.text));
                plan.iter().any(|line| line.contains("Gather"))
            })
            .count();
        context.assert_exact(
            format!("{mode}: parallel plans among the {} queries", QUERIES.len()),
            if at == 0 { "none" } else { "at least 5" },
            gathers,
            if at == 0 { gathers == 0 } else { gathers >= 5 },
        );
        results.push(interleave(context, mode, &names, rounds, |variant| {
            runners[variant].run()
        }));
    }
    report(context, name, &names, &results);
}

/// Compares how many rows the queries return with the answers that the benchmark publishes for scale factor
/// 1.
fn check_rows(context: &mut ExperimentContext, session: &mut Session) {
    let rows: Vec<i64> = QUERIES
        .iter()
        .map(|query| {
            value(
                &mut session.client,
                &format!("SELECT count(*) FROM ({}) q", query.text),
            )
        })
        .collect();
    let expected = QUERIES.each_ref().map(|query| query.rows);
    context.assert_exact(
        "rows of each query",
        format!("{expected:?}"),
        format!("{rows:?}"),
        rows == expected,
    );
}

fn report(context: &mut ExperimentContext, name: &str, names: &[String], results: &[Vec<Series<Run>>]) {
    let mut table = Table::new(
        "TPC-H's 22 queries, one after the other",
        "Ratios to nothing loaded; the first line in seconds. CPU time includes the parallel workers (in steps of 10 ms). Least CPU is the \
         sum of each query's least time, which other work disturbs least.",
        &[
            "",
            "serial: CPU",
            "least CPU",
            "elapsed",
            "parallel: CPU",
            "elapsed",
        ],
    );
    let mut lines: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    let mut plotted = Vec::new();
    for (number, ((mode, _), series)) in PARALLEL.iter().zip(results).enumerate() {
        let cpu = ratios_to_first(series, Run::cpu_s);
        let elapsed = ratios_to_first(series, Run::elapsed_s);
        let base_least_cpu_s = least_cpu_s(&series[0]);
        for (at, line) in series.iter().enumerate() {
            context.measured(*mode, &line.name, "CPU s", &line.of(Run::cpu_s));
            context.measured(*mode, &line.name, "elapsed s", &line.of(Run::elapsed_s));
            let [of_cpu, of_elapsed] = match at {
                0 => [Run::cpu_s, Run::elapsed_s].map(|time| format!("{:.3} s", median(&line.of(time)))),
                _ => [cpu[at].as_ratio(), elapsed[at].as_ratio()],
            };
            lines[at].push(of_cpu);
            if number == 0 {
                let least = least_cpu_s(line);
                context.measured(*mode, &line.name, "least CPU s", &[least]);
                lines[at].push(match at {
                    0 => format!("{least:.3} s"),
                    _ => format!("{:.3}", least / base_least_cpu_s),
                });
            }
            lines[at].push(of_elapsed);
            if name == LARGE && line.name == VARIANTS[3].name {
                let what = format!("{mode}: CPU ratio of {}", line.name);
                context.goal(what, &Goal::at_most(1.02), &cpu[at]);
            }
        }
        plotted.push(cpu);
    }
    for line in lines {
        table.row(line);
    }
    context.table(table);
    context.plot(BarChart {
        name: name.to_string(),
        title: "TPC-H's queries: CPU time as a ratio to nothing loaded".to_string(),
        axis: "ratio".to_string(),
        logarithmic: false,
        groups: PARALLEL.iter().map(|(mode, _)| mode.to_string()).collect(),
        series: BarSeries::except_base(names, &plotted),
    });
    each_statement(context, names, &results[0]);
}

/// Returns the sum of each query's least CPU time, of serial runs.
fn least_cpu_s(series: &Series<Run>) -> f64 {
    let least = |query: usize| spread(&series.of(|run| run.queries[query].cpu_s)).low;
    (0..QUERIES.len()).map(least).sum()
}

/// Reports each query of the serial runs.
fn each_statement(context: &mut ExperimentContext, names: &[String], series: &[Series<Run>]) {
    let shown: Vec<usize> = [VARIANTS[2].name, VARIANTS[3].name, EXPLAINS[0].0, EXPLAINS[3].0]
        .iter()
        .filter_map(|wanted| names.iter().position(|name| name == wanted))
        .collect();
    let mut columns = vec!["query", "ms"];
    columns.extend(shown.iter().map(|&at| names[at].as_str()));
    let mut table = Table::new(
        "Each query, serial",
        "Elapsed time as ratios to nothing loaded.",
        &columns,
    );
    for (number, query) in QUERIES.iter().enumerate() {
        let times = |at: usize| series[at].of(|run| run.queries[number].wall_s);
        let base = times(0);
        for &at in [0].iter().chain(&shown) {
            context.measured(
                format!("serial: {}", query.name),
                &names[at],
                "elapsed s",
                &times(at),
            );
        }
        let mut row = vec![query.name.to_string(), format!("{:.1}", median(&base) * 1000.0)];
        row.extend(shown.iter().map(|&at| ratio(&times(at), &base).as_ratio()));
        table.row(row);
    }
    context.table(table);
}
