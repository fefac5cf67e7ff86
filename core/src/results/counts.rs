//! What an execution counted, as plain numbers by which executions are summed up: before times are converted, and before what
//! inputs used is added to their parents. To count and to sum up costs a short statement a fraction of what its statistics cost.
//! They are computed from the sums of many executions.
//!
//! That is possible if every call was timed, or none is to be, and if the nodes did nothing but hit and change shared buffers. This is
//! so for most executions of short statements. A node that reads blocks, or calls a subplan or a nested statement, did more.

use super::direct::fit_children;
use super::node::{NS_PER_MS, add_usage_to_parents};
use super::sample::{Nodes, Place, TimedCalls};
use crate::float::at_most;
use crate::model::facts::{SIMPLE_SUMS, SimpleFacts};
use crate::model::{Buffers, Estimate, NodeKind, NodeStats, NodeTotals, Time, Wal};
use crate::reconcile::Edge;

/// Statements with more nodes take so long that this would save nothing.
pub const MAX_NODES: usize = 8;

/// What one node counted, in one execution or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct NodeCounts {
    starts: u64,
    rows: u64,
    timed_calls: u64,
    ticks: f64,
    startup_ticks: f64,
    shared_hit: i64,
    /// The sums of its facts.
    sums: [u64; SIMPLE_SUMS],
    /// The estimate of an execution. It is not summed up: nobody reads that of sums.
    estimate: Estimate,
    kind: NodeKind,
}

/// The blocks that a node changed, and the WAL that it wrote. Nodes that only read have none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Changes {
    shared_dirtied: i64,
    wal: Wal,
}

/// The changes of the nodes of one execution, or of several.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct NodeChanges {
    /// Without any, those of the nodes are not valid.
    has_any: bool,
    of_nodes: [Changes; MAX_NODES],
}

impl NodeChanges {
    /// Takes those of an execution.
    #[inline(never)]
    fn take<N: Nodes>(&mut self, nodes: &N, count: usize) {
        self.has_any = true;
        for (i, changes) in self.of_nodes.iter_mut().enumerate().take(count) {
            let sample = nodes.sample(i);
            *changes = Changes {
                shared_dirtied: sample.buffers.shared_dirtied,
                wal: sample.wal,
            };
        }
    }

    #[inline(always)]
    fn copy_from(&mut self, other: &NodeChanges, count: usize) {
        self.has_any = other.has_any;
        if other.has_any {
            for (node, other) in self.of_nodes.iter_mut().zip(&other.of_nodes).take(count) {
                *node = *other;
            }
        }
    }

    #[inline(always)]
    fn add(&mut self, other: &NodeChanges, count: usize) {
        if !self.has_any {
            self.copy_from(other, count);
        } else if other.has_any {
            for (node, other) in self.of_nodes.iter_mut().zip(&other.of_nodes).take(count) {
                node.shared_dirtied += other.shared_dirtied;
                node.wal += other.wal;
            }
        }
    }

    /// Returns those of a node.
    fn of(&self, i: usize) -> Changes {
        let changes = self.has_any.then(|| self.of_nodes.get(i).copied());
        changes.flatten().unwrap_or_default()
    }
}

/// How the nodes of a plan hang together, and the clock that timed them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Shape {
    /// Milliseconds per tick of the clock; 0 if no call is timed.
    tick_ms: f64,
    /// A byte for each node, the lowest for the root: the index of the parent plus one, or 0. So two numbers are enough to compare
    /// shapes.
    parents: u64,
}

impl Shape {
    /// Returns the shape of a plan. A tick has `tick_ns` nanoseconds; 0 means that no call is timed. Returns `None` if executions of
    /// the plan cannot be summed up as counts: it has too many nodes, or one that is no input of its parent, or that runs inside a
    /// sibling's time.
    pub fn new(places: impl ExactSizeIterator<Item = Place>, tick_ns: f64) -> Option<Shape> {
        let mut shape = Shape {
            tick_ms: tick_ns / NS_PER_MS,
            ..Shape::default()
        };
        if places.len() > MAX_NODES {
            return None;
        }
        for (i, place) in places.enumerate() {
            let is_input = place.parent.is_none() || place.edge == Edge::Sequential;
            if place.hidden || place.by_expression || !is_input {
                return None;
            }
            shape.parents |= place.parent.map_or(0, |parent| parent as u64 + 1) << (8 * i);
        }
        Some(shape)
    }

