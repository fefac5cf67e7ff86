//! What this session knows of its own statements: the plans it ran, and the figures of the last statement. With
//! `shared_preload_libraries` the totals are in the store that all sessions share (`pg::store`); without, they are
//! here.

use crate::guc;
use crate::pg::backend_local::BackendLocal;
use crate::pg::identity::PlanId;
use crate::pg::{memory, server, store};
use rowsource_core::figures::{NodeFigures, Outcome, Times};
use rowsource_core::histogram::Histogram;
use rowsource_core::plan::{ExplainedPlan, PlanNode};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hasher;
use std::rc::Rc;

/// Identifies a plan of a statement, as run by a user in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct PlanKey {
    pub queryid: i64,
    pub planid: i64,
    pub userid: u32,
    pub dbid: u32,
    /// Sent by a client, not by a function. As wide as it is so that the key has no padding.
    toplevel: u32,
    /// Tells plans apart that have another extension's number in common; else 0.
    shape: u32,
}

impl PlanKey {
    pub fn new(userid: u32, dbid: u32, queryid: i64, plan: PlanId, toplevel: bool) -> Self {
        PlanKey {
            queryid,
            planid: plan.number,
            userid,
            dbid,
            toplevel: u32::from(toplevel),
            shape: plan.shape,
        }
    }

    pub fn toplevel(&self) -> bool {
        self.toplevel != 0
    }

    /// Returns what tells plans with one planid apart; 0 where the planid is our own.
    pub fn shape(&self) -> u32 {
        self.shape
    }
}

/// What a plan is; made once, shared by all its executions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PlanDescription {
    /// The beginning of the statement's text.
    pub text: String,
    /// Length and hash of the text, as far as it is looked at.
    identity: (usize, u64),
    pub nodes: Vec<PlanNode>,
    /// It holds for all parameters: it is of a generic plan, or shows no literals.
    pub generic: bool,
    /// How many of its texts (the statement's, constants, conditions, names) were cut because they are too long.
    pub cut: u32,
}

impl PlanDescription {
    pub fn new(statement: &[u8], plan: ExplainedPlan) -> Self {
        let kept = server::first_bytes(statement, LONGEST_TEXT);
        let is_cut = kept.len() < statement.len();
        let mark = if is_cut { "..." } else { "" };
        // In one piece: a text that grows leaves holes in the heap.
        let text = [&server::from_database(kept), mark].concat();
        PlanDescription {
            text,
            identity: identity(statement),
            generic: plan.generic,
            cut: u32::try_from(plan.cut + usize::from(is_cut)).unwrap_or(u32::MAX),
            nodes: plan.nodes,
        }
    }

    /// Returns whether its text was cut.
    pub fn is_truncated(&self) -> bool {
        self.cut > 0
    }

    /// Returns the bytes that it keeps.
    fn size(&self) -> usize {
        let words = |node: &PlanNode| {
            let labelled = node.predicates.iter().chain(&node.keys);
            size_of::<PlanNode>()
                + node.operation.len()
                + node.object_name.as_ref().map_or(0, String::len)
                + node.subplan_name.as_ref().map_or(0, String::len)
                + labelled
                    .map(|(label, text)| 48 + label.len() + text.len())
                    .sum::<usize>()
        };
        size_of::<Self>() + self.text.len() + self.nodes.iter().map(words).sum::<usize>()
    }

    /// Returns whether this is the statement that it was made for.
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }
}

/// The plans that a session lists take this many bytes at most.
const MOST_BYTES: usize = 4 << 20;

/// Longer statement texts are cut: a plan's statistics must not hold megabytes.
const LONGEST_TEXT: usize = 16 * 1024;

/// Tells texts apart by the beginning of them that [`server::statement_text`] gives: it is asked at each execution.
#[inline(always)]
fn identity(text: &[u8]) -> (usize, u64) {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    (text.len(), hasher.finish())
}

/// The clock that an execution was timed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClockName {
    Tsc,
    #[default]
    System,
    Coarse,
    Syscall,
    /// Core's own, where EXPLAIN ANALYZE measured.
    Core,
}

impl ClockName {
    pub fn as_str(self) -> &'static str {
        match self {
            ClockName::Tsc => "tsc",
            ClockName::System => "system",
            ClockName::Coarse => "coarse",
            ClockName::Syscall => "syscall",
            ClockName::Core => "core",
        }
    }
}

