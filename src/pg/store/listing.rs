//! Lists what the store has, for readers and for the file.

use super::access::{Store, locked_by_control};
use super::{entry, pending};
use crate::pg::server::memory;
use rowsource_core::eviction::Candidate;
use rowsource_core::model::{DatabaseSum, Others, PlanKey};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the keys of all plans in this order. Flushes all sessions' buffers first.
///
/// # Safety
/// The caller must have attached to the store, be outside of any FFI boundary, and hold no lock. Raises "out
/// of memory".
pub(super) unsafe fn keys(
    store: &Store,
    order: impl Fn(&Candidate<PlanKey>, &Candidate<PlanKey>) -> Ordering,
) -> Vec<PlanKey> {
    // SAFETY: the caller makes the same promises.
    unsafe {
        pending::flush_all(store);
        // Other sessions may add plans before the list is made. So there is room for a thousand more.
        let mut plans = memory::with_room((*store.control).plans.load(Relaxed) as usize + 1_000);
        entry::list(store, &mut plans);
        plans.sort_unstable_by(order);
        let mut keys = memory::with_room(plans.len());
        keys.extend(plans.iter().map(|plan| plan.key));
        keys
    }
}

/// Returns a copy of the sums of what is not stored, one for each database.
///
/// # Safety
/// The same as for [`keys`].
pub(super) unsafe fn others(store: &Store) -> Vec<DatabaseSum> {
    let mut sums = memory::with_room(Others::MAX);
    // SAFETY: the caller makes the same promises. The control block stays mapped until the process ends.
    unsafe {
        let evicted = &(*store.control).evicted;
        locked_by_control(store, || evicted.copy_sums(&mut sums));
    }
    sums
}
