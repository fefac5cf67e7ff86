//! Compares core's counts with pg_rowsource's, node by node.

use crate::explain::{COUNTERS, NodeCounts};
use crate::facts;
use crate::fold;
use crate::measured::MeasuredNode;

/// Returns all differences between the measured nodes and core's.
pub fn differences(core: &[NodeCounts], measured: &[MeasuredNode]) -> Vec<String> {
    let (core, measured) = &sorted(core, &without_pruned(core, measured));
    let mut found = Vec::new();
    if core.len() != measured.len() {
        found.push(format!(
            "core has {} nodes, pg_rowsource has {}",
            core.len(),
            measured.len()
        ));
    }
    for (id, (core, measured)) in core.iter().zip(measured).enumerate() {
        let mut differ = |what: &str, core: &dyn std::fmt::Display, measured: &dyn std::fmt::Display| {
            found.push(format!("node {id}: {what}: core {core}, measured {measured}"));
        };
        if core.operation != measured.operation {
            differ("operation", &core.operation, &measured.operation);
        }
        if core.depth as i64 != i64::from(measured.depth) {
            differ("depth", &core.depth, &measured.depth);
        }
        // A node that never ran may have NULL starts.
        if measured.starts.unwrap_or(0) != core.loops as i64 {
            differ(
                &format!("{}: starts", core.operation),
                &core.loops,
                &format!("{:?}", measured.starts),
            );
        }
        if !core.prints_rows_as(measured.rows as u64) {
            let core_rows = format!("{} a loop in {} loops", core.rows_per_loop, core.loops);
            differ(&format!("{}: rows", core.operation), &core_rows, &measured.rows);
        }
        for (counter, (column, _)) in COUNTERS.iter().enumerate() {
            if measured.counters[counter].unwrap_or(0) != core.counters[counter] {
                let value = format!("{:?}", measured.counters[counter]);
                differ(
                    &format!("{}: {column}", core.operation),
                    &core.counters[counter],
                    &value,
                );
            }
        }
        let is_several = core.rows.is_some();
        for (key, core_value, value) in
            facts::differences(&core.facts, &measured.details, core.loops, is_several)
        {
            differ(&format!("{}: {key}", core.operation), &core_value, &value);
        }
    }
    found
}

/// Returns the measured nodes without those whose partitions were all pruned when the statement started. Core
/// does not show them.
fn without_pruned(core: &[NodeCounts], measured: &[MeasuredNode]) -> Vec<MeasuredNode> {
    let mut left = measured.to_vec();
    let removed = |node: &NodeCounts| {
        node.facts
            .get("Subplans Removed")
            .and_then(serde_json::Value::as_u64)
    };
    if !core
        .iter()
        .any(|node| removed(node).is_some_and(|removed| removed > 0))
    {
        return left;
    }
    while let Some(at) = left.iter().rposition(|node| {
        let is_same = |other: (&str, i64)| other == (node.operation.as_str(), i64::from(node.depth));
        let of_core = core
            .iter()
            .filter(|other| is_same((&other.operation, other.depth as i64)));
        let of_measured = left
            .iter()
            .filter(|other| is_same((&other.operation, i64::from(other.depth))));
        node.starts.unwrap_or(0) == 0 && of_measured.count() > of_core.count()
    }) {
        left.remove(at);
    }
    left
}

/// Sorts what is below an Append, which has no order where partitions are folded.
fn sorted(core: &[NodeCounts], measured: &[MeasuredNode]) -> (Vec<NodeCounts>, Vec<MeasuredNode>) {
    let core = fold::sorted(
        core,
        |node| node.depth,
        |node| node.operation.ends_with("Append"),
        |node| (node.operation.clone(), node.loops as i64, node.counters),
    );
    let measured = fold::sorted(
        measured,
        |node| node.depth as usize,
        |node| node.operation.ends_with("Append"),
        |node| {
            let counters = node.counters.map(Option::unwrap_or_default);
            (node.operation.clone(), node.starts.unwrap_or(0), counters)
        },
    );
    (core, measured)
}

/// How many catalogue blocks each process may have hit in addition to the plan's own blocks, because it
/// needed them first.
const CATALOGUE_BLOCKS: f64 = 100.0;
/// How many of these each process may have read, because they were not in shared buffers.
const CATALOGUE_READS: f64 = 5.0;

