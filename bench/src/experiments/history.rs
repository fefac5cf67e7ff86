//! What the active session history costs: the worker that samples 100 sessions, and sessions that run short
//! statements.

use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::spread::spread;
use crate::model::table::Table;
use rowsource_tests::history::{Cost, Doing, SESSIONS, cost, worker};
use rowsource_tests::pgbench::{fill, number_after, pgbench};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::median;
use rowsource_tests::waiting::until;
use rowsource_tests::{SHIPPED, Server};
use std::time::Duration;

const SETTINGS: [&str; 7] = [
    SHIPPED,
    "shared_preload_libraries = 'pg_rowsource'",
    "shared_buffers = '512MB'",
    "max_connections = 120",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "autovacuum = off",
];

/// Samples a second.
const FREQUENCIES: [u32; 3] = [0, 100, 1000];
const CLIENTS: [u32; 2] = [1, 8];

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "loading");
    let server = Server::start("history", &SETTINGS);
    context.server(&server);
    fill(&server, context.sizes.of(1, 10) as u32);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    context.begin_part(0.02, 0.6);
    of_worker(context, &server);
    context.begin_part(0.6, 1.0);
    of_sessions(context, &server);
}

/// Measures the worker while 100 sessions do the same.
fn of_worker(context: &mut ExperimentContext, server: &Server) {
    let during = Duration::from_secs(context.sizes.of(1, 20));
    let rounds = context.sizes.rounds(1, 3);
    context.setting("a measurement of the worker", format!("{} s", during.as_secs()));
    let names: Vec<String> = Doing::ALL.iter().map(|doing| doing.name().to_string()).collect();
    let series = interleave(context, "the worker", &names, rounds, |at| {
        cost(server, Doing::ALL[at], during)
    });
    let mut table = Table::new(
        &format!("The worker, with {SESSIONS} sessions"),
        "Percent of a processor, for 100 samples of all sessions a second.",
        &["sessions", "percent", "active on average", "samples a second"],
    );
    for line in &series {
        let percent = line.of(|cost: &Cost| 100.0 * cost.share);
        context.measured("worker", &line.name, "percent of a processor", &percent);
        let found = spread(&percent);
        table.row([
            line.name.clone(),
            format!("{:.2} ({:.2}-{:.2})", found.median, found.low, found.high),
            format!("{:.1}", median(&line.of(|cost| cost.active))),
            format!("{:.0}", median(&line.of(|cost| cost.frequency))),
        ]);
        let goal = Goal::at_most(1.0).with_note("percent of a processor");
        context.goal(format!("worker, 100 sessions {}", line.name), &goal, &found);
    }
    context.table(table);
}

struct Run {
    /// Transactions per second.
    tps: f64,
    /// CPU microseconds per transaction: of the sessions, and with the worker.
    sessions_us: f64,
    all_us: f64,
}

/// What is compared of a run, and its unit.
type Value = (fn(&Run) -> f64, &'static str);

/// Compares pgbench -S with and without sampling, on one server.
fn of_sessions(context: &mut ExperimentContext, server: &Server) {
    let rounds = context.sizes.rounds(1, 12);
    let amount = if context.sizes.quick {
        ["-t", "50"]
    } else {
        ["-T", "1"]
    };
    context.setting("rounds of pgbench -S", rounds);
    let names = FREQUENCIES.map(|frequency| format!("history_frequency {frequency}"));
    let mut columns = vec![String::new()];
    for clients in CLIENTS {
        columns.extend([
            format!("-c {clients}: throughput"),
            "CPU of the sessions".to_string(),
            "with the worker".to_string(),
        ]);
    }
    let mut table = Table::new(
        "pgbench -S -M prepared with and without samples",
        "Ratios to none. One server, whose frequency changes from run to run. CPU time is that of a transaction.",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    let mut observer = server.connect();
    let worker = worker(&mut observer);
    for clients in CLIENTS {
        let what = format!("pgbench -S, {clients} clients");
        let clients = clients.to_string();
        let series = interleave(context, &what, &names, rounds, |at| {
            let frequency = FREQUENCIES[at];
            run_each(
                &mut observer,
                &format!(
                    "ALTER SYSTEM SET pg_rowsource.history_frequency = {frequency}; SELECT pg_reload_conf()"
                ),
            );
            until(
                &mut observer,
                &format!("SELECT current_setting('pg_rowsource.history_frequency') = '{frequency}'"),
            );
            let last = "SELECT max(sample_time) FROM rowsource_ash('1 s')";
            if frequency == 0 {
                // The worker has heard of it, too.
                until(
                    &mut observer,
                    &format!("SELECT pg_sleep(0.05) IS NOT NULL AND ({last}) IS NULL"),
                );
            }
            one(server, worker, &clients, amount)
        });
        let values: [Value; 3] = [
            (|run| run.tps, "tps"),
            (|run| run.sessions_us, "us of the sessions"),
            (|run| run.all_us, "us with the worker"),
        ];
        for (value, unit) in values {
            let ratios = ratios_to_first(&series, value);
            for (at, line) in series.iter().enumerate() {
                context.measured(&what, &line.name, unit, &line.of(value));
                rows[at].push(match (at, unit) {
                    (0, "tps") => format!("{} tps", count(median(&line.of(value)))),
                    (0, _) => format!("{:.1} us", median(&line.of(value))),
                    _ => ratios[at].as_ratio(),
                });
            }
        }
    }
    run_each(
        &mut observer,
        "ALTER SYSTEM RESET pg_rowsource.history_frequency; SELECT pg_reload_conf()",
    );
    rows.into_iter().for_each(|row| table.row(row));
    context.table(table);
}

/// Runs pgbench once.
fn one(server: &Server, worker: u32, clients: &str, amount: [&str; 2]) -> Run {
    let postmaster = server.postmaster();
    let children = cpu::children(postmaster);
    let before = [cpu::seconds_of_children(postmaster), cpu::seconds_of(worker)];
    let said = pgbench(
        server,
        "",
        &[
            "-n",
            "-b",
            "select-only",
            "-M",
            "prepared",
            "-c",
            clients,
            "-j",
            clients,
            amount[0],
            amount[1],
        ],
    );
    let of_worker = cpu::seconds_of(worker) - before[1];
    cpu::wait_for_children(postmaster, children);
    let transactions = number_after(&said, "number of transactions actually processed: ");
    let of_sessions = cpu::seconds_of_children(postmaster) - before[0];
    Run {
        tps: number_after(&said, "tps = "),
        sessions_us: of_sessions * 1e6 / transactions,
        all_us: (of_sessions + of_worker) * 1e6 / transactions,
    }
}
