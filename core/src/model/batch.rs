//! Statistics of one plan that are about to be added to the store.

use super::execution::Late;
use super::node::NodeTotals;
use super::others::PlanTotals;
use super::partitions::PartitionSum;
use super::plan::{ExecutionStats, PlanStats};
use super::statement_facts::StatementSums;

/// Statistics of a plan and of its nodes, to be added to the store.
#[derive(Clone, Copy)]
pub enum Batch<'a> {
    /// One execution.
    Execution(ExecutionStats<'a>),
    /// An execution by EXPLAIN (ANALYZE), which is only counted: when it ended, and the number of nodes.
    Explained(i64, usize),
    /// What came after the end of an execution, at its commit: when it ended, and the number of nodes.
    Late(Late<'a>, i64, usize),
    /// Several executions that were summed up elsewhere ([`PlanStats::for_store`]), and what their partitions
    /// did, ordered by their nodes.
    Sum(&'a PlanStats, &'a [NodeTotals], &'a [PartitionSum]),
}

impl Batch<'_> {
    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        match self {
            Batch::Execution(execution) => execution.nodes.len(),
            Batch::Explained(_, count) | Batch::Late(_, _, count) => *count,
            Batch::Sum(_, nodes, _) => nodes.len(),
        }
    }

    /// Returns the number of executions.
    pub fn executions(&self) -> u64 {
        match self {
            Batch::Execution(_) => 1,
            Batch::Explained(..) | Batch::Late(..) => 0,
            Batch::Sum(plan, ..) => plan.times.calls,
        }
    }

    /// Returns when the last execution ended.
    pub fn last_seen_at(&self) -> i64 {
        match self {
            Batch::Execution(execution) => execution.run.at,
            Batch::Explained(at, _) | Batch::Late(_, at, _) => *at,
            Batch::Sum(plan, ..) => plan.last_seen_at,
        }
    }

    /// Returns what the partitions of a folded plan did, ordered by their nodes.
    pub fn partitions(&self) -> &[PartitionSum] {
        match self {
            Batch::Execution(execution) => execution.partitions,
            Batch::Explained(..) | Batch::Late(..) => &[],
            Batch::Sum(_, _, partitions) => partitions,
        }
    }

    /// Returns the statistics of this batch as a whole.
    pub fn totals(&self) -> PlanTotals {
        let mut totals = PlanTotals::default();
        self.add_to_plan(&mut totals.plan);
        let mut root = [NodeTotals::default()];
        self.add_to_nodes(true, 0, &mut root);
        totals.statement = StatementSums::of(&totals.plan, root.first());
        totals
    }

    /// Adds the batch to the statistics of a plan. Returns whether the batch contains the last execution.
    pub fn add_to_plan(&self, stats: &mut PlanStats) -> bool {
        match self {
            Batch::Execution(execution) => {
                execution.add_to_plan(stats);
                stats.busy.add_squares_of(execution.run);
                true
            }
            Batch::Explained(at, _) => {
                stats.add_explained(*at);
                false
            }
            Batch::Late(late, ..) => {
                stats.add_late(*late);
                false
            }
            Batch::Sum(plan, ..) => stats.merge(plan),
        }
    }

    /// Adds the nodes from index `first` on to the totals, one to each. `newer` is the result of
    /// [`Batch::add_to_plan`].
    pub fn add_to_nodes(&self, newer: bool, first: usize, totals: &mut [NodeTotals]) {
        match self {
            Batch::Execution(execution) => {
                let rest = ExecutionStats {
                    run: execution.run,
                    outside: None,
                    nodes: execution.nodes.get(first..).unwrap_or_default(),
                    histograms: execution.histograms.get(first..).unwrap_or_default(),
                    partitions: &[],
                };
                rest.add_to_nodes(totals);
                execution.add_called(first, totals);
            }
            Batch::Explained(..) | Batch::Late(..) => {}
            Batch::Sum(_, nodes, _) => {
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
    use crate::histogram::Histogram;
    use crate::model::{NodeStats, Outside, Run, sample};
    use crate::waits::plan::{EventWaits, PlanWaits, RunWaits};

    fn run(at: i64, elapsed_ms: f64) -> Run {
        Run {
            elapsed_ms,
            before_ms: 3.0,
            at,
            ..sample::run()
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
        let mut waits = RunWaits::default();
        waits.add(EventWaits {
            node: 1,
            event: 7,
            waits: 2,
            ns: 10,
            max_ns: 6,
        });
        let outside = Outside {
            sums: StatementSums {
                rows: 7,
                ..StatementSums::default()
            },
            waits: Some(&waits),
            called: &[],
        };
        let runs = [run(5, 2.0), run(7, 4.0)];
        let stats = [nodes([1, 2, 3]), nodes([10, 20, 30])];
        let mut plan = PlanStats::default();
        let mut totals = [NodeTotals::default(); 3];
        for (run, nodes) in runs.iter().zip(&stats) {
            let batch = Batch::Execution(ExecutionStats {
                run,
                outside: Some(&outside),
                nodes,
                histograms: &histograms,
                partitions: &[],
            });
            assert_eq!(
                (batch.node_count(), batch.executions(), batch.last_seen_at()),
                (3, 1, run.at)
            );
            assert!(batch.add_to_plan(&mut plan));
            let (first, rest) = totals.split_at_mut(1);
            batch.add_to_nodes(true, 0, first);
            batch.add_to_nodes(true, 1, rest);
        }
        let sum = Batch::Sum(&plan, &totals, &[]);
        assert_eq!(
            (sum.node_count(), sum.executions(), sum.last_seen_at()),
            (3, 2, 7)
        );
        let mut plan_of_sum = PlanStats::default();
        let mut totals_of_sum = [NodeTotals::default(); 3];
        let newer = sum.add_to_plan(&mut plan_of_sum);
        assert!(newer);
        let (first, rest) = totals_of_sum.split_at_mut(2);
        sum.add_to_nodes(newer, 0, first);
        sum.add_to_nodes(newer, 2, rest);
        assert_eq!((plan_of_sum.times.calls, plan_of_sum.times.total_ms), (2, 6.0));
        assert_eq!(plan_of_sum.durations, plan.durations);
        let waits_of = |plan: &PlanStats| plan.waits.events().map(|w| w.ns).sum::<u64>();
        assert_eq!(waits_of(&plan_of_sum), 20);
        Batch::Late(Late::Waits(&PlanWaits::of(&waits)), 7, 3).add_to_plan(&mut plan_of_sum);
        assert_eq!(waits_of(&plan_of_sum), 30);
        let committed = Run {
            commit_ms: 50.0,
            ..runs[1]
        };
        Batch::Late(Late::Commit(&committed), 7, 3).add_to_plan(&mut plan_of_sum);
        assert_eq!((plan_of_sum.before_ms, plan_of_sum.commit_ms), (6.0, 50.0));
        assert_eq!(
            (plan_of_sum.response_ms(), plan_of_sum.max_response_ms),
            (62.0, 57.0)
        );
        assert_eq!(
            StatementSums::of(&plan_of_sum, totals_of_sum.first()).rows,
            7 + 7 + 11
        );
        assert_eq!((plan_of_sum.first_seen_at, plan_of_sum.last_seen_at), (5, 7));
        let rows = |totals: &[NodeTotals; 3]| totals.map(|node| (node.total.rows, node.last.rows));
        assert_eq!(rows(&totals), [(11, 10), (22, 20), (33, 30)]);
        assert_eq!(rows(&totals_of_sum), rows(&totals));
    }
}
