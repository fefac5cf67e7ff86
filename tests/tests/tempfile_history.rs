//! Snapshots, the report on an interval, and the history after resets, restarts, retention, dump and restore.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::tempfile::{io_during, sources};
use std::io::{Read, Write};

const SORT: &str = "SELECT count(*) FROM (SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC OFFSET 0) s";
const SNAPSHOT: &str = "SELECT rowsource_snapshot()";

fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            "pg_rowsource.statistics_level = 'basic'",
            "work_mem = '1MB'",
            "jit = off",
            "max_parallel_workers_per_gather = 0",
        ],
    );
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

fn report(client: &mut Client, arguments: &str) -> Vec<String> {
    texts(client, &format!("SELECT rowsource_tempfile_report({arguments})"))
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// Returns the cells of a line of the report.
fn cells(report: &[String], filetype: &str) -> Vec<String> {
    let line = report
        .iter()
        .find(|line| line.starts_with(&format!("| {filetype}")))
        .unwrap_or_else(|| panic!("no {filetype}: {report:#?}"));
    line.trim_matches('|')
        .split('|')
        .map(|cell| cell.trim().to_string())
        .collect()
}

/// Returns reads, writes and the average read time of work files in the interval that ends with a snapshot.
fn interval(client: &mut Client, snapshot: i64) -> (i64, i64, f64) {
    let row = client
        .query_one(
            "SELECT small_reads, small_writes, small_read_mean_time FROM rowsource_interval_tempfile_io
             WHERE snap_id = $1 AND datname = current_database() AND filetype = 'work file'",
            &[&snapshot],
        )
        .expect("an interval");
    (
        row.get(0),
        row.get(1),
        row.get::<_, Option<f64>>(2).unwrap_or(-1.0),
    )
}

#[test]
fn the_report_says_what_to_do_without_snapshots() {
    let server = server("no-snapshots");
    let mut client = server.connect();
    for taken in ["no snapshot", "snapshot 1"] {
        let said = report(&mut client, "").join("\n");
        assert!(
            said.contains(&format!("\n{taken}  ")) && said.contains("\nnow  "),
            "{said}"
        );
        assert!(
            said.contains("nothing older is known\nTake one with SELECT rowsource_snapshot()"),
            "{said}"
        );
        run_each(&mut client, SNAPSHOT);
    }
    let (code, message) = must_fail(&mut client, "SELECT rowsource_tempfile_report('1 min', '1 h')");
    assert_eq!(code.code(), "22023", "{message}");
}

/// Returns arguments: the moments at which two snapshots were taken.
fn between(first: i64, last: i64) -> String {
    let taken = |id| format!("(SELECT taken_at FROM rowsource_snapshots WHERE snap_id = {id})");
    format!("{}, {}", taken(first), taken(last))
}

#[test]
fn intervals_add_up() {
    let server = server("intervals");
    let mut client = server.connect();
    let once = io_during(&mut server.connect(), || run_each(&mut client, SORT))[0];
    for runs in [0, 1, 3, 0, 2] {
        for _ in 0..runs {
            run_each(&mut client, SORT);
        }
        run_each(&mut client, SNAPSHOT);
    }
    for (snapshot, runs) in [(2, 1), (3, 3), (4, 0), (5, 2)] {
        let (reads, writes, average) = interval(&mut client, snapshot);
        assert_eq!(
            (reads, writes),
            (runs * once.small_read.reqs, runs * once.small_write.reqs)
        );
        assert_eq!(average > 0.0, runs > 0, "{average}");
    }
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM rowsource_interval_tempfile_io WHERE snap_id = 1"
        ),
        0,
        "the first snapshot ends no interval"
    );
    // Any two snapshots, or all of the last hour.
    let last = report(&mut client, &between(4, 5));
    println!("{}", last.join("\n"));
    assert_eq!(last[0], "IOStat by Filetype summary");
    assert!(
        last[1].starts_with("snapshot 4 ") && last[2].starts_with("snapshot 5 "),
        "{last:#?}"
    );
    let all = report(&mut client, &between(1, 5));
    let hour = report(&mut client, "");
    assert!(
        hour[1].starts_with("snapshot 1 ") && hour[2].starts_with("now "),
        "{hour:#?}"
    );
    let seconds: f64 = value(
        &mut client,
        "SELECT extract(epoch FROM max(taken_at) - min(taken_at))::float8 FROM rowsource_snapshots",
    );
    let work = cells(&all, "work file");
    assert_eq!(
        work[2],
        format!("{:.1}", (6 * once.small_read.reqs) as f64 / seconds),
        "{all:#?}"
    );
    assert_eq!(
        work[5],
        format!("{:.1}", (6 * once.small_write.reqs) as f64 / seconds)
    );
    assert!(work[7].ends_with(" ms") && work[8].is_empty(), "{work:?}");
    let total = cells(&all, "TOTAL");
    assert_eq!(total[1..], work[1..], "there were no temporary tables");
    assert_eq!(cells(&all, "temp table")[1], "0");
}

