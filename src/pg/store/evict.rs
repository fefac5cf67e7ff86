//! Evicts plans to make room for a new one. Which plans go is decided in `rowsource_core::eviction`.

use super::access::{Store, locked_by_control};
use super::entry;
use crate::pg::server::contained::contained;
use rowsource_core::eviction::{Candidate, least_recently_used};
use rowsource_core::model::PlanKey;
use std::sync::atomic::Ordering::Relaxed;

/// Evicts the plans that were used longest ago: one in `part`, and at least one. With `only_if_full` that is for the case that
/// no other session has made room meanwhile. Returns the plans that went, and maybe some that stayed.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
pub(super) unsafe fn evict(store: &Store, part: usize, only_if_full: bool) -> Vec<Candidate<PlanKey>> {
    let mut plans = Vec::new();
    // SAFETY: the caller holds no lock. An error in between leaves the store as it is, and its locks to `contained`.
    unsafe {
        let control = &*store.control;
        let _ = contained(|| {
            locked_by_control(store, || {
                if only_if_full && !control.is_full() {
                    return;
                }
                let count = control.plans.load(Relaxed) as usize;
                if plans.try_reserve_exact(count).is_err() {
                    return;
                }
                entry::list(store, &mut plans);
                let to_go = least_recently_used(&mut plans, part);
                // Who runs a plan holds no control lock: the plan may be in use again.
                let gone = to_go
                    .iter()
                    .filter(|plan| entry::delete_unused(store, &plan.key, plan.last_used))
                    .count();
                control.evictions.fetch_add(gone as u64, Relaxed);
                let listed = to_go.len();
                plans.truncate(listed);
            });
        });
    }
    plans
}
