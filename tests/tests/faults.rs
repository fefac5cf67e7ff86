//! Failures around the server: memory, files, space. Only the library's statistics may be lost.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::attack::wait_until;
use rowsource_tests::process;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{assert_measures, keeping, make_plans, measured};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;
const PLANS_FILE: &str = "pg_stat/pg_rowsource.stat";
const TEMPFILE_FILE: &str = "pg_stat/pg_rowsource_tempfile.stat";

fn pid(client: &mut Client) -> u32 {
    value::<i32>(client, "SELECT pg_backend_pid()") as u32
}

/// In a session with a full address space, malloc and palloc fail at many places. Any outcome but a crash is
/// accepted.
#[test]
fn a_session_without_memory_does_not_crash() {
    let server = keeping("faults-memory", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
    make_plans(&mut client, 1_500, 10);
    let nodes: i64 = value(&mut server.connect(), "SELECT count(*) FROM pg_stat_rowsource");
    println!("{nodes} nodes kept");
    // A plan of many nodes that no session has described yet.
    let fresh = |round: usize| {
        let select = format!("SELECT id{} FROM t WHERE id > 0", ", id".repeat(round + 1));
        vec![select; 100].join(" UNION ALL ")
    };
    // The allowed errors: out of memory, or its consequences (no space to map memory, no stored plan).
    const CODES: [&str; 5] = ["53200", "53000", "55000", "42704", "58030"];
    let mut failed = 0;
    let kilobytes = [0u64, 64, 256]
        .into_iter()
        .chain((0..18).map(|step| 512 * (1 << (step / 2)) * (2 + step % 2) / 2));
    for (round, kilobytes) in kilobytes.enumerate() {
        let statements = [
            "SELECT count(*) FROM pg_stat_rowsource",
            "SELECT rowsource_display()",
            "SELECT count(*) FROM pg_stat_rowsource_plans",
            &fresh(round),
        ];
        for sql in statements {
            // A new session for each, because memory that one statement freed would be available to the next.
            let mut client = server.connect();
            let pid = pid(&mut client);
            run_each(
                &mut client,
                "SET pg_rowsource.statistics_level = 'typical'; SELECT 1; SELECT count(*) FROM rowsource_info()",
            );
            process::limit_address_space(pid, Some(process::address_space(pid) + kilobytes * 1024));
            if let Err(error) = client.batch_execute(sql) {
                let said = error.as_db_error().unwrap_or_else(|| {
                    panic!(
                        "{kilobytes} kB more: {sql:.60}: {error}\n{}",
                        server.log_extract()
                    )
                });
                failed += 1;
                assert!(
                    CODES.contains(&said.code().code()),
                    "{kilobytes} kB more: {sql:.60}: {said}"
                );
            }
            process::limit_address_space(pid, None);
            run_each(
                &mut client,
                "SET pg_rowsource.statistics_level = 'typical'; SELECT id FROM t; SET pg_rowsource.statistics_level = 'basic'",
            );
            let last: String = value(
                &mut client,
                "SELECT string_agg(line, ' ') FROM rowsource_display() line",
            );
            let only_the_scan = last.contains("Seq Scan") && !last.contains("Append");
            assert!(only_the_scan, "the session measures no more: {last}");
        }
    }
    println!("{failed} statements failed for lack of memory");
    assert!(failed > 10, "the limits limited nothing");
    assert_measures(&mut server.connect(), 1);
}

/// Runs statements in a session that may take `more` bytes than it has, and lifts the limit again. Returns
/// how many failed. A lost session fails the test.
fn run_limited(server: &Server, client: &mut Client, more: u64, statements: &[&str]) -> usize {
    let pid = pid(client);
    process::limit_address_space(pid, Some(process::address_space(pid) + more));
    let mut failed = 0;
    for sql in statements {
        if let Err(error) = client.batch_execute(sql) {
            assert!(
                error.as_db_error().is_some(),
                "{more} bytes more: {sql}: {error}\n{}",
                server.log_extract()
            );
            failed += 1;
        }
    }
    process::limit_address_space(pid, None);
    failed
}

/// The same with a plan of thousands of nodes.
#[test]
fn a_large_plan_without_memory_does_not_crash() {
    // Without core's counters: on 15.20, a session that had no memory for one of them crashes at its end (in
    // pgstat_lock_entry), with or without the library.
    let server = keeping(
        "faults-large-plan",
        &["max_locks_per_transaction = 4000", "track_counts = off"],
    );
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE parts (id int) PARTITION BY RANGE (id)");
    client
        .batch_execute(
            "DO $$ BEGIN FOR i IN 1..2500 LOOP
                 EXECUTE format('CREATE TABLE part%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);
             END LOOP; END $$",
        )
        .expect("partitions");
    let mut failed = 0;
    for megabytes in (4..60).step_by(2) {
        let mut client = server.connect();
        run_each(
            &mut client,
            "SET pg_rowsource.statistics_level = 'typical'; SELECT 1; SELECT count(*) FROM rowsource_info()",
        );
        let statements = ["SELECT count(*) FROM parts", "SELECT rowsource_display()"];
        failed += run_limited(&server, &mut client, megabytes * MB, &statements);
        run_each(&mut client, "SELECT id FROM t");
        let log = server.log_extract();
        assert!(!log.contains("by signal"), "{megabytes} MB more: {log}");
    }
    println!("{failed} statements failed for lack of memory");
    assert!(failed > 5, "the limits limited nothing");
    assert_measures(&mut server.connect(), 1);
}

/// A plan is made with enough memory, and then described and displayed without memory.
#[test]
fn a_description_without_memory_does_not_crash() {
    let server = keeping("faults-describe", &["max_stack_depth = '7MB'"]);
    let mut client = server.connect();
    let deep = (0..900).fold("SELECT id FROM t".to_owned(), |inner, _| {
        format!("SELECT id FROM ({inner} LIMIT 2) s OFFSET 0")
    });
    measured(&mut client, &deep);
    drop(client);
    let mut failed = 0;
    for kilobytes in (0..20_000).step_by(1_000).chain([128, 256, 512]) {
        let mut client = server.connect();
        let terms: Vec<String> = (0..600).map(|i| format!("id + {i} = {i}")).collect();
        run_each(
            &mut client,
            &format!(
                "SET plan_cache_mode = force_generic_plan; SELECT count(*) FROM rowsource_info();
                 PREPARE p AS SELECT count(*) FROM t WHERE {}; EXECUTE p;
                 PREPARE d AS SELECT count(*) FROM rowsource_display((SELECT queryid FROM pg_stat_rowsource_plans
                     WHERE query LIKE 'SELECT id FROM (%'));
                 SET pg_rowsource.statistics_level = 'typical'",
                terms.join(" OR ")
            ),
        );
        let statements = ["EXECUTE p", "EXECUTE d", "SELECT rowsource_display()"];
        failed += run_limited(&server, &mut client, kilobytes * 1024, &statements);
        run_each(&mut client, "SELECT id FROM t");
    }
    println!("{failed} statements failed for lack of memory");
    assert!(failed > 5, "the limits limited nothing");
    server.assert_no_crash();
    assert_measures(&mut server.connect(), 1);
}

/// Unblocks a process that opened a FIFO for reading. Returns whether there was one.
fn unblock(fifo: &Path) -> bool {
    // Non-blocking: without a reader it fails.
    let open = || {
        Command::new("dd")
            .arg("if=/dev/null")
            .arg(format!("of={}", fifo.display()))
            .args(["oflag=nonblock", "conv=notrunc", "status=none"])
            .stderr(std::process::Stdio::null())
            .status()
    };
    let is_fifo = fs::metadata(fifo).is_ok_and(|metadata| metadata.file_type().is_fifo());
    is_fifo && open().is_ok_and(|status| status.success())
}

/// Returns whether `work` hangs at the FIFO: a process that still waits there after ten seconds is unblocked.
fn hangs(fifo: &Path, work: impl FnOnce()) -> bool {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let fifo = fifo.to_path_buf();
    let watchdog = std::thread::spawn(move || {
        let mut hung = false;
        while matches!(
            is_done.recv_timeout(Duration::from_secs(10)),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        ) {
            hung |= unblock(&fifo);
        }
        hung
    });
    work();
    drop(done);
    watchdog.join().expect("the watchdog")
}

/// The kind of file, and the function that creates it.
type StrangeFile<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// Returns the kinds of file that may be in the place of a statistics file.
fn strange_files(at: &Path) -> Vec<StrangeFile<'_>> {
    let elsewhere = at.with_file_name("elsewhere");
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let status = Command::new(program).args(arguments).status().expect("a program");
        assert!(status.success(), "{program} {arguments:?}");
    };
    let target = elsewhere.clone();
    vec![
        (
            "a FIFO",
            Box::new(move || run("mkfifo", &["-m".as_ref(), "666".as_ref(), at.as_os_str()])),
        ),
        (
            "a directory",
            Box::new(move || fs::create_dir(at).expect("a directory")),
        ),
        (
            "a symbolic link",
            Box::new(move || {
                fs::write(&target, "another file").expect("a file");
                std::os::unix::fs::symlink(&target, at).expect("a link");
            }),
        ),
        (
            "a huge sparse file",
            Box::new(move || {
                fs::File::create(at)
                    .and_then(|file| file.set_len(3 << 30))
                    .expect("a sparse file")
            }),
        ),
    ]
}

