//! Instructions of a single-user backend, counted by callgrind.

use crate::environment::environment;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Instructions of a single-user backend that runs this script over `data`, with these settings. A statement ends at
/// an empty line.
pub fn instructions(data: &Path, settings: &[&str], script: &str) -> u64 {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let environment = environment();
    let run = RUNS.fetch_add(1, Relaxed);
    let output = environment
        .run
        .join(format!("callgrind-{}-{run}.out", std::process::id()));
    let mut command = environment.as_server(Path::new("/usr/bin/env"));
    command
        .args(["valgrind", "--tool=callgrind", "--error-exitcode=0"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(environment.pgbin.join("postgres"))
        .args(["--single", "-j", "-D"])
        .arg(data);
    for setting in settings {
        command.args(["-c", setting]);
    }
    command
        .args(["-c", "max_parallel_workers_per_gather=0", "-c", "jit=off"])
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
    let counts = fs::read_to_string(&output).expect("callgrind's output");
    let _ = fs::remove_file(&output);
    counts
        .lines()
        .find_map(|line| {
            line.strip_prefix("totals: ")
                .or_else(|| line.strip_prefix("summary: "))
        })
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("no totals in callgrind's output\n{said}"))
}
