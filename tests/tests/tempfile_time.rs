//! The service time of requests, compared with an in-process trace and with core's own times, and on a slow
//! disk; and the cost of measuring for requests that are not counted.
//!
//! Core reads its clock before and after the library does, and the tracer in between. So the library's time
//! lies between theirs, on every machine. It is close to both unless other work runs between two readings.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::callgrind::of_parts_by_even_clock;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::tempfile::{FILETYPES, create_tracer, delayed, io, io_during, traced};
use rowsource_tests::verdict::{Limit, ROUNDS, Trial, Verdict, Verdicts};
use std::time::Instant;

const SETTINGS: [&str; 5] = [
    "pg_rowsource.statistics_level = 'basic'",
    "work_mem = '1MB'",
    "temp_buffers = 100",
    "jit = off",
    "max_parallel_workers_per_gather = 0",
];

const WIDE: &str = "CREATE TABLE wide AS SELECT i AS id, repeat('w', 200) AS pad FROM generate_series(1, 40000) i; VACUUM ANALYZE wide";
const SORT: &str = "SELECT count(*) FROM (SELECT * FROM wide ORDER BY pad, id DESC OFFSET 0) s";
const JOIN: &str = "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad";
const MAKE_TEMPORARY: &str = "CREATE TEMPORARY TABLE IF NOT EXISTS gtt (id int, pad text)";
const FILL: &str = "INSERT INTO gtt SELECT i, repeat('*', 1000) FROM generate_series(1, 10000) i;";
const SCAN: &str = "SELECT count(*) FROM gtt";

fn traced_server(name: &str) -> Server {
    let server = Server::overridden(name, &SETTINGS, &object("tracer/tracer.c"));
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, WIDE);
    create_tracer(&mut client);
    server
}

#[test]
fn interrupted_and_short_requests_are_requests() {
    let server = traced_server("faults");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, "SET enable_mergejoin = off");
    let version: i32 = value(&mut client, "SELECT current_setting('server_version_num')::int");
    let expected: i64 = value(&mut client, JOIN);
    run_each(&mut client, MAKE_TEMPORARY);
    // One of eight requests is interrupted, and made again. So it is a read and a write in turn, where these
    // take turns.
    run_each(&mut client, "SELECT tracer_faults(8)");
    let before = [0, 1].map(|filetype| traced(&mut client, filetype));
    let counted = io_during(&mut observer, || {
        assert_eq!(value::<i64>(&mut client, JOIN), expected);
        run_each(&mut client, SORT);
        run_each(&mut client, &FILL.repeat(7));
        assert_eq!(value::<i64>(&mut client, SCAN), 70_000);
    });
    for filetype in 0..2 {
        let after = traced(&mut client, filetype);
        for (operation, counted) in [counted[filetype].reads(), counted[filetype].writes()]
            .iter()
            .enumerate()
        {
            let seen = after[operation] - before[filetype][operation];
            println!("{}: {seen:?}", FILETYPES[filetype]);
            // Newer versions read and extend temporary tables by many blocks in one request.
            let single = filetype == 0 || version < 160_000;
            assert!(
                !single || seen.bytes < seen.reqs * 8192 * 95 / 100,
                "there were faults"
            );
            assert_eq!((counted.reqs, counted.bytes), (seen.reqs, seen.bytes));
        }
    }
}

/// Returns values of the root from core's EXPLAIN.
fn explained(client: &mut Client, statement: &str, names: [&str; 2]) -> [f64; 2] {
    let plan: String = texts(
        client,
        &format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}"),
    )
    .into_iter()
    .flatten()
    .flatten()
    .collect();
    names.map(|name| {
        let (_, rest) = plan
            .split_once(&format!("\"{name}\": "))
            .unwrap_or_else(|| panic!("no {name}: {plan}"));
        rest.split([',', '\n'])
            .next()
            .and_then(|number| number.trim().parse().ok())
            .expect("a number")
    })
}

