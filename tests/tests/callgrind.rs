//! The cost of the hot path in instructions per call, counted by callgrind on a single-user backend.
//!
//! Two table sizes, each measured and not: the difference of the differences over the difference of the
//! calls leaves out start-up, planning and the once-per-plan work, and is the same on every machine.

use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::run_each;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

const SMALL_ROWS: u64 = 20_000;
const LARGE_ROWS: u64 = 220_000;
/// Instructions a call over a bare call that the hot path may take (design 3.2).
const BUDGET: f64 = 40.0;

/// Instructions of a single-user backend that runs this.
fn instructions(data: &Path, output: &Path, sql: &str) -> u64 {
    let environment = environment();
    let mut command = environment.as_server(Path::new("/usr/bin/env"));
    command
        .args(["valgrind", "--tool=callgrind", "--error-exitcode=0"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(environment.pgbin.join("postgres"))
        // -j: a statement ends at an empty line, not at each line's end.
        .args(["--single", "-j", "-D"])
        .arg(data)
        .args([
            "-c",
            "shared_preload_libraries=pg_rowsource",
            "-c",
            "max_parallel_workers_per_gather=0",
            "-c",
            "jit=off",
        ])
        .arg("postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("valgrind can be run");
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(sql.as_bytes())
        .expect("the statements can be sent");
    let finished = child.wait_with_output().expect("valgrind ends");
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(
        finished.status.success() && !said.contains("ERROR:"),
        "{sql}\n{said}"
    );
    let counts = fs::read_to_string(output).expect("callgrind's output");
    counts
        .lines()
        .find_map(|line| {
            line.strip_prefix("totals: ")
                .or_else(|| line.strip_prefix("summary: "))
        })
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("no totals in callgrind's output\n{said}"))
}

fn script(level: &str, statement: &str) -> String {
    format!(
        "SET pg_rowsource.statistics_level = {level};\n\nSET pg_rowsource.sampfreq = 128;\n\n{statement};\n\n"
    )
}

#[test]
fn a_call_costs_few_instructions() {
    let mut server = Server::preloaded("callgrind", &[]);
    run_each(
        &mut server.connect(),
        &format!(
            "CREATE TABLE small AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {SMALL_ROWS}) i;
             CREATE TABLE large AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, {LARGE_ROWS}) i;
             VACUUM (FREEZE, ANALYZE) small; VACUUM (FREEZE, ANALYZE) large; CREATE EXTENSION pg_rowsource"
        ),
    );
    server.stop();
    let data = server.data();
    let output = environment()
        .run
        .join(format!("callgrind-{}.out", std::process::id()));
    let count = |level: &str, table: &str| {
        let counted = instructions(
            &data,
            &output,
            &script(level, &format!("SELECT count(pad) FROM {table}")),
        );
        let _ = fs::remove_file(&output);
        counted as f64
    };
    let large = count("typical", "large") - count("basic", "large");
    let small = count("typical", "small") - count("basic", "small");
    // The scan is called once for each row and once more, the aggregate twice.
    let a_call = (large - small) / (LARGE_ROWS - SMALL_ROWS) as f64;
    println!("{a_call:.1} instructions a call over a bare call at sampfreq 128 (budget {BUDGET})");
    println!(
        "{:.0} instructions once per statement",
        small - a_call * SMALL_ROWS as f64
    );
    assert!(
        a_call <= BUDGET,
        "{a_call:.1} instructions a call, more than {BUDGET}"
    );
    assert!(
        a_call > 0.5,
        "{a_call:.1} instructions a call: was anything measured?"
    );
}
