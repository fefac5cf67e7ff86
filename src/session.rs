//! What this session knows of its own statements: the plans it ran, and its last statement. An execution is recorded in the
//! store that all sessions share (`pg::store`), or where there is none, here.

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

pub use plans::{KnownPlan, newly_met};

/// One finished, failed or cancelled execution.
pub struct Execution<'a> {
    pub run: Run,
    pub plan: &'a Rc<KnownPlan>,
    pub description: &'a Rc<PlanDescription>,
    /// The description's literals are those of an earlier execution.
    pub older_literals: bool,
    pub stats: &'a mut Vec<NodeStats>,
    pub histograms: &'a [&'a Histogram],
    /// It becomes the session's last statement.
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

/// Returns a plan that the session has met before.
pub fn known(key: &PlanKey) -> Option<Rc<KnownPlan>> {
    SESSION.borrow().plans.get(key).cloned()
}

/// Adds an execution to its plan's statistics: in the shared store, or without one in this session. Its nodes' statistics
/// may be taken.
#[inline(always)]
pub fn record(execution: &mut Execution) {
    let (plan, description) = (execution.plan, execution.description);
    let stats = ExecutionStats {
        run: &execution.run,
        nodes: execution.stats,
        histograms: execution.histograms,
    };
    let is_shared = store::record(plan.for_store(description), stats);
    // May run while an error is cleaned up: it must not raise another.
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

/// The session's last statement: its plan, whose totals are those of all executions, and the statistics of its own nodes.
pub struct LastStatement {
    pub plan: Plan,
    pub stats: Vec<NodeStats>,
}

/// Returns the session's last statement.
///
/// # Errors
/// Raises "out of memory".
pub fn last() -> Option<LastStatement> {
    let session = SESSION.borrow();
    let last = session.last.as_ref()?;
    let kept = store::current_plan(&last.plan.key).or_else(|| last.plan.own());
    let kept = kept.unwrap_or_else(|| {
        let mut alone = Plan::new(last.plan.key, last.description.clone());
        alone.statistics.add(&last.run);
        alone.nodes = memory::with_room(last.stats.len());
        alone.nodes.extend(last.stats.iter().map(|stats| NodeTotals {
            total: *stats,
            last: *stats,
            histogram: Histogram::default(),
        }));
        alone
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
            ..kept.statistics
        },
        ..kept
    };
    Some(LastStatement { plan, stats })
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
    store::keys().unwrap_or_else(|| SESSION.borrow().plans.keys())
}

/// Returns a copy of a kept plan; `None` where it has gone meanwhile.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    store::plan(key).or_else(|| SESSION.borrow().plans.get(key)?.own())
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
            none => {
                *none = Some(Last {
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
