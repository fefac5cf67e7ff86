//! Instructions of a single-user backend, or of the sessions of a running server, counted by callgrind.
//!
//! The cost of one call or one statement is the difference of two parts of a run that differ only in their
//! number of calls or statements. So start-up and work done once per plan do not count, and the result is the
//! same on every machine.

mod left_out;
mod recorded;

pub use recorded::{call_above_recorded, recorded, statement_above_recorded};

use self::left_out::{PLANS_ONLY, STATEMENTS_ONLY, WITH_STORE};
use crate::compiled::object;
use crate::environment::environment;
use crate::server::Server;
use crate::session::{run_each, value};
use postgres::Client;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The rows of the two tables. The difference of their counts gives the instructions per call.
const ROWS: [u64; 2] = [10_000, 70_000];
/// The two numbers of statements. The difference of their counts gives the instructions per statement.
const STATEMENTS: [usize; 2] = [100, 400];
/// How many statements run before.
const WARM_UP: usize = 40;

/// A backend's instructions by function.
pub struct Profile {
    /// All instructions.
    pub total: u64,
    /// By function, including the functions that it called.
    inclusive: HashMap<String, u64>,
}

impl Profile {
    /// Returns the instructions in a function and in all functions that it called; 0 if it was not called.
    pub fn within(&self, function: &str) -> u64 {
        self.inclusive.get(function).copied().unwrap_or(0)
    }
}

/// Ends a part of a script: callgrind begins another one when the function is called.
const END_OF_PART: &str = "SELECT pg_backend_pid();\n\n";

/// The C library's functions that begin with one of these names are its allocator.
const ALLOCATOR: &[&str] = &[
    "malloc",
    "free",
    "realloc",
    "calloc",
    "_int_",
    "unlink_chunk",
    "sysmalloc",
    "systrim",
    "tcache_",
    "alloc_perturb",
];
/// What a call of the allocator counts. What it executes depends on which sizes were freed before in the life
/// of the process, and differs by 100 instructions a statement between two sessions that differ in nothing
/// else.
const ALLOCATION: u64 = 100;

/// The C library's functions of strings begin with this.
const STRINGS: &str = "__str";
/// What a call of one of them counts, unless calls from this place execute more than [`LONG_STRING`]. What it
/// executes depends on where the strings lie: whether they cross a page, and how long the paths are that were
/// allocated before.
const OF_STRINGS: u64 = 20;
const LONG_STRING: u64 = 200;

/// Prunes a page of a table, now and then. A catalog's pages have what other statements left there: which
/// statement meets a page that is to be pruned differs from session to session, with the library and without
/// it.
const PRUNING: &str = "heap_page_prune_opt";

/// Counts the instructions of a single-user backend that runs this script on `data`, with these settings. A
/// statement ends at an empty line.
pub fn instructions(data: &Path, settings: &[&str], script: &str) -> u64 {
    let output = run_with(&IN_FULL, STATEMENTS_ONLY, EVEN_DAY, data, settings, script);
    let counts = fs::read_to_string(&output).expect("callgrind's output");
    let _ = fs::remove_file(&output);
    sum(&counts)
}

/// Counts how often a single-user backend executes the library's instructions at each of these sets of
/// addresses, which are those that objdump prints, in each part of a script.
pub fn executions<const SETS: usize>(
    data: &Path,
    settings: &[&str],
    parts: &[String],
    addresses: &[HashSet<u64>; SETS],
) -> Vec<[u64; SETS]> {
    let executed = |counts: &str| {
        let mut sums = [0; SETS];
        visit_counts(counts, |at, cost| {
            if at.called.is_some() || !at.object.ends_with("/pg_rowsource.so") {
                return;
            }
            let address = at.position.strip_prefix("0x");
            let address = address.and_then(|address| u64::from_str_radix(address, 16).ok());
            for (sum, set) in sums.iter_mut().zip(addresses) {
                if address.is_some_and(|address| set.contains(&address)) {
                    *sum += cost;
                }
            }
        });
        sums
    };
    let by_address = ["--dump-instr=yes"];
    visit_parts(
        &by_address,
        STATEMENTS_ONLY,
        EVEN_DAY,
        data,
        settings,
        parts,
        executed,
    )
}

/// Counts the instructions of each part of a script. All parts run in one session, and each ends with the
/// same short statement, so a difference of two parts does not count it.
pub fn of_parts(data: &Path, settings: &[&str], parts: &[String]) -> Vec<u64> {
    visit_parts(&[], STATEMENTS_ONLY, EVEN_DAY, data, settings, parts, sum)
}

