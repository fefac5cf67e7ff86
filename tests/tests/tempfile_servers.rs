//! The counters after crashes and restarts, by database, in parallel, after a reset; and the privileges for
//! them.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::tempfile::{Io, io, io_during, sources};
use std::fs;

const SORT: &str = "SELECT count(*) FROM (SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC OFFSET 0) s";

fn server(name: &str, settings: &[&str]) -> Server {
    let mut all = vec![
        "pg_rowsource.statistics_level = 'basic'",
        "work_mem = '1MB'",
        "jit = off",
        "max_parallel_workers_per_gather = 0",
    ];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

/// Returns everything that the views show of this session's database.
fn shown(client: &mut Client) -> Vec<Vec<Option<String>>> {
    let mut all = texts(
        client,
        "SELECT * FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database()",
    );
    all.extend(texts(
        client,
        "SELECT * FROM pg_stat_rowsource_tempfile_io_histogram WHERE datname = current_database()",
    ));
    all
}

#[test]
fn restarts_and_crashes() {
    let mut server = server("tempfile-restart", &[]);
    let mut client = server.connect();
    run_each(&mut client, SORT);
    let before = shown(&mut client);
    assert!(io(&mut client)[0].small_write.reqs > 50);
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(shown(&mut client), before, "a clean restart keeps them");
    run_each(&mut client, SORT);
    let kept = io(&mut client)[0];
    drop(client);
    server.stop();
    server.launch();
    assert_eq!(io(&mut server.connect())[0], kept, "and the next one too");

    server.crash_a_backend();
    let mut client = server.connect();
    assert_eq!(sources(&mut client), ["request"]);
    assert_eq!(
        io(&mut client),
        [Io::default(); 2],
        "after a crash they start from zero"
    );
    let counted = io_during(&mut server.connect(), || run_each(&mut client, SORT));
    assert!(counted[0].small_write.reqs > 50, "and count");
    drop(client);
    server.kill();
    server.launch();
    assert_eq!(
        io(&mut server.connect()),
        [Io::default(); 2],
        "not what an unclean stop left"
    );
}

#[test]
fn files_that_cannot_be_read_and_saving_switched_off() {
    let mut server = server("tempfile-files", &["log_min_messages = 'log'"]);
    let file = server.data().join("pg_stat/pg_rowsource_tempfile.stat");
    for damage in [0usize, 7, 20, 40] {
        run_each(&mut server.connect(), SORT);
        server.stop();
        let mut bytes = fs::read(&file).expect("the file is written");
        if damage == 0 {
            bytes.truncate(30);
        } else {
            bytes[damage] ^= 0x55;
        }
        fs::write(&file, bytes).expect("damage");
        server.clear_log();
        server.launch();
        assert!(server.log().contains("pg_rowsource ignores"), "{}", server.log());
        assert_eq!(io(&mut server.connect()), [Io::default(); 2]);
        assert!(!file.exists(), "it is read once");
    }
    run_each(&mut server.connect(), SORT);
    server.stop();
    assert!(file.exists());
    server.configure("pg_rowsource.save = off");
    server.launch();
    assert_eq!(io(&mut server.connect()), [Io::default(); 2]);
    run_each(&mut server.connect(), SORT);
    server.stop();
    assert!(!file.exists());
    server.launch();
}

#[test]
fn each_database_has_its_own() {
    let server = server("tempfile-databases", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE DATABASE other; CREATE DATABASE third");
    for _ in 0..3 {
        run_each(
            &mut server.try_connect_to("postgres", "other").expect("a session"),
            SORT,
        );
    }
    run_each(&mut client, SORT);
    let of = |client: &mut Client, database: &str| -> i64 {
        value(
            client,
            &format!(
                "SELECT coalesce(sum(small_writes), 0)::bigint FROM pg_stat_rowsource_tempfile_io WHERE datname = '{database}'"
            ),
        )
    };
    let once = of(&mut client, "postgres");
    assert!(once > 50, "{once}");
    assert_eq!(of(&mut client, "other"), 3 * once);
    assert_eq!(of(&mut client, "third"), 0);
    run_each(
        &mut client,
        "SELECT rowsource_tempfile_reset(oid) FROM pg_database WHERE datname = 'other'",
    );
    assert_eq!(of(&mut client, "other"), 0);
    assert_eq!(of(&mut client, "postgres"), once);
    let later: bool = value(
        &mut client,
        "SELECT max(stats_reset) FILTER (WHERE datname = 'other') > max(stats_reset) FILTER (WHERE datname = 'postgres')
         FROM pg_stat_rowsource_tempfile_io",
    );
    assert!(later);
    run_each(&mut client, "DROP DATABASE other");
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_stat_rowsource_tempfile_io WHERE datname IS NULL"
        ),
        0,
        "a dropped database goes"
    );
    run_each(&mut client, "SELECT rowsource_tempfile_reset()");
    assert_eq!(of(&mut client, "postgres"), 0);
    // A database that does not exist takes no slot.
    run_each(&mut client, "SELECT rowsource_tempfile_reset(4000000000)");
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_stat_rowsource_tempfile_io WHERE datname IS NULL"
        ),
        0
    );
}

#[test]
fn many_sessions_at_once() {
    const SESSIONS: i64 = 8;
    const RUNS: i64 = 5;
    let server = server("tempfile-concurrent", &[]);
    let mut observer = server.connect();
    let mut client = server.connect();
    let once = io_during(&mut observer, || run_each(&mut client, SORT))[0];
    let all = io_during(&mut observer, || {
        std::thread::scope(|scope| {
            for _ in 0..SESSIONS {
                scope.spawn(|| {
                    for _ in 0..RUNS {
                        run_each(&mut server.connect(), SORT);
                    }
                });
            }
        });
    })[0];
    let expected = once
        .counts()
        .map(|(reqs, bytes)| (SESSIONS * RUNS * reqs, SESSIONS * RUNS * bytes));
    assert_eq!(all.counts(), expected);
}

