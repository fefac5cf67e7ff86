//! Kills sessions, leaders and workers while they record and others read: after the recovery everything
//! works.

use postgres::Client;
use rowsource_tests::attack::{send, wait_until};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::basic_server;
use rowsource_tests::waiting::Ended;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const SESSIONS: usize = 8;
const READERS: usize = 2;

/// The process that each round kills: a name, and the SQL that gives its pid.
const VICTIMS: [(&str, &str); 6] = [
    ("a session with short statements", "query LIKE 'DO %'"),
    (
        "a leader",
        "query LIKE 'SELECT count(*) FROM large%' AND leader_pid IS NULL",
    ),
    ("a worker", "backend_type = 'parallel worker'"),
    ("a reader", "query LIKE 'SELECT count(*) FROM pg_stat_rowsource%'"),
    ("a worker", "backend_type = 'parallel worker'"),
    ("a session with short statements", "query LIKE 'DO %'"),
];

const VIEWS: [&str; 5] = [
    "SELECT count(*) FROM pg_stat_rowsource",
    "SELECT count(*) FROM pg_stat_rowsource_plans",
    "SELECT count(*) FROM pg_stat_rowsource_histogram",
    "SELECT count(*) FROM pg_stat_rowsource_tempfile_io",
    "SELECT plans FROM rowsource_info()",
];

const SHORT: &str = "DO $$BEGIN FOR i IN 1..2000 LOOP PERFORM 1; PERFORM 1, 2; EXECUTE 'SELECT ' || repeat('1,', i % 50) || '2'; END LOOP; END$$";

const PARALLEL: &str = "SELECT count(*) FROM large";

/// Runs statements repeatedly in its own session until told to stop. Replaces a lost session.
fn work(
    connect: &(dyn Fn() -> Option<Client> + Sync),
    statements: &[&str],
    stop: &AtomicBool,
    done: &AtomicUsize,
) {
    let mut client = None;
    while !stop.load(Relaxed) {
        let Some(session) = client.as_mut() else {
            client = connect();
            if client.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            continue;
        };
        for sql in statements {
            match session.batch_execute(sql) {
                Ok(()) => done.fetch_add(1, Relaxed),
                Err(_) => {
                    client = None;
                    break;
                }
            };
        }
    }
}

#[test]
fn the_server_recovers_from_kills_while_recording() {
    let server = basic_server(
        "faults-kill",
        &[
            "pg_rowsource.track = 'all'",
            "restart_after_crash = on",
            "max_parallel_workers_per_gather = 2",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
            "min_parallel_table_scan_size = 0",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE TABLE large AS SELECT i AS id FROM generate_series(1, 30000) i; ANALYZE large; CREATE TABLE t AS SELECT 1 AS id;
         CHECKPOINT",
    );
    let stop = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let connect = |level: &str| {
        let mut client = server.try_connect("postgres").ok()?;
        let level = format!("SET pg_rowsource.statistics_level = '{level}'");
        client.batch_execute(&level).ok().map(|()| client)
    };
    let (writer, reader) = (|| connect("typical"), || connect("basic"));
    std::thread::scope(|scope| {
        let ended = Ended(&stop);
        for session in 0..SESSIONS {
            let statements: &[&str] = if session % 2 == 0 { &[SHORT] } else { &[PARALLEL] };
            scope.spawn(|| work(&writer, statements, &stop, &done));
        }
        for _ in 0..READERS {
            scope.spawn(|| work(&reader, &VIEWS, &stop, &done));
        }
        for (round, (what, condition)) in VICTIMS.into_iter().enumerate() {
            let before = done.load(Relaxed);
            wait_until("sessions work", Duration::from_secs(60), || {
                done.load(Relaxed) > before + 20
            });
            // This mark must not be visible after the crash.
            let mut client = server.connect();
            let mark = format!("SELECT id, {round} AS mark FROM t");
            let seen = server.restarts();
            assert_eq!(
                marks(&mut client),
                0,
                "round {round}: statistics from before the crash"
            );
            run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
            (0..=round).for_each(|_| run_each(&mut client, &mark));
            run_each(&mut client, "SET pg_rowsource.statistics_level = 'basic'");
            assert_eq!(
                marks(&mut client),
                round as i64 + 1,
                "round {round}: statistics since the crash"
            );
            let victim = format!(
                "SELECT coalesce((SELECT pid FROM pg_stat_activity WHERE {condition} AND state = 'active'
                     AND pid <> pg_backend_pid() LIMIT 1), 0)"
            );
            // A worker may end before the signal reaches it: then the next one is tried. The crash ends the
            // session.
            wait_until(what, Duration::from_secs(60), || {
                let pid = client
                    .query_one(&victim, &[])
                    .map_or(0, |row| row.get::<_, i32>(0));
                if pid != 0 {
                    server.kill_process(pid as u32);
                }
                server.restarts() > seen
            });
            // As soon as the server accepts connections, each view works.
            let mut client = server.connect();
            send(&mut client, "SET statement_timeout = '60s'");
            VIEWS.iter().for_each(|view| send(&mut client, view));
        }
        drop(ended);
    });
    println!(
        "{} statements beside {} crashes",
        done.load(Relaxed),
        VICTIMS.len()
    );
    assert!(!server.log().contains("panicked"), "{}", server.log_extract());
    server.assert_no_crash();
}

/// Returns the executions of statements with the mark.
fn marks(client: &mut Client) -> i64 {
    value(
        client,
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT id, % AS mark FROM t'",
    )
}
