use super::*;
use crate::model::facts::{PARTITIONS_PLANNED, PARTITIONS_RUN};
use crate::model::{Buffers, Jit, NodeFacts, NodeKind, NodeStats, Time, Wal, WorkerPart, Workers};
use crate::plan::PlanNode;
use crate::plan::parse_explain_json;
use serde_json::Value;

/// Real output of EXPLAIN: the statement, the text, and JSON in one line.
const EXPLAIN_15: &str = include_str!("../../plan/explain15.txt");

fn quote(name: &str) -> String {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match name {
        "xmltable" => format!("\"{name}\""),
        _ if is_plain => name.to_owned(),
        _ => format!("\"{name}\""),
    }
}

fn explained<'a>(nodes: &'a [PlanNode], stats: &'a [NodeStats]) -> Explained<'a> {
    Explained {
        nodes,
        stats,
        executions: 1.0,
        major: 15,
        quote: &quote,
        statement: "SELECT '<&>'",
        queryid: i64::MIN,
        planid: 815,
        planning: None,
        execution_ms: 1.5,
        triggers: None,
        jit: None,
        ending: None,
        workers: None,
    }
}

/// What the planner says, but this crate takes from executions; and what file_fdw says in its own words.
const KNOWN_LATER: [&str; 5] = [
    "Workers Planned",
    "Planned Partitions",
    "Subplans Removed",
    "Foreign File",
    "Foreign File Size",
];

fn without_later(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !KNOWN_LATER.contains(&key.as_str()));
            fields.values_mut().for_each(without_later);
        }
        Value::Array(items) => items.iter_mut().for_each(without_later),
        _ => {}
    }
}

#[test]
fn a_description_has_all_that_explain_printed() {
    for case in EXPLAIN_15.split("\n> ").skip(1) {
        let mut lines: Vec<&str> = case.lines().collect();
        let json = lines.pop().expect("JSON");
        let statement = lines.remove(0);
        let nodes = parse_explain_json(json).expect("a plan").nodes;
        let explained = explained(&nodes, &[]);
        let mut printed = explain(&explained, ExplainFormat::Text);
        assert_eq!(printed.pop().as_deref(), Some("Execution Time: 1.500 ms"));
        lines.retain(|line| !KNOWN_LATER.iter().any(|label| line.contains(label)));
        assert_eq!(printed.join("\n"), lines.join("\n"), "{statement}");

        let mut expected: Value = serde_json::from_str(json).expect("JSON");
        without_later(&mut expected);
        let printed = explain(&explained, ExplainFormat::Json);
        let found: Value = serde_json::from_str(&printed[0]).expect("JSON");
        assert_eq!(found[0]["Plan"], expected[0]["Plan"], "{statement}");
    }
}

fn scan() -> (Vec<PlanNode>, Vec<NodeStats>) {
    let json = r#"{"Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Alias": "x<y", "Startup Cost": 0.00,
        "Total Cost": 1.00, "Plan Rows": 3, "Plan Width": 4, "Filter": "(a > '<'::text)"}}"#;
    let nodes = parse_explain_json(json).expect("a plan").nodes;
    let mut facts = NodeFacts {
        kind: NodeKind::Filter,
        ..NodeFacts::default()
    };
    facts.sums[0] = 30;
    let stats = NodeStats {
        starts: 4.into(),
        rows: 10,
        time: Time {
            total_ms: 8.0,
            startup_ms: 2.0,
            ..Time::default()
        }
        .into(),
        buffers: Buffers {
            shared_hit: 5,
            temp_written: 1,
            shared_read_ms: 0.5,
            ..Buffers::default()
        }
        .into(),
        wal: Wal::default().into(),
        facts,
        ..NodeStats::default()
    };
    (nodes, vec![stats])
}

#[test]
fn counts_are_per_loop_and_blocks_are_sums() {
    let (nodes, stats) = scan();
    assert_eq!(
        explain(&explained(&nodes, &stats), ExplainFormat::Text),
        [
            "Seq Scan on t \"x<y\"  (cost=0.00..1.00 rows=3 width=4) (actual time=0.500..2.000 rows=2 loops=4)",
            "  Filter: (a > '<'::text)",
            "  Rows Removed by Filter: 8",
            "  Buffers: shared hit=5, temp written=1",
            "  I/O Timings: shared/local read=0.500",
            "Execution Time: 1.500 ms",
        ]
    );
    let newer = Explained {
        major: 18,
        ..explained(&nodes, &stats)
    };
    let lines = explain(&newer, ExplainFormat::Text);
    assert!(lines[0].ends_with("rows=2.50 loops=4)"), "{lines:?}");
    assert_eq!(lines[4], "  I/O Timings: shared read=0.500");
}

