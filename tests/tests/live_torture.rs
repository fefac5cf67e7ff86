//! Readers at full speed see no absurd figure, and disturb nobody, while sessions begin, run, are terminated
//! and killed.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::process::dynamic_shared_memory;
use rowsource_tests::session::{run_each, texts, value};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Short and long statements, of plans with 1 to 40 nodes; `{}` makes texts differ, so that plans are
/// evicted.
const STATEMENTS: [&str; 7] = [
    "SELECT id FROM t WHERE id = {}",
    "SELECT count(*) FROM t WHERE id % 7 <> {}",
    "SELECT count(*) FROM t a JOIN t b USING (id) WHERE a.id > {}",
    "SELECT a.id FROM t a, t b WHERE a.id < 40 AND b.id < 3000 ORDER BY a.id + b.id + {} LIMIT 3",
    "SELECT f(id) FROM t WHERE id < 30 AND id <> {}",
    "BEGIN; DECLARE c CURSOR FOR SELECT id, {} FROM t; FETCH 10 FROM c; SELECT pg_sleep(0.01); FETCH 10 FROM c; COMMIT",
    "SELECT count(*) FROM p WHERE id <> {}",
];

/// What readers ask in turn. Each row of it is a row that cannot be true.
const ABSURD: [&str; 5] = [
    "SELECT * FROM pg_stat_rowsource_live
     WHERE rows < 0 OR rows > 1e9 OR starts < 0 OR starts > 1e9 OR shared_blks_hit NOT BETWEEN 0 AND 1e9 OR age < 0 OR age > 6e5
        OR elapsed_time > age + 1 OR total_time < 0 OR self_time < 0 OR total_time > 1.05 * elapsed_time + 5
        OR operation IS NULL OR node_id IS NULL OR blocks_until = 'private memory'",
    "SELECT pid, line FROM (SELECT DISTINCT pid FROM pg_stat_rowsource_live) l, rowsource_display(pid => l.pid) line WHERE line IS NULL",
    "SELECT * FROM rowsource_progress
     WHERE NOT (0 <= percent_low AND percent_low <= percent_done AND percent_done <= percent_high AND percent_high <= 100)
        OR NOT (0 <= time_left_low AND time_left_low <= time_left AND time_left <= time_left_high) OR time_left < 0
        OR num_nulls(percent_done, percent_low, percent_high, basis) NOT IN (0, 4)",
    "SELECT * FROM rowsource_ash WHERE sample_time > clock_timestamp() OR pid <= 0 OR sample_time IS NULL OR pid IS NULL",
    "SELECT * FROM rowsource_top_activity() WHERE (percent BETWEEN 0 AND 100) IS NOT TRUE OR samples <= 0 OR average_active_sessions < 0",
];

/// How much longer a run may take if the machine is busy.
const MORE_TIME: Duration = Duration::from_secs(60);

/// How much a run does.
struct Size {
    time: Duration,
    sessions: u64,
    readers: usize,
    /// How often a session is killed as in a crash, so that the server starts again.
    crash_every: Option<Duration>,
}

const SHORT: Size = Size {
    time: Duration::from_secs(8),
    sessions: 6,
    readers: 2,
    crash_every: None,
};

const LONG: Size = Size {
    time: Duration::from_secs(600),
    sessions: 50,
    readers: 10,
    crash_every: Some(Duration::from_secs(60)),
};

/// Runs the statements until `goes_on` says no, in sessions that others may end. Counts those that succeed.
fn run_statements(server: &Server, from: u64, goes_on: &impl Fn() -> bool, succeeded: &AtomicU64) {
    let mut client: Option<Client> = None;
    for number in from.. {
        if !goes_on() {
            break;
        }
        let session = client.get_or_insert_with(|| {
            let mut session = server.connect();
            let _ = session.batch_execute("SET pg_rowsource.statistics_level = typical");
            session
        });
        let statement = STATEMENTS[(number * 5 / 3) as usize % STATEMENTS.len()];
        let sql = statement.replace("{}", &(number % 400).to_string());
        match session.batch_execute(&sql) {
            Ok(()) => _ = succeeded.fetch_add(1, Relaxed),
            Err(_) => client = None,
        }
    }
}

/// Runs a statement in a database that is then dropped, again and again. Counts those that were dropped.
fn drop_databases(server: &Server, goes_on: &impl Fn() -> bool, dropped: &AtomicU64) {
    let mut client: Option<Client> = None;
    while goes_on() {
        let owner = client.get_or_insert_with(|| server.connect());
        let is_dropped = owner
            .batch_execute("DROP DATABASE IF EXISTS gone WITH (FORCE)")
            .and_then(|()| owner.batch_execute("CREATE DATABASE gone"))
            .and_then(|()| {
                let mut guest = server.try_connect_to("postgres", "gone")?;
                let id = guest.query_one("SELECT pg_backend_pid()", &[])?.get::<_, i32>(0);
                std::thread::scope(|scope| {
                    let statement = scope.spawn(move || {
                        guest.batch_execute("SELECT count(pg_sleep(0.001)) FROM generate_series(1, 100000)")
                    });
                    let is_running = format!("SELECT 1 FROM pg_stat_rowsource_live WHERE pid = {id}");
                    while goes_on() && !statement.is_finished() && owner.query(&is_running, &[])?.is_empty() {
                    }
                    owner.batch_execute("DROP DATABASE gone WITH (FORCE)")
                })
            });
        match is_dropped {
            Ok(()) => _ = dropped.fetch_add(1, Relaxed),
            Err(_) => client = None,
        }
    }
}

