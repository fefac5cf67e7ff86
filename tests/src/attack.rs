//! Sends the same to a server with the library and, in turn, to one without it, and compares time and memory.

use crate::explain::describe;
use crate::process;
use crate::server::Server;
use crate::session::{run_each, value};
use crate::statistics::{median, median_ratio};
use crate::store::info;
use postgres::Client;
use postgres::error::SqlState;
use std::time::{Duration, Instant};

/// How much longer a statement may take with the library: the goal is 1.1. The rest, and the milliseconds, are this
/// machine's noise: medians of few rounds, on two cores that have other work.
const TIMES: f64 = 1.25;
const NOISE_S: f64 = 0.020;

/// Shorter times are not compared with longer ones.
const MEASURABLE_S: f64 = 0.002;

/// What it may take to describe and keep a plan of a few nodes that is new: it took 35 us when this was written, where a
/// statement that runs once and never again takes 40 us in all. No plan that runs again pays it.
const DESCRIBED_S: f64 = 60e-6;

/// A statement that is cancelled ends this much later than without the library at most.
const CANCEL_S: f64 = 0.100;

/// What the store may take where the server has no `pg_rowsource.max_memory` yet; its default.
const MAX_MEMORY: i64 = 48 << 20;

/// What containers have of /dev/shm.
pub const DEV_SHM: u64 = 64 << 20;

/// What a session may keep for us, and what it may take meanwhile, beyond a share of what the server itself takes.
const SESSION_KEEPS: f64 = 8e6;
const SESSION_TAKES: f64 = 24e6;

const WITHOUT: usize = 0;
const WITH: usize = 1;

/// Two servers with the same settings, without and with the library, and a session on each.
pub struct Pair {
    servers: [Server; 2],
    pub clients: [Client; 2],
}

/// How long something took without and with the library, in seconds: the median without, and that times the median of
/// the ratios of the pairs.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed {
    pub without: f64,
    pub with: f64,
}

impl Pair {
    /// Starts both, and makes the same tables on each.
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

    /// Runs statements on both.
    pub fn both(&mut self, sql: &str) {
        for client in &mut self.clients {
            run_each(client, sql);
        }
    }

    /// Runs statements, settings of the library's, on the server with it.
    pub fn ours(&mut self, sql: &str) {
        run_each(&mut self.clients[WITH], sql);
    }

    /// New sessions: the memory of earlier ones is of no interest.
    pub fn reconnect(&mut self) {
        self.clients = [self.servers[WITHOUT].connect(), self.servers[WITH].connect()];
    }

    /// Measures in turn, after a round that does not count.
    pub fn elapsed(&mut self, rounds: usize, mut work: impl FnMut(&mut Client)) -> Elapsed {
        let mut seconds = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            // Who comes first has caches to fill: they take turns in that too.
            for which in [round % 2, 1 - round % 2] {
                let begin = Instant::now();
                work(&mut self.clients[which]);
                let elapsed = begin.elapsed().as_secs_f64();
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

    /// The same, of one text, sent as one message.
    pub fn elapsed_of(&mut self, rounds: usize, sql: &str) -> Elapsed {
        self.elapsed(rounds, |client| send(client, sql))
    }

    /// Fails unless a statement that runs into `statement_timeout`, after several shares of its time, ends about as
    /// late as without the library.
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
                with <= without + CANCEL_S,
                "{what}: cancelled {with:.3} s late, {without:.3} s without the library"
            );
        }
    }

    /// Fails if the sessions differ by more memory than a session may take for us, now or at the peak since
    /// [`Pair::watch_memory`].
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
            with <= 1.25 * without + SESSION_KEEPS,
            "{what}: the session keeps {with} bytes, {without} without the library"
        );
        assert!(
            peak_with <= 1.25 * peak_without + SESSION_TAKES + shared,
            "{what}: the session took {peak_with} bytes, {peak_without} without the library"
        );
    }

    /// Begins to look at the peak of both sessions.
    pub fn watch_memory(&mut self) {
        self.pids().into_iter().for_each(process::reset_peak);
    }

    fn pids(&mut self) -> [u32; 2] {
        let pid = |client: &mut Client| value::<i32>(client, "SELECT pg_backend_pid()") as u32;
        let [without, with] = &mut self.clients;
        [pid(without), pid(with)]
    }

    /// Fails if the store, or all of the server's dynamic shared memory, is larger than it may be. Reads all views
    /// first, so that a session has mapped it all.
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
            "{what}: the store keeps {bytes} bytes, {limit} allowed"
        );
        assert!(
            mapped <= DEV_SHM,
            "{what}: {mapped} bytes of dynamic shared memory"
        );
    }
}

/// The store's limit in bytes.
fn max_memory(client: &mut Client) -> i64 {
    let setting: Option<i64> = value(
        client,
        "SELECT pg_size_bytes(current_setting('pg_rowsource.max_memory', true))",
    );
    setting.unwrap_or(MAX_MEMORY)
}

/// Sends one message, and leaves out its results.
pub fn send(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|error| panic!("{:.200}\n{}", sql, describe(&error)));
}

/// How much later than its timeout a statement ends, in seconds; not at all where it ends by itself.
fn lateness(client: &mut Client, sql: &str, timeout: f64) -> f64 {
    let milliseconds = (timeout * 1000.0).ceil();
    // In a transaction, whose end is also the end of the timeout: a statement that takes it back may run into it.
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
    // Where the statement ended by itself, the timeout is in force once more.
    let ended = (0..10).any(|_| client.batch_execute("ROLLBACK").is_ok());
    assert!(ended, "the transaction does not end");
    (elapsed - milliseconds / 1000.0).max(0.0)
}

/// Fails if the time grows faster than the size, or is much more than without the library.
#[derive(Default)]
pub struct Growth {
    what: String,
    /// Seconds that each unit of size may take in addition.
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

    /// The same where each unit of size is a plan that the server has not seen before: it is described, once.
    pub fn of_new_plans(what: &str) -> Growth {
        Growth {
            each: DESCRIBED_S,
            ..Growth::of(what)
        }
    }

    /// Adds what a size took. Smaller sizes come first, so that what is quadratic fails before it takes minutes.
    pub fn add(&mut self, size: usize, elapsed: Elapsed) {
        let Elapsed { without, with } = elapsed;
        let what = &self.what;
        println!("{what}: {size}: {without:.4} s without, {with:.4} s with the library");
        for &(earlier, before) in &self.measured {
            // What is too short to be measured well counts as so long. Where the server itself takes more than in
            // proportion, so may the library.
            let ratio = |now: f64, before: f64| now / before.max(MEASURABLE_S);
            let larger = (size as f64 / earlier).max(ratio(without, before.without));
            let longer = ratio(with, before.with);
            assert!(
                longer <= 2.5 * larger,
                "{what}: {longer:.1} times the time where {larger:.1} times were to be expected: {elapsed:?}, {:?}",
                self.measured
            );
        }
        self.measured.push((size as f64, elapsed));
        assert!(
            with <= TIMES * without + NOISE_S + self.each * size as f64,
            "{what}: size {size}: {with:.4} s with the library, {without:.4} s without"
        );
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
