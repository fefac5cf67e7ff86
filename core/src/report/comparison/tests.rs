use super::*;
use crate::compare::difference;

fn node(depth: usize, parent: Option<usize>, operation: &str, names: [&str; 2], self_ms: f64) -> Node {
    let [object, table] = names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
    Node {
        parent,
        depth,
        operation: operation.to_owned(),
        object,
        table,
        starts: 12,
        rows: 1_200,
        handled_rows: 2_400,
        processes: 1.0,
        self_ms,
        ..Node::default()
    }
}

fn side(nodes: Vec<Node>) -> Side {
    Side {
        executions: 12,
        total_ms: nodes.iter().map(|node| node.self_ms).sum(),
        nodes,
        ..Side::default()
    }
}

/// The example of the design: an index is gone.
fn index_gone() -> [Side; 2] {
    let mut before = side(vec![
        node(0, None, "Sort", ["", ""], 2_400.0),
        node(1, Some(0), "Nested Loop", ["", ""], 6_000.0),
        node(2, Some(1), "Seq Scan", ["customer", ""], 30_000.0),
        node(
            2,
            Some(1),
            "Index Scan",
            ["orders_customer_idx", "orders"],
            10_800.0,
        ),
    ]);
    let mut after = side(vec![
        node(0, None, "Sort", ["", ""], 2_400.0),
        node(1, Some(0), "Hash Join", ["", ""], 10_000.0),
        node(2, Some(1), "Seq Scan", ["customer", ""], 30_000.0),
        node(2, Some(1), "Hash", ["", ""], 800.0),
        node(3, Some(3), "Seq Scan", ["orders", ""], 415_200.0),
    ]);
    after.gone_indexes = vec!["public.orders_customer_idx".to_owned()];
    (before.name, after.name) = ("planid 1".to_owned(), "planid 2".to_owned());
    [before, after]
}

fn text(sides: &[Side; 2], metric: Metric) -> String {
    let [first, second] = sides;
    let difference = difference(first, second);
    let comparison = Comparison {
        first,
        second,
        difference: &difference,
    };
    comparison.lines(metric).join("\n")
}

/// Of a plan that took over again, all executions are known, and not those since then. If they take longer,
/// that is so; if not, that is no answer.
#[test]
fn executions_from_before_are_no_equality() {
    let [before, mut after] = index_gone();
    let sentence = |after: &Side| {
        let difference = difference(&before, after);
        let comparison = Comparison {
            first: &before,
            second: after,
            difference: &difference,
        };
        (comparison.sentence(), comparison.cause())
    };
    after.returned_at = Some("12:00".to_owned());
    let (differs, cause) = sentence(&after);
    assert!(
        differs.ends_with("because index orders_customer_idx is gone"),
        "{differs}"
    );
    assert_eq!(cause.as_deref(), Some("index orders_customer_idx is gone"));
    let alike = Side {
        returned_at: after.returned_at.clone(),
        ..before.clone()
    };
    let (sentence, cause) = sentence(&alike);
    assert_eq!(
        sentence,
        "4.1 s -> 4.1 s (1.0x, 12 executions): this says nothing, because executions of B before it took over at 12:00 are included"
    );
    assert_eq!(cause, None);
}

#[test]
fn an_index_that_is_gone() {
    let text = text(&index_gone(), Metric::SelfTime);
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "4.1 s -> 38.2 s (9.3x, 12 executions): Seq Scan on orders (id 4) +33.7 s, because index orders_customer_idx is gone",
            "A: planid 1",
            "B: planid 2",
            "self_time in milliseconds, mean of an execution:",
            "------------------------------------------------------------------------------------------------------------------------",
            "|   | A Id | B Id | Operation                                           |       A |        B | Difference | Cause      |",
            "------------------------------------------------------------------------------------------------------------------------",
            "|   |    0 |    0 | Sort                                                |  200.00 |   200.00 |       0.00 |            |",
            "| - |    1 |      |  Nested Loop                                        |  500.00 |          |    -500.00 |            |",
            "| + |      |    1 |  Hash Join                                          |         |   833.33 |    +833.33 | index gone |",
            "|   |    2 |    2 |   Seq Scan on customer                              | 2500.00 |  2500.00 |       0.00 |            |",
            "| + |      |    3 |   Hash                                              |         |    66.67 |     +66.67 |            |",
            "|   |    3 |    4 |    Seq Scan on orders (A: Index Scan using order... |  900.00 | 34600.00 |  +33700.00 | index gone |",
            "------------------------------------------------------------------------------------------------------------------------",
        ]
    );
}

