//! Statements that become slower for a planted cause, and what the library says of them. Who judges does not
//! know what was planted.

use crate::Server;
use crate::compiled::object;
use crate::session::{run_each, value};
use crate::store::measure_all;
use crate::waiting::{Ended, TIMEOUT};
use postgres::Client;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    IndexDropped,
    StatisticsStale,
    GenericPlan,
    TableGrown,
    ColdCache,
    LockHeld,
    WorkMemLowered,
    SlowerStorage,
    FewerWorkers,
}

/// How often each statement runs before and after.
const EXECUTIONS: usize = 12;
/// The quarters of an hour in which those after are, as the library sees it: so many it looks at.
const QUARTERS: usize = 4;
/// Statements that stay as they are, and how often each runs before each execution of another: they say how
/// fast the machine is then.
const CONTROLS: [usize; 2] = [6, 2];
/// The microseconds of a read, before and after it is made slower.
const READ_US: [&str; 2] = ["100", "1000"];

/// What the library says.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The cause that rowsource_compare() names; `None` if it names none.
    pub cause: Option<String>,
    /// How many times as long the mean execution takes.
    pub ratio: f64,
    /// What rowsource_regressions() says is the cause, if it has the statement: nothing if it knows none.
    pub regression: Option<String>,
    /// The parts of the difference, and the comparison of each node.
    pub shown: String,
}

impl Planted {
    pub const ALL: [Planted; 9] = [
        Planted::IndexDropped,
        Planted::StatisticsStale,
        Planted::GenericPlan,
        Planted::TableGrown,
        Planted::ColdCache,
        Planted::LockHeld,
        Planted::WorkMemLowered,
        Planted::SlowerStorage,
        Planted::FewerWorkers,
    ];

    /// Returns the cause that must be named.
    pub fn expected(self) -> &'static str {
        match self {
            Planted::IndexDropped => "index gone",
            Planted::StatisticsStale => "wrong estimate",
            Planted::GenericPlan => "generic plan",
            Planted::TableGrown => "more data",
            Planted::ColdCache => "cold cache",
            Planted::LockHeld => "locks",
            Planted::WorkMemLowered => "spilling",
            Planted::SlowerStorage => "slower storage",
            Planted::FewerWorkers => "less parallelism",
        }
    }

    /// Returns what a sentence has that names it.
    pub fn words(self) -> &'static str {
        match self {
            Planted::IndexDropped => "is gone",
            Planted::StatisticsStale => "were expected",
            Planted::GenericPlan => "the plan is generic",
            Planted::TableGrown => "it handles more data",
            Planted::ColdCache => "more blocks are read",
            Planted::LockHeld => "it waits for locks",
            Planted::WorkMemLowered => "it writes temporary files",
            Planted::SlowerStorage => "a read takes longer",
            Planted::FewerWorkers => "fewer processes share the work",
        }
    }

    /// Returns whether it makes a regression. Waits for locks are no busy time, which must be three times as
    /// long without another plan; with fewer workers it is not.
    pub fn is_regression(self) -> bool {
        !matches!(self, Planted::LockHeld | Planted::FewerWorkers)
    }

    /// Returns whether a cause may be true where nothing was planted in this statement: only times tell
    /// these, and how long the same work takes is for a machine that others use to say. Parallel workers that
    /// begin late, or not at all, are fewer.
    pub fn may_be_true(self, cause: &str) -> bool {
        ["slower storage", "more CPU per row", "outside of the nodes"].contains(&cause)
            || self == Planted::FewerWorkers && cause == self.expected()
    }

    /// Returns a statement for each cause.
    fn statement(self) -> &'static str {
        match self {
            Planted::IndexDropped => "SELECT count(note) FROM orders WHERE customer = 42",
            Planted::StatisticsStale => {
                "SELECT count(d.pad) FROM events e JOIN wide d ON d.id = 1 + e.id % 299 WHERE e.kind = 9"
            }
            Planted::GenericPlan => "EXECUTE of_kind(42)",
            Planted::TableGrown => "SELECT count(pad) FROM grows",
            Planted::ColdCache => "SELECT count(pad) FROM wide WHERE id <= 200",
            Planted::LockHeld => "UPDATE counters SET n = n + 1 WHERE id = 1",
            Planted::WorkMemLowered => {
                "SELECT count(*) FROM (SELECT note FROM orders ORDER BY id + 0, note OFFSET 0) s"
            }
            Planted::SlowerStorage => "SELECT count(pad) FROM cold",
            Planted::FewerWorkers => "SELECT count(pad) FROM shared",
        }
    }

    /// Returns the statement that plants it in the tables.
    fn in_tables(self, rows: usize) -> Option<String> {
        match self {
            Planted::IndexDropped => Some("DROP INDEX orders_customer_idx".to_owned()),
            Planted::StatisticsStale => {
                Some("INSERT INTO events SELECT i, 9 FROM generate_series(1, 250) i".to_owned())
            }
            Planted::TableGrown => Some(format!(
                "INSERT INTO grows SELECT repeat('x', 7000) FROM generate_series(1, {rows} * 9 / 750) i; VACUUM ANALYZE grows"
            )),
            _ => None,
        }
    }

    /// Returns what the session sets while it runs the statement.
    fn settings(self, is_planted: bool) -> &'static str {
        match (self, is_planted) {
            (Planted::GenericPlan, true) => "SET plan_cache_mode = force_generic_plan",
            (Planted::WorkMemLowered, true) => "SET work_mem = '64kB'",
            (Planted::FewerWorkers, true) => {
                "SET max_parallel_workers_per_gather = 2; SET seq_page_cost = 0; SET max_parallel_workers = 0"
            }
            (Planted::FewerWorkers, false) => {
                "SET max_parallel_workers_per_gather = 2; SET seq_page_cost = 0"
            }
            _ => "SELECT",
        }
    }

    /// Returns whether nothing that it reads is in shared buffers. Times of reads are the same on a machine
    /// that others use, those of a processor are not.
    fn is_cold(self, is_planted: bool) -> bool {
        match self {
            Planted::StatisticsStale
            | Planted::TableGrown
            | Planted::SlowerStorage
            | Planted::FewerWorkers => true,
            Planted::ColdCache => is_planted,
            _ => false,
        }
    }

    /// Returns the microseconds of a read.
    fn read_us(self, is_planted: bool) -> &'static str {
        READ_US[usize::from(is_planted && self == Planted::SlowerStorage)]
    }
}

