//! What comes after the end of an execution, at its commit: waits, and how long that takes.

use super::plans::{KnownPlan, Plans};
use super::{Execution, SESSION, Session};
use crate::pg::store;
use rowsource_core::model::{Late, LazyDescription, NodeStats, Outside, Run, StatementSums};
use rowsource_core::waits::plan::{PlanWaits, RunWaits};
use std::rc::Rc;

/// The session's last utility statement of the client that was recorded.
pub(super) struct Utility {
    pub plan: Rc<KnownPlan>,
    pub description: Rc<LazyDescription>,
    pub run: Run,
    pub waits: PlanWaits,
    pub nodes: Vec<NodeStats>,
}

impl Utility {
    /// Adds what it waited at its commit.
    pub fn add_waits(&mut self, plans: &Plans, waits: &PlanWaits) {
        self.waits.merge(waits);
        self.add(plans, Late::Waits(waits));
    }

    /// Adds how long its commit took.
    #[cold]
    #[inline(never)]
    pub fn add_commit(&mut self, plans: &Plans, ms: f64) {
        self.run.commit_ms = ms;
        self.add(plans, Late::Commit(&self.run));
        keep(
            (&self.plan, &self.description),
            &self.run,
            StatementSums::default(),
            &self.waits,
            &self.nodes,
        );
    }

    fn add(&self, plans: &Plans, late: Late<'_>) {
        let ended = (self.run.at, self.nodes.len());
        add(plans, (&self.plan, &self.description), ended, late);
    }
}

/// Returns whether this is the plan of the session's last statement.
#[inline(always)]
pub fn is_last(plan: &Rc<KnownPlan>) -> bool {
    let session = SESSION.try_borrow();
    session.is_ok_and(|session| {
        session
            .last
            .as_ref()
            .is_some_and(|last| Rc::ptr_eq(&last.plan, plan))
    })
}

/// Returns the session's last statement, if its commit is to be recorded with this execution. If that is of another plan, or if the
/// statement was explained, adds the commit now.
#[inline(always)]
pub(super) fn committed(execution: &mut Execution) -> Option<Run> {
    let ms = execution.last_commit_ms;
    if ms <= 0.0 {
        return None;
    }
    if let Ok(mut session) = SESSION.try_borrow_mut()
        && let Some(last) = &mut session.last
        && Rc::ptr_eq(&last.plan, execution.plan)
        && !last.run.explained
    {
        last.run.commit_ms = ms;
        return Some(last.run);
    }
    execution.last_commit_ms = 0.0;
    add_commit(ms, false);
    None
}

/// Keeps the session's last statement whole, which was slow with its commit.
#[cold]
#[inline(never)]
pub(super) fn keep_committed() {
    if let Ok(mut session) = SESSION.try_borrow_mut()
        && let Some(last) = &mut session.last
    {
        last.keep_committed();
    }
}

/// Adds how long the commit of the session's last statement took, or of its last utility statement.
#[cold]
#[inline(never)]
pub fn add_commit(ms: f64, is_utility: bool) {
    let Ok(mut session) = SESSION.try_borrow_mut() else {
        return;
    };
    let Session { plans, last, utility } = &mut *session;
    if is_utility {
        return utility
            .iter_mut()
            .for_each(|utility| utility.add_commit(plans, ms));
    }
    if let Some(last) = last.as_mut().filter(|last| !last.run.explained) {
        last.run.commit_ms = ms;
        last.add_late(plans, Late::Commit(&last.run));
        if store::may_keep_late(last.plan.for_store(&last.description), &last.run) {
            last.keep_committed();
        }
    }
}

/// Adds what came after the end of an execution: of which plan and description, when it ended, and how many nodes it has.
#[inline(always)]
pub(super) fn add(
    plans: &Plans,
    (plan, description): (&Rc<KnownPlan>, &Rc<LazyDescription>),
    (at, nodes): (i64, usize),
    late: Late<'_>,
) {
    if !store::add_late(plan.for_store(description), at, nodes, late) {
        plans.add_late(plan, late);
    }
}

/// Keeps an execution whole that was added before, if it is the slowest one now that its end is known.
pub(super) fn keep(
    (plan, description): (&Rc<KnownPlan>, &Rc<LazyDescription>),
    run: &Run,
    sums: StatementSums,
    waits: &PlanWaits,
    nodes: &[NodeStats],
) {
    let plan = plan.for_store(description);
    if store::may_keep_late(plan, run) {
        let waits = RunWaits::of(waits);
        let outside = Outside {
            sums,
            waits: Some(&waits),
            ..Outside::default()
        };
        store::keep_late(plan, run, &outside, nodes);
    }
}
