//! What the worker costs that samples the sessions, while 100 of them are idle, asleep, waiting for a lock,
//! or run short statements; and what its beats cost.

use rowsource_tests::beats::{self, percent};
use rowsource_tests::history::{Doing, SESSIONS, measured, while_doing, worker};
use rowsource_tests::pgbench::fill;
use rowsource_tests::session::run_each;
use rowsource_tests::verdict::{Limit, Trial, Verdicts};
use rowsource_tests::{Server, process};
use std::sync::Arc;
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

/// Runs something while twice as many threads compute as there are processors.
fn on_a_busy_machine<T>(run: impl FnOnce() -> T) -> T {
    let runs = Arc::new(());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..2 * processors {
        let runs = Arc::downgrade(&runs);
        std::thread::spawn(move || {
            while runs.strong_count() > 0 {
                std::hint::spin_loop();
            }
        });
    }
    run()
}

/// Its beats cost at most 0.3 % of a processor over a statement of ten seconds, and 1.5 % with 100 sessions
/// that run statements of 20 ms without end; also where it is late, because other programs compute.
#[test]
fn beats_cost_little_timing_long() {
    const PARTS: [(beats::Doing, &str, u64, f64); 2] = [
        (beats::Doing::Long, "a statement of 10 s", 10, 0.3),
        (
            beats::Doing::Short,
            "100 sessions run statements of 20 ms",
            3,
            1.5,
        ),
    ];
    let server = Server::preloaded("ash-cost-beats", &beats::SETTINGS);
    let mut observer = server.session();
    beats::create(&mut observer);
    let worker = worker(&mut observer);
    let mut verdicts = Verdicts::default();
    for (doing, what, seconds, most) in PARTS {
        for machine in ["the machine as it is", "a busy machine"] {
            let during = Duration::from_secs(seconds);
            let mut measure = || percent(&server, &mut observer, worker, doing, during);
            let mut round = |_| {
                let [first, second] = [measure(), measure()];
                ((first + second) / 2.0, second - first)
            };
            let share = Trial::of_differences(format!("percent for {what}, {machine}"), Limit::AtMost(most));
            let all = || share.run(4..=8, &mut round);
            verdicts.add(&match machine {
                "a busy machine" => on_a_busy_machine(all),
                _ => all(),
            });
        }
    }
    verdicts.finish();
}