fn create_objects(server: &Server) {
    let mut client = server.connect();
    let parts: String = (0..38)
        .map(|i| {
            format!(
                "CREATE TABLE p{i} PARTITION OF p FOR VALUES FROM ({}) TO ({});",
                i * 100,
                (i + 1) * 100
            )
        })
        .collect();
    run_each(
        &mut client,
        &format!(
            "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 20000) i;
             CREATE INDEX ON t (id); CREATE TABLE p (id int) PARTITION BY RANGE (id); {parts}
             INSERT INTO p SELECT i FROM generate_series(0, 3799) i; VACUUM ANALYZE"
        ),
    );
    let function = "CREATE FUNCTION f(i int) RETURNS bigint LANGUAGE plpgsql AS
                    $$ BEGIN RETURN (SELECT count(*) FROM t WHERE id > i); END $$";
    client.batch_execute(function).expect("a function");
}

#[test]
fn readers_see_sane_figures_while_sessions_come_and_go() {
    torture(&SHORT);
}

/// It kills sessions, too.
#[test]
fn readers_see_sane_figures_for_ten_minutes_long() {
    torture(&LONG);
}

fn torture(size: &Size) {
    let settings = [
        "jit = off",
        // Those that were terminated still end, while others replace them.
        "max_connections = 300",
        "max_parallel_workers_per_gather = 0",
        "pg_rowsource.track = all",
        "pg_rowsource.max_plans = 100",
    ];
    let server = Server::preloaded("live-torture", &settings);
    create_objects(&server);
    let began = Instant::now();
    let [reads, run, dropped, crashes] = [const { AtomicU64::new(0) }; 4];
    // Dynamic shared memory in the second and in the last part of the time.
    let memory = Mutex::new([0; 2]);
    let failed = AtomicBool::new(false);
    // A busy machine may need longer for what the test needs at least.
    let has_enough = || reads.load(Relaxed) > 20 && run.load(Relaxed) > 20 && dropped.load(Relaxed) > 0;
    let goes_on = || {
        let elapsed = began.elapsed();
        !failed.load(Relaxed) && (elapsed < size.time || elapsed < size.time + MORE_TIME && !has_enough())
    };
    std::thread::scope(|scope| {
        let (server, goes_on) = (&server, &goes_on);
        let (reads, run, dropped, crashes, memory, failed) =
            (&reads, &run, &dropped, &crashes, &memory, &failed);
        for session in 0..size.sessions {
            scope.spawn(move || run_statements(server, session, goes_on, run));
        }
        scope.spawn(move || drop_databases(server, goes_on, dropped));
        for _ in 0..size.readers {
            scope.spawn(move || {
                let mut client = server.connect();
                for absurd in ABSURD.into_iter().cycle() {
                    if !goes_on() {
                        break;
                    }
                    match client.query(absurd, &[]) {
                        Ok(rows) if rows.is_empty() => _ = reads.fetch_add(1, Relaxed),
                        Ok(_) => {
                            failed.store(true, Relaxed);
                            panic!("{absurd}: {:?}", texts(&mut client, absurd));
                        }
                        // It may have ended while it was displayed, or the server restarts.
                        Err(error) => match error.as_db_error() {
                            Some(error) if error.message().contains("runs no measured statement") => {}
                            Some(error)
                                if !error.message().contains("terminat") && size.crash_every.is_none() =>
                            {
                                failed.store(true, Relaxed);
                                panic!("{absurd}: {error}");
                            }
                            _ => client = server.connect(),
                        },
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut client = server.connect();
            while goes_on() {
                std::thread::sleep(Duration::from_millis(60));
                let one = "SELECT count(pg_terminate_backend(pid)) FROM
                           (SELECT pid FROM pg_stat_rowsource_live WHERE pid <> pg_backend_pid() ORDER BY random() LIMIT 1) x";
                if client.query_one(one, &[]).is_err() {
                    client = server.connect();
                }
                let part = (began.elapsed().as_secs_f64() / size.time.as_secs_f64() * 4.0) as usize;
                if let Some(measured) = [1, 3].iter().position(|&wanted| wanted == part.min(3)) {
                    let bytes = dynamic_shared_memory(server.postmaster());
                    let mut memory = memory.lock().expect("no panic");
                    memory[measured] = memory[measured].max(bytes);
                }
            }
        });
        if let Some(every) = size.crash_every {
            scope.spawn(move || {
                let mut next = every;
                while goes_on() {
                    std::thread::sleep(Duration::from_millis(100));
                    if began.elapsed() > next {
                        next += every;
                        server.crash_a_backend();
                        crashes.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    let [reads, run, dropped, crashes] = [reads, run, dropped, crashes].map(AtomicU64::into_inner);
    let [early, late] = memory.into_inner().expect("no panic");
    println!(
        "{run} statements, {reads} reads, {dropped} databases dropped, {crashes} crashes; {early} bytes of dynamic shared memory, {late} at the end"
    );
    assert!(reads > 20 && run > 20 && dropped > 0);
    // Areas of sessions that ended are used again.
    let most = early.max(24 << 20);
    assert!(late <= most + most / 10, "{early} bytes, then {late}");
    let mut observer = server.connect();
    assert_eq!(
        value::<i64>(&mut observer, "SELECT count(*) FROM pg_stat_rowsource_live"),
        0
    );
    server.assert_no_crash();
    server.crash_a_backend();
    let mut client = server.connect();
    assert_eq!(
        value::<i64>(&mut client, "SELECT count(*) FROM pg_stat_rowsource_live"),
        0
    );
}
