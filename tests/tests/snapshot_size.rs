//! The disk that snapshots take has a limit: the oldest go first.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::history::{ON_DISK, vacuum_snapshots};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::until;

const COUNTED: &str = "SELECT sum(bytes)::bigint FROM rowsource_snapshots";
const REMOVED: &str = "SELECT snapshots_removed FROM rowsource_info()";
const LOGGED: &str = "pg_rowsource deletes the oldest snapshots";

fn snapshot(client: &mut Client) -> i64 {
    value(client, "SELECT rowsource_snapshot()")
}

/// Runs 150 statements, each with a plan of its own.
fn run_statements(client: &mut Client) {
    let statements = "DO $$ BEGIN FOR n IN 1 .. 150 LOOP
             EXECUTE format('SELECT count(*) FROM t%s a JOIN t b USING (id) WHERE a.id < 3', n);
         END LOOP; END $$";
    client.batch_execute(statements).expect("the statements run");
}

fn set_limit(client: &mut Client, limit: &str) {
    run_each(
        client,
        &format!("ALTER SYSTEM SET pg_rowsource.snapshot_max_size = '{limit}'"),
    );
    run_each(client, "SELECT pg_reload_conf()");
    until(
        client,
        &format!("SELECT current_setting('pg_rowsource.snapshot_max_size') = '{limit}'"),
    );
}

fn server(name: &str, settings: &[&str]) -> (Server, Client) {
    let mut all = vec!["pg_rowsource.track = all", "autovacuum = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    let mut client = server.session();
    let tables = "SET pg_rowsource.statistics_level = typical;
        CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i;
        DO $$ BEGIN FOR n IN 1 .. 150 LOOP EXECUTE format('CREATE TABLE t%s AS TABLE t', n); END LOOP; END $$";
    client.batch_execute(tables).expect("the tables");
    (server, client)
}

#[test]
fn the_oldest_snapshots_make_room() {
    let (server, mut client) = server("snapshot-size", &["pg_rowsource.snapshot_max_size = 4MB"]);
    let mut highest = 0;
    let mut taken = 0;
    for round in 1..=40 {
        run_statements(&mut client);
        assert_eq!(snapshot(&mut client), round);
        taken = round;
        if round % 2 == 0 {
            vacuum_snapshots(&mut client);
        }
        let on_disk = value::<i64>(&mut client, ON_DISK);
        highest = highest.max(on_disk);
        assert!(on_disk <= 4 << 20, "{on_disk} bytes after {round} snapshots");
    }
    let kept: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshots");
    println!("{kept} of {taken} snapshots are kept; at most {highest} bytes");
    assert!((3..taken / 2).contains(&kept), "{kept}");
    // What is allowed is used.
    assert!(highest > 5 << 19, "{highest}");
    assert_eq!(
        value::<i64>(&mut client, "SELECT min(snap_id) FROM rowsource_snapshots"),
        taken - kept + 1,
        "the oldest went first"
    );
    assert_eq!(value::<i64>(&mut client, REMOVED), taken - kept);
    assert_eq!(server.log().matches(LOGGED).count(), 1);

    // With a limit that one snapshot exceeds, newer ones stay. Each call deletes four.
    set_limit(&mut client, "1MB");
    let large: i64 = value(&mut client, "SELECT max(snap_id) FROM rowsource_snapshots");
    run_each(
        &mut client,
        "INSERT INTO rowsource_snapshot_waits SELECT max(snap_id), 'test', 'test', 'event ' || i, 1, 1, now()
             FROM rowsource_snapshots, generate_series(1, 10000) i GROUP BY i;
         UPDATE rowsource_snapshots SET bytes = NULL WHERE snap_id = (SELECT max(snap_id) FROM rowsource_snapshots)",
    );
    for _ in 0..kept / 4 + 1 {
        snapshot(&mut client);
    }
    assert_eq!(
        value::<i64>(&mut client, "SELECT min(snap_id) FROM rowsource_snapshots"),
        large + 1
    );
    let left: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshots");

    set_limit(&mut client, "0");
    for _ in 0..12 {
        run_statements(&mut client);
        snapshot(&mut client);
    }
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM rowsource_snapshots"),
        left + 12
    );
    assert_eq!(server.log().matches(LOGGED).count(), 1);
}

