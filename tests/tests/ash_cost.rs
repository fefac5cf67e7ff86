//! What the worker costs that samples the sessions, while 100 of them are idle, asleep, waiting for a lock,
//! or run short statements.

use rowsource_tests::history::{Doing, SESSIONS, measured, while_doing, worker};
use rowsource_tests::pgbench::fill;
use rowsource_tests::session::run_each;
use rowsource_tests::verdict::{Limit, Trial, Verdicts};
use rowsource_tests::{Server, process};
use std::time::Duration;

/// The largest part of a processor that the worker may take. It takes 0.01 here, and up to 0.02
/// where other work empties the caches.
const MAX_SHARE: f64 = 0.04;
/// Each round measures the worker twice for this long. So it samples all sessions a few dozen times.
const WINDOW: Duration = Duration::from_millis(250);

fn compare(name: &str, all: &[Doing]) {
    let server = Server::preloaded(name, &["max_connections = 120", "jit = off"]);
    fill(&server, 1);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    let worker = worker(&mut observer);
    let mut resident = None;
    let mut verdicts = Verdicts::default();
    for doing in all.iter().copied() {
        // It sees them. The clients of pgbench are active while it does not wait for pgbench.
        let expected = match doing {
            Doing::Nothing => 1.0,
            Doing::Lookups => 0.0,
            Doing::Sleeping | Doing::Waiting => SESSIONS as f64,
        };
        let share = Trial::of_differences(
            format!("the worker's share, {}", doing.name()),
            Limit::AtMost(MAX_SHARE),
        );
        let rounds = 8..=16;
        let longest = 2 * WINDOW * *rounds.end() as u32;
        let share = while_doing(&server, doing, longest, |observer| {
            share.run(rounds, |_| {
                let [first, second] = [0, 1].map(|_| measured(observer, WINDOW));
                let active = (first.active + second.active) / 2.0;
                assert!(active > 0.9 * expected, "{doing:?}: {first:?} {second:?}");
                ((first.share + second.share) / 2.0, second.share - first.share)
            })
        });
        verdicts.add(&share);
        let first = *resident.get_or_insert_with(|| process::private_bytes(worker));
        let grown = process::private_bytes(worker).saturating_sub(first);
        assert!(grown < 1 << 20, "{doing:?}: {grown} bytes more");
    }
    verdicts.finish();
}

#[test]
fn the_worker_costs_little_with_100_sessions_timing() {
    compare("ash-cost", &[Doing::Sleeping]);
}

#[test]
fn the_worker_costs_little_whatever_sessions_do_timing_long() {
    compare("ash-cost-long", &Doing::ALL);
}
