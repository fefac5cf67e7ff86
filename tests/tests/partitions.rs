//! Where partitions are one node and where each is shown by itself: running statements, executions that are
//! kept whole, exports, snapshots; and what is kept of statements that change partitions.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, info, measured, measuring};
use rowsource_tests::waiting::{pid, until, until_waiting};
use std::io::Write;

/// Starts a server with a table of three partitions, the last of which has partitions of its own.
fn server(name: &str, settings: &[&str]) -> Server {
    let server = basic_server(name, settings);
    run_each(
        &mut server.connect(),
        "CREATE TABLE orders (id int, day int, note text) PARTITION BY RANGE (day);
         CREATE TABLE orders_a PARTITION OF orders FOR VALUES FROM (0) TO (100);
         CREATE TABLE orders_b PARTITION OF orders FOR VALUES FROM (100) TO (200);
         CREATE TABLE orders_c PARTITION OF orders DEFAULT PARTITION BY LIST (day);
         CREATE TABLE orders_d PARTITION OF orders_c FOR VALUES IN (200, 201, 202);
         CREATE TABLE orders_e PARTITION OF orders_c DEFAULT;
         INSERT INTO orders SELECT i, i, 'note ' || i FROM generate_series(0, 299) i;
         VACUUM ANALYZE orders",
    );
    server
}

/// Returns the names of the partitions that a text has.
fn named(lines: &[String]) -> Vec<&'static str> {
    let leaves = ["orders_a", "orders_b", "orders_d", "orders_e"];
    let is_named = |name: &&str| lines.iter().any(|line| line.contains(*name));
    leaves.into_iter().filter(is_named).collect()
}

/// Returns the ids of the session's last statement, as arguments.
fn ids(client: &mut Client) -> String {
    value(
        client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    )
}

#[test]
fn readers_see_each_partition_of_a_running_statement() {
    let server = server("partitions-live", &[]);
    let (mut observer, mut client) = (server.connect(), measuring(&server));
    // It waits at the first row of the second partition.
    run_each(&mut observer, "SELECT pg_advisory_lock(1)");
    let id = pid(&mut client);
    let session = std::thread::spawn(move || {
        run_each(
            &mut client,
            "SELECT note FROM orders WHERE CASE WHEN day = 100 THEN pg_advisory_xact_lock_shared(1) IS NOT NULL ELSE true END",
        );
        client
    });
    until_waiting(&mut observer, id, "advisory");
    let live = texts(
        &mut observer,
        &format!(
            "SELECT operation, object_name, starts::text, rows::text, running::text
             FROM pg_stat_rowsource_live WHERE pid = {id} ORDER BY node_id"
        ),
    );
    let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let live: Vec<String> = live.into_iter().map(line).collect();
    let expected = [
        "Append 1 100 false",
        "Seq Scan orders_a 1 100 false",
        "Seq Scan orders_b 1 0 true",
        "Seq Scan orders_d 0 0 false",
        "Seq Scan orders_e 0 0 false",
    ];
    assert_eq!(live, expected);
    run_each(&mut observer, "SELECT pg_advisory_unlock(1)");
    let mut client = session.join().expect("the session");
    // What is stored of it afterwards is folded, and has the sums.
    let stored = texts(
        &mut client,
        "SELECT operation, object_name, starts::text, rows::text FROM pg_stat_rowsource
         WHERE planid = (SELECT planid FROM rowsource_last()) ORDER BY node_id",
    );
    let stored: Vec<String> = stored.into_iter().map(line).collect();
    assert_eq!(stored, ["Append 1 300", "Seq Scan orders 4 300"]);
}

/// Returns the partitions that a running statement shows, with their rows and whether they run now.
fn live_partitions(observer: &mut Client, pid: i32) -> Vec<String> {
    let sql = format!(
        "SELECT object_name || ' ' || sum(rows) || ' ' || bool_or(running) FROM pg_stat_rowsource_live
         WHERE {pid} IN (pid, leader_pid) AND object_name LIKE 'orders%' GROUP BY object_name ORDER BY object_name"
    );
    first_column(observer, &sql)
}