/// What is known of an execution as a whole.
#[derive(Clone, Copy)]
pub struct Run {
    pub outcome: Outcome,
    pub sampfreq: i32,
    pub clock: ClockName,
    pub elapsed_ms: f64,
    /// When it ended, in microseconds since 2000-01-01 UTC.
    pub at: i64,
}

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub figures: &'a mut Vec<NodeFigures>,
    pub histograms: &'a [&'a Histogram],
    /// It becomes the session's last statement.
    pub last: bool,
}

/// The statistics of a plan as a whole. Times are microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PlanStatistics {
    pub times: Times,
    pub failed_calls: u64,
    pub cancelled_calls: u64,
    pub last_ms: f64,
    pub last_outcome: Outcome,
    pub sampfreq: i32,
    pub clock: ClockName,
    pub first_seen: i64,
    pub last_seen: i64,
}

impl PlanStatistics {
    #[inline(always)]
    pub fn add(&mut self, run: &Run) {
        if self.times.calls == 0 {
            self.first_seen = run.at;
        }
        self.times.add(run.elapsed_ms);
        self.failed_calls += u64::from(run.outcome == Outcome::Failed);
        self.cancelled_calls += u64::from(run.outcome == Outcome::Cancelled);
        self.last_ms = run.elapsed_ms;
        self.last_outcome = run.outcome;
        self.sampfreq = run.sampfreq;
        self.clock = run.clock;
        self.last_seen = run.at;
    }

    /// Adds executions counted apart; true where they are the more recent ones.
    pub fn merge(&mut self, other: &PlanStatistics) -> bool {
        let first = self.times.calls == 0;
        let newer = first || other.last_seen >= self.last_seen;
        let sum = PlanStatistics {
            failed_calls: self.failed_calls + other.failed_calls,
            cancelled_calls: self.cancelled_calls + other.cancelled_calls,
            first_seen: if first {
                other.first_seen
            } else {
                self.first_seen.min(other.first_seen)
            },
            ..if newer { *other } else { *self }
        };
        let mut times = self.times;
        times.merge(&other.times);
        *self = PlanStatistics { times, ..sum };
        newer
    }
}

/// The statistics of one node of a plan.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct NodeTotals {
    pub total: NodeFigures,
    pub last: NodeFigures,
    pub histogram: Histogram,
}

impl NodeTotals {
    /// Adds an execution.
    #[inline(always)]
    pub fn add(&mut self, figures: &NodeFigures, histogram: &Histogram) {
        self.total.add(figures);
        self.last = *figures;
        self.histogram.add(histogram);
    }

    /// Adds executions that were counted apart; `newer` where they are the more recent ones.
    pub fn merge(&mut self, other: &NodeTotals, newer: bool) {
        self.total.add(&other.total);
        if newer {
            self.last = other.last;
        }
        self.histogram.add(&other.histogram);
    }

    /// Forgets all executions.
    pub fn clear(&mut self) {
        self.total = NodeFigures::default();
        self.histogram.clear();
    }
}

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    pub older_literals: bool,
    pub statistics: PlanStatistics,
    pub nodes: Vec<NodeTotals>,
}

impl Plan {
    fn new(key: PlanKey, description: Rc<PlanDescription>) -> Self {
        Plan {
            key,
            description,
            older_literals: false,
            statistics: PlanStatistics::default(),
            nodes: Vec::new(),
        }
    }

    /// Adds an execution; without memory for its nodes, to the plan as a whole only.
    fn add(&mut self, execution: &Execution) {
        let nodes = execution.figures.len();
        self.statistics.add(&execution.run);
        if self
            .nodes
            .try_reserve(nodes.saturating_sub(self.nodes.len()))
            .is_ok()
        {
            self.nodes.resize_with(nodes, NodeTotals::default);
        }
        let figures = execution.figures.iter().zip(execution.histograms);
        for (node, (figures, histogram)) in self.nodes.iter_mut().zip(figures) {
            node.add(figures, histogram);
        }
        self.description.clone_from(execution.description);
        self.older_literals = execution.older_literals;
    }
}

/// A plan that the session has met. Its statements hold on to it, so that what they find at their start they need
/// not look for at their end.
pub struct KnownPlan {
    pub key: PlanKey,
    pub description: RefCell<Rc<PlanDescription>>,
    /// Its slot in the session's buffer of the shared store.
    pub slot: Cell<usize>,
    /// In the session's list.
    listed: Cell<bool>,
    /// The memory that the list counts for it.
    bytes: Cell<usize>,
    /// Orders plans by their last use.
    used: Cell<u64>,
    /// Its statistics, where no shared store has them.
    own: RefCell<Option<Box<Plan>>>,
}

