//! Lists, copies and resets the plans of the store. Only SQL functions call this module. They hold no lock,
//! are outside of any FFI boundary, and may raise errors. Statements that are set up call [`description`],
//! and the background worker judges the plans (`judging`).

use super::access::{Store, locked_by_control};
use super::attach::{attach, attach_and_wait_for_load};
use super::{access, control, entry, executions, file, listing, pending, room};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, memory};
use pgrx::pg_sys;
use rowsource_core::model::{DatabaseSum, LazyDescription, Plan, PlanKey};
use rowsource_core::planids;
use rowsource_core::regressions::PlanNow;
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

/// The store that this session has attached to, for an SQL function. It holds no lock, and is outside of any
/// boundary.
pub(super) struct Reading {
    pub store: Store,
    pub unlocked: Unlocked,
}

/// Returns the store, if this session has attached to it.
pub(super) fn reading() -> Option<Reading> {
    // SAFETY: only SQL functions call this, statements that are set up, and the worker: see above.
    access::store().map(|store| unsafe {
        let unlocked = Unlocked::promised();
        Reading { store, unlocked }
    })
}

/// Attaches, waits until the statistics file is loaded, and returns the store. Returns `None` if there is no
/// shared store.
pub(super) fn loaded() -> Option<Reading> {
    attach_and_wait_for_load();
    reading()
}

/// Returns the keys of the plans that ran since a time in microseconds, the most recently run first. Returns
/// `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn keys(since: i64) -> Option<Vec<PlanKey>> {
    let Reading { store, mut unlocked } = loaded()?;
    Some(listing::keys(&store, &mut unlocked, since, |one, other| {
        other.last_used.cmp(&one.last_used)
    }))
}

/// Returns the sums of the executions of all plans. Returns `None` if there is no shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn sums() -> Option<Vec<PlanNow>> {
    let Reading { store, mut unlocked } = loaded()?;
    pending::flush_all(&store, &mut unlocked);
    let mut plans = memory::with_room(store.control().plans.load(Relaxed) as usize + 1_000);
    entry::list::sums(&store, server::now(), &mut plans);
    Some(plans)
}

/// Returns a copy of the sums of what is not stored, one for each database. Returns `None` if there is no
/// shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn others() -> Option<Vec<DatabaseSum>> {
    let Reading { store, mut unlocked } = loaded()?;
    Some(listing::others(&store, &mut unlocked))
}

/// Returns the planid of the plan that sessions know by this key, if this session is attached, and some
/// session has described the plan.
pub fn planid(by_oids: &PlanKey) -> Option<i64> {
    access::store()?;
    planids::find(control::planids(), by_oids)
}

/// Notes the planid of the plan that sessions know by this key.
pub fn note_planid(by_oids: &PlanKey, planid: i64) {
    if access::is_attached() {
        planids::note(control::planids(), by_oids, planid);
    }
}

/// Returns a copy of a plan's description. Returns `None` if this session is not attached, if the store does
/// not have the plan, or if there is no memory. Raises nothing. A statement that is set up calls this too.
pub fn description(key: &PlanKey) -> Option<LazyDescription> {
    if !access::is_attached() {
        return None;
    }
    let Reading { store, mut unlocked } = reading()?;
    entry::description::read(&store, &mut unlocked, key)
}

/// Returns a copy of a plan's description or, if the store does not have the plan, of the one with which its
/// query ran before. The rest is as for [`description`].
pub fn description_or_before(key: &PlanKey) -> Option<LazyDescription> {
    description(key).or_else(|| {
        let Reading { store, mut unlocked } = reading()?;
        let last_plan = |_: &mut _| {
            let (observed, known) = store
                .control()
                .flips
                .with_table(|table| (table.last_plan(key), control::known_plans().of_query(key)));
            observed.or_else(|| known.max_by_key(|plan| entry::last_at(&store, plan)))
        };
        description(&contained(&mut unlocked, last_plan).ok()??)
    })
}

/// Returns a copy of one plan, if the store has it.
///
/// # Errors
/// Raises "out of memory".
pub fn plan(key: &PlanKey) -> Option<Plan> {
    attach();
    entry::copy(&access::store()?, key)
}

/// Returns a copy of one plan, with the executions that sessions have not flushed yet. Flushes only this
/// plan's slots.
///
/// # Errors
/// Raises "out of memory".
pub fn current_plan(key: &PlanKey) -> Option<Plan> {
    let Reading { store, mut unlocked } = loaded()?;
    pending::flush_plan(&store, &mut unlocked, key);
    entry::copy(&store, key)
}

/// Deletes the plans of a user, database and query. 0 means any. Returns whether there were some.
pub fn reset(userid: u32, datid: u32, queryid: i64) -> bool {
    let Some(Reading { store, mut unlocked }) = loaded() else {
        return false;
    };
    let is_unwanted = |key: &PlanKey| key.matches(userid, datid, queryid);
    let control = store.control();
    pending::discard(&store, is_unwanted);
    let has_deleted = entry::delete(&store, is_unwanted);
    executions::remove(&mut unlocked, is_unwanted);
    control.flips.with_all(|all| {
        all.flips.clear(userid, datid, queryid);
        all.regressions.clear(userid, datid, queryid);
        if (userid, datid, queryid) == (0, 0, 0) {
            all.database.clear();
        }
    });
    if (userid, queryid) == (0, 0) {
        locked_by_control(&store, &mut unlocked, |lock| control.evicted.clear(lock, datid));
    }
    if (userid, datid, queryid) == (0, 0, 0) {
        // This returns the empty segments to the system.
        // SAFETY: this process has attached to the area.
        unsafe { pg_sys::dsa_trim(store.plans()) };
        control.reset_at.store(server::now(), Relaxed);
    }
    // A session may have saved the plans as the last one, see `saving`.
    file::remove();
    has_deleted
}

/// Returns the row of `rowsource_info()`, or `None` if there is no shared store.
pub fn info() -> Option<Info> {
    let control = loaded()?.store.control();
    Some(Info {
        plans: control.plans.load(Relaxed),
        bytes: control.bytes.load(Relaxed),
        evictions: control.evicted.count(),
        incomplete_at: control.evicted.since(),
        limit: room::limit(),
        refused: control.evicted.refused(),
        truncated: control.truncated.load(Relaxed),
        reset_at: control.reset_at.load(Relaxed),
        errors: control.errors.load(Relaxed),
    })
}