/// Those that were pruned when the statement started are not there, as in EXPLAIN.
#[test]
fn readers_see_the_partitions_that_a_running_statement_did_not_prune() {
    let server = server("partitions-live-pruned", &[]);
    let (mut observer, mut client) = (server.connect(), server.connect());
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan;
         PREPARE q (int) AS SELECT note FROM orders
            WHERE day >= $1 AND CASE WHEN day = 150 THEN pg_sleep(300) IS NOT NULL ELSE true END",
    );
    let busy = Busy::run(client, "EXECUTE q (100)");
    until_waiting(&mut observer, busy.pid, "PgSleep");
    assert_eq!(
        live_partitions(&mut observer, busy.pid),
        ["orders_b 50 true", "orders_d 0 false", "orders_e 0 false"]
    );
    busy.cancel(&mut observer);
}

/// The partitions of workers are shown too.
#[test]
fn readers_see_each_partition_of_a_parallel_statement() {
    let settings = [
        "max_parallel_workers_per_gather = 2",
        "parallel_leader_participation = off",
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "min_parallel_table_scan_size = 0",
    ];
    let server = server("partitions-live-parallel", &settings);
    let mut observer = server.connect();
    let busy = Busy::run(
        server.connect(),
        "SELECT note FROM orders WHERE CASE WHEN day IN (50, 150) THEN pg_sleep(300) IS NOT NULL ELSE true END",
    );
    // Both sleep, so nothing moves any more.
    let workers = format!(
        "SELECT count(*) = 2 FROM pg_stat_activity WHERE leader_pid = {} AND wait_event = 'PgSleep'",
        busy.pid
    );
    until(&mut observer, &workers);
    let shown = live_partitions(&mut observer, busy.pid);
    assert_eq!(shown.len(), 4, "{shown:?}");
    assert_eq!(shown[..2], ["orders_a 50 true", "orders_b 50 true"], "{shown:?}");
    for (partition, rows) in [(2, 3), (3, 97)] {
        let is_whole = |rows: i32| shown[partition].ends_with(&format!(" {rows} false"));
        assert!(is_whole(rows) || is_whole(0), "{shown:?}");
    }
    busy.cancel(&mut observer);
}

#[test]
fn kept_executions_exports_and_snapshots_have_one_node() {
    let server = server("partitions-kept", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan;
         PREPARE q (int) AS SELECT count(1 / (day - $1)) FROM orders WHERE CASE WHEN day = 250 THEN pg_sleep(0.02) IS NOT NULL ELSE true END",
    );
    measured(&mut client, "EXECUTE q (-1)");
    let last = first_column(&mut client, "SELECT rowsource_display()");
    assert_eq!(named(&last).len(), 4, "{last:#?}");
    let ids = ids(&mut client);
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    // It fails in the second partition.
    must_fail(&mut client, "EXECUTE q (150)");
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let mut new = server.connect();
    for (shown, starts_and_rows) in [
        (format!("rowsource_display({ids}, format => 'ALLSTATS')"), "6"),
        (
            format!("rowsource_display({ids}, format => 'ALLSTATS SLOWEST')"),
            "4",
        ),
        (
            format!("rowsource_display({ids}, format => 'ALLSTATS FAILED')"),
            "2",
        ),
    ] {
        let lines = first_column(&mut new, &format!("SELECT {shown}"));
        assert_eq!(named(&lines), [] as [&str; 0], "{shown}: {lines:#?}");
        let scans: Vec<&String> = lines.iter().filter(|line| line.contains("Seq Scan")).collect();
        let [scan] = scans[..] else {
            panic!("{shown}: {lines:#?}");
        };
        let columns: Vec<&str> = scan.split('|').map(str::trim).collect();
        assert!(columns.contains(&"orders"), "{scan}");
        assert!(columns.contains(&starts_and_rows), "{shown}: {scan}");
    }
    for shown in [
        format!("rowsource_explain({ids}, which => 'slowest')"),
        format!("rowsource_explain({ids}, which => 'failed')"),
        format!("rowsource_folded({ids}, 'slowest')"),
        format!("rowsource_speedscope({ids}, 'slowest')"),
        format!("rowsource_html({ids}, 'slowest')"),
        format!("rowsource_plan({ids}, 'slowest')"),
        format!("rowsource_plan({ids})"),
    ] {
        let lines = first_column(&mut new, &format!("SELECT {shown}"));
        assert_eq!(named(&lines), [] as [&str; 0], "{shown}: {lines:#?}");
        let text = lines.concat();
        assert!(
            text.contains("orders") && text.contains("Seq Scan"),
            "{shown}: {text}"
        );
    }
    run_each(&mut new, "SELECT rowsource_snapshot()");
    let lines = first_column(&mut new, &format!("SELECT rowsource_display_snapshot({ids})"));
    assert_eq!(named(&lines), [] as [&str; 0], "{lines:#?}");
    let scans = lines.iter().filter(|line| line.contains("Seq Scan")).count();
    assert_eq!(scans, 1, "{lines:#?}");
}

