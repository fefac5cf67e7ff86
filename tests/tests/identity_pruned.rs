//! A prepared plan whose partitions are read in different ways is one plan, whichever of them were pruned
//! when the statement started, and its description is whole from the first execution on.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};

/// Sets of partitions, as bounds: all; those with an index; one of these; those without; one of these; none;
/// and some of both.
const SETS: [(i32, i32); 7] = [
    (0, 400),
    (0, 200),
    (120, 140),
    (200, 400),
    (350, 360),
    (900, 901),
    (150, 250),
];

/// Starts a server with a table of four partitions of 100 rows each, of which two have an index.
fn server(name: &str) -> Server {
    let server = basic_server(name, &[]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE orders (id int, day int, note text) PARTITION BY RANGE (day);
         CREATE TABLE orders_a PARTITION OF orders FOR VALUES FROM (0) TO (100);
         CREATE TABLE orders_b PARTITION OF orders FOR VALUES FROM (100) TO (200);
         CREATE TABLE orders_c PARTITION OF orders FOR VALUES FROM (200) TO (300);
         CREATE TABLE orders_d PARTITION OF orders FOR VALUES FROM (300) TO (400);
         INSERT INTO orders SELECT i, i, 'note ' || i FROM generate_series(0, 399) i;
         CREATE INDEX a_day ON orders_a (day); CREATE INDEX b_day ON orders_b (day);
         CREATE TABLE plain AS SELECT * FROM orders;
         CREATE TABLE deep (id int, day int, note text) PARTITION BY RANGE (day);
         CREATE TABLE deep_a PARTITION OF deep FOR VALUES FROM (0) TO (200) PARTITION BY RANGE (day);
         CREATE TABLE deep_aa PARTITION OF deep_a FOR VALUES FROM (0) TO (100);
         CREATE TABLE deep_ab PARTITION OF deep_a FOR VALUES FROM (100) TO (200);
         CREATE TABLE deep_b PARTITION OF deep DEFAULT PARTITION BY RANGE (day);
         CREATE TABLE deep_ba PARTITION OF deep_b FOR VALUES FROM (200) TO (300);
         CREATE TABLE deep_bb PARTITION OF deep_b DEFAULT;
         INSERT INTO deep SELECT * FROM orders;
         VACUUM ANALYZE",
    );
    server
}

/// Opens a session with a prepared statement.
fn prepared(server: &Server, query: &str) -> Client {
    let mut client = server.connect();
    run_each(
        &mut client,
        &format!(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
             SET enable_hashagg = off; PREPARE q (int, int) AS {query}"
        ),
    );
    client
}

/// Executes the prepared statement. Returns its planid, and the nodes that are stored: depth, operation and
/// object, but for indexes: that of a partition has its own name.
fn execute(client: &mut Client, (from, to): (i32, i32)) -> (i64, Vec<String>) {
    measured(client, &format!("EXECUTE q ({from}, {to})"));
    let planid: i64 = value(client, "SELECT planid FROM rowsource_last()");
    let rows = texts(
        client,
        &format!(
            "SELECT depth::text, operation, CASE WHEN operation NOT LIKE 'Index%' THEN object_name END FROM pg_stat_rowsource WHERE planid = {planid} ORDER BY node_id"
        ),
    );
    let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
    (planid, rows.into_iter().map(line).collect())
}

/// Returns what the display of the plan says about conditions and keys.
fn conditions(client: &mut Client, planid: i64) -> Vec<String> {
    let display = format!(
        "SELECT d FROM pg_stat_rowsource_plans p, rowsource_display(p.queryid, p.planid, format => 'ALLSTATS +KEYS') d WHERE planid = {planid}"
    );
    let lines = first_column(client, &display);
    lines
        .into_iter()
        .filter(|line| line.starts_with("  ") && line.contains(": "))
        .collect()
}