impl KnownPlan {
    /// Adds to its own statistics.
    #[cold]
    fn add(&self, execution: &Execution) {
        self.own
            .borrow_mut()
            .get_or_insert_with(|| Box::new(Plan::new(self.key, execution.description.clone())))
            .add(execution);
    }

    /// Returns the bytes that it keeps in this session.
    fn size(&self) -> usize {
        let own = self.own.borrow();
        let nodes = own.as_ref().map_or(0, |plan| plan.nodes.capacity());
        size_of::<KnownPlan>() + self.description.borrow().size() + nodes * size_of::<NodeTotals>()
    }
}

/// The session's last statement.
struct Last {
    plan: Rc<KnownPlan>,
    description: Rc<PlanDescription>,
    older_literals: bool,
    run: Run,
    figures: Vec<NodeFigures>,
}

struct Session {
    plans: FxHashMap<PlanKey, Rc<KnownPlan>>,
    /// The memory of the listed plans.
    bytes: usize,
    last: Option<Last>,
    executions: u64,
}

static SESSION: BackendLocal<RefCell<Session>> = BackendLocal::new(RefCell::new(Session {
    plans: HashMap::with_hasher(FxBuildHasher),
    bytes: 0,
    last: None,
    executions: 0,
}));

/// A plan that the session has met before.
pub fn known(key: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.borrow().plans.get(key).cloned()
}

/// A plan that it meets now; it is listed when it has run.
pub fn newly_met(key: PlanKey, description: Rc<PlanDescription>) -> Rc<KnownPlan> {
    Rc::new(KnownPlan {
        key,
        description: RefCell::new(description),
        slot: Cell::new(0),
        listed: Cell::new(false),
        bytes: Cell::new(0),
        used: Cell::new(0),
        own: RefCell::new(None),
    })
}

/// Adds an execution to its plan's statistics; its figures may be taken.
#[inline(always)]
pub fn record(execution: &mut Execution) {
    let shared = store::record(execution);
    // May run while an error is cleaned up: it must not raise another.
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.record(execution, shared);
    }
}

/// The session's last statement: its plan, whose totals are those of all executions, and its own figures.
pub struct LastStatement {
    pub plan: Plan,
    pub figures: Vec<NodeFigures>,
}

/// Returns the session's last statement.
///
/// # Errors
/// Raises "out of memory".
pub fn last() -> Option<LastStatement> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let own = last.plan.own.borrow();
    let kept = store::current_plan(&last.plan.key).or_else(|| own.as_deref().cloned());
    let kept = kept.unwrap_or_else(|| {
        let mut alone = Plan::new(last.plan.key, last.description.clone());
        alone.statistics.add(&last.run);
        alone.nodes = memory::with_room(last.figures.len());
        alone.nodes.extend(last.figures.iter().map(|figures| NodeTotals {
            total: *figures,
            last: *figures,
            histogram: Histogram::default(),
        }));
        alone
    });
    let mut figures = memory::with_room(last.figures.len());
    figures.extend_from_slice(&last.figures);
    let plan = Plan {
        description: last.description.clone(),
        older_literals: last.older_literals,
        statistics: PlanStatistics {
            last_ms: last.run.elapsed_ms,
            last_outcome: last.run.outcome,
            sampfreq: last.run.sampfreq,
            clock: last.run.clock,
            ..kept.statistics
        },
        ..kept
    };
    Some(LastStatement { plan, figures })
}

/// Returns queryid, planid and outcome of the session's last statement.
pub fn last_outcome() -> Option<(PlanKey, Outcome)> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    Some((last.plan.key, last.run.outcome))
}

/// Returns the keys of all kept plans, the most recently run first: those of the shared store, or without one those of
/// this session.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Vec<PlanKey> {
    store::keys().unwrap_or_else(|| {
        let session = SESSION.borrow();
        let mut plans: Vec<&Rc<KnownPlan>> = session.plans.values().collect();
        plans.retain(|plan| plan.own.borrow().is_some());
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.used.get()));
        plans.iter().map(|plan| plan.key).collect()
    })
}

/// Returns a copy of a kept plan; `None` where it has gone meanwhile.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    store::plan(key).or_else(|| {
        let session = SESSION.borrow();
        let own = session.plans.get(key)?.own.borrow();
        own.as_deref().cloned()
    })
}

