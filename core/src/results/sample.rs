//! The measurements of a statement and of each of its nodes.

use crate::model::facts::SimpleFacts;
use crate::model::{Buffers, Called, Estimate, Measured, NodeFacts, Wal};
use crate::reconcile::Edge;
use crate::sampler::{Config, EveryCall, NodeTimer};

/// Whether the wrappers or core measure a statement, and who needs the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The wrappers measure, and only this extension uses the results.
    RowsourceOnly,
    /// The wrappers measure, and the results are also exported to core's struct: EXPLAIN, auto_explain or a
    /// parallel leader reads it.
    AlsoForCore,
    /// Core measures everything itself: EXPLAIN ANALYZE while `pg_rowsource.explain` is off.
    CoreOnly,
}

/// The properties that all nodes of a statement share.
#[derive(Clone, Copy, Debug)]
pub struct StatementSample<'a> {
    /// Whether the wrappers or core measured.
    pub mode: Mode,
    /// Whether starts, buffers and WAL were measured.
    pub has_usage: bool,
    /// Whether times were measured.
    pub is_timed: bool,
    /// Whether core measured some of the nodes, or workers reported some.
    pub core_contributes: bool,
    /// Nanoseconds per tick.
    pub tick_ns: f64,
    /// The costs of the clock.
    pub config: &'a Config,
    /// Nanoseconds in all runs of the statement.
    pub elapsed_ns: f64,
}

/// A node's place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the parent, which is lower than the node's own; `None` at the root.
    pub parent: Option<usize>,
    /// How its time is contained in its parent's.
    pub edge: Edge,
    /// An expression runs it (InitPlan, CTE, subplan), not its parent as an input.
    pub by_expression: bool,
    /// EXPLAIN does not show it.
    pub hidden: bool,
}

impl Place {
    /// Returns the parent, if the node is an input of it.
    #[inline(always)]
    pub fn input_of(&self) -> Option<usize> {
        self.parent.filter(|_| !self.by_expression)
    }
}

/// The calls of a node's wrapper in this process.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are the large one, and none is kept"
)]
pub enum Calls {
    /// No call was timed.
    Untimed {
        /// Calls of a fused scan. The wrappers of other nodes count rows instead.
        calls: u64,
    },
    /// Some calls were timed.
    Sampled(NodeTimer),
    /// Every call was timed.
    Every(EveryCall),
}

impl Calls {
    /// Returns how many calls there were.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        match self {
            Calls::Untimed { calls } => *calls,
            Calls::Every(every) => every.calls,
            Calls::Sampled(timer) => timer.calls(),
        }
    }

    /// Returns the numbers of timed calls, of clock readings, and of readings smaller than the one before.
    #[inline(always)]
    pub fn timer_counts(&self) -> (u64, u64, u64) {
        match self {
            Calls::Untimed { .. } => (0, 0, 0),
            Calls::Sampled(timer) => (timer.timed_calls, timer.timer_calls(), timer.clock_backsteps),
            Calls::Every(every) => (every.calls, 2 * every.calls, every.clock_backsteps),
        }
    }
}

/// Which calls of a node were timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimedCalls {
    /// No call was to be timed.
    None,
    /// The sampler has left out none: their ticks, their ticks to the first row of each start, and their
    /// number.
    All((f64, f64, u64)),
    /// The sampler has left out some, or the clock went back.
    Some,
    /// Every call, without the sampler.
    Every,
}

impl TimedCalls {
    /// Returns which calls a sampler has timed.
    #[inline(always)]
    pub fn of(timer: &NodeTimer) -> TimedCalls {
        match timer.exact() {
            Some((ticks, startup_ticks)) if timer.clock_backsteps == 0 => {
                TimedCalls::All((ticks, startup_ticks, timer.timed_calls))
            }
            _ => TimedCalls::Some,
        }
    }
}

/// What may have been charged to a node besides hits of shared buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Used {
    /// It may have dirtied shared buffers, or written WAL.
    pub has_changes: bool,
    /// It may have done more: read or written blocks, used local buffers, or called a nested statement.
    pub has_more: bool,
}