#[test]
fn a_copy_into_partitions_has_no_plan_and_does_no_harm() {
    let server = server("partitions-copy", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET pg_rowsource.track = 'all'; SET pg_rowsource.statistics_level = typical",
    );
    let mut writer = client.copy_in("COPY orders FROM STDIN").expect("COPY");
    for day in 0..300 {
        writeln!(writer, "{day}\t{day}\tcopied").expect("a row");
    }
    assert_eq!(writer.finish().expect("the end"), 300);
    // The query of a COPY TO has a plan.
    let mut rows = String::new();
    let mut reader = client
        .copy_out("COPY (SELECT day FROM orders WHERE note = 'copied') TO STDOUT")
        .expect("COPY");
    std::io::Read::read_to_string(&mut reader, &mut rows).expect("rows");
    drop(reader);
    assert_eq!(rows.lines().count(), 300);
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let plans = texts(
        &mut client,
        "SELECT n.object_name, n.starts::text, n.rows::text FROM pg_stat_rowsource n JOIN pg_stat_rowsource_plans p USING (queryid, planid)
         WHERE p.query LIKE 'COPY%' AND n.object_name IS NOT NULL",
    );
    let some = ["orders", "4", "300"].map(|text| Some(text.to_owned()));
    assert_eq!(plans, [some]);
    assert_eq!(
        [info(&mut client, "refused"), info(&mut client, "errors")],
        [0, 0]
    );
}

/// Makes a table with so many partitions: 300 in a transaction, which locks each.
fn make_big(client: &mut Client, partitions: usize) {
    run_each(client, "CREATE TABLE big (id int, v int) PARTITION BY RANGE (id)");
    for from in (0..partitions).step_by(300) {
        let to = partitions.min(from + 300) - 1;
        let make = format!(
            "DO $$BEGIN FOR i IN {from}..{to} LOOP EXECUTE format('CREATE TABLE big_%s PARTITION OF big FOR VALUES
             FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END$$"
        );
        client.batch_execute(&make).expect("partitions");
    }
}

#[test]
fn a_plan_of_5000_partitions_takes_20_kb_and_a_page_long() {
    let server = basic_server("partitions-5000", &["max_locks_per_transaction = 2048"]);
    let mut client = server.connect();
    make_big(&mut client, 5_000);
    // The first plan also takes what the store has once.
    measured(&mut client, "SELECT 1");
    let before = info(&mut client, "bytes");
    measured(&mut client, "SELECT sum(v) FROM big WHERE v > 1");
    let ids = ids(&mut client);
    let bytes = info(&mut client, "bytes") - before;
    assert!((1_000..20_000).contains(&bytes), "{bytes} bytes");
    let shown = first_column(&mut server.connect(), &format!("SELECT rowsource_display({ids})"));
    assert!((8..60).contains(&shown.len()), "{shown:#?}");
    assert_eq!(info(&mut client, "refused"), 0);
}