/// Processes without a database, and databases that share one set of counters, have a row each.
#[test]
fn rows_without_a_database_have_their_own_intervals() {
    let server = server("history-shared");
    let mut client = server.connect();
    run_each(
        &mut client,
        "INSERT INTO rowsource_snapshots (snap_id) VALUES (1001), (1002);
         INSERT INTO rowsource_snapshot_tempfile_io (snap_id, datid, filetype, small_reads, source, stats_reset)
         SELECT 1000 + i, datid, 'work file', i * CASE datid WHEN 0 THEN 100 ELSE 700 END, 'request', '2026-01-01'
           FROM generate_series(1, 2) i, unnest(ARRAY[0, 4294967295]::oid[]) datid",
    );
    let intervals =
        "SELECT datid, small_reads FROM rowsource_interval_tempfile_io WHERE snap_id = 1002 ORDER BY datid";
    let row = |datid: Option<&str>, reads: &str| vec![datid.map(str::to_owned), Some(reads.to_owned())];
    assert_eq!(
        texts(&mut client, intervals),
        [row(Some("0"), "100"), row(None, "700")]
    );
}

#[test]
fn resets_restarts_and_crashes_give_no_negative_numbers() {
    let mut server = server("history-resets");
    let mut client = server.connect();
    let once = io_during(&mut server.connect(), || run_each(&mut client, SORT))[0];
    let expect = |client: &mut Client, runs: i64, what: &str| {
        // After a crash the snapshot numbers have a gap.
        let snapshot: i64 = value(client, SNAPSHOT);
        let (reads, writes, _) = interval(client, snapshot);
        let expected = (runs * once.small_read.reqs, runs * once.small_write.reqs);
        assert_eq!((reads, writes), expected, "{what}");
    };
    run_each(&mut client, SORT);
    run_each(&mut client, SNAPSHOT);
    run_each(&mut client, SORT);
    run_each(&mut client, "SELECT rowsource_tempfile_reset()");
    run_each(&mut client, SORT);
    run_each(&mut client, SORT);
    expect(&mut client, 2, "since a reset");
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, SORT);
    expect(&mut client, 1, "a clean restart is no break");
    drop(client);
    server.crash_a_backend();
    let mut client = server.connect();
    for _ in 0..4 {
        run_each(&mut client, SORT);
    }
    expect(&mut client, 4, "since a crash");
    let negative: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_interval_tempfile_io WHERE least(small_reads, small_read_bytes, small_read_time,
             large_reads, small_writes, small_write_bytes, small_write_time, large_writes) < 0",
    );
    assert_eq!(negative, 0);
    // The total interval: everything except what the reset and the crash lost.
    let last: i64 = value(&mut client, "SELECT max(snap_id) FROM rowsource_snapshots");
    let all = report(&mut client, &between(1, last));
    let rate: f64 = cells(&all, "work file")[2].parse().expect("a number");
    let seconds: f64 = value(
        &mut client,
        "SELECT extract(epoch FROM max(taken_at) - min(taken_at))::float8 FROM rowsource_snapshots",
    );
    assert!(
        (rate * seconds - (7 * once.small_read.reqs) as f64).abs() < 0.06 * seconds,
        "{all:#?}"
    );
}

