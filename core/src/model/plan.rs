//! A plan: its description, and the statistics of its executions.

use super::execution::{Outcome, Planning, Run, Times};
use super::key::PlanKey;
use super::node::{NodeStats, NodeTotals};
use crate::clock::Source;
use crate::histogram::Histogram;
use crate::plan::{ExplainedPlan, PlanNode};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::hash::Hasher;
use std::rc::Rc;

/// The maximum number of nodes. Larger plans are not stored, and their conditions are not described.
pub const MAX_NODES: usize = 1_000;

/// The description of a plan: the statement's text and the nodes. It is made once, and all executions share it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PlanDescription {
    /// The beginning of the statement's text.
    pub text: String,
    /// The length and the hash of the statement's text, which [`PlanDescription::is_of`] compares.
    identity: (usize, u64),
    /// The nodes in EXPLAIN's order.
    pub nodes: Vec<PlanNode>,
    /// Whether the description is the same for all parameters: it shows parameters (`$1`), or no conditions at all.
    pub generic: bool,
    /// How many texts (of the statement, constants, conditions, names) were cut because they are too long.
    pub cut: u32,
}

impl PlanDescription {
    /// Makes the description. [`PlanDescription::is_of`] compares the text `statement`; `shown` is the part of it that is
    /// stored.
    pub fn new(statement: &[u8], shown: String, is_cut: bool, plan: ExplainedPlan) -> Self {
        PlanDescription {
            text: shown,
            identity: identity(statement),
            generic: plan.generic,
            cut: u32::try_from(plan.cut + usize::from(is_cut)).unwrap_or(u32::MAX),
            nodes: plan.nodes,
        }
    }

    /// Returns whether at least one text was cut.
    pub fn is_truncated(&self) -> bool {
        self.cut > 0
    }

    /// Returns how many bytes the description takes.
    pub fn size(&self) -> usize {
        let node_size = |node: &PlanNode| {
            let labelled = node.predicates.iter().chain(&node.keys);
            size_of::<PlanNode>()
                + node.operation.len()
                + node.object_name.as_ref().map_or(0, String::len)
                + node.subplan_name.as_ref().map_or(0, String::len)
                + labelled
                    .map(|(label, text)| 48 + label.len() + text.len())
                    .sum::<usize>()
        };
        size_of::<Self>() + self.text.len() + self.nodes.iter().map(node_size).sum::<usize>()
    }

    /// Returns whether the description was made for this statement.
    #[inline(always)]
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }
}

/// Returns the length and a hash of a text. Each execution calls this.
#[inline(always)]
fn identity(text: &[u8]) -> (usize, u64) {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    (text.len(), hasher.finish())
}

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
    /// The time of the last execution, in milliseconds.
    pub last_ms: f64,
    /// How the last execution ended.
    pub last_outcome: Outcome,
    /// The sampling frequency of the last execution.
    pub sampfreq: i32,
    /// The clock of the last execution; `None` is PostgreSQL's own.
    pub clock: Option<Source>,
    /// When the first execution ended, in microseconds since 2000-01-01 UTC.
    pub first_seen: i64,
    /// When the last execution ended, in the same unit.
    pub last_seen: i64,
}

impl PlanStats {
    /// Adds an execution.
    #[inline(always)]
    pub fn add(&mut self, run: &Run) {
        if self.times.calls == 0 {
            self.first_seen = run.at;
        }
        self.times.add(run.elapsed_ms);
        self.planning.add(&run.planning);
        self.failed_calls += u64::from(run.outcome == Outcome::Failed);
        self.cancelled_calls += u64::from(run.outcome == Outcome::Cancelled);
        self.last_ms = run.elapsed_ms;
        self.last_outcome = run.outcome;
        self.sampfreq = run.sampfreq;
        self.clock = run.clock;
        self.last_seen = run.at;
    }

    /// Adds executions that were counted separately. Returns whether they include the last execution of all.
    pub fn merge(&mut self, other: &PlanStats) -> bool {
        let first = self.times.calls == 0;
        let newer = first || other.last_seen >= self.last_seen;
        let sum = PlanStats {
            failed_calls: self.failed_calls + other.failed_calls,
            cancelled_calls: self.cancelled_calls + other.cancelled_calls,
            first_seen: if first {
                other.first_seen
            } else {
                self.first_seen.min(other.first_seen)
            },
            ..if newer { *other } else { *self }
        };
        let (mut times, mut planning) = (self.times, self.planning);
        times.merge(&other.times);
        planning.add(&other.planning);
        *self = PlanStats {
            times,
            planning,
            ..sum
        };
        newer
    }
}

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    /// Identifies the plan.
    pub key: PlanKey,
    /// The statement's text, and the plan's nodes.
    pub description: Rc<PlanDescription>,
    /// Whether the literals in the description come from an execution before the last one.
    pub older_literals: bool,
    /// The statistics of all executions.
    pub statistics: PlanStats,
    /// The statistics of each node, in EXPLAIN's order.
    pub nodes: Vec<NodeTotals>,
}

impl Plan {
    /// Makes a plan without executions.
    pub fn new(key: PlanKey, description: Rc<PlanDescription>) -> Self {
        Plan {
            key,
            description,
            older_literals: false,
            statistics: PlanStats::default(),
            nodes: Vec::new(),
        }
    }

    /// Adds an execution. If there is no memory for its nodes, adds it only to the plan as a whole.
    pub fn add(&mut self, run: &Run, stats: &[NodeStats], histograms: &[&Histogram]) {
        self.statistics.add(run);
        let missing = stats.len().saturating_sub(self.nodes.len());
        if self.nodes.try_reserve(missing).is_ok() {
            self.nodes.resize_with(stats.len(), NodeTotals::default);
        }
        let stats = stats.iter().zip(histograms);
        for (node, (stats, histogram)) in self.nodes.iter_mut().zip(stats) {
            node.add(stats, histogram);
        }
    }
}
