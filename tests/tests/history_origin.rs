//! The history of another server is read with the functions of one's own, and never mixed with it.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::worker;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::waiting::until;

const SETTINGS: [&str; 3] = [
    "autovacuum = off",
    "pg_rowsource.snapshot_interval = 0",
    "work_mem = '64kB'",
];

fn lines(client: &mut Client, sql: &str) -> Vec<String> {
    texts(client, sql).into_iter().flatten().flatten().collect()
}

/// A role that sleeps, sorts, waits for a lock and takes snapshots.
fn work(server: &Server, observer: &mut Client, role: &str) {
    worker(observer);
    run_each(
        observer,
        &format!(
            "CREATE ROLE {role} LOGIN; CREATE TABLE t AS SELECT 1 AS id; GRANT SELECT ON t TO {role}; SELECT rowsource_snapshot()"
        ),
    );
    let session = || server.try_connect(role).expect("a session");
    run_each(observer, "BEGIN; LOCK TABLE t");
    let waiting = Busy::run(session(), "SELECT id FROM t");
    let mut client = session();
    run_each(
        &mut client,
        &format!(
            "SET application_name = 'of {role}'; SELECT count(*) FROM (SELECT i FROM generate_series(1, 30000) i ORDER BY i DESC OFFSET 0) s;
             SELECT pg_sleep(0.5)"
        ),
    );
    until(
        observer,
        "SELECT coalesce(sum(wait_time), 0) > 200 FROM rowsource_blockers('1 min') WHERE depth = 1",
    );
    run_each(observer, "COMMIT");
    waiting.join();
    run_each(observer, "SELECT rowsource_snapshot()");
    run_each(
        &mut client,
        "SELECT count(*) FROM (SELECT i FROM generate_series(1, 30000) i ORDER BY i DESC OFFSET 0) s; SELECT pg_sleep(0.2)",
    );
    run_each(observer, "SELECT rowsource_snapshot()");
}

#[test]
fn an_imported_history_is_read_as_ones_own() {
    let server = Server::preloaded("origin-from", &SETTINGS);
    let mut here = server.session();
    work(&server, &mut here, "clerk");
    let exported = lines(&mut here, "SELECT rowsource_export()");
    let origin: String = value(
        &mut here,
        "SELECT system_identifier::text FROM pg_control_system()",
    );
    let ends = "SELECT format('%L, %L', min(taken_at), max(taken_at)) FROM rowsource_snapshots";
    let ends: String = value(&mut here, ends);

    // The numbers of roles, statements and snapshots are those of another server, too.
    let other = Server::preloaded("origin-to", &SETTINGS);
    let mut there = other.session();
    work(&other, &mut there, "stranger");
    for line in &exported {
        there
            .execute("SELECT rowsource_import($1)", &[line])
            .expect("a line");
    }
    let own = "SELECT count(*) FROM rowsource_ash('1 hour') WHERE application_name = 'of stranger'";
    assert!(value::<i64>(&mut there, own) > 0);
    run_each(
        &mut there,
        &format!("SET pg_rowsource.history_origin = '{origin}'"),
    );

    counters_of_another_server(&mut here, &mut there, &origin, &ends);
    let now = "SELECT count(*) FROM rowsource_intervals WHERE snap_id = 0";
    assert_eq!(value::<i64>(&mut there, now), 0);
    samples_of_another_server(&mut here, &mut there, &ends);
    only_of_this_server(&mut there);
    assert!(value::<i64>(&mut there, own) > 0);
}

