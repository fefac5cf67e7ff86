//! Plans survive a clean restart with `save`, but not without it, and not a crash. A damaged file only costs
//! one line in the log.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::attack::wait_until;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::store::{basic_server, everything, info, kept, measured, only_kept};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const STATEMENT: &str = "SELECT count(pad) FROM t WHERE id > 5";

fn server_with_plans(name: &str) -> Server {
    let server = basic_server(name, &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id, 'x'::text AS pad FROM generate_series(1, 1000) i; VACUUM ANALYZE t",
    );
    measured(
        &mut client,
        &format!("{STATEMENT}; {STATEMENT}; SELECT min(id), 'größer' FROM t; SELECT 1"),
    );
    let _ = client
        .batch_execute("SET pg_rowsource.statistics_level = 'typical'; SELECT sum(1 / (id - 9)) FROM t");
    server.clear_log();
    server
}

fn file(server: &Server) -> PathBuf {
    server.data().join("pg_stat/pg_rowsource.stat")
}

/// Returns the library's files of statistics in the data folder, without that of the samples, which the
/// worker reads when it starts (`ash_tiers`).
fn files(server: &Server) -> Vec<String> {
    let folder = fs::read_dir(server.data().join("pg_stat")).expect("pg_stat");
    let mut names: Vec<String> = folder
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            name.contains("rowsource") && name != "pg_rowsource_database" && name != "pg_rowsource_ash.stat"
        })
        .collect();
    names.sort();
    names
}

/// The files that a clean stop leaves: the plans, and the counters of temporary files.
const SAVED: [&str; 2] = ["pg_rowsource.stat", "pg_rowsource_tempfile.stat"];

/// Fails unless the store is empty and measuring works.
fn assert_starts_empty(client: &mut Client) {
    assert_eq!(info(client, "plans"), 0);
    assert_eq!(kept(client, "%"), []);
    measured(client, STATEMENT);
    assert_eq!(only_kept(client, STATEMENT).calls, 1);
}

#[test]
fn a_clean_restart_keeps_everything() {
    let mut server = server_with_plans("kept");
    let mut client = server.connect();
    let before = everything(&mut client);
    let reset_at: String = value(&mut client, "SELECT stats_reset::text FROM rowsource_info()");
    let bytes = info(&mut client, "bytes");
    assert_eq!(info(&mut client, "plans"), 4);
    drop(client);
    for round in 0..2 {
        server.stop();
        assert_eq!(files(&server), SAVED);
        server.clear_log();
        server.launch();
        let mut client = server.connect();
        assert_eq!(everything(&mut client), before, "restart {round}");
        assert_eq!(info(&mut client, "bytes"), bytes);
        let now: String = value(&mut client, "SELECT stats_reset::text FROM rowsource_info()");
        assert_eq!(now, reset_at);
        assert_eq!(files(&server), Vec::<String>::new(), "read once");
        assert_eq!(server.log_of_library(), Vec::<String>::new());
    }
    let mut client = server.connect();
    measured(&mut client, STATEMENT);
    assert_eq!(only_kept(&mut client, STATEMENT).calls, 3);
}

#[test]
fn plans_survive_two_restarts_without_a_reader_between() {
    let mut server = server_with_plans("not-looked");
    let before = everything(&mut server.connect());
    for _ in 0..3 {
        server.stop();
        server.launch();
    }
    assert_eq!(everything(&mut server.connect()), before);
}

#[test]
fn without_save_nothing_is_kept() {
    let mut server = server_with_plans("not-saved");
    run_each(
        &mut server.connect(),
        "ALTER SYSTEM SET pg_rowsource.save = off; SELECT pg_reload_conf()",
    );
    // The postmaster, which would save the plans, says so.
    wait_until("the setting is read", Duration::from_secs(60), || {
        server
            .log()
            .contains("parameter \"pg_rowsource.save\" changed to \"off\"")
    });
    server.configure("pg_rowsource.save = off");
    server.stop();
    assert_eq!(files(&server), Vec::<String>::new());
    server.launch();
    assert_starts_empty(&mut server.connect());
    server.stop();
    assert_eq!(files(&server), Vec::<String>::new());
}

