use super::*;
use crate::model::{Buffers, NamedWaits, Time, Wal};

fn node(id: usize, depth: usize, operation: &str, object_name: &str, plan_rows: f64) -> PlanNode {
    PlanNode {
        id,
        parent: id.checked_sub(1),
        depth,
        operation: operation.to_owned(),
        object_name: (!object_name.is_empty()).then(|| object_name.to_owned()),
        plan_rows,
        plan_width: 8.0,
        total_cost: 1234.5 * 3usize.saturating_sub(depth) as f64,
        ..PlanNode::default()
    }
}

fn stats(starts: u64, rows: u64, total_ms: f64, error_ms: f64, shared_hit: i64) -> NodeStats {
    NodeStats {
        starts: starts.into(),
        rows,
        time: Time {
            total_ms,
            error_ms,
            ..Time::default()
        }
        .into(),
        buffers: Buffers {
            shared_hit,
            ..Buffers::default()
        }
        .into(),
        wal: Wal::default().into(),
        ..NodeStats::default()
    }
}

/// Returns the example of the design.
fn example() -> (Header, Vec<PlanNode>, Vec<NodeStats>) {
    let header = Header {
        queryid: 4711,
        planid: 815,
        executions: 1,
        sampfreq: 128,
        clock: "tsc".to_owned(),
        shown: Shown::Last,
        block_size: 8192,
        older_literals: false,
        ..Header::default()
    };
    let mut nodes = vec![
        node(0, 0, "Aggregate", "", 1.0),
        node(1, 1, "Seq Scan", "test", 1e7),
    ];
    nodes[1].predicates = vec![("Filter".to_owned(), "(id < 10)".to_owned())];
    let stats = vec![
        stats(1, 1, 512.031, 0.0, 44_248),
        stats(1, 10_000_000, 231.477, 0.926, 44_248),
    ];
    (header, nodes, stats)
}

fn shown(format: &str) -> Vec<String> {
    let (header, nodes, stats) = example();
    display(&header, &nodes, &stats, &format.parse().expect("a format"))
}

