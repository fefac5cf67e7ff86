//! A plan, and the statistics of its executions.

use super::busy::Busy;
use super::description::PlanDescription;
use super::durations::Durations;
use super::execution::{Late, Outcome, PlanOrigin, Planning, Run, Times};
use super::exemplar::{Exemplars, KeepLimit};
use super::key::PlanKey;
use super::node::{NodeStats, NodeTotals};
use super::parameters::Sent;
use super::partitions::{ListedPartition, PartitionSum, merge};
use super::statement_facts::{Outside, StatementFacts, StatementSums};
use crate::clock::Source;
use crate::float::at_least;
use crate::histogram::Histogram;
use crate::waits::plan::PlanWaits;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The maximum number of nodes. Larger plans are not stored, and their conditions are not described.
pub const MAX_NODES: usize = 1_000;

/// The statistics of a plan as a whole, over all its executions.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PlanStats {
    /// The number of executions and their times.
    pub times: Times,
    /// What the planner did for it.
    pub planning: Planning,
    /// The number of executions that an error ended.
    pub failed_calls: u64,
    /// The number of executions that a cancel request or a timeout ended.
    pub cancelled_calls: u64,
    /// The number of executions whose caller did not read all rows.
    pub unfinished_calls: u64,
    /// The number of executions by EXPLAIN (ANALYZE). Nothing else here includes them.
    pub explain_calls: u64,
    /// The number of executions with a plan that the plan cache made for all parameters.
    pub generic_plan_calls: u64,
    /// The number of executions with a plan that the plan cache made for their parameters.
    pub custom_plan_calls: u64,
    /// The queryid of the statement that called the last execution; 0 if there is none, or if it is not
    /// known.
    pub caller: i64,
    /// The time of the last execution, in milliseconds.
    pub last_ms: f64,
    /// Milliseconds before the executor ran, in the executions that clients sent: for the parser, the planner
    /// and locks.
    pub before_ms: f64,
    /// Milliseconds from the end of the executions to that of their transactions.
    pub commit_ms: f64,
    /// The milliseconds that a client waited longest for an execution.
    pub max_response_ms: f64,
    /// How the last execution ended.
    pub last_outcome: Outcome,
    /// Whether the caller of the last execution did not read all rows.
    pub last_unfinished: bool,
    /// The sampling frequency of the last execution.
    pub sampfreq: i32,
    /// The clock of the last execution; `None` is PostgreSQL's own.
    pub clock: Option<Source>,
    /// When the first execution ended, in microseconds since 2000-01-01 UTC.
    pub first_seen_at: i64,
    /// When the last execution ended, in the same unit.
    pub last_seen_at: i64,
    /// How long the executions took.
    pub durations: Durations,
    /// What the executions did outside of their nodes.
    pub outside: StatementSums,
    /// The waits of the executions, in their nodes and outside of them.
    pub waits: PlanWaits,
    /// What is known of their busy time.
    pub busy: Busy,
}

impl PlanStats {
    /// Adds an execution.
    #[inline(always)]
    pub fn add(&mut self, run: &Run) {
        if self.times.calls == 0 {
            self.first_seen_at = run.at;
        }
        self.times.add(run.elapsed_ms);
        self.durations.add(run.elapsed_ms);
        self.planning.add(&run.planning);
        // Most executions have run to their end.
        if run.outcome != Outcome::Completed || run.unfinished {
            self.count_incomplete(run);
        }
        match run.origin {
            PlanOrigin::Other => {}
            PlanOrigin::Generic => self.generic_plan_calls += 1,
            PlanOrigin::Custom => self.custom_plan_calls += 1,
        }
        self.outside.rows += run.changed_rows;
        self.caller = run.caller;
        self.last_ms = run.elapsed_ms;
        self.before_ms += run.before_ms;
        self.max_response_ms = at_least(run.response_ms(), self.max_response_ms);
        self.last_outcome = run.outcome;
        self.last_unfinished = run.unfinished;
        self.sampfreq = run.sampfreq;
        self.clock = run.clock;
        self.last_seen_at = run.at;
    }

    #[cold]
    #[inline(never)]
    fn count_incomplete(&mut self, run: &Run) {
        self.failed_calls += u64::from(run.outcome == Outcome::Failed);
        self.cancelled_calls += u64::from(run.outcome == Outcome::Cancelled);
        self.unfinished_calls += u64::from(run.unfinished);
        if run.outcome != Outcome::Completed {
            self.busy.failed_ms += run.elapsed_ms;
        }
    }

    /// Adds what an execution, which was just added, did outside of its nodes, and its waits. Most executions
    /// have neither.
    #[cold]
    #[inline(never)]
    pub fn add_outside(&mut self, run: &Run, outside: &Outside<'_>) {
        self.outside += &outside.sums;
        if let Some(waits) = outside.waits {
            self.waits.merge(waits);
            self.busy.add_waits(run, waits, &self.times);
        }
    }

