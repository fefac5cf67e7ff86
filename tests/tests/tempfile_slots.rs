//! The server's import table: it is patched once, keeps its protection, and works with other libraries that
//! patch it. It is not changed if it is not as expected.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::environment::environment;
use rowsource_tests::process;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::tempfile::{Io, io, io_during, sources};
use std::fs;
use std::process::Command;

const SETTINGS: [&str; 6] = [
    "pg_rowsource.statistics_level = 'basic'",
    "work_mem = '1MB'",
    "temp_buffers = 100",
    "jit = off",
    "max_parallel_workers_per_gather = 0",
    "log_min_messages = 'log'",
];
const SORT: &str = "SELECT count(*) FROM (SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC OFFSET 0) s";
const TABLE: &str =
    "CREATE TEMPORARY TABLE gtt AS SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i";

/// Returns the blocks that core counts for a statement: work files read and written, temporary tables read
/// and written.
fn blocks(client: &mut Client, statement: &str) -> [i64; 4] {
    let plan = texts(
        client,
        &format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}"),
    );
    let plan: String = plan.into_iter().flatten().flatten().collect();
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    [
        "Temp Read Blocks",
        "Temp Written Blocks",
        "Local Read Blocks",
        "Local Written Blocks",
    ]
    .map(|name| plan[0]["Plan"][name].as_i64().expect("a count"))
}

/// Returns the counts that correspond to core's blocks: requests to work files, and blocks of temporary
/// tables.
fn requests(io: &[Io; 2]) -> [i64; 4] {
    [
        io[0].reads().reqs,
        io[0].writes().reqs,
        io[1].reads().bytes / 8192,
        io[1].writes().bytes / 8192,
    ]
}

/// Fails unless the library counts as many requests as core counts blocks.
fn assert_seen(server: &Server, what: &str) {
    let mut client = server.connect();
    let mut observer = server.connect();
    assert_eq!(sources(&mut observer), ["request"], "{what}");
    run_each(&mut client, TABLE);
    run_each(&mut client, "SELECT count(*) FROM gtt");
    for statement in [SORT, "SELECT count(*) FROM gtt"] {
        let mut core = [0; 4];
        let counted = io_during(&mut observer, || core = blocks(&mut client, statement));
        println!("{what}: {core:?}");
        assert!(core[0] > 50 || core[2] > 500, "{what}: {core:?}");
        let [mut counted, core] = [requests(&counted), core];
        // Reads at the end of a work file are requests, but core counts no block for them.
        assert!(
            (core[0]..=core[0] + 10).contains(&counted[0]),
            "{what}: {counted:?}, {core:?}"
        );
        counted[0] = core[0];
        assert_eq!(counted, core, "{what}: {statement}");
    }
}

fn with_libraries(name: &str, libraries: &str) -> Server {
    let mut settings = vec![libraries];
    settings.extend(SETTINGS);
    let server = Server::start(name, &settings);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server
}

#[test]
fn another_library_patched_the_same_slot() {
    let patcher = object("patcher/patcher.c");
    let patcher = patcher.display();
    for (name, libraries) in [
        ("patched-before", format!("{patcher}, pg_rowsource")),
        ("patched-after", format!("pg_rowsource, {patcher}")),
    ] {
        let mut server = with_libraries(name, &format!("shared_preload_libraries = '{libraries}'"));
        let calls = format!(
            "CREATE FUNCTION patcher_calls() RETURNS bigint AS '{patcher}' LANGUAGE c VOLATILE STRICT"
        );
        let mut client = server.connect();
        run_each(&mut client, &calls);
        assert_seen(&server, name);
        let reads = requests(&io_during(&mut server.connect(), || run_each(&mut client, SORT)))[0];
        let seen: i64 = value(&mut client, "SELECT patcher_calls()");
        assert!(
            reads > 50 && seen >= reads,
            "{name}: the other library sees them too: {seen} of {reads}"
        );
        let waits: i64 = value(
            &mut client,
            "SELECT waits FROM pg_stat_rowsource_session_waits WHERE pid = pg_backend_pid() AND lower(wait_event) = 'buffileread'",
        );
        assert_eq!(waits, reads, "{name}: each is a wait");
        drop(client);
        server.crash_a_backend();
        assert_seen(&server, &format!("{name}, after a crash"));
        server.stop();
        server.launch();
        assert_seen(&server, &format!("{name}, after a restart"));
    }
}

/// Returns how each part of the server's program is protected in a process's memory.
fn protections(pid: u32) -> Vec<String> {
    let program = environment().pgbin.join("postgres");
    process::protections(pid, &program)
}

#[test]
fn the_table_is_as_protected_as_before() {
    let with = with_libraries("protected", "shared_preload_libraries = 'pg_rowsource'");
    let without = Server::start("unprotected", &["shared_preload_libraries = ''"]);
    assert_seen(&with, "protected");
    let pid = |server: &Server| value::<i32>(&mut server.connect(), "SELECT pg_backend_pid()");
    for of in [
        |server: &Server| protections(server.postmaster()),
        |server: &Server| {
            let mut client = server.connect();
            let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
            protections(pid as u32)
        },
    ] {
        let (loaded, bare) = (of(&with), of(&without));
        assert!(loaded.len() >= 4, "{loaded:?}");
        assert_eq!(loaded, bare, "the program's memory with and without the library");
    }
    assert!(pid(&with) > 0);
}

