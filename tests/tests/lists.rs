//! The lists of an interval: the sum of each list is what the interval had, to the row.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::until;
use std::sync::{Arc, Mutex};

const BY: [&str; 6] = ["statement", "user", "database", "node", "relation", "wait"];

/// What is compared, and the lists that have it.
const FIGURES: [(&str, &[&str]); 7] = [
    ("calls", &["statement", "user", "database"]),
    ("rows", &["statement", "user", "database"]),
    ("blks_hit", &["statement", "user", "database", "node", "relation"]),
    (
        "blks_read",
        &["statement", "user", "database", "node", "relation"],
    ),
    (
        "temp_blks",
        &["statement", "user", "database", "node", "relation"],
    ),
    (
        "wal_bytes",
        &["statement", "user", "database", "node", "relation"],
    ),
    ("waits", &BY),
];

const SET_UP: &str = "
    CREATE EXTENSION pg_rowsource; SET pg_rowsource.track = 'all';
    CREATE TABLE t AS SELECT i AS id, i % 10 AS v FROM generate_series(1, 5000) i;
    CREATE INDEX t_id ON t (id); VACUUM ANALYZE t;
    CREATE TABLE copy (id int);
    CREATE FUNCTION nested() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM t WHERE v = 3); END'";

/// Statements with index scans, bitmap scans, sorts on disk, WAL, triggers' time, and nested ones.
const WORK: &str = "
    SET work_mem = '64kB'; SELECT * FROM t ORDER BY v, id OFFSET 4999; RESET work_mem;
    SELECT count(*) FROM t WHERE id BETWEEN 5 AND 90; SELECT nested();
    SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;
    SELECT sum(v) FROM t WHERE id < 400; RESET enable_seqscan; RESET enable_indexscan; RESET enable_indexonlyscan;
    INSERT INTO copy SELECT id FROM t WHERE id <= 100; UPDATE copy SET id = id + 1 WHERE id < 50;
    SELECT pg_sleep(0.01)";

/// Keeps what all plans have done. A session with the level basic, which measures nothing, must do it.
fn keep(observer: &mut Client, name: &str) {
    run_each(
        observer,
        &format!(
            "CREATE TABLE {name} AS
             SELECT sum(calls)::bigint AS calls, sum(rows)::bigint AS rows,
                    sum(shared_blks_hit + local_blks_hit)::bigint AS blks_hit,
                    sum(shared_blks_read + local_blks_read)::bigint AS blks_read,
                    sum(temp_blks_read + temp_blks_written)::bigint AS temp_blks, sum(wal_bytes)::bigint AS wal_bytes,
                    (SELECT coalesce(sum(w.waits), 0)::bigint FROM pg_stat_rowsource_waits w) AS waits
               FROM pg_stat_rowsource_plans p"
        ),
    );
}

/// Returns the sum of a figure in a list.
fn sum(observer: &mut Client, interval: &str, by: &str, figure: &str) -> i64 {
    let query =
        format!("SELECT coalesce(sum({figure}), 0)::bigint FROM rowsource_top({interval}, by => '{by}')");
    value(observer, &query)
}

/// Fails if the sum of a list is not the difference that SQL computes from the kept sums.
fn assert_sums(observer: &mut Client, interval: &str, expected: &str) {
    for (figure, lists) in FIGURES {
        let expected: i64 = value(observer, &expected.replace("{}", figure));
        assert!(expected > 0 || figure == "blks_read", "{figure}");
        for by in lists {
            assert_eq!(
                sum(observer, interval, by, figure),
                expected,
                "{interval} by {by}: {figure}"
            );
        }
    }
}