#[test]
fn statements_that_change_2100_partitions_are_kept_long() {
    const PARTITIONS: usize = 2_100;
    let server = basic_server("partitions-changed", &["max_locks_per_transaction = 1024"]);
    let mut client = server.connect();
    make_big(&mut client, PARTITIONS);
    run_each(
        &mut client,
        &format!("INSERT INTO big SELECT i % {PARTITIONS}, i FROM generate_series(0, 9999) i"),
    );
    for (statement, operation) in [
        ("UPDATE big SET v = v + 1", "Update"),
        ("DELETE FROM big", "Delete"),
    ] {
        measured(&mut client, statement);
        let stored = texts(
            &mut client,
            "SELECT operation, object_name, starts::text, rows::text FROM pg_stat_rowsource
             WHERE planid = (SELECT planid FROM rowsource_last()) ORDER BY node_id",
        );
        let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let stored: Vec<String> = stored.into_iter().map(line).collect();
        let expected = [
            format!("{operation} big 1 0"),
            "Append 1 10000".to_owned(),
            format!("Seq Scan big {PARTITIONS} 10000"),
        ];
        assert_eq!(stored, expected, "{statement}");
        let ids = ids(&mut client);
        let shown = first_column(&mut server.connect(), &format!("SELECT rowsource_display({ids})"));
        assert!(shown.len() < 60, "{statement}: {} lines", shown.len());
    }
    assert_eq!(
        [info(&mut client, "refused"), info(&mut client, "errors")],
        [0, 0]
    );
}

/// While a statement runs, waits are told apart by node and event for 16 pairs only.
#[test]
fn waits_of_many_partitions_keep_their_names() {
    const PARTITIONS: i64 = 40;
    let server = basic_server("partitions-waits", &[]);
    let mut client = server.connect();
    let make = format!(
        "CREATE TABLE days (day int) PARTITION BY LIST (day);
         DO $$BEGIN FOR i IN 1..{PARTITIONS} LOOP
             EXECUTE format('CREATE TABLE day_%s PARTITION OF days FOR VALUES IN (%s)', i, i); END LOOP; END$$;
         INSERT INTO days SELECT generate_series(1, {PARTITIONS}); ANALYZE days"
    );
    client.batch_execute(&make).expect("partitions");
    let waits = "SELECT n.operation, w.waits::text FROM pg_stat_rowsource_waits w
        JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel, node_id)
        WHERE w.planid = (SELECT planid FROM rowsource_last()) AND w.wait_event = 'PgSleep'";
    for round in 1..=2 {
        measured(
            &mut client,
            "SELECT day FROM days WHERE pg_sleep(0.001) IS NOT NULL",
        );
        let named = texts(&mut client, waits);
        let [row] = &named[..] else {
            panic!("one node waited: {named:?}")
        };
        let [operation, waits] = [0, 1].map(|column| row[column].as_deref().unwrap_or_default());
        // A session that is woken up sleeps again.
        let waits: i64 = waits.parse().expect("a number");
        assert!(
            operation == "Seq Scan" && waits >= round * PARTITIONS,
            "{round}: {named:?}"
        );
    }
}

/// What each partition waited is known of the session's last statement. Their sum is what the store adds.
#[test]
fn what_a_node_waited_is_the_sum_of_its_partitions() {
    let server = server("partitions-wait-sums", &[]);
    let mut client = measuring(&server);
    let mut sums = 0.0;
    for _ in 0..3 {
        run_each(
            &mut client,
            "SELECT note FROM orders WHERE CASE WHEN day IN (50, 150, 201, 250) THEN pg_sleep(0.003) IS NOT NULL ELSE true END",
        );
        let shown = first_column(
            &mut client,
            "SELECT rowsource_display(format => 'ALLSTATS LAST +WAITS')",
        );
        let cells =
            |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
        let titles = shown.iter().find(|line| line.contains("Operation"));
        let at = titles.and_then(|line| cells(line).iter().position(|cell| cell.starts_with("W-Time")));
        let at = at.unwrap_or_else(|| panic!("{shown:#?}"));
        let scans = shown.iter().filter(|line| line.contains("Seq Scan"));
        let waits: Vec<f64> = scans
            .map(|line| cells(line)[at].parse().unwrap_or_else(|_| panic!("{shown:#?}")))
            .collect();
        assert_eq!(waits.len(), 4, "{shown:#?}");
        assert!(waits.iter().all(|ms| *ms >= 3.0), "{waits:?}");
        let stored: Vec<f64> = ["last_wait_time", "wait_time"]
            .map(|column| {
                let sql = format!(
                    "SELECT {column} FROM pg_stat_rowsource WHERE object_name = 'orders'
                     AND planid = (SELECT planid FROM rowsource_last())"
                );
                value(&mut client, &sql)
            })
            .to_vec();
        let last: f64 = waits.iter().sum();
        sums += last;
        // The display rounds to microseconds.
        assert!(
            (stored[0] - last).abs() <= 0.003 && (stored[1] - sums).abs() <= 0.007,
            "{stored:?}, {waits:?}, {sums}"
        );
    }
}