/// Executes a statement with each set of partitions first, and the others after it, in new sessions. Fails if
/// not all are one plan, or if its nodes or conditions are not the same. Returns these.
fn assert_one_plan(server: &Server, query: &str) -> (Vec<String>, Vec<String>) {
    let mut first = None;
    for set in SETS {
        run_each(&mut server.connect(), "SELECT rowsource_reset()");
        let mut client = prepared(server, query);
        let (planid, nodes) = execute(&mut client, set);
        let described = conditions(&mut server.connect(), planid);
        let expected = first.get_or_insert_with(|| (planid, nodes.clone(), described.clone()));
        assert_eq!((&planid, &nodes), (&expected.0, &expected.1), "{query}: {set:?}");
        assert_eq!(described, expected.2, "{query}: {set:?}");
        for other in SETS {
            let (planid, nodes) = execute(&mut client, other);
            assert_eq!(
                (planid, &nodes),
                (expected.0, &expected.1),
                "{query}: {set:?}, {other:?}"
            );
        }
        let mut known = prepared(server, query);
        for other in SETS {
            assert_eq!(
                execute(&mut known, other).0,
                expected.0,
                "{query}: {other:?} is known"
            );
        }
        let plans: i64 = value(
            &mut client,
            "SELECT count(DISTINCT planid) FROM pg_stat_rowsource_plans WHERE query LIKE 'PREPARE q%'",
        );
        assert_eq!(plans, 1, "{query}: {set:?}");
    }
    let (_, nodes, described) = first.expect("a set");
    println!("{query}\n{nodes:#?}\n{described:#?}");
    (nodes, described)
}

/// Returns whether a line has both texts.
fn has(lines: &[String], one: &str, other: &str) -> bool {
    lines
        .iter()
        .any(|line| line.contains(one) && line.contains(other))
}

#[test]
fn each_set_of_partitions_is_the_same_plan() {
    let server = server("pruned-sets");
    let (nodes, described) = assert_one_plan(
        &server,
        "SELECT note FROM orders WHERE day >= $1 AND day < $2 AND note <> 'x'",
    );
    assert_eq!(nodes.len(), 3, "{nodes:#?}");
    assert!(has(&nodes, "1 Index Scan", ""), "{nodes:#?}");
    assert!(has(&nodes, "1 Seq Scan orders", ""), "{nodes:#?}");
    assert!(has(&described, "Index Cond", "(day >= $1)"), "{described:#?}");
    assert!(has(&described, "Filter", "note <>"), "{described:#?}");
    // In order, so that inputs are merged, and with names in the keys.
    let (nodes, described) = assert_one_plan(
        &server,
        "SELECT day, note FROM orders WHERE day >= $1 AND day < $2 ORDER BY note, day",
    );
    assert!(
        has(&described, "Sort Key", "orders.note"),
        "{nodes:#?}\n{described:#?}"
    );
}

#[test]
fn what_was_counted_with_some_partitions_is_the_sum() {
    let server = server("pruned-sums");
    let mut client = prepared(&server, "SELECT note FROM orders WHERE day >= $1 AND day < $2");
    for set in SETS {
        execute(&mut client, set);
    }
    let sums = texts(
        &mut client,
        "SELECT operation, starts::text, rows::text FROM pg_stat_rowsource
          WHERE planid = (SELECT planid FROM rowsource_last()) ORDER BY operation",
    );
    let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let sums: Vec<String> = sums.into_iter().map(line).collect();
    // Rows of all sets: 400, 200, 20, 200, 10, 0 and 100.
    assert_eq!(sums, ["Append 7 930", "Index Scan 6 470", "Seq Scan 6 460"]);
}

#[test]
fn a_subplan_that_partitions_share_does_not_move() {
    let server = server("pruned-subplan");
    let (nodes, described) = assert_one_plan(
        &server,
        "SELECT note FROM orders WHERE day >= $1 AND day < $2
            AND id <> (SELECT count(*) FROM plain WHERE plain.day = orders.day)",
    );
    assert_eq!(nodes.len(), 5, "{nodes:#?}");
    assert!(
        has(&described, "Filter", "(plain.day = orders.day)")
            || has(&described, "Filter", "(day = orders.day)"),
        "{described:#?}"
    );
    assert!(has(&described, "Filter", "SubPlan"), "{described:#?}");
    assert!(has(&described, "Index Cond", "$1"), "{described:#?}");
}

