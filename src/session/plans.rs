//! The plans that this session has run. A statement finds its plan here, with the description and its slot in
//! the session's buffer. If there is no shared store, the plan's statistics are here too.

use super::unfolded::Unfolded;
use crate::guc;
use crate::pg::server;
use crate::pg::store::{PlanRef, PlanSlot};
use rowsource_core::eviction::{Limits, oldest};
use rowsource_core::model::partitions::ListedPartition;
use rowsource_core::model::{ExecutionStats, KeepLimit, Late, LazyDescription, NodeTotals, Plan, PlanKey};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The limits of a session's list.
const MAX_LISTED: Limits = Limits {
    plans: 1_000,
    bytes: 4 << 20,
};
/// If there are too many plans, one in this many is evicted.
const EVICTED_PART: usize = 10;

/// A plan of this session. A statement keeps a reference to it from its start to its end, so it looks up its
/// plan only once.
pub struct KnownPlan {
    pub key: PlanKey,
    /// The key that sessions know the plan by: with the number that is made of OIDs, not with the planid. Two
    /// of these may be of the same plan, before and after an index was made again, for example.
    pub by_oids: PlanKey,
    /// The plan's slot in the session's buffer of the shared store.
    slot: PlanSlot,
    pub description: RefCell<Rc<LazyDescription>>,
    /// How many changes of catalogs the session had heard of when the names of the description were last
    /// compared.
    pub compared_at: Cell<u64>,
    /// Whether the plan is in the session's list.
    listed: Cell<bool>,
    /// The plan's part of the list's memory.
    bytes: Cell<usize>,
    /// When the plan was last used: the number of the session's execution.
    used: Cell<i64>,
    /// The plan's statistics, if there is no shared store that has them.
    local: RefCell<Option<Box<Plan>>>,
}

impl KnownPlan {
    pub(super) fn new(by_oids: PlanKey, description: Rc<LazyDescription>) -> Self {
        KnownPlan {
            key: by_oids.with_plan(description.ids().planid),
            by_oids,
            slot: PlanSlot::default(),
            description: RefCell::new(description),
            compared_at: Cell::new(server::catalog_changes()),
            listed: Cell::new(false),
            bytes: Cell::new(0),
            used: Cell::new(0),
            local: RefCell::new(None),
        }
    }

    /// Returns the plan in the form that the shared store expects, with the description of an execution.
    #[inline(always)]
    pub fn for_store<'a>(&'a self, description: &'a Rc<LazyDescription>) -> PlanRef<'a> {
        PlanRef {
            key: &self.key,
            slot: &self.slot,
            description,
        }
    }

    /// Returns a copy of the plan with the statistics in this session, if there are any.
    pub fn local_copy(&self) -> Option<Plan> {
        self.local.borrow().as_deref().cloned()
    }

    /// Changes the statistics in this session.
    fn change_local(&self, description: &Rc<LazyDescription>, change: impl FnOnce(&mut Plan)) {
        let mut local = self.local.borrow_mut();
        change(local.get_or_insert_with(|| {
            let mut plan = Plan::new(self.key, description.to_keep().decoded().clone());
            if let Some(unfolding) = description.unfolding() {
                plan.partitions
                    .resize(unfolding.list_length(), ListedPartition::default());
            }
            Box::new(plan)
        }));
    }

    /// Returns the bytes that the plan uses in this session.
    fn size(&self) -> usize {
        let local = self.local.borrow();
        let statistics = local.as_ref().map_or(0, |plan| {
            plan.nodes.capacity() * size_of::<NodeTotals>()
                + plan.exemplars.size()
                + size_of_val(&*plan.partitions)
        });
        let description = self.description.borrow();
        let folded = description.fold().map_or(0, |_| description.to_keep().size());
        size_of::<KnownPlan>() + description.size() + folded + statistics
    }
}

/// The list of the plans that the session has run, up to a limit.
pub(super) struct Plans {
    /// By the keys that sessions know them by.
    plans: FxHashMap<PlanKey, Rc<KnownPlan>>,
    /// The memory of the listed plans, in bytes.
    bytes: usize,
    executions: i64,
    keep_limit: KeepLimit,
    pub unfolded: Unfolded,
}

impl Plans {
    pub const fn new() -> Self {
        Plans {
            plans: HashMap::with_hasher(FxBuildHasher),
            bytes: 0,
            executions: 0,
            keep_limit: KeepLimit::UNUSED,
            unfolded: Unfolded::new(),
        }
    }

    /// Returns a listed plan.
    pub fn get(&self, by_oids: &PlanKey) -> Option<&Rc<KnownPlan>> {
        self.plans.get(by_oids)
    }

    /// Returns a listed plan whose statistics are in this session.
    pub fn local(&self, key: &PlanKey) -> Option<&Rc<KnownPlan>> {
        let mut plans = self.plans.values();
        plans.find(|plan| plan.key == *key && plan.local.borrow().is_some())
    }