/// What is counted for a snapshot is what it takes on disk, with indexes: for plans, and for samples.
#[test]
fn the_size_of_a_snapshot_is_that_on_disk() {
    let (_server, mut client) = server("snapshot-bytes", &["pg_rowsource.history_frequency = 1000"]);
    let empty = value::<i64>(&mut client, ON_DISK);
    let count = |client: &mut Client, what: &str| {
        let snapshots = value::<i64>(client, "SELECT count(*) FROM rowsource_snapshots");
        let (counted, on_disk) = (
            value::<i64>(client, COUNTED),
            value::<i64>(client, ON_DISK) - empty,
        );
        println!("{what}: {snapshots} snapshots, {counted} bytes counted, {on_disk} on disk");
        let share = counted as f64 / on_disk as f64;
        assert!((0.85..1.15).contains(&share), "{what}: {counted} of {on_disk}");
    };
    let written = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let mut wal = [0; 2];
    for round in 0..25 {
        // The last ones find nothing new.
        if round < 20 {
            run_statements(&mut client);
        }
        // As if one came between two snapshots: then the pages that a snapshot changes are in the WAL as a
        // whole.
        run_each(&mut client, "CHECKPOINT");
        let before: i64 = value(&mut client, written);
        snapshot(&mut client);
        wal[round / 20] += value::<i64>(&mut client, written) - before;
    }
    println!(
        "{} bytes of WAL a snapshot, {} without plans",
        wal[0] / 20,
        wal[1] / 5
    );
    count(&mut client, "plans");

    // Real samples of a session that runs a statement, many times over.
    run_each(&mut client, "TRUNCATE rowsource_snapshots CASCADE");
    run_each(
        &mut client,
        "SELECT count(*) FROM t WHERE pg_sleep(0.2) IS NOT NULL",
    );
    let last = snapshot(&mut client);
    let samples: i64 = value(
        &mut client,
        &format!(
            "SELECT count(*) FROM rowsource_snapshot_ash WHERE snap_id = {last} AND node_id IS NOT NULL"
        ),
    );
    assert!(samples > 0);
    let before: i64 = value(&mut client, written);
    run_each(
        &mut client,
        &format!(
            "INSERT INTO rowsource_snapshot_ash
             SELECT snap_id, sample_time + (i || ' s')::interval, pid, leader_pid, backend_type, userid, datid, application_name, queryid,
                    planid, toplevel, node_id, operation, object_name, wait_event_type, wait_event, blocking_pid
               FROM generate_series(1, {}) i, rowsource_snapshot_ash WHERE snap_id = {last} AND node_id IS NOT NULL
              ORDER BY sample_time, i LIMIT 100000;
             UPDATE rowsource_snapshots SET bytes = NULL",
            100_000 / samples + 1
        ),
    );
    let wal = value::<i64>(&mut client, written) - before;
    snapshot(&mut client);
    let rows: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_ash");
    let bytes: i64 = value(
        &mut client,
        "SELECT pg_total_relation_size('rowsource_snapshot_ash')",
    );
    println!("{rows} samples take {bytes} bytes, and {wal} bytes of WAL");
    count(&mut client, "samples");
    // A day later few of them are left.
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '25 hours'; CHECKPOINT",
    );
    let before: i64 = value(&mut client, written);
    snapshot(&mut client);
    let wal = value::<i64>(&mut client, written) - before;
    let left: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_ash");
    println!("{left} of {rows} samples are left after a day, for {wal} bytes of WAL");
    assert!((1..rows / 10).contains(&left), "{left} of {rows}");
}
