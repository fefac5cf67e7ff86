//! What a node used itself, without the nodes below it: requests and WAL.

use super::node::{Buffers, NodeTotals, Wal};
use crate::plan::PlanNode;

/// The requests that a node made itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnIo {
    /// Blocks of tables, indexes and temporary tables found in buffers.
    pub hit: i64,
    /// Blocks of tables, indexes and temporary tables read.
    pub read: i64,
    /// Milliseconds reading them.
    pub read_ms: f64,
    /// Work-file blocks read.
    pub temp_read: i64,
    /// Work-file blocks written.
    pub temp_written: i64,
    /// Milliseconds reading and writing work-file blocks.
    pub temp_ms: f64,
}

impl OwnIo {
    fn of(buffers: &Buffers) -> Self {
        OwnIo {
            hit: buffers.shared_hit + buffers.local_hit,
            read: buffers.shared_read + buffers.local_read,
            read_ms: buffers.shared_read_ms + buffers.local_read_ms,
            temp_read: buffers.temp_read,
            temp_written: buffers.temp_written,
            temp_ms: buffers.temp_read_ms + buffers.temp_write_ms,
        }
    }

    /// Subtracts what a node below did. Nothing gets less than zero.
    fn subtract(&mut self, below: &Self) {
        self.hit = (self.hit - below.hit).max(0);
        self.read = (self.read - below.read).max(0);
        self.read_ms = (self.read_ms - below.read_ms).max(0.0);
        self.temp_read = (self.temp_read - below.temp_read).max(0);
        self.temp_written = (self.temp_written - below.temp_written).max(0);
        self.temp_ms = (self.temp_ms - below.temp_ms).max(0.0);
    }
}

/// Returns what each node did itself in all executions. Returns `None` for a node whose blocks were not counted. The list is
/// empty if there is no memory.
///
/// An InitPlan or a CTE runs inside the first node that needs it, so its blocks are not subtracted from those of its parent.
pub fn own_io(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<OwnIo>> {
    own(
        nodes,
        |i| Some(OwnIo::of(&totals.get(i)?.total.buffers.get()?)),
        OwnIo::subtract,
    )
}

/// Returns the WAL that each node wrote itself in all executions, as [`own_io`] does.
pub fn own_wal(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<Wal>> {
    own(
        nodes,
        |i| totals.get(i)?.total.wal.get(),
        |own, below| {
            own.records = (own.records - below.records).max(0);
            own.fpi = (own.fpi - below.fpi).max(0);
            own.bytes = own.bytes.saturating_sub(below.bytes);
            own.fpi_bytes = own.fpi_bytes.saturating_sub(below.fpi_bytes);
            own.buffers_full = (own.buffers_full - below.buffers_full).max(0);
        },
    )
}

/// Returns what each node has without the nodes below it. `all` returns what a node has with them.
fn own<T>(
    nodes: &[PlanNode],
    all: impl Fn(usize) -> Option<T>,
    subtract: impl Fn(&mut T, &T),
) -> Vec<Option<T>> {
    let mut own: Vec<Option<T>> = Vec::new();
    if own.try_reserve_exact(nodes.len()).is_err() {
        return own;
    }
    own.extend((0..nodes.len()).map(&all));
    for (i, node) in nodes.iter().enumerate() {
        let above = node.parent.filter(|_| !is_run_elsewhere(node));
        let above = above.and_then(|parent| own.get_mut(parent)?.as_mut());
        if let (Some(above), Some(below)) = (above, all(i)) {
            subtract(above, &below);
        }
    }
    own
}

/// Returns whether the node may run inside another node than its parent.
pub(super) fn is_run_elsewhere(node: &PlanNode) -> bool {
    let name = node.subplan_name.as_deref().unwrap_or_default();
    name.starts_with("InitPlan") || name.starts_with("CTE ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeStats;

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
    fn inputs_are_subtracted_and_init_plans_are_not() {
        let nodes = [
            node(None, None),
            node(Some(0), Some("InitPlan 1 (returns $0)")),
            node(Some(0), None),
            node(Some(2), Some("SubPlan 2")),
            node(Some(9), None),
        ];
        let own = own_io(&nodes, &[read(10), read(4), read(9), read(12), read(3)]);
        let reads: Vec<_> = own.iter().map(|own| own.map(|own| own.read)).collect();
        assert_eq!(reads, [Some(1), Some(4), Some(0), Some(12), Some(3)]);
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
