//! The extension's cost for short statements: pgbench -S -M prepared, in interleaved runs. The goal is at most 2 %. Single
//! runs differ by more than that, so the test judges the median ratio of pairs. Two servers with nothing loaded also differ,
//! by up to 6 % for as long as they run (bench/results). So the test fails only beyond both: chance, and what servers differ
//! by. Instructions are exact: store_callgrind.rs counts them.
//! `ROWSOURCE_PGBENCH_ROUNDS` is the number of rounds (default 4), `ROWSOURCE_PGBENCH_SECONDS` the seconds of a run (1).

use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, transactions_per_second};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::{error_of_median, median};

const COMMON: [&str; 3] = [
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "shared_buffers = '128MB'",
];
const PEERS: [&str; 4] = [
    "shared_preload_libraries = 'pg_stat_statements, auto_explain'",
    "auto_explain.log_analyze = on",
    "auto_explain.log_buffers = on",
    "auto_explain.log_min_duration = '1h'",
];

struct Variant<'a> {
    name: &'static str,
    server: &'a Server,
    options: &'static str,
}

fn number(variable: &str, otherwise: usize) -> usize {
    let value = std::env::var(variable).ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// The share of the throughput that level typical must keep.
const MIN_SHARE: f64 = 0.98;
/// What two servers with nothing loaded differ by.
const SERVERS_DIFFER: f64 = 0.06;
/// The maximum number of rounds, while it seems to keep less.
const MAX_ROUNDS: usize = 24;

const BARE: usize = 0;
const TYPICAL: usize = 2;

/// The throughput of each variant in each of its rounds.
struct Throughput<'a> {
    variants: &'a [Variant<'a>],
    clients: &'static str,
    seconds: String,
    found: Vec<Vec<f64>>,
}

impl Throughput<'_> {
    /// Runs these variants once.
    fn round(&mut self, variants: &[usize]) {
        for &which in variants {
            let variant = &self.variants[which];
            let (clients, seconds) = (self.clients, self.seconds.as_str());
            self.found[which].push(transactions_per_second(
                variant.server,
                variant.options,
                &[
                    "-n", "-S", "-M", "prepared", "-c", clients, "-j", clients, "-T", seconds,
                ],
            ));
        }
    }

    /// Returns the ratios of a variant's throughput to that without a library, by round.
    fn ratios(&self, which: usize) -> Vec<f64> {
        let pairs = self.found[which].iter().zip(&self.found[BARE]);
        pairs.map(|(own, bare)| own / bare).collect()
    }
}

/// Measures all variants. Returns a message if level typical keeps too little, beyond chance.
fn shortcoming(variants: &[Variant], clients: &'static str) -> Option<String> {
    let rounds = number("ROWSOURCE_PGBENCH_ROUNDS", 4);
    let mut throughput = Throughput {
        variants,
        clients,
        seconds: number("ROWSOURCE_PGBENCH_SECONDS", 1).to_string(),
        found: vec![Vec::new(); variants.len()],
    };
    let mut order: Vec<usize> = (0..variants.len()).collect();
    for _ in 0..rounds {
        // The order changes, because the first run after a pause is faster.
        order.rotate_left(1);
        throughput.round(&order);
    }
    println!("pgbench -S -M prepared, {clients} clients, {rounds} interleaved rounds:");
    for (which, variant) in variants.iter().enumerate() {
        println!(
            "    {:<36} median {:>8.0} tps, median of ratios {:.3}",
            variant.name,
            median(&throughput.found[which]),
            median(&throughput.ratios(which))
        );
    }
    let mut pair = [BARE, TYPICAL];
    while median(&throughput.ratios(TYPICAL)) < MIN_SHARE - SERVERS_DIFFER
        && throughput.ratios(TYPICAL).len() < MAX_ROUNDS
    {
        pair.reverse();
        throughput.round(&pair);
    }
    let ratios = throughput.ratios(TYPICAL);
    let (keeps, error) = (median(&ratios), error_of_median(&ratios));
    println!(
        "    level typical keeps {keeps:.3} after {} rounds, standard error {error:.3}",
        ratios.len()
    );
    (keeps + 2.0 * error + SERVERS_DIFFER < MIN_SHARE)
        .then(|| format!("{clients} clients: level typical keeps {keeps:.3} +- {error:.3} of the throughput"))
}

#[test]
fn short_statements_keep_their_throughput_timing() {
    let with_common = |first: &[&'static str]| first.iter().chain(&COMMON).copied().collect::<Vec<_>>();
    let bare = Server::start("bench-bare", &COMMON);
    let preloaded = Server::preloaded("bench-with", &COMMON);
    let peers = Server::start("bench-peers", &with_common(&PEERS));
    for server in [&bare, &preloaded, &peers] {
        fill(server, 5);
    }
    run_each(&mut preloaded.connect(), "CREATE EXTENSION pg_rowsource");
    let variant = |name, server, options| Variant {
        name,
        server,
        options,
    };
    let variants = [
        variant("no library", &bare, ""),
        variant(
            "pg_rowsource, basic",
            &preloaded,
            "-c pg_rowsource.statistics_level=basic",
        ),
        variant(
            "pg_rowsource, typical",
            &preloaded,
            "-c pg_rowsource.statistics_level=typical",
        ),
        variant("pg_stat_statements + auto_explain", &peers, ""),
    ];
    let shortcomings: Vec<String> = ["1", "8"]
        .into_iter()
        .filter_map(|clients| shortcoming(&variants, clients))
        .collect();
    assert!(shortcomings.is_empty(), "{}", shortcomings.join("\n"));
}
