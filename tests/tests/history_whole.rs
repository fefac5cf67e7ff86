//! An interval of the history is one, whether memory has it, snapshots, or both: each moment counts once, and
//! what is missing is said.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::worker;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::waiting::{pid, until};

fn lines(client: &mut Client, report: &str) -> String {
    let lines = texts(client, &format!("SELECT {report}"));
    lines
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Lets a session sleep for a second, and another one wait for a lock that a third, which is idle, holds.
fn work(server: &Server, observer: &mut Client, name: &str) {
    let mut holder = server.connect();
    let root = pid(&mut holder);
    run_each(
        &mut holder,
        &format!("SET application_name = 'holder {name}'; BEGIN; LOCK TABLE t"),
    );
    let mut sleeper = server.connect();
    run_each(
        &mut sleeper,
        &format!("SET application_name = '{name}'; SET pg_rowsource.statistics_level = typical"),
    );
    let waiting = Busy::run(server.connect(), "SELECT id FROM t");
    run_each(&mut sleeper, "SELECT pg_sleep(1)");
    until(
        observer,
        &format!(
            "SELECT coalesce(sum(wait_time), 0) > 200 FROM rowsource_blockers('1 min') WHERE root_pid = {root} AND depth = 1"
        ),
    );
    run_each(&mut holder, "COMMIT");
    waiting.join();
}

const SAMPLES: &str = "SELECT count(*) - count(DISTINCT (sample_time, pid)), coalesce(sum(moments) FILTER (WHERE application_name = 'before'), 0),
    coalesce(sum(moments) FILTER (WHERE application_name = 'after'), 0) FROM rowsource_ash('10 min') WHERE wait_event = 'PgSleep'";

fn numbers(client: &mut Client, sql: &str) -> Vec<i64> {
    let row = texts(client, sql).remove(0);
    row.into_iter()
        .map(|cell| cell.expect("a value").parse().expect("a number"))
        .collect()
}

/// The report and the trees are of both, and say what is missing.
fn whole_reports(observer: &mut Client) {
    let report = lines(observer, "rowsource_ash_report('10 min')");
    println!("{report}");
    for part in [
        "; no snapshot has older ones",
        "\nno samples from ",
        "; the server crashed, or began to sample, at ",
        " are from snapshots, later ones from memory",
        "of snapshots one in 0.1 s until ",
        "SELECT pg_sleep(",
        "Result",
        "client backend postgres holder before",
        "client backend postgres holder after",
        "relation on t",
    ] {
        assert!(report.contains(part), "no {part} in\n{report}");
    }
    let trees = texts(
        observer,
        "SELECT application_name, coalesce(mode, '-'), coalesce(relation, '-'), coalesce(query, '-'), wait_time > 200
           FROM rowsource_blockers('10 min') ORDER BY application_name, depth",
    );
    let trees: Vec<String> = trees
        .into_iter()
        .map(|row| {
            row.into_iter()
                .map(|cell| cell.unwrap_or_default())
                .collect::<Vec<_>>()
                .join(" | ")
        })
        .collect();
    assert_eq!(trees.len(), 4, "{trees:#?}");
    assert!(
        trees[0].starts_with("holder after | - | - | LOCK TABLE"),
        "{trees:#?}"
    );
    assert!(
        trees[1].starts_with("holder before | - | - | LOCK TABLE"),
        "{trees:#?}"
    );
    for tree in &trees[2..] {
        assert!(
            tree.starts_with("rowsource-tests | AccessShareLock | t | "),
            "{trees:#?}"
        );
        assert!(tree.ends_with(" | t"), "{trees:#?}");
    }
}

fn hidden_reports(server: &Server) {
    // Who may not read the snapshots learns why.
    let mut joe = server.try_connect("joe").expect("a session");
    let report = lines(&mut joe, "rowsource_ash_report('10 min')");
    assert!(
        report
            .contains("; snapshots may have older ones, for roles with the privileges of pg_read_all_stats"),
        "{report}"
    );
    assert!(!report.contains("from snapshots"), "{report}");
}

#[test]
fn samples_of_snapshots_and_of_memory_are_one_interval() {
    let mut server = Server::preloaded(
        "whole-samples",
        &["autovacuum = off", "pg_rowsource.snapshot_interval = 0"],
    );
    let mut observer = server.session();
    worker(&mut observer);
    run_each(
        &mut observer,
        "CREATE TABLE t AS SELECT 1 AS id; CREATE ROLE joe LOGIN",
    );
    work(&server, &mut observer, "before");
    run_each(&mut observer, "SELECT rowsource_snapshot()");
    let report = lines(&mut observer, "rowsource_ash_report('10 min')");
    assert!(!report.contains("from snapshots"), "memory has all: {report}");
    drop(observer);

    // What memory had is lost: also what no snapshot has.
    run_each(&mut server.connect(), "SELECT pg_sleep(6)");
    server.stopped_by("QUIT");
    server.launch();
    let mut observer = server.connect();
    worker(&mut observer);
    work(&server, &mut observer, "after");
    for stored in [false, true] {
        // Also if a snapshot has what memory has.
        if stored {
            run_each(&mut observer, "SELECT rowsource_snapshot()");
        }
        let [twice, before, after] = numbers(&mut observer, SAMPLES)[..] else {
            panic!("three numbers")
        };
        println!("stored {stored}: {before} moments before, {after} after");
        assert_eq!(twice, 0);
        // A hundred times a second, if the worker is on time.
        assert!(
            (30..=130).contains(&before) && (30..=130).contains(&after),
            "{before}, {after}"
        );
    }
    // Nothing is active for a while.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let of_top = "SELECT sum(samples) FROM rowsource_top_activity('10 min') WHERE wait_event = 'PgSleep'";
    let [samples] = numbers(&mut observer, of_top)[..] else {
        panic!("a number")
    };
    let [_, before, after] = numbers(&mut observer, SAMPLES)[..] else {
        panic!("three numbers")
    };
    assert_eq!(samples, before + after);
    // Moments at which nothing was active count, too.
    let average: f64 = value(
        &mut observer,
        "SELECT sum(average_active_sessions) FROM rowsource_top_activity('10 min') WHERE wait_event = 'PgSleep'",
    );
    assert!(average > 0.0 && average < 0.9, "{average}");

    whole_reports(&mut observer);
    hidden_reports(&server);
    server.assert_no_crash();
}

/// A day later one moment in a thousand is left, and the last sample of each session that others waited for.
#[test]
fn thinned_samples_keep_who_blocked_whom() {
    let server = Server::preloaded(
        "whole-thinned",
        &["autovacuum = off", "pg_rowsource.snapshot_interval = 0"],
    );
    let mut observer = server.session();
    worker(&mut observer);
    run_each(&mut observer, "CREATE TABLE t AS SELECT 1 AS id");
    work(&server, &mut observer, "holder");
    run_each(
        &mut observer,
        "SELECT rowsource_snapshot(); UPDATE rowsource_snapshots SET taken_at = taken_at - interval '30 hours';
         SELECT rowsource_snapshot()",
    );
    let left = "SELECT count(*) FILTER (WHERE moments = 0), count(*) FILTER (WHERE moments BETWEEN 1 AND 999),
                       count(DISTINCT pid) FILTER (WHERE moments = 0) FROM rowsource_snapshot_ash WHERE snap_id = 1";
    let [blockers, thick, sessions] = numbers(&mut observer, left)[..] else {
        panic!("three numbers")
    };
    assert_eq!((blockers, thick), (sessions, 0));
    assert!(sessions > 0);
}

/// Counters are those between the snapshots around the interval, and now is one of them.
#[test]
fn counters_until_now_need_no_snapshot() {
    let server = Server::preloaded(
        "whole-counters",
        &["autovacuum = off", "pg_rowsource.snapshot_interval = 0"],
    );
    let mut client = server.session();
    run_each(&mut client, "SELECT pg_sleep(0.01)");
    let sleeps = |report: &str| -> Vec<String> {
        let line = report.lines().find(|line| line.starts_with("| PgSleep "));
        let line = line.unwrap_or_else(|| panic!("no PgSleep in\n{report}"));
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    // Without any snapshot, they are all that was counted.
    let report = lines(&mut client, "rowsource_wait_report()");
    assert!(
        report.contains("\nno snapshot  ") && report.contains("\nnow  "),
        "{report}"
    );
    assert!(
        report.contains("Take one with SELECT rowsource_snapshot()"),
        "{report}"
    );
    assert_eq!(sleeps(&report)[3], "1", "{report}");

    run_each(
        &mut client,
        "SELECT rowsource_snapshot(); SELECT pg_sleep(0.01); SELECT pg_sleep(0.01)",
    );
    let since: String = value(&mut client, "SELECT clock_timestamp()::text");
    let report = lines(&mut client, &format!("rowsource_wait_report('{since}')"));
    assert!(
        report.contains("\nsnapshot 1  ") && report.contains("\nnow  "),
        "{report}"
    );
    assert!(!report.contains("nothing older"), "{report}");
    assert_eq!(sleeps(&report)[3], "2", "{report}");
    let same = lines(
        &mut client,
        &format!("rowsource_wait_report('{since}'::timestamptz)"),
    );
    assert_eq!(sleeps(&same)[3], "2", "{same}");
    // An interval of the past ends with the snapshot after it.
    run_each(&mut client, "SELECT rowsource_snapshot(); SELECT pg_sleep(0.01)");
    let report = lines(
        &mut client,
        &format!("rowsource_wait_report('{since}', '{since}')"),
    );
    assert!(
        report.contains("\nsnapshot 1  ") && report.contains("\nsnapshot 2  "),
        "{report}"
    );
    assert_eq!(sleeps(&report)[3], "2", "{report}");
    let all = lines(&mut client, "rowsource_wait_report('1 min')");
    assert_eq!(sleeps(&all)[3], "3", "{all}");
    assert!(all.contains("nothing older is known"), "{all}");
    let until_now: i64 = value(
        &mut client,
        "SELECT waits FROM rowsource_interval_waits WHERE wait_event = 'PgSleep' AND snap_id = 0",
    );
    assert_eq!(until_now, 1);
    let before = lines(&mut client, "rowsource_tempfile_report('2 days', '1 day')");
    assert!(
        before.contains("no snapshot is as old as this interval"),
        "{before}"
    );
}

#[test]
fn a_standby_shows_its_own_history() {
    let primary = Server::preloaded(
        "whole-primary",
        &[
            "wal_level = replica",
            "max_wal_senders = 4",
            "pg_rowsource.snapshot_interval = 0",
        ],
    );
    let mut client = primary.session();
    run_each(&mut client, "SELECT pg_sleep(0.5); SELECT rowsource_snapshot()");
    let standby = Server::standby_of(&primary, "whole-standby");
    let mut there = standby.connect();
    worker(&mut there);
    let sleeper = Busy::run(standby.connect(), "SELECT pg_sleep(300)");
    until(
        &mut there,
        "SELECT coalesce(sum(samples), 0) > 10 FROM rowsource_top_activity('1 h') WHERE wait_event = 'PgSleep'",
    );
    let report = lines(&mut there, "rowsource_ash_report('1 h')");
    assert!(
        report.contains("; a standby takes no snapshots") && !report.contains("from snapshots"),
        "{report}"
    );
    let report = lines(&mut there, "rowsource_wait_report()");
    assert!(
        report.contains("\nno snapshot  ") && report.contains("\nnow  "),
        "{report}"
    );
    assert!(report.contains("\nA standby takes no snapshots."), "{report}");
    sleeper.cancel(&mut there);

    // The history of another server that the primary has imported is there, too.
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let exported = texts(&mut client, "SELECT rowsource_export('1 h')");
    for line in exported.into_iter().flatten().flatten() {
        client
            .execute("SELECT rowsource_import($1)", &[&line])
            .expect("a line");
    }
    let imported: i64 = value(&mut client, "SELECT count(*) FROM rowsource_imported");
    until(
        &mut there,
        &format!("SELECT count(*) = {imported} FROM rowsource_imported"),
    );
    let origin = "SET pg_rowsource.history_origin = ";
    let id: String = value(
        &mut client,
        "SELECT system_identifier::text FROM pg_control_system()",
    );
    run_each(&mut there, &format!("{origin}'{id}'"));
    let report = lines(&mut there, "rowsource_wait_report()");
    assert!(
        report.contains(&format!("of the server {id}, imported")) && report.contains("\nsnapshot 2  "),
        "{report}"
    );
    let counted: i64 = value(
        &mut there,
        "SELECT count(*) FROM rowsource_interval_waits WHERE snap_id = 2",
    );
    assert!(counted > 0);
    let (code, message) = must_fail(&mut there, "SELECT rowsource_import('{}')");
    assert_eq!(code.code(), "25006", "{message}");
}
