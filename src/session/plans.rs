//! The plans that this session has met. A statement finds its plan here, with the description and its place in the shared
//! store. Without a shared store, the plan's statistics are here too.

use crate::guc;
use crate::pg::store::{PlanRef, PlanSlot};
use rowsource_core::eviction::{Candidate, Limits, least_recently_used};
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{NodeStats, NodeTotals, Plan, PlanDescription, PlanKey, Run};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The plans that a session lists, and their bytes.
const MOST: Limits = Limits {
    plans: 1_000,
    bytes: 4 << 20,
};
/// One plan in so many goes when there are too many.
const EVICTED_PART: usize = 10;

/// A plan that the session has met. Its statements hold on to it, so that what they find at their start they need
/// not look for at their end.
pub struct KnownPlan {
    pub key: PlanKey,
    /// Its slot in the session's buffer of the shared store.
    slot: PlanSlot,
    pub description: RefCell<Rc<PlanDescription>>,
    /// Whether it is in the session's list.
    listed: Cell<bool>,
    /// The memory that the list counts for it.
    bytes: Cell<usize>,
    /// When it was last used: the number of the session's execution.
    used: Cell<i64>,
    /// Its statistics, where no shared store has them.
    own: RefCell<Option<Box<Plan>>>,
}

impl KnownPlan {
    fn new(key: PlanKey, description: Rc<PlanDescription>) -> Self {
        KnownPlan {
            key,
            slot: PlanSlot::default(),
            description: RefCell::new(description),
            listed: Cell::new(false),
            bytes: Cell::new(0),
            used: Cell::new(0),
            own: RefCell::new(None),
        }
    }

    /// Returns the plan as the shared store takes it, with the description of an execution.
    #[inline(always)]
    pub fn for_store<'a>(&'a self, description: &'a Rc<PlanDescription>) -> PlanRef<'a> {
        PlanRef {
            key: &self.key,
            slot: &self.slot,
            description,
        }
    }

    /// Returns a copy of the plan with its own statistics, if it has any.
    pub fn own(&self) -> Option<Plan> {
        self.own.borrow().as_deref().cloned()
    }

    /// Changes its own statistics.
    fn with_own(&self, description: &Rc<PlanDescription>, change: impl FnOnce(&mut Plan)) {
        let mut own = self.own.borrow_mut();
        change(own.get_or_insert_with(|| Box::new(Plan::new(self.key, description.clone()))));
    }

    /// Returns the bytes that it keeps in this session.
    fn size(&self) -> usize {
        let own = self.own.borrow();
        let nodes = own.as_ref().map_or(0, |plan| plan.nodes.capacity());
        size_of::<KnownPlan>() + self.description.borrow().size() + nodes * size_of::<NodeTotals>()
    }
}

/// Makes a plan that the session meets now; it is listed when it has run.
pub fn newly_met(key: PlanKey, description: Rc<PlanDescription>) -> Rc<KnownPlan> {
    Rc::new(KnownPlan::new(key, description))
}

/// The plans that the session has met and run, up to a limit.
pub(super) struct Plans {
    plans: FxHashMap<PlanKey, Rc<KnownPlan>>,
    /// The memory of the listed plans.
    bytes: usize,
    executions: i64,
}

impl Plans {
    pub const fn new() -> Self {
        Plans {
            plans: HashMap::with_hasher(FxBuildHasher),
            bytes: 0,
            executions: 0,
        }
    }

    /// Returns a plan of the list.
    pub fn get(&self, key: &PlanKey) -> Option<&Rc<KnownPlan>> {
        self.plans.get(key)
    }

    /// Returns the keys of the plans that have statistics of their own, the most recently run first.
    pub fn keys(&self) -> Vec<PlanKey> {
        let mut plans: Vec<&Rc<KnownPlan>> = self.plans.values().collect();
        plans.retain(|plan| plan.own.borrow().is_some());
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.used.get()));
        plans.iter().map(|plan| plan.key).collect()
    }

    /// Notes that a plan has run, with this description.
    #[inline(always)]
    pub fn note_use(&mut self, plan: &Rc<KnownPlan>, description: &Rc<PlanDescription>) {
        self.executions += 1;
        plan.used.set(self.executions);
        if !plan.listed.get() {
            self.list(plan);
        }
        if !Rc::ptr_eq(&plan.description.borrow(), description) {
            plan.description.replace(description.clone());
            self.count(plan);
        }
    }

    /// Adds an execution to the plan's own statistics. The arguments are apart, so that a caller has no need to put them into
    /// memory before it knows that it calls this.
    #[cold]
    #[inline(never)]
    pub fn record(
        &mut self,
        plan: &KnownPlan,
        description: &Rc<PlanDescription>,
        older_literals: bool,
        run: &Run,
        nodes: &[NodeStats],
        histograms: &[&Histogram],
    ) {
        let first = plan.own.borrow().is_none();
        plan.with_own(description, |own| {
            own.add(run, nodes, histograms);
            own.description.clone_from(description);
            own.older_literals = older_literals;
        });
        if first {
            self.count(plan);
        }
    }

    /// Forgets the plans of a user, database and query; 0 stands for any.
    pub fn reset(&mut self, userid: u32, dbid: u32, queryid: i64) {
        self.forget(|plan| {
            let forgotten = plan.key.matches(userid, dbid, queryid);
            if forgotten {
                plan.own.replace(None);
            }
            forgotten
        });
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

    /// Counts the memory of a listed plan again.
    #[cold]
    fn count(&mut self, plan: &KnownPlan) {
        if plan.listed.get() {
            let bytes = plan.size();
            self.bytes = self.bytes - plan.bytes.replace(bytes) + bytes;
        }
    }

    /// Evicts the tenth of the plans that was used longest ago, while the session's plans are too many, or too large.
    fn make_room(&mut self) {
        let limits = Limits {
            plans: MOST.plans.min(guc::max_plans() as u64),
            ..MOST
        };
        while !self.plans.is_empty() && limits.are_reached(self.plans.len() as u64, self.bytes as u64) {
            let mut candidates: Vec<Candidate<()>> = Vec::with_capacity(self.plans.len());
            candidates.extend(self.plans.values().map(|plan| Candidate {
                key: (),
                last_used: plan.used.get(),
            }));
            // No two plans were used at one moment.
            let to_go = least_recently_used(&mut candidates, EVICTED_PART);
            let last_to_go = to_go.last().map_or(i64::MAX, |plan| plan.last_used);
            self.forget(|plan| plan.used.get() <= last_to_go);
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
