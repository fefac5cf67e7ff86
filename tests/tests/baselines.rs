//! Baselines keep their snapshots, and the history can be carried to another server.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{must_fail, run_each, texts, value};

const SETTINGS: [&str; 2] = ["autovacuum = off", "pg_rowsource.snapshot_interval = 0"];

fn column(client: &mut Client, sql: &str) -> Vec<String> {
    texts(client, sql).into_iter().flatten().flatten().collect()
}

/// Returns a query of these tables, each in place of %.
fn counts(of: &str) -> String {
    [
        "rowsource_baselines",
        "rowsource_snapshots",
        "rowsource_snapshot_waits",
        "rowsource_snapshot_ash",
        "rowsource_snapshot_plans",
    ]
    .map(|table| of.replace("%", table))
    .join(" UNION ALL ")
}

fn wrong_baselines(client: &mut Client) {
    for (call, code, said) in [
        (
            "rowsource_baseline('quiet', '1 h')",
            "42710",
            "there is a baseline \"quiet\" already",
        ),
        ("rowsource_baseline('', '1 h')", "42602", "needs a name"),
        ("rowsource_baseline(NULL, '1 h')", "42602", "needs a name"),
        (
            "rowsource_baseline(repeat('x', 300), '1 h')",
            "42622",
            "300 bytes",
        ),
        (
            "rowsource_baseline('old', '2 days', '1 day')",
            "55000",
            "no snapshot is of this interval",
        ),
        (
            "rowsource_baseline_drop('none')",
            "42704",
            "there is no baseline \"none\"",
        ),
    ] {
        let (found, message) = must_fail(client, &format!("SELECT {call}"));
        assert_eq!(found.code(), code, "{call}: {message}");
        assert!(message.contains(said), "{call}: {message}");
    }
}

fn wrong_lines(there: &mut Client) {
    for (line, said) in [
        (
            "nonsense",
            "the line that begins with \"nonsense\" is no exported line",
        ),
        ("{}", "is no exported line"),
        (r#"{"rowsource_export": 2, "line": 7}"#, "line 7 has the format 2"),
        (r#"{"rowsource_export": 1, "line": 7}"#, "line 7 has no origin"),
        (
            r#"{"rowsource_export": 1, "line": 7, "origin": "1", "table": "pg_authid", "row": {}}"#,
            "line 7 is a row of \"pg_authid\", which is no table of the history",
        ),
        (
            r#"{"rowsource_export": 1, "line": 7, "origin": "1", "table": "rowsource_snapshots", "row": 3}"#,
            "line 7 has no row",
        ),
    ] {
        let (code, message) = must_fail(there, &format!("SELECT rowsource_import('{line}')"));
        assert_eq!(code.code(), "22P02", "{line}: {message}");
        assert!(
            message.contains(said) && message.contains("\\copy"),
            "{line}: {message}"
        );
    }
    let wrong = r#"{"rowsource_export": 1, "line": 7, "origin": "1", "table": "rowsource_snapshots", "row": {"taken_at": "never"}}"#;
    let (code, message) = must_fail(there, &format!("SELECT rowsource_import('{wrong}')"));
    assert_eq!(code.code(), "22007", "{message}");
}

#[test]
fn a_baseline_keeps_its_snapshots_as_they_are() {
    let server = Server::preloaded("baselines", &SETTINGS);
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; SELECT pg_sleep(0.3); SET pg_rowsource.statistics_level = basic",
    );
    // Without a snapshot at its end, one is taken.
    run_each(
        &mut client,
        "SELECT rowsource_snapshot(); SELECT rowsource_snapshot(); SELECT rowsource_snapshot()",
    );
    run_each(
        &mut client,
        "SELECT rowsource_baseline('quiet', (SELECT taken_at FROM rowsource_snapshots WHERE snap_id = 2)::text)",
    );
    let kept = "SELECT snap_id FROM rowsource_snapshots WHERE is_kept ORDER BY 1";
    assert_eq!(column(&mut client, kept), ["2", "3", "4"]);
    let baselines = "SELECT name FROM rowsource_baselines b
        WHERE (from_at, to_at) = (SELECT min(taken_at), max(taken_at) FROM rowsource_snapshots WHERE is_kept)";
    assert_eq!(column(&mut client, baselines), ["quiet"]);

    wrong_baselines(&mut client);
    // A month later all others are gone, and nothing of these is thinned.
    let samples = "SELECT count(*) FROM rowsource_snapshot_ash a JOIN rowsource_snapshots s USING (snap_id) WHERE is_kept";
    let before: i64 = value(&mut client, samples);
    run_each(
        &mut client,
        "UPDATE rowsource_snapshots SET taken_at = taken_at - interval '30 days';
         UPDATE rowsource_baselines SET from_at = from_at - interval '30 days', to_at = to_at - interval '30 days'",
    );
    for _ in 0..4 {
        run_each(&mut client, "SELECT rowsource_snapshot()");
    }
    assert_eq!(column(&mut client, kept), ["2", "3", "4"]);
    assert_eq!(value::<i64>(&mut client, samples), before);
    let thinned: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshots WHERE is_thinned OR snap_id = 1",
    );
    assert_eq!(thinned, 0);

    // Nor does the limit of the size take them.
    run_each(
        &mut client,
        "ALTER SYSTEM SET pg_rowsource.snapshot_max_size = '1MB'; SELECT pg_reload_conf();
         UPDATE rowsource_snapshots SET bytes = 1000000 WHERE is_kept",
    );
    rowsource_tests::waiting::until(
        &mut client,
        "SELECT current_setting('pg_rowsource.snapshot_max_size') = '1MB'",
    );
    run_each(&mut client, "SELECT rowsource_snapshot()");
    assert_eq!(column(&mut client, kept), ["2", "3", "4"]);
    let others: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshots WHERE NOT is_kept",
    );
    assert_eq!(others, 1, "the newest");
    let (code, message) = must_fail(&mut client, "SELECT rowsource_baseline('more', '1 h')");
    assert_eq!(code.code(), "53400", "{message}");

    // Without the name, they go as all others.
    run_each(
        &mut client,
        "SELECT rowsource_baseline_drop('quiet'); SELECT rowsource_snapshot()",
    );
    assert_eq!(column(&mut client, kept), Vec::<String>::new());
    let old: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_snapshots WHERE snap_id IN (2, 3, 4)",
    );
    assert_eq!(old, 0);
}

