//! The facts of a node under the keys that EXPLAIN (ANALYZE, FORMAT JSON) gives them.
//!
//! Counts are totals over all starts and processes. EXPLAIN prints removed rows as means per loop, and the
//! parts of workers separately.

use crate::model::facts::{CONFLICTS, SORT_METHODS, STORAGE, Shown, names};
use crate::model::{Buffers, NodeFacts, NodeKind, NodeStats, StatementFacts, Wal};
use crate::plan::PlanNode;
use serde_json::{Map, Value, json};

/// The facts of a node by EXPLAIN's keys.
pub type Details = Map<String, Value>;

/// Returns the facts of node `i`; `None` if there are none. `stats` has the statistics of the nodes.
pub fn details<'a>(
    nodes: &[PlanNode],
    stats: impl Fn(usize) -> Option<&'a NodeStats>,
    i: usize,
) -> Option<Details> {
    let facts = &stats(i)?.facts;
    let node = nodes.get(i)?;
    let mut details = Details::new();
    for (key, value) in shown(node, facts) {
        details.insert(key.to_string(), value.into());
    }
    match facts.kind {
        NodeKind::Sort => add_sort(&mut details, facts),
        NodeKind::IncrementalSort => add_incremental_sort(&mut details, facts),
        NodeKind::Hash | NodeKind::Memoize | NodeKind::HashAggregate => {
            add_known(&mut details, "Peak Memory Usage", facts.memory_kb.get());
            add_known(&mut details, "Disk Usage", facts.disk_kb.get());
        }
        NodeKind::Storage => add_storage(&mut details, facts),
        NodeKind::BitmapHeapScan | NodeKind::TableScan => add_scan_io(&mut details, facts),
        NodeKind::InsertOnConflict | NodeKind::Merge => {
            // PostgreSQL counts what the other rows of the input became.
            let input = input_of(nodes, i).and_then(&stats).map_or(0, |stats| stats.rows);
            let (key, counted) = match facts.kind {
                NodeKind::Merge => ("Tuples Skipped", facts.sums.iter().sum::<u64>()),
                _ => ("Tuples Inserted", facts.sums[CONFLICTS]),
            };
            details.insert(key.to_string(), input.saturating_sub(counted).into());
        }
        _ => {}
    }
    add_wal(&mut details, &stats(i)?.wal.get_or_zero());
    (!details.is_empty()).then_some(details)
}

/// Adds what newer majors know of the WAL of a node and all below it.
fn add_wal(details: &mut Details, wal: &Wal) {
    if wal.fpi_bytes > 0 {
        details.insert("WAL FPI Bytes".to_string(), wal.fpi_bytes.into());
    }
    if wal.buffers_full > 0 {
        details.insert("WAL Buffers Full".to_string(), wal.buffers_full.into());
    }
}

/// Returns the facts of a statement; `None` if there are none. `trigger_name` returns the name of the trigger
/// with this OID.
pub fn statement_details(
    facts: &StatementFacts,
    trigger_name: impl Fn(u32) -> Option<String>,
) -> Option<Details> {
    let mut details = Details::new();
    let jit = &facts.jit;
    if jit.functions > 0 {
        let options = jit.options().map(|(key, is_on)| (key.to_string(), is_on.into()));
        details.insert(
            "JIT".to_string(),
            json!({
                "Functions": jit.functions,
                "Options": Details::from_iter(options),
                "Timing": {
                    "Generation": jit.generation_ms,
                    "Deform": jit.deform_ms,
                    "Inlining": jit.inlining_ms,
                    "Optimization": jit.optimization_ms,
                    "Emission": jit.emission_ms,
                    "Total": jit.total_ms(),
                },
            }),
        );
    }
    if facts.planning != Buffers::default() {
        details.insert("Planning".to_string(), planning(&facts.planning).into());
    }
    let triggers: Vec<Value> = facts
        .triggers()
        .map(|trigger| {
            let name = match trigger.oid {
                0 => Some("others".to_string()),
                oid => trigger_name(oid),
            };
            json!({"Trigger": name, "Calls": trigger.calls, "Time": trigger.ms})
        })
        .collect();
    if !triggers.is_empty() {
        details.insert("Triggers".to_string(), triggers.into());
    }
    (!details.is_empty()).then_some(details)
}