fn remove(at: &Path) {
    let _ = fs::remove_file(at);
    let _ = fs::remove_dir_all(at);
}

/// A file that has no end. Reading all of it would take all of the machine's memory.
fn endless_file(at: &Path) -> Vec<StrangeFile<'_>> {
    vec![(
        "a link to a device without end",
        Box::new(move || std::os::unix::fs::symlink("/dev/zero", at).expect("a link")),
    )]
}

/// Fails unless each of these files in the place of `file` costs one log line, and little time and memory.
fn assert_files_are_harmless(name: &str, file: &str, files: fn(&Path) -> Vec<StrangeFile<'_>>) {
    let mut server = keeping(name, &[]);
    let at: PathBuf = server.data().join(file);
    let mut wrong = Vec::new();
    for (what, make) in files(&at) {
        server.stop();
        remove(&at);
        make();
        let _ = Command::new("chown").args(["-h", "postgres:"]).arg(&at).status();
        server.clear_log();
        let mut peak = 0;
        let begin = Instant::now();
        let hung = hangs(&at, || {
            server.launch();
            let mut client = server.connect();
            measured(&mut client, "SELECT id FROM t");
            assert_measures(&mut client, 1);
            let plans: i64 = value(
                &mut client,
                "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%UNION%'",
            );
            assert_eq!(plans, 0, "{what}: it starts empty");
            peak = process::peak_bytes(pid(&mut client)).max(process::peak_bytes(server.postmaster()));
        });
        let lines = server.log_of_library();
        println!(
            "{what} for {file}: {:.2} s, peak {} MB, {lines:?}",
            begin.elapsed().as_secs_f64(),
            peak / MB
        );
        if hung {
            wrong.push(format!("{what}: the session hung"));
        }
        if lines.len() != 1 || !lines[0].contains("LOG:") {
            wrong.push(format!("{what}: one line, but {lines:?}"));
        }
        if peak > 300 * MB {
            wrong.push(format!("{what}: {} MB of memory", peak / MB));
        }
    }
    server.stop();
    remove(&at);
    server.launch();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn strange_files_for_plans_are_harmless() {
    assert_files_are_harmless("faults-file", PLANS_FILE, strange_files);
}

#[test]
fn strange_files_for_temporary_files_are_harmless() {
    assert_files_are_harmless("faults-tempfile", TEMPFILE_FILE, strange_files);
}

#[test]
fn files_without_end_are_harmless_long() {
    for file in [PLANS_FILE, TEMPFILE_FILE] {
        assert_files_are_harmless("faults-endless", file, endless_file);
    }
}

/// Reads the statistics while sessions are stopped. Returns how many seconds it took, and whether it ended
/// before a minute had passed: then the stopped sessions continue.
fn read_beside_stopped(reader: &mut Client, pids: &[u32]) -> (f64, bool) {
    let begin = Instant::now();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let ended = std::thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let ended = is_done.recv_timeout(Duration::from_secs(60))
                != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if !ended {
                pids.iter().for_each(|&pid| process::send_signal(pid, "CONT"));
            }
            ended
        });
        let _ = reader.batch_execute("SELECT count(*) FROM pg_stat_rowsource_plans");
        drop(done);
        watchdog.join().expect("the watchdog")
    });
    (begin.elapsed().as_secs_f64(), ended)
}