#[test]
fn the_sum_of_each_list_is_what_the_interval_had() {
    let server = Server::preloaded(
        "lists-sums",
        &[
            "pg_rowsource.snapshot_interval = 0",
            "autovacuum = off",
            "max_parallel_workers_per_gather = 0",
        ],
    );
    let (mut worker, mut observer) = (server.connect(), server.connect());
    run_each(&mut worker, SET_UP);
    run_each(&mut observer, "SET pg_rowsource.statistics_level = basic");
    run_each(&mut worker, WORK);
    let whole = "'1 day'::interval";
    keep(&mut observer, "before");
    assert_sums(&mut observer, whole, "SELECT {} FROM before");
    let snapshot = "CREATE TABLE IF NOT EXISTS taken (at timestamptz); SELECT rowsource_snapshot();
                    INSERT INTO taken SELECT max(taken_at) FROM rowsource_snapshots";
    run_each(&mut observer, snapshot);
    keep(&mut observer, "first");
    run_each(&mut worker, WORK);
    run_each(&mut observer, snapshot);
    keep(&mut observer, "reset");
    // What follows is of plans that are stored anew.
    run_each(&mut observer, "SELECT rowsource_reset()");
    run_each(&mut worker, WORK);
    run_each(&mut worker, WORK);
    run_each(&mut observer, snapshot);
    keep(&mut observer, "last");
    run_each(&mut worker, WORK);
    keep(&mut observer, "now");
    let moments = texts(&mut observer, "SELECT at FROM taken ORDER BY at");
    let at = |i: usize| format!("'{}'::timestamptz", moments[i][0].as_deref().unwrap_or_default());
    let (begin, end) = (at(0), at(2));
    let millisecond = "interval '1 ms'";
    assert_sums(
        &mut observer,
        &format!("{begin} + {millisecond}, {end} - {millisecond}"),
        "SELECT reset.{} - first.{} + last.{} FROM first, reset, last",
    );
    assert_sums(
        &mut observer,
        &format!("{begin} + {millisecond}"),
        "SELECT reset.{} - first.{} + now.{} FROM first, reset, now",
    );
    assert_sums(
        &mut observer,
        &format!("{end} + {millisecond}"),
        "SELECT now.{} - last.{} FROM last, now",
    );
    let times = texts(
        &mut observer,
        &format!(
            "SELECT DISTINCT from_at = {begin}, to_at = {end} FROM rowsource_top({begin} + {millisecond}, {end} - {millisecond})"
        ),
    );
    assert_eq!(times, [vec![Some("t".to_owned()), Some("t".to_owned())]]);
}