/// The names of core's times of reads and of writes in EXPLAIN, as far as it has them.
fn names_of_core(version: i32, filetype: usize) -> Option<([&'static str; 2], usize)> {
    match (filetype, version / 10_000) {
        (0, _) => Some((["Temp I/O Read Time", "Temp I/O Write Time"], 2)),
        (_, 15) => Some((["I/O Read Time", "I/O Write Time"], 1)),
        (_, 17) => Some((["Local I/O Read Time", "Local I/O Write Time"], 1)),
        // EXPLAIN of 16 has none of temporary tables. From 18 on, core's read time includes work on the pages
        // (checksums).
        _ => None,
    }
}

/// What the reads, or the writes, of a statement took, in milliseconds.
struct Service {
    requests: i64,
    counted: f64,
    traced: f64,
    by_core: Option<f64>,
}

/// Runs a statement, and returns what its reads and its writes took, where they are enough to tell. Fails
/// unless the library counted the requests that the trace saw, and its time lies between that of the trace
/// and that of core.
fn service(
    observer: &mut Client,
    client: &mut Client,
    statement: &str,
    filetype: usize,
) -> [Option<Service>; 2] {
    let version: i32 = value(client, "SELECT current_setting('server_version_num')::int");
    let names = names_of_core(version, filetype).filter(|_| statement != FILL);
    let before = traced(client, filetype);
    let mut by_core = None;
    let counted = io_during(observer, || match names {
        Some((names, _)) => by_core = Some(explained(client, statement, names)),
        None => run_each(client, statement),
    })[filetype];
    let after = traced(client, filetype);
    [0, 1].map(|operation| {
        let counted = [counted.reads(), counted.writes()][operation];
        let seen = after[operation] - before[operation];
        assert_eq!(
            (counted.reqs, counted.bytes),
            (seen.reqs, seen.bytes),
            "{statement}"
        );
        if seen.reqs < 500 {
            return None;
        }
        let known = names.is_some_and(|(_, known)| operation < known);
        let by_core = by_core.filter(|_| known).map(|times| times[operation]);
        // The clocks may differ a little.
        assert!(counted.ms > 0.99 * seen.ms, "{statement}: {counted:?}, {seen:?}");
        assert!(
            by_core.is_none_or(|most| counted.ms < 1.01 * most),
            "{statement}: {counted:?}, {by_core:?}"
        );
        Some(Service {
            requests: seen.reqs,
            counted: counted.ms,
            traced: seen.ms,
            by_core,
        })
    })
}

/// Returns the milliseconds that reading the system's clock takes.
fn reading_the_clock() -> f64 {
    const READINGS: u32 = 10_000;
    let began = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_secs_f64() * 1e3 / f64::from(READINGS)
}

/// Each round runs a statement twice. The control compares the two, so it shows how often other work runs
/// between two readings of the clocks. Between the library's readings are those of the trace, and between
/// those of core are the library's: a slow clock must not fail.
#[test]
fn service_time_is_close_to_that_of_a_trace_and_that_of_core_timing() {
    const ALL: [(&str, usize); 4] = [(SORT, 0), (JOIN, 0), (FILL, 1), (SCAN, 1)];
    let server = traced_server("time-trace");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, MAKE_TEMPORARY);
    run_each(
        &mut client,
        "SET enable_mergejoin = off; SET track_io_timing = on",
    );
    let mut verdicts = Verdicts::default();
    for (statement, filetype) in ALL {
        let trial = |what: &str, limit| {
            Trial::of_ratios(format!("{} {what} ({statement})", FILETYPES[filetype]), limit)
        };
        let [of_trace, of_core] = [Limit::AtMost(1.20), Limit::AtLeast(0.90)];
        let mut trials = [
            [
                trial("reads to the trace", of_trace),
                trial("reads to core", of_core),
            ],
            [
                trial("writes to the trace", of_trace),
                trial("writes to core", of_core),
            ],
        ];
        for round in 0..*ROUNDS.end() {
            let clocks = 2.0 * reading_the_clock();
            let twice = [0, 1].map(|_| {
                if statement == FILL {
                    run_each(&mut client, "TRUNCATE gtt");
                }
                service(&mut observer, &mut client, statement, filetype)
            });
            for (operation, [to_trace, to_core]) in trials.iter_mut().enumerate() {
                let [Some(first), Some(second)] = twice.each_ref().map(|both| both[operation].as_ref())
                else {
                    continue;
                };
                let add = |trial: &mut Trial, ratio: &dyn Fn(&Service) -> Option<f64>| {
                    if let (Some(first), Some(second)) = (ratio(first), ratio(second)) {
                        trial.add((first * second).sqrt(), second / first);
                    }
                };
                let clocks = |service: &Service| clocks * service.requests as f64;
                add(to_trace, &|service| {
                    Some(service.counted / (service.traced + clocks(service)))
                });
                add(to_core, &|service| {
                    Some((service.counted + clocks(service)) / service.by_core?)
                });
            }
            let used = trials.iter().flatten().filter(|trial| trial.rounds() > 0);
            if [8, 16].contains(&(round + 1))
                && used.clone().all(|trial| trial.verdict() != Verdict::Undecided)
            {
                break;
            }
        }
        let used = || trials.iter().flatten().filter(|trial| trial.rounds() > 0);
        assert!(used().count() > 0, "{statement}: no requests");
        used().for_each(|trial| {
            verdicts.add(trial);
        });
    }
    verdicts.finish();
}

