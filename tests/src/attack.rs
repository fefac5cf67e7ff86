//! Sends the same statements in turn to a server with the library and to one without it, and compares time and memory.

use crate::explain::describe;
use crate::process;
use crate::server::Server;
use crate::session::{run_each, value};
use crate::statistics::{median, median_ratio};
use crate::store::info;
use postgres::Client;
use postgres::error::SqlState;
use std::time::{Duration, Instant};

/// A statement may take this many times as long with the library, and [`NOISE_S`] more. The goal is 1.1. The rest is noise:
/// these are medians of a few rounds, on two cores that have other work.
const MAX_SLOWDOWN: f64 = 1.25;
const NOISE_S: f64 = 0.020;

/// Growth is not judged from times shorter than this.
const MEASURABLE_S: f64 = 0.002;

/// The maximum time to describe and store a new plan of a few nodes. It takes 350,000 instructions, 100,000 of which are core's
/// EXPLAIN: 95 us on a quiet machine, 160 beside other work. A plan that runs again does not pay this.
const MAX_NEW_PLAN_S: f64 = 200e-6;

/// The maximum time that a short statement takes longer, of many in one message. It takes 3,200 instructions: 1 us on a quiet
/// machine, 3 to 5 with what these displace from the caches beside other work.
const MAX_SHORT_STATEMENT_S: f64 = 6e-6;

/// A cancelled statement may end this much later than without the library.
const MAX_CANCEL_DELAY_S: f64 = 0.250;

/// The store's limit if the server has no `pg_rowsource.max_memory` yet: the default of that setting.
const MAX_MEMORY: i64 = 60 << 20;

/// The usual size of a container's /dev/shm.
pub const DEV_SHM: u64 = 64 << 20;

/// The bytes that the library may keep in a session, and those that it may use at the peak, in addition to a share of the
/// server's own.
const MAX_SESSION_BYTES: f64 = 10e6;
const MAX_SESSION_PEAK_BYTES: f64 = 24e6;

const WITHOUT: usize = 0;
const WITH: usize = 1;

/// Two servers with the same settings, without and with the library, and a session on each.
pub struct Pair {
    servers: [Server; 2],
    pub clients: [Client; 2],
}

/// Seconds without and with the library: the median without it, and this median times the median ratio of the pairs.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed {
    pub without: f64,
    pub with: f64,
}

impl Pair {
    /// Starts both servers, and creates the same tables on each.
    pub fn start(name: &str, settings: &[&str], tables: &str) -> Pair {
        let mut all = vec!["jit = off", "max_parallel_workers_per_gather = 0"];
        all.extend(settings);
        let servers = [
            Server::start(&format!("{name}-without"), &all),
            Server::preloaded(name, &all),
        ];
        run_each(&mut servers[WITH].connect(), "CREATE EXTENSION pg_rowsource");
        let mut pair = Pair {
            clients: [servers[WITHOUT].connect(), servers[WITH].connect()],
            servers,
        };
        pair.both(tables);
        pair
    }

    pub fn with(&self) -> &Server {
        &self.servers[WITH]
    }

    /// Runs statements on both servers.
    pub fn both(&mut self, sql: &str) {
        for client in &mut self.clients {
            run_each(client, sql);
        }
    }

    /// Runs statements, such as the library's settings, on the server with the library only.
    pub fn run_with(&mut self, sql: &str) {
        run_each(&mut self.clients[WITH], sql);
    }

    /// Opens new sessions, so that the memory of earlier ones does not count.
    pub fn reconnect(&mut self) {
        self.clients = [self.servers[WITHOUT].connect(), self.servers[WITH].connect()];
    }

    /// Measures both servers in turn, after round 0, which does not count. The work knows its round.
    pub fn elapsed(&mut self, rounds: usize, work: impl FnMut(usize, &mut Client)) -> Elapsed {
        let begin = Instant::now();
        self.measure(rounds, |_| begin.elapsed().as_secs_f64(), work)
    }

    /// Does the same with the processor time of the sessions, which other work on the machine disturbs less.
    pub fn processor_time(&mut self, rounds: usize, work: impl FnMut(usize, &mut Client)) -> Elapsed {
        self.measure(rounds, process::processor_time_when_idle, work)
    }

