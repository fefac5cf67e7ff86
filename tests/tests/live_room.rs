//! What others see of a session when the memory for running statements is taken: each session can show a
//! small statement, and blocks that no statement uses pass from one session to another.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::process::dynamic_shared_memory;
use rowsource_tests::session::{must_fail, run_each, texts, value};
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

/// Returns a query of `count` scans, below an Append if there are several.
fn scans(count: usize) -> String {
    vec!["SELECT id FROM t"; count].join(" UNION ALL ")
}

/// Returns a statement of `count` scans that sleeps at its end: it has two nodes more.
fn sleeping(count: usize) -> String {
    format!("{} UNION ALL SELECT 1 FROM pg_sleep(1000)", scans(count))
}

/// What others see of a statement.
#[derive(Debug, PartialEq)]
enum Seen {
    Private,
    /// It has this number of nodes, and one of them runs.
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

/// Runs a statement of `count` scans in a session until it sleeps. Returns what others see, and the session.
fn seen(observer: &mut Client, client: Client, count: usize) -> (Seen, Client) {
    let busy = Busy::run(client, &sleeping(count));
    until_waiting(observer, busy.pid, "PgSleep");
    let seen = live(observer, busy.pid);
    if seen == Seen::Private {
        assert_identified(observer, busy.pid, &scans(count));
    } else {
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

/// Asserts that all views name the statement in private memory that a session runs.
fn assert_identified(observer: &mut Client, pid: i32, text: &str) {
    let live = format!(
        "SELECT count(*) FROM pg_stat_rowsource_live l JOIN pg_stat_activity a USING (pid)
          WHERE pid = {pid} AND blocks_until = 'private memory' AND l.state = 'running' AND l.queryid <> 0
                AND l.planid <> 0 AND l.usename = a.usename AND l.datname = a.datname AND l.toplevel AND l.nesting_level = 0
                AND l.age >= l.elapsed_time AND l.elapsed_time > 0 AND l.node_id IS NULL AND l.rows IS NULL
                AND l.wait_event IS NOT DISTINCT FROM a.wait_event"
    );
    assert_eq!(value::<i64>(observer, &live), 1, "{live}");
    let progress = format!(
        "SELECT count(*) = 1 FROM rowsource_progress p JOIN pg_stat_rowsource_live l USING (pid, queryid, planid, state)
          WHERE pid = {pid} AND p.state = 'running' AND p.elapsed_time > 0 AND p.percent_done IS NULL"
    );
    assert!(value::<bool>(observer, &progress), "{progress}");
    let display = texts(observer, &format!("SELECT rowsource_display(pid => {pid})"));
    let lines: Vec<&str> = display.iter().flatten().flatten().map(String::as_str).collect();
    let all = lines.join(" ");
    // Long texts are broken into lines, at spaces.
    let beginning: String = text.chars().take(300).collect();
    assert!(all.contains(&beginning), "{all}");
    assert!(lines[0].contains("no shared memory was left"), "{all}");

    let sampled = format!(
        "SELECT count(*) > 0 FROM rowsource_ash JOIN pg_stat_rowsource_live USING (pid, queryid, planid) WHERE pid = {pid}"
    );
    until(observer, &sampled);
}

/// Runs a statement of `count` scans in new sessions until others see it. The sessions whose blocks it needs
/// must be idle for a second before.
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

/// More scans than any block has room for.
const TOO_MANY: usize = 330;

/// What is too large for any block is in private memory: others see all but its nodes.
#[test]
fn of_a_statement_in_private_memory_all_is_seen_but_its_nodes() {
    let server = server("live-room-private");
    let mut observer = server.connect();
    let too_many = scans(TOO_MANY);
    run_each(
        &mut observer,
        &format!(
            "CREATE ROLE other LOGIN;
             CREATE FUNCTION nested(seconds float) RETURNS bigint LANGUAGE plpgsql AS
             'DECLARE found bigint; BEGIN SELECT count(*) INTO found FROM ({too_many}) x; PERFORM pg_sleep(seconds); RETURN found; END'"
        ),
    );
    // Others see neither its ids nor what it waits for.
    let busy = Busy::run(server.connect(), &sleeping(TOO_MANY));
    until_waiting(&mut observer, busy.pid, "PgSleep");
    assert_eq!(live(&mut observer, busy.pid), Seen::Private);
    assert_identified(&mut observer, busy.pid, &too_many);
    let same = format!(
        "SELECT l.queryid = a.query_id FROM pg_stat_rowsource_live l JOIN pg_stat_activity a USING (pid) WHERE pid = {}",
        busy.pid
    );
    assert!(value::<bool>(&mut observer, &same));
    let mut other = server.try_connect("other").expect("a session");
    let masked = format!(
        "SELECT queryid IS NULL AND planid IS NULL AND wait_event IS NULL AND usename = 'postgres' AND elapsed_time > 0
           FROM pg_stat_rowsource_live WHERE pid = {}",
        busy.pid
    );
    assert!(value::<bool>(&mut other, &masked));
    let (code, message) = must_fail(
        &mut other,
        &format!("SELECT rowsource_display(pid => {})", busy.pid),
    );
    assert_eq!(code, SqlState::INSUFFICIENT_PRIVILEGE, "{message}");
    let mut client = busy.cancel(&mut observer);
    // A session has room for eight of them. Of the others, it is only said that they run.
    let pid = pid(&mut client);
    run_each(&mut client, "BEGIN");
    for cursor in 0..10 {
        run_each(
            &mut client,
            &format!("DECLARE c{cursor} CURSOR FOR {too_many}; FETCH 1 FROM c{cursor}"),
        );
    }
    let seen = format!(
        "SELECT count(*) FILTER (WHERE state = 'idle in cursor' AND queryid <> 0 AND planid <> 0), count(*)
           FROM pg_stat_rowsource_live WHERE pid = {pid}"
    );
    assert_eq!(
        texts(&mut observer, &seen)[0],
        [Some("8".to_owned()), Some("8".to_owned())]
    );
    let busy = Busy::run(client, &sleeping(TOO_MANY));
    until_waiting(&mut observer, busy.pid, "PgSleep");
    assert_eq!(
        texts(&mut observer, &seen)[0],
        [Some("8".to_owned()), Some("9".to_owned())]
    );
    let mut client = busy.cancel(&mut observer);
    run_each(&mut client, "ROLLBACK");
    // What runs inside of it does not take its place, and neither does what ends there.
    let busy = Busy::run(client, &format!("{too_many} UNION ALL SELECT nested(1000)::int"));
    until_waiting(&mut observer, busy.pid, "PgSleep");
    assert_identified(&mut observer, busy.pid, &too_many);
    let mut client = busy.cancel(&mut observer);
    run_each(&mut client, &too_many);
    let none = format!("SELECT count(*) = 0 FROM pg_stat_rowsource_live WHERE pid = {pid}");
    assert!(value::<bool>(&mut observer, &none));
    server.assert_no_crash();
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
    // In private memory, it is named each time, also between executions of another one.
    for _ in 0..3 {
        let busy = Busy::run(client, "EXECUTE p");
        until_waiting(&mut observer, busy.pid, "PgSleep");
        assert_eq!(live(&mut observer, busy.pid), Seen::Private);
        assert_identified(&mut observer, busy.pid, &scans(SCANS));
        client = busy.cancel(&mut observer);
        execute(&mut client);
    }
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
        // These hold what they have in cursors until they are terminated. Their statements are others: from
        // 18 on, a cursor has the queryid of its query.
        for session in 0..4 {
            scope.spawn(move || {
                while goes_on() {
                    let mut client = server.connect();
                    let count = SIZES[session * 2] - 1;
                    let mut sql = "BEGIN; SET application_name = 'victim';".to_owned();
                    for cursor in 0..10 {
                        sql += &format!(
                            "DECLARE c{cursor} CURSOR FOR {}; FETCH 1 FROM c{cursor};",
                            scans(count).replace("id", "-id")
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
