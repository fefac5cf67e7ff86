//! Clocks: the five sources measure alike, and one that steps back does no harm.

use rowsource_tests::compiled::object;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, measure};

const TABLES: &str = "CREATE TABLE a AS SELECT i AS id, i % 1000 AS g FROM generate_series(1, 100000) i;
     CREATE TABLE b AS SELECT i AS id FROM generate_series(1, 1000) i; CREATE INDEX ON b (id); VACUUM ANALYZE";
const STATEMENTS: [&str; 3] = [
    "SELECT count(*) FROM a",
    "SELECT g, count(*) FROM a GROUP BY g ORDER BY 2",
    "SELECT count(*) FROM a JOIN b ON b.id = a.g",
];

#[test]
fn a_clock_that_steps_back() {
    let object = object("backstep/backstep.c");
    let server = Server::overridden("backstep", &["max_parallel_workers_per_gather = 0"], &object);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    run_each(&mut client, "SET pg_rowsource.clock_source = system");
    let mut seen = 0;
    for sampfreq in [1, 2, 16, 128] {
        run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
        for statement in STATEMENTS {
            for node in measure(&mut client, statement) {
                let what = format!("{statement} at {sampfreq}: {node:?}");
                // A step back is no time; the step forward after it cannot be told from time, and they add up.
                assert!(
                    node.total_ms.is_none_or(|ms| (0.0..2000.0).contains(&ms)),
                    "{what}"
                );
                assert!(node.backsteps >= 0, "{what}");
                seen += node.backsteps;
            }
        }
    }
    assert!(seen > 0, "no backward step was counted");
    let steps: i64 = value(
        &mut client,
        "SELECT backward_steps FROM rowsource_clocks(100000) WHERE clock_source = 'system'",
    );
    assert!(steps > 500, "{steps} backward steps in 100,000 readings");
    server.assert_no_crash();
}

#[test]
fn all_sources_measure_alike() {
    let server = Server::preloaded("sources", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    let usable: Vec<String> = client
        .query(
            "SELECT clock_source FROM rowsource_clocks(1000) WHERE usable",
            &[],
        )
        .expect("the clocks")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(usable.len() >= 3, "{usable:?}");
    for source in usable.iter().filter(|source| *source != "coarse") {
        run_each(&mut client, &format!("SET pg_rowsource.clock_source = {source}"));
        run_each(&mut client, "SET pg_rowsource.sampfreq = 1");
        let exact = measure(&mut client, STATEMENTS[1]);
        let (root, scan) = (exact[0].total_ms, exact[exact.len() - 1].total_ms);
        let (Some(root), Some(scan)) = (root, scan) else {
            panic!("{source}: not timed")
        };
        println!("{source}: {root:.2} ms, of it the scan {scan:.2} ms");
        assert!(
            root > 1.0 && scan > 0.1 && scan <= root,
            "{source}: {root} ms, scan {scan} ms"
        );
    }
}
