//! What this session knows of its own statements: the plans it ran, and the figures of the last statement. With
//! `shared_preload_libraries` the totals are in the store that all sessions share (`pg::shared`); without, they are
//! here.

use crate::guc;
use crate::pg::identity::PlanId;
use crate::pg::{server, shared};
use rowsource_core::figures::{NodeFigures, Outcome, Times};
use rowsource_core::histogram::Histogram;
use rowsource_core::plan::PlanNode;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64;

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
    /// The statement's text, cut where it is very long.
    pub text: String,
    /// Length and hash of the whole text.
    identity: (usize, u64),
    pub nodes: Vec<PlanNode>,
    /// It is of a generic plan, which is the same for all parameters.
    pub generic: bool,
}

impl PlanDescription {
    pub fn new(text: &[u8], nodes: Vec<PlanNode>) -> Self {
        let kept = &text[..text.len().min(LONGEST_TEXT)];
        PlanDescription {
            text: server::from_database(kept),
            identity: identity(text),
            generic: is_generic(&nodes),
            nodes,
        }
    }

    /// Whether this is the statement that it was made for.
    pub fn is_of(&self, text: &[u8]) -> bool {
        self.identity.0 == text.len() && self.identity == identity(text)
    }
}

/// A plan whose predicates show a parameter ($1) is a generic one.
fn is_generic(nodes: &[PlanNode]) -> bool {
    let mut predicates = nodes.iter().flat_map(|node| &node.predicates);
    predicates.any(|(_, predicate)| {
        let mut after = predicate.split('$').skip(1);
        after.any(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Longer statement texts are cut: a plan's statistics must not hold megabytes.
const LONGEST_TEXT: usize = 16 * 1024;

fn identity(text: &[u8]) -> (usize, u64) {
    (text.len(), xxh3_64(text))
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

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub figures: &'a mut Vec<NodeFigures>,
    pub histograms: &'a [&'a Histogram],
    pub outcome: Outcome,
    pub sampfreq: i32,
    pub clock: ClockName,
    pub elapsed_ms: f64,
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
    pub fn add(&mut self, execution: &Execution, now: i64) {
        if self.times.calls == 0 {
            self.first_seen = now;
        }
        self.times.add(execution.elapsed_ms);
        self.failed_calls += u64::from(execution.outcome == Outcome::Failed);
        self.cancelled_calls += u64::from(execution.outcome == Outcome::Cancelled);
        self.last_ms = execution.elapsed_ms;
        self.last_outcome = execution.outcome;
        self.sampfreq = execution.sampfreq;
        self.clock = execution.clock;
        self.last_seen = now;
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

    fn add(&mut self, execution: &Execution, now: i64) {
        let nodes = execution.figures.len();
        self.statistics.add(execution, now);
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

/// The session's last statement.
struct Last {
    plan: Rc<KnownPlan>,
    /// Its statistics count the one execution.
    execution: Plan,
}

#[derive(Default)]
struct Session {
    plans: FxHashMap<PlanKey, Rc<KnownPlan>>,
    last: Option<Last>,
    executions: u64,
}

thread_local! {
    static SESSION: RefCell<Session> = RefCell::default();
}

/// A plan that the session has met before.
pub fn known(key: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.with_borrow(|session| session.plans.get(key).cloned())
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
#[inline(never)]
pub fn record(execution: &mut Execution) {
    let now = server::now();
    let shared = shared::record(execution, now);
    // May run while an error is cleaned up: it must not raise another.
    SESSION.with(|session| {
        if let Ok(mut session) = session.try_borrow_mut() {
            session.record(execution, now, shared);
        }
    });
}

/// The plan of the session's last statement; its last figures are those that the session saw.
pub fn last() -> Option<Plan> {
    SESSION.with_borrow(|session| {
        let Last { plan, execution } = session.last.as_ref()?;
        let own = plan.own.borrow();
        let kept = shared::plan(&plan.key).or_else(|| own.as_deref().cloned());
        let kept = kept.unwrap_or_else(|| Plan {
            total: execution.last.clone(),
            ..execution.clone()
        });
        let seen = &execution.statistics;
        Some(Plan {
            description: execution.description.clone(),
            older_literals: execution.older_literals,
            last: execution.last.clone(),
            statistics: PlanStatistics {
                last_ms: seen.last_ms,
                last_outcome: seen.last_outcome,
                sampfreq: seen.sampfreq,
                clock: seen.clock,
                ..kept.statistics
            },
            ..kept
        })
    })
}

/// All kept plans: those of the shared store, or without one those of this session. The most recently run first.
pub fn plans() -> Vec<Plan> {
    let own = || {
        SESSION.with_borrow(|session| {
            let plans = session.plans.values();
            plans
                .filter_map(|plan| plan.own.borrow().as_deref().cloned())
                .collect()
        })
    };
    let mut plans = shared::plans().unwrap_or_else(own);
    plans.sort_by_key(|plan: &Plan| std::cmp::Reverse(plan.statistics.last_seen));
    plans
}

/// Forgets the session's own plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    SESSION.with_borrow_mut(|session| {
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
    });
}

/// Whether a key is meant; 0 stands for any.
pub fn matches(key: &PlanKey, userid: u32, dbid: u32, queryid: i64) -> bool {
    (userid == 0 || key.userid == userid)
        && (dbid == 0 || key.dbid == dbid)
        && (queryid == 0 || key.queryid == queryid)
}

impl Session {
    fn record(&mut self, execution: &mut Execution, now: i64, shared: bool) {
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
            plan.own
                .borrow_mut()
                .get_or_insert_with(|| Box::new(Plan::new(plan.key, execution.description.clone())))
                .add(execution, now);
        }
        if execution.last {
            self.keep_last(execution, now);
        }
    }

    fn keep_last(&mut self, execution: &mut Execution, now: i64) {
        let last = self.last.get_or_insert_with(|| Last {
            plan: execution.plan.clone(),
            execution: Plan::new(execution.plan.key, execution.description.clone()),
        });
        if !Rc::ptr_eq(&last.plan, execution.plan) {
            last.plan = execution.plan.clone();
        }
        last.execution.key = execution.plan.key;
        last.execution.statistics = PlanStatistics::default();
        last.execution.statistics.add(execution, now);
        if !Rc::ptr_eq(&last.execution.description, execution.description) {
            last.execution.description = execution.description.clone();
        }
        last.execution.older_literals = execution.older_literals;
        std::mem::swap(&mut last.execution.last, execution.figures);
    }

    /// Lists a plan that has run. Where two open statements met it at the same time, the later one's stays.
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
