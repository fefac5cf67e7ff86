//! The current users of temporary space: compares rowsource_tempfile_usage() with the files on disk.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{cancel_backend, run_each, texts, value};
use rowsource_tests::waiting::until;
use std::fs;
use std::path::Path;
use std::process::Command;

fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            "pg_rowsource.statistics_level = 'basic'",
            "work_mem = '1MB'",
            "temp_buffers = 100",
            "jit = off",
            "max_parallel_workers_per_gather = 0",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE ROLE regress_a LOGIN; CREATE ROLE regress_b LOGIN; CREATE ROLE regress_reader LOGIN;
         GRANT pg_read_all_stats TO regress_reader; GRANT CREATE ON SCHEMA public TO regress_a",
    );
    server
}

/// User, database, kind, files and bytes.
type Used = (Option<String>, Option<String>, String, i64, i64);

/// Returns the temporary space of a process, as a reader sees it.
fn usage(client: &mut Client, pid: i32) -> Vec<Used> {
    client
        .query(
            "SELECT usename::text, datname::text, filetype, files, bytes FROM rowsource_tempfile_usage() WHERE pid = $1 ORDER BY filetype",
            &[&pid],
        )
        .expect("rowsource_tempfile_usage")
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)))
        .collect()
}

fn pid(client: &mut Client) -> i32 {
    value(client, "SELECT pg_backend_pid()")
}

/// Returns the number and bytes of files below a folder whose names start with this prefix.
fn on_disk(folder: &Path, prefix: &str) -> (i64, i64) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let metadata = entry.metadata().expect("a file");
            sum = (sum.0 + 1, sum.1 + metadata.len() as i64);
        }
    }
    sum
}

#[test]
fn work_files_and_temporary_tables_are_shown() {
    let server = server("usage");
    let mut observer = server.connect();
    let mut client = server.try_connect("regress_a").expect("a session");
    let mine = pid(&mut client);
    assert!(usage(&mut observer, mine).is_empty());
    // A cursor keeps the files of its sort.
    run_each(
        &mut client,
        "CREATE TEMPORARY TABLE gtt AS SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i; CREATE INDEX ON gtt (i);
         BEGIN; DECLARE c CURSOR FOR SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC; FETCH 1 FROM c",
    );
    let seen = usage(&mut observer, mine);
    let data = server.data();
    let database: u32 = value(
        &mut observer,
        "SELECT oid FROM pg_database WHERE datname = 'postgres'",
    );
    let tables = on_disk(&data.join(format!("base/{database}")), "t");
    let work = on_disk(&data.join("base/pgsql_tmp"), &format!("pgsql_tmp{mine}."));
    assert!(tables.1 > 10_000_000 && work.1 > 1_000_000, "{tables:?} {work:?}");
    let who = |kind: &str, (files, bytes): (i64, i64)| {
        (
            Some("regress_a".to_string()),
            Some("postgres".to_string()),
            kind.to_string(),
            files,
            bytes,
        )
    };
    assert_eq!(seen, [who("temp table", tables), who("work file", work)]);
    run_each(&mut client, "COMMIT");
    assert_eq!(usage(&mut observer, mine), [who("temp table", tables)]);
    run_each(&mut client, "DROP TABLE gtt");
    // The file of a dropped relation stays until the next checkpoint, empty.
    assert!(usage(&mut observer, mine).iter().all(|(.., bytes)| *bytes == 0));
}

#[test]
fn other_tablespaces_are_shown() {
    let server = server("usage-spaces");
    let folder = server.folder().join("space");
    fs::create_dir(&folder).expect("a folder");
    if environment().is_root {
        assert!(
            Command::new("chown")
                .arg("postgres:")
                .arg(&folder)
                .status()
                .expect("chown")
                .success()
        );
    }
    let mut observer = server.connect();
    run_each(
        &mut observer,
        &format!("CREATE TABLESPACE space LOCATION '{}'", folder.display()),
    );
    run_each(&mut observer, "GRANT CREATE ON TABLESPACE space TO PUBLIC");
    let mut client = server.try_connect("regress_a").expect("a session");
    let mine = pid(&mut client);
    run_each(
        &mut client,
        "SET temp_tablespaces = space; CREATE TEMPORARY TABLE gtt AS SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i;
         BEGIN; DECLARE c CURSOR FOR SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC; FETCH 1 FROM c",
    );
    let seen: Vec<(String, bool)> = usage(&mut observer, mine)
        .into_iter()
        .map(|(_, _, kind, _, bytes)| (kind, bytes > 1_000_000))
        .collect();
    assert_eq!(
        seen,
        [("temp table".to_string(), true), ("work file".to_string(), true)]
    );
    run_each(&mut client, "COMMIT; DROP TABLE gtt");
}