    /// Measures with a clock that returns the seconds of the process with this pid.
    fn measure(
        &mut self,
        rounds: usize,
        clock: impl Fn(u32) -> f64,
        mut work: impl FnMut(usize, &mut Client),
    ) -> Elapsed {
        let pids = self.pids();
        let mut seconds = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            // The first one fills the caches, so the two servers take turns at being first.
            for which in [round % 2, 1 - round % 2] {
                let begin = clock(pids[which]);
                work(round, &mut self.clients[which]);
                let elapsed = clock(pids[which]) - begin;
                if round > 0 || rounds == 0 {
                    seconds[which].push(elapsed);
                }
            }
        }
        let without = median(&seconds[WITHOUT]);
        Elapsed {
            without,
            with: without * median_ratio(&seconds[WITH], &seconds[WITHOUT]),
        }
    }

    /// Measures one text, sent as one message.
    pub fn elapsed_of(&mut self, rounds: usize, sql: &str) -> Elapsed {
        self.elapsed(rounds, |_, client| send(client, sql))
    }

    /// Fails unless a statement ends soon after its `statement_timeout`, compared with the server without the library. Tries
    /// timeouts of several shares of the statement's time.
    pub fn assert_cancelled_in_time(&mut self, what: &str, elapsed: Elapsed, sql: &str) {
        for share in [0.3, 0.7] {
            let timeout = (elapsed.with * share).max(0.005);
            let mut late = [Vec::new(), Vec::new()];
            for _ in 0..2 {
                for (client, late) in self.clients.iter_mut().zip(&mut late) {
                    late.push(lateness(client, sql, timeout));
                }
            }
            let [without, with] = late.map(|late| median(&late));
            println!(
                "{what}: cancelled after {timeout:.3} s, late by {without:.3} s without, {with:.3} s with"
            );
            assert!(
                with <= without + MAX_CANCEL_DELAY_S,
                "{what}: cancelled {with:.3} s late, {without:.3} s without the library"
            );
        }
    }

    /// Fails if the library uses more memory of the session than it may, now or at the peak since [`Pair::watch_memory`].
    pub fn assert_memory(&mut self, what: &str) {
        let pids = self.pids();
        let [without, with] = pids.map(|pid| process::private_bytes(pid) as f64);
        let [peak_without, peak_with] = pids.map(|pid| process::peak_bytes(pid) as f64);
        println!(
            "{what}: session {:.1} MB without, {:.1} MB with; peak {:.1} MB without, {:.1} MB with",
            without / 1e6,
            with / 1e6,
            peak_without / 1e6,
            peak_with / 1e6
        );
        let shared = process::dynamic_shared_memory(self.with().postmaster()) as f64;
        assert!(
            with <= 1.25 * without + MAX_SESSION_BYTES,
            "{what}: the session keeps {with} bytes, {without} without the library",
        );
        assert!(
            peak_with <= 1.25 * peak_without + MAX_SESSION_PEAK_BYTES + shared,
            "{what}: the session took {peak_with} bytes, {peak_without} without the library",
        );
    }

    /// Resets the peak memory of both sessions.
    pub fn watch_memory(&mut self) {
        self.pids().into_iter().for_each(process::reset_peak);
    }

    fn pids(&mut self) -> [u32; 2] {
        let pid = |client: &mut Client| value::<i32>(client, "SELECT pg_backend_pid()") as u32;
        let [without, with] = &mut self.clients;
        [pid(without), pid(with)]
    }

    /// Fails if the store, or the server's dynamic shared memory in total, exceeds its limit. Reads all views first, so that a
    /// session has mapped all of it.
    pub fn assert_store(&self, what: &str) {
        let mut reader = self.with().connect();
        run_each(&mut reader, "SET pg_rowsource.statistics_level = basic");
        let nodes: i64 = value(&mut reader, "SELECT count(*) FROM pg_stat_rowsource");
        let limit = max_memory(&mut reader);
        let (plans, bytes) = (info(&mut reader, "plans"), info(&mut reader, "bytes"));
        let mapped = process::dynamic_shared_memory(self.with().postmaster());
        println!(
            "{what}: {plans} plans of {nodes} nodes, {bytes} bytes kept, {mapped} bytes of dynamic shared memory"
        );
        assert!(
            bytes <= limit,
            "{what}: the store keeps {bytes} bytes, {limit} allowed",
        );
        assert!(
            mapped <= DEV_SHM,
            "{what}: {mapped} bytes of dynamic shared memory",
        );
    }
}

