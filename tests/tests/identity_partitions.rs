//! Partitions that are read in the same way are one node, and which of them were pruned is no other plan.

use postgres::Client;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::{basic_server, measured};
use rowsource_tests::{Server, last};

/// Runs a statement, and returns the planid of its plan.
fn planid(client: &mut Client, sql: &str) -> i64 {
    measured(client, sql);
    value(client, "SELECT planid FROM rowsource_last()")
}

/// Returns what the store has of a plan: node, operation, object, starts and rows.
fn stored(client: &mut Client, planid: i64) -> Vec<String> {
    let rows = texts(
        client,
        &format!(
            "SELECT depth::text, operation, object_name, starts::text, rows::text
             FROM pg_stat_rowsource WHERE planid = {planid} ORDER BY node_id"
        ),
    );
    let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
    rows.into_iter().map(line).collect()
}

/// Starts a server with two tables of four partitions of 100 rows each.
fn partitioned(name: &str) -> (Server, Client) {
    let server = basic_server(name, &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE orders (id int, day int, note text) PARTITION BY RANGE (day);
         CREATE TABLE orders_a PARTITION OF orders FOR VALUES FROM (0) TO (100);
         CREATE TABLE orders_b PARTITION OF orders FOR VALUES FROM (100) TO (200);
         CREATE TABLE orders_c PARTITION OF orders FOR VALUES FROM (200) TO (300);
         CREATE TABLE others (note text, gone int, day int, id int);
         ALTER TABLE others DROP gone;
         ALTER TABLE orders ATTACH PARTITION others FOR VALUES FROM (300) TO (400);
         INSERT INTO orders SELECT i, i, 'note ' || i FROM generate_series(0, 399) i;
         CREATE TABLE plain AS SELECT * FROM orders;
         SET enable_seqscan = on; VACUUM ANALYZE orders; ANALYZE plain",
    );
    (server, client)
}

#[test]
fn partitions_that_are_read_alike_are_one_node() {
    let (_server, mut client) = partitioned("identity-partitions");
    let all = planid(&mut client, "SELECT note FROM orders WHERE day >= 0");
    assert_eq!(
        stored(&mut client, all),
        ["0 Append 1 400", "1 Seq Scan orders 4 400"]
    );
    // The planner prunes all but three, two and one.
    for (day, partitions, rows) in [(150, 3, 250), (250, 2, 150), (350, 1, 50)] {
        let statement = format!("SELECT note FROM orders WHERE day >= {day}");
        run_each(&mut client, "SELECT rowsource_reset()");
        assert_eq!(planid(&mut client, &statement), all, "{statement}");
        let expected = [
            format!("0 Append 1 {rows}"),
            format!("1 Seq Scan orders {partitions} {rows}"),
        ];
        assert_eq!(stored(&mut client, all), expected, "{statement}");
        // The session's own last statement still has each partition.
        let shown = texts(&mut client, "SELECT * FROM rowsource_display()");
        let shown: Vec<String> = shown.into_iter().flatten().flatten().collect();
        let scans = shown.iter().filter(|line| line.contains("Seq Scan")).count();
        assert_eq!(scans, partitions, "{shown:#?}");
        assert!(shown.iter().any(|line| line.contains("others")), "{shown:#?}");
    }
    // A session that knows nothing yet, and a partition that is attached later.
    run_each(
        &mut client,
        "CREATE TABLE orders_e PARTITION OF orders FOR VALUES FROM (400) TO (500); ANALYZE orders_e",
    );
    assert_eq!(
        planid(&mut client, "SELECT note FROM orders WHERE day >= 250"),
        all
    );
    let mut new = _server.connect();
    assert_eq!(planid(&mut new, "SELECT note FROM orders WHERE day >= 150"), all);
    assert_eq!(planid(&mut new, "SELECT note FROM orders WHERE day >= 450"), all);
    let plans: i64 = value(
        &mut client,
        "SELECT count(*) FROM pg_stat_rowsource_plans WHERE query LIKE '%note FROM orders%'",
    );
    assert_eq!(plans, 1);
}

