//! What the worker takes that makes beats.

use crate::busy::Busy;
use crate::history::SESSIONS;
use crate::pgbench::pgbench;
use crate::process::processor_time;
use crate::session::run_each;
use crate::waiting::until;
use crate::{Server, burn};
use postgres::Client;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Settings with which the worker only makes beats, in a server with room for all sessions.
pub const SETTINGS: [&str; 5] = [
    "pg_rowsource.history_frequency = 0",
    "max_connections = 120",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "autovacuum = off",
];
/// Cheap calls without end, not all of which are timed.
const ENDLESS: &str = "SELECT count(*) FROM n a, n b WHERE burn(0.2)";
/// A statement of 20 ms.
const SHORT: &str = "SELECT count(*) FROM short WHERE burn(0.5)";

/// What the sessions do while the worker is measured.
#[derive(Clone, Copy)]
pub enum Doing {
    Nothing,
    /// One computes. A measurement begins with its statement.
    Long,
    /// [`SESSIONS`] run statements of 20 ms without end.
    Short,
}

/// Creates what these statements need.
pub fn create(client: &mut Client) {
    burn::create(client);
    run_each(
        client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n;
         CREATE TABLE short AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM ANALYZE short",
    );
}

/// Returns the percentage of a processor that the worker takes in this time.
pub fn percent(server: &Server, observer: &mut Client, worker: u32, doing: Doing, during: Duration) -> f64 {
    match doing {
        Doing::Nothing => taken(worker, during, || ()).0,
        Doing::Long => {
            let client = server.connect();
            let (percent, busy) = taken(worker, during, || Busy::run(client, ENDLESS));
            busy.cancel(observer);
            percent
        }
        Doing::Short => std::thread::scope(|scope| {
            let script = server.folder().join("short.sql");
            std::fs::write(&script, SHORT).expect("a script");
            let options = format!("-n -c {SESSIONS} -j 2 -T {} -f", during.as_secs() + 4);
            let runs = scope.spawn(move || {
                let script = script.to_string_lossy();
                pgbench(
                    server,
                    "",
                    &options.split(' ').chain([&*script]).collect::<Vec<_>>(),
                )
            });
            until(
                observer,
                &format!(
                    "SELECT count(*) >= {SESSIONS} AND bool_and(query LIKE '%burn%') FROM pg_stat_activity
                     WHERE application_name = 'pgbench'"
                ),
            );
            let (percent, ()) = taken(worker, during, || ());
            runs.join().expect("pgbench");
            percent
        }),
    }
}

/// Begins something. Returns the percentage of a processor that the worker then takes in this time.
fn taken<T>(worker: u32, during: Duration, begin: impl FnOnce() -> T) -> (f64, T) {
    let (began, before) = (Instant::now(), processor_time(worker));
    let begun = begin();
    sleep(during.saturating_sub(began.elapsed()));
    let took = processor_time(worker) - before;
    (100.0 * took / began.elapsed().as_secs_f64(), begun)
}