    #[inline(always)]
    fn is_timed(&self) -> bool {
        self.tick_ms != 0.0
    }

    fn parent(&self, i: usize) -> Option<usize> {
        let parent = (self.parents >> (8 * i) & 0xff).checked_sub(1)?;
        Some(parent as usize)
    }
}

/// Why an execution has no counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// It may have done more than to hit and change shared buffers, or not all of its calls were timed.
    Now,
    /// No execution of the plan has counts.
    Always,
}

/// What the nodes of an execution counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    shape: Shape,
    nodes: [NodeCounts; MAX_NODES],
    changes: NodeChanges,
    count: usize,
    elapsed_ms: f64,
}

impl Counts {
    /// Returns the number of nodes; 0 if nothing was counted.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes the counts of an execution that took `elapsed_ms`. If there are none, the value is not valid.
    #[inline(always)]
    pub fn take<N: Nodes>(&mut self, nodes: &N, shape: &Shape, elapsed_ms: f64) -> Result<(), Uncounted> {
        self.count = nodes.count().min(MAX_NODES);
        let mut has_changes = false;
        let is_timed = shape.is_timed();
        for (i, node) in self.nodes.iter_mut().enumerate().take(self.count) {
            has_changes |= node.take(nodes, i, is_timed)?;
        }
        self.changes.has_any = false;
        if has_changes {
            self.changes.take(nodes, self.count);
        }
        self.shape = *shape;
        self.elapsed_ms = elapsed_ms;
        Ok(())
    }

    /// Returns how many rows the root returned.
    #[inline(always)]
    pub fn returned_rows(&self) -> u64 {
        self.nodes().first().map_or(0, |root| root.rows)
    }

    /// Forgets the counts.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    #[inline(always)]
    fn nodes(&self) -> &[NodeCounts] {
        self.nodes.get(..self.count).unwrap_or_default()
    }

    /// Computes the statistics of the execution. Returns false if there is no memory.
    #[cold]
    #[inline(never)]
    pub fn compute(&self, stats: &mut Vec<NodeStats>) -> bool {
        stats.clear();
        if stats.try_reserve(self.count).is_err() {
            return false;
        }
        stats.resize_with(self.count, NodeStats::default);
        compute(&self.shape, (self.nodes(), &self.changes), self.elapsed_ms, stats);
        true
    }
}

/// Computes the statistics of one or several executions that took `elapsed_ms` in total, from the sums of their counts.
fn compute(
    shape: &Shape,
    (counts, changes): (&[NodeCounts], &NodeChanges),
    elapsed_ms: f64,
    stats: &mut [NodeStats],
) {
    let mut fits = true;
    for (i, (node, stats)) in counts.iter().zip(&mut *stats).enumerate() {
        let mut total_ms = node.ticks * shape.tick_ms;
        if shape.parent(i).is_none() {
            // The root ran inside the statement's own runs, whose time is exact.
            total_ms = at_most(total_ms, elapsed_ms);
        }
        let time = (node.starts > 0 && shape.is_timed()).then(|| Time {
            total_ms,
            startup_ms: at_most(node.startup_ticks * shape.tick_ms, total_ms),
            self_ms: total_ms,
            error_ms: 0.0,
        });
        let changes = changes.of(i);
        let facts = SimpleFacts {
            kind: node.kind,
            sums: node.sums,
        };
        *stats = NodeStats {
            starts: node.starts.into(),
            rows: node.rows,
            time: time.into(),
            buffers: Buffers {
                shared_hit: node.shared_hit,
                shared_dirtied: changes.shared_dirtied,
                ..Buffers::default()
            }
            .into(),
            wal: changes.wal.into(),
            timed_calls: node.timed_calls,
            timer_calls: 2 * node.timed_calls,
            clock_backsteps: 0,
            wait_ms: 0.0,
            facts: facts.into(),
            estimate: node.estimate,
        };
    }
    for i in 1..counts.len() {
        let total_ms = stats[i].time.get_or_zero().total_ms;
        if let Some(above) = shape.parent(i).and_then(|parent| stats[parent].time.get_mut()) {
            above.self_ms -= total_ms;
            fits &= above.self_ms >= 0.0;
        }
    }
    if !fits {
        fit_children(stats, |i| shape.parent(i));
    }
    add_usage_to_parents(stats, |i| shape.parent(i));
}

