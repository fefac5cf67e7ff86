//! What a node used itself, without the nodes below it: requests and WAL.

use super::node::{NodeStats, NodeTotals, OwnIo, Wal};
use crate::plan::PlanNode;

/// Returns what each node did itself in all executions. Returns `None` for a node whose blocks were not
/// counted. The list is empty if there is no memory.
///
/// An InitPlan, a CTE or a subplan runs inside the nodes that call it, so its blocks are subtracted from
/// theirs.
pub fn own_io(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<OwnIo>> {
    own(
        nodes,
        |i| Some(OwnIo::of(&totals.get(i)?.total.buffers.get()?).to_array()),
        |i| totals.get(i).map(|totals| totals.called.io.to_array()),
        OwnIo::from_array,
    )
}

/// Returns the WAL that each node wrote itself in all executions, as [`own_io`] does.
pub fn own_wal(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<Wal>> {
    let array = |wal: Wal| {
        [
            wal.records as f64,
            wal.fpi as f64,
            wal.bytes as f64,
            wal.fpi_bytes as f64,
            wal.buffers_full as f64,
        ]
    };
    own(
        nodes,
        |i| totals.get(i)?.total.wal.get().map(array),
        |i| totals.get(i).map(|totals| array(totals.called.wal)),
        |[records, fpi, bytes, fpi_bytes, buffers_full]| Wal {
            records: records as i64,
            fpi: fpi as i64,
            bytes: bytes as u64,
            fpi_bytes: fpi_bytes as u64,
            buffers_full: buffers_full as i64,
        },
    )
}

/// Returns one standard error of each node's own time, in milliseconds: those of the node and of all nodes
/// right below it, whose times are subtracted from its time. It is empty if there is no memory.
pub fn own_errors(nodes: &[PlanNode], stats: impl Fn(usize) -> Option<NodeStats>) -> Vec<f64> {
    let mut errors = Vec::new();
    if errors.try_reserve_exact(nodes.len()).is_err() {
        return errors;
    }
    let squared = |i| {
        let error = stats(i)
            .and_then(|stats| stats.time.get())
            .map_or(0.0, |time| time.error_ms);
        error * error
    };
    errors.extend((0..nodes.len()).map(squared));
    for (i, node) in nodes.iter().enumerate() {
        if let Some(above) = node.parent.and_then(|parent| errors.get_mut(parent)) {
            *above += squared(i);
        }
    }
    errors.iter_mut().for_each(|error| *error = error.sqrt());
    errors
}

/// Returns what each node has without its inputs and without the subplans that it called. `all` returns what
/// a node has with them, and `called` what these subplans have.
///
/// If a node has less than the nodes below it, a node above it has that: core charges what the workers of a
/// Gather did to the node that starts the Gather again. But an Append calls the subplans that its
/// asynchronous scans need, and core has measured what these scans used with that: then the scan has less.
fn own<T, const N: usize>(
    nodes: &[PlanNode],
    all: impl Fn(usize) -> Option<[f64; N]>,
    called: impl Fn(usize) -> Option<[f64; N]>,
    make: impl Fn([f64; N]) -> T,
) -> Vec<Option<T>> {
    let (mut own, mut made) = (Vec::new(), Vec::new());
    if own.try_reserve_exact(nodes.len()).is_err() || made.try_reserve_exact(nodes.len()).is_err() {
        return made;
    }
    let subtract = |from: &mut [f64; N], what: &[f64; N]| {
        from.iter_mut().zip(what).for_each(|(from, what)| *from -= what);
    };
    own.extend((0..nodes.len()).map(&all));
    for (i, node) in nodes.iter().enumerate() {
        let above = node.parent.filter(|_| node.subplan_name.is_none());
        let above = above.and_then(|parent| own.get_mut(parent)?.as_mut());
        if let (Some(above), Some(below)) = (above, all(i)) {
            subtract(above, &below);
        }
        if let (Some(own), Some(called)) = (&mut own[i], called(i)) {
            subtract(own, &called);
        }
    }
    for (i, node) in nodes.iter().enumerate().rev() {
        let Some(of_node) = &mut own[i] else { continue };
        let mut missing = of_node.map(|figure| (-figure).max(0.0));
        *of_node = of_node.map(|figure| figure.max(0.0));
        let parent = node.parent.filter(|parent| *parent < i);
        if let (Some(parent), true) = (parent, node.operation.starts_with("Async ")) {
            let Some(above) = own[parent] else { continue };
            for ((own, missing), above) in own[i].iter_mut().flatten().zip(&mut missing).zip(above) {
                let given = own.min((-above).max(0.0));
                *own -= given;
                *missing -= given;
            }
        }
        if let Some(above) = parent.and_then(|parent| own[parent].as_mut()) {
            subtract(above, &missing);
        }
    }
    made.extend(own.into_iter().map(|own| own.map(&make)));
    made
}

/// Returns whether the node may run inside another node than its parent.
pub(super) fn is_run_elsewhere(node: &PlanNode) -> bool {
    let name = node.subplan_name.as_deref().unwrap_or_default();
    name.starts_with("InitPlan") || name.starts_with("CTE ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Buffers, Time};

    fn node(parent: Option<usize>, subplan: Option<&str>) -> PlanNode {
        PlanNode {
            parent,
            subplan_name: subplan.map(String::from),
            ..PlanNode::default()
        }
    }

    fn read(blocks: i64) -> NodeTotals {
        let buffers = Buffers {
            shared_read: blocks,
            ..Buffers::default()
        };
        NodeTotals {
            total: NodeStats {
                buffers: buffers.into(),
                ..NodeStats::default()
            },
            ..NodeTotals::default()
        }
    }

    #[test]
    fn what_a_node_lacks_a_node_above_has() {
        let nodes = [
            node(None, None),
            node(Some(0), None),
            node(Some(1), None),
            node(Some(2), None),
        ];
        let own = own_io(&nodes, &[read(88), read(12), read(12), read(60)]);
        let reads: Vec<_> = own.iter().map(|own| own.map(|own| own.read)).collect();
        assert_eq!(reads, [Some(28), Some(0), Some(0), Some(60)]);
    }

    /// The InitPlan is called by the Append for its first scan. Core has measured that scan with it.
    #[test]
    fn asynchronous_scans_have_nothing_of_subplans() {
        let mut nodes = [
            node(None, None),
            node(Some(0), Some("InitPlan 1 (returns $0)")),
            node(Some(0), None),
            node(Some(2), None),
            node(Some(2), None),
        ];
        nodes[3].operation = "Async Foreign Scan".into();
        nodes[4].operation = "Async Foreign Scan".into();
        let mut totals = [read(8), read(3), read(8), read(4), read(4)];
        totals[2].called.io.read = 3;
        let own = own_io(&nodes, &totals);
        let reads: Vec<_> = own.iter().flatten().map(|own| own.read).collect();
        assert_eq!(reads.iter().sum::<i64>(), 8);
        assert_eq!(reads[..3], [0, 3, 0]);
    }

    #[test]
    fn inputs_are_subtracted_and_subplans_from_the_nodes_that_called_them() {
        let nodes = [
            node(None, None),
            node(Some(0), Some("InitPlan 1 (returns $0)")),
            node(Some(0), None),
            node(Some(2), Some("SubPlan 2")),
            node(Some(9), None),
        ];
        let mut totals = [read(20), read(4), read(18), read(12), read(3)];
        totals[2].called.io.read = 4 + 12;
        let own = own_io(&nodes, &totals);
        let reads: Vec<_> = own.iter().map(|own| own.map(|own| own.read)).collect();
        assert_eq!(reads, [Some(2), Some(4), Some(2), Some(12), Some(3)]);
    }

    #[test]
    fn errors_of_own_times_are_those_of_the_node_and_of_its_inputs() {
        let nodes = [
            node(None, None),
            node(Some(0), Some("InitPlan 1 (returns $0)")),
            node(Some(0), None),
            node(Some(2), None),
        ];
        let errors = [0.0, 3.0, 4.0, 3.0];
        let stats = |i: usize| {
            let time = Time {
                error_ms: errors[i],
                ..Time::default()
            };
            Some(NodeStats {
                time: Some(time).into(),
                ..NodeStats::default()
            })
        };
        assert_eq!(own_errors(&nodes, stats), [5.0, 3.0, 5.0, 3.0]);
        assert_eq!(own_errors(&nodes, |i| stats(i).filter(|_| i > 0))[3], 3.0);
    }

    #[test]
    fn wal_of_nodes_below_is_subtracted() {
        let wrote = |records: i64, bytes: u64| NodeTotals {
            total: NodeStats {
                wal: Wal {
                    records,
                    bytes,
                    ..Wal::default()
                }
                .into(),
                ..NodeStats::default()
            },
            ..NodeTotals::default()
        };
        let nodes = [node(None, None), node(Some(0), None)];
        let own = own_wal(&nodes, &[wrote(7, 700), wrote(2, 50)]);
        let own: Vec<_> = own.iter().flatten().map(|wal| (wal.records, wal.bytes)).collect();
        assert_eq!(own, [(5, 650), (2, 50)]);
    }

    #[test]
    fn nodes_without_counters_have_none() {
        let nodes = [node(None, None), node(Some(0), None), node(Some(1), None)];
        let own = own_io(&nodes, &[read(10), NodeTotals::default()]);
        assert_eq!(
            own.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, false]
        );
    }
}
