//! What an execution counted, as plain numbers by which executions are summed up: before times are converted,
//! and before what inputs used is added to their parents. To count and to sum up costs a short statement a
//! fraction of what its statistics cost. They are computed from the sums of many executions.
//!
//! That is possible if the nodes did nothing but hit and change shared buffers. This is so for most
//! executions of short statements. A node that reads blocks, or calls a subplan or a nested statement, did
//! more.
//!
//! Times may be estimates, which may contradict each other. They are summed up as they are, and only the sums
//! are made consistent: if each execution were, its errors would no longer cancel out.

use super::direct::fit_children;
use super::extras::{Extras, NodeExtras};
use super::node::add_usage_to_parents;
use super::node_counts::{NodeCounts, Uncounted};
use super::sample::Nodes;
use super::shape::{MAX_NODES, Shape};
use crate::float::at_most;
use crate::model::facts::{PARTITIONS_PLANNED, PARTITIONS_RUN, SUBPLANS_REMOVED, SimpleFacts};
use crate::model::partitions::PartitionSum;
use crate::model::{Buffers, EstimateSum, Fold, NodeStats, NodeTotals, Time, Unfolding, Wal};
use crate::reconcile::{Edge, Item, reconcile};
use crate::sampler::Estimate;
use smallvec::SmallVec;

/// What the nodes of an execution counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    shape: Shape,
    nodes: [NodeCounts; MAX_NODES],
    extras: NodeExtras,
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
        let mut has_extras = false;
        for (i, node) in self.nodes[..self.count].iter_mut().enumerate() {
            has_extras |= node.take(nodes, i, shape)?;
        }
        self.extras.has_any = false;
        if has_extras {
            let counts = &mut self.nodes[..self.count];
            self.extras.take(nodes, shape, counts)?;
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

    /// Returns the counts of the folded plan. Returns `None` if that has too many nodes, or if not all of its
    /// nodes are measured in the same way.
    pub fn folded(&self, fold: &Fold) -> Option<Counts> {
        let nodes = fold.nodes();
        if nodes.len() > MAX_NODES || fold.real_nodes() != self.count {
            return None;
        }
        let mut folded = Counts {
            count: nodes.len(),
            elapsed_ms: self.elapsed_ms,
            ..Counts::default()
        };
        folded.extras.has_any = self.extras.has_any;
        let is_by_core = |at: usize| match nodes[at].first as usize {
            first if first < self.count => self.shape.is_by_core(first),
            _ => nodes[at].by_core,
        };
        let places = (0..nodes.len()).map(|at| (nodes[at].parent, is_by_core(at)));
        folded.shape = self.shape.with_nodes(places);
        let mut estimates = [EstimateSum::default(); MAX_NODES];
        for (i, node) in self.nodes().iter().enumerate() {
            let at = fold.of(i);
            if self.shape.is_by_core(i) != is_by_core(at) {
                return None;
            }
            folded.nodes[at].add(node);
            folded.extras.add_one(at, &self.extras.of(i));
            estimates[at].add(&node.estimate, node.starts);
        }
        for (node, sum) in folded.nodes.iter_mut().zip(&estimates) {
            node.estimate = sum.estimate();
        }
        for (made, below) in fold.made() {
            folded.nodes[made] = folded.nodes[below].appended(is_by_core(made));
            folded.extras.append(made, below, is_by_core(made));
        }
        let ran = self.nodes().iter().map(|node| node.starts > 0);
        fold.count_partitions(ran, |append, planned, ran| {
            let sums = &mut folded.nodes[append].sums;
            sums[PARTITIONS_PLANNED] += planned + sums[SUBPLANS_REMOVED];
            sums[PARTITIONS_RUN] += ran;
        });
        Some(folded)
    }

    /// Returns what each partition of a folded plan did, ordered by its nodes. Those that did not run are
    /// left out.
    pub fn partitions(&self, unfolding: &Unfolding) -> SmallVec<[PartitionSum; MAX_NODES]> {
        let mut partitions = SmallVec::new();
        for (i, node) in self
            .nodes()
            .iter()
            .enumerate()
            .filter(|(_, node)| node.starts > 0)
        {
            if let Some(relid) = unfolding.partition(i) {
                partitions.push(PartitionSum {
                    node: unfolding.fold.of(i) as u32,
                    relid,
                    rows: node.rows,
                    blocks: node.shared_hit,
                    ms: node.ticks.max(0.0) * self.shape.tick_ms,
                });
            }
        }
        partitions.sort_unstable_by_key(|partition: &PartitionSum| partition.node);
        partitions
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
        compute(&self.shape, (self.nodes(), &self.extras), self.elapsed_ms, stats);
        true
    }
}

