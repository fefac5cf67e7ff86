//! The list of a folded plan's slowest partitions. It and its rest are the sums of the node.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};

/// Starts a server with a table of partitions, each of which has a hundred times as many rows as its
/// number.
fn partitioned(name: &str, partitions: usize) -> (Server, Client) {
    let server = basic_server(name, &[]);
    let mut client = server.connect();
    let make = format!(
        "CREATE TABLE orders (day int, note text) PARTITION BY LIST (day);
         DO $$BEGIN FOR i IN 1..{partitions} LOOP
             EXECUTE format('CREATE TABLE day_%s PARTITION OF orders FOR VALUES IN (%s)', i, i); END LOOP; END$$;
         INSERT INTO orders SELECT d, 'note' FROM generate_series(1, {partitions}) d, generate_series(1, 100 * d)"
    );
    client.batch_execute(&make).expect("partitions");
    run_each(
        &mut client,
        "VACUUM ANALYZE orders;
         SET plan_cache_mode = force_generic_plan;
         PREPARE a_day (int) AS SELECT count(note) FROM orders WHERE day = $1;
         PREPARE days (int) AS SELECT count(note) FROM orders WHERE day >= $1",
    );
    (server, client)
}

/// Returns the ids of the session's last statement, as arguments.
fn ids(client: &mut Client) -> String {
    value(
        client,
        "SELECT format('%s, %s', queryid, planid) FROM rowsource_last()",
    )
}

/// Returns the names of the listed partitions of a plan with their rows, and behind them the rest. Fails if
/// they are not the sums of the node.
fn listed(client: &mut Client, ids: &str) -> Vec<(String, i64)> {
    let node = texts(
        client,
        &format!(
            "SELECT rows, shared_blks_hit + shared_blks_read, round(total_time::numeric, 6) FROM pg_stat_rowsource
              WHERE (queryid, planid) = ({ids}) AND object_name = 'orders'"
        ),
    );
    let sums = texts(
        client,
        &format!(
            "SELECT sum(rows), sum(blocks), round(sum(total_time)::numeric, 6) FROM rowsource_partitions({ids})"
        ),
    );
    assert_eq!(sums, node);
    let rows = texts(
        client,
        &format!("SELECT object_name, rows FROM rowsource_partitions({ids})"),
    );
    let pair = |row: Vec<Option<String>>| {
        let [name, rows] = <[_; 2]>::try_from(row).expect("two columns");
        (
            name.expect("a name"),
            rows.and_then(|rows| rows.parse().ok()).expect("a number"),
        )
    };
    rows.into_iter().map(pair).collect()
}

#[test]
fn the_slowest_partitions_and_the_rest_are_the_sums_of_the_node() {
    // With four partitions, the executions are added as counts; with twenty as statistics.
    for (partitions, expected_rest) in [(4, 0), (20, 12)] {
        let (_server, mut client) = partitioned("slowest-sums", partitions);
        let ids = {
            measured(&mut client, "EXECUTE days (1)");
            ids(&mut client)
        };
        for from in [1, 1, 3] {
            measured(&mut client, &format!("EXECUTE days ({from})"));
        }
        let listed = listed(&mut client, &ids);
        println!("{listed:?}");
        let rest = usize::from(expected_rest > 0);
        assert_eq!(listed.len(), partitions - expected_rest + rest, "{listed:?}");
        assert_eq!(listed.iter().any(|(name, _)| name == "other"), rest == 1);
        // Who was in the list from the beginning has the rows of all executions. With many partitions, one
        // may replace another one later.
        for (name, rows) in listed.iter().filter(|(name, _)| name != "other") {
            let day: i64 = name.trim_start_matches("day_").parse().expect("a partition");
            let executions = if day >= 3 { 4 } else { 3 };
            let counted = rows / (100 * day);
            assert_eq!(rows % (100 * day), 0, "{name}: {listed:?}");
            assert!((1..=executions).contains(&counted), "{name}: {listed:?}");
            assert!(expected_rest > 0 || counted == executions, "{name}: {listed:?}");
        }
    }
}

#[test]
fn a_partition_that_enters_late_counts_from_then_on() {
    let (_server, mut client) = partitioned("slowest-late", 50);
    measured(&mut client, "EXECUTE a_day (1)");
    let ids = ids(&mut client);
    // More partitions than a session keeps before it passes them to the store.
    for day in 1..=40 {
        measured(&mut client, &format!("EXECUTE a_day ({day})"));
    }
    let before = listed(&mut client, &ids);
    assert_eq!(before.len(), 9, "{before:?}");
    assert!(!before.iter().any(|(name, _)| name == "day_50"), "{before:?}");
    run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
    for _ in 0..200 {
        run_each(&mut client, "EXECUTE a_day (50)");
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    let after = listed(&mut client, &ids);
    assert!(after.contains(&("day_50".to_owned(), 200 * 5_000)), "{after:?}");
    assert_eq!(after.len(), 9, "{after:?}");
}

#[test]
fn the_list_is_shown_and_kept_by_snapshots_and_restarts() {
    let (mut server, mut client) = partitioned("slowest-kept", 20);
    measured(&mut client, "EXECUTE days (1)");
    let ids = ids(&mut client);
    let list = listed(&mut client, &ids);
    assert!(list.contains(&("day_20".to_owned(), 2_000)), "{list:?}");
    let display = |format: &str| format!("SELECT rowsource_display({ids}, format => '{format}')");
    const TITLE: &str = "Partitions that took the longest (identified by operation id):";
    let section = |lines: Vec<String>| -> Vec<String> {
        let lines = lines.into_iter().skip_while(|line| line != TITLE);
        lines.skip(2).take(9).collect()
    };
    let shown = section(first_column(&mut client, &display("ALLSTATS +PARTITIONS")));
    assert_eq!(shown.len(), 9, "{shown:?}");
    for ((name, rows), line) in list.iter().zip(&shown) {
        assert!(
            line.contains(&format!("{name}: {rows} rows, ")),
            "{line}, not {name}"
        );
    }
    assert!(shown[0].starts_with("   2 - "), "{shown:?}");
    // One execution has no list.
    for format in ["ALLSTATS", "ALLSTATS LAST +PARTITIONS"] {
        let lines = first_column(&mut client, &display(format));
        assert!(!lines.iter().any(|line| line == TITLE), "{format}: {lines:#?}");
    }
    run_each(&mut client, "SELECT rowsource_snapshot()");
    let snapshot = format!("SELECT rowsource_display_snapshot({ids}, format => 'ALLSTATS +PARTITIONS')");
    assert_eq!(section(first_column(&mut client, &snapshot)), shown);

    // Others do not see it.
    run_each(&mut client, "CREATE ROLE stranger; SET ROLE stranger");
    let (code, message) = must_fail(&mut client, &format!("SELECT rowsource_partitions({ids})"));
    assert_eq!(code.code(), "42704", "{message}");
    run_each(&mut client, "RESET ROLE");
    drop(client);
    server.stop();
    server.launch();
    let mut client = server.connect();
    assert_eq!(listed(&mut client, &ids), list);
    // A partition that is gone has its number.
    run_each(&mut client, "DROP TABLE day_20");
    let numbers: i64 = value(
        &mut client,
        &format!(
            "SELECT count(*) FROM rowsource_partitions({ids}) WHERE object_name = relid::text AND rows = 2000"
        ),
    );
    assert_eq!(numbers, 1);
}
