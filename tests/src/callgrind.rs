//! Instructions of a single-user backend, counted by callgrind.
//!
//! The cost of one call or one statement is the difference of two runs that differ only in their number of calls or
//! statements. So start-up and work done once per plan do not count, and the result is the same on every machine.

use crate::environment::environment;
use crate::session::run_each;
use postgres::Client;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The rows of the two tables. The difference of their counts gives the instructions per call.
const ROWS: [u64; 2] = [10_000, 70_000];
/// The two numbers of statements. The difference of their counts gives the instructions per statement.
const STATEMENTS: [usize; 2] = [100, 400];

/// The recorded instructions that the library adds. The counts may fall: then record the new values here.
pub struct Recorded {
    pub major: i32,
    /// A call of a scan fused with its aggregate, and any other call.
    pub calls: [f64; 2],
    /// The [`SHORT`] statements. They are counted on 15 and on the newest major. Those in turns vary by 4 % with the time that they take,
    /// because a session flushes its buffer a few times a second: what is recorded is the middle of alone and beside other work.
    pub statements: Option<[f64; SHORT.len()]>,
}

pub const RECORDED: &[Recorded] = &[
    Recorded {
        major: 15,
        calls: [16.4, 38.8],
        statements: Some([3_180.0, 3_245.0, 3_315.0]),
    },
    Recorded {
        major: 17,
        calls: [15.7, 38.5],
        statements: None,
    },
    Recorded {
        major: 18,
        calls: [15.7, 38.5],
        statements: None,
    },
    Recorded {
        major: 19,
        calls: [15.2, 37.5],
        statements: Some([3_030.0, 3_120.0, 3_285.0]),
    },
];

/// Instructions may be this many times the recorded ones. Beside other work, runs of one build differ by 1 %.
const MARGIN: f64 = 1.03;

/// Returns the recorded instructions of a major. If there are none, only the design's budget holds.
pub fn recorded(major: i32) -> Option<&'static Recorded> {
    RECORDED.iter().find(|recorded| recorded.major == major)
}

/// Returns a message if more instructions were counted than recorded. Prints one if fewer were counted.
pub fn above_recorded(what: &str, counted: f64, recorded: Option<f64>) -> Option<String> {
    let recorded = recorded?;
    if counted < recorded / MARGIN {
        println!("{what}: {counted:.1} instructions, {recorded} recorded: record the new value");
    }
    (counted > recorded * MARGIN).then(|| format!("{what}: {counted:.1} instructions, {recorded} recorded"))
}

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

/// Counts what a single-user backend does for its statements: all that it does but for its start and its end. The start reads
/// core's file of statistics, which grows from run to run, and 19 calibrates its clock, for as long as it takes.
///
/// A session flushes the executions of a plan once a second, and keeps an execution that is slower than all before. That is not
/// counted either, because it is rare, and how often it happens depends on the machine. Neither are signal handlers: callgrind
/// never counts these.
const STATEMENTS_ONLY: &[&str] = &[
    "PostgresMain",
    "InitPostgres",
    "proc_exit",
    "pg_rowsource::pg::store::record::record_at_once",
    "pg_rowsource::pg::store::exemplars::keep",
];
/// Counts what runs plans. What a session does beside it, once a second or once in its life, is not counted.
const PLANS_ONLY: &[&str] = &["standard_ExecutorRun"];

/// Counts the instructions of a single-user backend that runs this script on `data`, with these settings. A statement ends
/// at an empty line.
pub fn instructions(data: &Path, settings: &[&str], script: &str) -> u64 {
    counted(STATEMENTS_ONLY, data, settings, script)
}

/// Counts how often a single-user backend executes the library's instructions at these addresses, which are those that objdump
/// prints.
pub fn executions(data: &Path, settings: &[&str], script: &str, addresses: &HashSet<u64>) -> u64 {
    const BY_INSTRUCTION: &[&str] = &["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"];
    let output = run_with(BY_INSTRUCTION, STATEMENTS_ONLY, data, settings, script);
    let counts = fs::read_to_string(&output).expect("callgrind's output");
    let _ = fs::remove_file(&output);
    let (mut is_ours, mut is_call, mut sum) = (false, false, 0);
    for line in counts.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = object.ends_with("/pg_rowsource.so");
        }
        // The line after that of a call has what the called function did.
        let of_call = std::mem::replace(&mut is_call, line.starts_with("calls="));
        if let Some(rest) = line.strip_prefix("0x").filter(|_| is_ours && !of_call) {
            let mut fields = rest.split(' ');
            let address = fields
                .next()
                .and_then(|address| u64::from_str_radix(address, 16).ok());
            if address.is_some_and(|address| addresses.contains(&address)) {
                let count = fields.next_back().and_then(|count| count.parse::<u64>().ok());
                sum += count.expect("a count");
            }
        }
    }
    sum
}

