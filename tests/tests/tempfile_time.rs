//! The service time of requests, compared with an in-process trace and with core's own times, and on a slow disk; and the cost
//! of measuring for requests that are not counted.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::callgrind::of_parts;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::statistics::undisturbed_ratio;
use rowsource_tests::tempfile::{FILETYPES, create_tracer, io, io_during, traced};
use std::time::Instant;

const SETTINGS: [&str; 5] = [
    "pg_rowsource.statistics_level = 'basic'",
    "work_mem = '1MB'",
    "temp_buffers = 100",
    "jit = off",
    "max_parallel_workers_per_gather = 0",
];

const WIDE: &str = "CREATE TABLE wide AS SELECT i AS id, repeat('w', 200) AS pad FROM generate_series(1, 100000) i; VACUUM ANALYZE wide";
const SORT: &str = "SELECT count(*) FROM (SELECT * FROM wide ORDER BY pad, id DESC OFFSET 0) s";
const JOIN: &str = "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad";
const MAKE_TEMPORARY: &str = "CREATE TEMPORARY TABLE IF NOT EXISTS gtt (id int, pad text)";
const FILL: &str = "INSERT INTO gtt SELECT i, repeat('*', 1000) FROM generate_series(1, 70000) i";
const SCAN: &str = "SELECT count(*) FROM gtt";

fn traced_server(name: &str) -> Server {
    let server = Server::overridden(name, &SETTINGS, &object("tracer/tracer.c"));
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    run_each(&mut client, WIDE);
    create_tracer(&mut client);
    server
}

/// The shortest times of several runs, by the library and by the other measurement. If another process takes the CPU between
/// the readings of only one of them, that run is not the shortest.
#[derive(Clone, Copy)]
struct Fastest {
    measured: f64,
    reference: f64,
}

impl Fastest {
    const NONE: Fastest = Fastest {
        measured: f64::MAX,
        reference: f64::MAX,
    };

    fn add(&mut self, measured: f64, reference: f64) {
        self.measured = self.measured.min(measured);
        self.reference = self.reference.min(reference);
    }

    fn assert_near(&self, max_error: f64, what: &str) {
        let ratio = self.measured / self.reference;
        println!("{what}: {ratio:.3}");
        assert!((ratio - 1.0).abs() < max_error, "{what}: {ratio}");
    }
}