/// Visits all kept plans, one at a time, the most recently run first. May be cancelled in between.
///
/// # Errors
/// Raises "out of memory".
pub fn each_plan(mut visit: impl FnMut(Plan)) {
    for key in keys() {
        server::check_for_interrupts();
        memory::ensure();
        if let Some(plan) = plan(&key) {
            visit(plan);
        }
    }
}

/// Forgets the session's own plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    let mut session = SESSION.borrow_mut();
    session.forget(|plan| {
        let forgotten = matches(&plan.key, userid, dbid, queryid);
        if forgotten {
            plan.own.replace(None);
        }
        forgotten
    });
    let last = session.last.as_ref().map(|last| last.plan.key);
    if last.is_some_and(|key| matches(&key, userid, dbid, queryid)) {
        session.last = None;
    }
}

/// Whether a key is meant; 0 stands for any.
pub fn matches(key: &PlanKey, userid: u32, dbid: u32, queryid: i64) -> bool {
    (userid == 0 || key.userid == userid)
        && (dbid == 0 || key.dbid == dbid)
        && (queryid == 0 || key.queryid == queryid)
}

impl Session {
    #[inline(always)]
    fn record(&mut self, execution: &mut Execution, shared: bool) {
        let plan = execution.plan;
        self.executions += 1;
        plan.used.set(self.executions);
        if !plan.listed.get() {
            self.list(plan);
        }
        if !Rc::ptr_eq(&plan.description.borrow(), execution.description) {
            plan.description.replace(execution.description.clone());
            self.count(plan);
        }
        if !shared {
            let first = plan.own.borrow().is_none();
            plan.add(execution);
            if first {
                self.count(plan);
            }
        }
        if execution.last {
            self.keep_last(execution);
        }
    }

    #[inline(always)]
    fn keep_last(&mut self, execution: &mut Execution) {
        match &mut self.last {
            Some(last) => {
                if !Rc::ptr_eq(&last.plan, execution.plan) {
                    last.plan = execution.plan.clone();
                }
                if !Rc::ptr_eq(&last.description, execution.description) {
                    last.description = execution.description.clone();
                }
                last.older_literals = execution.older_literals;
                last.run = execution.run;
                std::mem::swap(&mut last.figures, execution.figures);
            }
            none => {
                *none = Some(Last {
                    plan: execution.plan.clone(),
                    description: execution.description.clone(),
                    older_literals: execution.older_literals,
                    run: execution.run,
                    figures: std::mem::take(execution.figures),
                });
            }
        }
    }

    /// Lists a plan that has run. Where two open statements met it at the same time, the later one's stays.
    #[cold]
    fn list(&mut self, plan: &Rc<KnownPlan>) {
        self.make_room();
        if self.plans.try_reserve(1).is_err() {
            return;
        }
        if let Some(earlier) = self.plans.insert(plan.key, plan.clone()) {
            self.bytes -= earlier.bytes.replace(0);
            earlier.listed.set(false);
            plan.own.replace(earlier.own.take());
        }
        plan.listed.set(true);
        self.count(plan);
    }

    /// Counts the memory of a listed plan anew.
    #[cold]
    fn count(&mut self, plan: &KnownPlan) {
        if plan.listed.get() {
            let bytes = plan.size();
            self.bytes = self.bytes - plan.bytes.replace(bytes) + bytes;
        }
    }

    /// Evicts the tenth of the plans that was used longest ago, when the session's plans are too many, or too large.
    fn make_room(&mut self) {
        const MOST: usize = 1_000;
        let most = guc::max_plans().min(MOST);
        while !self.plans.is_empty() && (self.plans.len() >= most || self.bytes >= MOST_BYTES) {
            let mut used: Vec<u64> = self.plans.values().map(|plan| plan.used.get()).collect();
            let tenth = (used.len() / 10).min(used.len() - 1);
            let (_, &mut oldest_kept, _) = used.select_nth_unstable(tenth);
            self.forget(|plan| plan.used.get() <= oldest_kept);
        }
    }

    /// Takes the plans that are `unwanted` off the list.
    fn forget(&mut self, unwanted: impl Fn(&KnownPlan) -> bool) {
        let bytes = &mut self.bytes;
        self.plans.retain(|_, plan| {
            let kept = !unwanted(plan);
            plan.listed.set(kept);
            if !kept {
                *bytes -= plan.bytes.replace(0);
            }
            kept
        });
    }
}
