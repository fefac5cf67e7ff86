//! What others see of a session when the memory for running statements is taken: each session can show a
//! small statement, and blocks that no statement uses pass from one session to another.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::process::dynamic_shared_memory;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a session may wait for blocks of sessions that have become idle.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most sessions of a server.
const CONNECTIONS: usize = 60;
/// The sizes of the statements that take all memory: how many scans they have.
const SIZES: [usize; 8] = [140, 70, 30, 16, 8, 4, 2, 1];

fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &[
            &format!("max_connections = {CONNECTIONS}"),
            "jit = off",
            "autovacuum = off",
            "max_parallel_workers_per_gather = 0",
            "pg_rowsource.track = all",
            // A quarter of it is for statements that run.
            "pg_rowsource.max_memory = '8MB'",
        ],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 3) i; VACUUM (FREEZE, ANALYZE) t",
    );
    server
}

/// Returns a query of so many scans, below an Append if there are several.
fn scans(count: usize) -> String {
    vec!["SELECT id FROM t"; count].join(" UNION ALL ")
}

/// Returns a statement of so many scans that sleeps at its end: it has two nodes more.
fn sleeping(count: usize) -> String {
    format!("{} UNION ALL SELECT 1 FROM pg_sleep(1000)", scans(count))
}

/// What others see of a statement.
#[derive(Debug, PartialEq)]
enum Seen {
    Private,
    /// It has so many nodes, of which one runs.
    Nodes(i64),
}

/// Returns what the view says of the session's running statement.
fn live(observer: &mut Client, pid: i32) -> Seen {
    let query = "SELECT count(node_id), count(*) FILTER (WHERE running), count(operation),
                        count(*) FILTER (WHERE blocks_until = 'private memory')
                 FROM pg_stat_rowsource_live WHERE pid = $1";
    let row = observer
        .query_one(query, &[&pid])
        .expect("pg_stat_rowsource_live");
    let [nodes, running, described, private]: [i64; 4] = std::array::from_fn(|i| row.get(i));
    match private {
        0 => assert_eq!((running, described), (1, nodes)),
        _ => assert_eq!((nodes, private), (0, 1)),
    }
    if private > 0 {
        Seen::Private
    } else {
        Seen::Nodes(nodes)
    }
}

/// Runs a statement of so many scans in a session until it sleeps. Returns what others see, and the session.
fn seen(observer: &mut Client, client: Client, count: usize) -> (Seen, Client) {
    let busy = Busy::run(client, &sleeping(count));
    until_waiting(observer, busy.pid, "PgSleep");
    let seen = live(observer, busy.pid);
    if seen != Seen::Private {
        let progress = format!(
            "SELECT count(*) = 1 FROM rowsource_progress WHERE pid = {} AND operation IS NOT NULL AND percent_done IS NOT NULL",
            busy.pid
        );
        assert!(value::<bool>(observer, &progress), "{progress}");
        until(
            observer,
            &format!(
                "SELECT count(node_id) > 0 FROM rowsource_ash WHERE pid = {}",
                busy.pid
            ),
        );
    }
    (seen, busy.cancel(observer))
}

/// Runs a statement of so many scans in new sessions until others see it. Those whose blocks it needs must be
/// idle for a second before.
fn until_seen(server: &Server, observer: &mut Client, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (seen, _) = seen(observer, server.connect(), count);
        match seen {
            Seen::Nodes(nodes) => return assert_eq!(nodes, count as i64 + 2),
            Seen::Private => assert!(Instant::now() < deadline, "{count} scans are not seen"),
        }
    }
}

/// The cursors of a session that takes memory.
const CURSORS: usize = 24;

/// Opens cursors of all sizes until there is memory for none of a new session, except for small ones. Returns
/// the sessions.
fn take_all(server: &Server, observer: &mut Client) -> Vec<Client> {
    let mut sessions = Vec::new();
    for count in SIZES {
        loop {
            assert!(
                sessions.len() < CONNECTIONS / 2,
                "{count} scans always find memory"
            );
            let mut client = server.connect();
            let pid = pid(&mut client);
            run_each(&mut client, "BEGIN");
            for cursor in 0..CURSORS {
                let query = scans(count);
                run_each(
                    &mut client,
                    &format!("DECLARE c{cursor} CURSOR FOR {query}; FETCH 1 FROM c{cursor}"),
                );
            }
            sessions.push(client);
            let shown =
                format!("SELECT count(*) FROM pg_stat_rowsource_live WHERE pid = {pid} AND node_id = 0");
            // Besides its own, it may have one that another session has used for a small statement.
            if value::<i64>(observer, &shown) <= 2 {
                break;
            }
        }
    }
    sessions
}

