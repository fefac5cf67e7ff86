//! Short transactions: pgbench's lookups and TPC-B with one and eight clients, prepared and as text.

use super::hosts::{HOSTS, Hosts, SHORT_STATEMENT_HOSTS};
use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::chart::{BarChart, BarSeries};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::table::Table;
use rowsource_tests::pgbench::{fill, number_after, pgbench};
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};

const SETTINGS: [&str; 4] = [
    SHIPPED,
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
];

/// Scripts: pgbench's name and the title.
const SCRIPTS: [(&str, &str); 2] = [("select-only", "-S"), ("tpcb-like", "TPC-B")];
const MODES: [&str; 2] = ["prepared", "simple"];
const CLIENTS: [u32; 2] = [1, 8];

pub(super) struct Run {
    /// Transactions per second.
    pub tps: f64,
    /// CPU microseconds of the server per transaction.
    pub cpu_us: f64,
}

pub fn run(context: &mut ExperimentContext) {
    let scale = context.sizes.of(1, 10);
    let rounds = context.sizes.rounds(1, 3);
    // A goal of two per cent needs more rounds, because seconds on one machine differ by ten per cent.
    let rounds_of_goal = context.sizes.rounds(1, 12);
    // Quick runs do a fixed number of transactions. Full runs last one second.
    let amount = if context.sizes.quick {
        ["-t", "50"]
    } else {
        ["-T", "1"]
    };
    context.setting("pgbench scale", scale);
    context.setting("rounds", rounds);
    context.setting("rounds of -S, prepared", rounds_of_goal);
    context.setting("a run", amount.join(" "));
    context.at(0.0, "loading");
    let mut original = Server::start("pgbench", &SETTINGS);
    context.server(&original);
    fill(&original, scale as u32);
    original.stop();
    let hosts = Hosts::start(
        context,
        HOSTS.iter().chain(&SHORT_STATEMENT_HOSTS),
        &original,
        &SETTINGS,
    );
    let variants = hosts.variants();
    let names: Vec<String> = variants
        .iter()
        .map(|(variant, _)| variant.name.to_string())
        .collect();
    let combinations = (SCRIPTS.len() * MODES.len() * CLIENTS.len()) as f64;
    let mut done = 0.0;
    for (script, title) in SCRIPTS {
        let columns: Vec<String> = MODES
            .iter()
            .flat_map(|mode| CLIENTS.map(|clients| (mode, clients)))
            .flat_map(|(mode, clients)| {
                let s = if clients == 1 { "" } else { "s" };
                [
                    format!("{mode}, {clients} client{s}: throughput"),
                    "CPU a transaction".to_string(),
                ]
            })
            .collect();
        let mut all = vec![String::new()];
        all.extend(columns);
        let mut table = Table::new(
            &format!("pgbench {title}"),
            "Ratios to nothing loaded. Above 1 means more throughput, or more CPU time of the server.",
            &all.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
        let (mut groups, mut plotted) = (Vec::new(), Vec::new());
        for mode in MODES {
            for clients in CLIENTS {
                context.begin_part(
                    0.05 + 0.95 * done / combinations,
                    0.05 + 0.95 * (done + 1.0) / combinations,
                );
                done += 1.0;
                let what = format!("{title}, {mode}, {clients} clients");
                let is_goal = script == "select-only" && mode == "prepared";
                let rounds = if is_goal { rounds_of_goal } else { rounds };
                let series = interleave(context, &what, &names, rounds, |at| {
                    let (variant, server) = variants[at];
                    one(
                        server,
                        &variant.options(),
                        &["-b", script, "-M", mode],
                        clients,
                        amount,
                    )
                });
                let tps = ratios_to_first(&series, |run| run.tps);
                let cpu = ratios_to_first(&series, |run| run.cpu_us);
                for (at, line) in series.iter().enumerate() {
                    context.measured(
                        &what,
                        &line.name,
                        "transactions a second",
                        &line.of(|run| run.tps),
                    );
                    context.measured(
                        &what,
                        &line.name,
                        "CPU us a transaction",
                        &line.of(|run| run.cpu_us),
                    );
                    rows[at].push(match at {
                        0 => format!("{} tps", count(median(&line.of(|run| run.tps)))),
                        _ => tps[at].as_ratio(),
                    });
                    rows[at].push(match at {
                        0 => format!("{:.1} us", median(&line.of(|run| run.cpu_us))),
                        _ => cpu[at].as_ratio(),
                    });
                }
                if is_goal {
                    let measured = names.iter().position(|name| name == "pg_rowsource, sampfreq 128");
                    let found = tps[measured.expect("pg_rowsource is among the variants")];
                    context.goal(
                        format!("{what}: throughput at sampfreq 128"),
                        &Goal::at_least(0.98).with_note("by design; the goal is 0.99"),
                        &found,
                    );
                }
                groups.push(format!("{mode}, {clients}"));
                plotted.push(cpu);
            }
        }
        for row in rows {
            table.row(row);
        }
        context.table(table);
        context.plot(BarChart {
            name: format!("peers-pgbench-{script}"),
            title: format!("pgbench {title}: CPU time per transaction as a ratio to nothing loaded"),
            axis: "ratio".to_string(),
            logarithmic: false,
            groups,
            series: BarSeries::except_base(&names, &plotted),
        });
    }
}

/// Runs pgbench once, with a script and its mode.
pub(super) fn one(server: &Server, options: &str, script: &[&str], clients: u32, amount: [&str; 2]) -> Run {
    let postmaster = server.postmaster();
    let children = cpu::children(postmaster);
    let before = cpu::seconds_of_children(postmaster);
    let clients = clients.to_string();
    let mut arguments = vec!["-n", "-c", &clients, "-j", &clients, amount[0], amount[1]];
    arguments.extend(script);
    let said = pgbench(server, options, &arguments);
    cpu::wait_for_children(postmaster, children);
    let transactions = number_after(&said, "number of transactions actually processed: ");
    Run {
        tps: number_after(&said, "tps = "),
        cpu_us: (cpu::seconds_of_children(postmaster) - before) * 1e6 / transactions,
    }
}