#[test]
fn plans_from_before_save_was_off_do_not_come_back() {
    let mut server = server_with_plans("revived");
    server.stop();
    server.configure("pg_rowsource.save = off");
    server.launch();
    assert_starts_empty(&mut server.connect());
    server.stop();
    server.configure("pg_rowsource.save = on");
    server.launch();
    assert_starts_empty(&mut server.connect());
}

#[test]
fn a_smaller_store_keeps_the_plans_used_last() {
    let mut server = basic_server("smaller", &["pg_rowsource.max_plans = 1000"]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE TABLE t AS SELECT 1 AS id");
    let statement = |i: usize| format!("SELECT {} 'plan {i:03}' FROM t", "id, ".repeat(i));
    let all: Vec<String> = (1..=150).map(statement).collect();
    measured(&mut client, &all.join(";"));
    // Plans that took less than a millisecond are worth the same. One that a busy machine delayed is worth
    // more, and may stay.
    let quick: Vec<&String> = all
        .iter()
        .filter(|statement| only_kept(&mut client, statement).total_time < 1.0)
        .collect();
    println!("{} of {} plans took less than 1 ms", quick.len(), all.len());
    assert!(quick.len() > 50, "{} of {} plans", quick.len(), all.len());
    drop(client);
    server.stop();
    server.configure("pg_rowsource.max_plans = 100");
    server.launch();
    let mut client = server.connect();
    assert_eq!(info(&mut client, "plans"), 100);
    let is_kept: Vec<bool> = quick
        .iter()
        .map(|statement| kept(&mut client, statement).len() == 1)
        .collect();
    // Of the quick ones the newest are kept. Each slow one takes the room of one at most.
    let first = is_kept
        .iter()
        .position(|&kept| kept)
        .expect("a quick plan is kept");
    assert!(
        first > 0 && is_kept[first..].iter().all(|&kept| kept),
        "{is_kept:?}"
    );
    let slow = all.len() - quick.len();
    assert!(is_kept.len() - first >= 100 - slow, "{is_kept:?}");
}

#[test]
fn after_the_postmaster_was_killed_it_starts_empty() {
    let mut server = server_with_plans("killed");
    server.kill();
    server.clear_log();
    server.launch();
    assert_starts_empty(&mut server.connect());
    assert_eq!(server.log_of_library(), Vec::<String>::new());
    // The same after a clean restart before the crash.
    server.stop();
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 1);
    server.kill();
    server.launch();
    assert_starts_empty(&mut server.connect());
}

#[test]
fn after_a_backend_crashed_it_starts_empty() {
    let mut server = server_with_plans("crashed");
    for _ in 0..2 {
        server.crash_a_backend();
        let mut client = server.connect();
        assert_starts_empty(&mut client);
        assert_eq!(files(&server), Vec::<String>::new());
    }
    assert_eq!(server.log_of_library(), Vec::<String>::new());
    // A clean restart keeps the plans from after the crash.
    let before = everything(&mut server.connect());
    server.stop();
    server.launch();
    assert_eq!(everything(&mut server.connect()), before);
}

#[test]
fn an_immediate_shutdown_keeps_nothing() {
    let mut server = server_with_plans("immediate");
    server.stopped_by("QUIT");
    assert_eq!(files(&server), Vec::<String>::new());
    server.clear_log();
    server.launch();
    assert_starts_empty(&mut server.connect());
}