fn headings(lines: &[String]) -> Vec<&str> {
    let line = lines
        .iter()
        .find(|line| line.starts_with("| Id") || line.starts_with("|Id"))
        .expect("a heading");
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_example_of_the_design_is_displayed() {
    let expected = "\
queryid 4711  planid 815  executions 1  sampfreq 128  clock tsc
--------------------------------------------------------------------------------------------
| Id | Operation            | Name | Starts | E-Rows | A-Rows | A-Time ms |  +/- | Buffers |
--------------------------------------------------------------------------------------------
|  0 | Aggregate            |      |      1 |      1 |      1 |   512.031 |      |   44248 |
|  1 |  Seq Scan            | test |      1 |    10M |    10M |   231.477 | 0.4% |   44248 |
--------------------------------------------------------------------------------------------
Predicate Information (identified by operation id):
---------------------------------------------------
   1 - Filter: (id < 10)";
    assert_eq!(shown("ALLSTATS LAST").join("\n"), expected);
    assert_eq!(shown("").join("\n"), expected);
}

#[test]
fn every_column_is_displayed() {
    let header = Header {
        executions: 3,
        sampfreq: 1,
        clock: "system".to_owned(),
        block_size: 16_384,
        ..Header::default()
    };
    let nodes = [
        node(0, 0, "Insert", "target", 0.0),
        node(1, 1, "Sort", "", 700_000.0),
        PlanNode {
            subplan_name: Some("InitPlan 1 (returns $0)".to_owned()),
            ..node(2, 2, "Result", "", 1.0)
        },
    ];
    let buffers = Buffers {
        shared_hit: 100_000,
        shared_read: 20,
        local_hit: 3,
        local_read: 4,
        shared_written: 5,
        local_written: 6,
        temp_read: 7,
        temp_written: 80_000_000,
        temp_read_ms: 1.5,
        ..Buffers::default()
    };
    let mut stats = [
        stats(1, 0, 3_600_000.0, 0.0, 0),
        stats(3, 2_100_000, 1.5, 0.6, 0),
        stats(0, 0, 0.0, 0.0, 0),
    ];
    stats[0].buffers = buffers.into();
    stats[0].wal = Wal {
        records: 60_000,
        fpi: 3,
        bytes: 7_300_176,
        ..Wal::default()
    }
    .into();
    stats[1].facts.memory_kb = 4096.into();
    stats[1].facts.disk_kb = 123_456.into();
    let lines = display(
        &header,
        &nodes,
        &stats,
        &"ALLSTATS +COST +BYTES +WAL".parse().expect("a format"),
    );
    let expected = "\
queryid 0  planid 0  executions 3  sampfreq 1  clock system  block size 16384
totals over 3 executions
-----------------------------------------------------------------------------------------------------------------------------------------------------------------------------
|Id|Operation                        |Name  |Starts|E-Rows|E-Bytes|Cost|A-Rows|A-Time ms|+/-|Buffers|Reads|Writes|Temp-R|Temp-W|WAL-Recs|WAL-FPI|WAL-Bytes|Used-Mem|Used-Tmp|
-----------------------------------------------------------------------------------------------------------------------------------------------------------------------------
| 0|Insert                           |target|     1|     0|      0|3704|     0|  3600000|   |   100K|   24|    11|     7|   80M|   60000|      3|    7129K|        |        |
| 1| Sort                            |      |     3|  700K|  5469K|2469| 2100K|        2|40%|      0|    0|     0|     0|     0|       0|      0|        0|   4096K|    121M|
| 2|  InitPlan 1 (returns $0): Result|      |     0|     1|      8|1235|     0|         |   |      0|    0|     0|     0|     0|       0|      0|        0|        |        |
-----------------------------------------------------------------------------------------------------------------------------------------------------------------------------";
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn words_add_and_remove_columns() {
    let always = ["Id", "Operation", "Name", "Starts", "A-Rows"];
    assert_eq!(headings(&shown("LAST -ROWS -TIME -BUFFERS")), always);
    assert_eq!(headings(&shown("MEMSTATS -ROWS -TIME")), always);
    assert!(headings(&shown("+COST")).contains(&"Cost"));
    assert!(headings(&shown("+BYTES")).contains(&"E-Bytes"));
    assert!(
        !headings(&shown("WAL"))
            .iter()
            .any(|heading| heading.contains("WAL")),
        "no WAL was written"
    );
    assert!(!shown("-PREDICATE").iter().any(|line| line.contains("Predicate")));
}

#[test]
fn statistics_with_row_counts_only_have_few_columns() {
    let (header, nodes, _) = example();
    let rows = [1, 10_000_000].map(|rows| NodeStats {
        rows,
        ..NodeStats::default()
    });
    let lines = display(&header, &nodes, &rows, &Format::default());
    assert_eq!(headings(&lines), ["Id", "Operation", "Name", "E-Rows", "A-Rows"]);
}

#[test]
fn without_timing_there_is_no_time_column() {
    let (header, nodes, mut stats) = example();
    stats.iter_mut().for_each(|stats| stats.time = None.into());
    let lines = display(&header, &nodes, &stats, &Format::default());
    assert_eq!(
        headings(&lines),
        ["Id", "Operation", "Name", "Starts", "E-Rows", "A-Rows", "Buffers"]
    );
}

#[test]
fn incomplete_and_extreme_input_is_displayed() {
    let (header, nodes, stats) = example();
    let format = Format::default();
    assert_eq!(display(&header, &[], &[], &format).len(), 1);
    assert_eq!(display(&header, &[], &stats, &format).len(), 1);

    let without = display(&header, &nodes, &[], &format);
    assert_eq!(headings(&without), ["Id", "Operation", "Name", "E-Rows"]);
    let fewer = display(&header, &nodes, &stats[..1], &format);
    assert_eq!(
        fewer[5],
        "|  1 |  Seq Scan            | test |        |    10M |        |           |         |"
    );

    let strange = [PlanNode {
        operation: "Seq\nScan".to_owned(),
        object_name: Some("x".repeat(100) + "\t|"),
        plan_rows: f64::NAN,
        ..PlanNode::default()
    }];
    let extremes = [NodeStats {
        starts: u64::MAX.into(),
        rows: u64::MAX,
        time: Time {
            total_ms: f64::INFINITY,
            error_ms: f64::NAN,
            ..Time::default()
        }
        .into(),
        buffers: Buffers {
            shared_hit: i64::MAX,
            shared_read: i64::MAX,
            local_read: i64::MIN,
            ..Buffers::default()
        }
        .into(),
        ..NodeStats::default()
    }];
    let lines = display(&header, &strange, &extremes, &format);
    assert_eq!(
        lines[4],
        format!(
            "| 0|Seq Scan            |{}...|  2e19|  2e19|   9e18|",
            "x".repeat(61)
        )
    );
}

#[test]
fn a_note_names_sums_over_processes() {
    let (header, mut nodes, mut stats) = example();
    let plain = display(&header, &nodes, &stats, &Format::default());
    assert!(!plain.iter().any(|line| line == "Note"));
    nodes[0].operation = "Gather".to_owned();
    stats[1].starts = 3.into();
    let lines = display(&header, &nodes, &stats, &Format::default());
    let summed = "   - below a Gather, Starts and A-Time are summed over its processes (3)";
    assert_eq!(lines[lines.len() - 3..], ["Note", "----", summed]);
    let header = Header {
        elapsed_ms: 300.0,
        ..header
    };
    let lines = display(&header, &nodes, &stats, &Format::default());
    let wrapped = "; so A-Time may exceed the elapsed time of\n       300.000 ms";
    assert_eq!(lines[lines.len() - 2..].join("\n"), format!("{summed}{wrapped}"));
    let without_time = "ALLSTATS LAST -TIME".parse().expect("known words");
    assert!(
        !display(&header, &nodes, &stats, &without_time)
            .iter()
            .any(|line| line == "Note")
    );
}

#[test]
fn a_note_says_that_the_client_was_slow() {
    let (mut header, nodes, stats) = example();
    header.elapsed_ms = 63_000.0;
    let wait = |event: &str, node, ms| NamedWaits {
        node,
        event_type: Some("Client".to_owned()),
        event: event.to_owned(),
        waits: 1,
        ms,
        max_ms: ms,
    };
    let noted = |header: &Header| {
        let lines = display(header, &nodes, &stats, &Format::default()).join(" ");
        lines.contains(
            "the statement waited 52000.00 ms of the elapsed 63000.00 ms for its client to take rows",
        )
    };
    header.waits = vec![wait("ClientWrite", None, 52_000.0)];
    assert!(
        noted(&header),
        "{:#?}",
        display(&header, &nodes, &stats, &Format::default())
    );
    for other in [
        wait("ClientWrite", None, 6_200.0),
        wait("ClientWrite", Some(1), 52_000.0),
        wait("ClientRead", None, 52_000.0),
    ] {
        header.waits = vec![other];
        assert!(!noted(&header));
    }
}

#[test]
fn an_index_scan_names_its_table_and_the_schema_if_it_is_not_found_without_it() {
    let (mut header, mut nodes, stats) = example();
    nodes[1].object_name = Some("test_id".to_owned());
    nodes[1].table = Some("test".into());
    nodes[1].schema = Some("shop".into());
    let shown = |header: &Header, format: &str| {
        display(header, &nodes, &stats, &format.parse().expect("known words")).join("\n")
    };
    assert!(shown(&header, "").contains("| test_id on shop.test |"));
    let compact = shown(&header, "COMPACT");
    assert!(
        compact.contains("|test_id|") || compact.contains("| test_id |"),
        "{compact}"
    );
    assert!(compact.contains("   1 - test_id on shop.test"), "{compact}");
    header.search_path = vec!["pg_catalog".to_owned(), "shop".to_owned()];
    assert!(shown(&header, "").contains("| test_id on test |"));
}

/// Returns a plan that joins eight tables, with values in all columns that joins usually have.
fn join_of_eight_tables() -> (Vec<PlanNode>, Vec<NodeStats>) {
    let joins = (0..7).map(|depth| node(2 * depth, 2 * depth, "Parallel Hash Join", "", 6e6));
    let scans = (0..8).map(|i| {
        let names = ["lineitem_partkey_suppkey_idx", "orders", "customer", "nation"];
        node(2 * i + 1, 2 * i + 1, "Parallel Seq Scan", names[i % 4], 6e6)
    });
    let mut nodes: Vec<PlanNode> = joins.chain(scans).collect();
    nodes.sort_by_key(|node| node.id);
    nodes.iter_mut().enumerate().for_each(|(id, node)| {
        node.depth /= 2;
        node.id = id;
    });
    let mut filled = stats(48_000, 6_001_215, 98_765.432, 1.0, 44_248);
    filled.buffers = Buffers {
        shared_hit: 1_234_567,
        shared_read: 99_999,
        temp_read: 31_251,
        temp_written: 31_251,
        temp_read_ms: 9_000.0,
        temp_write_ms: 9_000.0,
        ..Buffers::default()
    }
    .into();
    filled.facts.memory_kb = 4096.into();
    let all = vec![filled; nodes.len()];
    (nodes, all)
}

#[test]
fn a_join_of_eight_tables_that_spills_fits_into_120_columns_or_80() {
    let (header, ..) = example();
    let (nodes, stats) = join_of_eight_tables();
    let shown = |format: &str| display(&header, &nodes, &stats, &format.parse().expect("known words"));
    let lines = shown("ALLSTATS LAST");
    assert!(lines.iter().all(|line| line.len() <= 120), "{lines:#?}");
    let columns =
        "Id Operation Name Starts E-Rows A-Rows A-Time_ms +/- Buffers Reads Temp-R Temp-W Temp_ms Used-Mem";
    let found: Vec<String> = headings(&lines)
        .iter()
        .map(|heading| heading.replace(' ', "_"))
        .collect();
    assert_eq!(found.join(" "), columns);
    let compact = shown("ALLSTATS LAST COMPACT");
    assert!(compact.iter().all(|line| line.len() <= 80), "{compact:#?}");
    assert!(
        compact
            .iter()
            .any(|line| line.starts_with("   - COMPACT left out: ")),
        "{compact:#?}"
    );
    assert!(
        compact.contains(&"   1 - lineitem_partkey_suppkey_idx".to_owned()),
        "{compact:#?}"
    );
}
