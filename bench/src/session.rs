//! A session whose statements are timed from outside.

use crate::cpu;
use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::describe;
use rowsource_tests::session::{run_each, value};
use std::time::Instant;

pub struct Session {
    pub client: Client,
    pid: u32,
}

/// What one statement took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    pub elapsed_s: f64,
    /// Of the backend; its parallel workers not included.
    pub cpu_s: f64,
}

impl Session {
    /// A session of a server that does not load the library, or loads it by itself.
    pub fn new(server: &Server) -> Self {
        Session::of(server.connect())
    }

    /// A session that loads the library if the server did not, at level basic.
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

    /// Runs settings and other things that are not timed, each in its own transaction.
    pub fn run(&mut self, sql: &str) {
        run_each(&mut self.client, sql);
    }

    /// Runs a statement.
    pub fn time(&mut self, sql: &str) -> Took {
        let cpu_before = cpu::seconds_of(self.pid);
        let begun = Instant::now();
        self.client
            .simple_query(sql)
            .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
        let elapsed_s = begun.elapsed().as_secs_f64();
        Took {
            elapsed_s,
            cpu_s: cpu::seconds_of(self.pid) - cpu_before,
        }
    }

    /// The clock readings of the last measured statement. Call it at level basic.
    pub fn timer_calls(&mut self) -> f64 {
        let calls: i64 = value(
            &mut self.client,
            "SELECT coalesce(sum(last_timer_calls), 0)::bigint FROM pg_stat_rowsource
             WHERE (queryid, planid) = (SELECT queryid, planid FROM rowsource_last())",
        );
        calls as f64
    }
}