/// Returns the number of statements that are seen as cursors that wait to be read.
fn cursors(observer: &mut Client) -> i64 {
    value(
        observer,
        "SELECT count(*) FROM pg_stat_rowsource_live WHERE state = 'idle in cursor' AND node_id = 0",
    )
}

fn commit(sessions: &mut [Client]) {
    sessions.iter_mut().for_each(|client| run_each(client, "COMMIT"));
}

#[test]
fn each_session_is_seen_whatever_others_hold() {
    let server = server("live-room-taken");
    let mut observer = server.connect();
    let mut others = take_all(&server, &mut observer);
    let held = cursors(&mut observer);
    assert!(held > 50, "{held}");
    // Open cursors keep their memory. A new session still shows a small statement, and not only its first
    // one.
    let mut client = server.connect();
    for _ in 0..3 {
        let (large, same) = seen(&mut observer, client, 100);
        assert_eq!(large, Seen::Private);
        let (small, same) = seen(&mut observer, same, 1);
        assert_eq!(small, Seen::Nodes(3));
        client = same;
        run_each(&mut client, "SELECT count(*) FROM t; SELECT max(id) FROM t");
    }
    assert_eq!(cursors(&mut observer), held);
    // So do all sessions that the server can have, at the same time.
    let free: i64 = value(
        &mut observer,
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - count(*)
         FROM pg_stat_activity WHERE backend_type = 'client backend'",
    );
    let all: Vec<Busy> = (0..free)
        .map(|_| Busy::run(server.connect(), &sleeping(1)))
        .collect();
    for busy in &all {
        until_waiting(&mut observer, busy.pid, "PgSleep");
        assert_eq!(live(&mut observer, busy.pid), Seen::Nodes(3));
    }
    all.into_iter().for_each(|busy| drop(busy.cancel(&mut observer)));
    // What is read of an open cursor is as it was.
    for other in &mut others {
        for cursor in 0..CURSORS {
            assert_eq!(value::<i32>(other, &format!("FETCH 1 FROM c{cursor}")), 2);
        }
    }
    assert_eq!(cursors(&mut observer), held);
}

#[test]
fn idle_sessions_hold_no_memory_that_others_need() {
    let server = server("live-room-idle");
    let mut observer = server.connect();
    let mut others = take_all(&server, &mut observer);
    commit(&mut others);
    for count in [1, 5, 12, 25, 60, 130] {
        until_seen(&server, &mut observer, count);
    }
    // The same if they have gone.
    drop(others);
    let mut others = take_all(&server, &mut observer);
    for count in [5, 130] {
        let (seen, _) = seen(&mut observer, server.connect(), count);
        assert_eq!(seen, Seen::Private);
    }
    commit(&mut others);
    drop(others);
    for count in [1, 5, 12, 25, 60, 130] {
        until_seen(&server, &mut observer, count);
    }
}

/// A session loses the block of a statement that it keeps for reuse, and gets another one later.
#[test]
fn a_session_that_lost_its_block_measures_its_statement_as_before() {
    const SCANS: usize = 10;
    let server = server("live-room-lost");
    let mut observer = server.connect();
    let mut client = server.connect();
    run_each(&mut client, &format!("PREPARE p AS {}", sleeping(SCANS)));
    run_each(&mut client, &format!("PREPARE q AS {}", scans(SCANS)));
    let seen = |observer: &mut Client, client| {
        let busy = Busy::run(client, "EXECUTE p");
        until_waiting(observer, busy.pid, "PgSleep");
        let seen = live(observer, busy.pid);
        (seen, busy.cancel(observer))
    };
    let whole = Seen::Nodes(SCANS as i64 + 2);
    let mut executions = 0;
    let mut execute = |client: &mut Client| {
        for _ in 0..3 {
            run_each(client, "EXECUTE q");
            executions += 1;
        }
    };
    let (first, mut client) = seen(&mut observer, client);
    assert_eq!(first, whole);
    execute(&mut client);
    std::thread::sleep(Duration::from_millis(1_100));
    let mut others = take_all(&server, &mut observer);
    execute(&mut client);
    let (taken, mut client) = seen(&mut observer, client);
    assert_eq!(taken, Seen::Private);
    execute(&mut client);
    commit(&mut others);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (again, same) = seen(&mut observer, client);
        client = same;
        execute(&mut client);
        if again == whole {
            break;
        }
        assert!(Instant::now() < deadline, "never seen again");
    }
    let row = observer
        .query_one(
            "SELECT sum(calls)::bigint, sum(rows)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE q%'",
            &[],
        )
        .expect("the plan");
    let (calls, rows): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!((calls, rows), (executions, executions * SCANS as i64 * 3));
}

