//! Sixteen sessions: all run one statement, or statements of 10,000 shapes. The first one asks whether
//! sessions write to the same memory. The second one, what a store of many plans costs that each session
//! knows only a part of.

use super::hosts::{HOSTS, Hosts, SHORT_STATEMENT_HOSTS};
use super::pgbench::one;
use crate::measure::context::ExperimentContext;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::number::count;
use crate::model::table::Table;
use rowsource_tests::pgbench::fill;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::median;
use rowsource_tests::{SHIPPED, Server};
use std::fs;

/// The stores have room for all shapes.
const SETTINGS: [&str; 7] = [
    SHIPPED,
    "shared_buffers = '256MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "pg_stat_statements.max = 20000",
    "pg_rowsource.max_plans = 20000",
    "pg_rowsource.max_memory = '400MB'",
];
const CLIENTS: u32 = 16;
/// The columns of a table. A statement reads two of them, so there are as many shapes as pairs.
const COLUMNS: usize = 100;

pub fn run(context: &mut ExperimentContext) {
    let rounds = context.sizes.rounds(1, 5);
    let amount = if context.sizes.quick {
        ["-t", "50"]
    } else {
        ["-T", "2"]
    };
    context.setting("clients", CLIENTS);
    context.setting("rounds", rounds);
    context.setting("a run", amount.join(" "));
    context.setting("shapes", COLUMNS * COLUMNS);
    context.at(0.0, "loading");
    let mut original = Server::start("many", &SETTINGS);
    context.server(&original);
    fill(&original, 1);
    let columns: Vec<String> = (0..COLUMNS).map(|i| format!("i + {i} AS c{i}")).collect();
    run_each(
        &mut original.connect(),
        &format!(
            "CREATE TABLE wide AS SELECT i AS id, {} FROM generate_series(1, 1000) i; ALTER TABLE wide ADD PRIMARY KEY (id);
             VACUUM (FREEZE, ANALYZE) wide; CHECKPOINT",
            columns.join(", ")
        ),
    );
    let script = original.folder().join("shapes.sql");
    let last = COLUMNS - 1;
    let text = format!(
        "\\set one random(0, {last})\n\\set other random(0, {last})\n\\set id random(1, 1000)\n\
         SELECT c:one, c:other FROM wide WHERE id = :id;\n"
    );
    fs::write(&script, text).expect("a script");
    original.stop();
    let [bare, rowsource, statements, ..] = &HOSTS;
    let hosts = [bare, &SHORT_STATEMENT_HOSTS[0], rowsource, statements];
    let hosts = Hosts::start(context, hosts, &original, &SETTINGS);
    let variants = hosts.variants();
    let names: Vec<String> = variants
        .iter()
        .map(|(variant, _)| variant.name.to_string())
        .collect();
    let script = script.to_string_lossy();
    let scripts: [(&str, &[&str]); 2] = [
        (
            "one statement, prepared",
            &["-b", "select-only", "-M", "prepared"],
        ),
        ("10,000 shapes, simple", &["-f", &script, "-M", "simple"]),
    ];
    let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    for (at, (what, script)) in scripts.into_iter().enumerate() {
        context.begin_part(0.05 + 0.475 * at as f64, 0.525 + 0.475 * at as f64);
        let series = interleave(context, what, &names, rounds, |at| {
            let (variant, server) = variants[at];
            one(server, &variant.options(), script, CLIENTS, amount)
        });
        let tps = ratios_to_first(&series, |run| run.tps);
        let cpu = ratios_to_first(&series, |run| run.cpu_us);
        for (at, line) in series.iter().enumerate() {
            let (all_tps, all_cpu) = (line.of(|run| run.tps), line.of(|run| run.cpu_us));
            context.measured(what, &line.name, "transactions a second", &all_tps);
            context.measured(what, &line.name, "CPU us a transaction", &all_cpu);
            rows[at].extend(match at {
                0 => [
                    format!("{} tps", count(median(&all_tps))),
                    format!("{:.1} us", median(&all_cpu)),
                ],
                _ => [tps[at].as_ratio(), cpu[at].as_ratio()],
            });
        }
    }
    let stored = variants
        .iter()
        .find(|(variant, _)| variant.name == "pg_rowsource, sampfreq 128");
    if let Some((_, server)) = stored {
        let plans: i64 = value(&mut server.connect(), "SELECT plans FROM rowsource_info()");
        context.finding(format!("pg_rowsource has stored {} plans.", count(plans as f64)));
    }
    let mut table = Table::new(
        "Sixteen sessions of pgbench",
        "Ratios to nothing loaded. Above 1 means more throughput, or more CPU time of the server.",
        &[
            "",
            "one statement, prepared: throughput",
            "CPU a transaction",
            "10,000 shapes, simple: throughput",
            "CPU a transaction",
        ],
    );
    rows.into_iter().for_each(|row| table.row(row));
    context.table(table);
}
