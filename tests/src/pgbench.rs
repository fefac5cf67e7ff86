//! Runs pgbench against a throwaway server.

use crate::environment::environment;
use crate::server::Server;
use crate::session::run_each;
use std::fmt::Display;
use std::process::Command;

/// Runs pgbench with these arguments in sessions with these settings (as in PGOPTIONS), and returns its
/// output.
pub fn pgbench(server: &Server, options: &str, arguments: &[&str]) -> String {
    let environment = environment();
    let output = Command::new(environment.pgbin.join("pgbench"))
        .args(["-h".as_ref(), server.folder().as_os_str()])
        .args(["-U", "postgres"])
        .args(arguments)
        .arg("postgres")
        .env("PGOPTIONS", options)
        .output()
        .expect("pgbench can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Creates pgbench's tables of this scale, and writes them to disk.
pub fn fill(server: &Server, scale: u32) {
    pgbench(server, "", &["-i", "-q", "-s", &scale.to_string()]);
    run_each(&mut server.connect(), "CHECKPOINT");
}

/// Returns the statements of pgbench's TPC-B script at scale 1, between BEGIN and END, with these expressions
/// as its random numbers.
pub fn tpcb(aid: impl Display, tid: impl Display, delta: impl Display) -> [String; 5] {
    [
        format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}"),
        format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}"),
        format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}"),
        format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1"),
        format!("INSERT INTO pgbench_history VALUES ({tid}, 1, {aid}, {delta}, CURRENT_TIMESTAMP)"),
    ]
}

/// Returns the throughput that a run of pgbench reports.
pub fn transactions_per_second(server: &Server, options: &str, arguments: &[&str]) -> f64 {
    let said = pgbench(server, options, arguments);
    number_after(&said, "tps = ")
}

/// Returns the number that follows `words` in the line that begins with them.
pub fn number_after(said: &str, words: &str) -> f64 {
    said.lines()
        .find_map(|line| line.strip_prefix(words)?.split([' ', '/']).next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {words:?} in {said}"))
}
