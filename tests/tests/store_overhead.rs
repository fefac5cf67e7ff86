//! The throughput that the extension leaves to short statements: pgbench -S -M prepared, in interleaved runs. Instructions are exact:
//! store_callgrind.rs counts them, and shared_lines.rs finds memory that all sessions write. This test finds sessions that wait for each
//! other. How much throughput short statements lose is what the bench measures (peers-pgbench).

use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, transactions_per_second};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::{error_of_median, median};

const COMMON: [&str; 3] = [
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "shared_buffers = '128MB'",
];

/// The share of the throughput that it must keep. So far it kept 0.86 to 0.96 with 8 clients on 2 processors, where two servers with nothing
/// loaded differ by 6 % for as long as they run.
const MIN_SHARE: f64 = 0.84;
/// The number of rounds, of two runs of a second each.
const ROUNDS: usize = 6;
/// The maximum number of rounds, while it seems to keep less.
const MAX_ROUNDS: usize = 24;

/// Measures both servers. Returns a message if the one with the extension keeps too little, beyond chance.
fn shortcoming(bare: &Server, measured: &Server, clients: &'static str) -> Option<String> {
    let throughput = |server: &Server| {
        let arguments = [
            "-n", "-S", "-M", "prepared", "-c", clients, "-j", clients, "-T", "1",
        ];
        transactions_per_second(server, "", &arguments)
    };
    let mut ratios = Vec::new();
    while ratios.len() < ROUNDS || (ratios.len() < MAX_ROUNDS && median(&ratios) < MIN_SHARE) {
        // The order changes, because the first run after a pause is faster.
        let earlier = (ratios.len() % 2 == 0).then(|| throughput(measured));
        let of_bare = throughput(bare);
        ratios.push(earlier.unwrap_or_else(|| throughput(measured)) / of_bare);
    }
    let (keeps, error) = (median(&ratios), error_of_median(&ratios));
    println!(
        "pgbench -S -M prepared, {clients} clients, {} rounds: keeps {keeps:.3} of the throughput, standard error {error:.3}",
        ratios.len()
    );
    (keeps + 2.0 * error < MIN_SHARE)
        .then(|| format!("{clients} clients: keeps {keeps:.3} +- {error:.3} of the throughput"))
}

#[test]
fn short_statements_keep_their_throughput_timing() {
    let bare = Server::start("bench-bare", &COMMON);
    let measured = Server::preloaded("bench-with", &COMMON);
    for server in [&bare, &measured] {
        fill(server, 5);
    }
    let shortcomings: Vec<String> = ["1", "8"]
        .into_iter()
        .filter_map(|clients| shortcoming(&bare, &measured, clients))
        .collect();
    let mut client = measured.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let calls: i64 = value(
        &mut client,
        "SELECT max(calls) FROM pg_stat_rowsource_plans WHERE query LIKE '%pgbench_accounts%'",
    );
    assert!(calls > 10_000, "{calls} executions were measured");
    assert!(shortcomings.is_empty(), "{}", shortcomings.join("\n"));
}
