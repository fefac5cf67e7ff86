//! Evicts plans to make room for a new one. `rowsource_core::eviction` selects them.

use super::access::{Store, locked_by_control};
use super::entry;
use crate::pg::server::contained::{self, Unlocked};
use rowsource_core::eviction::{Candidate, least_valuable};
use rowsource_core::model::{Batch, PlanKey};
use std::sync::atomic::Ordering::Relaxed;

/// Evicts the plans of the least value: one in `part`, and at least one. With `only_if_full`, does nothing if
/// another session has made room in the meantime. Returns the selected plans; some of them may have been used
/// again and stayed. Raises nothing.
pub(super) fn evict(
    store: &Store,
    unlocked: &mut Unlocked,
    part: usize,
    only_if_full: bool,
) -> Vec<Candidate<PlanKey>> {
    let mut plans = Vec::new();
    let control = store.control();
    contained::attempt(unlocked, "evict plans", |unlocked| {
        locked_by_control(store, unlocked, |lock| {
            if only_if_full && !control.is_full() {
                return;
            }
            let (count, limit) = (control.plans.load(Relaxed) as usize, control.reached_limit());
            if plans.try_reserve_exact(count).is_err() {
                return;
            }
            entry::list::worths(store, &mut plans);
            let selected = least_valuable(&mut plans, part);
            for plan in selected.iter() {
                // Sessions use plans without the control lock, so a plan may have been used again.
                if let Some(totals) = entry::delete_unused(store, &plan.key, plan.last_used) {
                    control.evicted.add_plan(lock, &plan.key, &totals, limit);
                }
            }
            let count = selected.len();
            plans.truncate(count);
        });
    });
    plans
}

/// Adds executions whose plan is not stored to the sum of their database. Raises nothing.
#[cold]
#[inline(never)]
pub(super) fn add_to_others(store: &Store, unlocked: &mut Unlocked, key: &PlanKey, batch: &Batch) {
    let (totals, evicted) = (batch.totals(), &store.control().evicted);
    contained::attempt(unlocked, "sum up executions", |unlocked| {
        locked_by_control(store, unlocked, |lock| evicted.add_executions(lock, key, &totals));
    });
}