#[test]
fn the_history_is_carried_to_another_server() {
    let server = Server::preloaded("export-from", &SETTINGS);
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE ROLE ada; GRANT pg_read_all_stats TO ada; CREATE TABLE \"odd \\ name\" AS SELECT 1 AS i;
         SET pg_rowsource.statistics_level = typical; SELECT pg_sleep(0.3) FROM \"odd \\ name\";
         SET pg_rowsource.statistics_level = basic; SELECT rowsource_snapshot(); SELECT rowsource_snapshot();
         SELECT rowsource_baseline('week', '1 h')",
    );
    let lines = column(&mut client, "SELECT rowsource_export()");
    assert!(lines.len() > 20, "{} lines", lines.len());
    // No more is needed than to read.
    run_each(
        &mut client,
        "SET ROLE ada; SELECT count(*) FROM rowsource_export(); RESET ROLE",
    );
    // COPY carries it, whatever is in it.
    run_each(&mut client, "CREATE TABLE copied (line text)");
    let mut text = Vec::new();
    std::io::Read::read_to_end(
        &mut client
            .copy_out("COPY (SELECT rowsource_export()) TO STDOUT")
            .expect("COPY"),
        &mut text,
    )
    .expect("its rows");

    let other = Server::preloaded("export-to", &SETTINGS);
    let mut there = other.session();
    run_each(
        &mut there,
        "CREATE TEMP TABLE lines (line text); SELECT rowsource_snapshot()",
    );
    let mut writer = there.copy_in("COPY lines FROM STDIN").expect("COPY");
    std::io::Write::write_all(&mut writer, &text).expect("its rows");
    assert_eq!(writer.finish().expect("its end"), lines.len() as u64);
    let import = "SELECT count(*) FILTER (WHERE rowsource_import(line)) FROM lines";
    assert_eq!(value::<i64>(&mut there, import), lines.len() as i64);
    assert_eq!(value::<i64>(&mut there, import), 0, "each row once");
    let here = counts("SELECT count(*)::text FROM %");
    let imported = counts("SELECT count(*)::text FROM rowsource_imported WHERE table_name = '%'");
    assert_eq!(column(&mut there, &imported), column(&mut client, &here));
    // It has its origin, and rows as they were.
    let origin: String = value(
        &mut client,
        "SELECT system_identifier::text FROM pg_control_system()",
    );
    assert_eq!(
        column(&mut there, "SELECT DISTINCT origin FROM rowsource_imported"),
        [origin]
    );
    let plans = "SELECT p.query, p.calls, p.statistics::text FROM % p ORDER BY 1, 2, 3";
    assert_eq!(
        texts(
            &mut there,
            &plans.replace(
                "%",
                "(SELECT (jsonb_populate_record(NULL::rowsource_snapshot_plans, content)).*
                    FROM rowsource_imported WHERE table_name = 'rowsource_snapshot_plans')"
            )
        ),
        texts(&mut client, &plans.replace("%", "rowsource_snapshot_plans"))
    );
    // The own history has nothing of it.
    assert_eq!(
        value::<i64>(&mut there, "SELECT count(*) FROM rowsource_snapshots"),
        1
    );

    wrong_lines(&mut there);
}

