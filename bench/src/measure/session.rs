//! A session that times its statements from the client's side.

use super::cpu;
use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::describe;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::stack_samples::{Samples, samples};
use std::time::{Duration, Instant};

pub struct Session {
    pub client: Client,
    pid: u32,
}

/// How long one statement took.
#[derive(Clone, Copy)]
pub struct Elapsed {
    pub wall_s: f64,
    /// The CPU time of the backend, without its parallel workers.
    pub cpu_s: f64,
}

impl Session {
    /// Opens a session. The library is loaded only if the server preloads it.
    pub fn new(server: &Server) -> Self {
        Session::of(server.connect())
    }

    /// Opens a session at level basic. Loads the library if the server does not preload it.
    pub fn loaded(server: &Server) -> Self {
        Session::of(server.session())
    }

    fn of(mut client: Client) -> Self {
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        Session {
            client,
            pid: pid.unsigned_abs(),
        }
    }

    /// Runs statements that are not timed, each in its own transaction.
    pub fn run(&mut self, sql: &str) {
        run_each(&mut self.client, sql);
    }

    /// Makes the session run before all usual processes, if the system allows it.
    pub fn prefer(&self) {
        process::prefer(self.pid);
    }

    /// Runs a statement and times it.
    pub fn time(&mut self, sql: &str) -> Elapsed {
        let cpu_before = cpu::seconds_of(self.pid);
        let begun = Instant::now();
        self.client
            .simple_query(sql)
            .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
        let wall_s = begun.elapsed().as_secs_f64();
        Elapsed {
            wall_s,
            cpu_s: cpu::seconds_of(self.pid) - cpu_before,
        }
    }

    /// Runs a statement, and samples how much of its time a function of PostgreSQL takes with all that it
    /// calls. Returns `None` if the server has no such function.
    pub fn sample(&mut self, sql: &str, function: &str, distance: Duration) -> Option<Samples> {
        let client = &mut self.client;
        samples(self.pid, function, distance, || {
            client
                .simple_query(sql)
                .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
        })
    }

    /// Returns the clock readings of the last measured statement. Must be called at level basic.
    pub fn timer_calls(&mut self) -> f64 {
        let calls: i64 = value(
            &mut self.client,
            "SELECT coalesce(sum(last_timer_calls), 0)::bigint FROM pg_stat_rowsource
             WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last())",
        );
        calls as f64
    }
}