/// Returns the store's limit in bytes.
fn max_memory(client: &mut Client) -> i64 {
    let setting: Option<i64> = value(
        client,
        "SELECT pg_size_bytes(current_setting('pg_rowsource.max_memory', true))",
    );
    setting.unwrap_or(MAX_MEMORY)
}

/// Sends one message, and discards its results.
pub fn send(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|error| panic!("{:.200}\n{}", sql, describe(&error)));
}

/// Returns how many seconds after its timeout a statement ends; 0 if it completes in time.
fn lateness(client: &mut Client, sql: &str, timeout: f64) -> f64 {
    let milliseconds = (timeout * 1000.0).ceil();
    // SET LOCAL, so that the end of the transaction ends the timeout: a statement that resets it could itself time out.
    run_each(
        client,
        &format!("BEGIN; SET LOCAL statement_timeout = {milliseconds}"),
    );
    let begin = Instant::now();
    let result = client.batch_execute(sql);
    let elapsed = begin.elapsed().as_secs_f64();
    if let Err(error) = result {
        let expected = [&SqlState::QUERY_CANCELED, &SqlState::STATEMENT_TOO_COMPLEX];
        let known = error.code().is_some_and(|code| expected.contains(&code));
        assert!(known, "{}", describe(&error));
    }
    // If the statement completed, the timeout still applies to ROLLBACK.
    let ended = (0..10).any(|_| client.batch_execute("ROLLBACK").is_ok());
    assert!(ended, "the transaction does not end");
    (elapsed - milliseconds / 1000.0).max(0.0)
}

/// Fails if the time grows faster than the size, or is much longer than without the library.
#[derive(Default)]
pub struct Growth {
    what: String,
    /// Additional seconds allowed per unit of size.
    each: f64,
    measured: Vec<(f64, Elapsed)>,
}

impl Growth {
    pub fn of(what: &str) -> Growth {
        Growth {
            what: what.to_string(),
            ..Growth::default()
        }
    }

    /// Allows the time to describe a new plan for each unit of size.
    pub fn of_new_plans(what: &str) -> Growth {
        Growth {
            each: MAX_NEW_PLAN_S,
            ..Growth::of(what)
        }
    }

    /// Allows the time of a short statement for each unit of size.
    pub fn of_short_statements(what: &str) -> Growth {
        Growth {
            each: MAX_SHORT_STATEMENT_S,
            ..Growth::of(what)
        }
    }

    /// Adds the time of one size. Smaller sizes come first, so that a quadratic cost fails before it takes minutes.
    pub fn add(&mut self, size: usize, elapsed: Elapsed) {
        let Elapsed { without, with } = elapsed;
        let what = &self.what;
        println!("{what}: {size}: {without:.4} s without, {with:.4} s with the library");
        for &(earlier, before) in &self.measured {
            // Times too short to measure well count as MEASURABLE_S. If the server itself grows faster than the size, so
            // may the library.
            let ratio = |now: f64, before: f64| now / before.max(MEASURABLE_S);
            let larger = (size as f64 / earlier).max(ratio(without, before.without));
            let longer = ratio(with, before.with);
            assert!(
                longer <= 2.5 * larger,
                "{what}: {longer:.1} times the time where {larger:.1} times were expected: {elapsed:?}, {:?}",
                self.measured
            );
        }
        self.measured.push((size as f64, elapsed));
        assert!(
            with <= MAX_SLOWDOWN * without + NOISE_S + self.each * size as f64,
            "{what}: size {size}: {with:.4} s with the library, {without:.4} s without"
        );
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, timeout: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {timeout:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
