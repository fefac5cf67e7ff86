//! How many processes ran a node. The times of all of them add up.

use super::own::is_run_elsewhere;
use crate::plan::PlanNode;

/// Returns how many processes ran each node: below a Gather, on average of the Gather's starts; else 1.
/// `starts` returns how often a node was started. Returns `None` below a Gather that was never started, or
/// whose starts are unknown. The list is empty if there is no memory.
pub fn processes(nodes: &[PlanNode], starts: impl Fn(usize) -> Option<u64>) -> Vec<Option<f64>> {
    let mut processes: Vec<Option<f64>> = Vec::new();
    if processes.try_reserve_exact(nodes.len()).is_err() {
        return processes;
    }
    let below_gather = |i: usize, gather: usize| {
        let (own, of_gather) = (starts(i)?, starts(gather)?);
        (of_gather > 0).then(|| (own as f64 / of_gather as f64).max(1.0))
    };
    for (i, node) in nodes.iter().enumerate() {
        // Only the leader runs an InitPlan or a CTE.
        let parent = node.parent.filter(|_| !is_run_elsewhere(node));
        let above = parent.and_then(|parent| Some((parent, nodes.get(parent)?)));
        processes.push(match above {
            None => Some(1.0),
            Some((gather, above)) if above.operation.starts_with("Gather") => below_gather(i, gather),
            Some((parent, _)) => processes.get(parent).copied().flatten(),
        });
    }
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: Option<usize>, operation: &str, subplan: Option<&str>) -> PlanNode {
        PlanNode {
            parent,
            operation: operation.to_owned(),
            subplan_name: subplan.map(String::from),
            ..PlanNode::default()
        }
    }

    #[test]
    fn all_nodes_below_a_gather_have_its_processes() {
        let nodes = [
            node(None, "Nested Loop", None),
            node(Some(0), "Gather Merge", None),
            node(Some(1), "Sort", None),
            node(Some(2), "Seq Scan", None),
            node(Some(3), "Seq Scan", Some("SubPlan 1")),
            node(Some(1), "Result", Some("InitPlan 2")),
            node(Some(0), "Index Scan", None),
        ];
        // The Gather was started twice, with three processes and with two.
        let starts = [1, 2, 5, 5, 900, 1, 70];
        assert_eq!(
            processes(&nodes, |i| Some(starts[i])),
            [1.0, 1.0, 2.5, 2.5, 2.5, 1.0, 1.0].map(Some)
        );
        let unknown = [Some(1.0), Some(1.0), None, None, None, Some(1.0), Some(1.0)];
        assert_eq!(processes(&nodes, |_| None), unknown);
        assert_eq!(processes(&nodes, |_| Some(0)), unknown);
    }
}
