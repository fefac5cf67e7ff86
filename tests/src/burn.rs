//! The function that burns a known time: a few lines of C, compiled when a test wants it.

use crate::environment::{environment, pg_config};
use postgres::Client;
use std::fs;
use std::process::Command;

/// Compiles the library into the run folder, and creates `burn(us)` and `burned()` in the session's
/// database. The stated cost is next to nothing, so that the planner puts it first in every filter.
pub fn create(client: &mut Client) {
    let environment = environment();
    let source = environment.root.join("tests/burn/burn.c");
    let library = environment.run.join("rowsource_burn.so");
    // Compiled under a name of its own, then renamed: two tests may do this at the same time.
    let own = format!(
        "rowsource_burn-{}-{:?}.so",
        std::process::id(),
        std::thread::current().id()
    );
    let fresh = environment.run.join(own);
    let output = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-I"])
        .arg(pg_config("--includedir-server"))
        .arg("-o")
        .arg(&fresh)
        .arg(&source)
        .output()
        .expect("gcc can be run");
    assert!(
        output.status.success(),
        "gcc {}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, &library).expect("the library can be renamed");
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION burn(us double precision) RETURNS boolean
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL SAFE COST 0.001;
             CREATE OR REPLACE FUNCTION burned() RETURNS double precision
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED",
            library.display()
        ))
        .expect("burn() can be created");
}