/// A session that loaded the library by itself shows the counters of core, which do not time requests here.
#[test]
fn what_was_not_timed_has_no_time() {
    let settings = [
        "session_preload_libraries = 'pg_rowsource'",
        "track_io_timing = off",
        "work_mem = '1MB'",
        "jit = off",
        "max_parallel_workers_per_gather = 0",
    ];
    let server = Server::start("history-untimed", &settings);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    for statement in [SNAPSHOT, SORT, SNAPSHOT] {
        run_each(&mut client, statement);
    }
    let shown = texts(
        &mut client,
        "SELECT source, small_writes > 50, small_write_time, small_write_mean_time FROM rowsource_interval_tempfile_io
         WHERE small_writes > 0",
    );
    let some = |text: &str| Some(text.to_string());
    assert_eq!(shown, [[some("counter"), some("t"), None, None]]);
    let report = report(&mut client, "");
    assert!(
        cells(&report, "work file").ends_with(&[String::new(), String::new()]),
        "{report:#?}"
    );
}

#[test]
fn plans_and_retention() {
    let mut server = server("history-plans");
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    run_each(&mut client, SORT);
    run_each(&mut client, SNAPSHOT);
    run_each(&mut client, SORT);
    run_each(&mut client, SORT);
    run_each(&mut client, SNAPSHOT);
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
    run_each(&mut client, SNAPSHOT);
    let history = texts(
        &mut client,
        "SELECT snap_id, calls, temp_blks_written > 100, mean_time > 0, temp_blk_write_time > 0 FROM rowsource_interval_plans
         WHERE query LIKE '%generate_series(1, 50000)%' ORDER BY 1",
    );
    let some = |text: &str| Some(text.to_string());
    assert_eq!(history, [[some("2"), some("2"), some("t"), some("t"), some("t")]]);
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM rowsource_snapshot_plans WHERE snap_id = 3 AND query LIKE '%generate_series(1, 50000)%'"
        ),
        0,
        "what did not run is not stored again"
    );
    let count = "SELECT count(*) FROM rowsource_snapshots";
    assert_eq!(
        value::<String>(&mut client, "SHOW pg_rowsource.snapshot_retention"),
        "14d"
    );
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '15 days' WHERE snap_id = 1",
    );
    run_each(&mut client, SNAPSHOT);
    assert_eq!(value::<i64>(&mut client, count), 3, "1 is too old");
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM rowsource_snapshot_plans WHERE snap_id = 1"
        ),
        0
    );
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM rowsource_snapshot_tempfile_io WHERE snap_id = 1"
        ),
        0
    );
    drop(client);
    for (retention, left) in [("'30min'", 4), ("0", 5), ("1", 2)] {
        server.configure(&format!("pg_rowsource.snapshot_retention = {retention}"));
        server.stop();
        server.launch();
        let mut client = server.connect();
        if retention == "1" {
            run_each(
                &mut client,
                "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '2 minutes'",
            );
            // Each deletes four of these five.
            run_each(&mut client, SNAPSHOT);
        }
        run_each(&mut client, SNAPSHOT);
        assert_eq!(value::<i64>(&mut client, count), left, "{retention}");
    }
}

