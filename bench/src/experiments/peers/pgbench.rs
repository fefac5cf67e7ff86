//! Short transactions: pgbench's lookups and its TPC-B, one client and eight, prepared and as text.

use super::{ALSO_WHERE_SHORT, HOSTS, Hosts};
use crate::cpu;
use crate::lab::Lab;
use crate::record::{Bars, Series as Bar, Table};
use crate::rounds::{interleave, ratios_to_first};
use crate::statistics::count;
use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, number_after, pgbench};
use rowsource_tests::statistics::median;

const SETTINGS: [&str; 3] = [
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
];

/// pgbench's name of the script, and what it does.
const SCRIPTS: [(&str, &str); 2] = [("select-only", "-S"), ("tpcb-like", "TPC-B")];
const MODES: [&str; 2] = ["prepared", "simple"];
const CLIENTS: [u32; 2] = [1, 8];

struct Run {
    /// Transactions a second.
    tps: f64,
    /// CPU microseconds of the server for each transaction.
    cpu_us: f64,
}

pub fn run(lab: &mut Lab) {
    let scale = lab.sizes.of(1, 10);
    let rounds = lab.sizes.rounds(1, 3);
    // Where there is a goal of two per cent, on a machine whose seconds differ by ten.
    let rounds_of_goal = lab.sizes.rounds(1, 12);
    // Quick runs do a number of transactions, others a second's worth.
    let amount = if lab.sizes.quick {
        ["-t", "50"]
    } else {
        ["-T", "1"]
    };
    lab.setting("pgbench scale", scale);
    lab.setting("rounds", rounds);
    lab.setting("rounds of -S, prepared", rounds_of_goal);
    lab.setting("a run", amount.join(" "));
    lab.at(0.0, "loading");
    let mut original = Server::start("pgbench", &SETTINGS);
    lab.server(&original);
    fill(&original, scale as u32);
    original.stop();
    let hosts = Hosts::start(lab, HOSTS.iter().chain(&ALSO_WHERE_SHORT), &original, &SETTINGS);
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
            "As ratios to nothing loaded: above 1 is more throughput, and more CPU time of the server.",
            &all.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
        let (mut groups, mut plotted) = (Vec::new(), Vec::new());
        for mode in MODES {
            for clients in CLIENTS {
                lab.part(
                    0.05 + 0.95 * done / combinations,
                    0.05 + 0.95 * (done + 1.0) / combinations,
                );
                done += 1.0;
                let what = format!("{title}, {mode}, {clients} clients");
                let is_goal = script == "select-only" && mode == "prepared";
                let rounds = if is_goal { rounds_of_goal } else { rounds };
                let series = interleave(lab, &what, &names, rounds, |at| {
                    let (variant, server) = variants[at];
                    one(server, &variant.options(), script, mode, clients, amount)
                });
                let tps = ratios_to_first(&series, |run| run.tps);
                let cpu = ratios_to_first(&series, |run| run.cpu_us);
                for (at, line) in series.iter().enumerate() {
                    lab.measured(
                        &what,
                        &line.name,
                        "transactions a second",
                        &line.of(|run| run.tps),
                    );
                    lab.measured(
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
                    let ours = names.iter().position(|name| name == "pg_rowsource, sampfreq 128");
                    let found = tps[ours.expect("ours is there")];
                    lab.aim(
                        format!("{what}: throughput at sampfreq 128"),
                        "at least 0.98 (design), towards 0.99",
                        found.as_ratio(),
                        found.median >= 0.98,
                    );
                }
                groups.push(format!("{mode}, {clients}"));
                plotted.push(cpu);
            }
        }
        for row in rows {
            table.row(row);
        }
        lab.table(table);
        lab.plot(Bars {
            name: format!("peers-pgbench-{script}"),
            title: format!("pgbench {title}: CPU time a transaction, as a ratio to nothing loaded"),
            axis: "ratio".to_string(),
            logarithmic: false,
            groups,
            series: Bar::beside_the_first(&names, &plotted),
        });
    }
}

fn one(server: &Server, options: &str, script: &str, mode: &str, clients: u32, amount: [&str; 2]) -> Run {
    let postmaster = server.postmaster();
    let children = cpu::children(postmaster);
    let before = cpu::seconds_of_children(postmaster);
    let clients = clients.to_string();
    let said = pgbench(
        server,
        options,
        &[
            "-n", "-b", script, "-M", mode, "-c", &clients, "-j", &clients, amount[0], amount[1],
        ],
    );
    cpu::wait_for_children(postmaster, children);
    let transactions = number_after(&said, "number of transactions actually processed: ");
    Run {
        tps: number_after(&said, "tps = "),
        cpu_us: (cpu::seconds_of_children(postmaster) - before) * 1e6 / transactions,
    }
}
