//! ALTER EXTENSION UPDATE keeps what users have. From every released version it gives the same objects as a
//! new CREATE EXTENSION.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use std::fs;

/// Returns the versions with a script in the repository: `pg_rowsource--A.sql` installs A,
/// `pg_rowsource--A--B.sql` updates it.
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

/// Returns the extension's objects with their definitions, columns, privileges, comments and dependencies,
/// and the tables whose rows pg_dump dumps.
fn objects(client: &mut Client) -> Vec<String> {
    let rows = texts(
        client,
        "WITH extension AS (SELECT oid, extconfig, extcondition FROM pg_extension WHERE extname = 'pg_rowsource')
         SELECT concat_ws(E'\n', pg_describe_object(d.classid, d.objid, 0),
                    CASE WHEN p.oid IS NOT NULL
                         THEN pg_get_functiondef(p.oid) || coalesce(p.proacl::text, 'by default') || p.proparallel::text
                         WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
                    'privileges: ' || c.relacl::text,
                    'options: ' || c.reloptions::text,
                    'comment: ' || obj_description(d.objid, d.classid::regclass::text::name),
                    (SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull,
                                                 pg_get_expr(adbin, adrelid), col_description(c.oid, attnum)), E'\n' ORDER BY attnum)
                       FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                      WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
                    (SELECT string_agg(pg_get_constraintdef(oid), E'\n' ORDER BY conname) FROM pg_constraint WHERE conrelid = c.oid),
                    (SELECT string_agg(pg_get_indexdef(indexrelid), E'\n' ORDER BY indexrelid::regclass::text)
                       FROM pg_index WHERE indrelid = c.oid),
                    (SELECT string_agg(DISTINCT 'needs ' || pg_describe_object(n.refclassid, n.refobjid, n.refobjsubid) || n.deptype::text,
                                       E'\n') FROM pg_depend n WHERE n.classid = d.classid AND n.objid = d.objid))
           FROM pg_depend d LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
                LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
          WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM extension)
          UNION ALL
         SELECT 'dumped: ' || dumped.relid::regclass::text || ' ' || dumped.condition
           FROM extension, unnest(extconfig, extcondition) AS dumped (relid, condition)
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
    assert!(versions.contains(&default), "{versions:?}");
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
    // The last statement, for the functions that show it or its slowest execution: those above use the
    // extension, so they are not measured.
    run_each(
        client,
        "SET pg_rowsource.keep_constants = on; SELECT pg_sleep(0.002)",
    );
    for row in readable {
        let name = row[0].clone().expect("a name");
        run_each(client, &format!("SELECT * FROM {name}"));
    }
}

/// Returns what the history has: the rows of its tables, and what its functions show of a snapshot.
fn history(client: &mut Client) -> Vec<Vec<Option<String>>> {
    let tables = texts(
        client,
        "SELECT objid::regclass::text FROM pg_depend JOIN pg_class c ON c.oid = objid AND c.relkind IN ('r', 'S')
          WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_extension'::regclass AND deptype = 'e' ORDER BY 1",
    );
    let mut rows = Vec::new();
    for table in tables {
        let name = table[0].clone().expect("a name");
        // What an earlier version has no column for is NULL.
        rows.extend(texts(
            client,
            &format!(
                "SELECT '{name}', jsonb_strip_nulls(to_jsonb(t)) FROM (SELECT * FROM {name}) t ORDER BY 2"
            ),
        ));
    }
    rows.extend(texts(
        client,
        "SELECT rowsource_display_snapshot(queryid, planid, snap_id) FROM rowsource_interval_plans WHERE snap_id > 0 ORDER BY snap_id, queryid, planid",
    ));
    rows
}

/// What the update script of a next version may do.
const NEXT: &str = "
ALTER TABLE rowsource_snapshots ADD COLUMN made_up int;
DROP FUNCTION rowsource_ash_start();
CREATE FUNCTION rowsource_ash_start() RETURNS int
AS 'MODULE_PATHNAME', 'rowsource_ash_start_0_2'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION rowsource_made_up() RETURNS int LANGUAGE SQL RETURN 1;
COMMENT ON VIEW pg_stat_rowsource_plans IS 'made up';
";