    /// Returns executions of a session as they pass to the store.
    pub fn for_store(&self) -> PlanStats {
        PlanStats {
            busy: self.busy.with_squares(&self.times, &self.durations),
            ..*self
        }
    }

    /// Adds what came after the end of an execution that was added before.
    #[inline(always)]
    pub fn add_late(&mut self, late: Late<'_>) {
        match late {
            Late::Waits(waits) => self.waits.merge(waits),
            Late::Commit(run) => {
                self.commit_ms += run.commit_ms;
                self.max_response_ms = at_least(run.response_ms(), self.max_response_ms);
            }
        }
    }

    /// Returns the milliseconds that clients waited for the executions.
    pub fn response_ms(&self) -> f64 {
        self.before_ms + self.times.total_ms + self.commit_ms
    }

    /// Counts an execution by EXPLAIN (ANALYZE).
    pub fn add_explained(&mut self, at: i64) {
        self.explain_calls += 1;
        if self.times.calls == 0 {
            self.first_seen_at = if self.first_seen_at == 0 {
                at
            } else {
                self.first_seen_at
            };
            self.last_seen_at = at;
        }
    }

    /// Returns the statistics with another execution in the place of the last one.
    pub fn with_last(self, run: &Run) -> Self {
        PlanStats {
            last_ms: run.elapsed_ms,
            last_seen_at: run.at,
            last_outcome: run.outcome,
            last_unfinished: run.unfinished,
            sampfreq: run.sampfreq,
            clock: run.clock,
            ..self
        }
    }

    /// Adds executions that were counted separately. Returns whether they include the last execution of all.
    pub fn merge(&mut self, other: &PlanStats) -> bool {
        // The pattern names all fields, so that none is forgotten.
        let PlanStats {
            times,
            planning,
            failed_calls,
            cancelled_calls,
            unfinished_calls,
            explain_calls,
            generic_plan_calls,
            custom_plan_calls,
            caller,
            last_ms,
            before_ms,
            commit_ms,
            max_response_ms,
            last_outcome,
            last_unfinished,
            sampfreq,
            clock,
            first_seen_at,
            last_seen_at,
            durations,
            outside,
            waits,
            busy,
        } = other;
        let first = self.times.calls == 0;
        let newer = first || *last_seen_at >= self.last_seen_at;
        self.times.merge(times);
        self.planning.add(planning);
        self.failed_calls += failed_calls;
        self.cancelled_calls += cancelled_calls;
        self.unfinished_calls += unfinished_calls;
        self.explain_calls += explain_calls;
        self.generic_plan_calls += generic_plan_calls;
        self.custom_plan_calls += custom_plan_calls;
        self.before_ms += before_ms;
        self.commit_ms += commit_ms;
        self.max_response_ms = self.max_response_ms.max(*max_response_ms);
        self.first_seen_at = if first {
            *first_seen_at
        } else {
            self.first_seen_at.min(*first_seen_at)
        };
        if newer {
            self.caller = *caller;
            self.last_ms = *last_ms;
            self.last_outcome = *last_outcome;
            self.last_unfinished = *last_unfinished;
            self.sampfreq = *sampfreq;
            self.clock = *clock;
            self.last_seen_at = *last_seen_at;
        }
        self.durations.merge(durations);
        self.outside += outside;
        self.waits.merge(waits);
        self.busy.merge(busy);
        newer
    }
}

impl StatementSums {
    /// Returns the sums of a plan, from its statistics and those of its root (`None` if it has no nodes). The
    /// root's blocks and WAL include those of all nodes below it, of InitPlans, and of parallel workers.
    pub fn of(plan: &PlanStats, root: Option<&NodeTotals>) -> Self {
        let mut sums = plan.outside;
        if let Some(root) = root {
            sums += &StatementSums {
                rows: root.total.rows,
                buffers: root.total.buffers,
                wal: root.total.wal,
                facts: StatementFacts::default(),
            };
        }
        sums
    }
}

/// The statistics of one execution: as a whole, and of each node.
#[derive(Clone, Copy)]
pub struct ExecutionStats<'a> {
    /// The execution as a whole.
    pub run: &'a Run,
    /// What it did outside of its nodes, and what it waited for, unless both are nothing.
    pub outside: Option<&'a Outside<'a>>,
    /// The statistics of the nodes, in EXPLAIN's order.
    pub nodes: &'a [NodeStats],
    /// For each node, how long its calls took.
    pub histograms: &'a [&'a Histogram],
    /// If the plan was folded: what its partitions did, ordered by their nodes.
    pub partitions: &'a [PartitionSum],
}