/// The loops of a mean are a whole number, and rows and times agree with it.
#[test]
fn a_mean_multiplies_to_the_mean_of_the_sums() {
    let (nodes, stats) = scan();
    for (executions, loops, rows) in [(2.0, 2.0, 2.5), (3.0, 1.0, 10.0 / 3.0), (8.0, 1.0, 1.25)] {
        let mean = Explained {
            executions,
            major: 18,
            ..explained(&nodes, &stats)
        };
        let printed = explain(&mean, ExplainFormat::Json);
        let document: Value = serde_json::from_str(&printed[0]).expect("JSON");
        let plan = &document[0]["Plan"];
        assert_eq!(plan["Actual Loops"].as_f64(), Some(loops), "{executions}");
        let found = plan["Actual Rows"].as_f64().expect("rows");
        assert!((found - rows).abs() < 0.006, "{found} {rows}");
        assert_eq!(
            plan["Shared Hit Blocks"].as_f64(),
            Some((5.0 / executions).round())
        );
    }
    let unmeasured = Explained {
        executions: f64::NAN,
        ..explained(&nodes, &stats)
    };
    assert!(explain(&unmeasured, ExplainFormat::Text)[0].ends_with("loops=4)"));
}

/// Core prints each partition. A node that stands for several cannot, so its Append says how many there are.
#[test]
fn an_append_says_how_many_partitions_ran() {
    let (mut nodes, mut stats) = scan();
    nodes[0].operation = "Append".to_owned();
    stats[0].facts.kind = NodeKind::Append;
    stats[0].facts.sums = [0; 10];
    (
        stats[0].facts.sums[PARTITIONS_PLANNED],
        stats[0].facts.sums[PARTITIONS_RUN],
    ) = (480, 48);
    let mean = Explained {
        executions: 4.0,
        ..explained(&nodes, &stats)
    };
    let lines = explain(&mean, ExplainFormat::Text);
    assert!(
        lines.iter().any(|line| line.trim() == "Partitions: 12 of 120"),
        "{lines:#?}"
    );
    let document: Value = serde_json::from_str(&explain(&mean, ExplainFormat::Json)[0]).expect("JSON");
    let plan = &document[0]["Plan"];
    let numbers = ["Partitions Planned", "Partitions Run"].map(|key| plan[key].as_u64());
    assert_eq!(numbers, [Some(120), Some(12)]);
}

#[test]
fn what_is_not_known_is_not_printed() {
    let (nodes, mut stats) = scan();
    stats[0] = NodeStats {
        rows: 7,
        ..NodeStats::default()
    };
    assert_eq!(
        explain(&explained(&nodes, &stats), ExplainFormat::Text),
        [
            "Seq Scan on t \"x<y\"  (cost=0.00..1.00 rows=3 width=4) (actual rows=7 loops=1)",
            "  Filter: (a > '<'::text)",
            "Execution Time: 1.500 ms",
        ]
    );
    stats[0].starts = 0.into();
    stats[0].rows = 0;
    let lines = explain(&explained(&nodes, &stats), ExplainFormat::Text);
    assert!(lines[0].ends_with(" (never executed)"), "{lines:?}");
}

#[test]
fn triggers_and_compilation_follow_the_plan() {
    let (nodes, stats) = scan();
    let triggers = [
        Trigger {
            name: "RI_1".to_owned(),
            constraint: Some("t_fkey".to_owned()),
            relation: Some("t".to_owned()),
            calls: 10,
            ms: 3.0,
        },
        Trigger {
            name: "audit".to_owned(),
            constraint: None,
            relation: Some("u".to_owned()),
            calls: 4,
            ms: 1.0,
        },
    ];
    let with = Explained {
        executions: 2.0,
        planning: Some(Planned {
            ms: 0.75,
            buffers: Buffers {
                shared_hit: 12,
                shared_read: 1,
                ..Buffers::default()
            },
            plannings: 3.0,
        }),
        triggers: Some(&triggers),
        ending: Some(("2026-11-22 03:40:00+00", "failed")),
        jit: Some(Jit {
            functions: 4,
            options: 0b1010,
            generation_ms: 2.0,
            ..Jit::default()
        }),
        ..explained(&nodes, &stats)
    };
    let lines = explain(&with, ExplainFormat::Text);
    let summary = &lines[lines.len() - 12..];
    assert_eq!(
        summary,
        [
            "Planning:",
            "  Buffers: shared hit=4",
            "Planning Time: 0.250 ms",
            "Trigger for constraint t_fkey on t: time=1.500 calls=5",
            "Trigger audit on u: time=0.500 calls=2",
            "JIT:",
            "  Functions: 2",
            "  Options: Inlining false, Optimization true, Expressions false, Deforming true",
            "  Timing: Generation 1.000 ms, Inlining 0.000 ms, Optimization 0.000 ms, Emission 0.000 ms, Total 1.000 ms",
            "Execution Time: 1.500 ms",
            "Execution Ended: 2026-11-22 03:40:00+00",
            "Outcome: failed",
        ]
    );
    let printed = explain(&with, ExplainFormat::Json);
    let document: Value = serde_json::from_str(&printed[0]).expect("JSON");
    assert_eq!(document[0]["Query Identifier"], i64::MIN.to_string());
    assert_eq!(document[0]["Planning"]["Shared Hit Blocks"], 4);
    assert_eq!(document[0]["Triggers"][0]["Constraint Name"], "t_fkey");
    assert_eq!(document[0]["JIT"]["Options"]["Deforming"], true);
    assert_eq!(document[0]["JIT"]["Timing"]["Total"], 1.0);
    assert_eq!(document[0]["Execution Ended"], "2026-11-22 03:40:00+00");
    assert_eq!(document[0]["Outcome"], "failed");
}

