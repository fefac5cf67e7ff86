//! What the worker costs that samples the sessions, while 100 of them are idle, asleep, waiting for a lock, or run short statements.

use rowsource_tests::history::{Doing, SESSIONS, cost, worker};
use rowsource_tests::pgbench::fill;
use rowsource_tests::session::run_each;
use rowsource_tests::{Server, process};
use std::time::Duration;

/// The processor time of a process depends little on other work, but that empties the caches, and this machine's own speed varies by
/// a factor of two. The worker has taken up to 2.1 per cent.
const MAX_SHARE: f64 = 0.04;

#[test]
fn the_worker_costs_little_with_100_sessions_timing() {
    let server = Server::preloaded("ash-cost", &["max_connections = 120", "jit = off"]);
    fill(&server, 1);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    let worker = worker(&mut observer);
    let mut resident = None;
    for doing in Doing::ALL {
        let cost = cost(&server, doing, Duration::from_secs(5));
        println!("{}: {cost:?}", doing.name());
        // It saw them. The clients of pgbench are active while it does not wait for pgbench.
        let expected = match doing {
            Doing::Nothing => 1.0,
            Doing::Lookups => 0.0,
            Doing::Sleeping | Doing::Waiting => SESSIONS as f64,
        };
        assert!(cost.active > 0.9 * expected, "{doing:?}: {cost:?}");
        assert!(cost.share < MAX_SHARE, "{doing:?}: {cost:?}");
        let first = *resident.get_or_insert_with(|| process::private_bytes(worker));
        let grown = process::private_bytes(worker).saturating_sub(first);
        assert!(grown < 1 << 20, "{doing:?}: {grown} bytes more");
    }
}