/// What a session has set while it runs nothing of these.
/// From 17 on, a read is not of many blocks.
const SETTINGS: &str = "RESET ALL; SET work_mem = '64MB'; SET plan_cache_mode = force_custom_plan;
     SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET enable_bitmapscan = off;
     SELECT set_config(name, '1', false) FROM pg_settings WHERE name = 'io_combine_limit'";

/// Makes reads of blocks take this many microseconds.
fn reads_take(server: &Server, us: &str) {
    fs::write(server.data().join("slow_reads"), us).expect("the file");
}

/// Starts a server for planted causes, on which a read takes as long as on a disk.
pub fn server(name: &str) -> Server {
    let server = Server::overridden(
        name,
        &[
            "pg_rowsource.snapshot_interval = 0",
            "autovacuum = off",
            "jit = off",
            "track_io_timing = on",
            "shared_buffers = '16MB'",
            "effective_io_concurrency = 0",
            "max_parallel_workers_per_gather = 0",
        ],
        &object("slow_reads/slow_reads.c"),
    );
    reads_take(&server, READ_US[0]);
    server
}

/// Makes the tables. `rows` is their size.
fn prepare(server: &Server, client: &mut Client, rows: usize) {
    reads_take(server, "0");
    let sql = format!(
        "DROP TABLE IF EXISTS orders, events, skewed, grows, wide, counters, cold, shared, other;
         CREATE TABLE orders AS SELECT i AS id, i % ({rows} / 12) AS customer, md5(i::text) AS note FROM generate_series(1, {rows}) i;
         CREATE INDEX orders_customer_idx ON orders (customer); CREATE INDEX ON orders (id);
         CREATE TABLE events AS SELECT i AS id, CASE WHEN i % ({rows} / 10) = 0 THEN 9 ELSE i % 5 END AS kind
           FROM generate_series(1, {rows}) i;
         CREATE INDEX ON events (kind);
         CREATE TABLE skewed AS SELECT i AS id, CASE WHEN i % ({rows} / 10) = 0 THEN 42 ELSE i % 2 END AS kind
           FROM generate_series(1, {rows}) i;
         CREATE INDEX ON skewed (kind);
         CREATE TABLE grows (pad text); ALTER TABLE grows ALTER pad SET STORAGE PLAIN;
         INSERT INTO grows SELECT repeat('x', 7000) FROM generate_series(1, {rows} / 750) i;
         CREATE TABLE counters AS SELECT 1 AS id, 0 AS n;
         CREATE TABLE wide (id int PRIMARY KEY, pad text); ALTER TABLE wide ALTER pad SET STORAGE PLAIN;
         INSERT INTO wide SELECT i, repeat('x', 7000) FROM generate_series(1, 300) i;
         CREATE TABLE other (id int PRIMARY KEY, pad text); ALTER TABLE other ALTER pad SET STORAGE PLAIN;
         INSERT INTO other SELECT i, repeat('x', 7000) FROM generate_series(1, 2500) i;
         CREATE TABLE cold (pad text); ALTER TABLE cold ALTER pad SET STORAGE PLAIN;
         INSERT INTO cold SELECT repeat('x', 7000) FROM generate_series(1, 200) i;
         CREATE TABLE shared (pad text); ALTER TABLE shared ALTER pad SET STORAGE PLAIN;
         INSERT INTO shared SELECT repeat('x', 7000) FROM generate_series(1, 1200) i;
         ALTER TABLE shared SET (parallel_workers = 2);
         VACUUM ANALYZE; SELECT rowsource_reset(); DELETE FROM rowsource_snapshots;
         DEALLOCATE ALL; PREPARE of_kind(int) AS SELECT count(id) FROM skewed WHERE kind = $1; {SETTINGS}"
    );
    run_each(client, &sql);
    measure_all(client);
    reads_take(server, READ_US[0]);
}

