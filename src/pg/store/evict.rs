//! Evicts plans to make room for a new one. `rowsource_core::eviction` selects them.

use super::access::{Store, locked_by_control};
use super::entry;
use crate::pg::server::contained::contained;
use rowsource_core::eviction::{Candidate, least_recently_used};
use rowsource_core::model::PlanKey;
use std::sync::atomic::Ordering::Relaxed;

/// Evicts the least recently used plans: one in `part`, and at least one. With `only_if_full`, does nothing if another session
/// has made room in the meantime. Returns the selected plans; some of them may have been used again and stayed.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock except a slot. Raises nothing.
pub(super) unsafe fn evict(store: &Store, part: usize, only_if_full: bool) -> Vec<Candidate<PlanKey>> {
    let mut plans = Vec::new();
    // SAFETY: the caller holds no LWLock and is outside of any boundary. `contained` catches errors and releases the locks. The
    // control block stays mapped until the process ends.
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
                let selected = least_recently_used(&mut plans, part);
                // Sessions use plans without the control lock, so a plan may have been used again.
                let deleted = selected
                    .iter()
                    .filter(|plan| entry::delete_unused(store, &plan.key, plan.last_used))
                    .count();
                control.evictions.fetch_add(deleted as u64, Relaxed);
                let count = selected.len();
                plans.truncate(count);
            });
        });
    }
    plans
}