/// Returns why a measured run of a plan cannot be like core's runs, if the processes divide the work by
/// chance.
///
/// These rules hold in every run, however the work was divided. At most the leader and its workers took part.
/// The rows of a node are the same in all runs, or the same in each process that took part. If neither holds
/// in core's runs (a process that got few rows to group returns fewer groups), they are at most what all
/// processes can return. A counter is close to core's. A Gather returns the sum of the rows of its processes.
pub fn differences_from_runs(
    core: &[Vec<NodeCounts>],
    measured: &[MeasuredNode],
    processes: u64,
) -> Vec<String> {
    let mut found = Vec::new();
    if core.iter().any(|run| run.len() != measured.len()) {
        return vec![format!(
            "core has {} nodes, pg_rowsource has {}",
            core[0].len(),
            measured.len()
        )];
    }
    for (id, node) in measured.iter().enumerate() {
        let runs: Vec<&NodeCounts> = core.iter().map(|run| &run[id]).collect();
        let name = &runs[0].operation;
        let mut differ = |what: &str, core: String, measured: String| {
            found.push(format!(
                "node {id}: {name}: {what}: core {core}, measured {measured}"
            ));
        };
        if *name != node.operation || runs[0].depth as i64 != i64::from(node.depth) {
            differ("operation", name.clone(), node.operation.clone());
        }
        let starts = node.starts.unwrap_or(0) as u64;
        let core_starts = range(&runs, |run| run.loops as f64);
        let in_a_loop = core_starts.1 > processes as f64;
        if !in_a_loop && !(core_starts.0.min(1.0)..=processes as f64).contains(&(starts as f64)) {
            differ("starts", format!("{core_starts:?}"), starts.to_string());
        }
        let in_each_process = runs.iter().all(|run| {
            let counts = NodeCounts {
                loops: starts,
                ..(*run).clone()
            };
            counts.prints_rows_as(node.rows as u64)
        });
        let rows = possible_rows(&runs).or_else(|| varying_rows(&runs, starts));
        let is_like_core =
            in_each_process || rows.is_some_and(|(min, max)| (min..=max).contains(&(node.rows as f64)));
        // What a Gather passes on is what the node below it returned, whatever that was in core's runs.
        if !is_like_core && !passes_all(core, id) {
            differ("rows", format!("{rows:?}"), node.rows.to_string());
        }
        for (counter, (column, _)) in COUNTERS.iter().enumerate() {
            let (min, max) = range(&runs, |run| run.counters[counter] as f64);
            let slack = match *column {
                "shared_blks_hit" => CATALOGUE_BLOCKS * processes as f64,
                "shared_blks_read" => CATALOGUE_READS * processes as f64 + if min == max { 0.0 } else { max },
                // Data may fit into the memory of several processes, but not into that of one.
                "temp_blks_read" | "temp_blks_written" => f64::INFINITY,
                _ if min == max => 0.0,
                _ => max,
            };
            let measured = node.counters[counter].unwrap_or(0);
            if !(min - slack..=max + slack).contains(&(measured as f64)) {
                differ(column, format!("{min} to {max}"), measured.to_string());
            }
        }
    }
    found.extend(gather_differences(core, measured));
    found
}

fn range(runs: &[&NodeCounts], value: impl Fn(&NodeCounts) -> f64) -> (f64, f64) {
    let values = runs.iter().map(|run| value(run));
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (min.min(value), max.max(value))
    })
}

/// Returns the minimum and maximum rows that fit core's rounded rows in all runs; `None` if no number does.
fn possible_rows(runs: &[&NodeCounts]) -> Option<(f64, f64)> {
    let all = runs.iter().map(|run| run.total_rows());
    let (min, max) = all.fold((f64::NEG_INFINITY, f64::INFINITY), |(min, max), range| {
        (min.max(range.0), max.min(range.1))
    });
    (min <= max).then_some((min, max))
}

/// Returns the fewest and the most rows of `starts` processes, if in core's runs neither all rows nor those
/// of each process are the same.
fn varying_rows(runs: &[&NodeCounts], starts: u64) -> Option<(f64, f64)> {
    let of_each = |run: &&NodeCounts| {
        let (min, max) = run.total_rows();
        (min / run.loops as f64, max / run.loops as f64)
    };
    let ran = runs.iter().filter(|run| run.loops > 0);
    let least = ran.clone().map(|run| of_each(run).0).fold(0.0, f64::max);
    let most = ran.clone().map(|run| of_each(run).1);
    let is_same = most.clone().fold(f64::INFINITY, f64::min) >= least;
    let min = ran.map(|run| run.total_rows().0).fold(f64::INFINITY, f64::min);
    (!is_same).then(|| (min, starts as f64 * most.fold(0.0, f64::max)))
}

/// Returns whether a node is a Gather that returned all rows of the node below it in each of core's runs.
fn passes_all(core: &[Vec<NodeCounts>], id: usize) -> bool {
    core.iter().all(|run| {
        let Some([gather, child]) = run.get(id..id + 2) else {
            return false;
        };
        let (min, max) = child.total_rows();
        gather.operation.starts_with("Gather") && (min..=max).contains(&gather.total_rows().0)
    })
}