/// Waits until a running statement uses temporary space of this kind.
fn wait_for(observer: &mut Client, kind: &str) {
    until(
        observer,
        &format!(
            "SELECT EXISTS (SELECT FROM rowsource_tempfile_usage() WHERE filetype = '{kind}' AND bytes > 0)"
        ),
    );
}

#[test]
fn the_running_statement_and_who_may_see_it() {
    let server = server("usage-running");
    let mut observer = server.connect();
    let mut client = server.try_connect("regress_a").expect("a session");
    run_each(
        &mut client,
        "CREATE TABLE wide AS SELECT i AS id, repeat('w', 200) AS pad FROM generate_series(1, 30000) i; ANALYZE wide",
    );
    let mine = pid(&mut client);
    let endless = "SELECT count(*) FROM (SELECT * FROM wide a, wide b ORDER BY a.pad, b.id OFFSET 0) s";
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(client.batch_execute(endless).is_err()));
        wait_for(&mut observer, "work file");
        let query = format!(
            "SELECT queryid, usename, datname, bytes > 0 FROM rowsource_tempfile_usage() WHERE pid = {mine}"
        );
        let activity: i64 = value(
            &mut observer,
            &format!("SELECT query_id FROM pg_stat_activity WHERE pid = {mine}"),
        );
        for (user, seen) in [
            ("postgres", true),
            ("regress_reader", true),
            ("regress_a", true),
            ("regress_b", false),
        ] {
            let mut reader = server.try_connect(user).expect("a session");
            let some = |text: &str| Some(text.to_string());
            let queryid = seen.then(|| activity.to_string());
            assert_eq!(
                texts(&mut reader, &query),
                [[queryid, some("regress_a"), some("postgres"), some("t")]],
                "{user}"
            );
        }
        cancel_backend(&mut observer, mine);
    });
}

#[test]
fn shared_file_sets_are_shown() {
    let server = server("usage-sets");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE wide AS SELECT i AS id, repeat('w', 200) AS pad FROM generate_series(1, 100000) i; ANALYZE wide;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET enable_mergejoin = off;
         SET max_parallel_workers_per_gather = 2; SET hash_mem_multiplier = 1",
    );
    let mine = pid(&mut client);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let join = "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id AND a.pad = b.pad WHERE pg_sleep(0.001) IS NOT NULL";
            assert!(client.batch_execute(join).is_err());
        });
        wait_for(&mut observer, "shared file set");
        let seen = usage(&mut observer, mine);
        assert!(
            seen.iter()
                .any(|(user, _, kind, files, _)| kind == "shared file set" && *files > 1 && user.is_some()),
            "{seen:?}"
        );
        cancel_backend(&mut observer, mine);
    });
}

/// Files appear and disappear while the function reads the folders.
#[test]
fn vanishing_files_cause_no_error() {
    let server = server("usage-vanish");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..200 {
                    run_each(
                        &mut client,
                        "CREATE TEMPORARY TABLE gtt AS SELECT i FROM generate_series(1, 3000) i; DROP TABLE gtt;
                         SELECT count(*) FROM (SELECT * FROM generate_series(1, 90000) i OFFSET 0) s",
                    );
                }
            });
        }
        let mut observer = server.connect();
        for _ in 0..400 {
            run_each(&mut observer, "SELECT * FROM rowsource_tempfile_usage()");
        }
    });
    // Files with strange names, and folders that cannot be read, are not shown.
    let folder = server.data().join("base/pgsql_tmp");
    fs::create_dir_all(&folder).expect("a folder");
    for name in ["pgsql_tmp", "pgsql_tmpx.1", "pgsql_tmp99999999999.1", "stray"] {
        fs::write(folder.join(name), "x").expect("a file");
    }
    // Files of a process that has ended are shown, without a user.
    fs::write(folder.join("pgsql_tmp2147483647.0"), "four").expect("a file");
    let mut observer = server.connect();
    assert_eq!(
        usage(&mut observer, i32::MAX),
        [(None, None, "work file".to_string(), 1, 4)]
    );
    assert_eq!(
        value::<i64>(&mut observer, "SELECT count(*) FROM rowsource_tempfile_usage()"),
        1
    );
    server.assert_no_crash();
}