#[test]
fn a_slow_disk_is_in_the_histogram() {
    const DELAY_US: i64 = 5_000;
    const EVERY: i64 = 50;
    let server = traced_server("slow-disk");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, "SELECT rowsource_tempfile_reset()");
    run_each(&mut client, &format!("SELECT tracer_delay({DELAY_US}, {EVERY})"));
    let began = Instant::now();
    run_each(&mut client, SORT);
    let elapsed_us = began.elapsed().as_micros() as i64;
    let delayed = delayed(&mut client, 0);
    run_each(&mut client, "SELECT tracer_delay(0, 1)");
    let counted = io(&mut observer)[0];
    let requests = counted.small_read.reqs + counted.small_write.reqs;
    let slow: i64 = value(
        &mut observer,
        &format!(
            "SELECT sum(requests)::bigint FROM pg_stat_rowsource_tempfile_io_histogram
             WHERE datname = current_database() AND filetype = 'work file' AND from_us >= 4096 AND {DELAY_US} <= to_us"
        ),
    );
    println!("{requests} requests, {delayed} were delayed, {slow} are in the bucket of 4 to 8 ms or above");
    // A machine that stalls may add a few slow requests, each of which takes so long.
    assert!(
        delayed >= requests / EVERY && (delayed..=elapsed_us / 4096).contains(&slow),
        "{slow} of {requests}, {delayed} were delayed, {elapsed_us} us"
    );
    assert!(slow < requests / 2, "{slow} of {requests}");
    let all: i64 = value(
        &mut observer,
        "SELECT sum(requests)::bigint FROM pg_stat_rowsource_tempfile_io_histogram
         WHERE datname = current_database() AND filetype = 'work file'",
    );
    assert_eq!(all, requests);
    let (most, total): (f64, f64) = (
        value(
            &mut observer,
            "SELECT max(greatest(small_read_max_time, small_write_max_time)) FROM pg_stat_rowsource_tempfile_io",
        ),
        counted.times().iter().sum(),
    );
    assert!(most >= DELAY_US as f64 / 1e3, "{most}");
    assert!(total >= (requests / EVERY * DELAY_US) as f64 / 1e3, "{total}");
    // The statement's nodes show the time too.
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    run_each(&mut client, &format!("SELECT tracer_delay({DELAY_US}, {EVERY})"));
    let counted = io_during(&mut observer, || run_each(&mut client, SORT))[0];
    let shown = texts(&mut client, "SELECT rowsource_display()").concat();
    assert!(
        shown.iter().flatten().any(|line| line.contains("Temp ms")),
        "{shown:#?}"
    );
    let of_node: f64 = value(
        &mut client,
        "SELECT n.last_temp_blk_read_time + n.last_temp_blk_write_time FROM pg_stat_rowsource n
         JOIN rowsource_last() l USING (queryid, planid) WHERE n.operation = 'Sort'",
    );
    let total: f64 = counted.times().iter().sum();
    assert!((of_node / total - 1.0).abs() < 0.001, "{of_node} of {total}");
}