/// The server's program without section headers: it runs, but does not say where its import slots are.
#[test]
fn a_program_without_known_import_slots_is_not_changed() {
    let environment = environment();
    let usual = environment.pgbin.join("postgres");
    let program = environment
        .pgbin
        .join(format!("postgres-cut-{}", std::process::id()));
    let mut bytes = fs::read(&usual).expect("the server's program");
    // e_shoff; then e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    fs::write(&program, bytes).expect("a copy");
    assert!(
        Command::new("chmod")
            .arg("755")
            .arg(&program)
            .status()
            .expect("chmod")
            .success()
    );
    let server = Server::of_program("cut", &SETTINGS, &program);
    let _ = fs::remove_file(&program);
    let log = server.log();
    assert_eq!(
        log.matches("pg_rowsource does not time requests to temporary files")
            .count(),
        1,
        "{log}"
    );
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let mut observer = server.connect();
    assert_eq!(sources(&mut observer), ["counter"]);
    assert_falls_back(&server);
    // Requests of parallel workers reach their leader, and count once.
    let parallel = "SELECT count(*) FROM (SELECT * FROM big ORDER BY pad, id DESC OFFSET 1) s";
    run_each(
        &mut client,
        "CREATE TABLE big AS SELECT i AS id, repeat('y', 100) AS pad FROM generate_series(1, 50000) i; ANALYZE big;
         SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0",
    );
    let mut core = [0; 4];
    let counted = io_during(&mut observer, || core = blocks(&mut client, parallel));
    assert!(core[0] > 100, "{core:?}");
    assert_eq!(requests(&counted), core);
}

/// Fails unless the view shows core's counters, as blocks. This is so in a server or session without
/// interposition.
fn assert_falls_back(server: &Server) {
    let mut client = server.connect();
    run_each(&mut client, "LOAD 'pg_rowsource'");
    run_each(&mut client, TABLE);
    run_each(&mut client, "SELECT count(*) FROM gtt");
    for statement in [SORT, "SELECT count(*) FROM gtt"] {
        let before = io(&mut client);
        let core = blocks(&mut client, statement);
        let after = io(&mut client);
        let counted = [after[0].since(&before[0]), after[1].since(&before[1])];
        assert!(core[0] > 50 || core[2] > 500, "{core:?}");
        assert_eq!(requests(&counted), core, "{statement}");
        assert_eq!(counted[0].small_read.bytes, 8192 * core[0]);
    }
    // Without times, and without counts of single requests.
    let timed: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_tempfile_io
         WHERE datname = current_database() AND small_reads > 0
               AND (small_read_time IS NOT NULL OR small_read_mean_time IS NOT NULL OR small_read_max_time IS NOT NULL)",
    );
    assert_eq!(timed, 0);
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_stat_rowsource_tempfile_io_histogram"
        ),
        0
    );
    run_each(&mut client, "SET track_io_timing = on");
    run_each(&mut client, SORT);
    let time: f64 = value(
        &mut client,
        "SELECT small_write_time FROM pg_stat_rowsource_tempfile_io WHERE datname = current_database() AND filetype = 'work file'",
    );
    assert!(time > 0.0, "core's own time");
    run_each(
        &mut client,
        "SELECT rowsource_tempfile_reset(); RESET track_io_timing",
    );
    assert_eq!(requests(&io(&mut client)), [0; 4]);
}

#[test]
fn a_session_that_loads_the_library() {
    let mut settings = vec!["shared_preload_libraries = ''"];
    settings.extend(
        SETTINGS
            .iter()
            .filter(|setting| !setting.starts_with("pg_rowsource")),
    );
    let server = Server::start("loaded", &settings);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let mut client = server.connect();
    assert_eq!(sources(&mut client), ["counter"]);
    assert_falls_back(&server);
    assert!(
        !server.log().contains("does not time"),
        "nothing was tried: {}",
        server.log()
    );
}

#[test]
fn switched_off() {
    let server = with_libraries("off", "shared_preload_libraries = 'pg_rowsource'");
    let mut client = server.connect();
    let mut observer = server.connect();
    run_each(&mut client, "SET pg_rowsource.tempfile_timing = off");
    run_each(&mut client, TABLE);
    let counted = io_during(&mut observer, || {
        run_each(&mut client, SORT);
        run_each(&mut client, "SELECT count(*) FROM gtt");
    });
    assert_eq!(counted, [Io::default(); 2]);
    run_each(&mut client, "RESET pg_rowsource.tempfile_timing");
    let counted = io_during(&mut observer, || run_each(&mut client, SORT));
    assert!(counted[0].small_write.reqs > 50, "{counted:?}");
    run_each(&mut client, "CREATE ROLE regress_user LOGIN");
    let mut user = server.try_connect("regress_user").expect("a session");
    let (code, message) = must_fail(&mut user, "SET pg_rowsource.tempfile_timing = off");
    assert_eq!(code.code(), "42501", "{message}");
}