    /// Returns the keys of the plans whose statistics are in this session, the most recently run first.
    pub fn keys(&self) -> Vec<PlanKey> {
        let mut plans: Vec<&Rc<KnownPlan>> = self.plans.values().collect();
        plans.retain(|plan| plan.local.borrow().is_some());
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.used.get()));
        plans.iter().map(|plan| plan.key).collect()
    }

    /// Marks a plan as the most recently used one, lists it if needed, and stores its new description.
    #[inline(always)]
    pub fn note_use(&mut self, plan: &Rc<KnownPlan>, description: &Rc<LazyDescription>) {
        self.executions += 1;
        plan.used.set(self.executions);
        if !plan.listed.get() {
            self.list(plan);
        }
        if !Rc::ptr_eq(&plan.description.borrow(), description) {
            let before = plan.description.replace(description.clone());
            self.update_bytes(plan);
            if !Rc::ptr_eq(before.to_keep(), description.to_keep()) {
                self.unfolded.forget_of(&before);
            }
        }
    }

    /// Adds an execution to the plan's statistics in this session.
    #[cold]
    #[inline(never)]
    pub fn record(
        &mut self,
        plan: &KnownPlan,
        description: &Rc<LazyDescription>,
        older_literals: bool,
        execution: &ExecutionStats<'_>,
    ) {
        let mut has_grown = plan.local.borrow().is_none();
        if has_grown && let Some(same) = self.local(&plan.key) {
            plan.local.replace(same.local.take());
        }
        plan.change_local(description, |local| {
            local.add(execution);
            has_grown |= local.keep(execution, &mut self.keep_limit);
            local.description.clone_from(description.to_keep().decoded());
            local.older_literals = older_literals;
        });
        if has_grown {
            self.update_bytes(plan);
        }
    }

    /// Counts an execution by EXPLAIN (ANALYZE) in the plan's statistics in this session.
    pub fn record_explained(&mut self, plan: &KnownPlan, description: &Rc<LazyDescription>, at: i64) {
        let first = plan.local.borrow().is_none();
        plan.change_local(description, |local| local.statistics.add_explained(at));
        if first {
            self.update_bytes(plan);
        }
    }

    /// Adds what came after the end of an execution to the plan's statistics in this session.
    pub fn add_late(&self, plan: &KnownPlan, late: Late<'_>) {
        if let Some(local) = &mut *plan.local.borrow_mut() {
            local.statistics.add_late(late);
        }
    }

    /// Removes the plans of a user, database and query, and their statistics. 0 means any. Returns whether
    /// there were some.
    pub fn reset(&mut self, userid: u32, datid: u32, queryid: i64) -> bool {
        let before = self.plans.len();
        self.unfolded.forget();
        self.remove(|plan| {
            let is_unwanted = plan.key.matches(userid, datid, queryid);
            if is_unwanted {
                plan.local.replace(None);
            }
            is_unwanted
        });
        self.plans.len() < before
    }

    /// Lists a plan. If another one has the same key, this one replaces it and takes over its statistics.
    #[cold]
    fn list(&mut self, plan: &Rc<KnownPlan>) {
        self.make_room();
        if self.plans.try_reserve(1).is_err() {
            return;
        }
        if let Some(earlier) = self.plans.insert(plan.by_oids, plan.clone()) {
            if earlier.key != plan.key && earlier.local.borrow().is_some() {
                // Its relations had other names. It ends here, but its statistics stay.
                if let Some(replaced) = self.plans.insert(earlier.key, earlier) {
                    self.bytes -= replaced.bytes.replace(0);
                    replaced.listed.set(false);
                }
            } else {
                self.bytes -= earlier.bytes.replace(0);
                earlier.listed.set(false);
                plan.local.replace(earlier.local.take());
                self.unfolded.forget_of(&earlier.description.borrow());
            }
        }
        plan.listed.set(true);
        self.update_bytes(plan);
    }

    /// Updates the memory of the list after a listed plan changed its size.
    #[cold]
    fn update_bytes(&mut self, plan: &KnownPlan) {
        if plan.listed.get() {
            let bytes = plan.size();
            self.bytes = self.bytes - plan.bytes.replace(bytes) + bytes;
        }
    }

    /// Evicts the least recently used tenth of the plans until the list is below its limits.
    fn make_room(&mut self) {
        let limits = Limits {
            plans: MAX_LISTED.plans.min(guc::max_plans() as u64),
            ..MAX_LISTED
        };
        while !self.plans.is_empty() && limits.are_reached(self.plans.len() as u64, self.bytes as u64) {
            let mut uses: Vec<i64> = Vec::with_capacity(self.plans.len());
            uses.extend(self.plans.values().map(|plan| plan.used.get()));
            // Each execution has its own number, so no two plans have the same time of use.
            let last_evicted = oldest(&mut uses, EVICTED_PART)
                .last()
                .copied()
                .unwrap_or(i64::MAX);
            self.remove(|plan| plan.used.get() <= last_evicted);
            self.unfolded.forget();
        }
    }

    /// Removes the plans that `is_unwanted` selects from the list.
    fn remove(&mut self, is_unwanted: impl Fn(&KnownPlan) -> bool) {
        let bytes = &mut self.bytes;
        self.plans.retain(|_, plan| {
            let kept = !is_unwanted(plan);
            plan.listed.set(kept);
            if !kept {
                *bytes -= plan.bytes.replace(0);
            }
            kept
        });
    }
}