/// Does the same where the number of timed calls may depend on how long calls take, which is longer beside
/// other work: the session has a clock that only advances with its readings.
pub fn of_parts_by_even_clock(data: &Path, settings: &[&str], parts: &[String]) -> Vec<u64> {
    let settings = [settings, &["pg_rowsource.clock_source=system"]].concat();
    visit_parts(&[], STATEMENTS_ONLY, EVEN_CLOCK, data, &settings, parts, sum)
}

/// The instructions of a part of a script.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Those without what is judged.
    pub without: f64,
    /// Those that it adds.
    pub added: f64,
}

/// Counts what the library adds to each part of a script, which runs without it and with it.
pub fn of_library(data: &Path, settings: &[&str], parts: &[String]) -> Vec<Cost> {
    of_library_by(of_parts, data, settings, parts)
}

/// Counts the instructions of each part of a script.
type Count = fn(&Path, &[&str], &[String]) -> Vec<u64>;

fn of_library_by(count: Count, data: &Path, settings: &[&str], parts: &[String]) -> Vec<Cost> {
    let run = |library: &str| {
        let library = format!("shared_preload_libraries={library}");
        count(data, &[&[&library[..]], settings].concat(), parts)
    };
    let cost = |(without, with): (u64, u64)| Cost {
        without: without as f64,
        added: with as f64 - without as f64,
    };
    run("").into_iter().zip(run("pg_rowsource")).map(cost).collect()
}

/// Does the same for parts that are measured. Before, all of them run at level basic, because the first run
/// reads system tables.
pub fn of_measuring(data: &Path, settings: &[&str], parts: &[String]) -> Vec<Cost> {
    of_measuring_by(of_parts, data, settings, parts)
}

/// Does the same by the clock of [`of_parts_by_even_clock`].
pub fn of_measuring_by_even_clock(data: &Path, settings: &[&str], parts: &[String]) -> Vec<Cost> {
    of_measuring_by(of_parts_by_even_clock, data, settings, parts)
}

fn of_measuring_by(count: Count, data: &Path, settings: &[&str], parts: &[String]) -> Vec<Cost> {
    let level = |level: &str| format!("SET pg_rowsource.statistics_level = {level};\n\n");
    let first = [level("basic"), parts.concat(), level("typical")].concat();
    of_library_by(count, data, settings, &[&[first], parts].concat()).split_off(1)
}

/// Returns what each more unit costs between two sizes.
pub fn of_a_unit(sizes: [usize; 2], costs: [Cost; 2]) -> Cost {
    let of_a_unit = |counts: [f64; 2]| (counts[1] - counts[0]) / (sizes[1] - sizes[0]) as f64;
    Cost {
        without: of_a_unit(costs.map(|cost| cost.without)),
        added: of_a_unit(costs.map(|cost| cost.added)),
    }
}

/// Does the same for statements with new plans, and counts what writes these to the store.
pub fn of_new_plans(data: &Path, settings: &[&str], parts: &[String]) -> Vec<u64> {
    visit_parts(&[], WITH_STORE, EVEN_DAY, data, settings, parts, sum)
}

/// Runs the parts of a script in one session, and returns what `read` finds in the counts of each.
fn visit_parts<T>(
    options: &[&str],
    toggles: &[&str],
    clock: &str,
    data: &Path,
    settings: &[&str],
    parts: &[String],
    read: impl Fn(&str) -> T,
) -> Vec<T> {
    let options = [&IN_FULL[..], &["--dump-before=pg_backend_pid"], options].concat();
    let script: String = parts.iter().flat_map(|part| [part, END_OF_PART]).collect();
    let rest = run_with(&options, toggles, clock, data, settings, &script);
    let _ = fs::remove_file(&rest);
    let part = |number: usize| {
        let counts = PathBuf::from(format!("{}.{number}", rest.display()));
        let found = read(&fs::read_to_string(&counts).expect("the counts of a part"));
        let _ = fs::remove_file(&counts);
        found
    };
    let found = (1..=parts.len()).map(part).collect();
    let more = PathBuf::from(format!("{}.{}", rest.display(), parts.len() + 1));
    assert!(!more.exists(), "a part calls pg_backend_pid itself");
    found
}