/// Compares what the views and the reports of both show.
fn counters_of_another_server(here: &mut Client, there: &mut Client, origin: &str, ends: &str) {
    let plans = "SELECT rowsource_display_snapshot(queryid, planid, snap_id) FROM (
                     SELECT queryid, planid, snap_id FROM rowsource_interval_plans WHERE snap_id > 0 ORDER BY 1, 2, 3 LIMIT 10) p";
    // The order in which figures are added is not that of the other server.
    for client in [&mut *here, &mut *there] {
        run_each(client, "SET extra_float_digits = -3");
    }
    let tops = ["statement", "user", "database", "node", "relation", "wait"]
        .map(|by| format!("SELECT to_jsonb(t)::text FROM rowsource_top({ends}, by => '{by}') t ORDER BY 1"));
    for query in tops.iter().map(String::as_str).chain([
        "SELECT * FROM rowsource_intervals WHERE snap_id > 0 ORDER BY 1",
        "SELECT * FROM rowsource_interval_waits WHERE snap_id > 0 ORDER BY 1, 4, 5, 6",
        "SELECT * FROM rowsource_interval_tempfile_io WHERE snap_id > 0 ORDER BY 1, 4, 6",
        "SELECT * FROM rowsource_interval_plans WHERE snap_id > 0 ORDER BY 1, 7, 8, 9",
        &format!("SELECT * FROM rowsource_interval_waits({ends}) ORDER BY 1, 4, 5, 6"),
        &format!("SELECT * FROM rowsource_interval_tempfile_io({ends}) ORDER BY 1, 4, 6"),
        &format!("SELECT * FROM rowsource_interval_plans({ends}) ORDER BY 1, 7, 8, 9"),
        plans,
        &format!("SELECT rowsource_wait_report({ends})"),
        &format!("SELECT rowsource_tempfile_report({ends})"),
    ]) {
        let (mut shown, expected) = (texts(there, query), texts(here, query));
        assert!(!expected.is_empty(), "{query}");
        if query.contains("_report") {
            let said = shown.remove(1).remove(0);
            assert_eq!(said, Some(format!("of the server {origin}, imported")));
        }
        assert_eq!(shown, expected, "{query}");
    }
}

fn only_of_this_server(there: &mut Client) {
    // Who is chosen changes nothing of what is stored here, and is not stored again.
    let (code, message) = must_fail(there, "SELECT rowsource_baseline('x', '1 h')");
    assert_eq!(code.code(), "55000", "{message}");
    assert!(message.contains("RESET pg_rowsource.history_origin"), "{message}");
    let elsewhere = "SELECT count(*) FROM rowsource_export() l WHERE l::json->>'origin' <> (SELECT system_identifier::text FROM pg_control_system())";
    assert_eq!(value::<i64>(there, elsewhere), 0);
    assert!(value::<i64>(there, "SELECT rowsource_snapshot()") > 3);

    // One of which nothing is known is an error.
    run_each(there, "SET pg_rowsource.history_origin = 'nobody'");
    for report in [
        "rowsource_ash_report()",
        "rowsource_wait_report()",
        "rowsource_blockers('1 h')",
        "rowsource_top_activity()",
        "rowsource_top()",
    ] {
        let (code, message) = must_fail(there, &format!("SELECT {report}"));
        assert_eq!(code.code(), "42704", "{report}: {message}");
        assert!(
            message.starts_with("no history of the server \"nobody\" was imported"),
            "{message}"
        );
    }
    run_each(there, "RESET pg_rowsource.history_origin");
}

fn samples_of_another_server(here: &mut Client, there: &mut Client, ends: &str) {
    let columns = "sample_time, pid, leader_pid, backend_type, userid, datid, application_name, queryid, planid, toplevel, node_id, operation,
                   object_name, wait_event_type, wait_event, blocking_pid, moments, mode, command";
    let stored =
        format!("SELECT {columns} FROM rowsource_snapshot_ash WHERE moments > 0 ORDER BY sample_time, pid");
    let stored = texts(here, &stored);
    assert!(stored.len() > 5, "{stored:?}");
    for call in ["'1 hour'", ""] {
        let shown = format!("SELECT {columns} FROM rowsource_ash({call}) ORDER BY sample_time, pid");
        assert_eq!(texts(there, &shown), stored, "{call}");
    }
    let report = lines(there, "SELECT rowsource_ash_report('1 hour')").join("\n");
    println!("{report}");
    for part in [
        "of the server ",
        "client backend clerk of clerk",
        "SELECT pg_sleep(",
        "SELECT on t",
        "relation on t",
        "; no older ones were imported",
    ] {
        assert!(report.contains(part), "no {part} in\n{report}");
    }
    for part in ["stranger", "from memory", "before a restart"] {
        assert!(!report.contains(part), "{part} in\n{report}");
    }
    let trees =
        format!("SELECT DISTINCT usename, datname, query FROM rowsource_blockers({ends}) WHERE depth = 1");
    let expected = ["clerk", "postgres", "SELECT on t"].map(|text| Some(text.to_owned()));
    assert_eq!(texts(there, &trees), [expected]);
    let top = "SELECT sum(samples)::text FROM rowsource_top_activity('1 hour')";
    let all = stored.iter().map(|row| {
        row[16]
            .as_deref()
            .map_or(0, |n| n.parse::<i64>().expect("a number"))
    });
    assert_eq!(lines(there, top), [all.sum::<i64>().to_string()]);
}
