//! The table of narrow rows that the original measured, and its two scans.

use super::context::ExperimentContext;
use super::session::{Elapsed, Session};
use postgres::Client;
use rowsource_tests::session::run_each;
use rowsource_tests::{SHIPPED, Server};

/// Server settings that keep the table in memory and the plans of its scans the same.
pub const SETTINGS: [&str; 4] = [
    SHIPPED,
    "shared_buffers = '1GB'",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
];

/// The two scans: the name, the settings of the session, and the statement.
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

/// Creates the table with an id, one character, and an index on the id. Leaves all of it in shared buffers.
pub fn load(client: &mut Client, rows: u64) {
    run_each(
        client,
        &format!(
            "CREATE TABLE test (id int, pad text); INSERT INTO test SELECT i, '*' FROM generate_series(1, {rows}) i;
             CREATE INDEX test_id ON test (id); VACUUM (FREEZE, ANALYZE) test; CHECKPOINT"
        ),
    );
}

/// Starts a server with the table. Records and returns the number of its rows.
pub fn server(context: &mut ExperimentContext, name: &str) -> (Server, u64) {
    let rows = context.sizes.of(200_000, 10_000_000);
    context.setting("rows", rows);
    context.at(0.0, "loading");
    let server = Server::start(name, &SETTINGS);
    context.server(&server);
    load(&mut server.connect(), rows);
    (server, rows)
}

/// One run of a scan.
pub struct Run {
    pub elapsed: Elapsed,
    pub timer_calls: f64,
}

impl Run {
    /// Describes a run that pg_rowsource did not measure.
    pub fn unmeasured(elapsed: Elapsed) -> Self {
        Run {
            elapsed,
            timer_calls: 0.0,
        }
    }

    /// Runs a statement at level typical with these settings, and returns the session to level basic.
    pub fn measured(session: &mut Session, settings: &str, statement: &str) -> Self {
        session.run(&format!(
            "{settings}; SET pg_rowsource.statistics_level = typical"
        ));
        let elapsed = session.time(statement);
        session.run("SET pg_rowsource.statistics_level = basic");
        Run {
            elapsed,
            timer_calls: session.timer_calls(),
        }
    }
}

/// Returns the clock readings of a scan that times every call: two for each row and for the end of the scan,
/// and four for the aggregate's row and end.
pub fn readings_of_every_call(rows: u64) -> u64 {
    2 * (rows + 1) + 4
}