#[test]
fn an_immediate_shutdown_under_load_does_not_panic() {
    let mut server = server_with_plans("busy-end");
    // A large plan, so that the store's locks are held for a long time when all backends end at once.
    let prepared = format!(
        "PREPARE p AS {}",
        vec!["SELECT count(*)"; 480].join(" UNION ALL ")
    );
    for round in 0..6 {
        let runners: Vec<_> = (0..6)
            .map(|_| {
                let mut client = rowsource_tests::store::measuring(&server);
                client.batch_execute(&prepared).expect("PREPARE");
                std::thread::spawn(move || while client.batch_execute("EXECUTE p").is_ok() {})
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(200));
        server.signal("QUIT");
        for runner in runners {
            runner.join().expect("a session");
        }
        server.stop();
        let log = server.log();
        assert!(
            !log.contains("PANIC") && !log.contains("terminated by signal"),
            "round {round}: {log}"
        );
        server.launch();
    }
}

/// Computes CRC-32 as zlib does.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (!(crc & 1)).wrapping_add(1))
        })
    })
}

#[test]
fn a_bad_file_costs_one_line() {
    const HEADER: usize = 12;
    let mut server = server_with_plans("bad-file");
    server.stop();
    let good = fs::read(file(&server)).expect("the file");
    let (before, checksum) = good.split_at(good.len() - 4);
    assert_eq!(
        checksum,
        crc32(before).to_le_bytes(),
        "the file is as this test believes"
    );
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    // A correct checksum of an invalid body.
    let with_body = |body: &[u8]| {
        let mut bytes = good[..HEADER].to_vec();
        bytes.extend(body);
        bytes.extend(crc32(&bytes).to_le_bytes());
        bytes
    };
    let mut trailing = good.clone();
    trailing.push(0);
    let bad: [(&str, Vec<u8>); 12] = [
        ("empty", Vec::new()),
        ("a part of the header", good[..10].to_vec()),
        ("the header", good[..HEADER].to_vec()),
        ("half", good[..good.len() / 2].to_vec()),
        ("one byte short", good[..good.len() - 1].to_vec()),
        ("one byte long", trailing),
        ("a byte of the body", flipped(good.len() / 2)),
        ("another format", flipped(7)),
        ("another PostgreSQL", flipped(8)),
        ("another checksum", flipped(good.len() - 1)),
        ("noise of huge lengths", with_body(&[0xFF; 64])),
        ("half a body", with_body(&good[HEADER..good.len() / 2])),
    ];
    for (what, bytes) in bad {
        fs::write(file(&server), bytes).expect("the file can be written");
        server.clear_log();
        server.launch();
        assert_starts_empty(&mut server.connect());
        let lines = server.log_of_library();
        assert!(
            lines.len() == 1 && lines[0].contains("LOG:") && lines[0].contains("pg_stat/pg_rowsource.stat"),
            "{what}: {lines:#?}"
        );
        server.stop();
        assert_eq!(files(&server), SAVED, "{what}");
    }
    server.launch();
    assert_eq!(only_kept(&mut server.connect(), STATEMENT).calls, 1);
}

#[test]
fn a_file_that_cannot_be_written_delays_nothing() {
    let mut server = server_with_plans("unwritable");
    let temporary = server.data().join("pg_stat/pg_rowsource.stat.tmp");
    fs::create_dir(&temporary).expect("a folder in its place");
    server.clear_log();
    server.stop();
    let lines = server.log_of_library();
    assert!(lines.len() == 1 && lines[0].contains("LOG:"), "{lines:#?}");
    assert!(server.log().contains("database system is shut down"));
    fs::remove_dir(&temporary).expect("it goes");
    // A file that an earlier attempt left does no harm.
    fs::write(&temporary, "rest").expect("a rest");
    let owner = std::process::Command::new("chown")
        .arg(format!("--reference={}", server.data().display()))
        .arg(&temporary)
        .status();
    assert!(owner.expect("chown").success());
    server.clear_log();
    server.launch();
    assert_starts_empty(&mut server.connect());
    server.stop();
    assert_eq!(files(&server), SAVED);
    assert_eq!(server.log_of_library(), Vec::<String>::new());
}
