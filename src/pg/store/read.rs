//! Lists, copies and resets the plans of the store. Only SQL functions call this module, and the postmaster when it ends. They
//! hold no lock, are outside of any FFI boundary, and may raise errors.

use super::attach::{attach, attach_and_wait_for_load};
use super::{access, entry, pending};
use crate::pg::server::{self, memory};
use pgrx::pg_sys;
use rowsource_core::model::{Plan, PlanKey};
use std::sync::atomic::Ordering::Relaxed;

/// The row of `rowsource_info()`.
pub struct Info {
    pub plans: u64,
    pub bytes: u64,
    pub evictions: u64,
    /// Executions that were not stored, because their plan was too large or memory was short.
    pub refused: u64,
    /// Plans with a text or predicates that were cut.
    pub truncated: u64,
    pub reset_at: i64,
}

/// Returns the keys of all plans, the most recently run first. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Option<Vec<PlanKey>> {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions, and the postmaster when it ends, call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        pending::flush_all(&store);
        // Other sessions may add plans before the list is made. So there is room for a thousand more.
        let mut plans = memory::with_room((*store.control).plans.load(Relaxed) as usize + 1_000);
        entry::list(&store, &mut plans);
        plans.sort_unstable_by_key(|plan| std::cmp::Reverse(plan.last_used));
        let mut keys = memory::with_room(plans.len());
        keys.extend(plans.iter().map(|plan| plan.key));
        Some(keys)
    }
}

/// Returns a copy of one plan, if the store has it.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    attach();
    // SAFETY: only SQL functions, and the postmaster when it ends, call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        entry::copy(&store, key)
    }
}

/// Returns a copy of one plan, with the executions that sessions have not flushed yet. Flushes only this plan's slots.
///
/// # Errors
/// Raises "out of memory".
pub fn current_plan(key: &PlanKey) -> Option<Plan> {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions, and the postmaster when it ends, call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        pending::flush_plan(&store, key);
        entry::copy(&store, key)
    }
}

/// Deletes the plans of a user, database and query. 0 means any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions, and the postmaster when it ends, call this. They hold no lock and may raise errors.
    unsafe {
        let Some(store) = access::store() else { return };
        let is_unwanted = |key: &PlanKey| key.matches(userid, dbid, queryid);
        pending::discard(&store, is_unwanted);
        entry::delete(&store, is_unwanted);
        if (userid, dbid, queryid) == (0, 0, 0) {
            // This returns the empty segments to the system.
            pg_sys::dsa_trim(store.plans);
            let control = &*store.control;
            control.evictions.store(0, Relaxed);
            control.refused.store(0, Relaxed);
            control.reset_at.store(server::now(), Relaxed);
        }
    }
}

/// Returns the row of `rowsource_info()`, or `None` if there is no shared store.
pub fn info() -> Option<Info> {
    attach_and_wait_for_load();
    // SAFETY: the control block stays mapped until the process ends, and this reads only atomics of it.
    unsafe {
        access::store().map(|store| {
            let control = &*store.control;
            Info {
                plans: control.plans.load(Relaxed),
                bytes: control.bytes.load(Relaxed),
                evictions: control.evictions.load(Relaxed),
                refused: control.refused.load(Relaxed),
                truncated: control.truncated.load(Relaxed),
                reset_at: control.reset_at.load(Relaxed),
            }
        })
    }
}