/// The leader's sort is printed without that of the workers, each of which has a part.
#[test]
fn parallel_workers_have_parts() {
    let (nodes, _) = scan();
    let node = PlanNode {
        operation: "Sort".to_owned(),
        ..nodes[0].clone()
    };
    let sort = |methods, kb: u32| NodeFacts {
        kind: NodeKind::Sort,
        methods,
        memory_kb: kb.into(),
        ..NodeFacts::default()
    };
    let stats = |rows, facts| NodeStats {
        starts: 1.into(),
        rows,
        facts,
        ..NodeStats::default()
    };
    let mut workers = Workers::default();
    workers.add_node(0, sort(2, 25));
    for (worker, rows, jit) in [(0, 7, None), (3, 2, Some(4))] {
        workers.add_part(WorkerPart {
            worker,
            stats: stats(rows, sort(1, 30 + worker)),
            jit: jit.map(|functions| Jit {
                functions,
                ..Jit::default()
            }),
        });
    }
    let (nodes, stats) = ([node], [stats(10, sort(3, 33))]);
    let with = Explained {
        workers: Some(&workers),
        ..explained(&nodes, &stats)
    };
    let lines = explain(&with, ExplainFormat::Text);
    let of_processes = lines.iter().skip_while(|line| !line.contains("Sort Method"));
    let of_processes: Vec<&str> = of_processes.map(String::as_str).collect();
    assert_eq!(
        of_processes,
        [
            "  Sort Method: quicksort  Memory: 25kB",
            "  Worker 0:  actual rows=7 loops=1",
            "    Sort Method: top-N heapsort  Memory: 30kB",
            "  Worker 3:  actual rows=2 loops=1",
            "    Sort Method: top-N heapsort  Memory: 33kB",
            "    JIT:",
            "      Functions: 4",
            "      Options: Inlining false, Optimization false, Expressions false, Deforming false",
            "      Timing: Generation 0.000 ms, Inlining 0.000 ms, Optimization 0.000 ms, Emission 0.000 ms, Total 0.000 ms",
            "Execution Time: 1.500 ms",
        ]
    );
    let printed = explain(&with, ExplainFormat::Json);
    let document: Value = serde_json::from_str(&printed[0]).expect("JSON");
    let plan = &document[0]["Plan"];
    assert_eq!(plan["Sort Method"], "quicksort");
    assert_eq!(plan["Workers"][1]["Worker Number"], 3);
    assert_eq!(plan["Workers"][1]["JIT"]["Functions"], 4);
}

#[test]
fn markup_in_texts_stays_text() {
    let (nodes, stats) = scan();
    let explained = explained(&nodes, &stats);
    let xml = explain(&explained, ExplainFormat::Xml).remove(0);
    assert!(
        xml.contains("<Query-Text>SELECT '&lt;&amp;&gt;'</Query-Text>"),
        "{xml}"
    );
    assert!(xml.contains("<Alias>x&lt;y</Alias>"), "{xml}");
    let yaml = explain(&explained, ExplainFormat::Yaml).remove(0);
    assert!(
        yaml.starts_with("- Query Text: \"SELECT '<&>'\"\n  Plan: \n    Node Type: \"Seq Scan\"\n"),
        "{yaml}"
    );
}

#[test]
fn characters_that_yaml_does_not_allow_are_escaped() {
    let (nodes, stats) = scan();
    let explained = Explained {
        statement: "SELECT '\u{1}\u{7f}\u{85}\u{2028}\u{feff}é'",
        ..explained(&nodes, &stats)
    };
    let yaml = explain(&explained, ExplainFormat::Yaml).remove(0);
    assert!(
        yaml.starts_with("- Query Text: \"SELECT '\\u0001\\u007f\\u0085\\u2028\\ufeffé'\"\n"),
        "{yaml}"
    );
}

/// Documents grow with the number of nodes, not with its square.
#[test]
fn a_very_deep_plan_is_printed_in_linear_space() {
    const DEPTH: usize = 3_000;
    let nodes: Vec<PlanNode> = (0..DEPTH)
        .map(|depth| PlanNode {
            id: depth,
            depth,
            parent: depth.checked_sub(1),
            operation: "Limit".to_owned(),
            ..PlanNode::default()
        })
        .collect();
    let (_, stats) = scan();
    let stats = vec![stats[0]; DEPTH];
    let explained = explained(&nodes, &stats);
    for format in [
        ExplainFormat::Text,
        ExplainFormat::Json,
        ExplainFormat::Yaml,
        ExplainFormat::Xml,
    ] {
        let printed = explain(&explained, format);
        let bytes: usize = printed.iter().map(String::len).sum();
        assert!(bytes < DEPTH * 20_000, "{format:?}: {bytes} bytes");
        if format == ExplainFormat::Yaml {
            assert!(printed[0].starts_with("[\n  {"), "JSON is YAML");
        }
    }
}
