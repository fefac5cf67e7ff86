//! The README's quick start on a server that somebody has: with the configuration of a package, and with
//! another library preloaded.

use rowsource_tests::Server;
use rowsource_tests::documents::{blocks, read};
use rowsource_tests::environment::environment;
use rowsource_tests::session::value;
use std::process::Command;

/// Returns the lines of README for such a server.
fn lines() -> Vec<String> {
    let blocks = blocks(&read("README.md"));
    let block = blocks
        .iter()
        .find(|block| block.info == "sh" && block.text.contains("make install"))
        .expect("README says how to install the library");
    block.text.lines().map(String::from).collect()
}

/// Runs a line as a person would, with psql on the PATH. Returns what it printed.
fn run(server: &Server, line: &str) -> String {
    let environment = environment();
    let path = format!(
        "{}:{}",
        environment.pgbin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("bash")
        .args(["-ec", line])
        .current_dir(&environment.root)
        .env("PATH", path)
        .env("PGHOST", server.folder())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "postgres")
        .output()
        .expect("bash can be run");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{line}\n{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// Follows README on a server with these lines in its configuration. Fails unless it loads these libraries
/// then, and measures.
fn follow(name: &str, configured: &str, expected: &str) {
    let mut server = Server::packaged(name, configured);
    let mut ran = 0;
    for line in lines().iter().filter(|line| !line.starts_with('#')) {
        match line.split_whitespace().next() {
            // The private tree has the library already.
            Some("make") => {}
            // This server belongs to no cluster of Debian's.
            Some("pg_ctlcluster") => {
                server.stop();
                server.launch_as_configured();
            }
            Some("psql") => {
                let printed = run(&server, line);
                ran += 1;
                if line.contains("CREATE EXTENSION") {
                    // "After your statements have run".
                    run(&server, "psql -c 'SELECT count(*) FROM pg_class'");
                }
                assert!(!printed.contains("(0 rows)"), "{line}: {printed}");
            }
            other => panic!("README has a line that this test does not know: {other:?}: {line}"),
        }
    }
    assert!(ran >= 4, "{ran} lines of README were run");
    let mut client = server.connect();
    let loaded: String = value(&mut client, "SELECT current_setting('shared_preload_libraries')");
    assert_eq!(loaded, expected);
    let plans: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource.pg_stat_rowsource_plans",
    );
    assert!(plans > 0, "nothing is measured");
    // A second time changes nothing.
    run(&server, "psql -f scripts/preload.sql");
    server.stop();
    server.launch_as_configured();
    let again: String = value(
        &mut server.connect(),
        "SELECT current_setting('shared_preload_libraries')",
    );
    assert_eq!(again, expected);
}

#[test]
fn readme_works_on_a_server_of_a_package() {
    follow("quick-start", "", "pg_rowsource");
}

#[test]
fn readme_keeps_the_libraries_that_are_there() {
    follow(
        "quick-start-beside",
        "shared_preload_libraries = 'pg_stat_statements,auto_explain'",
        "pg_stat_statements, auto_explain, pg_rowsource",
    );
}

/// What ALTER SYSTEM has set since the last start is not lost, either.
#[test]
fn readme_keeps_a_library_that_waits_for_a_restart() {
    let mut server = Server::packaged("quick-start-waiting", "shared_preload_libraries = 'auto_explain'");
    let alter = "ALTER SYSTEM SET shared_preload_libraries = auto_explain, '$libdir/pg_stat_statements'";
    server.connect().batch_execute(alter).expect("ALTER SYSTEM");
    let printed = run(&server, "psql -f scripts/preload.sql");
    assert!(printed.contains("pg_stat_statements"), "{printed}");
    server.stop();
    server.launch_as_configured();
    let loaded: String = value(
        &mut server.connect(),
        "SELECT current_setting('shared_preload_libraries')",
    );
    assert_eq!(
        loaded,
        "auto_explain, \"$libdir/pg_stat_statements\", pg_rowsource"
    );
}
