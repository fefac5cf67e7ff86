//! Clocks: all sources measure the same times, and a clock that steps back does no harm.

use rowsource_tests::compiled::object;
use rowsource_tests::process::prefer;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::statistics::minimum;
use rowsource_tests::verdict::{Limit, Trial, Verdicts};
use rowsource_tests::waiting::pid;
use rowsource_tests::{Server, burn, measure};

const TABLES: &str = "CREATE TABLE a AS SELECT i AS id, i % 1000 AS g FROM generate_series(1, 100000) i;
     CREATE TABLE b AS SELECT i AS id FROM generate_series(1, 1000) i; CREATE INDEX ON b (id); VACUUM ANALYZE";
const STATEMENTS: [&str; 3] = [
    "SELECT count(*) FROM a",
    "SELECT g, count(*) FROM a GROUP BY g ORDER BY 2",
    "SELECT count(*) FROM a JOIN b ON b.id = a.g",
];

/// 1,000 rows of 100 us each. The scan reads no other rows, so it takes little more time than it burns, on a
/// busy machine too.
const BURNING: &str = "SELECT count(*) FROM b WHERE burn(100)";

/// The maximum readings of the clock besides the timed calls of a node: at beats, and at a node's start.
const OTHERS: i64 = 1_000;

#[test]
fn a_clock_that_steps_back_does_no_harm() {
    let object = object("backstep/backstep.c");
    let server = Server::overridden("backstep", &["max_parallel_workers_per_gather = 0"], &object);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    run_each(&mut client, "SET pg_rowsource.clock_source = system");
    let mut seen = 0;
    for sampfreq in [1, 2, 16, 128] {
        run_each(&mut client, &format!("SET pg_rowsource.sampfreq = {sampfreq}"));
        for statement in STATEMENTS {
            run_each(&mut client, "SELECT rowsource_reset()");
            for node in measure(&mut client, statement) {
                let what = format!("{statement} at {sampfreq}: {node:?}");
                // A step back counts as no time. The step forward after it counts as time, and these add up.
                assert!(
                    node.total_ms.is_none_or(|ms| (0.0..2000.0).contains(&ms)),
                    "{what}"
                );
                // The clock steps back at fixed numbers of readings, and a timed call reads it twice.
                let readings = 2 * node.timed_calls.unwrap_or(0) + OTHERS;
                assert!((0..=readings).contains(&node.backsteps), "{what}");
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

/// What the clock itself takes is measured again while statements run. Else a scan would seem to take all of
/// this statement's time, because its own calls are short. Its share is 0.1.
#[test]
fn a_clock_that_gets_slower_is_noticed_timing() {
    let object = object("tired_clock/tired_clock.c");
    let server = Server::overridden(
        "tired",
        &["max_parallel_workers_per_gather = 0", "jit = off"],
        &object,
    );
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT '*'::text AS pad FROM generate_series(1, 40000) i; VACUUM (FREEZE, ANALYZE) t;
         SET pg_rowsource.clock_source = system; SET pg_rowsource.sampfreq = 16",
    );
    // What interrupts a call that stands for many seems to interrupt all of them.
    prefer(pid(&mut client) as u32);
    let tired = server.data().join("tired");
    let mut share_of_scan = || {
        let nodes = measure(&mut client, "SELECT max(md5(md5(md5(md5(pad))))) FROM t");
        let ms = |at: usize| nodes[at].total_ms.expect("a time");
        println!("{:.1} of {:.1}, timed {:?}", ms(1), ms(0), nodes[1].timed_calls);
        ms(1) / ms(0)
    };
    // What the session knows of the clock is from a time at which it was faster.
    let mut share_when_tired = || {
        let _ = std::fs::remove_file(&tired);
        share_of_scan();
        std::fs::write(&tired, "").expect("a file");
        share_of_scan()
    };
    let share = Trial::of_differences("the scan's share with a slower clock", Limit::AtMost(0.6));
    let share = share.run(8..=16, |_| {
        let shares = [share_when_tired(), share_when_tired()];
        ((shares[0] + shares[1]) / 2.0, shares[1] - shares[0])
    });
    let mut verdicts = Verdicts::default();
    verdicts.add(&share);
    verdicts.finish();
}

#[test]
fn all_sources_measure_the_same_time() {
    let server = Server::preloaded("sources", &["max_parallel_workers_per_gather = 0"]);
    let mut client = server.session();
    run_each(&mut client, TABLES);
    burn::create(&mut client);
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
    run_each(&mut client, "SET pg_rowsource.sampfreq = 1");
    let sources: Vec<&String> = usable.iter().filter(|source| *source != "coarse").collect();
    // Each source measures the same burning in turn. The true time of each run is known.
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); sources.len()];
    for _ in 0..5 {
        for (source, found) in sources.iter().zip(&mut found) {
            run_each(&mut client, &format!("SET pg_rowsource.clock_source = {source}"));
            let (nodes, burned_ms) = burn::during(&mut client, |client| measure(client, BURNING));
            let (Some(root), Some(scan)) = (nodes[0].total_ms, nodes[1].total_ms) else {
                panic!("{source}: not timed: {nodes:#?}")
            };
            assert!(scan <= root, "{source}: {nodes:#?}");
            assert_eq!(nodes[0].backsteps + nodes[1].backsteps, 0, "{source}: {nodes:#?}");
            found.push(scan / burned_ms);
        }
    }
    // The minimum of each, because other work only adds to the time that is not burned.
    let least: Vec<f64> = found.iter().map(|found| minimum(found)).collect();
    for (source, found) in sources.iter().zip(&found) {
        println!("{source}: the scan takes {found:.3?} of the time burned in it");
    }
    for (source, ratio) in sources.iter().zip(&least) {
        assert!(
            (ratio / least[0] - 1.0).abs() < 0.05 && (0.97..1.10).contains(ratio),
            "{source}: {ratio:.3} of the time burned, {}: {:.3}",
            sources[0],
            least[0]
        );
    }
}
