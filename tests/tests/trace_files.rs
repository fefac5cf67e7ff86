//! The files of SQL traces: killed sessions, limits and full disks.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::mounts::Mounts;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::trace_file::{columns, folder, lines, number, of, section, tkprof, until_ended};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// No process has this id.
const DEAD: u32 = 999_999_999;
const LOST: &str = "SELECT max(lost_lines) FROM rowsource_trace_files WHERE is_own";

fn server(name: &str, settings: &[&str]) -> Server {
    let server = Server::preloaded(name, settings);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

fn report(client: &mut Client, arguments: &str) -> String {
    tkprof(client, arguments).join("\n")
}

/// Runs this many statements, which have the same queryid.
fn run_many(client: &mut Client, count: usize) {
    for i in 0..count {
        client
            .simple_query(&format!("SELECT {i}"))
            .expect("a statement never fails because of its trace");
    }
}

/// Makes a file larger until the disk is full.
fn fill(file: &Path) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(file)
        .expect("the ballast");
    while file.write_all(&[b'x'; 4096]).is_ok() {}
}

#[test]
fn a_killed_session_leaves_a_readable_file() {
    let server = server("trace-killed", &[]);
    let mut client = server.connect();
    let id = pid(&mut client);
    let file: String = value(&mut client, "SELECT rowsource_trace_start()");
    run_each(&mut client, "SELECT 1 AS before_the_kill");
    let before = server.restarts();
    server.kill_process(id as u32);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.restarts() == before {
        assert!(Instant::now() < deadline, "no restart:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = server.connect();
    let text = report(&mut client, &format!("'{file}'"));
    assert!(text.contains("before_the_kill"), "{text}");
    // A line that is cut is reported, and the rest is read.
    let path = folder(&server).join(&file);
    let bytes = fs::read(&path).expect("the file");
    let cut = bytes.len() - 5;
    fs::write(&path, &bytes[..cut]).expect("it can be cut");
    let text = report(&mut client, &format!("'{file}'"));
    assert!(
        text.contains("before_the_kill") && text.contains("the last line is cut"),
        "{text}"
    );
}

/// A session is killed inside a statement that has written a part of its lines. They are whole, and the
/// report has them.
#[test]
fn a_session_killed_in_a_statement_leaves_a_readable_file() {
    const EXECUTED: i64 = 3_000;
    let server = server("trace-killed-inside", &[]);
    let (mut observer, mut client) = (server.connect(), server.connect());
    let id = pid(&mut client);
    let file: String = value(&mut client, "SELECT rowsource_trace_start()");
    run_each(&mut client, "SELECT 1 AS before_the_kill");
    let session = std::thread::spawn(move || {
        client
            .batch_execute(&format!(
                "DO 'DECLARE n int; BEGIN FOR i IN 1..{EXECUTED} LOOP SELECT oid INTO n FROM pg_am LIMIT 1; END LOOP; PERFORM pg_sleep(600); END'"
            ))
            .expect_err("the session is killed");
    });
    until_waiting(&mut observer, id, "PgSleep");
    let before = server.restarts();
    server.kill_process(id as u32);
    session.join().expect("the session ends");
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.restarts() == before {
        assert!(Instant::now() < deadline, "no restart:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let lines = lines(&server, &file);
    // The buffer was written whenever it was full, so the last lines are missing, but not many.
    let executed = of(&lines, "EXEC")
        .iter()
        .filter(|line| number(line, "dep") == 1)
        .count() as i64;
    assert!(
        (EXECUTED / 2..=EXECUTED).contains(&executed),
        "{executed} executions"
    );
    let mut client = server.connect();
    let report = tkprof(&mut client, &format!("'{file}'"));
    assert!(
        report.iter().any(|line| line.contains("before_the_kill")),
        "{report:#?}"
    );
    assert!(
        !report.iter().any(|line| line.contains("could not be read")),
        "{report:#?}"
    );
    let part = section(&report, "SELECT oid");
    assert_eq!(columns(&part, "Execute ")[1], executed.to_string(), "{part:#?}");
    let document: String = value(&mut client, &format!("SELECT rowsource_trace_events('{file}')"));
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert!(
        document["traceEvents"]
            .as_array()
            .is_some_and(|events| events.len() > EXECUTED as usize)
    );
}

/// A session that ends normally has written everything.
#[test]
fn the_end_of_a_session_ends_its_file() {
    let server = server("trace-ended", &["pg_rowsource.trace = 'on'"]);
    let mut client = server.connect();
    run_each(&mut client, "SELECT 1 AS last_one");
    let id = pid(&mut client);
    drop(client);
    let mut observer = server.connect();
    let file: String = value(
        &mut observer,
        &format!("SELECT file FROM rowsource_trace_files WHERE pid = {id}"),
    );
    let found = until_ended(|| lines(&server, &file));
    assert!(found.iter().any(|line| line.contains("last_one")), "{found:#?}");
    // Parallel workers and other processes of the server write none.
    let pids: i64 = value(
        &mut observer,
        "SELECT count(DISTINCT pid) FROM rowsource_trace_files",
    );
    let files = fs::read_dir(folder(&server)).expect("the folder").count();
    assert!(
        pids >= 2 && files as i64 == pids,
        "{files} files of {pids} processes"
    );
}

#[test]
fn a_session_keeps_its_last_two_files() {
    let server = server("trace-rotated", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.trace_max_file_size = '64kB'");
    run_each(&mut client, "SELECT rowsource_trace_start()");
    run_many(&mut client, 1500);
    run_each(&mut client, "SELECT 2, now() AS the_last_one");
    let files = texts(
        &mut client,
        "SELECT part::text, (bytes < 140000)::text, lost_lines::text FROM rowsource_trace_files ORDER BY part",
    );
    let part = |row: &Vec<Option<String>>| {
        row[0]
            .as_deref()
            .and_then(|part| part.parse::<i32>().ok())
            .expect("a part")
    };
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(
        part(&files[0]) >= 3 && part(&files[1]) == part(&files[0]) + 1,
        "{files:?}"
    );
    for file in &files {
        assert_eq!(file[1..], [Some("true".to_owned()), Some("0".to_owned())]);
    }
    // A statement that runs while a file ends is in the next one.
    let last = part(&files[1]);
    run_each(
        &mut client,
        "DO 'BEGIN FOR i IN 1..2000 LOOP PERFORM count(*) FROM pg_am; END LOOP; END'",
    );
    let now: i32 = value(&mut client, "SELECT max(part) FROM rowsource_trace_files");
    assert!(now > last, "{now}");
    assert!(report(&mut client, "").contains("DO 'BEGIN FOR"));
    run_each(&mut client, "SELECT 2, now() AS the_last_one");
    // Each file can be read alone, and the last statements are there.
    let text = report(&mut client, "");
    assert!(text.contains("the_last_one"), "{text}");
    assert!(
        !text.contains("the statement's text is not in the file"),
        "{text}"
    );
    server.assert_no_crash();
}

/// The function that lists the files writes what is in the buffer, also where the file is nearly full.
#[test]
fn reading_the_files_loses_nothing() {
    let server = server("trace-read", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.trace_max_file_size = '64kB'");
    run_each(&mut client, "SELECT rowsource_trace_start()");
    for i in 0..400 {
        let lost: i64 = value(
            &mut client,
            &format!("SELECT sum(lost_lines)::bigint + {i} - {i} FROM rowsource_trace_files"),
        );
        assert_eq!(lost, 0, "read {i}");
    }
    let part: i32 = value(&mut client, "SELECT max(part) FROM rowsource_trace_files");
    assert!(part >= 3, "{part}");
    // It bounds its file all the same.
    run_each(
        &mut client,
        "DO 'BEGIN FOR i IN 1..2000 LOOP PERFORM count(*) FROM rowsource_trace_files; END LOOP; END'",
    );
    let most: i64 = value(&mut client, "SELECT max(bytes) FROM rowsource_trace_files");
    assert!(most < 140_000, "{most}");
}

/// A statement with many waits keeps its file small.
#[test]
fn waits_respect_the_limit_of_a_file() {
    let server = server("trace-waits", &[]);
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.trace_max_file_size = '64kB'");
    let file: String = value(&mut client, "SELECT rowsource_trace_start()");
    run_each(
        &mut client,
        "SELECT count(pg_sleep(0.00001)) FROM generate_series(1, 5000)",
    );
    let bytes = fs::metadata(folder(&server).join(&file)).expect("the file").len();
    assert!((30_000..140_000).contains(&bytes), "{bytes}");
    let text = report(&mut client, &format!("'{file}'"));
    assert!(
        text.contains("lines were lost: a statement filled the file up to pg_rowsource.trace_max_file_size")
            && text.contains("SELECT count(pg_sleep(0.00001))"),
        "{text}"
    );
    // The next statements are in the next file.
    run_each(&mut client, "SELECT 2, now() AS the_next_one");
    let text = report(&mut client, "");
    assert!(text.contains("the_next_one"), "{text}");
    server.assert_no_crash();
}

#[test]
fn all_files_together_have_a_limit() {
    let mut server = server("trace-limit", &["pg_rowsource.trace_max_total_size = '256kB'"]);
    let folder = folder(&server);
    let of_dead = |number: u32| folder.join(format!("{DEAD}_1_{number}.trc"));
    let begin_and_end = "SELECT rowsource_trace_start(); SELECT rowsource_trace_stop()";
    run_each(&mut server.connect(), begin_and_end);
    fs::write(of_dead(1), vec![b'x'; 300_000]).expect("an old file");
    // The first trace after a restart lists the files. Files of sessions that have ended make room.
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, "SET pg_rowsource.trace_max_file_size = '64kB'");
    run_each(&mut client, "SELECT rowsource_trace_start()");
    assert!(!of_dead(1).exists());
    // A session keeps two files, so that only several sessions reach the limit. All begin before: then none
    // can.
    let mut others: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for other in &mut others {
        run_each(
            other,
            "SET pg_rowsource.trace_max_file_size = '64kB'; SELECT rowsource_trace_start()",
        );
    }
    // A file of a session that runs makes no room. It is seen when the sum of those that are known reaches
    // the limit.
    let running = folder.join(format!("{}_1_1.trc", server.postmaster()));
    fs::write(&running, vec![b'x'; 300_000]).expect("a file");
    let deadline = Instant::now() + Duration::from_secs(60);
    while value::<i64>(&mut client, LOST) < 100 {
        assert!(Instant::now() < deadline, "no line is lost");
        for other in &mut others {
            run_many(other, 70);
        }
        run_many(&mut client, 100);
    }
    assert!(running.exists());
    let total: i64 = value(
        &mut client,
        "SELECT sum(bytes)::bigint FROM rowsource_trace_files WHERE bytes <> 300000",
    );
    // Each session may add a line that says what it lost.
    assert!(total < (256 << 10) + 4096, "{total}");
    assert!(
        server
            .log()
            .contains("have reached pg_rowsource.trace_max_total_size"),
        "{}",
        server.log()
    );
    server.assert_no_crash();
}

/// Without preloading, the sums of all files lie in memory that is unmapped before the session's trace ends.
#[test]
fn a_traced_session_without_preloading_ends_pg17_plus() {
    let server = Server::start("trace-loaded", &[]);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    run_each(&mut client, "LOAD 'pg_rowsource'");
    let id = pid(&mut client);
    run_each(&mut client, "SELECT rowsource_trace_start()");
    run_each(&mut client, "SELECT 1 AS traced");
    drop(client);
    until(
        &mut observer,
        &format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {id}"),
    );
    let text = report(&mut observer, &format!("pid => {id}"));
    assert!(text.contains("AS traced"), "{text}");
    server.assert_no_crash();
}

/// No statement fails on a full disk. When there is room again, a line says how many lines were lost.
#[test]
fn a_full_disk_fails_no_statement_needs_mount() {
    const ROOM: u64 = 128 << 10;
    let mut server = server("trace-full", &[]);
    server.stop();
    let folder = folder(&server);
    fs::create_dir_all(&folder).expect("the folder");
    let mounts = Mounts::new(&[(&folder, ROOM)]);
    server.run_inside(&mounts);
    server.launch();
    let mut client = server.connect();
    let file: String = value(&mut client, "SELECT rowsource_trace_start()");
    let ballast = mounts.outside(&folder).join("ballast");
    fs::write(&ballast, vec![b'x'; ROOM as usize / 2]).expect("the ballast");
    run_many(&mut client, 400);
    assert!(value::<i64>(&mut client, LOST) > 100);
    assert!(
        server.log().contains("No space left on device"),
        "{}",
        server.log()
    );
    // Whole lines are in the file.
    let path = mounts.outside(&folder).join(&file);
    let text = fs::read_to_string(&path).expect("the file");
    assert!(
        text.ends_with('\n') && text.len() as u64 <= ROOM,
        "{} bytes",
        text.len()
    );
    // Somebody empties the file, and the disk is full again. Each second, the session tries to write.
    fs::File::create(&path).expect("the file can be emptied");
    fill(&ballast);
    let tried = Instant::now() + Duration::from_secs(3);
    while Instant::now() < tried {
        run_many(&mut client, 1);
    }
    let text = fs::read_to_string(&path).expect("the file");
    assert!(
        !text.contains('\0') && (text.is_empty() || text.ends_with('\n')),
        "{text:?}"
    );
    // There is room again.
    fs::remove_file(&ballast).expect("the ballast can be removed");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&path)
        .expect("the file")
        .contains("LOST #0:lines=")
    {
        assert!(Instant::now() < deadline, "no line says what was lost");
        run_many(&mut client, 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    run_each(&mut client, "SELECT 2, now() AS afterwards");
    let text = report(&mut client, "");
    assert!(
        text.contains("afterwards") && text.contains("lines were lost: No space left on device"),
        "{text}"
    );
    drop(client);
    server.assert_no_crash();
}

/// The folder is listed once, and when there are too many files. Then the oldest ones go.
#[test]
fn many_small_files_cost_little() {
    const MOST: usize = 1_000;
    let mut server = server("trace-many", &[]);
    let folder = folder(&server);
    let begin = "SELECT rowsource_trace_start()";
    run_each(&mut server.connect(), begin);
    let add = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            fs::write(folder.join(format!("{DEAD}_1_{number}.trc")), b"END #0:tim=1\n").expect("a file");
        }
    };
    let count = || fs::read_dir(&folder).expect("the folder").count();
    add(1..2_000);
    let before = count();
    // These sessions do not look at the files of others.
    for _ in 0..5 {
        run_each(&mut server.connect(), begin);
    }
    assert_eq!(count(), before + 5);
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, begin);
    assert!((MOST / 2..MOST).contains(&count()), "{}", count());
    let own: String = value(
        &mut client,
        "SELECT string_agg(file, ',') FROM rowsource_trace_files WHERE is_own",
    );
    assert!(folder.join(&own).exists(), "{own}");
    // A user who may not read the files of others lists only his own.
    run_each(
        &mut client,
        "CREATE ROLE regress_a LOGIN; GRANT EXECUTE ON FUNCTION rowsource_trace_start TO regress_a",
    );
    let mut user = server.try_connect("regress_a").expect("a session");
    run_each(&mut user, begin);
    let files = texts(&mut user, "SELECT is_own::text FROM rowsource_trace_files");
    assert_eq!(files, [[Some("true".to_owned())]]);
    assert!(report(&mut user, "").contains("OVERALL TOTALS"));
    server.assert_no_crash();
}

/// After somebody has emptied the file of a running session, it begins with the next line. If a part of the
/// lines can be written, that part is taken back.
#[test]
fn an_emptied_file_has_whole_lines() {
    let server = server("trace-emptied", &[]);
    let mut client = server.connect();
    let id = pid(&mut client);
    let file: String = value(&mut client, "SELECT rowsource_trace_start()");
    let path = folder(&server).join(&file);
    run_many(&mut client, 50);
    assert!(fs::metadata(&path).expect("the file").len() > 5_000);
    fs::File::create(&path).expect("the file can be emptied");
    run_many(&mut client, 5);
    let text = fs::read_to_string(&path).expect("the file");
    assert!(
        text.starts_with("CLOSE #") || text.starts_with("XCTEND #"),
        "{text}"
    );
    assert!(!text.contains('\0') && text.ends_with('\n'), "{text}");
    // What comes next is described again.
    let (_, again) = text.split_once("TRACE #0:version=").expect("another first line");
    for word in ["PARSING IN CURSOR", "NODE #", "STAT #"] {
        assert!(again.contains(word), "{word} in {again}");
    }
    // The system lets it write 10 bytes more.
    let limit = |bytes: &str| {
        let mut command = environment().as_server(Path::new("/usr/bin/prlimit"));
        command.args([&format!("--pid={id}"), &format!("--fsize={bytes}")]);
        assert!(command.status().expect("prlimit").success());
    };
    fs::File::create(&path).expect("the file can be emptied");
    limit("10:");
    run_many(&mut client, 5);
    assert_eq!(fs::metadata(&path).expect("the file").len(), 0);
    limit("unlimited:");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&path)
        .expect("the file")
        .contains("sql=SELECT")
    {
        assert!(Instant::now() < deadline, "nothing is written");
        run_many(&mut client, 1);
    }
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.starts_with("LOST #0:lines="), "{text}");
    let text = report(&mut client, "");
    assert!(
        text.contains("lines were lost: File too large") && !text.contains("could not be read"),
        "{text}"
    );
    server.assert_no_crash();
}

/// A base backup leaves the files out, and a restart leaves them there.
#[test]
fn base_backups_lack_the_files() {
    let mut server = server("trace-backup", &[]);
    run_each(&mut server.connect(), "SELECT rowsource_trace_start()");
    let files = |server: &Server| fs::read_dir(folder(server)).map_or(0, Iterator::count);
    assert_eq!(files(&server), 1);
    let standby = Server::standby_of(&server, "trace-standby");
    assert_eq!(files(&standby), 0);
    drop(standby);
    server.stop();
    server.launch();
    server.crash_a_backend();
    assert_eq!(files(&server), 1);
}
