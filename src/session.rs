//! What this session knows of its own statements: the plans it ran, and the figures of the last statement. With
//! `shared_preload_libraries` the totals are in the store that all sessions share (`pg::store`); without, they are
//! here.

use crate::guc;
use crate::pg::backend_local::BackendLocal;
use crate::pg::{memory, server, store};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{NodeStats, NodeTotals, Outcome, Plan, PlanDescription, PlanKey, PlanStats, Run};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The plans that a session lists take this many bytes at most.
const MOST_BYTES: usize = 4 << 20;

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub figures: &'a mut Vec<NodeStats>,
    pub histograms: &'a [&'a Histogram],
    /// It becomes the session's last statement.
    pub last: bool,
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
        let mut own = self.own.borrow_mut();
        let own = own.get_or_insert_with(|| Box::new(Plan::new(self.key, execution.description.clone())));
        own.add(&execution.run, execution.figures, execution.histograms);
        own.description.clone_from(execution.description);
        own.older_literals = execution.older_literals;
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
    figures: Vec<NodeStats>,
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
    pub figures: Vec<NodeStats>,
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
        statistics: PlanStats {
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
        let forgotten = plan.key.matches(userid, dbid, queryid);
        if forgotten {
            plan.own.replace(None);
        }
        forgotten
    });
    let last = session.last.as_ref().map(|last| last.plan.key);
    if last.is_some_and(|key| key.matches(userid, dbid, queryid)) {
        session.last = None;
    }
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
