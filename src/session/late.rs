//! What comes after the end of an execution, at its commit: waits, and how long that takes.

use super::plans::{KnownPlan, Plans};
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

/// Adds what came after the end of an execution: of which plan and description, when it ended, and how many
/// nodes it has.
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
