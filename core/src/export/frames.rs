//! A plan as call stacks: each node is a frame, and its parent is the frame that called it. The weight of a
//! stack is the time of its innermost node without the nodes below.

use crate::model::{NamedWaits, NodeStats};
use crate::plan::PlanNode;

/// The longest name of a frame, in characters. A foreign join names all its relations.
const MAX_NAME: usize = 100;

/// Returns a node's name: what EXPLAIN calls it, and the object that it works on.
///
/// Flame graph tools separate frames with `;` and end them at the end of the line, so a name contains
/// neither.
pub(super) fn name(node: &PlanNode) -> String {
    let subplan = node.subplan_name.iter().flat_map(|name| [name.as_str(), ": "]);
    let object = node.object_name.iter().flat_map(|name| [" ", name.as_str()]);
    let parts = subplan.chain([node.operation.as_str()]).chain(object);
    clean(parts.flat_map(str::chars))
}

fn clean(text: impl Iterator<Item = char>) -> String {
    let characters = text.map(|c| match c {
        ';' => ',',
        c if c.is_control() => ' ',
        c => c,
    });
    characters.take(MAX_NAME).collect()
}

/// Returns a node's own time per execution in microseconds; 0 if it was not timed.
pub(super) fn own_us(stats: Option<&NodeStats>, executions: f64) -> f64 {
    let time = stats.and_then(|stats| stats.time.get());
    let us = time.map_or(0.0, |time| time.self_ms * 1e3 / executions);
    if us.is_finite() { us.max(0.0) } else { 0.0 }
}

/// Returns the events that a node waited for, and their microseconds per execution. They are no more than its
/// own time: that of a Gather is estimated.
fn waits_us(
    waits: &[NamedWaits],
    node: usize,
    own_us: f64,
    executions: f64,
) -> impl Iterator<Item = (String, f64)> {
    let of_node = waits.iter().filter(move |waits| waits.node == Some(node));
    let us = move |waits: &NamedWaits| waits.ms * 1e3 / executions;
    let sum: f64 = of_node.clone().map(us).sum();
    let part = if sum > own_us { own_us / sum } else { 1.0 };
    of_node.map(move |waits| (clean(waits.name().chars()), us(waits) * part))
}

/// Returns the plan as folded stacks, as flamegraph.pl, inferno and speedscope read them: the names from the
/// root to the node, separated by `;`, a space, and the node's own time in whole microseconds. What a node
/// waited for is a frame above it, and not in its own time. Frames that took less are left out.
///
/// `executions` is the number of executions that `stats` and `waits` sum up; their mean is returned.
pub fn folded<'a>(
    nodes: &'a [PlanNode],
    stats: &'a [NodeStats],
    waits: &'a [NamedWaits],
    executions: f64,
) -> impl Iterator<Item = String> + 'a {
    let mut stack = String::new();
    // Where the name of each frame of the stack ends.
    let mut ends: Vec<usize> = Vec::new();
    nodes.iter().enumerate().flat_map(move |(i, node)| {
        ends.truncate(node.depth);
        stack.truncate(ends.last().copied().unwrap_or(0));
        if !stack.is_empty() {
            stack.push(';');
        }
        stack += &name(node);
        ends.push(stack.len());
        let own = own_us(stats.get(i), executions);
        let waits: Vec<(String, f64)> = waits_us(waits, i, own, executions).collect();
        let busy = own - waits.iter().map(|(_, us)| us).sum::<f64>();
        let waits = waits
            .into_iter()
            .map(|(event, us)| (format!("{stack};[wait {event}]"), us));
        let frames = std::iter::once((stack.clone(), busy)).chain(waits);
        let lines = frames.filter_map(|(stack, us)| {
            let us = us.round();
            (us >= 1.0).then(|| format!("{stack} {us:.0}"))
        });
        lines.collect::<Vec<_>>()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::Time;

    pub fn node(depth: usize, operation: &str, object: Option<&str>) -> PlanNode {
        PlanNode {
            depth,
            operation: operation.to_owned(),
            object_name: object.map(str::to_owned),
            ..PlanNode::default()
        }
    }

    pub fn timed(self_ms: f64) -> NodeStats {
        NodeStats {
            time: Time {
                self_ms,
                ..Time::default()
            }
            .into(),
            ..NodeStats::default()
        }
    }

    #[test]
    fn each_line_is_a_stack_and_its_own_time() {
        let nodes = [
            node(0, "Limit", None),
            node(1, "Sort", None),
            node(2, "Hash Join", None),
            node(3, "Seq Scan", Some("lineitem")),
            node(3, "Hash", None),
            node(4, "Seq Scan", Some("orders")),
        ];
        let stats = [0.0001, 2.0, 4.0, 679.91, 1.0, 0.5].map(timed);
        assert_eq!(
            folded(&nodes, &stats, &[], 1.0).collect::<Vec<_>>(),
            [
                "Limit;Sort 2000",
                "Limit;Sort;Hash Join 4000",
                "Limit;Sort;Hash Join;Seq Scan lineitem 679910",
                "Limit;Sort;Hash Join;Hash 1000",
                "Limit;Sort;Hash Join;Hash;Seq Scan orders 500",
            ]
        );
        let mean = folded(&nodes, &stats, &[], 4.0).last();
        assert_eq!(
            mean.as_deref(),
            Some("Limit;Sort;Hash Join;Hash;Seq Scan orders 125")
        );
    }

    #[test]
    fn a_node_without_time_has_no_line() {
        let nodes = [node(0, "Result", None), node(1, "Seq Scan", Some("t"))];
        assert_eq!(folded(&nodes, &[], &[], 1.0).count(), 0);
        let untimed = [NodeStats::default(), timed(1.0)];
        assert_eq!(
            folded(&nodes, &untimed, &[], 1.0).collect::<Vec<_>>(),
            ["Result;Seq Scan t 1000"]
        );
        // There was no execution, or the time is not a number.
        assert_eq!(folded(&nodes, &untimed, &[], 0.0).count(), 0);
        assert_eq!(
            folded(&nodes, &[timed(f64::NAN), timed(-1.0)], &[], 1.0).count(),
            0
        );
    }

    #[test]
    fn waits_are_frames_above_their_node() {
        let nodes = [node(0, "Update", Some("t")), node(1, "Seq Scan", Some("t"))];
        let stats = [timed(30.0), timed(5.0)];
        let one = |node, event: &str, ms| NamedWaits {
            node,
            event_type: Some("Lock".to_owned()),
            event: event.to_owned(),
            waits: 2,
            ms,
            max_ms: ms,
        };
        let waits = [
            one(Some(0), "transactionid", 20.0),
            one(Some(0), "tuple", 8.0),
            one(Some(1), "tuple", 10.0),
            one(None, "relation", 7.0),
        ];
        assert_eq!(
            folded(&nodes, &stats, &waits, 2.0).collect::<Vec<_>>(),
            [
                "Update t 1000",
                "Update t;[wait Lock:transactionid] 10000",
                "Update t;[wait Lock:tuple] 4000",
                // Not more than the node's own time.
                "Update t;Seq Scan t;[wait Lock:tuple] 2500",
            ]
        );
    }

    #[test]
    fn names_fit_into_the_format() {
        let mut odd = node(0, "Foreign Scan", Some("a;b\nc"));
        odd.subplan_name = Some("SubPlan 1".to_owned());
        assert_eq!(name(&odd), "SubPlan 1: Foreign Scan a,b c");
        let long = node(0, "Foreign Scan", Some(&"é".repeat(1_000)));
        assert_eq!(name(&long).chars().count(), MAX_NAME);
    }
}