#[test]
fn a_dump_has_the_extension_and_no_history() {
    let server = server("history-dump");
    let mut client = server.connect();
    run_each(&mut client, "CREATE DATABASE restored");
    run_each(&mut client, SNAPSHOT);
    run_each(&mut client, SORT);
    run_each(&mut client, SNAPSHOT);
    let before = report(&mut client, &between(1, 2));
    let environment = environment();
    let program = |name: &str| {
        let mut command = environment.as_server(&environment.pgbin.join(name));
        command.args(["-U", "postgres", "-h"]).arg(server.folder());
        command
    };
    for format in ["--column-inserts", "--verbose"] {
        let dump = program("pg_dump")
            .arg(format)
            .arg("postgres")
            .output()
            .expect("pg_dump");
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        let file = server.folder().join("dump.sql");
        std::fs::write(&file, &dump.stdout).expect("the dump");
        run_each(&mut client, "DROP DATABASE restored; CREATE DATABASE restored");
        let restore = program("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f"])
            .arg(&file)
            .output()
            .expect("psql");
        assert!(
            restore.status.success(),
            "{}",
            String::from_utf8_lossy(&restore.stderr)
        );
        let mut restored = server.try_connect_to("postgres", "restored").expect("a session");
        run_each(&mut restored, SNAPSHOT);
        assert_eq!(
            texts(&mut restored, "SELECT snap_id FROM rowsource_snapshots"),
            [[Some("1".to_owned())]]
        );
        // Its tables can be copied, the one to which the others refer first.
        run_each(&mut restored, "TRUNCATE rowsource_snapshots CASCADE");
        for part in ["s", "_tempfile_io", "_waits", "_ash", "_plans", "_descriptions"] {
            let table = format!("rowsource_snapshot{part}");
            let mut rows = Vec::new();
            let copied = client.copy_out(&format!("COPY {table} TO STDOUT"));
            copied.expect("a copy").read_to_end(&mut rows).expect("its rows");
            let mut copy = restored
                .copy_in(&format!("COPY {table} FROM STDIN"))
                .expect("a copy");
            copy.write_all(&rows).expect("its rows");
            copy.finish().expect("a copy");
        }
        assert_eq!(report(&mut restored, &between(1, 2)), before);
        run_each(
            &mut restored,
            "SELECT setval('rowsource_snapshots_snap_id_seq', max(snap_id)) FROM rowsource_snapshots",
        );
        assert_eq!(value::<i64>(&mut restored, SNAPSHOT), 3);
    }
}

#[test]
fn pg_upgrade_keeps_the_history() {
    let mut old = server("history-upgrade-old");
    let mut new = Server::preloaded("history-upgrade-new", &[]);
    let mut client = old.connect();
    run_each(&mut client, SNAPSHOT);
    run_each(&mut client, SORT);
    run_each(&mut client, SNAPSHOT);
    let before = report(&mut client, &between(1, 2));
    drop(client);
    old.stop();
    new.stop();
    let environment = environment();
    let upgrade = environment
        .as_server(&environment.pgbin.join("pg_upgrade"))
        .args(["-U", "postgres", "-b"])
        .arg(&environment.pgbin)
        .arg("-B")
        .arg(&environment.pgbin)
        .arg("-d")
        .arg(old.data())
        .arg("-D")
        .arg(new.data())
        .arg("-s")
        .arg(new.folder())
        .current_dir(new.folder())
        .output()
        .expect("pg_upgrade");
    assert!(
        upgrade.status.success(),
        "{}{}",
        String::from_utf8_lossy(&upgrade.stdout),
        String::from_utf8_lossy(&upgrade.stderr)
    );
    new.launch();
    let mut client = new.connect();
    assert_eq!(sources(&mut client), ["request"]);
    assert_eq!(report(&mut client, &between(1, 2)), before);
    run_each(&mut client, "SET work_mem = '1MB'");
    let counted = io_during(&mut new.connect(), || run_each(&mut client, SORT))[0];
    assert!(counted.small_write.reqs > 50, "{counted:?}");
    assert_eq!(value::<i64>(&mut client, SNAPSHOT), 3);
}

/// In another schema, and in a session with an untrusted search_path.
#[test]
fn the_history_does_not_depend_on_search_path() {
    let server = server("history-path");
    let mut client = server.connect();
    run_each(
        &mut client,
        "DROP EXTENSION pg_rowsource; CREATE SCHEMA elsewhere; CREATE EXTENSION pg_rowsource SCHEMA elsewhere; CREATE SCHEMA trap;
         CREATE TABLE trap.rowsource_snapshots (snap_id bigint, taken_at timestamptz);
         CREATE FUNCTION trap.max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
         SET search_path = trap, public; SELECT elsewhere.rowsource_snapshot(); SELECT elsewhere.rowsource_snapshot();
         SELECT elsewhere.rowsource_tempfile_report(); SELECT * FROM elsewhere.rowsource_tempfile_usage();
         SELECT * FROM elsewhere.rowsource_interval_tempfile_io; SELECT * FROM elsewhere.rowsource_interval_plans",
    );
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM elsewhere.rowsource_snapshots"),
        2
    );
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM trap.rowsource_snapshots"),
        0
    );
}
