//! Lists, copies and resets the plans of the store. Only functions that a user calls do this, and the postmaster at its end:
//! they hold no lock, are inside no boundary, and may raise errors.

use super::attach::{attach, attach_and_wait_for_load};
use super::{access, entry, pending};
use crate::pg::server::{self, memory};
use pgrx::pg_sys;
use rowsource_core::model::{Plan, PlanKey};
use std::sync::atomic::Ordering::Relaxed;

/// One row about the store.
pub struct Info {
    pub plans: u64,
    pub bytes: u64,
    pub evictions: u64,
    /// Executions that were not kept: their plan was too large, or memory was short.
    pub refused: u64,
    /// Plans whose text or predicates were cut.
    pub truncated: u64,
    pub reset_at: i64,
}

/// Returns the keys of all plans, the most recently run first; `None` without a shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Option<Vec<PlanKey>> {
    attach_and_wait_for_load();
    // SAFETY: only functions of the user's, and the postmaster at its end, call this: no lock is held.
    unsafe {
        let store = access::store()?;
        pending::flush_all(&store);
        // Some more than there are now: others go on.
        let mut plans = memory::with_room((*store.control).plans.load(Relaxed) as usize + 1_000);
        entry::list(&store, &mut plans);
        plans.sort_unstable_by_key(|plan| std::cmp::Reverse(plan.last_used));
        let mut keys = memory::with_room(plans.len());
        keys.extend(plans.iter().map(|plan| plan.key));
        Some(keys)
    }
}

/// Returns a copy of one plan, where the store has it.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    attach();
    // SAFETY: only functions of the user's call this: no lock is held, and errors may be raised.
    unsafe {
        let store = access::store()?;
        entry::copy(&store, key)
    }
}

/// Returns a copy of one plan with all that sessions have not flushed yet. The plan is looked up by its key, and of the
/// buffers only its own slots are flushed.
///
/// # Errors
/// Raises "out of memory".
pub fn current_plan(key: &PlanKey) -> Option<Plan> {
    attach_and_wait_for_load();
    // SAFETY: only functions of the user's call this: no lock is held, and errors may be raised.
    unsafe {
        let store = access::store()?;
        pending::flush_plan(&store, key);
        entry::copy(&store, key)
    }
}

/// Forgets the plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    attach_and_wait_for_load();
    // SAFETY: only functions of the user's call this: no lock is held, and errors may be raised.
    unsafe {
        let Some(store) = access::store() else { return };
        let meant = |key: &PlanKey| key.matches(userid, dbid, queryid);
        pending::discard(&store, meant);
        entry::delete(&store, meant);
        if (userid, dbid, queryid) == (0, 0, 0) {
            // Gives the segments that are empty now back to the system.
            pg_sys::dsa_trim(store.plans);
            let control = &*store.control;
            control.evictions.store(0, Relaxed);
            control.refused.store(0, Relaxed);
            control.reset_at.store(server::now(), Relaxed);
        }
    }
}

/// Returns what is known about the store; `None` without one.
pub fn info() -> Option<Info> {
    attach_and_wait_for_load();
    // SAFETY: the control block stays as long as the process, and what is read of it is atomic.
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
