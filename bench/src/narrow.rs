//! The narrow table of the original.

use crate::lab::Lab;
use crate::session::{Session, Took};
use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::run_each;

/// Settings under which the scans of [`load`] find all in memory, in the same plan each time.
pub const SETTINGS: [&str; 3] = [
    "shared_buffers = '1GB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
];

/// The two scans of [`load`]: their name, what the session must set, and the statement.
pub const SCANS: [(&str, &str, &str); 2] = [
    (
        "full scan",
        "RESET enable_seqscan; RESET enable_bitmapscan",
        "SELECT count(pad) FROM test",
    ),
    (
        "full index scan",
        "SET enable_seqscan = off; SET enable_bitmapscan = off",
        "SELECT count(pad) FROM test WHERE id > 0",
    ),
];

/// The table of the original: an id and one character, and an index on the id. All in shared buffers afterwards.
pub fn load(client: &mut Client, rows: u64) {
    run_each(
        client,
        &format!(
            "CREATE TABLE test (id int, pad text); INSERT INTO test SELECT i, '*' FROM generate_series(1, {rows}) i;
             CREATE INDEX test_id ON test (id); VACUUM (FREEZE, ANALYZE) test; CHECKPOINT"
        ),
    );
}

/// A server with the table, and how many rows are in it, which are noted.
pub fn server(lab: &mut Lab, name: &str) -> (Server, u64) {
    let rows = lab.sizes.of(200_000, 10_000_000);
    lab.setting("rows", rows);
    lab.at(0.0, "loading");
    let server = Server::start(name, &SETTINGS);
    lab.server(&server);
    load(&mut server.connect(), rows);
    (server, rows)
}

/// A run of one of the scans.
pub struct Run {
    pub took: Took,
    pub timer_calls: f64,
}

impl Run {
    /// One that we did not measure.
    pub fn unmeasured(took: Took) -> Self {
        Run {
            took,
            timer_calls: 0.0,
        }
    }

    /// One at level typical with these settings, in a session at level basic.
    pub fn measured(session: &mut Session, settings: &str, statement: &str) -> Self {
        session.run(&format!(
            "{settings}; SET pg_rowsource.statistics_level = typical"
        ));
        let took = session.time(statement);
        session.run("SET pg_rowsource.statistics_level = basic");
        Run {
            took,
            timer_calls: session.timer_calls(),
        }
    }
}

/// Clock readings of the scans of [`load`] where every call is timed: two for each row and for the end, and four
/// for the aggregate's row and end.
pub fn readings_of_every_call(rows: u64) -> u64 {
    2 * (rows + 1) + 4
}
