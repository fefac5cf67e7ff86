//! What the lines of one statement add up to.

use super::super::event::{Call, Phase, Stat, Wait};
use super::executions::Executions;
use super::objects::Objects;
use super::waits::{self, Waits};

/// The calls of one phase. Times are microseconds. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// How many there were.
    pub count: Option<u64>,
    /// Processor time.
    pub cpu_us: Option<u64>,
    /// Elapsed time.
    pub elapsed_us: Option<u64>,
    /// Blocks read.
    pub reads: Option<u64>,
    /// Blocks got from the buffers.
    pub gets: Option<u64>,
    /// Blocks dirtied.
    pub dirtied: Option<u64>,
    /// Rows.
    pub rows: Option<u64>,
    /// The time before these calls that no line accounts for.
    pub before_us: Option<u64>,
    /// How many ended with an error.
    pub failed: u64,
}

impl Default for Sums {
    /// Returns the sums of no calls.
    fn default() -> Self {
        Sums {
            count: Some(0),
            cpu_us: Some(0),
            elapsed_us: Some(0),
            reads: Some(0),
            gets: Some(0),
            dirtied: Some(0),
            rows: Some(0),
            before_us: Some(0),
            failed: 0,
        }
    }
}

impl Sums {
    /// Nothing is known of the calls.
    pub const UNKNOWN: Sums = Sums {
        count: None,
        cpu_us: None,
        elapsed_us: None,
        reads: None,
        gets: None,
        dirtied: None,
        rows: None,
        before_us: None,
        failed: 0,
    };

    /// Adds a call, and the time before it that no line accounts for.
    pub(super) fn add_call(&mut self, call: &Call, before_us: u64) {
        let known = call.elapsed_us.map(|elapsed_us| Sums {
            count: None,
            cpu_us: Some(call.cpu_us),
            elapsed_us: Some(elapsed_us),
            reads: Some(call.reads),
            gets: Some(call.gets),
            dirtied: Some(call.dirtied),
            rows: Some(call.rows),
            before_us: None,
            failed: 0,
        });
        // Of a call without a time, nothing else is known either. The zeros of no calls are none of its
        // figures.
        if known.is_none() && self.count == Some(0) {
            *self = Sums {
                count: self.count,
                before_us: self.before_us,
                ..Sums::UNKNOWN
            };
        }
        self.add(&known.unwrap_or(Sums::UNKNOWN));
        self.add(&Sums {
            count: Some(1),
            before_us: Some(before_us),
            failed: u64::from(call.has_failed),
            ..Sums::UNKNOWN
        });
    }

