//! Waits are those that strace sees. It also makes the disk slow, so that it is known how long a wait must
//! last.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, run_each, value};
use rowsource_tests::strace::SessionTrace;
use rowsource_tests::waiting::pid;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FLUSH: Duration = Duration::from_millis(20);
const READ: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(10);

/// A number of waits, and their milliseconds.
type Sum = (i64, f64);

fn server(name: &str) -> Server {
    let mut server = Server::preloaded(
        name,
        &[
            "fsync = on",
            "wal_sync_method = fdatasync",
            "shared_buffers = '1MB'",
            "wal_buffers = '1MB'",
            // Nobody else flushes WAL or writes pages meanwhile.
            "wal_writer_delay = '10s'",
            "autovacuum = off",
            "bgwriter_lru_maxpages = 0",
            "jit = off",
            "max_parallel_workers_per_gather = 0",
            "pg_rowsource.track = 'all'",
            "pg_rowsource.statistics_level = 'typical'",
        ],
    );
    let mut client = server.connect();
    if major(&mut client) >= 18 {
        // Otherwise other processes read for the session.
        drop(client);
        server.configure("io_method = sync");
        server.stop();
        server.launch();
        client = server.connect();
    }
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t (id int, v int);
         CREATE TABLE big AS SELECT i AS id, 0 AS v, repeat('x', 500) AS pad FROM generate_series(1, 10000) i;
         CREATE INDEX ON big (id); VACUUM ANALYZE big; CHECKPOINT;
         CREATE PROCEDURE p() LANGUAGE plpgsql AS
         'BEGIN FOR i IN 1..3 LOOP INSERT INTO t VALUES (1, i); COMMIT; END LOOP; END'",
    );
    server
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970").as_secs_f64()
}

/// Returns what the session has waited for so far, for each of these events.
fn of_session<const EVENTS: usize>(observer: &mut Client, pid: i32, events: [&str; EVENTS]) -> [Sum; EVENTS] {
    events.map(|event| {
        let row = observer.query_opt(
            "SELECT waits, wait_time FROM pg_stat_rowsource_session_waits WHERE pid = $1 AND lower(wait_event) = lower($2)",
            &[&pid, &event],
        );
        let row = row.expect("pg_stat_rowsource_session_waits");
        row.map_or((0, 0.0), |row| (row.get(0), row.get(1)))
    })
}

/// Returns what plans of statements like this one waited for WAL to be flushed, by the operation of the node
/// ("" outside).
fn flushes(observer: &mut Client, like: &str) -> Vec<(String, i64, f64)> {
    let rows = observer.query(
        "SELECT coalesce(n.operation, ''), w.waits, w.wait_time FROM pg_stat_rowsource_waits w
         JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
         LEFT JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel, node_id)
         WHERE p.query LIKE $1 AND lower(w.wait_event) = 'walsync' ORDER BY w.node_id",
        &[&like],
    );
    let rows = rows.expect("pg_stat_rowsource_waits");
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

/// Fails unless these waits lasted as long as the disk was made slow, or longer, but not longer than all
/// statements.
fn assert_slow(what: &str, waits: i64, total: f64, each: Duration, elapsed: f64) {
    let known = waits as f64 * each.as_secs_f64() * 1e3;
    println!("{what}: {waits} waits, {total:.1} ms of {known:.1} ms, {elapsed:.1} ms in all");
    assert!(
        total >= 0.999 * known && total < elapsed,
        "{what}: {waits} waits, {total} ms of {known} ms, {elapsed} ms in all"
    );
}