/// Scans of an ordinary table that does not fit into shared buffers: each block is a request.
#[test]
fn ordinary_requests_are_not_slowed_release() {
    /// The most instructions of a request that is counted as a wait. The request itself takes at least a
    /// microsecond.
    const MAX_WITH_WAITS: f64 = 160.0;
    /// The most that measuring adds to a block that is read: 15 rows, a wait, and a copy of the counters.
    const MAX_MEASURED: f64 = 705.0;
    const MAX_ERROR: f64 = 0.01;
    const SCAN: &str = "SELECT count(*) FROM t";
    let mut server = Server::preloaded("ordinary", &["shared_buffers = '1MB'"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 30000) i; VACUUM (FREEZE, ANALYZE) t;
         CHECKPOINT; SET pg_rowsource.statistics_level = basic",
    );
    let blocks: i64 = value(&mut client, "SELECT pg_relation_size('t') / 8192");
    let blocks = blocks as f64;
    let [read, _] = explained(&mut client, SCAN, ["Shared Read Blocks", "Shared Hit Blocks"]);
    assert!(read > 0.8 * blocks, "the table is read from its file: {read}");
    let reads_elsewhere = major(&mut client) >= 18;
    drop(client);
    server.stop();
    // One session, and a part for each variant: how many instructions a scan takes.
    let each = |library: &str, variants: &[String]| -> Vec<f64> {
        // The read-ahead distance of 19 depends on the time of its reads. I/O workers would read the blocks
        // from 18 on.
        let mut settings = vec![
            "shared_buffers=1MB",
            "autovacuum=off",
            "effective_io_concurrency=0",
            library,
        ];
        if reads_elsewhere {
            settings.push("io_method=sync");
        }
        let scans = format!("{SCAN};\n\n").repeat(2);
        let mut parts = vec![scans.clone()];
        for before in variants {
            parts.extend([format!("{before}{SCAN};\n\n"), scans.clone()]);
        }
        let counts = of_parts_by_even_clock(&server.data(), &settings, &parts);
        counts[1..]
            .chunks(2)
            .map(|counts| counts[1] as f64 / 2.0)
            .collect()
    };
    let none = each("shared_preload_libraries=", &[String::new()])[0];
    let variants = [
        ("off", "off", "basic"),
        ("on", "off", "basic"),
        ("on", "on", "basic"),
        ("on", "on", "typical"),
    ];
    let variants = variants.map(|(requests, waits, level)| {
        format!(
            "SET pg_rowsource.tempfile_timing = {requests};\n\nSET pg_rowsource.wait_timing = {waits};\n\n\
             SET pg_rowsource.statistics_level = {level};\n\n"
        )
    });
    let found = each("shared_preload_libraries=pg_rowsource", &variants);
    let [off, on, waits, measured] = found[..] else {
        panic!("{found:?}")
    };
    println!(
        "instructions a scan of {blocks} blocks: no library {none:.0}, off {off:.0}, on {on:.0}, with waits {waits:.0}, measured {measured:.0}"
    );
    let of_a_request = |scan: f64| (scan - none) / blocks;
    println!(
        "a request: off {:+.1}, on {:+.1}, with waits {:+.1}",
        of_a_request(off),
        of_a_request(on),
        of_a_request(waits)
    );
    assert!((on / off - 1.0).abs() < MAX_ERROR, "{}", on / off);
    assert!(of_a_request(waits) < MAX_WITH_WAITS, "{}", of_a_request(waits));
    let of_a_block = (measured - waits) / blocks;
    println!("measuring adds {of_a_block:.1} instructions to a block");
    assert!(of_a_block < MAX_MEASURED, "{of_a_block}");
    assert!(on / none - 1.0 < MAX_ERROR, "{}", on / none);
}
