//! pg_upgrade from PostgreSQL 15, with the extension installed and preloaded on both sides.
//! `make test-matrix` runs it on 18. ROWSOURCE_OLD is a folder with the old server's programs, and the
//! libraries of their suite.

use rowsource_tests::environment::environment;
use rowsource_tests::session::{major, run_each, texts, value};
use rowsource_tests::{Server, display};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PRELOAD: &str = "shared_preload_libraries = 'pg_rowsource'";
const BY_INDEX: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE id % 7 = 3 AND id > 5";
const PLANID: &str =
    "SELECT planid FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM t WHERE id %'";
const SAVED: &str = "pg_stat/pg_rowsource.stat";

/// Returns a folder of the old server.
fn old(folder: &str) -> PathBuf {
    let root = std::env::var_os("ROWSOURCE_OLD").expect("ROWSOURCE_OLD is set: run make test-matrix");
    PathBuf::from(root).join(folder)
}

/// Returns a search path that begins with this suite's libraries, so that the old programs take from their
/// own suite only the libraries that are missing here.
fn libraries() -> String {
    let folder = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    format!("/{folder}:{}", old(&folder).display())
}

/// Runs a program as the server's user. Fails unless it succeeds.
fn run(program: &Path, arguments: &[&str], folder: &Path) -> String {
    let output = environment()
        .as_server(program)
        .args(arguments)
        .current_dir(folder)
        .env("LD_LIBRARY_PATH", libraries())
        .output()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{program:?} {arguments:?}\n{said}\n{}",
        upgrade_logs(folder)
    );
    said
}