/// The measurements of one node, without those that core made itself. Sizes are in kB.
#[derive(Clone, Copy, Debug)]
pub struct NodeSample {
    /// Where it hangs in the plan.
    pub place: Place,
    /// Whether core has instrumentation for it. Without it, the other fields are not valid.
    pub is_instrumented: bool,
    /// Only core measures it, because its calls do not go through a wrapper.
    pub by_core: bool,
    /// The number of processes that run its inputs: workers and leader below a Gather, else 1.
    pub processes: f64,
    /// Finished starts, as core counted them, including those that workers reported.
    pub loops: f64,
    /// Whether a start is in progress.
    pub is_running: bool,
    /// Rows that the wrapper counted.
    pub rows: u64,
    /// Rows that core counted in its own calls.
    pub core_rows: f64,
    /// Whether its caller reads each start to its end, and its wrapper counts calls instead of rows.
    pub counts_calls: bool,
    /// Its caller has stopped before the end: the last call of the start in progress returned a row. It
    /// matters only if the wrapper counts calls.
    pub is_last_row: bool,
    /// An error ended the statement inside a call of this node, this many ticks after the call began.
    pub interrupted: Option<u64>,
    /// Its calls.
    pub calls: Calls,
    /// What was charged to it alone besides hits of shared buffers.
    pub used: Used,
    /// Blocks that were charged to it, and to the InitPlans and subplans that it called.
    pub buffers: Buffers,
    /// WAL, likewise.
    pub wal: Wal,
    /// How many nanoseconds the node itself waited in this process.
    pub waited_ns: u64,
    /// The planner's estimate of its rows.
    pub estimate: Estimate,
}

/// What parallel workers reported for a node in addition to core's instrumentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerReport {
    /// The standard error of their time.
    pub error_ns: f64,
    /// The number of calls that they timed.
    pub timed_calls: u64,
    /// The number of their clock readings.
    pub timer_calls: u64,
    /// The number of readings smaller than the one before.
    pub clock_backsteps: u64,
    /// What the InitPlans and subplans used that it called there.
    pub called: Called,
}

/// What core timed and counted in its own calls of a node, and what parallel workers reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreSample {
    /// An error ended the statement inside a call that core timed.
    pub is_interrupted: bool,
    /// Time, including that of an interrupted call.
    pub total_ns: f64,
    /// Time to the first row of each start.
    pub startup_ns: f64,
    /// Blocks, if core counted them.
    pub buffers: Measured<Buffers>,
    /// WAL, if core counted it.
    pub wal: Measured<Wal>,
    /// Starts that workers reported.
    pub worker_loops: f64,
    /// The other values that workers reported.
    pub workers: WorkerReport,
}

impl NodeSample {
    /// Returns how often the node was started in all processes, including the start in progress.
    #[inline(always)]
    pub fn starts(&self, core: Option<&CoreSample>) -> f64 {
        let interrupted = self.interrupted.is_some() || core.is_some_and(|core| core.is_interrupted);
        self.loops + f64::from(u8::from(self.is_running || interrupted))
    }

    /// Returns how often the node was started in this process.
    #[inline(always)]
    pub fn own_starts(&self, core: Option<&CoreSample>) -> f64 {
        let by_workers = core.map_or(0.0, |core| core.worker_loops);
        (self.starts(core) - by_workers).max(0.0)
    }

    /// Returns whether the node may have been stopped before its last row. It was not if a call of each start
    /// returned no row.
    pub fn may_be_unfinished(&self) -> bool {
        let starts = self.starts(None);
        if starts == 0.0 || self.counts_calls {
            return self.is_last_row;
        }
        let ended = match self.calls {
            Calls::Untimed { .. } => 0,
            _ => self.calls.count().saturating_sub(self.rows),
        };
        (ended as i64 as f64) < starts
    }

    /// Returns how many rows the node returned, as counted by the wrapper and by core.
    #[inline(always)]
    pub fn rows(&self, core: Option<&CoreSample>) -> u64 {
        if !self.counts_calls && self.core_rows == 0.0 {
            return (self.rows as i64).max(0) as u64;
        }
        let wrapped = if self.counts_calls {
            let is_unended = self.is_last_row && self.is_running && self.interrupted.is_none();
            // The last call of each other start returned no row or was interrupted.
            self.calls.count() as f64 - self.own_starts(core) + f64::from(u8::from(is_unended))
        } else {
            self.rows as i64 as f64
        };
        (wrapped.max(0.0) + self.core_rows) as i64 as u64
    }
}

