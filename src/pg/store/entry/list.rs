//! Lists of all plans, with what the evictor and the process that judges have to know of each.

use super::{Entry, each};
use crate::pg::store::access::{Store, locked};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::eviction::Candidate;
use rowsource_core::model::PlanKey;
use rowsource_core::regressions::{PlanNow, Sums};

/// Lists all plans and what each is worth. Lists only as many plans as the vector has room for. Raises if
/// memory cannot be mapped.
pub fn worths(store: &Store, plans: &mut Vec<Candidate<PlanKey>>) {
    list_as(store, plans, None, |worth, _| Some(worth));
}

/// Lists all plans, the sums of their executions and what to compare them with at a moment, likewise.
pub fn sums(store: &Store, now: i64, plans: &mut Vec<PlanNow>) {
    list_as(store, plans, Some(now), |_, plan| plan);
}

/// Lists what is made of each plan: of its worth, and of its sums if they are needed, at a moment.
fn list_as<T>(
    store: &Store,
    items: &mut Vec<T>,
    sums_at: Option<i64>,
    item: impl Fn(Candidate<PlanKey>, Option<PlanNow>) -> Option<T>,
) {
    // SAFETY: `each` holds the entry's partition lock during the closure. The closure reads the key, which
    // never changes, and atomics, and the statistics under the entry's own lock.
    unsafe {
        each(store, false, |entry| {
            if items.len() < items.capacity() {
                let lock = &raw mut (*entry).lock;
                let plan = |at| {
                    let Entry { key, stats, kept, .. } = &*entry;
                    PlanNow {
                        key: *key,
                        sums: Sums::of(stats),
                        first_seen_at: stats.first_seen_at,
                        kept: kept.at(at),
                    }
                };
                let plan = sums_at.map(|at| pg_guard_ffi_boundary(|| locked(lock, false, || plan(at))));
                items.extend(item((*entry).worth.candidate((*entry).key), plan));
            }
            false
        });
    }
}