/// A session that is stopped while it records does not block others for long, whatever lock it holds.
#[test]
fn stopped_sessions_do_not_block_others() {
    const SESSIONS: usize = 8;
    const ROUNDS: usize = 40;
    /// A reader waits this long for a stopped session, if it is not cancelled.
    const WAIT_S: f64 = 0.5;
    let server = keeping("faults-stopped", &[]);
    let mut writers: Vec<(u32, Client)> = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = server.connect();
        run_each(&mut client, "SET pg_rowsource.statistics_level = 'typical'");
        writers.push((pid(&mut client), client));
    }
    let pids: Vec<u32> = writers.iter().map(|(pid, _)| *pid).collect();
    let mut all_ended = true;
    // The shortest cancelled reads of the rounds in which a reader had to wait.
    let mut cancelled_after: Vec<f64> = Vec::new();
    std::thread::scope(|scope| {
        for (_, client) in &mut writers {
            // Short statements inside one statement, so that most of the time is spent in the executor and
            // the library.
            scope.spawn(|| {
                let _ = client.batch_execute(
                    "DO $$BEGIN LOOP PERFORM 1; PERFORM 1, 2; PERFORM 1, 2, 3; EXECUTE 'SELECT ' || (random() * 1000)::int; END LOOP; END$$",
                );
            });
        }
        let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'";
        let [mut reader, mut cancelled] = [server.connect(), server.connect()];
        // It stays so: a SET that ends the limit would have to meet it.
        run_each(&mut cancelled, "SET statement_timeout = '200ms'");
        wait_until("all run", Duration::from_secs(60), || {
            value::<i64>(&mut reader, running) == SESSIONS as i64
        });
        for round in 0..ROUNDS {
            // A random delay, so that the stops hit different moments.
            std::thread::sleep(Duration::from_micros(5_000 + (round as u64 * 7_919) % 10_000));
            pids.iter().for_each(|&pid| process::send_signal(pid, "STOP"));
            wait_until("all are stopped", Duration::from_secs(60), || {
                pids.iter().all(|&pid| process::is_stopped(pid))
            });
            let stopped = Stopped(&pids);
            let (waited, ended) = read_beside_stopped(&mut reader, &pids);
            all_ended &= ended;
            if waited >= WAIT_S {
                // The stopped sessions hold the same locks all the time.
                let tries = [(); 2].map(|()| read_beside_stopped(&mut cancelled, &pids).0);
                cancelled_after.push(tries[0].min(tries[1]));
            }
            drop(stopped);
        }
        let mut killer = server.connect();
        run_each(
            &mut killer,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %'",
        );
    });
    println!("in rounds with a wait, readers with a limit of 0.2 s ended after {cancelled_after:.2?} s");
    assert!(all_ended, "a reader waited for stopped sessions");
    // A wait that cannot be cancelled takes at least that long in each of them. A busy machine delays some,
    // too, but not all.
    assert!(
        cancelled_after.iter().any(|&seconds| seconds < WAIT_S) || cancelled_after.is_empty(),
        "a wait cannot be cancelled: {cancelled_after:.2?}"
    );
}

/// Stopped processes. Dropping this lets them continue.
struct Stopped<'a>(&'a [u32]);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|&pid| process::send_signal(pid, "CONT"));
    }
}