#[test]
fn rows_have_the_names_of_what_they_are_of() {
    let server = Server::preloaded("lists-relations", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    run_each(&mut client, WORK);
    let rows = texts(
        &mut client,
        "SELECT object_name, bool_and(datname = current_database()) FROM rowsource_top(by => 'relation')
          WHERE object_name IN ('public.t', 'public.copy') GROUP BY object_name ORDER BY max(rows)",
    );
    let expected = ["public.copy", "public.t"].map(|name| vec![Some(name.to_owned()), Some("t".to_owned())]);
    assert_eq!(rows, expected);
    let nodes: i64 = value(
        &mut client,
        "SELECT count(*) FROM rowsource_top(by => 'node') WHERE operation = 'Bitmap Index Scan' AND object_name = 't_id'",
    );
    assert_eq!(nodes, 1);
    let text: i64 = value(
        &mut client,
        "SELECT calls FROM rowsource_top() WHERE query LIKE 'INSERT INTO copy%'",
    );
    assert_eq!(text, 1);
    let error = client
        .batch_execute("SELECT * FROM rowsource_top(by => 'x')")
        .expect_err("it is no word");
    assert!(
        format!("{error:?}").contains("Known words: statement, user, database, node, relation, wait."),
        "{error:?}"
    );
}

/// Each division of the samples has all of them.
#[test]
fn the_samples_of_each_list_are_all() {
    let server = Server::preloaded("lists-samples", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE ROLE reader; SET application_name = 'the one'; SELECT pg_sleep(0.5);
         SET application_name = 'the other'; SELECT count(*) FROM (SELECT pg_sleep(0.2)) s; SELECT 1",
    );
    until(
        &mut client,
        "SELECT count(*) >= 2 FROM rowsource_top_activity(by => 'application')",
    );
    let (from, to) = (
        "clock_timestamp() - interval '1 hour'",
        "statement_timestamp() - interval '1 ms'",
    );
    let sum = |client: &mut Client, by: &str| -> i64 {
        value(
            client,
            &format!("SELECT sum(samples)::bigint FROM ends e, rowsource_top_activity(e.f, e.t{by})"),
        )
    };
    run_each(
        &mut client,
        &format!("CREATE TABLE ends AS SELECT {from} AS f, {to} AS t"),
    );
    let all = sum(&mut client, "");
    assert!(all > 10, "{all}");
    for by in [
        "statement",
        "plan",
        "node",
        "wait",
        "application",
        "user",
        "database",
        "relation",
    ] {
        assert_eq!(sum(&mut client, &format!(", by => '{by}'")), all, "{by}");
    }
    // An index belongs to its table.
    run_each(
        &mut client,
        "CREATE TABLE looked (id int); INSERT INTO looked SELECT generate_series(1, 1000); CREATE INDEX looked_id ON looked (id); ANALYZE looked;
         SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM looked WHERE id > 0 AND pg_sleep(0.001) IS NOT NULL;
         RESET enable_seqscan; RESET enable_bitmapscan",
    );
    until(
        &mut client,
        "SELECT count(*) = 1 FROM rowsource_top_activity(by => 'relation') WHERE object_name = 'public.looked' AND samples > 10",
    );
    // A command without a plan has the same name for it.
    let mut locker = server.connect();
    run_each(&mut locker, "BEGIN; LOCK TABLE looked");
    let waiter = Busy::run(server.connect(), "SELECT count(*) FROM looked");
    until(
        &mut client,
        "SELECT count(*) > 10 FROM rowsource_ash WHERE wait_event_type = 'Lock'",
    );
    run_each(&mut locker, "COMMIT");
    waiter.join();
    let looked = texts(
        &mut client,
        "SELECT object_name FROM rowsource_top_activity(by => 'relation') WHERE object_name LIKE '%looked'",
    );
    assert_eq!(looked.concat(), [Some("public.looked".to_owned())]);
    let names = texts(
        &mut client,
        "SELECT application_name FROM rowsource_top_activity(by => 'application') WHERE application_name LIKE 'the %' ORDER BY 1",
    );
    assert_eq!(
        names.concat(),
        ["the one", "the other"].map(|name| Some(name.to_owned()))
    );
}

/// Without a snapshot, all is counted since the statistics were reset.
#[test]
fn without_snapshots_a_list_begins_at_the_reset() {
    let server = Server::preloaded("lists-reset", &["pg_rowsource.snapshot_interval = 0"]);
    let mut client = server.connect();
    run_each(&mut client, SET_UP);
    run_each(&mut client, "SELECT rowsource_reset(); SELECT count(*) FROM t");
    let is_of_reset = "SELECT count(*) > 0 AND bool_and(from_at = (SELECT stats_reset FROM rowsource_info())) FROM rowsource_top()";
    assert!(value::<bool>(&mut client, is_of_reset));
}

/// Who may see little gets the counts of all, without the names of what others did, and that is said once.
#[test]
fn counts_are_for_everyone_and_names_for_those_who_may_see_them() {
    let server = Server::preloaded(
        "lists-privileges",
        &[
            "pg_rowsource.snapshot_interval = 0",
            "max_parallel_workers_per_gather = 0",
        ],
    );
    let mut admin = server.connect();
    run_each(&mut admin, SET_UP);
    run_each(
        &mut admin,
        "CREATE TABLE secrets AS SELECT i FROM generate_series(1, 500) i; CREATE ROLE little LOGIN; GRANT SELECT ON t TO little;
         SELECT count(*) FROM secrets; SELECT rowsource_snapshot(); SELECT count(*) FROM secrets",
    );
    let said = Arc::new(Mutex::new(Vec::new()));
    let notices = Arc::clone(&said);
    let mut little = postgres::Config::new()
        .host_path(server.folder())
        .user("little")
        .dbname("postgres")
        .notice_callback(move |notice| notices.lock().expect("a list").push(notice.message().to_owned()))
        .connect(postgres::NoTls)
        .expect("a session");
    run_each(
        &mut little,
        "SELECT count(*) FROM t WHERE id < 100; SET pg_rowsource.statistics_level = basic",
    );
    run_each(&mut admin, "SET pg_rowsource.statistics_level = basic");
    for (by, of_own) in [
        ("node", "t_id"),
        ("relation", "public.t"),
        ("statement", "FROM t WHERE id"),
    ] {
        said.lock().expect("a list").clear();
        let sql = format!("SELECT to_json(r)::text FROM rowsource_top(by => '{by}') r");
        let rows: Vec<String> = texts(&mut little, &sql).into_iter().flatten().flatten().collect();
        let shown = rows.join("\n");
        assert!(!shown.contains("secrets"), "{shown}");
        assert!(shown.contains(of_own), "{shown}");
        assert!(shown.contains("<insufficient privilege>"), "{shown}");
        let notices = said.lock().expect("a list").clone();
        let about = notices
            .iter()
            .filter(|notice| notice.contains("snapshots are not for you"));
        assert_eq!(about.count(), 1, "{notices:?}");
    }
    for (figure, by) in [("calls", "user"), ("blks_hit", "relation"), ("rows", "statement")] {
        let all = format!("SELECT sum({figure})::bigint FROM rowsource_top('1 day'::interval, by => '{by}')");
        let of_all: i64 = value(&mut little, &all);
        let kept = format!(
            "SELECT sum({})::bigint FROM pg_stat_rowsource_plans",
            match figure {
                "blks_hit" => "shared_blks_hit + local_blks_hit",
                figure => figure,
            }
        );
        assert_eq!(of_all, value::<i64>(&mut admin, &kept), "{figure} by {by}");
    }
    server.assert_no_crash();
}