/// Who runs statements, and who disturbs them.
struct Stage<'a> {
    server: &'a Server,
    client: Client,
    other: Client,
    lock: Arc<Lock>,
    is_planted: bool,
    /// When the first quarter of an hour begins: in the past, so that all have ended.
    start: String,
}

/// What another session does with a row: whether it locks it for a while again and again, whether it does
/// now, and whether it may end.
#[derive(Default)]
struct Lock {
    is_wanted: AtomicBool,
    is_held: AtomicBool,
    is_done: AtomicBool,
}

impl Lock {
    /// Locks the row for 20 ms at a time.
    fn run(&self, server: &Server) {
        let mut client = server.session();
        while !self.is_done.load(Relaxed) {
            if self.is_wanted.load(Relaxed) {
                run_each(
                    &mut client,
                    "BEGIN; SELECT n FROM counters WHERE id = 1 FOR UPDATE",
                );
                self.is_held.store(true, Relaxed);
                std::thread::sleep(Duration::from_millis(20));
                self.is_held.store(false, Relaxed);
                run_each(&mut client, "COMMIT");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the row is locked, if somebody wants that.
    fn wait(&self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.is_wanted.load(Relaxed) && !self.is_held.load(Relaxed) {
            assert!(Instant::now() < deadline, "nobody locks the row");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Stage<'_> {
    /// Reads so many other blocks that no others are in shared buffers.
    fn evict(&mut self) {
        reads_take(self.server, "0");
        run_each(&mut self.other, "SELECT count(pad) FROM other WHERE id > 0");
    }

    /// Stores a snapshot of the end of a quarter of an hour, and returns when that is.
    fn snapshot(&mut self, quarter: usize) -> String {
        run_each(&mut self.client, "SELECT rowsource_snapshot()");
        let moved = format!(
            "UPDATE rowsource_snapshots SET taken_at = {} WHERE snap_id = (SELECT max(snap_id) FROM rowsource_snapshots)",
            self.moment(quarter)
        );
        run_each(&mut self.client, &moved);
        value(
            &mut self.client,
            "SELECT max(taken_at)::text FROM rowsource_snapshots",
        )
    }

    /// Returns the end of a quarter of an hour.
    fn moment(&self, quarter: usize) -> String {
        format!("('{}'::timestamptz + {quarter} * interval '15 min')", self.start)
    }

    /// Ends a quarter of an hour: the library looks for regressions.
    fn end_quarter(&mut self, quarter: usize) {
        let look = format!("SELECT rowsource_judge({})", self.moment(quarter));
        run_each(&mut self.client, &look);
    }

    /// Runs each statement a few times. Returns their queryids.
    fn run(&mut self, statements: &[Planted], executions: usize) -> Vec<i64> {
        let run = |of: &Planted| {
            run_each(&mut self.client, of.settings(self.is_planted));
            for _ in 0..executions {
                run_controls(&mut self.client);
                if of.is_cold(self.is_planted) {
                    self.evict();
                }
                reads_take(self.server, of.read_us(self.is_planted));
                if *of == Planted::LockHeld {
                    self.lock.wait();
                }
                run_each(&mut self.client, of.statement());
            }
            let queryid = value(&mut self.client, "SELECT queryid FROM rowsource_last()");
            run_each(&mut self.client, SETTINGS);
            measure_all(&mut self.client);
            queryid
        };
        statements.iter().map(run).collect()
    }
}

/// Runs what stays as it is.
fn run_controls(client: &mut Client) {
    let [statements, executions] = CONTROLS;
    for i in 0..statements * executions {
        let columns = "1, ".repeat(i % statements);
        run_each(
            client,
            &format!("SELECT {columns}count(*) FROM (SELECT generate_series(1, 2000)) s"),
        );
    }
}

/// Runs the statement of a cause, plants what is planted, and runs it again. Returns what the library says.
/// `rows` is the size of the tables.
pub fn judged(server: &Server, of: Planted, is_planted: bool, rows: usize) -> Judged {
    judged_each(server, &[of], is_planted, rows).remove(0)
}

/// Does so with several statements, of which each has its own cause.
pub fn judged_each(server: &Server, statements: &[Planted], is_planted: bool, rows: usize) -> Vec<Judged> {
    let mut stage = Stage {
        server,
        client: server.session(),
        other: server.session(),
        lock: Arc::default(),
        is_planted: false,
        start: String::new(),
    };
    prepare(server, &mut stage.client, rows);
    let minutes = 15 * (QUARTERS + 2);
    stage.start = value(
        &mut stage.client,
        &format!("SELECT (now() - {minutes} * interval '1 min')::text"),
    );
    run_each(
        &mut stage.other,
        "SET enable_seqscan = off; SET pg_rowsource.statistics_level = basic",
    );
    // The first executions read what the others find.
    stage.evict();
    stage.run(statements, 2);
    let begin = stage.snapshot(0);
    stage.end_quarter(0);
    let queryids = stage.run(statements, EXECUTIONS);
    let middle = stage.snapshot(1);
    stage.end_quarter(1);
    stage.is_planted = is_planted;
    for sql in statements
        .iter()
        .filter_map(|of| of.in_tables(rows))
        .filter(|_| is_planted)
    {
        run_each(&mut stage.client, &sql);
    }
    let is_locked = is_planted && statements.contains(&Planted::LockHeld);
    stage.lock.is_wanted.store(is_locked, Relaxed);
    let lock = Arc::clone(&stage.lock);
    std::thread::scope(|scope| {
        let _ended = Ended(&lock.is_done);
        scope.spawn(|| lock.run(server));
        for quarter in 0..QUARTERS {
            stage.run(statements, EXECUTIONS / QUARTERS);
            if quarter < QUARTERS - 1 {
                stage.end_quarter(2 + quarter);
            }
        }
    });
    let end = stage.snapshot(1 + QUARTERS);
    stage.end_quarter(1 + QUARTERS);
    let moments = [begin, middle, end];
    let says = |queryid| says(&mut stage.client, queryid, &moments);
    queryids.into_iter().map(says).collect()
}

/// Asks the library what has changed. It knows the statement and the moments only.
fn says(client: &mut Client, queryid: i64, [begin, middle, end]: &[String; 3]) -> Judged {
    let json = format!(
        "SELECT rowsource_compare({queryid}, '{begin}..{middle}', '{middle}..{end}', format => 'json')::jsonb AS j"
    );
    let row = client
        .query_one(
            &format!(
                "WITH c AS MATERIALIZED ({json})
                 SELECT j->>'cause', j::text, (j->>'b_mean_time')::float8 / (j->>'a_mean_time')::float8 FROM c"
            ),
            &[],
        )
        .expect("a comparison");
    let regression = value(
        client,
        &format!(
            "SELECT max(coalesce(cause, '')) FROM rowsource_regressions() WHERE queryid = {queryid} AND state <> 'over'"
        ),
    );
    Judged {
        cause: row.get(0),
        ratio: row.get(2),
        regression,
        shown: row.get(1),
    }
}
