//! What was measured of a statement and of each of its nodes, in plain numbers.

use crate::model::{Buffers, Measured, Wal};
use crate::reconcile::Edge;
use crate::sampler::{Config, NodeTimer};

/// Who measures a statement, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The wrappers measure, for this extension only.
    RowsourceOnly,
    /// The wrappers measure, and the results are also exported to core's struct: EXPLAIN, auto_explain or a parallel
    /// leader reads it.
    AlsoForCore,
    /// Core measures everything itself: EXPLAIN ANALYZE while `pg_rowsource.explain` is off.
    CoreOnly,
}

/// What holds for all nodes of a statement.
#[derive(Clone, Copy, Debug)]
pub struct StatementSample<'a> {
    /// Who measured.
    pub mode: Mode,
    /// Whether starts, buffers and WAL were measured.
    pub has_usage: bool,
    /// Whether times were measured.
    pub is_timed: bool,
    /// Whether core measured some of the nodes, or workers reported some.
    pub core_contributes: bool,
    /// Nanoseconds of a tick.
    pub tick_ns: f64,
    /// What the clock costs.
    pub config: &'a Config,
    /// Nanoseconds in all runs of the statement.
    pub elapsed_ns: f64,
}

/// Where a node hangs in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the parent, which is lower than the node's own; `None` at the root.
    pub parent: Option<usize>,
    /// How its time lies in its parent's.
    pub edge: Edge,
    /// Run by an expression (InitPlan, CTE, subplan), not by its parent as an input.
    pub by_expression: bool,
    /// Not shown by EXPLAIN.
    pub hidden: bool,
}

impl Place {
    /// Returns the parent, if the node is an input of it.
    #[inline(always)]
    pub fn input_of(&self) -> Option<usize> {
        self.parent.filter(|_| !self.by_expression)
    }
}

/// The calls that a node's wrapper saw in this process.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    /// None was timed.
    Untimed {
        /// Calls of a fused scan. The wrappers of other nodes count rows instead.
        calls: u64,
    },
    /// Some were timed.
    Sampled(NodeTimer),
    /// Every call was timed.
    Every {
        /// All calls.
        calls: u64,
        /// Their time.
        ticks: u64,
        /// The time to the first row of each start.
        startup_ticks: u64,
        /// Readings smaller than the one before them.
        clock_backsteps: u64,
    },
}

impl Calls {
    /// Returns how many calls there were.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        match self {
            Calls::Untimed { calls } | Calls::Every { calls, .. } => *calls,
            Calls::Sampled(timer) => timer.calls(),
        }
    }

    /// Returns timed calls, clock readings, and readings smaller than the one before them.
    #[inline(always)]
    pub fn timer_counts(&self) -> (u64, u64, u64) {
        match self {
            Calls::Untimed { .. } => (0, 0, 0),
            Calls::Sampled(timer) => (timer.timed_calls, timer.timer_calls, timer.clock_backsteps),
            Calls::Every {
                calls,
                clock_backsteps,
                ..
            } => (*calls, 2 * calls, *clock_backsteps),
        }
    }
}

/// What is known of one node, besides what core timed and counted by itself. Sizes are in kB.
#[derive(Clone, Copy, Debug)]
pub struct NodeSample {
    /// Where it hangs in the plan.
    pub place: Place,
    /// Whether core has instrumentation for it. The rest means nothing without.
    pub is_instrumented: bool,
    /// The processes that run its inputs: workers and leader below a Gather, else 1.
    pub processes: f64,
    /// Finished starts, by core's count; those that workers reported are included.
    pub loops: f64,
    /// Whether a start is in progress.
    pub is_running: bool,
    /// Rows that the wrapper counted.
    pub rows: u64,
    /// Rows that core counted in its own calls.
    pub core_rows: f64,
    /// Whether its wrapper sees only the beginnings of calls, and so counts calls instead of rows: a scan that an
    /// aggregate reads to its end.
    pub is_fused_scan: bool,
    /// An error ended the statement inside a call of this node, this many ticks after the call began.
    pub interrupted: Option<u64>,
    /// Its calls.
    pub calls: Calls,
    /// Blocks that were charged to it alone.
    pub buffers: Buffers,
    /// WAL that was charged to it alone.
    pub wal: Wal,
    /// Peak working memory, where PostgreSQL knows it.
    pub memory_kb: Option<u64>,
    /// Peak disk space, where PostgreSQL knows it.
    pub disk_kb: Option<u64>,
}

/// What parallel workers reported for a node, beyond what core adds up by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerReport {
    /// The standard error of their time.
    pub error_ns: f64,
    /// Calls whose time they took.
    pub timed_calls: u64,
    /// Their clock readings.
    pub timer_calls: u64,
    /// Readings smaller than the one before them.
    pub clock_backsteps: u64,
}

/// What core timed and counted in its own calls of a node, and what came from parallel workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreSample {
    /// Only core measures the node: it is called by other ways than its wrapper.
    pub alone: bool,
    /// An error ended the statement inside a call that core timed.
    pub is_interrupted: bool,
    /// Time, that of an interrupted call included.
    pub total_ns: f64,
    /// Time to the first row of each start.
    pub startup_ns: f64,
    /// Blocks, where core counted them.
    pub buffers: Measured<Buffers>,
    /// WAL, where core counted it.
    pub wal: Measured<Wal>,
    /// Blocks that wrappers below charged while core measured this node, so that both counted them.
    pub charged_below: Buffers,
    /// WAL, likewise.
    pub wal_charged_below: Wal,
    /// Starts that workers reported.
    pub worker_loops: f64,
    /// What else they reported.
    pub workers: WorkerReport,
}

impl NodeSample {
    /// Returns how often the node was started in all processes, the start in progress included.
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

    /// Returns how many rows the node returned, by the wrapper's count and by core's.
    #[inline(always)]
    pub fn rows(&self, core: Option<&CoreSample>) -> f64 {
        let ends_seen = !self.is_fused_scan || matches!(self.calls, Calls::Every { .. });
        let wrapped = if ends_seen {
            self.rows as i64 as f64
        } else {
            // Each start ended with a call that brought no row, or was interrupted in one.
            self.calls.count() as f64 - self.own_starts(core)
        };
        wrapped.max(0.0) + self.core_rows
    }
}

/// The nodes of a statement that has ended, in the order of EXPLAIN: a parent before its children.
pub trait Nodes {
    /// Returns how many there are.
    fn count(&self) -> usize;
    /// Returns where a node hangs in the plan.
    fn place(&self, i: usize) -> Place;
    /// Returns what is known of a node.
    fn sample(&self, i: usize) -> NodeSample;
    /// Returns what core and workers contributed. Asked only where they did.
    fn core(&self, i: usize) -> CoreSample;
}
