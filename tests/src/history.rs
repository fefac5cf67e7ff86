//! The worker that samples the sessions for the active session history, and what it takes while many sessions
//! do the same.

use crate::Server;
use crate::busy::Busy;
use crate::pgbench::pgbench;
use crate::process::processor_time;
use crate::session::{run_each, texts, value};
use crate::waiting::until;
use postgres::Client;
use std::time::{Duration, Instant, SystemTime};

/// The number of sessions that do the same.
pub const SESSIONS: usize = 100;

/// What they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// They wait for their clients. One more is active.
    Nothing,
    /// They sleep in a filter.
    Sleeping,
    /// They wait for the lock of one row.
    Waiting,
    /// They run short statements.
    Lookups,
}

impl Doing {
    pub const ALL: [Doing; 4] = [Doing::Nothing, Doing::Sleeping, Doing::Waiting, Doing::Lookups];

    pub fn name(self) -> &'static str {
        match self {
            Doing::Nothing => "idle, and one active",
            Doing::Sleeping => "asleep in a filter",
            Doing::Waiting => "waiting for a row lock",
            Doing::Lookups => "pgbench -S",
        }
    }
}

/// What the worker took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The part of a processor that it takes for 100 samples of all sessions a second.
    pub share: f64,
    /// How often a second it sampled all sessions. On a busy machine, it waits for a processor.
    pub frequency: f64,
    /// How many sessions were active on average.
    pub active: f64,
}

/// Returns the worker's pid, after waiting until there is one.
pub fn worker(observer: &mut Client) -> u32 {
    let query =
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'pg_rowsource history'";
    until(observer, &format!("SELECT ({query}) > 0"));
    value::<i32>(observer, query).unsigned_abs()
}

/// Returns what the worker takes in this time, while [`SESSIONS`] sessions of the server do something. The
/// server must have room for them, the extension, and the tables of pgbench.
pub fn cost(server: &Server, doing: Doing, during: Duration) -> Cost {
    while_doing(server, doing, during, |observer| measured(observer, during))
}

/// Does something else, such as to measure the worker with [`measured`] several times, while these sessions
/// do something. The last kind of them goes on for `during` and a few seconds.
pub fn while_doing<T>(
    server: &Server,
    doing: Doing,
    during: Duration,
    body: impl FnOnce(&mut Client) -> T,
) -> T {
    let mut observer = server.connect();
    let all = |sql: &str| -> Vec<Busy> { (0..SESSIONS).map(|_| Busy::run(server.connect(), sql)).collect() };
    let waiting = |event: &str| {
        format!(
            "SELECT count(*) >= {SESSIONS} FROM pg_stat_activity WHERE wait_event IN ({event}) AND backend_type = 'client backend'"
        )
    };
    const SLEEP: &str = "SELECT count(*) FROM pgbench_branches WHERE pg_sleep(1000) IS NOT NULL";
    match doing {
        Doing::Nothing => {
            let idle: Vec<Client> = (0..SESSIONS).map(|_| server.connect()).collect();
            let active = Busy::run(server.connect(), SLEEP);
            let result = body(&mut observer);
            drop(idle);
            active.cancel(&mut observer);
            result
        }
        Doing::Sleeping => {
            let busy = all(SLEEP);
            until(&mut observer, &waiting("'PgSleep'"));
            let result = body(&mut observer);
            busy.into_iter().for_each(|busy| drop(busy.cancel(&mut observer)));
            result
        }
        Doing::Waiting => {
            const UPDATE: &str = "UPDATE pgbench_branches SET bbalance = bbalance WHERE bid = 1";
            let mut holder = server.connect();
            run_each(&mut holder, &format!("BEGIN; {UPDATE}"));
            let busy = all(UPDATE);
            until(&mut observer, &waiting("'transactionid', 'tuple'"));
            let result = body(&mut observer);
            busy.into_iter().for_each(|busy| drop(busy.cancel(&mut observer)));
            result
        }
        Doing::Lookups => std::thread::scope(|scope| {
            // pgbench begins to count the time when all are connected.
            let arguments = format!(
                "-n -b select-only -M prepared -c {SESSIONS} -j 2 -T {}",
                during.as_secs() + 3
            );
            let runs = scope.spawn(move || pgbench(server, "", &arguments.split(' ').collect::<Vec<_>>()));
            until(
                &mut observer,
                &format!(
                    "SELECT count(*) >= {SESSIONS} AND bool_or(query LIKE 'SELECT%') FROM pg_stat_activity
                     WHERE application_name = 'pgbench'"
                ),
            );
            let result = body(&mut observer);
            runs.join().expect("pgbench");
            result
        }),
    }
}

/// Measures the worker for some time.
pub fn measured(observer: &mut Client, during: Duration) -> Cost {
    let worker = worker(observer);
    let clock = "SELECT clock_timestamp()";
    let from: SystemTime = value(observer, clock);
    let (before, began) = (processor_time(worker), Instant::now());
    std::thread::sleep(during);
    let (took, elapsed) = (processor_time(worker) - before, began.elapsed().as_secs_f64());
    let to: SystemTime = value(observer, clock);
    let row = observer
        .query_one(
            "SELECT sum(samples)::float8 / sum(average_active_sessions), sum(average_active_sessions)
             FROM rowsource_top_activity($1::timestamptz::text, $2::timestamptz::text)",
            &[&from, &to],
        )
        .expect("rowsource_top_activity");
    let [moments, active] = [0, 1].map(|column| row.get::<_, f64>(column));
    Cost {
        share: 100.0 * took / moments,
        frequency: moments / elapsed,
        active,
    }
}

/// The size on disk of all tables of the snapshots, with their indexes.
pub const ON_DISK: &str = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relname LIKE 'rowsource_snapshot%'";

/// Does what autovacuum does with the tables of the snapshots.
pub fn vacuum_snapshots(client: &mut Client) {
    let tables =
        "SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relname LIKE 'rowsource_snapshot%'";
    for table in texts(client, tables).into_iter().flatten().flatten() {
        run_each(client, &format!("VACUUM {table}"));
    }
}