/// Returns each measured Gather whose rows differ from those of the node below it, though core's runs allow
/// equality.
fn gather_differences(core: &[Vec<NodeCounts>], measured: &[MeasuredNode]) -> Vec<String> {
    let mut found = Vec::new();
    for (id, pair) in measured.windows(2).enumerate() {
        let [gather, child] = pair else { continue };
        if passes_all(core, id) && gather.rows != child.rows {
            found.push(format!(
                "node {id}: {}: {} rows, and {} below it",
                gather.operation, gather.rows, child.rows
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn core(operation: &str, loops: u64, rows_per_loop: &str) -> NodeCounts {
        NodeCounts {
            depth: usize::from(operation == "Scan"),
            operation: operation.to_string(),
            init_plan: false,
            is_by_expression: false,
            relation: None,
            alias: None,
            index: None,
            loops,
            rows_per_loop: rows_per_loop.to_string(),
            rows: None,
            counters: [5; COUNTERS.len()],
            total_ms: None,
            facts: Map::new(),
        }
    }

    fn measured(operation: &str, starts: i64, rows: i64, counter: i64) -> MeasuredNode {
        MeasuredNode {
            node_id: i32::from(operation != "Gather"),
            parent_id: None,
            depth: i32::from(operation == "Scan"),
            operation: operation.to_string(),
            object_name: None,
            starts: Some(starts),
            rows,
            counters: std::array::from_fn(|which| Some(if which == 1 { counter } else { 5 })),
            total_ms: None,
            self_ms: None,
            error_ms: None,
            timed_calls: None,
            backsteps: 0,
            details: Map::new(),
            init_plan: false,
        }
    }

    #[test]
    fn only_the_division_of_work_may_vary() {
        // 100 rows, divided among two or three processes.
        let runs = [
            vec![core("Gather", 1, "100"), core("Scan", 3, "33")],
            vec![core("Gather", 1, "100"), core("Scan", 2, "50")],
        ];
        let differ = |starts, gathered, rows, counter| {
            let nodes = [
                measured("Gather", 1, gathered, counter),
                measured("Scan", starts, rows, counter),
            ];
            !differences_from_runs(&runs, &nodes, 3).is_empty()
        };
        assert!(!differ(3, 100, 100, 5));
        assert!(!differ(1, 100, 100, 5), "one process did all");
        assert!(differ(4, 100, 100, 5), "there are only three processes");
        assert!(differ(3, 101, 101, 5), "there are only 100 rows");
        assert!(differ(3, 100, 99, 5), "the sum is not that of the Gather");
        assert!(differ(3, 100, 102, 5), "the sum fits only one of the runs");
        assert!(!differ(3, 100, 100, 6), "a catalogue block was read");
        assert!(differ(3, 100, 100, 30), "a counter that is the same in all runs");
    }

    /// On a busy machine, no worker may begin in time in all of core's runs.
    #[test]
    fn more_processes_than_in_cores_runs_may_take_part() {
        let runs = [vec![core("Gather", 1, "100"), core("Scan", 1, "100")]];
        let differ = |gathered, starts, rows| {
            let nodes = [
                measured("Gather", 1, gathered, 5),
                measured("Scan", starts, rows, 5),
            ];
            !differences_from_runs(&runs, &nodes, 3).is_empty()
        };
        assert!(!differ(100, 1, 100) && !differ(200, 2, 200));
        assert!(differ(200, 1, 200) && differ(100, 2, 200) && differ(150, 2, 150));
    }

    #[test]
    fn rows_per_process_multiply_with_the_processes() {
        let runs = [vec![core("Hash", 2, "500")], vec![core("Hash", 3, "500")]];
        let differ =
            |starts, rows| !differences_from_runs(&runs, &[measured("Hash", starts, rows, 5)], 3).is_empty();
        assert!(!differ(1, 500) && !differ(2, 1_000) && !differ(3, 1_500));
        assert!(differ(1, 1_000) && differ(3, 500) && differ(2, 1_002));
    }

    #[test]
    fn a_process_may_return_fewer_groups() {
        let runs = [
            vec![core("Partial HashAggregate", 2, "50")],
            vec![core("Partial HashAggregate", 3, "41")],
        ];
        let differ = |starts, rows| {
            let nodes = [measured("Partial HashAggregate", starts, rows, 5)];
            !differences_from_runs(&runs, &nodes, 3).is_empty()
        };
        assert!(!differ(2, 100) && !differ(3, 130));
        assert!(differ(2, 102) && differ(3, 98));
    }
}