/// Nobody else flushes on purpose. But now and then another process does, before a statement can; and a
/// session may flush where it runs no statement of this test. So numbers of flushes are at most those that
/// the statements make by themselves.
#[test]
fn a_slow_flush_is_where_it_was() {
    let server = server("waits-flush");
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    run_each(&mut client, "SELECT 1 FROM big WHERE id = 1");
    // From here on no page of the catalog has changes that a node would have to flush before it can use its
    // buffer. From 19 on a reader prunes pages.
    run_each(&mut observer, "VACUUM; CHECKPOINT");
    let trace = SessionTrace::start(id as u32, &[("fdatasync", FLUSH)]);
    let [(before, _)] = of_session(&mut observer, id, ["WALSync"]);
    let began = now();
    run_each(
        &mut client,
        "INSERT INTO t VALUES (0, 1); INSERT INTO t VALUES (0, 2); INSERT INTO t VALUES (0, 3); INSERT INTO t VALUES (0, 4);
         INSERT INTO t VALUES (0, 5); CALL p(); UPDATE big SET v = 1; SELECT count(*) FROM t",
    );
    let ended = now();
    let elapsed = (ended - began) * 1e3;
    let [(after, _)] = of_session(&mut observer, id, ["WALSync"]);
    let calls = trace.stop();
    let traced = calls
        .iter()
        .filter(|call| call.name == "fdatasync" && (began..ended).contains(&call.ended))
        .count();
    assert_eq!(after - before, traced as i64, "the session's waits");
    // A commit is outside of the nodes.
    let inserts = flushes(&mut observer, "INSERT INTO t VALUES (0%");
    let [(node, committed @ 1..=5, total)] = inserts.as_slice() else {
        panic!("{inserts:?}");
    };
    assert_eq!(node, "");
    assert_slow("commits", *committed, *total, FLUSH, elapsed);
    // The shortest of them, because a busy machine may delay the others.
    let shortest: f64 = value(
        &mut observer,
        "SELECT min_time FROM pg_stat_rowsource_plans WHERE query LIKE 'INSERT INTO t VALUES (0%'",
    );
    assert!(
        shortest < FLUSH.as_secs_f64() * 1e3,
        "the statements end before their commit, but the shortest took {shortest} ms"
    );
    // A procedure commits while it runs. Its statements end before.
    let called = flushes(&mut observer, "CALL p()");
    let [(node, of_call @ 1..=3, total)] = called.as_slice() else {
        panic!("{called:?}");
    };
    assert_eq!(node, "CALL");
    assert_slow("CALL", *of_call, *total, FLUSH, elapsed);
    assert_eq!(flushes(&mut observer, "INSERT INTO t VALUES (1, i)"), []);
    // A page is written after its WAL. Here the nodes need the buffers of pages that were changed before.
    let updated = flushes(&mut observer, "UPDATE big%");
    println!("{updated:?}, {traced} in the trace");
    let (outside, inside): (Vec<_>, Vec<_>) = updated.iter().partition(|(node, ..)| node.is_empty());
    let sum = |rows: &[&(String, i64, f64)]| {
        rows.iter()
            .fold((0, 0.0), |(waits, ms), row| (waits + row.1, ms + row.2))
    };
    let ((of_commit, total), (in_nodes, total_in_nodes)) = (sum(&outside), sum(&inside));
    assert!(of_commit <= 1, "{updated:?}");
    assert_slow("commit of the update", of_commit, total, FLUSH, elapsed);
    assert!(
        !inside.is_empty()
            && inside
                .iter()
                .all(|(node, ..)| ["Update", "Seq Scan"].contains(&node.as_str())),
        "{updated:?}"
    );
    assert_slow("nodes of the update", in_nodes, total_in_nodes, FLUSH, elapsed);
    let known = committed + of_call + of_commit + in_nodes;
    assert!(known <= traced as i64, "{known} of {traced}");
}

/// The library reads its clock before and after the call that the tracer sees. So no wait is shorter than its
/// calls, and all waits of the session are not longer than what they were made in. Most of that time is
/// waits, because the calls are slow.
#[test]
fn waits_are_those_of_a_trace() {
    const EVENTS: [&str; 3] = ["DataFileRead", "WALSync", "ClientRead"];
    let server = server("waits-trace-time");
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    let work = |client: &mut Client| {
        for i in 0..15 {
            std::thread::sleep(THINK);
            run_each(
                client,
                &format!(
                    "SELECT count(pad) FROM big WHERE id IN ({}, {})",
                    1 + i * 600,
                    300 + i * 600
                ),
            );
            std::thread::sleep(THINK);
            run_each(client, "INSERT INTO t VALUES (1, 2)");
        }
    };
    let all_waits = |observer: &mut Client| -> f64 {
        let sum =
            format!("SELECT sum(wait_time)::float8 FROM pg_stat_rowsource_session_waits WHERE pid = {id}");
        value(observer, &sum)
    };
    work(&mut client);
    // The tracer stops the process twice a call, outside of the time that it shows. So calls must last.
    let trace = SessionTrace::start(
        id as u32,
        &[("pread64", READ), ("preadv", READ), ("fdatasync", READ)],
    );
    // The wait that strace interrupted when it attached ends with this statement.
    let began = Instant::now();
    run_each(&mut client, "SELECT 1");
    let (before, first, all_before) = (
        of_session(&mut observer, id, EVENTS),
        now(),
        all_waits(&mut observer),
    );
    work(&mut client);
    // The session waits for its client again.
    std::thread::sleep(THINK);
    let (after, last, all_after) = (
        of_session(&mut observer, id, EVENTS),
        now(),
        all_waits(&mut observer),
    );
    let elapsed = began.elapsed().as_secs_f64() * 1e3;
    let calls = trace.stop();
    let of = |names: &[&str]| {
        calls
            .iter()
            .filter(|call| (first..last).contains(&call.ended) && names.contains(&call.name.as_str()))
            .fold((0, 0.0), |sum: Sum, call| (sum.0 + 1, sum.1 + call.seconds * 1e3))
    };
    let traced = [
        of(&["pread64", "preadv"]),
        of(&["fdatasync"]),
        of(&["epoll_wait"]),
    ];
    // A call that an old signal of the latch ends belongs to the wait after it. The process then reads the
    // latch's descriptor.
    let (woken, _) = of(&["read"]);
    for (at, event) in EVENTS.iter().enumerate() {
        let counted = (after[at].0 - before[at].0, after[at].1 - before[at].1);
        println!("{event}: counted {counted:.2?}, traced {:.2?}", traced[at]);
        assert!(
            counted.0 >= 15 && (0..=woken).contains(&(traced[at].0 - counted.0)),
            "{event}: counted {counted:?}, traced {:?}",
            traced[at],
        );
        assert!(
            counted.1 >= 0.99 * traced[at].1,
            "{event}: {counted:?}, {traced:?}"
        );
    }
    let waits = all_after - all_before;
    println!("{waits:.1} ms of waits in {elapsed:.1} ms");
    assert!(waits <= elapsed, "{waits} ms of waits in {elapsed} ms");
}