#[test]
fn other_metrics_have_other_numbers() {
    let text = text(&index_gone(), Metric::Rows);
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "4.1 s -> 38.2 s (9.3x, 12 executions): Seq Scan on orders (id 4) +33.7 s, because index orders_customer_idx is gone",
            "A: planid 1",
            "B: planid 2",
            "rows, mean of an execution:",
            "------------------------------------------------------------------------------------------------------------------------",
            "|   | A Id | B Id | Operation                                                    |   A |   B | Difference | Cause      |",
            "------------------------------------------------------------------------------------------------------------------------",
            "|   |    0 |    0 | Sort                                                         | 100 | 100 |          0 |            |",
            "| - |    1 |      |  Nested Loop                                                 | 100 |     |       -100 |            |",
            "| + |      |    1 |  Hash Join                                                   |     | 100 |       +100 | index gone |",
            "|   |    2 |    2 |   Seq Scan on customer                                       | 100 | 100 |          0 |            |",
            "| + |      |    3 |   Hash                                                       |     | 100 |       +100 |            |",
            "|   |    3 |    4 |    Seq Scan on orders (A: Index Scan using orders_custome... | 100 | 100 |          0 | index gone |",
            "------------------------------------------------------------------------------------------------------------------------",
        ]
    );
    for metric in Metric::ALL {
        assert_eq!(Metric::from_name(metric.name()), Some(metric));
    }
    assert_eq!(Metric::from_name("time"), None);
}

/// Makes 200 rows come where two were expected.
fn misestimate(side: &mut Side, statistics: Option<TableStatistics>) {
    (side.nodes[0].self_ms, side.total_ms) = (3_600.0, 3_600.0);
    (side.nodes[0].expected_rows, side.nodes[0].actual_rows) = (24.0, 2_400);
    side.nodes[0].handled_rows = 7_200;
    side.statistics = statistics;
}

#[test]
fn sentences_name_the_cause() {
    let base = || side(vec![node(0, None, "Seq Scan", ["orders", ""], 1_200.0)]);
    let sentence = |change: fn(&mut Side)| {
        let (before, mut after) = (base(), base());
        change(&mut after);
        let difference = difference(&before, &after);
        let comparison = Comparison {
            first: &before,
            second: &after,
            difference: &difference,
        };
        comparison.sentence()
    };
    assert_eq!(
        [
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (12_000.0, 12_000.0);
                side.nodes[0].handled_rows = 24_000;
            }),
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (120.0, 120.0);
                side.nodes[0].handled_rows = 240;
            }),
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (12_000.0, 12_000.0);
                side.nodes[0].lock_ms = 10_800.0;
                side.blocker = Some(Blocker {
                    pid: 4711,
                    application: Some("report".to_owned()),
                    statement: Some("LOCK TABLE\norders".to_owned()),
                });
            }),
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (12_000.0, 12_000.0);
                side.nodes[0].lock_ms = 10_800.0;
                side.blocker = Some(Blocker::default());
            }),
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (3_600.0, 3_600.0);
                (side.nodes[0].temp_blocks, side.nodes[0].temp_ms) = (500, 1_800.0);
            }),
            sentence(|side| {
                (side.nodes[0].self_ms, side.total_ms) = (12_000.0, 12_000.0);
                side.nodes[0].hit = 24_000;
            }),
            sentence(|side| misestimate(side, None)),
            sentence(|side| misestimate(side, Some(TableStatistics::NeverAnalysed))),
            sentence(|side| misestimate(side, Some(TableStatistics::Changed(2_400)))),
            sentence(|side| misestimate(side, Some(TableStatistics::InDatabase("shop".to_owned())))),
            sentence(|side| side.total_ms = 3_600.0),
            sentence(|side| side.total_ms = 1_400.0),
            sentence(|side| (side.total_ms, side.squares) = (3_600.0, 2_600_000.0)),
            sentence(|side| side.executions = 0),
        ],
        [
            "100 ms -> 1.0 s (10.0x, 12 executions): Seq Scan on orders (id 0) +900 ms, because it handles more data (200 rows -> 2000 rows)",
            "100 ms -> 10.0 ms (0.10x, 12 executions): Seq Scan on orders (id 0) -90.0 ms, because it handles less data (200 rows -> 20 rows)",
            "100 ms -> 1.0 s (10.0x, 12 executions): Seq Scan on orders (id 0) +900 ms, because it waits for locks, blocked by process 4711 (report): LOCK TABLE orders",
            "100 ms -> 1.0 s (10.0x, 12 executions): Seq Scan on orders (id 0) +900 ms, because it waits for locks, blocked by a prepared transaction",
            "100 ms -> 300 ms (3.0x, 12 executions): Seq Scan on orders (id 0) +200 ms, because it writes temporary files",
            "100 ms -> 1.0 s (10.0x, 12 executions): Seq Scan on orders (id 0) +900 ms, because it gets more blocks for as many rows (0 blocks -> 2000 blocks)",
            "100 ms -> 300 ms (3.0x, 12 executions): Seq Scan on orders (id 0) +200 ms, because 2 rows of Seq Scan on orders were expected and 200 came",
            "100 ms -> 300 ms (3.0x, 12 executions): Seq Scan on orders (id 0) +200 ms, because 2 rows of Seq Scan on orders were expected and 200 came (the table was never analysed)",
            "100 ms -> 300 ms (3.0x, 12 executions): Seq Scan on orders (id 0) +200 ms, because 2 rows of Seq Scan on orders were expected and 200 came (2400 rows of the table changed since it was analysed)",
            "100 ms -> 300 ms (3.0x, 12 executions): Seq Scan on orders (id 0) +200 ms, because 2 rows of Seq Scan on orders were expected and 200 came (whether the table was analysed, only the database \"shop\" knows: connect to it)",
            "100 ms -> 300 ms (3.0x, 12 executions), because more time passes outside of the nodes",
            "100 ms -> 117 ms (1.2x, 12 executions): no difference, it is below 1.25x",
            "100 ms -> 300 ms (3.0x, 12 executions): no difference, chance explains up to 322 ms",
            "There is nothing to compare: one side has no executions",
        ]
    );
}