impl ExecutionStats<'_> {
    /// Adds the execution to the statistics of its plan as a whole.
    #[inline(always)]
    pub fn add_to_plan(&self, stats: &mut PlanStats) {
        stats.add(self.run);
        if let Some(outside) = self.outside {
            stats.add_outside(self.run, outside);
        }
    }

    /// Adds each node to the total with the same index.
    #[inline(always)]
    pub fn add_to_nodes(&self, totals: &mut [NodeTotals]) {
        let nodes = self.nodes.iter().zip(self.histograms);
        for (total, (node, histogram)) in totals.iter_mut().zip(nodes) {
            total.add(node, histogram);
        }
        self.add_called(0, totals);
    }

    /// Adds what the nodes from index `first` on called.
    #[inline(always)]
    pub fn add_called(&self, first: usize, totals: &mut [NodeTotals]) {
        if let Some(outside) = self.outside {
            for (i, called) in outside.called {
                if let Some(total) = i.checked_sub(first).and_then(|i| totals.get_mut(i)) {
                    total.called += *called;
                }
            }
        }
    }
}

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    /// Identifies the plan.
    pub key: PlanKey,
    /// The statement's text, and the plan's nodes.
    pub description: Rc<PlanDescription>,
    /// The description of the folded plan, if `description` has each partition by itself, but `nodes` has
    /// not.
    pub folded: Option<Rc<PlanDescription>>,
    /// Whether the literals in the description come from an execution before the last one.
    pub older_literals: bool,
    /// Whether the text does too.
    pub older_text: bool,
    /// Whether the last execution, as it is shown, was one by EXPLAIN (ANALYZE).
    pub explained: bool,
    /// The statistics of all executions.
    pub statistics: PlanStats,
    /// The statistics of each node, in EXPLAIN's order.
    pub nodes: Vec<NodeTotals>,
    /// The executions that are kept whole.
    pub exemplars: Exemplars,
    /// The partitions of its folded nodes that took the longest, and free places.
    pub partitions: Vec<ListedPartition>,
    /// The waits of the execution that is shown as the last one, if they are known.
    pub last_waits: Option<PlanWaits>,
    /// The milliseconds before that execution, and those of its commit, if they are known.
    pub around_ms: Option<[f64; 2]>,
}

impl Plan {
    /// Makes a plan without executions.
    pub fn new(key: PlanKey, description: Rc<PlanDescription>) -> Self {
        Plan {
            key,
            description,
            folded: None,
            older_literals: false,
            older_text: false,
            explained: false,
            statistics: PlanStats::default(),
            nodes: Vec::new(),
            exemplars: Exemplars::default(),
            partitions: Vec::new(),
            last_waits: None,
            around_ms: None,
        }
    }

    /// Returns what all executions used as a whole.
    pub fn statement_sums(&self) -> StatementSums {
        StatementSums::of(&self.statistics, self.nodes.first())
    }

    /// Makes its sums those of one execution, which is in the place of the last one. `stats` are its nodes.
    pub fn become_one(&mut self, stats: &[NodeStats], is_generic: bool) {
        let mut times = Times::default();
        times.add(self.statistics.last_ms);
        self.statistics.times = times;
        self.statistics.generic_plan_calls = u64::from(is_generic);
        for (node, stats) in self.nodes.iter_mut().zip(stats) {
            node.clear();
            node.add(stats, &Histogram::default());
        }
    }

    /// Adds an execution. If there is no memory for its nodes, adds it only to the plan as a whole.
    pub fn add(&mut self, execution: &ExecutionStats<'_>) {
        execution.add_to_plan(&mut self.statistics);
        let (stats, histograms) = (execution.nodes, execution.histograms);
        let missing = stats.len().saturating_sub(self.nodes.len());
        if self.nodes.try_reserve(missing).is_ok() {
            self.nodes.resize_with(stats.len(), NodeTotals::default);
        }
        let stats = stats.iter().zip(histograms);
        for (node, (stats, histogram)) in self.nodes.iter_mut().zip(stats) {
            node.add(stats, histogram);
        }
        execution.add_called(0, &mut self.nodes);
        merge(&mut self.partitions, execution.partitions);
    }

    /// Keeps an execution whole, if it is the slowest one, failed or was cancelled. Returns whether it is
    /// kept.
    pub fn keep(&mut self, execution: &ExecutionStats<'_>, limit: &mut KeepLimit) -> bool {
        let run = execution.run;
        self.exemplars.wants(run)
            && limit.allows(run, self.exemplars.slowest_ms())
            && self
                .exemplars
                .keep(run, execution.outside, execution.nodes, Sent::default())
                .is_ok()
    }
}
