//! ALTER EXTENSION UPDATE from every released version gives the same objects as a new CREATE EXTENSION.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{run_each, texts, value};
use std::fs;

/// Returns the versions with a script in the repository: `pg_rowsource--A.sql` installs A, `pg_rowsource--A--B.sql` updates it.
fn installable() -> Vec<String> {
    let mut versions: Vec<String> = fs::read_dir(&environment().root)
        .expect("the checkout")
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("pg_rowsource--")?.strip_suffix(".sql")?;
            (!version.contains("--")).then(|| version.to_string())
        })
        .collect();
    versions.sort();
    versions
}

fn default_version() -> String {
    let control =
        fs::read_to_string(environment().root.join("pg_rowsource.control")).expect("the control file");
    let line = control
        .lines()
        .find(|line| line.starts_with("default_version"))
        .expect("default_version");
    line.split('\'').nth(1).expect("a version").to_string()
}

/// Returns the extension's objects with their definitions and privileges.
fn objects(client: &mut Client) -> Vec<String> {
    let rows = texts(
        client,
        "SELECT pg_describe_object(d.classid, d.objid, 0) || E'\\n' || CASE
                    WHEN p.oid IS NOT NULL
                    THEN pg_get_functiondef(p.oid) || coalesce(p.proacl::text, 'by default') || p.proparallel::text
                    WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) || coalesce(c.relacl::text, 'by default')
                    ELSE '' END
           FROM pg_depend d LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
                LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
          WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
                AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource')
          ORDER BY 1",
    );
    rows.into_iter()
        .map(|row| row[0].clone().expect("a description"))
        .collect()
}

#[test]
fn every_version_updates_to_the_default() {
    let server = Server::preloaded("upgrade", &[]);
    let mut client = server.connect();
    let default = default_version();
    let versions = installable();
    assert!(versions.contains(&"0.1.0".to_string()), "{versions:?}");
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let fresh = objects(&mut client);
    assert!(fresh.len() > 10, "{fresh:#?}");
    run_each(&mut client, "DROP EXTENSION pg_rowsource");
    for version in &versions {
        run_each(
            &mut client,
            &format!("CREATE EXTENSION pg_rowsource VERSION '{version}'"),
        );
        // The current library works with the objects of the old version.
        use_all(&mut client);
        client
            .batch_execute("ALTER EXTENSION pg_rowsource UPDATE")
            .unwrap_or_else(|error| panic!("no way from {version} to {default}: {error:?}"));
        let now: String = value(
            &mut client,
            "SELECT extversion FROM pg_extension WHERE extname = 'pg_rowsource'",
        );
        assert_eq!(now, default, "from {version}");
        assert_eq!(objects(&mut client), fresh, "from {version}");
        use_all(&mut client);
        run_each(&mut client, "DROP EXTENSION pg_rowsource");
    }
    server.assert_no_crash();
}

/// Reads every view and calls every function that the extension has.
fn use_all(client: &mut Client) {
    // The report needs two snapshots.
    run_each(
        client,
        "SELECT count(*) FROM pg_class; SELECT rowsource_snapshot(); SELECT rowsource_snapshot()",
    );
    let readable = texts(
        client,
        "SELECT d.objid::regclass::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
          WHERE d.deptype = 'e' AND d.classid = 'pg_class'::regclass AND relkind IN ('v', 'r')
                AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource')
          UNION ALL
         SELECT proname || '()' FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
          WHERE d.deptype = 'e' AND d.classid = 'pg_proc'::regclass AND pronargs = pronargdefaults
                AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource')",
    );
    assert!(readable.len() >= 8, "{readable:?}");
    // The last statement, for the functions that show it: those above use the extension, so they are not measured.
    run_each(client, "SELECT 1");
    for row in readable {
        let name = row[0].clone().expect("a name");
        run_each(client, &format!("SELECT * FROM {name}"));
    }
}

/// Runs a program of the server on one of its databases, and returns its output.
fn run_program(server: &Server, name: &str, arguments: &[&str]) -> Vec<u8> {
    let environment = environment();
    let output = environment
        .as_server(&environment.pgbin.join(name))
        .args(["-U", "postgres", "-h"])
        .arg(server.folder())
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn the_extension_can_be_moved_and_dumped() {
    let server = Server::preloaded("relocate", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA elsewhere; CREATE EXTENSION pg_rowsource; ALTER EXTENSION pg_rowsource SET SCHEMA elsewhere;
         CREATE TABLE t AS SELECT 1 AS id; SELECT count(*) FROM t; SELECT elsewhere.rowsource_snapshot();
         SELECT count(*) FROM t; SELECT elsewhere.rowsource_snapshot();
         GRANT SELECT ON elsewhere.rowsource_misestimates TO pg_monitor; CREATE DATABASE restored",
    );
    // Functions and views find the extension's other objects there.
    let history = |client: &mut Client| {
        run_each(
            client,
            // The last statement. Those below use the extension, so they are not measured.
            "SELECT count(*) FROM t; SELECT count(*) FROM elsewhere.rowsource_misestimates; SELECT count(*) FROM elsewhere.rowsource_plan_flips;
             SELECT count(*) FROM elsewhere.pg_stat_rowsource; SELECT elsewhere.rowsource_iostat_report();
             SELECT elsewhere.rowsource_display()",
        );
        texts(
            client,
            "SELECT * FROM elsewhere.rowsource_plan_history ORDER BY snap_id, queryid, planid",
        )
    };
    let before = history(&mut client);
    assert!(!before.is_empty(), "the second snapshot has a plan");
    let moved = objects(&mut client);

    let dump = run_program(&server, "pg_dump", &["-d", "postgres"]);
    let text = String::from_utf8_lossy(&dump);
    assert!(
        text.contains("CREATE EXTENSION IF NOT EXISTS pg_rowsource WITH SCHEMA elsewhere"),
        "{text}"
    );
    let file = server.folder().join("dump.sql");
    fs::write(&file, &dump).expect("the dump can be written");
    let file = file.to_string_lossy();
    run_program(
        &server,
        "psql",
        &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f", &file],
    );
    let mut restored = server.try_connect_to("postgres", "restored").expect("a session");
    assert_eq!(history(&mut restored), before);
    assert_eq!(objects(&mut restored), moved);
    // The snapshot numbers continue after those of the dump.
    run_each(
        &mut restored,
        "SELECT elsewhere.rowsource_snapshot(); SELECT elsewhere.rowsource_reset()",
    );
    let last: i64 = value(
        &mut restored,
        "SELECT max(snap_id) FROM elsewhere.rowsource_snapshots",
    );
    assert_eq!(last, 3);
    server.assert_no_crash();
}