/// Parallel workers tell apart 16 pairs each, and all of them together 32.
#[test]
fn waits_of_workers_in_many_partitions_keep_their_names() {
    const PARTITIONS: i64 = 120;
    let server = basic_server("partitions-workers", &["max_parallel_workers_per_gather = 2"]);
    let mut client = server.connect();
    let make = format!(
        "CREATE TABLE days (day int, at int) PARTITION BY LIST (day);
         DO $$BEGIN FOR i IN 1..{PARTITIONS} LOOP
             EXECUTE format('CREATE TABLE day_%s PARTITION OF days FOR VALUES IN (%s)', i, i);
             EXECUTE format('ALTER TABLE day_%s SET (parallel_workers = %s)', i, i % 2 * 2); END LOOP; END$$;
         INSERT INTO days SELECT i, i FROM generate_series(1, {PARTITIONS}) i; ANALYZE days;
         ALTER FUNCTION pg_sleep COST 100000"
    );
    client.batch_execute(&make).expect("partitions");
    run_each(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
    );
    for settings in [
        "SET parallel_leader_participation = off",
        "SET parallel_leader_participation = on",
    ] {
        run_each(&mut client, settings);
        run_each(&mut client, "SELECT rowsource_reset()");
        measured(
            &mut client,
            "SELECT day FROM days WHERE at > 0 AND pg_sleep(0.001) IS NOT NULL",
        );
        let named = texts(
            &mut client,
            "SELECT n.operation, w.waits::text, n.starts::text FROM pg_stat_rowsource_waits w
             LEFT JOIN pg_stat_rowsource n USING (userid, datid, queryid, planid, toplevel, node_id)
             WHERE w.planid = (SELECT planid FROM rowsource_last()) AND w.wait_event = 'PgSleep' ORDER BY 1",
        );
        let found: Vec<(&str, i64)> = named
            .iter()
            .map(|row| {
                let number = row[1].as_deref().and_then(|number| number.parse().ok());
                (row[0].as_deref().unwrap_or("outside"), number.expect("a number"))
            })
            .collect();
        let [(by_one, of_one), (by_many, of_many)] = found[..] else {
            panic!("{settings}: two nodes waited: {named:?}")
        };
        let nodes = [by_many, by_one];
        assert!(nodes == ["Seq Scan", "Parallel Seq Scan"], "{named:?}");
        assert!(
            of_one >= PARTITIONS / 2 && of_many >= PARTITIONS / 2,
            "{settings}: {named:?}"
        );
        let launched: i64 = value(
            &mut client,
            "SELECT sum(workers_launched)::int8 FROM pg_stat_rowsource_plans WHERE planid = (SELECT planid FROM rowsource_last())",
        );
        assert!(launched > 0, "there are workers");
    }
}

/// A number that is added to an alias may give another alias of the statement.
#[test]
fn partitions_have_the_aliases_that_explain_gives_them() {
    let server = server("partitions-aliases", &[]);
    let mut client = server.connect();
    let from = "FROM orders AS orders_1_1, orders, (VALUES (1)) AS orders_1 (id), orders AS orders_2";
    let select =
        format!("SELECT count(*) {from} WHERE orders.day = orders_2.day AND orders_1_1.day = orders.day");
    measured(&mut client, &select);
    let shown = first_column(
        &mut client,
        "SELECT rowsource_display(format => 'BASIC LAST +ALIAS')",
    );
    let mut shown: Vec<&str> = shown
        .iter()
        .filter_map(|line| Some(line.split_once(" - ")?.1.split_once(" (public.")?.0))
        .collect();
    let explained = first_column(&mut client, &format!("EXPLAIN (COSTS off) {select}"));
    let mut explained: Vec<&str> = explained
        .iter()
        .filter_map(|line| line.split_once(" on ")?.1.split_whitespace().nth(1))
        .collect();
    shown.sort_unstable();
    explained.sort_unstable();
    assert_eq!(shown, explained);
    assert_eq!(shown.len(), 12, "{shown:?}");
}