    /// Adds the calls of another statement. No sum overflows, whatever a file contains.
    pub fn add(&mut self, other: &Sums) {
        add_known(&mut self.count, other.count);
        add_known(&mut self.cpu_us, other.cpu_us);
        add_known(&mut self.elapsed_us, other.elapsed_us);
        add_known(&mut self.reads, other.reads);
        add_known(&mut self.gets, other.gets);
        add_known(&mut self.dirtied, other.dirtied);
        add_known(&mut self.rows, other.rows);
        add_known(&mut self.before_us, other.before_us);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

/// The calls of all phases.
pub type Calls = [Sums; Phase::ALL.len()];

/// A node of a plan over all executions.
#[derive(Clone, Debug, Default)]
pub struct RowSource {
    /// One execution, which also has what does not change: the first one in the files, or the last one in the
    /// store.
    pub single: Stat,
    /// How far it is below the root.
    pub depth: usize,
    /// The number of executions.
    pub executions: u64,
    /// How many of them counted starts and blocks. The others counted rows only.
    pub counted: u64,
    /// How many of them were timed.
    pub timed: u64,
    /// The sum of the rows.
    pub rows: u64,
    /// The most rows of an execution.
    pub max_rows: Option<u64>,
    /// The sums over all executions that counted them: blocks got from the buffers.
    pub gets: Option<u64>,
    /// Blocks read.
    pub reads: Option<u64>,
    /// Blocks written.
    pub writes: Option<u64>,
    /// Microseconds.
    pub time_us: Option<u64>,
    /// Starts.
    pub starts: Option<u64>,
}

/// A plan of a statement.
#[derive(Clone, Debug, Default)]
pub struct PlanSums {
    /// Its id; `None` if the user may not see it.
    pub id: Option<i64>,
    /// How often it was executed.
    pub executions: u64,
    /// How often EXPLAIN (ANALYZE) executed it besides, which is not in the sums.
    pub explained: u64,
    /// Its nodes.
    pub nodes: Vec<RowSource>,
}

impl PlanSums {
    /// Returns in how many executions starts and blocks were counted.
    pub fn counted(&self) -> u64 {
        self.nodes.first().map_or(0, |root| root.counted)
    }
}

/// The most nodes of a plan, and the most plans of a statement, that are added up.
const MAX_NODES: usize = 1_000;
pub(super) const MAX_PLANS: usize = 20;

/// A statement. What is not known is `None`.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    /// Its queryid.
    pub queryid: Option<i64>,
    /// The OID of its user.
    pub uid: Option<u64>,
    /// The OID of its database.
    pub datid: Option<u64>,
    /// Whether other statements called it.
    pub is_recursive: bool,
    /// In how many calls it ran when it was first seen.
    pub dep: Option<u64>,
    /// Its text.
    pub sql: String,
    /// Its calls.
    pub calls: Calls,
    /// Its plans.
    pub plans: Vec<PlanSums>,
    /// How many more plans it has.
    pub more_plans: usize,
    /// Its waits.
    pub waits: Waits,
    /// The same by their objects.
    pub objects: Objects,
    /// The elapsed times of its executions.
    pub executions: Executions,
}

/// Adds a number, if it is known. No sum overflows.
fn add_known(sum: &mut Option<u64>, number: Option<u64>) {
    if let Some(number) = number {
        *sum = Some(sum.unwrap_or(0).saturating_add(number));
    }
}

impl Statement {
    /// Adds a call, and the time before it that no line accounts for.
    pub fn add_call(&mut self, phase: Phase, call: &Call, before_us: u64) {
        self.calls[phase as usize].add_call(call, before_us);
    }

    /// Adds a wait. Returns how many bytes more are kept.
    pub fn add_wait(&mut self, wait: &Wait) -> usize {
        waits::add(&mut self.waits, wait)
    }

    /// Adds what a node did in an execution. Returns how many bytes more are kept.
    pub fn add_stat(&mut self, stat: &Stat) -> usize {
        let known = self.plans.iter().position(|plan| plan.id == Some(stat.node.plan));
        let place = known.unwrap_or(self.plans.len());
        if place >= MAX_PLANS {
            return 0;
        }
        if known.is_none() {
            self.plans.push(PlanSums {
                id: Some(stat.node.plan),
                ..PlanSums::default()
            });
        }
        let mut kept = 0;
        let plan = &mut self.plans[place];
        let nodes = &mut plan.nodes;
        let at = match nodes.iter().position(|node| node.single.id == stat.id) {
            Some(at) => at,
            None if nodes.len() >= MAX_NODES => return 0,
            None => {
                let parent = nodes.iter().find(|node| Some(node.single.id) == stat.node.parent);
                let depth = parent.map_or(0, |parent| parent.depth + 1);
                kept = stat.node.operation.len() + size_of::<RowSource>();
                nodes.push(RowSource {
                    single: stat.clone(),
                    depth,
                    ..RowSource::default()
                });
                nodes.len() - 1
            }
        };
        let node = &mut nodes[at];
        node.executions += 1;
        node.counted += u64::from(stat.starts.is_some());
        node.timed += u64::from(stat.time_us.is_some());
        node.rows = node.rows.saturating_add(stat.rows);
        node.max_rows = node.max_rows.max(Some(stat.rows));
        add_known(&mut node.gets, stat.gets);
        add_known(&mut node.reads, stat.reads);
        add_known(&mut node.writes, stat.writes);
        add_known(&mut node.time_us, stat.time_us);
        add_known(&mut node.starts, stat.starts);
        plan.executions = nodes.first().map_or(0, |root| root.executions);
        kept
    }

    /// Returns the sum of all phases.
    pub fn total(&self) -> Sums {
        total(&self.calls)
    }
}

/// Returns the sum of all phases.
pub fn total(calls: &Calls) -> Sums {
    let mut total = Sums::UNKNOWN;
    calls.iter().for_each(|sums| total.add(sums));
    total
}
