//! What the extension costs short statements: pgbench -S -M prepared, in interleaved runs. The figures are printed,
//! and bounded loosely, for a machine has other work; store_callgrind.rs counts instructions.
//! `ROWSOURCE_PGBENCH_ROUNDS` asks for more rounds (default 4), `ROWSOURCE_PGBENCH_SECONDS` for longer runs (1).

use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, transactions_per_second};
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::median;

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

fn compare(variants: &[Variant], clients: &str) -> Vec<f64> {
    let rounds = number("ROWSOURCE_PGBENCH_ROUNDS", 4);
    let seconds = number("ROWSOURCE_PGBENCH_SECONDS", 1).to_string();
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for i in 0..variants.len() {
            // Not always in the same order: what runs first after a pause is faster.
            let i = (i + round) % variants.len();
            found[i].push(transactions_per_second(
                variants[i].server,
                variants[i].options,
                &[
                    "-n", "-S", "-M", "prepared", "-c", clients, "-j", clients, "-T", &seconds,
                ],
            ));
        }
    }
    println!("pgbench -S -M prepared, {clients} clients, {rounds} interleaved rounds of {seconds} s:");
    let ratios: Vec<f64> = found
        .iter()
        .map(|tps| {
            let pairs: Vec<f64> = tps.iter().zip(&found[0]).map(|(own, base)| own / base).collect();
            median(&pairs)
        })
        .collect();
    for ((variant, tps), ratio) in variants.iter().zip(&found).zip(&ratios) {
        println!(
            "    {:<36} median {:>8.0} tps, median of ratios {ratio:.3}",
            variant.name,
            median(tps)
        );
    }
    ratios
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
    for clients in ["1", "8"] {
        let ratios = compare(&variants, clients);
        assert!(
            ratios[2] > 0.75,
            "level typical has {:.3} of the throughput",
            ratios[2]
        );
    }
}
