//! Lists what the store has, for readers and for the file.

use super::access::{Store, locked_by_control};
use super::{entry, pending};
use crate::pg::server::contained::Unlocked;
use crate::pg::server::memory;
use rowsource_core::eviction::Candidate;
use rowsource_core::model::{DatabaseSum, Others, PlanKey};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the keys of the plans that ran since a time, in this order. Flushes all sessions' buffers first.
///
/// # Errors
/// Raises "out of memory".
pub(super) fn keys(
    store: &Store,
    unlocked: &mut Unlocked,
    since: i64,
    order: impl Fn(&Candidate<PlanKey>, &Candidate<PlanKey>) -> Ordering,
) -> Vec<PlanKey> {
    pending::flush_all(store, unlocked);
    // Other sessions may add plans before the list is made. So there is room for a thousand more.
    let mut plans = memory::with_room(store.control().plans.load(Relaxed) as usize + 1_000);
    entry::list::worths(store, &mut plans);
    plans.retain(|plan| plan.last_used >= since);
    plans.sort_unstable_by(order);
    let mut keys = memory::with_room(plans.len());
    keys.extend(plans.iter().map(|plan| plan.key));
    keys
}

/// Returns a copy of the sums of what is not stored, one for each database.
///
/// # Errors
/// Raises "out of memory".
pub(super) fn others(store: &Store, unlocked: &mut Unlocked) -> Vec<DatabaseSum> {
    others_and_evictions(store, unlocked).0
}

/// Returns the same, and how many plans had been evicted then.
///
/// # Errors
/// Raises "out of memory".
pub(super) fn others_and_evictions(store: &Store, unlocked: &mut Unlocked) -> (Vec<DatabaseSum>, u64) {
    let mut sums = memory::with_room(Others::MAX);
    let evicted = &store.control().evicted;
    let count = locked_by_control(store, unlocked, |lock| {
        evicted.copy_sums(lock, &mut sums);
        evicted.count()
    });
    (sums, count)
}