#[test]
fn what_users_have_survives_an_update() {
    let server = Server::preloaded("upgrade-history", &[]);
    let mut client = server.connect();
    let (folder, default): (String, _) = (
        value(
            &mut client,
            "SELECT setting FROM pg_config WHERE name = 'SHAREDIR'",
        ),
        default_version(),
    );
    let script = format!("{folder}/extension/pg_rowsource--{default}--{default}next.sql");
    fs::write(&script, NEXT).expect("a script");
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i;
         CREATE ROLE reader; GRANT SELECT ON pg_stat_rowsource_plans TO reader;
         CREATE VIEW dearest AS SELECT query, total_time FROM pg_stat_rowsource_plans ORDER BY total_time DESC;
         SELECT rowsource_snapshot(); SELECT count(*) FROM t; SELECT rowsource_snapshot();
         SELECT count(*) FROM t WHERE id > 7",
    );
    let shown = |client: &mut Client| {
        run_each(client, "SELECT count(*) FROM t WHERE id > 7");
        // The lines above the table count executions.
        texts(client, "SELECT rowsource_display(format => 'BASIC')").split_off(3)
    };
    let (kept, plan) = (history(&mut client), shown(&mut client));
    let has_scan = |rows: &[Vec<Option<String>>]| {
        rows.iter()
            .flatten()
            .flatten()
            .any(|text| text.contains("| Seq Scan") || text.contains("|  Seq Scan"))
    };
    assert!(has_scan(&kept) && has_scan(&plan), "{kept:#?} {plan:#?}");

    run_each(
        &mut client,
        &format!("ALTER EXTENSION pg_rowsource UPDATE TO '{default}next'"),
    );
    fs::remove_file(&script).expect("the script");
    // The same session goes on, and so does a new one. What others made of the extension's objects is still
    // there.
    for mut client in [client, server.connect()] {
        assert_eq!(history(&mut client), kept);
        assert_eq!(shown(&mut client), plan);
        let dearest: i64 = value(
            &mut client,
            "SELECT count(*) FROM dearest WHERE query LIKE '%FROM t WHERE%'",
        );
        assert_eq!(dearest, 1);
        let may_read: bool = value(
            &mut client,
            "SELECT has_table_privilege('reader', 'pg_stat_rowsource_plans', 'SELECT')",
        );
        assert!(may_read);
    }
    let mut client = server.connect();
    use_all(&mut client);
    let made: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_proc'::regclass AND objid = 'rowsource_made_up'::regproc",
    );
    assert_eq!(made, 1);
    server.assert_no_crash();
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

/// Runs a dump in the database `restored`, and returns a session there.
fn restored(server: &Server, dump: &[u8]) -> Client {
    let file = server.folder().join("dump.sql");
    fs::write(&file, dump).expect("the dump can be written");
    let file = file.to_string_lossy();
    run_program(
        server,
        "psql",
        &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f", &file],
    );
    server.try_connect_to("postgres", "restored").expect("a session")
}

#[test]
fn the_extension_can_be_in_any_schema_and_is_dumped() {
    let server = Server::preloaded("elsewhere", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE SCHEMA elsewhere; CREATE EXTENSION pg_rowsource SCHEMA elsewhere;
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
             SELECT count(*) FROM elsewhere.pg_stat_rowsource; SELECT elsewhere.rowsource_tempfile_report();
             SELECT elsewhere.rowsource_display()",
        );
        texts(
            client,
            "SELECT * FROM elsewhere.rowsource_interval_plans ORDER BY snap_id, queryid, planid",
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
    let mut restored = restored(&server, &dump);
    let kept: i64 = value(
        &mut restored,
        "SELECT count(*) FROM elsewhere.rowsource_snapshots",
    );
    assert_eq!(kept, 0, "a dump has no snapshots");
    assert_eq!(objects(&mut restored), moved);
    run_each(
        &mut restored,
        "SELECT elsewhere.rowsource_snapshot(); SELECT elsewhere.rowsource_reset()",
    );
    server.assert_no_crash();
    let of_another = "INSERT INTO elsewhere.rowsource_snapshots (format_version) VALUES (0)";
    let (_, message) = must_fail(&mut restored, of_another);
    assert!(message.contains("snapshot_of_this_version"), "{message}");
}
