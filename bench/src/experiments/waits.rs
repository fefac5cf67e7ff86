//! What counting waits costs, and whether pg_wait_sampling sees the same ones.

use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::check::Goal;
use crate::model::spread::{ratio, spread};
use crate::model::table::Table;
use postgres::Client;
use rowsource_tests::SHIPPED;
use rowsource_tests::environment::environment;
use rowsource_tests::pgbench::{fill, number_after, pgbench};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::median;
use rowsource_tests::{Server, process};
use std::collections::BTreeMap;

const SAMPLING: &str = "pg_wait_sampling";
/// One sample a millisecond.
const SAMPLED: [&str; 2] = [
    "pg_wait_sampling.profile_period = 1",
    "pg_wait_sampling.profile_queries = off",
];
const SETTINGS: [&str; 5] = [
    SHIPPED,
    "fsync = on",
    "shared_buffers = '512MB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
];

/// A line of the comparison: its name, its libraries, and the settings of its sessions as PGOPTIONS.
type Variant = (&'static str, &'static str, &'static str);
const BARE: Variant = ("nothing loaded", "", "");
const SAMPLER: Variant = ("pg_wait_sampling, 1 ms", SAMPLING, "");
const OURS: [Variant; 4] = [
    (
        "pg_rowsource, basic, waits off",
        "pg_rowsource",
        "-c pg_rowsource.statistics_level=basic -c pg_rowsource.wait_timing=off",
    ),
    (
        "pg_rowsource, basic, waits on",
        "pg_rowsource",
        "-c pg_rowsource.statistics_level=basic",
    ),
    (
        "pg_rowsource, typical, waits off",
        "pg_rowsource",
        "-c pg_rowsource.statistics_level=typical -c pg_rowsource.wait_timing=off",
    ),
    (
        "pg_rowsource, typical, waits on",
        "pg_rowsource",
        "-c pg_rowsource.statistics_level=typical",
    ),
];

/// Scripts of pgbench, and their number of clients.
const RUNS: [(&str, &str, u32); 4] = [
    ("-S", "select-only", 1),
    ("-S", "select-only", 8),
    ("TPC-B", "tpcb-like", 1),
    ("TPC-B", "tpcb-like", 8),
];

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "loading");
    let mut original = Server::start("waits", &SETTINGS);
    context.server(&original);
    fill(&original, context.sizes.of(1, 10) as u32);
    original.stop();
    let with_sampling = environment().has_library(SAMPLING);
    if !with_sampling {
        context.finding("pg_wait_sampling is not installed here and is not compared.");
    }
    context.begin_part(0.02, 0.8);
    costs(context, &original, with_sampling);
    if with_sampling {
        context.begin_part(0.8, 1.0);
        shares(context, &original);
    }
}

fn start(original: &Server, name: &str, libraries: &str) -> Server {
    let preload = format!("shared_preload_libraries = '{libraries}'");
    let mut settings = vec![preload.as_str()];
    settings.extend(SETTINGS);
    if libraries.contains(SAMPLING) {
        settings.extend(SAMPLED);
    }
    let server = Server::copy_of(original, name, &settings);
    for library in libraries.split(", ").filter(|library| !library.is_empty()) {
        run_each(&mut server.connect(), &format!("CREATE EXTENSION {library}"));
    }
    server
}