/// Queries with the same plan for any day, which bounds what the outermost one reads.
const OUTER_QUERIES: [&str; 14] = [
    "SELECT (SELECT max(plain.day) FROM plain WHERE plain.id = orders.id) FROM orders WHERE day >= DAY",
    "SELECT note FROM orders WHERE day >= DAY AND id NOT IN (SELECT plain.id FROM plain WHERE plain.day > 7)",
    "WITH others AS MATERIALIZED (SELECT id FROM plain WHERE day > 390)
     SELECT count(*) FROM orders, others WHERE orders.day >= DAY AND others.id + 1 = orders.id + 1",
    "SELECT count(*) FROM orders, (SELECT id FROM plain WHERE day > 390 OFFSET 0) other
     WHERE orders.day >= DAY AND other.id = orders.id",
    "SELECT count(*) FROM orders WHERE day >= DAY UNION ALL SELECT count(*) FROM plain",
    "SELECT count(*) FROM plain UNION ALL (SELECT id FROM orders WHERE day >= DAY ORDER BY note LIMIT 5)",
    "SELECT note FROM orders WHERE day >= DAY AND (SELECT count(*) FROM plain) > 0 ORDER BY note",
    "SELECT id, generate_series(1, 3) FROM orders WHERE day >= DAY",
    "SELECT generate_series(1, id % 2 + 1) FROM orders WHERE day >= DAY
     AND note <> (SELECT max(note) FROM plain) AND current_setting('port') <> '1' ORDER BY 1",
    "SELECT note, 1 FROM orders WHERE day >= DAY UNION ALL SELECT note, 2 FROM plain WHERE day > 7",
    "SELECT note FROM orders WHERE day >= DAY AND id <> (SELECT max(id) FROM plain)",
    "WITH others AS MATERIALIZED (SELECT id FROM plain WHERE day > 390)
     SELECT note FROM orders WHERE day >= DAY AND id NOT IN (SELECT id FROM others) AND id > (SELECT count(*) FROM others)",
    "SELECT count(*) FROM orders WHERE day >= DAY AND current_setting('port') <> '1'",
    "SELECT note FROM orders WHERE day >= DAY AND current_setting('port') <> '1'
     AND id <> (SELECT max(o.id) FROM orders o WHERE o.day >= DAY AND o.id <> (SELECT max(id) FROM plain))",
];

#[test]
fn what_comes_after_partitions_does_not_depend_on_their_number() {
    let (server, mut client) = partitioned("identity-after");
    run_each(
        &mut client,
        "CREATE INDEX plain_id ON plain (id); SET enable_mergejoin = off; SET enable_hashagg = off;
         SET enable_nestloop = off; SET enable_material = off",
    );
    let of_day = |client: &mut Client, query: &str, day: i32| {
        // What other sessions know, they look up.
        run_each(client, "SELECT rowsource_reset()");
        planid(client, &query.replace("DAY", &day.to_string()))
    };
    let all: Vec<i64> = OUTER_QUERIES
        .iter()
        .map(|query| of_day(&mut client, query, 0))
        .collect();
    for (query, all) in OUTER_QUERIES.iter().zip(&all) {
        for day in [150, 250, 350] {
            let found = of_day(&mut client, query, day);
            let lines = stored(&mut client, found);
            assert_eq!(found, *all, "{query}, from {day}: {lines:#?}");
        }
    }
    // A partition is attached, and a new session reads it.
    run_each(
        &mut client,
        "CREATE TABLE orders_e PARTITION OF orders FOR VALUES FROM (400) TO (500); ANALYZE orders_e",
    );
    let mut new = server.connect();
    run_each(
        &mut new,
        "SET enable_mergejoin = off; SET enable_hashagg = off; SET enable_nestloop = off; SET enable_material = off",
    );
    for (query, all) in OUTER_QUERIES.iter().zip(&all) {
        assert_eq!(of_day(&mut new, query, 250), *all, "{query}, attached");
    }
}

/// Parallel Appends are made where the planner makes them.
#[test]
fn a_lone_partition_is_read_in_parallel_as_several_are() {
    let (_server, mut client) = partitioned("identity-parallel");
    run_each(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET max_parallel_workers_per_gather = 2",
    );
    for append in ["on", "off"] {
        run_each(&mut client, &format!("SET enable_parallel_append = {append}"));
        for filter in ["", " AND current_setting('port') <> '1'"] {
            let mut of_day = |day: i32| {
                run_each(&mut client, "SELECT rowsource_reset()");
                let query = format!("SELECT count(*) FROM orders WHERE day >= {day}{filter}");
                let planid = planid(&mut client, &query);
                (planid, stored(&mut client, planid))
            };
            let (all, nodes) = of_day(0);
            let is_parallel = nodes.iter().any(|node| node.contains("Parallel Append"));
            assert!(
                is_parallel == (append == "on")
                    && nodes.iter().any(|node| node.contains("Parallel Seq Scan")),
                "{nodes:#?}"
            );
            for day in [150, 350] {
                let (found, nodes) = of_day(day);
                assert_eq!(found, all, "{append}{filter}, from {day}: {nodes:#?}");
            }
        }
    }
}

