//! What a node used itself, without the nodes below it: requests and WAL.

use super::node::{Buffers, NodeTotals, Wal};
use crate::plan::PlanNode;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// The requests that a node made itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// What the InitPlans, CTEs and subplans used that a node called. The node's blocks and WAL include it, as in EXPLAIN. But each of them is
/// shown below one node only, and another one may have called it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Their requests.
    pub io: OwnIo,
    /// Their WAL.
    pub wal: Wal,
}

/// The number of words in [`Called::to_words`].
pub const CALLED_WORDS: usize = 11;

const NS_PER_MS: f64 = 1e6;

impl Called {
    /// Returns the part of blocks and WAL that is kept.
    pub fn of(buffers: &Buffers, wal: &Wal) -> Self {
        Called {
            io: OwnIo::of(buffers),
            wal: *wal,
        }
    }

    /// Returns it as numbers that can be added by themselves. Times are nanoseconds.
    pub fn to_words(&self) -> [u64; CALLED_WORDS] {
        let Called { io, wal } = self;
        [
            io.hit as u64,
            io.read as u64,
            (io.read_ms * NS_PER_MS).round() as u64,
            io.temp_read as u64,
            io.temp_written as u64,
            (io.temp_ms * NS_PER_MS).round() as u64,
            wal.records as u64,
            wal.fpi as u64,
            wal.bytes,
            wal.fpi_bytes,
            wal.buffers_full as u64,
        ]
    }

    /// Returns what [`Called::to_words`] has made numbers of.
    pub fn from_words(words: [u64; CALLED_WORDS]) -> Self {
        Called {
            io: OwnIo {
                hit: words[0] as i64,
                read: words[1] as i64,
                read_ms: words[2] as f64 / NS_PER_MS,
                temp_read: words[3] as i64,
                temp_written: words[4] as i64,
                temp_ms: words[5] as f64 / NS_PER_MS,
            },
            wal: Wal {
                records: words[6] as i64,
                fpi: words[7] as i64,
                bytes: words[8],
                fpi_bytes: words[9],
                buffers_full: words[10] as i64,
            },
        }
    }
}

impl AddAssign for Called {
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        // Most nodes call none.
        if !add.is_none() {
            self.add(&add);
        }
    }
}

impl Called {
    /// Returns whether it is nothing. Times are zero if blocks are.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        let Called { io, wal } = self;
        io.hit | io.read | io.temp_read | io.temp_written | wal.records == 0
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, add: &Called) {
        self.io.hit += add.io.hit;
        self.io.read += add.io.read;
        self.io.read_ms += add.io.read_ms;
        self.io.temp_read += add.io.temp_read;
        self.io.temp_written += add.io.temp_written;
        self.io.temp_ms += add.io.temp_ms;
        self.wal += add.wal;
    }
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
/// An InitPlan, a CTE or a subplan runs inside the nodes that call it, so its blocks are subtracted from theirs.
pub fn own_io(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<OwnIo>> {
    own(
        nodes,
        |i| Some(OwnIo::of(&totals.get(i)?.total.buffers.get()?)),
        |i| totals.get(i).map(|totals| totals.called.io),
        OwnIo::subtract,
    )
}

/// Returns the WAL that each node wrote itself in all executions, as [`own_io`] does.
pub fn own_wal(nodes: &[PlanNode], totals: &[NodeTotals]) -> Vec<Option<Wal>> {
    own(
        nodes,
        |i| totals.get(i)?.total.wal.get(),
        |i| totals.get(i).map(|totals| totals.called.wal),
        |own, below| {
            own.records = (own.records - below.records).max(0);
            own.fpi = (own.fpi - below.fpi).max(0);
            own.bytes = own.bytes.saturating_sub(below.bytes);
            own.fpi_bytes = own.fpi_bytes.saturating_sub(below.fpi_bytes);
            own.buffers_full = (own.buffers_full - below.buffers_full).max(0);
        },
    )
}

/// Returns what each node has without its inputs and without the subplans that it called. `all` returns what a node has with them, and
/// `called` what these subplans have.
fn own<T>(
    nodes: &[PlanNode],
    all: impl Fn(usize) -> Option<T>,
    called: impl Fn(usize) -> Option<T>,
    subtract: impl Fn(&mut T, &T),
) -> Vec<Option<T>> {
    let mut own: Vec<Option<T>> = Vec::new();
    if own.try_reserve_exact(nodes.len()).is_err() {
        return own;
    }
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
    fn what_was_called_passes_through_words() {
        let words = std::array::from_fn(|i| i as u64 + 1);
        let mut called = Called::from_words(words);
        assert_eq!(called.to_words(), words);
        called += called;
        assert_eq!(called.to_words(), words.map(|word| 2 * word));
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
