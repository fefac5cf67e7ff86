//! The times of a statement that runs: they only grow, also if the reader is interrupted while it looks, and
//! what is not known is NULL.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::burn;
use rowsource_tests::busy::Busy;
use rowsource_tests::compiled::object;
use rowsource_tests::session::{cancel_backend, run_each, texts, value};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A step back of fewer milliseconds is none: the cost of reading the clock is subtracted when a call ends.
const STEP: f64 = 0.5;
/// Inputs that never run. It takes long to copy them, so the reader is often interrupted meanwhile.
const IDLE: usize = 150;
/// Limits above each other.
const CALLED: usize = 100;

#[test]
fn times_grow_for_an_interrupted_reader_long() {
    let idle = " UNION ALL SELECT i FROM generate_series(1, 1) i".repeat(IDLE);
    // The aggregate and its input run in turn, a millisecond each.
    let statement = format!(
        "SELECT count(*) FILTER (WHERE burn(1000 + i * 0)) FROM (SELECT i FROM generate_series(1, 1000000) i WHERE burn(1000){idle}) a"
    );
    assert_times_grow("live-steps", &statement);
}

/// All nodes are called for each row, so the reader is often interrupted while it copies one whose call ends
/// meanwhile.
#[test]
fn times_grow_for_a_reader_that_is_interrupted_within_a_node_long() {
    let input = "SELECT i FROM generate_series(1, 1000000) i WHERE burn(2000)".to_owned();
    let input = (0..CALLED).fold(input, |input, _| format!("SELECT i FROM ({input} OFFSET 1) a"));
    let statement = format!("SELECT count(*) FILTER (WHERE burn(2000 + i * 0)) FROM ({input}) a");
    assert_times_grow("live-torn", &statement);
}

/// Fails if a reader that is often interrupted sees a time of the statement that is shorter than before. The
/// session itself can lose its processor between the last reading of a call and the end of that call. Then
/// others see a call that lasts, and later that it did not. So only polls count between which the session
/// kept its processor. They run alone: a busy host takes processors away without saying so.
fn assert_times_grow(name: &str, statement: &str) {
    let server = Server::preloaded(
        name,
        &[
            "jit = off",
            "max_parallel_workers_per_gather = 0",
            "pg_rowsource.sampfreq = 1",
        ],
    );
    let mut runner = server.connect();
    run_each(&mut runner, "CREATE EXTENSION pg_rowsource");
    burn::create(&mut runner);
    run_each(&mut runner, "SET statement_timeout = '2min'");
    let of_runner = pid(&mut runner);
    let mut reader = server.connect();
    let of_reader = Pid::from_raw(pid(&mut reader));
    run_each(
        &mut reader,
        "CREATE TEMP TABLE polls (poll int, node_id int, total_time float8);
         CREATE TEMP TABLE looks (poll int, preempted_before bigint, preempted_after bigint)",
    );
    let preempted = format!(
        "(regexp_match(pg_read_file('/proc/{of_runner}/status'), 'nonvoluntary_ctxt_switches:\\s+(\\d+)'))[1]::bigint"
    );
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| runner.batch_execute(statement));
        until(
            &mut reader,
            &format!("SELECT EXISTS (SELECT FROM pg_stat_rowsource_live WHERE pid = {of_runner})"),
        );
        let interrupts = scope.spawn(|| {
            let mut interrupts = 0;
            while !ends.load(Relaxed) {
                kill(of_reader, Signal::SIGSTOP).expect("the reader runs");
                std::thread::sleep(Duration::from_millis(4));
                kill(of_reader, Signal::SIGCONT).expect("the reader runs");
                std::thread::sleep(Duration::from_micros(300));
                interrupts += 1;
            }
            interrupts
        });
        let looked = reader.batch_execute(&format!(
            "DO $$ DECLARE before bigint; BEGIN FOR poll IN 1..10000 LOOP
                 before := {preempted};
                 INSERT INTO polls SELECT poll, node_id, total_time FROM pg_stat_rowsource_live
                 WHERE pid = {of_runner} AND total_time > 0;
                 INSERT INTO looks VALUES (poll, before, {preempted});
             END LOOP; END $$"
        ));
        ends.store(true, Relaxed);
        println!("{} interrupts", interrupts.join().expect("the interrupts"));
        cancel_backend(&mut reader, of_runner);
        looked.expect("the reader looks");
        running
            .join()
            .expect("the statement")
            .expect_err("it was cancelled");
    });
    assert_no_step(&mut reader);
}

/// Fails if one of the reader's polls has a shorter time than the one before.
fn assert_no_step(reader: &mut Client) {
    let [polls, nodes]: [i64; 2] = ["DISTINCT poll", "DISTINCT node_id"]
        .map(|what| value(reader, &format!("SELECT count({what}) FROM polls")));
    assert!(polls == 10000 && nodes >= 3, "{polls} polls of {nodes} nodes");
    let back = texts(
        reader,
        &format!(
            "SELECT poll::text, node_id::text, before::text, total_time::text, next::text FROM (
                 SELECT *, lag(total_time) OVER node AS before, lead(total_time) OVER node AS next,
                        lag(preempted_before) OVER node = preempted_after AS ran_on
                 FROM polls JOIN looks USING (poll) WINDOW node AS (PARTITION BY node_id ORDER BY poll)) p
             WHERE before - total_time > {STEP} AND ran_on ORDER BY p.poll, node_id"
        ),
    );
    let ran_on: i64 = value(
        reader,
        "SELECT count(*) FROM (SELECT lag(preempted_before) OVER (ORDER BY poll) = preempted_after AS ran_on FROM looks) l
         WHERE ran_on",
    );
    println!("the session ran on between {ran_on} polls");
    assert!(ran_on > 100, "the session ran on between {ran_on} polls");
    assert!(
        back.is_empty(),
        "times went back (poll, node, before, then, next): {back:?}"
    );
}

/// If the system does not map the page of a session's state onto shared memory, nobody sees which call is in
/// progress.
#[test]
fn what_is_not_known_of_a_call_in_progress_has_no_time() {
    let object = object("no_mremap/no_mremap.c");
    let server = Server::overridden(
        "live-unshared",
        &["jit = off", "max_parallel_workers_per_gather = 0"],
        &object,
    );
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 2000) i; ANALYZE t",
    );
    let sql = "SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id = 1000 THEN 60 ELSE 0 END) IS NOT NULL";
    let busy = Busy::run(server.connect(), sql);
    until_waiting(&mut observer, busy.pid, "PgSleep");
    let live = texts(
        &mut observer,
        &format!(
            "SELECT operation, rows::text, (total_time > 0)::text, (self_time >= 0)::text, running::text, blocks_until
               FROM pg_stat_rowsource_live WHERE pid = {} ORDER BY node_id",
            busy.pid
        ),
    );
    let some = |text: &str| Some(text.to_owned());
    let unknown = |operation: &str, rows: &str| {
        vec![
            some(operation),
            some(rows),
            None,
            None,
            some("false"),
            some("last call"),
        ]
    };
    assert_eq!(live, [unknown("Aggregate", "0"), unknown("Seq Scan", "999")]);
    let why: String = value(
        &mut observer,
        "SELECT without_beats_because FROM rowsource_info()",
    );
    assert!(
        why.starts_with("the system refuses to share a page of the session (") && why.contains("(os error "),
        "{why}"
    );
    busy.cancel(&mut observer);
}