/// Returns the blocks that planning used, without those that are zero.
fn planning(buffers: &Buffers) -> Details {
    let counts = [
        ("Shared Hit Blocks", buffers.shared_hit),
        ("Shared Read Blocks", buffers.shared_read),
        ("Shared Dirtied Blocks", buffers.shared_dirtied),
        ("Shared Written Blocks", buffers.shared_written),
        ("Local Hit Blocks", buffers.local_hit),
        ("Local Read Blocks", buffers.local_read),
        ("Local Dirtied Blocks", buffers.local_dirtied),
        ("Local Written Blocks", buffers.local_written),
    ];
    let counts = counts.into_iter().filter(|(_, blocks)| *blocks != 0);
    counts
        .map(|(key, blocks)| (key.to_string(), blocks.into()))
        .collect()
}

/// Returns how many rows a node's filters and rechecks removed; `None` if it has none.
pub fn rows_removed(node: &PlanNode, facts: &NodeFacts) -> Option<u64> {
    let removed = shown(node, facts).filter(|(key, _)| key.starts_with("Rows Removed"));
    removed.map(|(_, rows)| rows).reduce(|sum, rows| sum + rows)
}

/// Returns the facts of the node's kind that are shown, with their keys.
fn shown<'a>(node: &'a PlanNode, facts: &'a NodeFacts) -> impl Iterator<Item = (&'static str, u64)> {
    let all = facts.kind.facts().iter();
    all.filter_map(|fact| {
        let value = facts.get(fact);
        let is_shown = match fact.shown {
            Shown::Always => true,
            Shown::IfKnown => value > 0,
            Shown::With(label) => value > 0 || has_condition(node, label),
        };
        is_shown.then_some((fact.key, value))
    })
}

/// Returns whether a node has a condition with this label.
fn has_condition(node: &PlanNode, label: &str) -> bool {
    node.predicates.iter().any(|(found, _)| found == label)
}

/// Returns the input of a node that has one.
fn input_of(nodes: &[PlanNode], i: usize) -> Option<usize> {
    let below = nodes.iter().skip(i + 1);
    let mut inputs = below.filter(|node| node.parent == Some(i) && node.subplan_name.is_none());
    inputs.next().map(|node| node.id)
}

fn add_known(details: &mut Details, key: &str, value: Option<u32>) {
    if let Some(value) = value {
        details.insert(key.to_string(), value.into());
    }
}

/// Returns the names of the methods as one text. There are several only if processes or executions used
/// different ones.
fn joined(methods: u32, all: &'static [&'static str]) -> Option<String> {
    (methods > 0).then(|| names(methods, all).collect::<Vec<_>>().join(", "))
}

/// Adds how a sort worked. If processes or executions used several methods, it names the one that needed
/// most, and lists all.
fn add_sort(details: &mut Details, facts: &NodeFacts) {
    let methods: Vec<&str> = names(facts.methods, &SORT_METHODS).collect();
    let Some(&method) = methods.last() else {
        return;
    };
    details.insert("Sort Method".to_string(), method.into());
    if methods.len() > 1 {
        details.insert("Sort Methods Used".to_string(), methods.into());
    }
    let (kind, used) = match (facts.disk_kb.get(), facts.memory_kb.get()) {
        (Some(disk), _) => ("Disk", disk),
        (None, memory) => ("Memory", memory.unwrap_or(0)),
    };
    details.insert("Sort Space Used".to_string(), used.into());
    details.insert("Sort Space Type".to_string(), kind.into());
}

/// Adds the groups of an incremental sort. The first of each pair of sums and peaks is of the groups that it
/// sorted by all keys, the second of presorted groups.
fn add_incremental_sort(details: &mut Details, facts: &NodeFacts) {
    for (which, key) in ["Full-sort Groups", "Pre-sorted Groups"].into_iter().enumerate() {
        let groups = facts.sums[which];
        if groups == 0 {
            continue;
        }
        let mut group = Details::new();
        group.insert("Group Count".to_string(), groups.into());
        let methods = facts.methods >> (8 * which);
        let methods: Vec<Value> = names(methods, &SORT_METHODS).map(Value::from).collect();
        group.insert("Sort Methods Used".to_string(), methods.into());
        for (space, key) in ["Sort Space Memory", "Sort Space Disk"].into_iter().enumerate() {
            let peak = facts.peaks[2 * space + which];
            if peak == 0 {
                continue;
            }
            let mut used = Details::new();
            let total = facts.sums[2 * (space + 1) + which];
            used.insert("Average Sort Space Used".to_string(), (total / groups).into());
            used.insert("Peak Sort Space Used".to_string(), peak.into());
            group.insert(key.to_string(), used.into());
        }
        details.insert(key.to_string(), group.into());
    }
}