#[test]
fn nodes_show_the_times_of_their_requests() {
    let server = server("tempfile-nodes", &["temp_buffers = 100"]);
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE wide AS SELECT i AS id, repeat('w', 200) AS pad FROM generate_series(1, 50000) i; VACUUM ANALYZE wide;
         CREATE TEMPORARY TABLE gtt AS SELECT * FROM wide; SELECT count(*) FROM gtt; SET enable_mergejoin = off;
         SET pg_rowsource.statistics_level = 'typical'",
    );
    let node_value = |client: &mut Client, node: &str, column: &str| -> f64 {
        value(
            client,
            &format!(
                "SELECT (n.last_{column})::float8 FROM pg_stat_rowsource n JOIN rowsource_last() l USING (queryid, planid)
                 WHERE n.operation LIKE '{node}' ORDER BY n.node_id LIMIT 1"
            ),
        )
    };
    let join = "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad";
    let parallel =
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
                    SET max_parallel_workers_per_gather = 2";
    for way in ["serial", "parallel"] {
        if way == "parallel" {
            run_each(&mut client, parallel);
        }
        let counted = io_during(&mut observer, || run_each(&mut client, join))[0];
        for (operation, blocks, requests) in [
            ("read", "temp_blks_read", counted.small_read),
            ("write", "temp_blks_written", counted.small_write),
        ] {
            let time = format!("temp_blk_{operation}_time");
            let (root, root_blocks) = (
                node_value(&mut client, "%Aggregate", &time),
                node_value(&mut client, "%Aggregate", blocks),
            );
            assert!(
                (root / requests.ms - 1.0).abs() < 1e-3,
                "{way} {operation}: {root} of {}",
                requests.ms
            );
            // Reads at the end of a work file are requests, but core counts no block for them.
            let empty = requests.reqs - root_blocks as i64;
            let max_empty = if operation == "read" { 100 } else { 0 };
            assert!(
                (0..=max_empty).contains(&empty),
                "{way} {operation}: {empty} of {}",
                requests.reqs
            );
        }
        // Core itself measures a Hash. Its write time is shown, and is part of the join's.
        let (hash, joined) = (
            node_value(&mut client, "%Hash", "temp_blk_write_time"),
            node_value(&mut client, "%Hash Join", "temp_blk_write_time"),
        );
        assert!(0.0 < hash && hash < joined, "{way}: {hash} of {joined}");
        let lines = texts(&mut client, "SELECT rowsource_display()").concat();
        assert!(
            lines.iter().flatten().any(|line| line.contains("Temp ms")),
            "{lines:#?}"
        );
    }
    let counted = io_during(&mut observer, || {
        run_each(&mut client, "SELECT count(*) FROM gtt")
    })[1];
    let time = node_value(&mut client, "%Aggregate", "local_blk_read_time");
    assert!(
        (time / counted.reads().ms - 1.0).abs() < 1e-3,
        "{time} of {}",
        counted.reads().ms
    );
    assert_eq!(node_value(&mut client, "%Aggregate", "shared_blk_read_time"), 0.0);
    let lines = texts(&mut client, "SELECT rowsource_display()").concat();
    assert!(
        !lines.iter().flatten().any(|line| line.contains("Temp-")),
        "{lines:#?}"
    );
    // EXPLAIN's output is unchanged.
    run_each(
        &mut client,
        "SET pg_rowsource.explain = on; SET max_parallel_workers_per_gather = 0",
    );
    for explain in ["off", "on"] {
        run_each(&mut client, &format!("SET pg_rowsource.explain = {explain}"));
        let text = texts(&mut client, &format!("EXPLAIN (ANALYZE, BUFFERS) {join}")).concat();
        assert!(
            !format!("{text:?}").contains("I/O Timings"),
            "explain {explain}: {text:#?}"
        );
    }
}

#[test]
fn privileges_of_views_and_functions() {
    let server = server("tempfile-privileges", &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE ROLE regress_user LOGIN");
    let mut user = server.try_connect("regress_user").expect("a session");
    run_each(
        &mut user,
        "SELECT * FROM pg_stat_rowsource_tempfile_io; SELECT * FROM pg_stat_rowsource_tempfile_io_histogram; SELECT * FROM rowsource_tempfile_usage();
         SELECT * FROM rowsource_snapshots; SELECT * FROM rowsource_interval_tempfile_io",
    );
    for sql in [
        "SELECT rowsource_tempfile_reset()",
        "SELECT rowsource_snapshot()",
        "SELECT * FROM rowsource_snapshot_plans",
        "SELECT * FROM rowsource_interval_plans",
        "INSERT INTO rowsource_snapshots DEFAULT VALUES",
        "DELETE FROM rowsource_snapshot_tempfile_io",
    ] {
        let (code, message) = must_fail(&mut user, sql);
        assert_eq!(code.code(), "42501", "{sql}: {message}");
    }
    // The privilege to call the function is enough.
    run_each(
        &mut client,
        "GRANT EXECUTE ON FUNCTION rowsource_snapshot() TO regress_user",
    );
    run_each(
        &mut user,
        "SELECT rowsource_snapshot(); SELECT rowsource_snapshot(); SELECT * FROM rowsource_tempfile_report()",
    );
}