/// Children of an inheritance are as partitions. Their parent is always read.
#[test]
fn children_of_a_table_are_one_node_whichever_are_read() {
    let (_server, mut client) = partitioned("identity-inherited");
    run_each(
        &mut client,
        "CREATE TABLE parent (id int, day int, note text);
         CREATE TABLE child_a (CHECK (day < 100)) INHERITS (parent);
         CREATE TABLE child_b (CHECK (day BETWEEN 100 AND 199)) INHERITS (parent);
         CREATE TABLE child_c (CHECK (day >= 200)) INHERITS (parent);
         INSERT INTO child_a SELECT i, i, 'a' FROM generate_series(0, 99) i;
         INSERT INTO child_b SELECT i, i, 'b' FROM generate_series(100, 199) i;
         INSERT INTO child_c SELECT i, i, 'c' FROM generate_series(200, 299) i;
         VACUUM ANALYZE parent",
    );
    let mut of_day = |day: i32| {
        run_each(&mut client, "SELECT rowsource_reset()");
        let planid = planid(
            &mut client,
            &format!("SELECT note FROM parent WHERE day >= {day}"),
        );
        (planid, stored(&mut client, planid))
    };
    let (all, nodes) = of_day(0);
    assert_eq!(nodes, ["0 Append 1 300", "1 Seq Scan parent 4 300"]);
    for (day, scans, rows) in [(150, 3, 150), (250, 2, 50)] {
        let (found, nodes) = of_day(day);
        let expected = [
            format!("0 Append 1 {rows}"),
            format!("1 Seq Scan parent {scans} {rows}"),
        ];
        assert_eq!((found, &nodes[..]), (all, &expected[..]), "from {day}");
    }
}

#[test]
fn queries_of_union_all_are_no_partitions() {
    let (_server, mut client) = partitioned("identity-union");
    let union = planid(
        &mut client,
        "SELECT count(*) FROM orders WHERE day >= 350 UNION ALL SELECT count(*) FROM plain",
    );
    let lines = stored(&mut client, union);
    assert_eq!(
        lines,
        [
            "0 Append 1 2",
            "1 Aggregate 1 1",
            "2 Append 1 50",
            "3 Seq Scan orders 1 50",
            "1 Aggregate 1 1",
            "2 Seq Scan plain 1 400"
        ]
    );
    let planned = texts(
        &mut client,
        &format!(
            "SELECT node_id::text, details ->> 'Partitions Planned' FROM pg_stat_rowsource
             WHERE planid = {union} AND details ? 'Partitions Planned'"
        ),
    );
    assert_eq!(planned, [["2", "1"].map(|text| Some(text.to_owned()))]);
}

#[test]
fn partitions_that_are_pruned_at_run_time_are_no_other_plan() {
    let (_server, mut client) = partitioned("identity-pruned");
    run_each(
        &mut client,
        "SET plan_cache_mode = force_generic_plan;
         PREPARE q(int) AS SELECT note FROM orders WHERE day >= $1",
    );
    let all = planid(&mut client, "EXECUTE q(0)");
    for day in [150, 250, 350] {
        assert_eq!(planid(&mut client, &format!("EXECUTE q({day})")), all, "{day}");
    }
    let lines = stored(&mut client, all);
    assert_eq!(lines, ["0 Append 4 850", "1 Seq Scan orders 10 850"]);
    // The Append says how many were planned, and how many ran.
    let partitions = |client: &mut Client, details: &str| -> Vec<Option<String>> {
        let columns = ["Partitions Planned", "Partitions Run"].map(|key| format!("{details} ->> '{key}'"));
        let rows = texts(
            client,
            &format!(
                "SELECT {} FROM pg_stat_rowsource WHERE planid = {all} AND node_id = 0",
                columns.join(", ")
            ),
        );
        rows.into_iter().flatten().collect()
    };
    let some = |numbers: [&str; 2]| numbers.map(|number| Some(number.to_owned()));
    assert_eq!(partitions(&mut client, "details"), some(["16", "10"]));
    assert_eq!(partitions(&mut client, "last_details"), some(["4", "1"]));
    let ids = last(&mut client).map(|(queryid, planid, _)| format!("{queryid}, {planid}"));
    let ids = ids.expect("the last statement");
    for (call, part) in [
        ("rowsource_display", "| 1 of 4 |"),
        ("rowsource_explain", "Partitions: 1 of 4"),
    ] {
        let shown = first_column(&mut client, &format!("SELECT {call}({ids})")).join("\n");
        assert!(shown.contains(part), "{call}: {shown}");
    }
}