/// Returns the errors in pg_upgrade's own logs, because its output only names these files.
fn upgrade_logs(folder: &Path) -> String {
    let output = Command::new("grep")
        .args(["-rhE", "-A40", "(error|ERROR|FATAL):"])
        .arg(folder.join("data/pg_upgrade_output.d"))
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn ignored_files(log: &str) -> usize {
    log.matches("pg_rowsource ignores").count()
}

#[test]
fn from_15_with_the_extension_preloaded_needs_old_server() {
    let environment = environment();
    let old_bin = old("usr/lib/postgresql/15/bin");
    // The new server is still empty. The upgraded data is copied over its data.
    let mut new = Server::preloaded("pg-upgrade", &[]);
    new.stop();
    let folder = new.folder().to_path_buf();
    let (old_data, new_data) = (folder.join("old"), folder.join("data"));
    let text = |path: &Path| path.to_string_lossy().into_owned();

    let initdb: Vec<String> = [
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
        "-D",
    ]
    .map(String::from)
    .to_vec();
    let initdb = |program: &Path, data: &Path, more: &[&str]| {
        let data = text(data);
        let mut arguments: Vec<&str> = initdb.iter().map(String::as_str).collect();
        arguments.push(&data);
        arguments.extend(more);
        run(&program.join("initdb"), &arguments, &folder);
    };
    fs::remove_dir_all(&new_data).expect("the empty cluster goes");
    initdb(&old_bin, &old_data, &[]);
    // 18 has checksums by default, 15 does not, and both must agree.
    initdb(&environment.pgbin, &new_data, &["--no-data-checksums"]);
    let conf = format!(
        "{PRELOAD}\nunix_socket_directories = '{}'\nlisten_addresses = ''\n",
        folder.display()
    );
    for data in [&old_data, &new_data] {
        fs::write(data.join("postgresql.auto.conf"), &conf).expect("the configuration can be written");
    }

    // The old server measures, and saves its statistics.
    let (old, log) = (text(&old_data), text(&folder.join("old.log")));
    run(
        &old_bin.join("pg_ctl"),
        &["-D", &old, "-l", &log, "-w", "start"],
        &folder,
    );
    let planid: i64 = {
        let mut client = new.connect();
        assert_eq!(major(&mut client), 15);
        run_each(
            &mut client,
            "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i;
             CREATE VIEW dearest AS SELECT query, total_time FROM pg_stat_rowsource_plans ORDER BY total_time DESC;
             SELECT count(*) FROM t",
        );
        let kept: i64 = value(
            &mut client,
            "SELECT count(*) FROM dearest WHERE query LIKE '%count(*) FROM t%'",
        );
        assert!(kept >= 1);
        run_each(&mut client, "CREATE INDEX ON t ((id % 7)) WHERE id > 5");
        run_each(&mut client, BY_INDEX);
        let snapshot: i64 = value(&mut client, "SELECT rowsource_snapshot()");
        assert_eq!(snapshot, 1);
        value(&mut client, PLANID)
    };
    run(&old_bin.join("pg_ctl"), &["-D", &old, "-w", "stop"], &folder);
    assert!(
        old_data.join(SAVED).exists(),
        "the old server saved its statistics"
    );

    let (old_bin_text, new_bin_text) = (text(&old_bin), text(&environment.pgbin));
    let (new_text, socket) = (text(&new_data), text(&folder));
    run(
        &environment.pgbin.join("pg_upgrade"),
        &[
            "-b",
            &old_bin_text,
            "-B",
            &new_bin_text,
            "-d",
            &old,
            "-D",
            &new_text,
            "-U",
            "postgres",
            "-s",
            &socket,
        ],
        &folder,
    );
    assert!(
        !new_data.join(SAVED).exists(),
        "pg_upgrade's own statements were measured"
    );

    // If an administrator also copies the folder pg_stat, the log has one line, and the statistics are empty.
    fs::create_dir_all(new_data.join("pg_stat")).expect("pg_stat");
    fs::copy(old_data.join(SAVED), new_data.join(SAVED)).expect("the old statistics can be copied");
    let owned = Command::new("chown")
        .arg("postgres:")
        .arg(new_data.join(SAVED))
        .status();
    assert!(!environment.is_root || owned.is_ok_and(|status| status.success()));
    new.clear_log();
    new.launch();
    let mut client = new.connect();
    assert!(major(&mut client) > 15);
    let kept: i64 = value(
        &mut client,
        "SELECT count(*) FROM dearest WHERE query LIKE '%count(*) FROM t%'",
    );
    assert_eq!(kept, 0, "statistics of the old major are dropped");
    assert_eq!(ignored_files(&new.log()), 1, "{}", new.log());
    assert!(
        new.log().contains("it was written by PostgreSQL 15"),
        "{}",
        new.log()
    );

    // The history is kept, and goes on.
    let stored: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshot_plans WHERE snap_id = 1 AND query LIKE '%count(*) FROM t%'",
    );
    assert!(stored > 0);
    let shown: i64 = value(
        &mut client,
        "SELECT count(*) FROM (SELECT queryid, planid FROM rowsource_snapshot_plans
                                WHERE snap_id = 1 AND query LIKE '%count(*) FROM t%' LIMIT 1) p,
                              rowsource_display_snapshot(p.queryid, p.planid, 1)",
    );
    assert!(shown > 5);
    let next: i64 = value(&mut client, "SELECT rowsource_snapshot()");
    assert_eq!(next, 2);

    // The extension, its dependents and the data are there and work.
    run_each(&mut client, "SELECT count(*) FROM t");
    let shown = display(&mut client, "ALLSTATS LAST");
    assert!(shown.contains("Seq Scan") && shown.contains("1000"), "{shown}");
    let kept: i64 = value(
        &mut client,
        "SELECT count(*) FROM dearest WHERE query LIKE '%count(*) FROM t%'",
    );
    assert!(kept >= 1);
    // The plan has the same planid, although its objects have other OIDs.
    run_each(&mut client, BY_INDEX);
    assert_eq!(value::<i64>(&mut client, PLANID), planid);
    let versions = texts(
        &mut client,
        "SELECT extversion, default_version FROM pg_extension JOIN pg_available_extensions ON name = extname
         WHERE extname = 'pg_rowsource'",
    );
    assert_eq!(versions[0][0], versions[0][1]);
    drop(client);
    new.stop();
    new.launch();
    assert_eq!(
        ignored_files(&new.log()),
        1,
        "the old file no longer exists: {}",
        new.log()
    );
}