/// One setting names roles and databases of which samples and snapshots have nothing.
#[test]
fn what_is_excluded_is_in_no_history() {
    let server = Server::preloaded(
        "excluded",
        &[
            "autovacuum = off",
            "pg_rowsource.snapshot_interval = 0",
            "pg_rowsource.history_exclude = 'role:batch, database:other, role:nobody'",
            "work_mem = '64kB'",
        ],
    );
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = typical; CREATE ROLE batch LOGIN; CREATE DATABASE other",
    );
    let write = "SELECT count(*) FROM (SELECT i FROM generate_series(1, 30000) i ORDER BY i DESC OFFSET 0) x";
    let mut sessions = [
        server.try_connect("batch").expect("a session"),
        server.try_connect_to("postgres", "other").expect("a session"),
    ];
    // The worker knows new names ten seconds later at the latest.
    for session in &mut sessions {
        run_each(session, write);
        run_each(session, "SET application_name = 'late'; SELECT pg_sleep(11)");
        run_each(session, "SET application_name = 'excluded'; SELECT pg_sleep(1)");
    }
    // A statement is of the role that it runs as.
    run_each(
        &mut server.connect(),
        "SET ROLE batch; SET application_name = 'as batch'; SELECT pg_sleep(1)",
    );
    run_each(&mut client, write);
    run_each(
        &mut client,
        "SET application_name = 'included'; SELECT pg_sleep(1)",
    );
    run_each(
        &mut client,
        "SET pg_rowsource.statistics_level = basic; SELECT rowsource_snapshot()",
    );
    let counts = "SELECT count(*) FILTER (WHERE application_name = 'included') > 0, count(*) FILTER (WHERE application_name = 'excluded' OR application_name = 'as batch' AND planid IS NOT NULL)
                    FROM rowsource_ash";
    assert_eq!(
        texts(&mut client, counts),
        [[Some("t".to_owned()), Some("0".to_owned())]]
    );
    for of in [
        "rowsource_snapshot_plans WHERE userid = 'batch'::regrole OR datid = (SELECT oid FROM pg_database WHERE datname = 'other')",
        "rowsource_snapshot_tempfile_io WHERE datname = 'other'",
        "rowsource_snapshot_descriptions WHERE userid = 'batch'::regrole",
    ] {
        assert_eq!(
            value::<i64>(&mut client, &format!("SELECT count(*) FROM {of}")),
            0,
            "{of}"
        );
    }
    let plans: i64 = value(&mut client, "SELECT count(*) FROM rowsource_snapshot_plans");
    assert!(plans > 0);

    // Names that nobody has are allowed, entries that name nothing are not.
    let set = |list: &str| format!("ALTER SYSTEM SET pg_rowsource.history_exclude = '{list}'");
    for list in ["", "role:x", " role: x ,database:y", "role:with space,role:ü"] {
        run_each(&mut client, &set(list));
    }
    for (list, entry) in [
        ("batch", "batch"),
        ("role:a, Role:b", "Role:b"),
        ("role:a,", ""),
        ("database: ", "database:"),
    ] {
        let (code, message) = must_fail(&mut client, &set(list));
        assert_eq!(code.code(), "22023", "{list}: {message}");
        let said = format!(
            "\"{entry}\" is neither a role nor a database HINT: Write a list like 'role:batch, database:test'."
        );
        assert_eq!(message, said, "{list}");
    }
}
