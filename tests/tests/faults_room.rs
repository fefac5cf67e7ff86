//! Shared memory or the disk has no room for what the library keeps.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::busy::Busy;
use rowsource_tests::mounts::Mounts;
use rowsource_tests::session::{must_fail, run_each, value};
use rowsource_tests::store::{assert_measures, info, keeping, make_plans};
use rowsource_tests::waiting::{until, until_waiting};
use std::fs;
use std::path::Path;
use std::process::Command;

const MB: u64 = 1 << 20;

#[test]
fn no_room_for_the_store_needs_mount() {
    let mounts = Mounts::new(&[(Path::new("/dev/shm"), 7 * MB / 4)]);
    let mut server = keeping("faults-no-shm", &["min_dynamic_shared_memory = 0"]);
    server.stop();
    server.run_inside(&mounts);
    server.launch();
    let mut client = server.connect();
    for read in [
        "SELECT * FROM rowsource_info()",
        "SELECT * FROM pg_stat_rowsource_live",
    ] {
        let (code, message) = must_fail(&mut client, read);
        assert_eq!(code, SqlState::OUT_OF_MEMORY, "{message}");
        // The library is preloaded already.
        assert!(
            message.contains("/dev/shm") && !message.contains("shared_preload"),
            "{message}"
        );
    }
    assert_measures(&mut client, 1);
}

/// Docker gives a container 64 MB of shared memory.
#[test]
fn a_container_keeps_room_for_parallel_queries_needs_mount() {
    let mounts = Mounts::new(&[(Path::new("/dev/shm"), 64 * MB)]);
    let mut server = keeping(
        "faults-container",
        &["min_dynamic_shared_memory = 0", "jit = off"],
    );
    run_each(
        &mut server.connect(),
        "CREATE TABLE joined AS SELECT i AS id, repeat('x', 20) AS pad FROM generate_series(1, 300000) i; ANALYZE joined",
    );
    server.stop();
    server.run_inside(&mounts);
    server.clear_log();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    for selects in 4..8 {
        make_plans(&mut client, 1_500, selects);
    }
    let limit = info(&mut client, "max_bytes");
    println!(
        "{} plans of {} bytes, limit {limit}",
        info(&mut client, "plans"),
        info(&mut client, "bytes")
    );
    assert!((8 << 20..11 << 20).contains(&limit), "{limit}");
    assert!(info(&mut client, "bytes") > limit / 2, "the limit is reached");
    // Its hash table takes 20 to 40 MB of dynamic shared memory.
    run_each(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET work_mem = '64MB';
         SET enable_mergejoin = off; SET enable_nestloop = off",
    );
    let joined: i64 = value(
        &mut client,
        "SELECT count(*) FROM joined a JOIN joined b USING (id, pad)",
    );
    assert_eq!(joined, 300_000);
    let lines = server.log_of_library();
    assert!(
        matches!(&lines[..], [line] if line.contains("enlarge /dev/shm")),
        "{lines:#?}"
    );
}

