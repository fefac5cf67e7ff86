//! The throughput that the extension leaves to short statements: pgbench -S -M prepared. Instructions are
//! exact: store_callgrind.rs counts them, and shared_lines.rs finds memory that all sessions write. This test
//! finds sessions that wait for each other. How much throughput short statements lose is what the bench
//! measures (peers-pgbench).

use rowsource_tests::Server;
use rowsource_tests::pgbench::{fill, transactions_per_second};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::verdict::{Limit, Side, Trial, Verdicts};

const COMMON: [&str; 3] = [
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "shared_buffers = '128MB'",
];

/// The share of the throughput that it must keep. It keeps 0.86 to 0.96 with 8 clients on 2 processors.
/// Sessions that wait for each other lose half.
const MIN_SHARE: f64 = 0.7;

/// The transactions of each client in a run.
const TRANSACTIONS: usize = 300;

#[test]
fn short_statements_keep_their_throughput_timing() {
    let bare = Server::start("bench-bare", &COMMON);
    let measured = Server::preloaded("bench-with", &COMMON);
    for server in [&bare, &measured] {
        fill(server, 1);
    }
    let number = TRANSACTIONS.to_string();
    let arguments = ["-n", "-S", "-M", "prepared", "-c", "8", "-j", "8", "-t", &number];
    let trial = Trial::of_ratios("throughput of pgbench -S", Limit::AtLeast(MIN_SHARE));
    let trial = trial.compare(8..=16, |side| {
        let server = if side == Side::Other { &measured } else { &bare };
        transactions_per_second(server, "", &arguments)
    });
    let mut client = measured.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let calls: i64 = value(
        &mut client,
        "SELECT max(calls) FROM pg_stat_rowsource_plans WHERE query LIKE '%pgbench_accounts%'",
    );
    assert_eq!(calls, (trial.rounds() * 8 * TRANSACTIONS) as i64);
    let mut verdicts = Verdicts::default();
    verdicts.add(&trial);
    verdicts.finish();
}
