//! The requests and bytes of pg_stat_rowsource_tempfile_io are exactly those of a system-call trace.

use rowsource_tests::Server;
use rowsource_tests::attack::wait_until;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::strace::Trace;
use rowsource_tests::tempfile::{FILETYPES, Io, io_during, sources};
use std::time::Duration;

const SETTINGS: [&str; 6] = [
    "pg_rowsource.statistics_level = 'basic'",
    "work_mem = '1MB'",
    "maintenance_work_mem = '1MB'",
    "jit = off",
    "max_parallel_workers_per_gather = 0",
    "max_parallel_maintenance_workers = 0",
];

fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &SETTINGS);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource;
         CREATE TABLE wide AS SELECT i AS id, i % 1000 AS g, repeat('w', 200) AS pad FROM generate_series(1, 100000) i;
         VACUUM ANALYZE wide; CHECKPOINT",
    );
    server
}

/// Waits until all processes that the server has started since have ended: until then they may add counts.
/// Workers for asynchronous requests stay.
fn until_ended(server: &Server, before: &[u32]) {
    let is_awaited = |pid: &u32| !before.contains(pid) && !process::title(*pid).contains("io worker");
    wait_until("the sessions end", Duration::from_secs(60), || {
        !process::children(server.postmaster()).iter().any(is_awaited)
    });
}

/// Runs statements in a session of their own with a trace. Returns the requests, which must be equal in both.
fn agree(server: &Server, name: &str, body: impl FnOnce(&Server)) -> ([Io; 2], usize) {
    let mut observer = server.connect();
    assert_eq!(sources(&mut observer), ["request"]);
    let trace = Trace::start(server, name);
    let before = process::children(server.postmaster());
    let mut seen = None;
    let counted = io_during(&mut observer, || {
        body(server);
        until_ended(server, &before);
        seen = Some(trace.stop());
    });
    let (seen, processes) = seen.expect("a trace");
    for (filetype, (counted, seen)) in FILETYPES.iter().zip(counted.iter().zip(&seen)) {
        println!("{name}: {filetype}: {:?}", counted.counts());
        assert_eq!(counted.counts(), seen.counts(), "{name}: {filetype}");
    }
    (seen, processes)
}

fn agree_on(server: &Server, name: &str, sql: &str) -> ([Io; 2], usize) {
    agree(server, name, |server| run_each(&mut server.connect(), sql))
}

/// Fills and reads a temporary table of `rows` rows, seven per block.
fn a_temporary_table_agrees(rows: u32) {
    let server = server("trace-gtt");
    let (seen, _) = agree_on(
        &server,
        "gtt",
        &format!(
            "CREATE TEMPORARY TABLE gtt (id int, pad text) ON COMMIT PRESERVE ROWS;
             INSERT INTO gtt SELECT i, repeat('*', 1000) FROM generate_series(1, {rows}) i; SELECT count(*) FROM gtt"
        ),
    );
    // The last blocks, 8 MB at most, may still be in the session's buffers.
    let least_bytes = (i64::from(rows) / 7 - 1_100) * 8192;
    assert!(seen[1].reads().bytes >= least_bytes, "{seen:?}");
    assert!(seen[1].writes().bytes >= least_bytes, "{seen:?}");
}

#[test]
fn a_temporary_table_agrees_with_the_trace() {
    a_temporary_table_agrees(70_000);
}

/// The size of the book's example. It takes a minute with a tracer.
#[test]
fn a_large_temporary_table_agrees_with_the_trace_long() {
    a_temporary_table_agrees(700_000);
}

#[test]
fn statements_that_spill_agree_with_the_trace() {
    let server = server("trace-spill");
    let statements = [
        (
            "sort",
            "SELECT * FROM (SELECT * FROM wide ORDER BY pad, id DESC OFFSET 0) s WHERE id < 0",
        ),
        (
            "hash join",
            "SET enable_mergejoin = off; SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad",
        ),
        (
            "aggregate",
            "SET enable_sort = off; SELECT count(*) FROM (SELECT id, count(*), max(pad) FROM wide GROUP BY id) g",
        ),
        (
            "materialize",
            "WITH m AS MATERIALIZED (SELECT * FROM wide) SELECT (SELECT count(*) FROM m), count(*) FROM m",
        ),
        (
            "window",
            "SELECT sum(s) FROM (SELECT sum(id) OVER (PARTITION BY g ORDER BY pad ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS s FROM wide) w",
        ),
        ("index", "CREATE INDEX wide_pad ON wide (pad, id)"),
        (
            "cursor",
            "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM wide ORDER BY pad, id DESC; MOVE LAST FROM c; MOVE FIRST FROM c; COMMIT",
        ),
    ];
    for (name, sql) in statements {
        let (seen, _) = agree_on(&server, name, sql);
        assert!(
            seen[0].small_read.reqs > 50 && seen[0].small_write.reqs > 50,
            "{name}: {seen:?}"
        );
        assert_eq!(seen[1], Io::default(), "{name}");
    }
    // Files of ordinary tables that are written and read outside shared buffers do not count.
    let (seen, _) = agree_on(
        &server,
        "ordinary",
        "CREATE TABLE copied AS SELECT id FROM wide; SET maintenance_work_mem = '64MB'; CREATE INDEX ON copied (id);
         CLUSTER copied USING copied_id_idx; VACUUM FULL copied; DROP TABLE copied",
    );
    assert_eq!(seen, [Io::default(); 2]);
}