fn add_scan_io(details: &mut Details, facts: &NodeFacts) {
    let Some(io) = facts.scan_io() else {
        return;
    };
    // EXPLAIN prints means with three decimals.
    let mean = |mean: f64| format!("{mean:.3}").parse::<f64>().unwrap_or(mean);
    for (key, value) in [
        ("Average Prefetch Distance", Value::from(mean(io.mean_distance()))),
        ("Max Prefetch Distance", io.max_distance.into()),
        ("Prefetch Capacity", io.capacity.into()),
        ("I/O Count", io.reads.into()),
        ("I/O Waits", io.waits.into()),
        ("Average I/O Size", mean(io.mean_size()).into()),
        ("Average I/Os In Progress", mean(io.mean_in_progress()).into()),
    ] {
        details.insert(key.to_string(), value);
    }
}

fn add_storage(details: &mut Details, facts: &NodeFacts) {
    if let Some(storage) = joined(facts.methods, &STORAGE) {
        details.insert("Storage".to_string(), storage.into());
        details.insert("Maximum Storage".to_string(), facts.peaks[0].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::SUMS;
    use crate::model::{Jit, ScanIo, TriggerSum};

    fn node(id: usize, parent: Option<usize>, conditions: &[&str]) -> PlanNode {
        PlanNode {
            id,
            parent,
            predicates: conditions
                .iter()
                .map(|label| (label.to_string(), "(true)".to_string()))
                .collect(),
            ..PlanNode::default()
        }
    }

    fn stats(kind: NodeKind, first: [u64; 6]) -> NodeStats {
        let mut sums = [0; SUMS];
        sums[..6].copy_from_slice(&first);
        NodeStats {
            facts: NodeFacts {
                kind,
                sums,
                ..NodeFacts::default()
            },
            ..NodeStats::default()
        }
    }

    fn of(nodes: &[PlanNode], stats: &[NodeStats]) -> Value {
        details(nodes, |i| stats.get(i), 0).map_or(Value::Null, Value::Object)
    }

    #[test]
    fn removed_rows_are_shown_with_their_condition() {
        let scan = stats(NodeKind::IndexOnlyScan, [0, 0, 7, 0, 0, 0]);
        assert_eq!(of(&[node(0, None, &[])], &[scan]), json!({"Heap Fetches": 7}));
        let filtered = [node(0, None, &["Filter", "Index Cond"])];
        assert_eq!(
            of(&filtered, &[scan]),
            json!({"Heap Fetches": 7, "Rows Removed by Filter": 0, "Rows Removed by Index Recheck": 0})
        );
        assert_eq!(rows_removed(&filtered[0], &scan.facts), Some(0));
        assert_eq!(rows_removed(&node(0, None, &[]), &scan.facts), None);
        // The conditions of a very large plan are not described.
        let scan = stats(NodeKind::Filter, [5, 0, 0, 0, 0, 0]);
        assert_eq!(
            of(&[node(0, None, &[])], &[scan]),
            json!({"Rows Removed by Filter": 5})
        );
        assert_eq!(
            of(&[node(0, None, &[])], &[stats(NodeKind::Filter, [0; 6])]),
            Value::Null
        );
    }

    #[test]
    fn what_became_of_other_rows_follows_from_the_input() {
        let nodes = [
            node(0, None, &[]),
            PlanNode {
                subplan_name: Some("CTE x".to_string()),
                ..node(1, Some(0), &[])
            },
            node(2, Some(0), &[]),
        ];
        let input = NodeStats {
            rows: 10,
            ..NodeStats::default()
        };
        let merge = stats(NodeKind::Merge, [1, 2, 3, 0, 0, 0]);
        assert_eq!(
            of(&nodes, &[merge, NodeStats::default(), input]),
            json!({"Tuples Inserted": 1, "Tuples Updated": 2, "Tuples Deleted": 3, "Tuples Skipped": 4})
        );
        let conflict = stats(NodeKind::InsertOnConflict, [0, 0, 0, 3, 0, 0]);
        assert_eq!(
            of(&nodes, &[conflict, NodeStats::default(), input]),
            json!({"Tuples Inserted": 7, "Conflicting Tuples": 3})
        );
    }

    #[test]
    fn sorts_show_methods_and_space() {
        let mut sort = stats(NodeKind::Sort, [0; 6]);
        let nodes = [node(0, None, &[])];
        assert_eq!(of(&nodes, &[sort]), Value::Null, "it did not end");
        sort.facts.methods = 2;
        sort.facts.memory_kb = 25.into();
        assert_eq!(
            of(&nodes, &[sort]),
            json!({"Sort Method": "quicksort", "Sort Space Used": 25, "Sort Space Type": "Memory"})
        );
        sort.facts.methods = 2 | 8;
        sort.facts.disk_kb = 300.into();
        assert_eq!(
            of(&nodes, &[sort]),
            json!({"Sort Method": "external merge", "Sort Methods Used": ["quicksort", "external merge"], "Sort Space Used": 300, "Sort Space Type": "Disk"})
        );
        let mut incremental = stats(NodeKind::IncrementalSort, [4, 2, 100, 60, 0, 90]);
        incremental.facts.peaks = [30, 40, 0, 50];
        incremental.facts.methods = 2 | 9 << 8;
        assert_eq!(
            of(&nodes, &[incremental]),
            json!({
                "Full-sort Groups": {
                    "Group Count": 4,
                    "Sort Methods Used": ["quicksort"],
                    "Sort Space Memory": {"Average Sort Space Used": 25, "Peak Sort Space Used": 30}
                },
                "Pre-sorted Groups": {
                    "Group Count": 2,
                    "Sort Methods Used": ["top-N heapsort", "external merge"],
                    "Sort Space Memory": {"Average Sort Space Used": 30, "Peak Sort Space Used": 40},
                    "Sort Space Disk": {"Average Sort Space Used": 45, "Peak Sort Space Used": 50}
                }
            })
        );
    }

    #[test]
    fn statements_show_triggers_and_compilation() {
        let mut facts = StatementFacts::default();
        assert_eq!(statement_details(&facts, |_| None), None);
        facts.jit = Jit {
            functions: 3,
            options: 0b1100,
            generation_ms: 1.5,
            deform_ms: 0.5,
            emission_ms: 2.0,
            ..Jit::default()
        };
        for oid in 1..=9 {
            facts.add_trigger(TriggerSum {
                oid,
                calls: 2,
                ms: f64::from(oid),
            });
        }
        let shown = statement_details(&facts, |oid| (oid != 4).then(|| format!("t{oid}"))).expect("facts");
        assert_eq!(
            shown["JIT"],
            json!({
                "Functions": 3,
                "Options": {"Inlining": false, "Optimization": false, "Expressions": true, "Deforming": true},
                "Timing": {
                    "Generation": 1.5, "Deform": 0.5, "Inlining": 0.0, "Optimization": 0.0, "Emission": 2.0, "Total": 3.5
                }
            })
        );
        let triggers = shown["Triggers"].as_array().expect("a list");
        assert_eq!(triggers.len(), 9);
        assert!(triggers.contains(&json!({"Trigger": "t2", "Calls": 2, "Time": 2.0})));
        assert!(triggers.contains(&json!({"Trigger": null, "Calls": 2, "Time": 4.0})));
        assert_eq!(triggers[8], json!({"Trigger": "others", "Calls": 2, "Time": 1.0}));
    }

    #[test]
    fn storage_is_shown_if_it_is_known() {
        let mut scan = stats(NodeKind::Storage, [0; 6]);
        assert_eq!(of(&[node(0, None, &[])], &[scan]), Value::Null);
        scan.facts.methods = 1;
        scan.facts.peaks[0] = 17;
        assert_eq!(
            of(&[node(0, None, &[])], &[scan]),
            json!({"Storage": "Memory", "Maximum Storage": 17})
        );
    }

    #[test]
    fn scans_show_how_they_read_ahead() {
        let nodes = [node(0, None, &["Filter"])];
        let mut scan = stats(NodeKind::TableScan, [4, 0, 0, 0, 0, 0]);
        assert_eq!(of(&nodes, &[scan]), json!({"Rows Removed by Filter": 4}));
        scan.facts.add_scan_io(&ScanIo {
            blocks: 3,
            distances: 5,
            max_distance: 2,
            capacity: 16,
            ..ScanIo::default()
        });
        assert_eq!(
            of(&nodes, &[scan]),
            json!({
                "Rows Removed by Filter": 4,
                "Average Prefetch Distance": 1.667,
                "Max Prefetch Distance": 2,
                "Prefetch Capacity": 16,
                "I/O Count": 0,
                "I/O Waits": 0,
                "Average I/O Size": 0.0,
                "Average I/Os In Progress": 0.0
            })
        );
    }
}