/// Returns the sum of a file of counts, without those of pruning and of [`EVEN`] clocks. Calls of the C
/// library's allocator and of its functions of strings have fixed numbers.
fn sum(counts: &str) -> u64 {
    let mut sum = 0;
    let mut pruning = 0;
    visit_counts(counts, |at, cost| {
        let is_allocator = ALLOCATOR.iter().any(|name| at.function.starts_with(name));
        let is_fixed = is_allocator || at.function.starts_with(STRINGS);
        match at.called {
            _ if is_fixed && at.object.contains("/libc.so") => {}
            None if at.object.contains(EVEN) => {}
            None => sum += cost,
            Some(("malloc" | "calloc" | "realloc" | "free", calls)) => sum += calls * ALLOCATION,
            Some((called, calls)) if called.starts_with(STRINGS) => {
                sum += if cost > calls * LONG_STRING {
                    cost
                } else {
                    calls * OF_STRINGS
                };
            }
            Some((PRUNING, _)) => pruning += cost,
            Some(_) => {}
        }
    });
    sum - pruning
}

/// Where callgrind counted.
#[derive(Default)]
struct Counted<'a> {
    object: &'a str,
    function: &'a str,
    /// The address of the instruction, or 0.
    position: &'a str,
    /// The function that is called there, and how often. Then the count is that of the called function.
    called: Option<(&'a str, u64)>,
}

/// Has callgrind write whole names and addresses.
const IN_FULL: [&str; 2] = ["--compress-pos=no", "--compress-strings=no"];

/// Visits each count of a file that has whole names and addresses.
fn visit_counts(counts: &str, mut visit: impl FnMut(&Counted, u64)) {
    let mut at = Counted::default();
    let mut called = "";
    for line in counts.lines() {
        match line.split_once('=') {
            Some(("ob", name)) => at.object = name,
            Some(("fn", name)) => at.function = name,
            Some(("cfn", name)) => called = name,
            Some(("calls", calls)) => {
                let calls = calls.split(' ').next().and_then(|calls| calls.parse().ok());
                at.called = Some((called, calls.expect("a number of calls")));
            }
            None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                let (position, cost) = line.split_once(' ').expect("a position and a count");
                at.position = position;
                let cost = cost.rsplit(' ').next().and_then(|cost| cost.parse().ok());
                visit(&at, cost.expect("a count"));
                at.called = None;
            }
            _ => {}
        }
    }
}

/// Returns the sum of a file of counts. Its last line is that of the totals: a file without them is not
/// complete.
fn total(counts: &str) -> Option<u64> {
    let sum = counts.lines().find_map(|line| line.strip_prefix("totals: "));
    sum?.trim().parse().ok()
}

/// A running server whose sessions are counted.
pub struct CountedServer(Server);

impl CountedServer {
    /// Starts a stopped server again, under callgrind.
    pub fn launch(mut server: Server) -> CountedServer {
        let output = format!("--callgrind-out-file={}/callgrind.%p", server.folder().display());
        let toggles: Vec<String> = toggles(STATEMENTS_ONLY).collect();
        let mut runner = vec!["/usr/bin/valgrind", "--tool=callgrind", &output];
        runner.extend(toggles.iter().map(String::as_str));
        server.run_by(&runner);
        server.launch();
        CountedServer(server)
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.0
    }