fn counted(toggles: &[&str], data: &Path, settings: &[&str], script: &str) -> u64 {
    let output = run(toggles, data, settings, script);
    let counts = fs::read_to_string(&output).expect("callgrind's output");
    let _ = fs::remove_file(&output);
    counts
        .lines()
        .find_map(|line| {
            line.strip_prefix("totals: ")
                .or_else(|| line.strip_prefix("summary: "))
        })
        .and_then(|number| number.trim().parse().ok())
        .expect("totals in callgrind's output")
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

/// Runs the script under callgrind, and returns the file of counts. Counting starts at a call of one of the functions and
/// stops at its return. Where it has started, it stops at a call and starts again at the return. No function may call itself.
fn run(toggles: &[&str], data: &Path, settings: &[&str], script: &str) -> PathBuf {
    run_with(&[], toggles, data, settings, script)
}

fn run_with(options: &[&str], toggles: &[&str], data: &Path, settings: &[&str], script: &str) -> PathBuf {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let environment = environment();
    let run = RUNS.fetch_add(1, Relaxed);
    let output = environment
        .run
        .join(format!("callgrind-{}-{run}.out", std::process::id()));
    let mut command = environment.as_server(Path::new("/usr/bin/env"));
    command
        .args(["valgrind", "--tool=callgrind", "--error-exitcode=0"])
        .args(options)
        .args(
            toggles
                .iter()
                .map(|function| format!("--toggle-collect={function}")),
        )
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

/// Creates the tables that [`of_a_call`] and [`of_a_statement`] read.
pub fn create_tables(client: &mut Client) {
    let [small, large] = ROWS;
    run_each(
        client,
        &format!(
            "CREATE TABLE small AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {small}) i;
             CREATE TABLE large AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {large}) i;
             CREATE TABLE accounts AS SELECT i AS aid, i AS balance FROM generate_series(1, 10000) i;
             ALTER TABLE accounts ADD PRIMARY KEY (aid); VACUUM (FREEZE, ANALYZE); CREATE EXTENSION pg_rowsource"
        ),
    );
}

/// Returns the instructions that measuring adds to one call of the scan in `select ... from`, at `sampfreq` 128.
pub fn of_a_call(data: &Path, select: &str) -> f64 {
    let count = |level: &str, table: &str| {
        let script = format!(
            "SET pg_rowsource.statistics_level = {level};\n\nSET pg_rowsource.sampfreq = 128;\n\n{select} FROM {table};\n\n"
        );
        counted(
            PLANS_ONLY,
            data,
            &["shared_preload_libraries=pg_rowsource"],
            &script,
        ) as f64
    };
    let measuring = |table: &str| count("typical", table) - count("basic", table);
    // The scan is called once for each row and once more; the aggregate above it is called twice.
    (measuring("large") - measuring("small")) / (ROWS[1] - ROWS[0]) as f64
}

/// The short statements: lookups by primary key as one prepared statement, as two prepared statements in turn, and as text.
pub const SHORT: [(&str, &[&str]); 3] = [
    ("prepared", &["EXECUTE p(1)"]),
    ("prepared, in turns", &["EXECUTE p(1)", "EXECUTE q(1)"]),
    ("simple", &["SELECT balance FROM accounts WHERE aid = 1"]),
];

/// Returns the instructions of one of the [`SHORT`] statements, with `settings`, after the statements of `before`.
pub fn of_a_statement(data: &Path, settings: &[&str], before: &str, statements: &[&str]) -> f64 {
    let count = |number: usize| {
        let script = format!(
            "SET plan_cache_mode = force_generic_plan;\n\n{before};\n\n\
             PREPARE p(int) AS SELECT balance FROM accounts WHERE aid = $1;\n\n\
             PREPARE q(int) AS SELECT balance, aid FROM accounts WHERE aid = $1;\n\n{}",
            format!("{};\n\n", statements.join(";\n\n")).repeat(number / statements.len())
        );
        instructions(data, settings, &script) as f64
    };
    let [few, many] = STATEMENTS;
    // The first session describes the plan and reads system tables; the others find what it left.
    count(statements.len());
    (count(many) - count(few)) / (many - few) as f64
}