/// The counts of several executions of a plan. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CountSums {
    shape: Shape,
    elapsed_ms: f64,
    last_ms: f64,
    /// The last execution is among them.
    has_last: bool,
    has_any: bool,
    sums: [NodeCounts; MAX_NODES],
    last: [NodeCounts; MAX_NODES],
    changes: NodeChanges,
    last_changes: NodeChanges,
}

impl CountSums {
    /// Returns whether executions with these counts can be added.
    #[inline(always)]
    pub fn can_add(&self, counts: &Counts) -> bool {
        !self.has_any || self.shape == counts.shape
    }

    /// Adds an execution, which is the last one now. The estimates of its nodes are compared with their rows in `totals`, because that
    /// is done execution by execution.
    #[inline(always)]
    pub fn add(&mut self, counts: &Counts, totals: &mut [NodeTotals; MAX_NODES]) {
        let is_first = !self.has_any;
        if is_first {
            self.shape = counts.shape;
            self.elapsed_ms = 0.0;
            self.changes.has_any = false;
        }
        (self.has_any, self.has_last) = (true, true);
        self.elapsed_ms += counts.elapsed_ms;
        self.last_ms = counts.elapsed_ms;
        for (i, node) in counts.nodes().iter().enumerate().take(MAX_NODES) {
            totals[i].estimates.add(&node.estimate, node.starts, node.rows);
            self.last[i] = *node;
            if !is_first {
                self.sums[i].add(node);
            }
        }
        if is_first {
            self.begin(counts);
        }
        self.last_changes.has_any = false;
        if counts.changes.has_any {
            self.changes.add(&counts.changes, counts.count);
            self.last_changes.copy_from(&counts.changes, counts.count);
        }
    }

    /// Takes the counts of the first execution.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, counts: &Counts) {
        for (sum, node) in self.sums.iter_mut().zip(counts.nodes()) {
            *sum = *node;
        }
    }

    /// Notes that another execution is the last one.
    #[inline(always)]
    pub fn note_other(&mut self) {
        self.has_last = false;
    }

    /// Forgets all of them.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.has_any = false;
        self.has_last = false;
    }

    /// Returns whether there are any.
    pub fn has_any(&self) -> bool {
        self.has_any
    }

    /// Adds them to the statistics of their nodes. Their histograms and estimates are there already.
    pub fn add_to(&self, totals: &mut [NodeTotals]) {
        let count = totals.len().min(MAX_NODES);
        let mut stats = [NodeStats::default(); MAX_NODES];
        let stats = &mut stats[..count];
        if self.has_any {
            let sums = (&self.sums[..count], &self.changes);
            compute(&self.shape, sums, self.elapsed_ms, stats);
            for (total, stats) in totals.iter_mut().zip(&*stats) {
                total.total.add(stats);
            }
        }
        if self.has_last {
            let last = (&self.last[..count], &self.last_changes);
            compute(&self.shape, last, self.last_ms, stats);
            for (total, stats) in totals.iter_mut().zip(&*stats) {
                total.last = *stats;
            }
        }
    }
}

impl NodeCounts {
    /// Takes those of a node. Returns whether it has changed anything. If there are none, the value is not valid.
    #[inline(always)]
    fn take<N: Nodes>(&mut self, nodes: &N, i: usize, is_timed: bool) -> Result<bool, Uncounted> {
        let Some(sample) = nodes.simple(i) else {
            return Err(Uncounted::Now);
        };
        (self.ticks, self.startup_ticks, self.timed_calls) = match sample.timed {
            TimedCalls::All(time) if is_timed => time,
            TimedCalls::None if !is_timed => (0.0, 0.0, 0),
            TimedCalls::Some => return Err(Uncounted::Now),
            _ => return Err(Uncounted::Always),
        };
        let Some(SimpleFacts { kind, sums }) = nodes.simple_facts(i) else {
            return Err(Uncounted::Always);
        };
        (self.kind, self.sums) = (kind, sums);
        (self.starts, self.rows) = (sample.starts, sample.rows);
        (self.shared_hit, self.estimate) = (sample.shared_hit, sample.estimate);
        Ok(sample.has_changes)
    }

    #[inline(always)]
    fn add(&mut self, node: &NodeCounts) {
        self.starts += node.starts;
        self.rows += node.rows;
        self.timed_calls += node.timed_calls;
        self.ticks += node.ticks;
        self.startup_ticks += node.startup_ticks;
        self.shared_hit += node.shared_hit;
        for (sum, count) in self.sums.iter_mut().zip(node.sums) {
            *sum += count;
        }
        if node.kind != NodeKind::Other {
            self.kind = node.kind;
        }
    }
}