/// What each session needs to be seen is reserved first. Plans have what is left, and a line in the log says
/// that this is little.
#[test]
fn what_sessions_need_comes_before_plans_needs_mount() {
    let mounts = Mounts::new(&[(Path::new("/dev/shm"), 64 * MB)]);
    // In the second case, there is not enough for all sessions.
    for (connections, limits) in [(500, 3 * MB..5 * MB), (1_500, 2 * MB..3 * MB)] {
        let mut server = keeping(
            &format!("faults-reserve-{connections}"),
            &[
                "min_dynamic_shared_memory = 0",
                &format!("max_connections = {connections}"),
            ],
        );
        server.stop();
        server.run_inside(&mounts);
        server.clear_log();
        server.launch();
        let mut client = server.connect();
        let limit = info(&mut client, "max_bytes") as u64;
        assert!(limits.contains(&limit), "{connections}: {limit}");
        run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
        make_plans(&mut client, 1_000, 6);
        assert!(info(&mut client, "evictions") > 0);
        assert!(info(&mut client, "bytes") as u64 <= limit);
        let busy = Busy::run(server.connect(), "SELECT pg_sleep(1000) FROM t");
        until_waiting(&mut client, busy.pid, "PgSleep");
        let seen = format!(
            "SELECT count(*) FROM pg_stat_rowsource_live WHERE pid = {} AND operation = 'Seq Scan'",
            busy.pid
        );
        assert_eq!(value::<i64>(&mut client, &seen), 1);
        busy.cancel(&mut client);
        let lines = server.log_of_library();
        assert!(
            lines.iter().all(|line| line.contains("enlarge /dev/shm")),
            "{lines:#?}"
        );
        let is_short = lines.iter().any(|line| line.contains("room to show what"));
        assert_eq!(
            (lines.len(), is_short),
            if connections == 500 { (1, false) } else { (2, true) },
            "{lines:#?}"
        );
    }
}

/// The limits follow the size of /dev/shm, for plans and for what sessions need beyond the reserve.
#[test]
fn a_larger_dev_shm_is_used_needs_mount() {
    const SESSIONS: usize = 34;
    let shm = Path::new("/dev/shm");
    let mounts = Mounts::new(&[(shm, 16 * MB)]);
    let mut server = keeping(
        "faults-resize",
        &["min_dynamic_shared_memory = 0", "max_connections = 60"],
    );
    server.stop();
    server.run_inside(&mounts);
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    let large = format!(
        "{} UNION ALL SELECT 1 FROM pg_sleep(1000)",
        ["SELECT id FROM t"; 18].join(" UNION ALL ")
    );
    let mut before = 0;
    for (size, is_large) in [(16, false), (128, true)] {
        mounts.resize(shm, size * MB);
        // The next new plan asks how much there is.
        make_plans(&mut client, 10 + size as usize, 6);
        let limit = info(&mut client, "max_bytes");
        assert!(limit > 4 * before, "{size}: {limit}");
        before = limit;
        let busy: Vec<_> = (0..SESSIONS)
            .map(|_| Busy::run(server.connect(), &large))
            .collect();
        for busy in &busy {
            until_waiting(&mut client, busy.pid, "PgSleep");
        }
        let shown: i64 = value(
            &mut client,
            "SELECT count(DISTINCT pid) FROM pg_stat_rowsource_live WHERE node_id IS NOT NULL AND pid <> pg_backend_pid()",
        );
        println!("{size} MB: limit {limit}, {shown} of {SESSIONS} are shown");
        assert_eq!(shown == SESSIONS as i64, is_large, "{size}: {shown}");
        for busy in busy {
            busy.cancel(&mut client);
        }
    }
}

/// With a /dev/shm of 6 MB, plans that do not fit are not stored. Only the log reports it, once.
#[test]
fn little_shared_memory_needs_mount() {
    let mounts = Mounts::new(&[(Path::new("/dev/shm"), 6 * MB)]);
    let mut server = keeping("faults-shm", &["min_dynamic_shared_memory = 0"]);
    server.stop();
    server.run_inside(&mounts);
    server.clear_log();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    let before = server.log().lines().count();
    // The client gets warnings; with log_min_messages = warning the log has them too.
    make_plans(&mut client, 4_000, 5);
    let mut other = server.connect();
    run_each(&mut other, "SET pg_rowsource.statistics_level = 'typical'");
    make_plans(&mut other, 4_000, 6);
    let log = server.log();
    let warnings = log
        .lines()
        .skip(before)
        .filter(|line| line.contains("WARNING"))
        .count();
    println!(
        "{} plans of {} bytes in 6 MB; refused {}, {warnings} warnings",
        info(&mut client, "plans"),
        info(&mut client, "bytes"),
        info(&mut client, "refused")
    );
    assert_eq!(warnings, 0, "{:.2000}", server.log_extract());
    assert!(
        server.log_of_library().len() <= 2,
        "{:#?}",
        server.log_of_library()
    );
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM t"),
        1,
        "statements go on"
    );
    // As soon as there is space, other sessions' parallel queries work.
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = 'basic'; SELECT rowsource_reset()",
    );
    run_each(
        &mut client,
        "CREATE TABLE large AS SELECT i AS id FROM generate_series(1, 100000) i; ANALYZE large; SET parallel_setup_cost = 0;
         SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2",
    );
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM large"), 100_000);
    let mut reader = server.connect();
    assert_measures(&mut reader, 1);
}