#[test]
fn service_time_is_that_of_a_trace_timing() {
    const MAX_ERROR: f64 = 0.20;
    let server = traced_server("time-trace");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, MAKE_TEMPORARY);
    run_each(&mut client, "SET enable_mergejoin = off");
    for (statement, filetype) in [(SORT, 0), (JOIN, 0), (FILL, 1), (SCAN, 1)] {
        let mut fastest = [Fastest::NONE; 2];
        for _ in 0..7 {
            let before = traced(&mut client, filetype);
            let counted = io_during(&mut observer, || run_each(&mut client, statement))[filetype];
            let after = traced(&mut client, filetype);
            for (operation, counted) in [counted.reads(), counted.writes()].into_iter().enumerate() {
                let seen = after[operation] - before[operation];
                assert_eq!(
                    (counted.reqs, counted.bytes),
                    (seen.reqs, seen.bytes),
                    "{statement}"
                );
                if seen.reqs > 1_000 {
                    fastest[operation].add(counted.ms, seen.ms);
                }
            }
        }
        let measured = fastest.iter().filter(|fastest| fastest.measured < f64::MAX);
        assert!(measured.count() > 0, "{statement}");
        for (operation, fastest) in ["read", "write"].iter().zip(fastest) {
            if fastest.measured < f64::MAX {
                let what = format!(
                    "{} {operation}, over the trace ({statement})",
                    FILETYPES[filetype]
                );
                fastest.assert_near(MAX_ERROR, &what);
            }
        }
    }
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
    run_each(&mut client, "SELECT tracer_faults(7)");
    let before = [0, 1].map(|filetype| traced(&mut client, filetype));
    let counted = io_during(&mut observer, || {
        assert_eq!(value::<i64>(&mut client, JOIN), expected);
        run_each(&mut client, SORT);
        run_each(&mut client, FILL);
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

#[test]
fn service_time_is_that_of_core_timing() {
    const MAX_ERROR: f64 = 0.10;
    let server = Server::preloaded("time-core", &SETTINGS);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    run_each(&mut observer, WIDE);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET track_io_timing = on; SET enable_mergejoin = off",
    );
    run_each(&mut client, MAKE_TEMPORARY);
    run_each(&mut client, FILL);
    const TEMP: [&str; 2] = ["Temp I/O Read Time", "Temp I/O Write Time"];
    let version: i32 = value(&mut client, "SELECT current_setting('server_version_num')::int");
    let local = match version {
        ..170_000 => ["I/O Read Time", "I/O Write Time"],
        _ => ["Local I/O Read Time", "Local I/O Write Time"],
    };
    // EXPLAIN of 15 has no time of writing temporary tables, and that of 16 has no time of reading them either. From 18 on,
    // core's read time includes work on the pages (checksums); there, only the trace is compared.
    let comparable = match version / 10_000 {
        15 | 17 => 3,
        _ => 2,
    };
    for (statement, filetype, names, operations) in
        [(SORT, 0, TEMP, 2), (JOIN, 0, TEMP, 2), (SCAN, 1, local, 1)]
            .into_iter()
            .take(comparable)
    {
        let mut fastest = [Fastest::NONE; 2];
        for _ in 0..11 {
            let mut core = [0.0; 2];
            let counted = io_during(&mut observer, || core = explained(&mut client, statement, names));
            for operation in 0..operations {
                fastest[operation].add(counted[filetype].times()[operation], core[operation]);
            }
        }
        for (operation, fastest) in ["read", "write"].iter().zip(fastest).take(operations) {
            let what = format!(
                "{} {operation}, over core's time ({statement})",
                FILETYPES[filetype]
            );
            fastest.assert_near(MAX_ERROR, &what);
        }
    }
}

#[test]
fn a_slow_disk_is_in_the_histogram_timing() {
    const DELAY_US: i64 = 5_000;
    const EVERY: i64 = 100;
    let server = traced_server("slow-disk");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, "SELECT rowsource_tempfile_reset()");
    run_each(&mut client, &format!("SELECT tracer_delay({DELAY_US}, {EVERY})"));
    run_each(&mut client, SORT);
    run_each(&mut client, "SELECT tracer_delay(0, 1)");
    let counted = io(&mut observer)[0];
    let requests = counted.small_read.reqs + counted.small_write.reqs;
    let slow: i64 = value(
        &mut observer,
        &format!(
            "SELECT sum(reqs)::bigint FROM pg_stat_tempfile_io_histogram
             WHERE datname = current_database() AND filetype = 'work file' AND from_us >= 4096 AND {DELAY_US} <= to_us"
        ),
    );
    println!("{requests} requests, {slow} of them in the bucket of 4 to 8 ms or above");
    // A machine that stalls for 4 ms may add a few slow requests.
    assert!(
        (requests / EVERY..=requests / EVERY + requests / 200).contains(&slow),
        "{slow} of {requests}"
    );
    let all: i64 = value(
        &mut observer,
        "SELECT sum(reqs)::bigint FROM pg_stat_tempfile_io_histogram
         WHERE datname = current_database() AND filetype = 'work file'",
    );
    assert_eq!(all, requests);
    let (most, total): (f64, f64) = (
        value(
            &mut observer,
            "SELECT max(greatest(small_read_max_time, small_write_max_time)) FROM pg_stat_tempfile_io",
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
fn ordinary_requests_are_not_slowed_timing() {
    /// The most instructions of a request that is counted as a wait. The request itself takes at least a microsecond.
    const MAX_WITH_WAITS: f64 = 160.0;
    /// The most that measuring adds to the scan of a block that is read: its 14 rows, and a wait of the node.
    const MAX_MEASURED: f64 = 510.0;
    const MAX_ERROR: f64 = 0.01;
    let mut server = Server::preloaded("ordinary", &["shared_buffers = '1MB'"]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE t AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 30000) i; VACUUM (FREEZE, ANALYZE) t;
         CHECKPOINT",
    );
    // Elapsed time, in one session and in turn. Without io_method = sync, I/O workers would read the blocks from 18 on.
    let mut client = server.connect();
    if major(&mut client) >= 18 {
        drop(client);
        server.stop();
        server.configure("io_method = 'sync'");
        server.launch();
        client = server.connect();
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    let [read, _] = explained(
        &mut client,
        "SELECT count(*) FROM t",
        ["Shared Read Blocks", "Shared Hit Blocks"],
    );
    assert!(read > 1_900.0, "the table is read from its file: {read}");
    // More rounds, if the machine is busy: a real slowdown shows in all of them.
    let mut times = [Vec::new(), Vec::new()];
    let mut ratio = f64::MAX;
    for round in 1..=10 {
        for _ in 0..60 {
            for (i, setting) in ["off", "on"].iter().enumerate() {
                run_each(
                    &mut client,
                    &format!("SET pg_rowsource.tempfile_timing = {setting}"),
                );
                let start = Instant::now();
                run_each(&mut client, "SELECT count(*) FROM t");
                times[i].push(start.elapsed().as_secs_f64());
            }
        }
        ratio = undisturbed_ratio(&times[1], &times[0]);
        println!("elapsed after {round} rounds, on over off: {ratio:.4}");
        if ratio - 1.0 < MAX_ERROR {
            break;
        }
    }
    assert!(ratio - 1.0 < MAX_ERROR, "{ratio}");
    drop(client);
    server.stop();
    let each = |settings: &[&str]| {
        // The read-ahead distance of 19 depends on the time of its reads.
        let mut all = vec![
            "shared_buffers=1MB",
            "autovacuum=off",
            "effective_io_concurrency=0",
        ];
        all.extend(settings);
        let parts = [2, 1, 4].map(|scans| "SELECT count(*) FROM t;\n\n".repeat(scans));
        let counts = of_parts(&server.data(), &all, &parts);
        (counts[2] as f64 - counts[1] as f64) / 3.0
    };
    let none = each(&["shared_preload_libraries="]);
    let variants = [
        ("off", "off", "basic"),
        ("on", "off", "basic"),
        ("on", "on", "basic"),
        ("on", "on", "typical"),
    ];
    let [off, on, waits, measured] = variants.map(|(requests, waits, level)| {
        each(&[
            "shared_preload_libraries=pg_rowsource",
            &format!("pg_rowsource.statistics_level={level}"),
            &format!("pg_rowsource.tempfile_timing={requests}"),
            &format!("pg_rowsource.wait_timing={waits}"),
        ])
    });
    println!(
        "instructions a scan of 2,143 blocks: no library {none:.0}, off {off:.0}, on {on:.0}, with waits {waits:.0}, measured {measured:.0}"
    );
    let of_a_request = |scan: f64| (scan - none) / 2_143.0;
    println!(
        "a request: off {:+.1}, on {:+.1}, with waits {:+.1}",
        of_a_request(off),
        of_a_request(on),
        of_a_request(waits)
    );
    assert!(on / off - 1.0 < MAX_ERROR, "{}", on / off);
    assert!(of_a_request(waits) < MAX_WITH_WAITS, "{}", of_a_request(waits));
    let of_a_block = (measured - waits) / 2_143.0;
    println!("measuring adds {of_a_block:.1} instructions to a block");
    assert!(of_a_block < MAX_MEASURED, "{of_a_block}");
    assert!(on / none - 1.0 < MAX_ERROR, "{}", on / none);
}
