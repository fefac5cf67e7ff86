//! Sessions that run known plans must not write to the same cache lines of shared memory, except for those
//! that PostgreSQL itself writes. With many cores, each such line would make them wait for each other.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::shared_lines::{Line, Lines, Segment, SharedMemory, lines_of};
use std::collections::BTreeSet;

/// Plans of one to five nodes. Their nodes lie in memory of different sizes. Executions of plans with more
/// than eight nodes always go to the store.
const PLANS: [&str; 4] = [
    "SELECT v FROM t WHERE id = $1",
    "SELECT count(*) FROM t WHERE v < $1",
    "SELECT max(v) FROM (SELECT v FROM t WHERE id > $1 LIMIT 3) s",
    "SELECT count(*) FROM t a JOIN t b USING (id) WHERE a.v > $1",
];

struct Session {
    client: Client,
    pid: u32,
}

impl Session {
    /// Opens a session at level basic.
    fn new(server: &Server) -> Session {
        let mut client = server.connect();
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        run_each(&mut client, "SET plan_cache_mode = force_generic_plan");
        for (i, plan) in PLANS.iter().enumerate() {
            run_each(&mut client, &format!("PREPARE p{i}(int) AS {plan}"));
        }
        Session {
            client,
            pid: pid as u32,
        }
    }

    fn execute(&mut self, plan: usize) {
        run_each(&mut self.client, &format!("EXECUTE p{plan}(1)"));
    }

    fn segments(&self) -> BTreeSet<Segment> {
        SharedMemory::of(self.pid).segments()
    }

    /// Returns the lines that the session uses when it executes a plan that it knows.
    fn lines_of_known_plan(&mut self, plan: usize) -> Lines {
        // The first one may add earlier executions to the store.
        (0..3).for_each(|_| self.execute(plan));
        lines_of(self.pid, || self.execute(plan))
    }
}

/// A line that one session writes and another one uses.
struct Shared {
    /// What the line belongs to.
    name: String,
    is_of_library: bool,
}

/// Runs the plans in two sessions of a server with a library. Returns the lines that one of them writes and
/// the other one uses.
fn shared(library: &str) -> Vec<Shared> {
    let folder = format!("lines-{}", if library.is_empty() { "nothing" } else { library });
    let preload = format!("shared_preload_libraries = '{library}'");
    // A session writes to the store once a second, and when an execution of more than a millisecond is the
    // slowest one. Here, a statement takes seconds.
    let server = Server::overridden(
        &folder,
        &[
            &preload,
            "max_parallel_workers_per_gather = 0",
            "jit = off",
            "pg_rowsource.statistics_level = basic",
            "pg_rowsource.clock_source = system",
        ],
        &object("slow_clock/slow_clock.c"),
    );
    run_each(
        &mut server.connect(),
        "CREATE TABLE t AS SELECT i AS id, i % 10 AS v FROM generate_series(1, 20) i;
         ALTER TABLE t ADD PRIMARY KEY (id); VACUUM (FREEZE, ANALYZE) t; CHECKPOINT",
    );
    // An unmeasured session has mapped what is PostgreSQL's.
    let mut unmeasured = Session::new(&server);
    (0..PLANS.len()).for_each(|plan| unmeasured.execute(plan));
    let core = unmeasured.segments();
    let mut sessions = [Session::new(&server), Session::new(&server)];
    for session in &mut sessions {
        run_each(&mut session.client, "SET pg_rowsource.statistics_level = typical");
    }
    // In turn, so that what belongs to them lies side by side.
    for _ in 0..10 {
        for plan in 0..PLANS.len() {
            sessions.iter_mut().for_each(|session| session.execute(plan));
        }
    }
    let [one, other] = sessions.each_mut().map(|session| {
        let mut all = Lines::default();
        (0..PLANS.len()).for_each(|plan| all.add(session.lines_of_known_plan(plan)));
        all
    });
    println!(
        "{folder}: the sessions write {} and {} lines of shared memory, and read {} and {}",
        one.written.len(),
        other.written.len(),
        one.read.len(),
        other.read.len()
    );
    let of_library = &sessions[0].segments() - &core;
    assert_eq!(of_library.is_empty(), library != "pg_rowsource");
    let parts = Parts::of(&mut unmeasured.client);
    let line = |line: &Line| {
        let name = if core.contains(&line.segment) || of_library.contains(&line.segment) {
            "dynamic shared memory".to_string()
        } else {
            parts.name(line.offset)
        };
        let use_of = |by: &Lines| {
            let (reads, writes) = (by.read.contains(line), by.written.contains(line));
            format!(
                "{}{}",
                if reads { "r" } else { "-" },
                if writes { "w" } else { "-" }
            )
        };
        println!(
            "  {name}, line {:#x}: {} {}",
            line.offset,
            use_of(&one),
            use_of(&other)
        );
        Shared {
            is_of_library: of_library.contains(&line.segment) || name.starts_with("pg_rowsource"),
            name,
        }
    };
    one.shared_with(&other).iter().map(line).collect()
}

/// The parts of main shared memory that have names.
struct Parts(Vec<(String, u64, u64)>);

impl Parts {
    fn of(client: &mut Client) -> Parts {
        let rows = texts(
            client,
            "SELECT name, off, allocated_size FROM pg_shmem_allocations WHERE name IS NOT NULL AND off IS NOT NULL",
        );
        let part = |row: Vec<Option<String>>| {
            let mut cells = row.into_iter().flatten();
            let (name, offset, size) = (cells.next()?, cells.next()?, cells.next()?);
            Some((name, offset.parse().ok()?, size.parse().ok()?))
        };
        Parts(rows.into_iter().filter_map(part).collect())
    }

    fn name(&self, offset: u64) -> String {
        let part = self
            .0
            .iter()
            .find(|(_, from, bytes)| (*from..from + bytes).contains(&offset));
        part.map_or("main shared memory".to_string(), |(name, _, _)| name.clone())
    }
}

#[test]
fn sessions_that_run_known_plans_share_no_line_release_before_pg16() {
    let ours = shared("pg_rowsource");
    println!(
        "with pg_rowsource, {} lines that one session writes and the other one uses",
        ours.len()
    );
    let (wrong, core): (Vec<&Shared>, Vec<&Shared>) = ours.iter().partition(|shared| shared.is_of_library);
    // Both sessions pin the same buffers: such lines are found.
    assert!(core.iter().any(|shared| shared.name == "Buffer Descriptors"));
    assert!(wrong.is_empty(), "{} lines of the library", wrong.len());
}

#[test]
fn sessions_share_more_lines_with_pg_stat_statements_long() {
    let [ours, none, statements] =
        ["pg_rowsource", "", "pg_stat_statements"].map(|library| shared(library).len());
    println!("lines: pg_rowsource {ours}, nothing loaded {none}, pg_stat_statements {statements}");
    assert!(none <= ours && ours < statements);
}