/// If the file system of pg_stat is full, the server stops cleanly, logs one line, and leaves no incomplete
/// file.
#[test]
fn no_room_for_the_file_needs_mount() {
    let mut server = keeping("faults-disk", &[]);
    server.stop();
    let folder = server.data().join("pg_stat");
    let mounts = Mounts::new(&[(&folder, 64 << 10)]);
    server.run_inside(&mounts);
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    make_plans(&mut client, 1_000, 5);
    drop(client);
    server.clear_log();
    let ended = server.stopped();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    let left: Vec<String> = fs::read_dir(mounts.outside(&folder))
        .expect("pg_stat")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("pg_rowsource.stat"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let lines = server.log_of_library();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("LOG:") && lines[0].contains("could not save"),
        "{lines:#?}"
    );
    // The files there do not delay the next start.
    server.launch();
    assert_measures(&mut server.connect(), 1);
}

/// If the disk of the history is full, snapshots fail and say why, nobody else notices, and they go on when
/// there is room.
#[test]
fn no_room_for_a_snapshot_needs_mount() {
    let mut server = keeping("faults-snapshot", &["pg_rowsource.snapshot_interval = 1s"]);
    server.stop();
    let folder = server.folder().join("small");
    fs::create_dir(&folder).expect("a folder");
    let mounts = Mounts::new(&[(&folder, 2 * MB)]);
    server.run_inside(&mounts);
    let space = folder.join("space");
    let outside = mounts.outside(&space);
    fs::create_dir(&outside).expect("a folder");
    let owned = Command::new("chown").arg("postgres:").arg(&outside).status();
    assert!(owned.is_ok_and(|status| status.success()));
    server.launch();
    let mut client = server.connect();
    run_each(
        &mut client,
        &format!(
            "CREATE TABLESPACE small LOCATION '{}'; CREATE TABLE filler (filler text) TABLESPACE small;
             ALTER TABLE filler ALTER filler SET STORAGE PLAIN;
             ALTER TABLE rowsource_snapshot_waits SET TABLESPACE small",
            space.display()
        ),
    );
    let number = |client: &mut Client, column: &str| -> i64 {
        value(client, &format!("SELECT {column} FROM rowsource_info()"))
    };
    until(&mut client, "SELECT snapshots_taken > 0 FROM rowsource_info()");
    for _ in 0..1_000 {
        if client
            .execute("INSERT INTO filler SELECT repeat('x', 7000)", &[])
            .is_err()
        {
            break;
        }
    }
    until(
        &mut client,
        "SELECT snapshots_failed > 1 AND last_snapshot_error LIKE 'the disk is full%' FROM rowsource_info()",
    );
    assert_measures(&mut server.connect(), 1);
    // A snapshot is stored whole or not at all.
    let torn: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshots s WHERE NOT EXISTS (SELECT FROM rowsource_snapshot_waits w WHERE w.snap_id = s.snap_id)",
    );
    assert_eq!(torn, 0);
    let taken = number(&mut client, "snapshots_taken");
    mounts.resize(&folder, 8 * MB);
    until(
        &mut client,
        &format!("SELECT snapshots_taken > {taken} FROM rowsource_info()"),
    );
    assert_eq!(server.restarts(), 0);
}