#[test]
fn partitions_of_partitions_keep_their_conditions() {
    let server = server("pruned-deep");
    let mut client = server.connect();
    run_each(
        &mut client,
        "SET enable_partitionwise_aggregate = on; SET enable_partitionwise_join = on; SET enable_hashagg = off",
    );
    for (query, label, text) in [
        ("SELECT * FROM deep ORDER BY note, day", "Sort Key", "deep.note"),
        (
            "SELECT note, count(*) FROM deep GROUP BY note ORDER BY note",
            "Group Key",
            "deep.note",
        ),
        (
            "SELECT count(*) FROM deep JOIN plain USING (day) WHERE deep.note <> plain.note",
            "Filter",
            "deep.note",
        ),
        (
            "SELECT a.day, count(*) FROM deep a JOIN deep b USING (day) GROUP BY a.day",
            "Cond",
            "a.day",
        ),
        (
            "UPDATE deep SET note = 'new' WHERE id > 7 AND note <> 'old'",
            "Filter",
            "id > ",
        ),
        (
            "DELETE FROM deep WHERE id > 1000 AND note <> 'old'",
            "Filter",
            "id > ",
        ),
        (
            "MERGE INTO deep USING plain ON deep.day = plain.day WHEN MATCHED THEN UPDATE SET note = plain.note",
            "Cond",
            "deep.day",
        ),
        (
            "WITH gone AS (DELETE FROM deep WHERE id > 2000 RETURNING note) SELECT count(*) FROM gone",
            "Filter",
            "id > ",
        ),
    ] {
        measured(&mut client, query);
        let planid: i64 = value(&mut client, "SELECT planid FROM rowsource_last()");
        let described = conditions(&mut server.connect(), planid);
        assert!(has(&described, label, text), "{query}: {described:#?}");
    }
    // The first partition, whose columns EXPLAIN prints, is pruned when the statement starts.
    for (query, text) in [
        (
            "SELECT note FROM deep WHERE day >= $1 AND day < $2 ORDER BY note, id",
            "deep.note",
        ),
        (
            "SELECT note, count(*) FROM deep WHERE day >= $1 AND day < $2 GROUP BY note",
            "deep.note",
        ),
    ] {
        let mut client = prepared(&server, query);
        let (planid, nodes) = execute(&mut client, (250, 350));
        let described = conditions(&mut server.connect(), planid);
        assert!(has(&described, "Key", text), "{query}: {nodes:#?} {described:#?}");
    }
}

#[test]
fn temporary_partitions_that_were_made_again_are_named() {
    let server = server("pruned-temporary");
    let mut client = server.connect();
    for round in 0..3 {
        run_each(
            &mut client,
            "DROP TABLE IF EXISTS days;
             CREATE TEMP TABLE days (day int) PARTITION BY RANGE (day);
             CREATE TEMP TABLE days_a PARTITION OF days FOR VALUES FROM (0) TO (10);
             CREATE TEMP TABLE days_b PARTITION OF days FOR VALUES FROM (10) TO (20);
             INSERT INTO days SELECT generate_series(0, 19)",
        );
        for _ in 0..3 {
            measured(&mut client, "SELECT day FROM days WHERE day <> 5");
            let shown = first_column(&mut client, "SELECT rowsource_display()");
            for name in ["days_a", "days_b"] {
                assert!(has(&shown, "Seq Scan", name), "{round}: {shown:#?}");
            }
        }
    }
}

#[test]
fn a_plan_that_is_described_anew_has_what_was_pruned() {
    let server = server("pruned-anew");
    let query = "SELECT note FROM orders WHERE day >= $1 AND day < $2";
    let expected = execute(&mut prepared(&server, query), SETS[1]);
    assert_eq!(expected.1.len(), 3, "{expected:?}");
    run_each(&mut server.connect(), "SELECT rowsource_reset()");
    let mut client = prepared(&server, query);
    // The first description takes what the session may spend on descriptions. Without constants, the second
    // one must be made all the same.
    run_each(&mut client, "SET pg_rowsource.keep_constants = on");
    for (from, to) in [SETS[1], (1, 199), SETS[3], SETS[1]] {
        measured(&mut client, &format!("EXECUTE q ({from}, {to})"));
    }
    run_each(&mut client, "SET pg_rowsource.keep_constants = off");
    for set in [SETS[1], SETS[4], SETS[0]] {
        assert_eq!(execute(&mut client, set), expected, "{set:?}");
    }
}
