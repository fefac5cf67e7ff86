//! The executions of a plan that a session has not passed to the store yet.

use super::counts::{CountSums, Counts};
use super::shape::MAX_NODES;
use crate::histogram::Histogram;
use crate::model::partitions::{PartitionSum, PendingPartitions};
use crate::model::{Batch, ExecutionStats, Late, NodeTotals, Outside, PlanStats, Run};

/// The sum of the executions of a plan of at most [`PlanSum::MAX_NODES`] nodes. Zero bytes are none.
#[derive(Default)]
#[repr(C)]
pub struct PlanSum {
    plan: PlanStats,
    counts: CountSums,
    /// The histograms and estimates of all executions, and the statistics of those that are not in `counts`.
    nodes: [NodeTotals; MAX_NODES],
    /// What partitions did, if the plan was folded.
    partitions: PendingPartitions,
}

impl PlanSum {
    /// The maximum number of nodes. Executions of larger plans take longer than to add them to the store at
    /// once.
    pub const MAX_NODES: usize = MAX_NODES;

    /// Forgets all executions, before those of a plan with `nodes` nodes.
    #[inline(always)]
    pub fn clear(&mut self, nodes: usize) {
        self.plan = PlanStats::default();
        self.counts.clear();
        self.partitions.clear();
        self.nodes.iter_mut().take(nodes).for_each(NodeTotals::clear);
    }

    /// Adds an execution. Returns false, and adds nothing, if there is no room for its partitions.
    #[inline(always)]
    pub fn add(&mut self, execution: &ExecutionStats<'_>) -> bool {
        if !self.add_partitions(execution.partitions) {
            return false;
        }
        self.counts.note_other();
        execution.add_to_plan(&mut self.plan);
        execution.add_to_nodes(&mut self.nodes);
        true
    }

    /// Adds what the partitions of an execution did. Returns false, and adds nothing, if there is no room for
    /// all: then the execution must not be added.
    #[inline(always)]
    pub fn add_partitions(&mut self, partitions: &[PartitionSum]) -> bool {
        partitions.is_empty() || self.partitions.add(partitions)
    }

    /// Adds an execution whose statistics are not computed yet.
    #[inline(always)]
    pub fn add_counts<'h>(
        &mut self,
        run: &Run,
        outside: Option<&Outside<'_>>,
        counts: &Counts,
        histograms: impl Iterator<Item = &'h Histogram>,
    ) {
        if !self.counts.can_add(counts) {
            self.compute(counts.count());
        }
        self.plan.add(run);
        if let Some(outside) = outside {
            self.plan.add_outside(run, outside);
        }
        self.counts.add(counts, &mut self.nodes);
        for (node, histogram) in self.nodes.iter_mut().zip(histograms) {
            node.histogram.add(histogram);
        }
    }

    /// Computes the statistics of all counts so far: those that come now are from another clock, or without
    /// times.
    #[cold]
    #[inline(never)]
    fn compute(&mut self, nodes: usize) {
        self.counts
            .add_to(self.nodes.get_mut(..nodes).unwrap_or_default());
        self.counts.clear();
    }

    /// Adds what came after the end of an execution.
    #[inline(always)]
    pub fn add_late(&mut self, late: Late<'_>) {
        self.plan.add_late(late);
    }

    /// Passes the statistics of the first `nodes` nodes on.
    pub fn with_batch<R>(&self, nodes: usize, sink: impl FnOnce(&Batch<'_>) -> R) -> R {
        let sums = self.nodes.get(..nodes).unwrap_or_default();
        let plan = self.plan.for_store();
        if !self.counts.has_any() {
            return self
                .partitions
                .with_sorted(|partitions| sink(&Batch::Sum(&plan, sums, partitions)));
        }
        let mut computed = [NodeTotals::default(); MAX_NODES];
        let computed = &mut computed[..sums.len()];
        computed.copy_from_slice(sums);
        self.counts.add_to(computed);
        self.partitions
            .with_sorted(|partitions| sink(&Batch::Sum(&plan, computed, partitions)))
    }
}