#[test]
fn each_way_to_read_partitions_is_a_node() {
    let (_server, mut client) = partitioned("identity-ways");
    run_each(
        &mut client,
        "CREATE INDEX a_day ON orders_a (day); CREATE INDEX b_day ON orders_b (day);
         CREATE INDEX o_day ON others (day); SET enable_bitmapscan = off; SET enable_seqscan = off",
    );
    let statement = "SELECT note FROM orders WHERE day IN (1, 2, 101, 201, 202, 203, 301)";
    let mixed = planid(&mut client, statement);
    let mut lines = stored(&mut client, mixed);
    assert_eq!(lines.remove(0), "0 Append 1 7");
    lines.sort();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("1 Index Scan") && lines[0].ends_with(" 3 4"),
        "{lines:?}"
    );
    assert_eq!(lines[1], "1 Seq Scan orders 1 3");
    // An index of other columns is another way, and another plan.
    run_each(
        &mut client,
        "DROP INDEX b_day; CREATE INDEX b_day ON orders_b (day, id)",
    );
    let other = planid(&mut client, statement);
    assert_ne!(other, mixed);
    assert_eq!(stored(&mut client, other).len(), 4);
    // If all have the same index, its name is that of the table's.
    run_each(
        &mut client,
        "DROP INDEX a_day, b_day, o_day; CREATE INDEX orders_day ON orders (day)",
    );
    let indexed = planid(&mut client, statement);
    assert_eq!(
        stored(&mut client, indexed),
        ["0 Append 1 7", "1 Index Scan orders_day 4 7"]
    );
    run_each(&mut client, "SELECT rowsource_reset()");
    let lone = planid(&mut client, "SELECT note FROM orders WHERE day IN (301)");
    assert_ne!(lone, mixed);
    assert_eq!(
        stored(&mut client, lone),
        ["0 Append 1 1", "1 Index Scan orders_day 1 1"]
    );
}

#[test]
fn what_is_not_a_partition_is_not_folded() {
    let (_server, mut client) = partitioned("identity-union");
    for (statement, nodes) in [
        ("SELECT note FROM plain UNION ALL SELECT note FROM plain", 3),
        ("SELECT note FROM orders UNION ALL SELECT note FROM plain", 3),
        ("SELECT note FROM orders UNION ALL SELECT note FROM orders", 3),
        ("SELECT note FROM orders_a UNION ALL SELECT note FROM orders_b", 3),
        ("SELECT 1 UNION ALL SELECT 2", 3),
        ("SELECT note FROM plain", 1),
        ("SELECT note FROM orders_a", 1),
    ] {
        let id = planid(&mut client, statement);
        assert_eq!(stored(&mut client, id).len(), nodes, "{statement}");
    }
    let [part, whole] = ["orders_a", "orders"]
        .map(|table| planid(&mut client, &format!("SELECT note FROM {table} WHERE day < 50")));
    assert_ne!(part, whole);
}

#[test]
fn a_plan_of_many_partitions_is_kept_with_few_nodes() {
    let server = basic_server("identity-many", &["max_locks_per_transaction = 1024"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE big (id int, note text) PARTITION BY RANGE (id)",
    );
    let part = |i: i32| {
        format!(
            "CREATE TABLE big_{i} PARTITION OF big FOR VALUES FROM ({i}) TO ({})",
            i + 1
        )
    };
    let parts: Vec<String> = (0..1_200).map(part).collect();
    run_each(&mut client, &parts.join(";"));
    run_each(
        &mut client,
        "INSERT INTO big SELECT i % 1200, 'note' FROM generate_series(0, 11999) i",
    );
    let id = planid(&mut client, "SELECT count(*) FROM big WHERE note <> 'other'");
    let lines = stored(&mut client, id);
    assert_eq!(
        lines,
        ["0 Aggregate 1 1", "1 Append 1 12000", "2 Seq Scan big 1200 12000"]
    );
    let shown = first_column(
        &mut client,
        &format!(
            "SELECT d FROM rowsource_display((SELECT queryid FROM pg_stat_rowsource_plans WHERE planid = {id}), {id}) d"
        ),
    );
    assert!(shown.len() < 60, "{shown:#?}");
    assert!(
        shown
            .iter()
            .any(|line| line.contains("(note <> $1)") || line.contains("note <> ")),
        "{shown:#?}"
    );
}