/// Compares the processor time of the server per transaction, that of the process that samples included.
fn costs(context: &mut ExperimentContext, original: &Server, with_sampling: bool) {
    let mut servers = vec![
        (BARE.1, start(original, "waits-bare", BARE.1)),
        (OURS[0].1, start(original, "waits-ours", OURS[0].1)),
    ];
    let mut variants = vec![BARE];
    variants.extend(OURS);
    if with_sampling {
        servers.push((SAMPLING, start(original, "waits-sampled", SAMPLING)));
        variants.push(SAMPLER);
    }
    // Looked up once: while a session of this program ends, the server has one more process.
    let sampler = servers.iter().find_map(|(_, server)| sampler(server));
    let names: Vec<String> = variants.iter().map(|(name, ..)| name.to_string()).collect();
    let rounds = context.sizes.rounds(1, 5);
    let amount = if context.sizes.quick {
        ["-t", "50"]
    } else {
        ["-T", "1"]
    };
    context.setting("rounds", rounds);
    context.setting("a run", amount.join(" "));
    let mut columns = vec![String::new()];
    columns.extend(RUNS.map(|(title, _, clients)| format!("{title}, {clients} clients")));
    let mut table = Table::new(
        "CPU time a transaction",
        "Ratios to nothing loaded, prepared statements. That of the process that samples is included.",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut rows: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    for (title, script, clients) in RUNS {
        let what = format!("{title}, {clients} clients");
        let series = interleave(context, &what, &names, rounds, |at| {
            let (_, libraries, options) = variants[at];
            let server = servers.iter().find(|(of, _)| *of == libraries);
            let (_, server) = server.expect("a server with these libraries");
            let sampler = sampler.filter(|_| libraries == SAMPLING);
            cpu_us(server, sampler, options, script, clients, amount)
        });
        let ratios = ratios_to_first(&series, |us| *us);
        for (at, line) in series.iter().enumerate() {
            context.measured(&what, &line.name, "CPU us a transaction", &line.values);
            rows[at].push(match at {
                0 => format!("{:.1} us", median(&line.values)),
                _ => ratios[at].as_ratio(),
            });
        }
        for (level, off) in [("basic", 1), ("typical", 3)] {
            let found = ratio(&series[off + 1].values, &series[off].values);
            let goal = Goal::at_most(1.02);
            context.goal(format!("{what}: waits on by waits off, {level}"), &goal, &found);
        }
        if with_sampling {
            let found = ratio(&series[2].values, &series[5].values);
            let goal = Goal::at_most(1.0);
            context.goal(format!("{what}: exact by sampled"), &goal, &found);
        }
    }
    for row in rows {
        table.row(row);
    }
    context.table(table);
}

/// Runs pgbench once. Returns the server's processor time in microseconds a transaction.
fn cpu_us(
    server: &Server,
    sampler: Option<u32>,
    options: &str,
    script: &str,
    clients: u32,
    amount: [&str; 2],
) -> f64 {
    let postmaster = server.postmaster();
    let of_sampler = || sampler.map_or(0.0, cpu::seconds_of);
    let children = cpu::children(postmaster);
    let before = cpu::seconds_of_children(postmaster) + of_sampler();
    let clients = clients.to_string();
    let said = pgbench(
        server,
        options,
        &[
            "-n", "-b", script, "-M", "prepared", "-c", &clients, "-j", &clients, amount[0], amount[1],
        ],
    );
    let sampled = of_sampler();
    cpu::wait_for_children(postmaster, children);
    let transactions = number_after(&said, "number of transactions actually processed: ");
    (cpu::seconds_of_children(postmaster) + sampled - before) * 1e6 / transactions
}

/// Returns the process that samples, if there is one.
fn sampler(server: &Server) -> Option<u32> {
    let row = server
        .connect()
        .query_opt(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_wait_sampling collector'",
            &[],
        )
        .expect("pg_stat_activity");
    row.map(|row| row.get::<_, i32>(0) as u32)
}

/// What sessions waited for, by event: milliseconds or samples.
type Profile = BTreeMap<String, f64>;

fn profile(client: &mut Client, sql: &str) -> Profile {
    let rows = client.query(sql, &[]).expect("a profile");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Returns the share of each event in what was added between two profiles.
fn added(before: &Profile, after: &Profile) -> Profile {
    let added = |(event, now): (&String, &f64)| (event.clone(), now - before.get(event).unwrap_or(&0.0));
    let added: Profile = after.iter().map(added).collect();
    let all: f64 = added.values().sum();
    added.into_iter().map(|(event, of)| (event, of / all)).collect()
}

/// Compares the shares of the wait events of 16 clients.
fn shares(context: &mut ExperimentContext, original: &Server) {
    // This session waits meanwhile too.
    const EXACT: &str = "SELECT wait_event, sum(ms) FROM (
           SELECT wait_event, wait_time AS ms FROM pg_stat_rowsource_system_waits WHERE backend_type = 'client backend'
           UNION ALL SELECT wait_event, -wait_time FROM pg_stat_rowsource_session_waits WHERE pid = pg_backend_pid()) w GROUP BY 1";
    // Sessions that have ended are no longer in pg_stat_activity, but in the profile.
    const SAMPLES: &str = "SELECT event, sum(count)::float8 FROM pg_wait_sampling_profile p
         WHERE event IS NOT NULL AND p.pid <> pg_backend_pid()
           AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p.pid AND backend_type <> 'client backend')
         GROUP BY 1";
    let server = start(original, "waits-both", "pg_wait_sampling, pg_rowsource");
    // Else it samples less often when the processors are busy, and misses what sessions wait for then.
    if let Some(sampler) = sampler(&server) {
        process::prefer(sampler);
    }
    let mut observer = server.connect();
    let rounds = context.sizes.rounds(2, 12);
    context.setting("rounds of the shares", rounds);
    let mut read = || [EXACT, SAMPLES].map(|sql| profile(&mut observer, sql));
    let mut found: Vec<[Profile; 2]> = Vec::new();
    for round in 0..rounds {
        context.at(
            round as f64 / rounds as f64,
            &format!("shares, round {} of {rounds}", round + 1),
        );
        let before = read();
        pgbench(
            &server,
            "",
            &["-n", "-b", "tpcb-like", "-c", "16", "-j", "16", "-T", "1"],
        );
        let after = read();
        found.push([0, 1].map(|which| added(&before[which], &after[which])));
    }
    let mut table = Table::new(
        "Shares of the waits of 16 clients of TPC-B",
        "In percent. The difference is that of the rounds, with one standard error.",
        &["event", "exact", "sampled at 1 ms", "difference"],
    );
    let share = |round: &[Profile; 2], which: usize, event: &str| {
        100.0 * round[which].get(event).copied().unwrap_or(0.0)
    };
    let all = |which: usize, event: &str| -> Vec<f64> {
        found.iter().map(|round| share(round, which, event)).collect()
    };
    let mut events: Vec<String> = found.iter().flat_map(|round| round[0].keys().cloned()).collect();
    events.sort();
    events.dedup();
    events.retain(|event| median(&all(0, event)) >= 0.5);
    events.sort_by(|a, b| median(&all(0, b)).total_cmp(&median(&all(0, a))));
    for event in &events {
        let (exact, sampled) = (all(0, event), all(1, event));
        let differences: Vec<f64> = sampled.iter().zip(&exact).map(|(a, b)| a - b).collect();
        context.measured(event.as_str(), "exact", "percent of the waits", &exact);
        context.measured(event.as_str(), "sampled", "percent of the waits", &sampled);
        table.row(vec![
            event.clone(),
            format!("{:.2}", median(&exact)),
            format!("{:.2}", median(&sampled)),
            format!(
                "{:+.2} ± {:.2}",
                median(&differences),
                error_of_median(&differences)
            ),
        ]);
    }
    context.table(table);
    let largest: Vec<f64> = found
        .iter()
        .map(|round| {
            let differences = events
                .iter()
                .map(|event| (share(round, 1, event) - share(round, 0, event)).abs());
            differences.fold(0.0, f64::max)
        })
        .collect();
    let goal = Goal::at_most(3.0).with_note("of the waits, in percent");
    context.goal(
        "largest difference of an event's shares",
        &goal,
        &spread(&largest),
    );
}

/// Returns one standard error of the median of these values, assuming a normal distribution.
fn error_of_median(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    1.25 * (squares / (count - 1.0)).sqrt() / count.sqrt()
}
