//! Queries of `pg_stat_rowsource_tempfile_io`.

use crate::compiled::object;
use crate::session::{run_each, texts, value};
use postgres::Client;
use std::ops::{Add, Sub};

/// The file types, as in the views.
pub const FILETYPES: [&str; 2] = ["work file", "temp table"];

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    pub reqs: i64,
    pub bytes: i64,
    pub ms: f64,
}

/// The requests to one file type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Io {
    pub small_read: Requests,
    pub large_read: Requests,
    pub small_write: Requests,
    pub large_write: Requests,
}

impl Add for Requests {
    type Output = Requests;
    fn add(self, more: Requests) -> Requests {
        Requests {
            reqs: self.reqs + more.reqs,
            bytes: self.bytes + more.bytes,
            ms: self.ms + more.ms,
        }
    }
}

impl Sub for Requests {
    type Output = Requests;
    fn sub(self, before: Requests) -> Requests {
        Requests {
            reqs: self.reqs - before.reqs,
            bytes: self.bytes - before.bytes,
            ms: self.ms - before.ms,
        }
    }
}

impl Io {
    pub fn add(&mut self, read: bool, large: bool, bytes: i64, ms: f64) {
        let requests = match (read, large) {
            (true, false) => &mut self.small_read,
            (true, true) => &mut self.large_read,
            (false, false) => &mut self.small_write,
            (false, true) => &mut self.large_write,
        };
        requests.reqs += 1;
        requests.bytes += bytes;
        requests.ms += ms;
    }

    /// Returns requests and bytes, which must agree exactly.
    pub fn counts(&self) -> [(i64, i64); 4] {
        [
            self.small_read,
            self.large_read,
            self.small_write,
            self.large_write,
        ]
        .map(|requests| (requests.reqs, requests.bytes))
    }

    pub fn since(&self, before: &Io) -> Io {
        Io {
            small_read: self.small_read - before.small_read,
            large_read: self.large_read - before.large_read,
            small_write: self.small_write - before.small_write,
            large_write: self.large_write - before.large_write,
        }
    }

    /// Returns the reads of any size. From PostgreSQL 17 on, temporary tables are read in large requests.
    pub fn reads(&self) -> Requests {
        self.small_read + self.large_read
    }

    pub fn writes(&self) -> Requests {
        self.small_write + self.large_write
    }

    /// Returns the milliseconds of reads, and of writes.
    pub fn times(&self) -> [f64; 2] {
        [self.reads().ms, self.writes().ms]
    }
}

/// Returns the requests so far of a session's database to each file type.
pub fn io(client: &mut Client) -> [Io; 2] {
    FILETYPES.map(|filetype| {
        let row = client
            .query_one(
                "SELECT small_reads, small_read_bytes, coalesce(small_read_time, -1),
                        large_reads, large_read_bytes, coalesce(large_read_time, -1),
                        small_writes, small_write_bytes, coalesce(small_write_time, -1),
                        large_writes, large_write_bytes, coalesce(large_write_time, -1)
                 FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() AND filetype = $1",
                &[&filetype],
            )
            .expect("pg_stat_rowsource_tempfile_io");
        let requests = |at: usize| Requests {
            reqs: row.get(at),
            bytes: row.get(at + 1),
            ms: row.get(at + 2),
        };
        Io {
            small_read: requests(0),
            large_read: requests(3),
            small_write: requests(6),
            large_write: requests(9),
        }
    })
}

/// Returns the requests that a body led to, as another session sees them.
pub fn io_during(observer: &mut Client, body: impl FnOnce()) -> [Io; 2] {
    let before = io(observer);
    body();
    let after = io(observer);
    [after[0].since(&before[0]), after[1].since(&before[1])]
}

/// Returns the sources of the counters of the session's database.
pub fn sources(client: &mut Client) -> Vec<String> {
    texts(
        client,
        "SELECT DISTINCT source FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() ORDER BY 1",
    )
    .into_iter()
    .flatten()
    .flatten()
    .collect()
}

/// Creates the SQL functions of the tracer object, on a server that preloads it (LD_PRELOAD).
pub fn create_tracer(client: &mut Client) {
    let library = object("tracer/tracer.c");
    run_each(
        client,
        &format!(
            "CREATE OR REPLACE FUNCTION tracer_totals(temp_table bool, write bool) RETURNS text
                 AS '{0}' LANGUAGE c VOLATILE STRICT;
             CREATE OR REPLACE FUNCTION tracer_faults(every int) RETURNS void AS '{0}' LANGUAGE c VOLATILE STRICT;
             CREATE OR REPLACE FUNCTION tracer_delay(us int, every int) RETURNS void
                 AS '{0}' LANGUAGE c VOLATILE STRICT",
            library.display()
        ),
    );
}

/// Returns the requests, bytes and milliseconds that the tracer has seen of this session, of reads and of
/// writes.
pub fn traced(client: &mut Client, filetype: usize) -> [Requests; 2] {
    totals(client, filetype).map(|totals| Requests {
        reqs: totals[0],
        bytes: totals[1],
        ms: totals[2] as f64 / 1e6,
    })
}

/// Returns how many of these requests took as long as the tracer's delay, or longer.
pub fn delayed(client: &mut Client, filetype: usize) -> i64 {
    totals(client, filetype).map(|totals| totals[3]).iter().sum()
}

/// Returns the tracer's totals of reads and of writes.
fn totals(client: &mut Client, filetype: usize) -> [Vec<i64>; 2] {
    [false, true].map(|write| {
        let totals: String = value(
            client,
            &format!("SELECT tracer_totals({}, {write})", filetype == 1),
        );
        let numbers = totals.split(' ');
        numbers.map(|number| number.parse().expect("a number")).collect()
    })
}