/// The milliseconds of all requests since the last reset.
const ALL_REQUESTS: &str =
    "SELECT sum(small_read_time + large_read_time + small_write_time + large_write_time)
      FROM pg_stat_rowsource_tempfile_io";

/// Returns the last row of a message of several statements.
fn last_row(client: &mut Client, message: &str) -> Vec<Option<f64>> {
    let rows = texts(client, message);
    let last = rows.last().expect("a row").iter();
    last.map(|text| text.as_ref().map(|text| text.parse().expect("a number")))
        .collect()
}

/// A message of several statements is one statement of pg_stat_activity, so it can show its own time.
#[test]
fn the_running_statement_shows_how_long_it_waited_for_temporary_files() {
    let server = server("usage-time");
    let mut client = server.connect();
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT i, repeat('x', 50) FROM generate_series(1, 100000) i ORDER BY 2, 1 DESC; FETCH 1 FROM c;
         SELECT rowsource_tempfile_reset()",
    );
    let shown = last_row(
        &mut client,
        &format!(
            "MOVE FORWARD 90000 IN c;
             SELECT wait_time, percent, ({ALL_REQUESTS})
               FROM rowsource_tempfile_usage() WHERE pid = pg_backend_pid() AND filetype = 'work file'"
        ),
    );
    let [Some(time), Some(percent), Some(all)] = shown[..] else {
        panic!("{shown:?}")
    };
    assert!(time > 0.0 && percent > 0.0 && percent < 100.0, "{shown:?}");
    assert!(
        (time - all).abs() < 1e-3,
        "only this statement's requests: {shown:?}"
    );
    // The next statement has made no request.
    run_each(&mut client, "COMMIT; BEGIN; SELECT 1");
    let next = texts(
        &mut client,
        "SELECT FROM _rowsource_tempfile_times() t JOIN pg_stat_activity a USING (pid, query_start) WHERE pid = pg_backend_pid()",
    );
    assert!(next.is_empty());
}

#[test]
fn the_time_includes_parallel_workers() {
    let server = server("usage-time-parallel");
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE p AS SELECT i, repeat('x', 100) AS pad FROM generate_series(1, 100000) i; ANALYZE p;
         SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET work_mem = '64kB'; SELECT rowsource_tempfile_reset()",
    );
    let shown = last_row(
        &mut client,
        &format!(
            "SELECT count(*), NULL::int FROM (SELECT * FROM p ORDER BY pad, i DESC OFFSET 0) s;
             SELECT wait_time, ({ALL_REQUESTS}), (SELECT sum(small_writes) FROM pg_stat_rowsource_tempfile_io)
               FROM _rowsource_tempfile_times() WHERE pid = pg_backend_pid()"
        ),
    );
    let [Some(time), Some(all), Some(requests)] = shown[..] else {
        panic!("{shown:?}")
    };
    assert!(requests > 1_000.0, "{shown:?}");
    assert!(
        (time - all).abs() < 1e-6 * all,
        "all processes together: {shown:?}"
    );
}

#[test]
fn the_times_of_others_are_hidden() {
    let server = server("usage-time-hidden");
    let mut client = server.try_connect("regress_a").expect("a session");
    let pid = pid(&mut client);
    run_each(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT i, repeat('x', 50) FROM generate_series(1, 100000) i ORDER BY 2, 1 DESC; FETCH 1 FROM c",
    );
    let times = |user: &str| -> usize {
        let mut client = server.try_connect(user).expect("a session");
        texts(
            &mut client,
            &format!("SELECT FROM _rowsource_tempfile_times() WHERE pid = {pid}"),
        )
        .len()
    };
    assert_eq!(
        (times("regress_b"), times("regress_reader"), times("regress_a")),
        (0, 1, 1)
    );
}
