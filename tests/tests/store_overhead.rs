//! What the extension costs short statements: pgbench -S -M prepared, in interleaved runs, at most 2 % (design 2.7).
//! Single runs differ by more than that. So the verdict is about the median of the ratios of pairs, rounds go on while it
//! is too low, and it is too low where it is so by more than chance; store_callgrind.rs counts instructions.
//! `ROWSOURCE_PGBENCH_ROUNDS` asks for more rounds (default 4), `ROWSOURCE_PGBENCH_SECONDS` for longer runs (1).

use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, transactions_per_second};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::{error_of_median, median};

const COMMON: [&str; 3] = [
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "shared_buffers = '128MB'",
];
const RIVALS: [&str; 4] = [
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

/// The part of the throughput that level typical must keep.
const KEEPS: f64 = 0.98;
/// How many rounds there are at most, while it seems to keep less.
const MOST_ROUNDS: usize = 24;

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

    /// The ratios of a variant's throughput to that without a library, round by round.
    fn ratios(&self, which: usize) -> Vec<f64> {
        let pairs = self.found[which].iter().zip(&self.found[BARE]);
        pairs.map(|(own, bare)| own / bare).collect()
    }
}

/// Measures all variants. Returns by how much level typical keeps too little, beyond chance: nothing where it does not.
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
        // Not always in the same order: what runs first after a pause is faster.
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
    while median(&throughput.ratios(TYPICAL)) < KEEPS && throughput.ratios(TYPICAL).len() < MOST_ROUNDS {
        pair.reverse();
        throughput.round(&pair);
    }
    let ratios = throughput.ratios(TYPICAL);
    let (keeps, error) = (median(&ratios), error_of_median(&ratios));
    println!(
        "    level typical keeps {keeps:.3} after {} rounds, standard error {error:.3}",
        ratios.len()
    );
    (keeps + 2.0 * error < KEEPS)
        .then(|| format!("{clients} clients: level typical keeps {keeps:.3} +- {error:.3} of the throughput"))
}

#[test]
fn throughput_of_short_statements() {
    let with = |first: &[&'static str]| first.iter().chain(&COMMON).copied().collect::<Vec<_>>();
    let bare = Server::start("bench-bare", &COMMON);
    let ours = Server::preloaded("bench-ours", &COMMON);
    let rivals = Server::start("bench-rivals", &with(&RIVALS));
    for server in [&bare, &ours, &rivals] {
        fill(server, 5);
    }
    run_each(&mut ours.connect(), "CREATE EXTENSION pg_rowsource");
    let variant = |name, server, options| Variant {
        name,
        server,
        options,
    };
    let variants = [
        variant("no library", &bare, ""),
        variant(
            "pg_rowsource, basic",
            &ours,
            "-c pg_rowsource.statistics_level=basic",
        ),
        variant(
            "pg_rowsource, typical",
            &ours,
            "-c pg_rowsource.statistics_level=typical",
        ),
        variant("pg_stat_statements + auto_explain", &rivals, ""),
    ];
    let shortcomings: Vec<String> = ["1", "8"]
        .into_iter()
        .filter_map(|clients| shortcoming(&variants, clients))
        .collect();
    assert!(shortcomings.is_empty(), "{}", shortcomings.join("\n"));
}
