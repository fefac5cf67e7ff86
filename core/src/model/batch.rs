//! Statistics of one plan that are about to be added to the store.

use super::execution::Run;
use super::node::{NodeStats, NodeTotals};
use super::plan::PlanStats;
use crate::histogram::Histogram;

/// The statistics of one execution: as a whole, and of each node.
#[derive(Clone, Copy)]
pub struct ExecutionStats<'a> {
    /// The execution as a whole.
    pub run: &'a Run,
    /// The statistics of the nodes, in EXPLAIN's order.
    pub nodes: &'a [NodeStats],
    /// For each node, how long its calls took.
    pub histograms: &'a [&'a Histogram],
}

impl ExecutionStats<'_> {
    /// Adds each node to the total with the same index.
    #[inline(always)]
    pub fn add_to_nodes(&self, totals: &mut [NodeTotals]) {
        let nodes = self.nodes.iter().zip(self.histograms);
        for (total, (node, histogram)) in totals.iter_mut().zip(nodes) {
            total.add(node, histogram);
        }
    }
}

/// Statistics of a plan and of its nodes, to be added to the store.
#[derive(Clone, Copy)]
pub enum Batch<'a> {
    /// One execution.
    Execution(ExecutionStats<'a>),
    /// Several executions that were summed up elsewhere.
    Sum(&'a PlanStats, &'a [NodeTotals]),
}

impl Batch<'_> {
    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        match self {
            Batch::Execution(execution) => execution.nodes.len(),
            Batch::Sum(_, nodes) => nodes.len(),
        }
    }

    /// Returns the number of executions.
    pub fn executions(&self) -> u64 {
        match self {
            Batch::Execution(_) => 1,
            Batch::Sum(plan, _) => plan.times.calls,
        }
    }

    /// Returns when the last execution ended.
    pub fn last_seen(&self) -> i64 {
        match self {
            Batch::Execution(execution) => execution.run.at,
            Batch::Sum(plan, _) => plan.last_seen,
        }
    }

    /// Adds the batch to the statistics of a plan. Returns whether the batch contains the last execution.
    pub fn add_to_plan(&self, stats: &mut PlanStats) -> bool {
        match self {
            Batch::Execution(execution) => {
                stats.add(execution.run);
                true
            }
            Batch::Sum(plan, _) => stats.merge(plan),
        }
    }

    /// Adds the nodes from index `first` on to the totals, one to each. `newer` is the result of [`Batch::add_to_plan`].
    pub fn add_to_nodes(&self, newer: bool, first: usize, totals: &mut [NodeTotals]) {
        match self {
            Batch::Execution(execution) => {
                let rest = ExecutionStats {
                    run: execution.run,
                    nodes: execution.nodes.get(first..).unwrap_or_default(),
                    histograms: execution.histograms.get(first..).unwrap_or_default(),
                };
                rest.add_to_nodes(totals);
            }
            Batch::Sum(_, nodes) => {
                let nodes = nodes.get(first..).unwrap_or_default();
                for (total, node) in totals.iter_mut().zip(nodes) {
                    total.merge(node, newer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Source;
    use crate::model::{Outcome, Planning};

    fn run(at: i64, elapsed_ms: f64) -> Run {
        Run {
            outcome: Outcome::Completed,
            sampfreq: 1,
            clock: Some(Source::Tsc),
            elapsed_ms,
            planning: Planning::default(),
            at,
        }
    }

    fn nodes(rows: [u64; 3]) -> [NodeStats; 3] {
        rows.map(|rows| NodeStats {
            rows,
            ..NodeStats::default()
        })
    }

    /// The nodes are added in parts of different sizes.
    #[test]
    fn a_sum_has_the_same_totals_as_its_single_executions() {
        let histogram = Histogram::default();
        let histograms = [&histogram; 3];
        let runs = [run(5, 2.0), run(7, 4.0)];
        let stats = [nodes([1, 2, 3]), nodes([10, 20, 30])];
        let mut plan = PlanStats::default();
        let mut totals = [NodeTotals::default(); 3];
        for (run, nodes) in runs.iter().zip(&stats) {
            let batch = Batch::Execution(ExecutionStats {
                run,
                nodes,
                histograms: &histograms,
            });
            assert_eq!(
                (batch.node_count(), batch.executions(), batch.last_seen()),
                (3, 1, run.at)
            );
            assert!(batch.add_to_plan(&mut plan));
            let (first, rest) = totals.split_at_mut(1);
            batch.add_to_nodes(true, 0, first);
            batch.add_to_nodes(true, 1, rest);
        }
        let sum = Batch::Sum(&plan, &totals);
        assert_eq!((sum.node_count(), sum.executions(), sum.last_seen()), (3, 2, 7));
        let mut plan_of_sum = PlanStats::default();
        let mut totals_of_sum = [NodeTotals::default(); 3];
        let newer = sum.add_to_plan(&mut plan_of_sum);
        assert!(newer);
        let (first, rest) = totals_of_sum.split_at_mut(2);
        sum.add_to_nodes(newer, 0, first);
        sum.add_to_nodes(newer, 2, rest);
        assert_eq!((plan_of_sum.times.calls, plan_of_sum.times.total_ms), (2, 6.0));
        assert_eq!((plan_of_sum.first_seen, plan_of_sum.last_seen), (5, 7));
        let rows = |totals: &[NodeTotals; 3]| totals.map(|node| (node.total.rows, node.last.rows));
        assert_eq!(rows(&totals), [(11, 10), (22, 20), (33, 30)]);
        assert_eq!(rows(&totals_of_sum), rows(&totals));
    }
}