/// Sessions of many sizes come, idle, go and are terminated. All that they count is counted, and memory does
/// not grow.
#[test]
fn blocks_pass_between_many_sessions() {
    const TIME: Duration = Duration::from_secs(10);
    const ABSURD: &str = "SELECT count(*) FROM pg_stat_rowsource_live
        WHERE rows < 0 OR rows > 1e6 OR starts < 0 OR starts > 1e6 OR total_time < 0 OR self_time < 0
           OR blocks_until <> 'private memory' AND (operation IS NULL OR node_id IS NULL)";
    let server = server("live-room-many");
    let began = Instant::now();
    let goes_on = || began.elapsed() < TIME;
    let failed = AtomicBool::new(false);
    let executions: [AtomicU64; SIZES.len()] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (server, goes_on, executions, failed) = (&server, &goes_on, &executions, &failed);
        for session in 0..6 {
            scope.spawn(move || {
                for round in session.. {
                    if !goes_on() {
                        break;
                    }
                    let mut client = server.connect();
                    for (i, count) in SIZES.iter().enumerate() {
                        run_each(&mut client, &format!("PREPARE p{i} AS {}", scans(*count)));
                    }
                    for step in 0..40 {
                        let i = (round * 7 + step * 3 + step / 8) % SIZES.len();
                        run_each(&mut client, &format!("EXECUTE p{i}"));
                        executions[i].fetch_add(1, Relaxed);
                    }
                    // Idle for long enough that others may claim what it has. Then it goes on.
                    std::thread::sleep(Duration::from_millis(1_100));
                    for (i, executions) in executions.iter().enumerate() {
                        run_each(&mut client, &format!("EXECUTE p{i}"));
                        executions.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        // These hold what they have in cursors until they are terminated.
        for session in 0..4 {
            scope.spawn(move || {
                while goes_on() {
                    let mut client = server.connect();
                    let count = SIZES[session * 2] - 1;
                    let mut sql = "BEGIN; SET application_name = 'victim';".to_owned();
                    for cursor in 0..10 {
                        sql += &format!(
                            "DECLARE c{cursor} CURSOR FOR {}; FETCH 1 FROM c{cursor};",
                            scans(count)
                        );
                    }
                    let _ = client.batch_execute(&format!("{sql} SELECT pg_sleep(2)"));
                }
            });
        }
        scope.spawn(move || {
            let mut client = server.connect();
            while goes_on() {
                std::thread::sleep(Duration::from_millis(150));
                run_each(
                    &mut client,
                    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'victim'
                     ORDER BY random() LIMIT 1) x",
                );
            }
        });
        scope.spawn(move || {
            let mut client = server.connect();
            while goes_on() && !failed.load(Relaxed) {
                failed.fetch_or(value::<i64>(&mut client, ABSURD) > 0, Relaxed);
            }
        });
    });
    assert!(!failed.into_inner());
    let mut observer = server.connect();
    for (i, executions) in executions.iter().enumerate() {
        let calls: i64 = value(
            &mut observer,
            &format!(
                "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE p{i} %'"
            ),
        );
        assert_eq!(calls as u64, executions.load(Relaxed), "{} scans", SIZES[i]);
    }
    for count in [1, 5, 12, 25, 60, 130] {
        until_seen(&server, &mut observer, count);
    }
    let bytes = dynamic_shared_memory(server.postmaster());
    assert!(bytes < 24 << 20, "{bytes} bytes of dynamic shared memory");
}

/// A session is killed that holds blocks: PostgreSQL makes all shared memory again.
#[test]
fn after_a_crash_sessions_are_seen() {
    let server = server("live-room-crash");
    let mut observer = server.connect();
    let others = take_all(&server, &mut observer);
    server.crash_a_backend();
    drop((others, observer));
    let mut observer = server.connect();
    for count in [1, 130] {
        until_seen(&server, &mut observer, count);
    }
}
