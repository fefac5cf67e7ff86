//! From 17 on, extensions have wait events of their own, and PostgreSQL gives them numbers while it runs.
//! What is stored keeps their names.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{run_each, texts, value};

/// The waits of statements with this text for events of extensions: their names, and how many.
fn events(client: &mut Client, like: &str) -> Vec<(String, i64)> {
    client
        .query(
            "SELECT w.wait_event, sum(w.waits)::bigint FROM pg_stat_rowsource_waits w
               JOIN pg_stat_rowsource_plans p USING (userid, datid, queryid, planid, toplevel)
              WHERE w.wait_event_type = 'Extension' AND p.query LIKE $1 GROUP BY 1 ORDER BY 1",
            &[&like],
        )
        .expect("pg_stat_rowsource_waits")
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

/// Reads all that shows the names of stored waits.
fn read_all(client: &mut Client, ids: &str) {
    for sql in [
        "SELECT count(*) FROM pg_stat_rowsource_waits",
        "SELECT count(*) FROM rowsource_top_waits",
        "SELECT count(*) FROM pg_stat_rowsource_logical_io",
        "SELECT count(*) FROM rowsource_top_reads",
        "SELECT count(*) FROM pg_stat_rowsource",
        "SELECT * FROM rowsource_tkprof_store()",
        &format!("SELECT * FROM rowsource_display({ids}, format => 'ALLSTATS +WAITS')"),
        &format!("SELECT * FROM rowsource_folded({ids}, 'total')"),
        &format!("SELECT * FROM rowsource_html({ids}, 'total')"),
        &format!("SELECT * FROM rowsource_display({ids}, format => 'ALLSTATS SLOWEST +WAITS')"),
    ] {
        let lines = texts(client, sql);
        let shown: Vec<&String> = lines.iter().flatten().flatten().collect();
        if sql.contains("WAITS") {
            let text = format!("{shown:?}");
            assert!(
                text.contains("PostgresFdw") && !text.contains("Dblink"),
                "{sql}: {text}"
            );
        }
    }
}

#[test]
fn names_survive_a_restart_pg17_plus() {
    let mut server = Server::preloaded("lasting-events", &["pg_rowsource.keep_constants = off"]);
    let mut client = server.connect();
    let socket: String = value(
        &mut client,
        "SELECT split_part(current_setting('unix_socket_directories'), ',', 1)",
    );
    let port: String = value(&mut client, "SELECT current_setting('port')");
    run_each(
        &mut client,
        &format!(
            "CREATE EXTENSION pg_rowsource; CREATE EXTENSION postgres_fdw; CREATE EXTENSION dblink;
             CREATE TABLE r AS SELECT i FROM generate_series(1, 10) i;
             CREATE SERVER l FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{socket}', port '{port}', dbname 'postgres');
             CREATE USER MAPPING FOR PUBLIC SERVER l OPTIONS (user 'postgres');
             CREATE FOREIGN TABLE f (i int) SERVER l OPTIONS (table_name 'r'); CREATE TABLE one AS SELECT 1 AS id"
        ),
    );
    let foreign = "SELECT count(*), pg_sleep(0.002) AS foreign_one FROM f";
    drop(client);
    let mut client = server.connect();
    run_each(&mut client, foreign);
    let ids: String = value(
        &mut client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    );
    let before = events(&mut client, "%foreign_one%");
    assert!(
        !before.is_empty() && before.iter().all(|(name, _)| name.starts_with("PostgresFdw")),
        "{before:?}"
    );
    read_all(&mut client, &ids);
    run_each(&mut client, "SELECT rowsource_snapshot()");
    drop(client);
    server.stop();
    server.launch();

    let mut client = server.connect();
    read_all(&mut client, &ids);
    assert_eq!(events(&mut client, "%foreign_one%"), before);
    // Another extension takes the numbers.
    run_each(
        &mut client,
        &format!(
            "SELECT x.i AS linked FROM one, dblink('host={socket} port={port} dbname=postgres user=postgres', 'SELECT i FROM r') AS x(i int)"
        ),
    );
    let linked = events(&mut client, "%AS linked%");
    assert!(
        !linked.is_empty() && linked.iter().all(|(name, _)| name.starts_with("Dblink")),
        "{linked:?}"
    );
    assert_eq!(events(&mut client, "%foreign_one%"), before);
    read_all(&mut client, &ids);
    // What is waited for now is added to what was waited for before.
    run_each(&mut client, foreign);
    let after = events(&mut client, "%foreign_one%");
    let names = |events: &[(String, i64)]| events.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    assert!(
        after
            .iter()
            .zip(&before)
            .any(|(after, before)| after.1 > before.1),
        "{after:?} {before:?}"
    );
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let history = texts(
        &mut client,
        "SELECT * FROM rowsource_interval_plans WHERE query LIKE '%foreign_one%'",
    );
    assert!(!history.is_empty());
    server.assert_no_crash();
}