/// The measurements of a node that core does not measure, that nothing interrupted, and that did nothing but
/// hit and change shared buffers.
#[derive(Clone, Copy, Debug)]
pub struct SimpleSample {
    /// How often it was started, including the start in progress.
    pub starts: u64,
    /// How many rows it returned.
    pub rows: u64,
    /// Its timed calls.
    pub timed: TimedCalls,
    /// How many shared buffers it found in memory.
    pub shared_hit: i64,
    /// It may have dirtied shared buffers, or written WAL.
    pub has_changes: bool,
    /// The planner's estimate of its rows.
    pub estimate: Estimate,
}

impl SimpleSample {
    /// Returns these measurements, if they are all.
    fn of(sample: &NodeSample) -> Option<SimpleSample> {
        let is_simple = sample.is_instrumented
            && !sample.by_core
            && sample.interrupted.is_none()
            && !sample.used.has_more;
        is_simple.then(|| SimpleSample {
            starts: sample.starts(None) as i64 as u64,
            rows: sample.rows(None),
            timed: match &sample.calls {
                Calls::Untimed { .. } => TimedCalls::None,
                Calls::Sampled(timer) => TimedCalls::of(timer),
                Calls::Every(_) => TimedCalls::Every,
            },
            shared_hit: sample.buffers.shared_hit,
            has_changes: sample.used.has_changes,
            estimate: sample.estimate,
        })
    }
}

/// The node that calls an InitPlan or a subplan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It was not called in this process, or its calls are not seen.
    Unknown,
    /// A node of the statement.
    Node(usize),
    /// The statement itself: it completes a modifying CTE after all other nodes.
    Outside,
}

/// A node that called a subplan before another one did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlierCaller {
    /// The subplan's top.
    pub subplan: usize,
    /// The node.
    pub caller: usize,
    /// Ticks of these calls.
    pub ticks: f64,
}

/// The nodes of a statement that has ended, in the order of EXPLAIN: a parent before its children.
pub trait Nodes {
    /// Returns the number of nodes.
    fn count(&self) -> usize;
    /// Returns a node's place in the plan.
    fn place(&self, i: usize) -> Place;
    /// Returns the measurements of a node.
    fn sample(&self, i: usize) -> NodeSample;
    /// Returns the part of a node's blocks and WAL that is of InitPlans and subplans that it called. Zero
    /// unless its sample says that it used more than hits.
    fn called(&self, i: usize) -> Called;
    /// Returns which node made the last call of an InitPlan or a subplan.
    fn last_caller(&self, i: usize) -> Caller;
    /// Returns in which nodes InitPlans and subplans ran before another node called them, and how many ticks.
    fn earlier_callers(&self) -> impl Iterator<Item = EarlierCaller>;
    /// Returns whether a node is an input of another extension's node, which may run it without calling its
    /// wrapper.
    fn may_be_bypassed(&self, i: usize) -> bool;
    /// Returns whether a node without inputs, whose wrapper was not called, may have run all the same: false
    /// only if its state tells that it has not.
    fn may_have_run(&self, i: usize) -> bool;
    /// Returns the measurements of a node of which there are few, or `None` if there are more.
    fn simple(&self, i: usize) -> Option<SimpleSample> {
        SimpleSample::of(&self.sample(i))
    }
    /// Returns how many shared blocks a node dirtied, and its WAL.
    fn changes(&self, i: usize) -> (i64, Wal) {
        let sample = self.sample(i);
        (sample.buffers.shared_dirtied, sample.wal)
    }
    /// Returns what PostgreSQL knows of a node that has instrumentation. It is not part of the sample,
    /// because it is large, and is written once to where it stays.
    fn facts(&self, i: usize) -> NodeFacts;
    /// Returns the same, if all of it is in a few sums.
    fn simple_facts(&self, i: usize) -> Option<SimpleFacts> {
        self.facts(i).simple()
    }
    /// Returns what core and workers contributed. Called only if they did.
    fn core(&self, i: usize) -> CoreSample;
}