    /// Counts the instructions of the statements of a session, which `run` sends.
    pub fn instructions(&self, run: impl FnOnce(&mut Client)) -> u64 {
        let mut client = self.0.connect();
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        run(&mut client);
        drop(client);
        let output = self.0.folder().join(format!("callgrind.{pid}"));
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let counts = fs::read_to_string(&output).unwrap_or_default();
            if let Some(sum) = total(&counts) {
                return sum;
            }
            assert!(Instant::now() < deadline, "no counts of session {pid}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn toggles(functions: &[&str]) -> impl Iterator<Item = String> {
    functions
        .iter()
        .map(|function| format!("--toggle-collect={function}"))
}

/// Counts the instructions of a single-user backend, by function.
pub fn profile(data: &Path, settings: &[&str], script: &str) -> Profile {
    let output = run(STATEMENTS_ONLY, data, settings, script);
    let annotated = Command::new("callgrind_annotate")
        .args([
            "--inclusive=yes",
            "--threshold=100",
            "--show-percs=no",
            "--auto=no",
        ])
        .arg(&output)
        .output()
        .expect("callgrind_annotate can be run");
    let _ = fs::remove_file(&output);
    assert!(
        annotated.status.success(),
        "{}",
        String::from_utf8_lossy(&annotated.stderr)
    );
    let mut inclusive = HashMap::new();
    let mut total = None;
    for line in String::from_utf8_lossy(&annotated.stdout).lines() {
        let Some((count, name)) = line.trim_start().split_once(' ') else {
            continue;
        };
        let Ok(count) = count.replace(',', "").parse::<u64>() else {
            continue;
        };
        // "file:function [object]". A function may occur once for each file that it was inlined from.
        match name.trim() {
            "PROGRAM TOTALS" => total = Some(count),
            name => {
                let name = name.split(" [").next().unwrap_or(name);
                let function = name.rsplit_once(':').map_or(name, |(_, function)| function);
                let known = inclusive.entry(function.to_string()).or_insert(0);
                *known = count.max(*known);
            }
        }
    }
    Profile {
        total: total.expect("totals in the output of callgrind_annotate"),
        inclusive,
    }
}

/// Runs the script under callgrind, and returns the file of counts. Counting starts at a call of one of the
/// functions and stops at its return. Where it has started, it stops at a call and starts again at the
/// return. No function may call itself.
fn run(toggles: &[&str], data: &Path, settings: &[&str], script: &str) -> PathBuf {
    run_with(&[], toggles, EVEN_DAY, data, settings, script)
}

fn run_with(
    options: &[&str],
    toggles: &[&str],
    clock: &str,
    data: &Path,
    settings: &[&str],
    script: &str,
) -> PathBuf {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let environment = environment();
    let run = RUNS.fetch_add(1, Relaxed);
    let output = environment
        .run
        .join(format!("callgrind-{}-{run}.out", std::process::id()));
    let mut command = environment.as_server(Path::new("/usr/bin/env"));
    command
        .arg(format!("LD_PRELOAD={}", object(clock).display()))
        .args(["valgrind", "--tool=callgrind", "--error-exitcode=0"])
        .args(options)
        .args(self::toggles(toggles))
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(environment.pgbin.join("postgres"))
        .args(["--single", "-j", "-D"])
        .arg(data);
    for setting in settings {
        command.args(["-c", setting]);
    }
    command
        .args(["-c", "max_parallel_workers_per_gather=0", "-c", "jit=off"])
        .args(["-c", "pg_rowsource.keep_constants=off"])
        .arg("postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("valgrind can be run");
    let mut input = child.stdin.take().expect("its input");
    input
        .write_all(script.as_bytes())
        .expect("the statements can be sent");
    drop(input);
    let finished = child.wait_with_output().expect("valgrind ends");
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(
        finished.status.success() && !said.contains("ERROR:"),
        "{script:.500}\n{said}"
    );
    output
}

/// Creates the tables that [`of_calls`] and [`of_statements`] use.
pub fn create_tables(client: &mut Client) {
    let [small, large] = ROWS;
    run_each(
        client,
        &format!(
            "CREATE TABLE small AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {small}) i;
             CREATE TABLE large AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {large}) i;
             CREATE TABLE changes (aid int);
             CREATE TABLE accounts AS SELECT i AS aid, i AS balance FROM generate_series(1, 10000) i;
             ALTER TABLE accounts ADD PRIMARY KEY (aid); VACUUM (FREEZE, ANALYZE); CREATE EXTENSION pg_rowsource"
        ),
    );
}

/// Calls of nodes: the statement that makes them for each row of `TABLE`, and the instructions that measuring
/// may add to them. The scan below an aggregate that only counts is fused with it; the scan below one that
/// compares texts is not. A limit has an input.
pub const CALLS: [(&str, &str, f64); 3] = [
    ("a call of a fused scan", "SELECT count(pad) FROM TABLE", 15.0),
    (
        "a call of a scan below an aggregate",
        "SELECT max(pad) FROM TABLE",
        25.0,
    ),
    (
        "a call of a limit, and one of the scan below it",
        "SELECT max(pad) FROM (SELECT pad FROM TABLE LIMIT 1000000000) s",
        60.0,
    ),
];

/// What runs a statement of [`CALLS`]: what comes first, and what comes before it. Core's EXPLAIN counts
/// rows, but reads no clock.
const WAYS: [(&str, &str); 3] = [
    ("SET pg_rowsource.statistics_level = basic", ""),
    ("SET pg_rowsource.statistics_level = typical", ""),
    (
        "SET pg_rowsource.statistics_level = basic",
        "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) ",
    ),
];

/// A clock that advances with each reading. Which calls are timed depends on the time that calls take: beside
/// other work, on another machine, and after an interruption, more of them.
const EVEN_CLOCK: &str = "even_clock/even_clock.c";
/// A time of day that advances with each reading. Other clocks are as ever.
const EVEN_DAY: &str = "even_clock/even_day.c";
/// What the names of both objects have, which are not counted.
const EVEN: &str = "rowsource_even_";

/// The instructions that are added to each of the [`CALLS`].
pub struct Calls {
    /// By measuring at `sampfreq` 128.
    pub measured: [f64; CALLS.len()],
    /// By core's EXPLAIN.
    pub explained: [f64; CALLS.len()],
}

/// Counts the instructions of the [`CALLS`].
pub fn of_calls(data: &Path) -> Calls {
    // The first scans read the tables' blocks. Then come, for each way and each call, the small table and the
    // large one.
    let mut parts = vec![
        "SET pg_rowsource.sampfreq = 128;\n\nSET pg_rowsource.statistics_level = basic;\n\n\
         SELECT count(*) FROM small;\n\nSELECT count(*) FROM large;\n\n"
            .to_owned(),
    ];
    for (before, prefix) in WAYS {
        for (_, statement, _) in CALLS {
            for table in ["small", "large"] {
                let statement = statement.replace("TABLE", table);
                parts.push(format!("{before};\n\n{prefix}{statement};\n\n"));
            }
        }
    }
    let settings = [
        "shared_preload_libraries=pg_rowsource",
        "pg_rowsource.clock_source=system",
    ];
    let counts = visit_parts(&[], PLANS_ONLY, EVEN_CLOCK, data, &settings, &parts, sum);
    // The scan is called once for each row and once more; the aggregate above it is called twice.
    let of_a_row = |way: usize, call: usize| {
        let part = 1 + 2 * (way * CALLS.len() + call);
        (counts[part + 1] as f64 - counts[part] as f64) / (ROWS[1] - ROWS[0]) as f64
    };
    let added = |way: usize| std::array::from_fn(|call| of_a_row(way, call) - of_a_row(0, call));
    Calls {
        measured: added(1),
        explained: added(2),
    }
}

/// The short statements, with the statistics level: lookups by primary key as one prepared statement, as two
/// prepared statements in turn, and as text; a plan of three nodes; a row that is inserted; and the first of
/// them where nothing is measured.
pub const SHORT: [(&str, &str, &[&str]); 6] = [
    ("prepared", "typical", &["EXECUTE p(1)"]),
    ("prepared, in turns", "typical", &["EXECUTE p(1)", "EXECUTE q(1)"]),
    (
        "simple",
        "typical",
        &["SELECT balance FROM accounts WHERE aid = 1"],
    ),
    ("a join of two lookups, prepared", "typical", &["EXECUTE j(1)"]),
    ("an insert, prepared", "typical", &["EXECUTE i(1)"]),
    ("prepared, level basic", "basic", &["EXECUTE p(1)"]),
];

/// Returns the instructions of each statement, in a session that has executed all of them before, after a
/// statement that sets it up.
pub fn of_known_statements(data: &Path, settings: &[&str], before: &str, statements: &[String]) -> Vec<u64> {
    let ended = |statement: &String| format!("{statement};\n\n");
    let first: String = statements.iter().map(ended).collect();
    let mut parts = vec![format!("{before};\n\n{first}")];
    parts.extend(statements.iter().map(ended));
    of_parts(data, settings, &parts).split_off(1)
}

/// Returns the instructions of some of the [`SHORT`] statements, each after a statement that sets it up. All
/// run in one session, with these settings.
pub fn of_statements(data: &Path, settings: &[&str], short: &[(&str, &[&str])]) -> Vec<f64> {
    let [few, many] = STATEMENTS;
    let mut parts = Vec::new();
    for (before, statements) in short {
        let each = format!("{};\n\n", statements.join(";\n\n"));
        let times = |number: usize| each.repeat(number / statements.len());
        // The first executions describe the plan, and read system tables.
        let first = format!("{before};\n\n{}", times(WARM_UP));
        parts.extend([first, times(few), times(many)]);
    }
    // Each run begins with the same empty table: what an insert costs depends on the pages that the table
    // has.
    parts[0].insert_str(
        0,
        "TRUNCATE changes;\n\n\
         SET plan_cache_mode = force_generic_plan;\n\n\
         PREPARE p(int) AS SELECT balance FROM accounts WHERE aid = $1;\n\n\
         PREPARE q(int) AS SELECT balance, aid FROM accounts WHERE aid = $1;\n\n\
         PREPARE j(int) AS SELECT a.balance FROM accounts a JOIN accounts b ON b.aid = a.balance WHERE a.aid = $1;\n\n\
         PREPARE i(int) AS INSERT INTO changes VALUES ($1);\n\n",
    );
    let counts = of_parts(data, settings, &parts);
    let of_counts = |counts: &[u64]| (counts[2] as f64 - counts[1] as f64) / (many - few) as f64;
    counts.chunks(3).map(of_counts).collect()
}
