//! Lists, copies and resets the plans of the store. Only SQL functions call this module. They hold no lock,
//! are outside of any FFI boundary, and may raise errors. Statements that are set up call [`description`].

use super::access::locked_by_control;
use super::attach::{attach, attach_and_wait_for_load};
use super::{access, control, entry, executions, file, listing, pending, room};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, memory};
use pgrx::pg_sys;
use rowsource_core::flips::{Event, Flips};
use rowsource_core::model::{DatabaseSum, LazyDescription, Plan, PlanKey};
use rowsource_core::planids;
use std::sync::atomic::Ordering::Relaxed;

/// The row of `rowsource_info()`.
pub struct Info {
    pub plans: u64,
    pub bytes: u64,
    /// The bytes that the plans may have.
    pub limit: usize,
    /// Plans that were evicted.
    pub evictions: u64,
    /// Since when the plans do not contain all executions: the first eviction or refused execution.
    pub incomplete_at: Option<i64>,
    /// Executions that were not stored, because their plan was too large or memory was short.
    pub refused: u64,
    /// Plans with a text or predicates that were cut.
    pub truncated: u64,
    pub reset_at: i64,
    /// Errors of the library that no user saw.
    pub errors: u64,
}

/// Returns the keys of all plans, the most recently run first. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Option<Vec<PlanKey>> {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    Some(unsafe {
        listing::keys(&access::store()?, |one, other| {
            other.last_used.cmp(&one.last_used)
        })
    })
}

/// Returns a copy of the sums of what is not stored, one for each database. Returns `None` if there is no
/// shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn others() -> Option<Vec<DatabaseSum>> {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    Some(unsafe { listing::others(&access::store()?) })
}

/// Returns the changes of plans. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn flips() -> Option<Vec<Event>> {
    attach_and_wait_for_load();
    let mut events = memory::with_room(Flips::MAX_EVENTS);
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        pending::flush_all(&store);
        (*store.control).flips.with_table(|table| {
            table.settle();
            events.extend(table.events());
        });
    }
    Some(events)
}

/// Returns the planid of the plan that sessions know by this key, if this session is attached, and some
/// session has described the plan.
pub fn planid(by_oids: &PlanKey) -> Option<i64> {
    let store = access::store()?;
    // SAFETY: the control block stays mapped until the process ends.
    planids::find(unsafe { control::planids(store.control) }, by_oids)
}

/// Notes the planid of the plan that sessions know by this key.
pub fn note_planid(by_oids: &PlanKey, planid: i64) {
    if let Some(store) = access::store() {
        // SAFETY: the control block stays mapped until the process ends.
        planids::note(unsafe { control::planids(store.control) }, by_oids, planid);
    }
}

/// Returns a copy of a plan's description. Returns `None` if this session is not attached, if the store does
/// not have the plan, or if there is no memory. Raises nothing. A statement that is set up calls this too.
pub fn description(key: &PlanKey) -> Option<LazyDescription> {
    if !access::is_attached() {
        return None;
    }
    let store = access::store()?;
    // SAFETY: statements are set up at a place where the session holds no lock and is outside of any
    // boundary.
    unsafe { entry::description::read(&store, key) }
}

/// Returns a copy of a plan's description or, if the store does not have the plan, of the one with which its
/// query ran before. The rest is as for [`description`].
pub fn description_or_before(key: &PlanKey) -> Option<LazyDescription> {
    description(key).or_else(|| {
        let store = access::store().filter(|_| access::is_attached())?;
        // SAFETY: the control block stays mapped. The session holds no lock and is outside of any boundary,
        // as for `description`.
        let before = unsafe {
            contained(Unlocked::promised(), || {
                (*store.control).flips.with_table(|table| table.last_plan(key))
            })
        };
        description(&before.ok()??)
    })
}

/// Returns a copy of one plan, if the store has it.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    attach();
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        entry::copy(&store, key)
    }
}

/// Returns a copy of one plan, with the executions that sessions have not flushed yet. Flushes only this
/// plan's slots.
///
/// # Errors
/// Raises "out of memory".
pub fn current_plan(key: &PlanKey) -> Option<Plan> {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    unsafe {
        let store = access::store()?;
        pending::flush_plan(&store, key);
        entry::copy(&store, key)
    }
}

/// Deletes the plans of a user, database and query. 0 means any. Returns whether there were some.
pub fn reset(userid: u32, datid: u32, queryid: i64) -> bool {
    attach_and_wait_for_load();
    // SAFETY: only SQL functions call this. They hold no lock and may raise errors.
    unsafe {
        let Some(store) = access::store() else {
            return false;
        };
        let is_unwanted = |key: &PlanKey| key.matches(userid, datid, queryid);
        let control = &*store.control;
        pending::discard(&store, is_unwanted);
        let has_deleted = entry::delete(&store, is_unwanted);
        executions::remove(is_unwanted);
        control
            .flips
            .with_table(|table| table.clear(userid, datid, queryid));
        if (userid, queryid) == (0, 0) {
            locked_by_control(&store, || control.evicted.clear(datid));
        }
        if (userid, datid, queryid) == (0, 0, 0) {
            // This returns the empty segments to the system.
            pg_sys::dsa_trim(store.plans);
            control.reset_at.store(server::now(), Relaxed);
        }
        // A session may have saved the plans as the last one, see `saving`.
        file::remove();
        has_deleted
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
                evictions: control.evicted.count(),
                incomplete_at: control.evicted.since(),
                limit: room::limit(),
                refused: control.evicted.refused(),
                truncated: control.truncated.load(Relaxed),
                reset_at: control.reset_at.load(Relaxed),
                errors: control.errors.load(Relaxed),
            }
        })
    }
}
