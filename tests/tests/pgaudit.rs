//! An auditing extension that is slow at each execution of a statement shows in the report of the SQL trace.

use rowsource_tests::Server;
use rowsource_tests::session::run_each;
use rowsource_tests::statistics::minimum;
use rowsource_tests::trace_file::{columns, section, start, tkprof};

const LOOKUPS: u32 = 5_000;
const ROUNDS: usize = 6;

/// The processor time of the lookups, in seconds, by the lines of the report.
#[derive(Debug)]
struct Lookups {
    execute: f64,
    fetch: f64,
}

/// Traces lookups by primary key in a PL/pgSQL loop.
fn lookups(name: &str, libraries: &str, settings: &[&str]) -> Lookups {
    let preload = format!("shared_preload_libraries = '{libraries}'");
    let mut all = vec![preload.as_str(), "jit = off"];
    all.extend(settings);
    let server = Server::start(name, &all);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 5000) i;
         ALTER TABLE t ADD PRIMARY KEY (id); VACUUM ANALYZE t",
    );
    // The least of several rounds, because on a busy machine the same work takes more processor time.
    let (mut executes, mut fetches) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let file = start(&mut client, "");
        client
            .batch_execute(&format!(
                "DO 'DECLARE n int; BEGIN FOR i IN 1..{LOOKUPS} LOOP SELECT v INTO n FROM t WHERE id = i; END LOOP; END'"
            ))
            .expect("the lookups");
        run_each(&mut client, "SELECT rowsource_trace_stop()");
        let part = section(&tkprof(&mut client, &format!("'{file}'")), "SELECT v  ");
        let columns = |word: &str| -> Vec<f64> {
            let columns = columns(&part, word).into_iter().skip(1);
            columns.map(|column| column.parse().expect("a number")).collect()
        };
        let (execute, fetch) = (columns("Execute"), columns("Fetch"));
        assert_eq!([execute[0], fetch[0]], [f64::from(LOOKUPS); 2]);
        executes.push(execute[1]);
        fetches.push(fetch[1]);
    }
    println!("{libraries}: execute {executes:?} s, fetch {fetches:?} s");
    // One line of the log for each lookup, if it is audited.
    let audited = server.log().matches("AUDIT: SESSION").count();
    let is_audited = libraries.contains("pgaudit");
    assert_eq!(audited >= ROUNDS * LOOKUPS as usize, is_audited, "{audited}");
    server.assert_no_crash();
    Lookups {
        execute: minimum(&executes),
        fetch: minimum(&fetches),
    }
}

/// pgaudit writes its line while the executor starts, in both orders. That is the processor time of Execute;
/// Fetch is as before.
#[test]
fn the_cost_of_auditing_shows_in_execute_needs_pgaudit() {
    const AUDIT: &[&str] = &["pgaudit.log = 'read'"];
    let plain = lookups("audit-none", "pg_rowsource", &[]);
    for (name, libraries) in [
        ("audit-first", "pgaudit, pg_rowsource"),
        ("audit-last", "pg_rowsource, pgaudit"),
    ] {
        let audited = lookups(name, libraries, AUDIT);
        let added = |of: fn(&Lookups) -> f64| of(&audited) - of(&plain);
        let (execute, fetch) = (added(|of| of.execute), added(|of| of.fetch));
        assert!(
            audited.execute > 2.0 * plain.execute && execute > 2.0 * fetch,
            "{libraries}: {audited:?}, without it {plain:?}"
        );
    }
}