/// Computes the statistics of one or several executions that took `elapsed_ms` in total, from the sums of
/// their counts.
fn compute(
    shape: &Shape,
    (counts, extras): (&[NodeCounts], &NodeExtras),
    elapsed_ms: f64,
    stats: &mut [NodeStats],
) {
    let mut fits = true;
    for (i, (node, stats)) in counts.iter().zip(&mut *stats).enumerate() {
        let extras = extras.of(i);
        let mut total_ms = node.ticks * shape.tick_ms;
        if shape.parent(i).is_none() {
            // The root ran inside the statement's own runs, whose time is exact.
            total_ms = at_most(total_ms, elapsed_ms);
        }
        let time = (node.starts > 0 && shape.is_timed()).then(|| Time {
            total_ms,
            startup_ms: at_most(node.startup_ticks * shape.tick_ms, total_ms),
            self_ms: total_ms,
            error_ms: extras.error_squared.sqrt() * shape.tick_ms,
        });
        let facts = SimpleFacts {
            kind: node.kind,
            sums: node.sums,
        };
        *stats = NodeStats {
            starts: node.starts.into(),
            rows: node.rows,
            time: time.into(),
            // What only core measured was also charged to the node that called it.
            buffers: Buffers::default().into(),
            wal: Wal::default().into(),
            timed_calls: node.timed_calls,
            timer_calls: 2 * node.timed_calls - extras.detected_calls,
            clock_backsteps: 0,
            wait_ms: 0.0,
            facts: facts.into(),
            estimate: node.estimate,
        };
        if !shape.is_by_core(i) {
            use_alone(stats, node, &extras);
        }
    }
    for i in 1..counts.len() {
        let total_ms = stats[i].time.get_or_zero().total_ms;
        if let Some(above) = shape.parent(i).and_then(|parent| stats[parent].time.get_mut()) {
            above.self_ms -= total_ms;
            fits &= above.self_ms >= 0.0;
        }
    }
    if !fits && reconcile_estimates(shape, stats).is_none() {
        fit_children(stats, |i| shape.parent(i));
    }
    add_usage_to_parents(stats, |i| shape.parent(i));
    for (i, (node, stats)) in counts.iter().zip(stats).enumerate() {
        if shape.is_by_core(i) {
            use_alone(stats, node, &extras.of(i));
        }
    }
}

/// Makes estimated times consistent with each other, as far as their errors allow. Returns `None` if nothing
/// is estimated, or if there is no memory.
#[cold]
#[inline(never)]
fn reconcile_estimates(shape: &Shape, stats: &mut [NodeStats]) -> Option<()> {
    let is_estimated = |stats: &NodeStats| stats.time.get_or_zero().error_ms > 0.0;
    if !stats.iter().any(is_estimated) {
        return None;
    }
    let mut items: SmallVec<[Item; MAX_NODES]> = SmallVec::new();
    for (i, stats) in stats.iter().enumerate().take(MAX_NODES) {
        let time = stats.time.get_or_zero();
        let estimate = Estimate {
            total: time.total_ms,
            startup: time.startup_ms,
            error: time.error_ms,
        };
        items.push(Item::new(shape.parent(i), Edge::Sequential, 1.0, estimate));
    }
    let own = reconcile(&mut items, &mut [], f64::INFINITY)?;
    for ((stats, item), own) in stats.iter_mut().zip(&items).zip(own) {
        if let Some(time) = stats.time.get_mut() {
            (time.total_ms, time.startup_ms, time.self_ms) =
                (item.estimate.total, item.estimate.startup, own);
        }
    }
    Some(())
}

/// Makes the blocks and the WAL of a node those that it counted.
fn use_alone(stats: &mut NodeStats, counts: &NodeCounts, extras: &Extras) {
    stats.buffers = Buffers {
        shared_hit: counts.shared_hit,
        shared_dirtied: extras.shared_dirtied,
        ..Buffers::default()
    }
    .into();
    stats.wal = extras.wal.into();
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
    extras: NodeExtras,
    last_extras: NodeExtras,
}

impl CountSums {
    /// Returns whether executions with these counts can be added.
    #[inline(always)]
    pub fn can_add(&self, counts: &Counts) -> bool {
        !self.has_any || self.shape == counts.shape
    }

    /// Adds an execution, which is the last one now. The estimates of its nodes are compared with their rows
    /// in `totals`, because that is done execution by execution.
    #[inline(always)]
    pub fn add(&mut self, counts: &Counts, totals: &mut [NodeTotals; MAX_NODES]) {
        let is_first = !self.has_any;
        if is_first {
            self.shape = counts.shape;
            self.elapsed_ms = 0.0;
            self.extras.has_any = false;
        }
        (self.has_any, self.has_last) = (true, true);
        self.elapsed_ms += counts.elapsed_ms;
        self.last_ms = counts.elapsed_ms;
        for (i, node) in counts.nodes[..counts.count.min(MAX_NODES)].iter().enumerate() {
            totals[i].estimates.add(&node.estimate, node.starts, node.rows);
            self.last[i] = *node;
            if !is_first {
                self.sums[i].add(node);
            }
        }
        if is_first {
            self.begin(counts);
        }
        self.last_extras.has_any = false;
        if counts.extras.has_any {
            self.extras.add(&counts.extras, counts.count);
            self.last_extras.copy_from(&counts.extras, counts.count);
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
            let sums = (&self.sums[..count], &self.extras);
            compute(&self.shape, sums, self.elapsed_ms, stats);
            for (total, stats) in totals.iter_mut().zip(&*stats) {
                total.total.add(stats);
            }
        }
        if self.has_last {
            let last = (&self.last[..count], &self.last_extras);
            compute(&self.shape, last, self.last_ms, stats);
            for (total, stats) in totals.iter_mut().zip(&*stats) {
                total.last = *stats;
            }
        }
    }
}