#[test]
fn json_can_be_compared_elsewhere() {
    let [first, second] = index_gone();
    let difference = difference(&first, &second);
    let comparison = Comparison {
        first: &first,
        second: &second,
        difference: &difference,
    };
    let json = comparison.json().expect("JSON");
    let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read["cause"], "index gone");
    assert_eq!(read["nodes"][1]["name"], "Nested Loop");
    assert_eq!(read["nodes"].as_array().map(Vec::len), Some(6));
    let side = Side::from_json(&read["a"].to_string()).expect("a side");
    assert_eq!(side, first);
    for (broken, message) in [
        (
            "{",
            "this is no exported plan: EOF while parsing an object at line 1 column 1",
        ),
        (
            &read["a"].to_string().replace("\"parent\":0", "\"parent\":7"),
            "node 1 of the exported plan has no valid parent",
        ),
        (
            &read["a"]
                .to_string()
                .replace("\"self_ms\":6000.0", "\"self_ms\":-1.0"),
            "a figure of the exported plan is not valid",
        ),
        (
            &read["a"]
                .to_string()
                .replace("\"rowsource_plan\":1", "\"rowsource_plan\":2"),
            "this is no exported plan: it has the format 2, and this version of pg_rowsource reads 1 at line 1 column 1468",
        ),
    ] {
        assert_eq!(
            Side::from_json(broken).map_err(|error| error.to_string()),
            Err(message.to_owned())
        );
    }
}

/// Names may be long and have any characters, and plans may be deep.
#[test]
fn lines_have_at_most_120_columns() {
    let long = "日本語\n".repeat(60);
    let nodes = (0..200usize).map(|i| node(i, i.checked_sub(1), "Seq Scan", [&long, ""], 1e9 * i as f64));
    let deep = side(nodes.collect());
    let lines = text(&[deep.clone(), side(vec![])], Metric::SelfTime);
    let widest = lines.lines().map(unicode_width::UnicodeWidthStr::width).max();
    assert!(widest <= Some(WIDTH), "{widest:?}");
    assert_eq!(
        text(&[side(vec![]), side(vec![])], Metric::Rows).lines().count(),
        3
    );
    assert!(text(&[side(vec![]), deep], Metric::Rows).lines().count() > 200);
}