#[test]
fn temporary_tables_agree_with_the_trace() {
    let server = server("trace-tables");
    let (seen, _) = agree_on(
        &server,
        "tables",
        "SET temp_buffers = 100; CREATE TEMPORARY TABLE a AS SELECT * FROM wide; CREATE INDEX ON a (id);
         UPDATE a SET g = g + 1 WHERE id % 7 = 0; SELECT count(*) FROM a WHERE id BETWEEN 50 AND 5000; CREATE INDEX ON a (g);
         CLUSTER a USING a_id_idx; VACUUM FULL a; SELECT count(*) FROM a; ALTER TABLE a ADD COLUMN more int DEFAULT random();
         DELETE FROM a WHERE id < 5000; VACUUM a; TRUNCATE a; DROP TABLE a",
    );
    assert!(
        seen[1].reads().bytes > 5_000 * 8192 && seen[1].writes().bytes > 5_000 * 8192,
        "{seen:?}"
    );
    // The server closes and reuses their file descriptors.
    let (seen, _) = agree_on(
        &server,
        "descriptors",
        &format!(
            "SET temp_buffers = 100; {}",
            "CREATE TEMPORARY TABLE a AS SELECT * FROM wide LIMIT 5000; SELECT count(*) FROM a; DROP TABLE a;
             CREATE TABLE b AS SELECT * FROM wide LIMIT 5000; CREATE INDEX ON b (id); DROP TABLE b;"
                .repeat(20)
        ),
    );
    assert!(seen[1].reads().bytes > 1_000 * 8192, "{seen:?}");
}

#[test]
fn parallel_workers_and_shared_file_sets_agree_with_the_trace() {
    let server = server("trace-parallel");
    let force = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
                 SET max_parallel_workers_per_gather = 2; SET max_parallel_maintenance_workers = 2; SET enable_mergejoin = off";
    let (_, processes) = agree_on(
        &server,
        "parallel hash",
        &format!(
            "{force}; SET hash_mem_multiplier = 1; SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad"
        ),
    );
    assert!(processes >= 2, "only {processes} processes had temporary files");
    agree_on(
        &server,
        "parallel sort",
        &format!("{force}; SELECT count(*) FROM (SELECT * FROM wide ORDER BY pad, id OFFSET 1) s"),
    );
    let (_, processes) = agree_on(
        &server,
        "parallel index",
        &format!("{force}; SET maintenance_work_mem = '64MB'; CREATE INDEX wide_both ON wide (pad, id)"),
    );
    assert!(processes >= 2, "only {processes} processes had temporary files");
}

#[test]
fn sessions_that_end_early_agree_with_the_trace() {
    let server = server("trace-early");
    let endless = "SELECT count(*) FROM (SELECT * FROM wide a, wide b ORDER BY a.pad, b.id OFFSET 0) s";
    let (seen, _) = agree(&server, "cancelled", |server| {
        let mut client = server.connect();
        run_each(&mut client, "SET statement_timeout = '1s'");
        assert!(client.batch_execute(endless).is_err());
    });
    assert!(seen[0].small_write.reqs > 100, "{seen:?}");
    let (seen, _) = agree(&server, "terminated", |server| {
        let mut client = server.connect();
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(client.batch_execute(endless).is_err()));
            std::thread::sleep(Duration::from_secs(1));
            let mut other = server.connect();
            run_each(&mut other, &format!("SELECT pg_terminate_backend({pid}, 10000)"));
        });
    });
    assert!(seen[0].small_write.reqs > 100, "{seen:?}");
}

#[test]
fn a_thousand_runs_are_counted_exactly() {
    let server = server("thousand");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET temp_buffers = 100; CREATE TEMPORARY TABLE gtt AS SELECT i AS id, repeat('*', 1000) AS pad FROM generate_series(1, 7000) i;
         SELECT count(*) FROM gtt",
    );
    for (name, filetype, sql) in [
        ("temp table", 1, "SELECT count(*) FROM gtt"),
        (
            "work file",
            0,
            "SELECT count(*) FROM (SELECT * FROM generate_series(1, 60000) i OFFSET 0) s",
        ),
    ] {
        let mut run = |times: usize| {
            io_during(&mut observer, || {
                for _ in 0..times {
                    run_each(&mut client, sql);
                }
            })
        };
        // The first runs write the pages that the table's creation left dirty.
        run(3);
        let once = run(1)[filetype];
        assert!(once.reads().reqs > 10, "{name}: {once:?}");
        let once = once.counts();
        let thousand = run(1000)[filetype].counts();
        println!("{name}: once {once:?}, a thousand times {thousand:?}");
        assert_eq!(
            thousand,
            once.map(|(reqs, bytes)| (1000 * reqs, 1000 * bytes)),
            "{name}"
        );
    }
}
