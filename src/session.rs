//! What this session knows of its own statements: the plans it ran, and the figures of the last statement. With
//! `shared_preload_libraries` the totals are in the store that all sessions share (`pg::shared`); without, they are
//! here.

use crate::guc;
use crate::pg::identity::PlanId;
use crate::pg::one_thread::OneThread;
use crate::pg::{server, shared};
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
    pub fn new(text: &[u8], plan: ExplainedPlan) -> Self {
        let kept = server::first_bytes(text, LONGEST_TEXT);
        let is_cut = kept.len() < text.len();
        let mark = if is_cut { "..." } else { "" };
        PlanDescription {
            text: server::from_database(kept) + mark,
            identity: identity(text),
            generic: plan.generic,
            cut: u32::try_from(plan.cut + usize::from(is_cut)).unwrap_or(u32::MAX),
            nodes: plan.nodes,
        }
    }

    /// Returns whether this is the statement that it was made for.
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }
}

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

/// A plan and its statistics.
#[derive(Clone)]
pub struct Plan {
    pub key: PlanKey,
    pub description: Rc<PlanDescription>,
    pub older_literals: bool,
    pub statistics: PlanStatistics,
    pub total: Vec<NodeFigures>,
    pub last: Vec<NodeFigures>,
    pub histograms: Vec<Histogram>,
}

impl Plan {
    fn new(key: PlanKey, description: Rc<PlanDescription>) -> Self {
        Plan {
            key,
            description,
            older_literals: false,
            statistics: PlanStatistics::default(),
            total: Vec::new(),
            last: Vec::new(),
            histograms: Vec::new(),
        }
    }

    fn add(&mut self, execution: &Execution) {
        let nodes = execution.figures.len();
        self.statistics.add(&execution.run);
        self.total.resize_with(nodes, NodeFigures::default);
        for (total, figures) in self.total.iter_mut().zip(execution.figures.iter()) {
            total.add(figures);
        }
        self.histograms.resize_with(nodes, Histogram::default);
        for (total, histogram) in self.histograms.iter_mut().zip(execution.histograms) {
            total.add(histogram);
        }
        self.description.clone_from(execution.description);
        self.older_literals = execution.older_literals;
        self.last.clear();
        self.last.extend_from_slice(execution.figures);
    }
}

/// A plan that the session has met. Its statements hold on to it, so that what they find at their start they need
/// not look for at their end.
pub struct KnownPlan {
    pub key: PlanKey,
    pub description: RefCell<Rc<PlanDescription>>,
    /// Where the shared store gathers the session's executions of it.
    pub way: Cell<usize>,
    /// In the session's list.
    listed: Cell<bool>,
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
    last: Option<Last>,
    executions: u64,
}

static SESSION: OneThread<RefCell<Session>> = OneThread::new(RefCell::new(Session {
    plans: HashMap::with_hasher(FxBuildHasher),
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
        way: Cell::new(0),
        listed: Cell::new(false),
        used: Cell::new(0),
        own: RefCell::new(None),
    })
}

/// Adds an execution to its plan's statistics; its figures may be taken.
#[inline(always)]
pub fn record(execution: &mut Execution) {
    let shared = shared::record(execution);
    // May run while an error is cleaned up: it must not raise another.
    if let Ok(mut session) = SESSION.try_borrow_mut() {
        session.record(execution, shared);
    }
}

/// The plan of the session's last statement; its last figures are those that the session saw.
pub fn last() -> Option<Plan> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let own = last.plan.own.borrow();
    let kept = shared::plan(&last.plan.key).or_else(|| own.as_deref().cloned());
    let kept = kept.unwrap_or_else(|| {
        let mut alone = Plan::new(last.plan.key, last.description.clone());
        alone.statistics.add(&last.run);
        alone.total.clone_from(&last.figures);
        alone
    });
    Some(Plan {
        description: last.description.clone(),
        older_literals: last.older_literals,
        last: last.figures.clone(),
        statistics: PlanStatistics {
            last_ms: last.run.elapsed_ms,
            last_outcome: last.run.outcome,
            sampfreq: last.run.sampfreq,
            clock: last.run.clock,
            ..kept.statistics
        },
        ..kept
    })
}

/// All kept plans: those of the shared store, or without one those of this session. The most recently run first.
pub fn plans() -> Vec<Plan> {
    let own = || {
        let session = SESSION.borrow();
        let plans = session.plans.values();
        plans
            .filter_map(|plan| plan.own.borrow().as_deref().cloned())
            .collect()
    };
    let mut plans = shared::plans().unwrap_or_else(own);
    plans.sort_by_key(|plan: &Plan| std::cmp::Reverse(plan.statistics.last_seen));
    plans
}

/// Forgets the session's own plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    let mut session = SESSION.borrow_mut();
    session.plans.retain(|key, plan| {
        let kept = !matches(key, userid, dbid, queryid);
        plan.listed.set(kept);
        if !kept {
            plan.own.replace(None);
        }
        kept
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
        }
        if !shared {
            plan.add(execution);
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
        if let Some(earlier) = self.plans.insert(plan.key, plan.clone()) {
            earlier.listed.set(false);
            plan.own.replace(earlier.own.take());
        }
        plan.listed.set(true);
    }

    /// Evicts the tenth of the plans that was used longest ago, when the session's plans are too many.
    fn make_room(&mut self) {
        const MOST: usize = 1000;
        let most = guc::max_plans().min(MOST);
        if self.plans.len() < most {
            return;
        }
        let mut used: Vec<u64> = self.plans.values().map(|plan| plan.used.get()).collect();
        let tenth = (used.len() / 10).min(used.len() - 1);
        let (_, &mut oldest_kept, _) = used.select_nth_unstable(tenth);
        self.plans.retain(|_, plan| {
            let kept = plan.used.get() > oldest_kept;
            plan.listed.set(kept);
            kept
        });
    }
}
