//! Sends the same statements in turn to a server with the library and to one without it, and compares time
//! and memory.

use crate::compiled::object;
use crate::explain::describe;
use crate::process;
use crate::server::Server;
use crate::session::{run_each, value};
use crate::store::info;
use crate::verdict::{Limit, Side, Trial};
use postgres::Client;
use postgres::error::SqlState;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A cancelled statement may end later than without the library by this share of the time that it would take.
/// One that cannot be cancelled ends later by what is left of it.
const MAX_DELAY: f64 = 0.35;
/// When it is cancelled, as a share of that time.
const CANCELLED_AFTER: f64 = 0.3;

/// The store's limit if the server has no `pg_rowsource.max_memory` yet: the default of that setting.
const MAX_MEMORY: i64 = 60 << 20;

/// The usual size of a container's /dev/shm.
pub const DEV_SHM: u64 = 64 << 20;

/// The bytes that the library may keep in a session, and those that it may use at the peak, in addition to a
/// share of the server's own peak.
const MAX_SESSION_BYTES: f64 = 2e6;
const MAX_SESSION_PEAK_BYTES: f64 = 24e6;

/// Creates the function `heap_bytes`, which returns the memory that a session has in use.
fn create_heap_bytes(client: &mut Client) {
    let object = object("heap/heap.c");
    run_each(
        client,
        &format!(
            "CREATE FUNCTION heap_bytes() RETURNS bigint AS '{}' LANGUAGE c",
            object.display()
        ),
    );
}

const WITHOUT: usize = 0;
const WITH: usize = 1;

/// Two servers with the same settings, without and with the library, and a session on each.
pub struct Pair {
    servers: [Server; 2],
    pub clients: [Client; 2],
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
        for server in &servers {
            create_heap_bytes(&mut server.connect());
        }
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

    /// Sends one message to both servers.
    pub fn send(&mut self, sql: &str) {
        self.clients.iter_mut().for_each(|client| send(client, sql));
    }

    /// Compares the processor time of a message with that without the library.
    pub fn compare(&mut self, trial: Trial, rounds: RangeInclusive<usize>, sql: &str) -> Trial {
        let pids = self.pids();
        trial.compare(rounds, |side| {
            let which = side as usize;
            let before = process::processor_time_when_idle(pids[which]);
            send(&mut self.clients[which], sql);
            process::processor_time_when_idle(pids[which]) - before
        })
    }

    /// Compares how late a statement ends that is cancelled, as a share of the time that it takes with the
    /// library. Without the library it may fail: then a statement that can always be cancelled runs instead.
    pub fn lateness(&mut self, what: &str, sql: &str) -> Trial {
        let [without, with] = &mut self.clients;
        // The first one of a session takes longer. With a time that is too long, it would end before it is
        // cancelled.
        let takes = (0..4).fold(f64::INFINITY, |least, _| {
            let begin = Instant::now();
            send(with, sql);
            begin.elapsed().as_secs_f64().min(least)
        });
        let other = without.batch_execute(sql).map_or("SELECT pg_sleep(60)", |()| sql);
        let timeout = (takes * CANCELLED_AFTER).max(0.005);
        println!("{what}: takes {takes:.3} s, cancelled after {timeout:.3} s");
        Trial::of_differences(format!("{what}: delay of a cancel"), Limit::AtMost(MAX_DELAY)).compare(
            8..=24,
            |side| match side {
                Side::Base => lateness(without, other, timeout) / takes,
                Side::Other => lateness(with, sql, timeout) / takes,
            },
        )
    }

    /// Fails if the library uses more memory of the session than it may, now or at the peak since
    /// [`Pair::watch_memory`].
    pub fn assert_memory(&mut self, what: &str) {
        let pids = self.pids();
        // What malloc() keeps of freed memory depends on what lies between.
        let [without, with] = self
            .clients
            .each_mut()
            .map(|client| value::<i64>(client, "SELECT heap_bytes()") as f64);
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
            with <= without + MAX_SESSION_BYTES,
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

    /// Fails unless the store has all executions of the statements whose texts are like this.
    pub fn assert_kept(&self, like: &str, executions: i64) {
        let sql = format!(
            "SELECT coalesce(sum(calls), 0)::int8 FROM pg_stat_rowsource_plans WHERE query LIKE '{like}'"
        );
        let kept: i64 = value(&mut self.with().connect(), &sql);
        assert_eq!(kept, executions, "{like}");
    }

    /// Fails if the store, or the server's dynamic shared memory in total, exceeds its limit. Reads all views
    /// first, so that a session has mapped all of it.
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
    // SET LOCAL, so that the end of the transaction ends the timeout: a statement that resets it could itself
    // time out.
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

/// Waits until a condition holds.
pub fn wait_until(what: &str, timeout: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {timeout:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
