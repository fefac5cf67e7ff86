//! The plans that this session ran, and its last statement. Executions are recorded in the store that all sessions share
//! (`pg::store`). If there is none, they are recorded here.

mod plans;

use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::{self, memory};
use crate::pg::store;
use plans::Plans;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{
    ExecutionStats, NodeStats, NodeTotals, Outcome, Plan, PlanDescription, PlanKey, PlanStats, Run,
};
use std::cell::RefCell;
use std::rc::Rc;

pub use plans::{KnownPlan, new_plan};

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<PlanDescription>,
    /// The description's literals come from an earlier execution.
    pub older_literals: bool,
    pub stats: &'a mut Vec<NodeStats>,
    pub histograms: &'a [&'a Histogram],
    /// The execution becomes the session's last statement.
    pub last: bool,
}

/// The session's last statement.
struct Last {
    plan: Rc<KnownPlan>,
    description: Rc<PlanDescription>,
    older_literals: bool,
    run: Run,
    stats: Vec<NodeStats>,
}

struct Session {
    plans: Plans,
    last: Option<Last>,
}

static SESSION: BackendLocal<RefCell<Session>> = BackendLocal::new(RefCell::new(Session {
    plans: Plans::new(),
    last: None,
}));

/// Returns a plan that the session has run before.
pub fn known(key: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.borrow().plans.get(key).cloned()
}

/// Adds an execution to its plan's statistics: in the shared store, or in this session if there is none. May move the nodes'
/// statistics out of `execution`.
#[inline(always)]
pub fn record(execution: &mut Execution) {
    let (plan, description) = (execution.plan, execution.description);
    let stats = ExecutionStats {
        run: &execution.run,
        nodes: execution.stats,
        histograms: execution.histograms,
    };
    let is_shared = store::record(plan.for_store(description), stats);
    // This may run during the cleanup after an error. So it must not panic, as `borrow_mut` could.
    let Ok(mut session) = SESSION.try_borrow_mut() else {
        return;
    };
    session.plans.note_use(plan, description);
    if !is_shared {
        let (run, nodes, histograms) = (&execution.run, &*execution.stats, execution.histograms);
        let older_literals = execution.older_literals;
        session
            .plans
            .record(plan, description, older_literals, run, nodes, histograms);
    }
    if execution.last {
        session.keep_last(execution);
    }
}

/// The session's last statement.
pub struct LastStatement {
    /// The plan, with the totals of all executions.
    pub plan: Plan,
    /// The statistics of the nodes in this execution.
    pub stats: Vec<NodeStats>,
}

/// Returns the session's last statement.
///
/// # Errors
/// Raises "out of memory".
pub fn last() -> Option<LastStatement> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let stored = store::current_plan(&last.plan.key).or_else(|| last.plan.local_copy());
    let stored = stored.unwrap_or_else(|| {
        let mut single = Plan::new(last.plan.key, last.description.clone());
        single.statistics.add(&last.run);
        single.nodes = memory::with_room(last.stats.len());
        single.nodes.extend(last.stats.iter().map(|stats| NodeTotals {
            total: *stats,
            last: *stats,
            histogram: Histogram::default(),
        }));
        single
    });
    let mut stats = memory::with_room(last.stats.len());
    stats.extend_from_slice(&last.stats);
    let plan = Plan {
        description: last.description.clone(),
        older_literals: last.older_literals,
        statistics: PlanStats {
            last_ms: last.run.elapsed_ms,
            last_outcome: last.run.outcome,
            sampfreq: last.run.sampfreq,
            clock: last.run.clock,
            ..stored.statistics
        },
        ..stored
    };
    Some(LastStatement { plan, stats })
}

/// Returns the key and the outcome of the session's last statement.
pub fn last_outcome() -> Option<(PlanKey, Outcome)> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    Some((last.plan.key, last.run.outcome))
}

/// Returns the keys of all stored plans, the most recently run first. They are from the shared store, or from this session if
/// there is none.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Vec<PlanKey> {
    store::keys().unwrap_or_else(|| SESSION.borrow().plans.keys())
}

/// Returns a copy of a stored plan. Returns `None` if it was evicted or reset in the meantime.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    store::plan(key).or_else(|| SESSION.borrow().plans.get(key)?.local_copy())
}

/// Visits all stored plans, one at a time, the most recently run first. The user can cancel this.
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

/// Deletes the session's own plans of a user, database and query. 0 means any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    let mut session = SESSION.borrow_mut();
    session.plans.reset(userid, dbid, queryid);
    session
        .last
        .take_if(|last| last.plan.key.matches(userid, dbid, queryid));
}

impl Session {
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
                std::mem::swap(&mut last.stats, execution.stats);
            }
            empty => {
                *empty = Some(Last {
                    plan: execution.plan.clone(),
                    description: execution.description.clone(),
                    older_literals: execution.older_literals,
                    run: execution.run,
                    stats: std::mem::take(execution.stats),
                });
            }
        }
    }
}
