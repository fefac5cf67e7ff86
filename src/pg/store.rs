//! The store that all sessions share: with `shared_preload_libraries`, and from PostgreSQL 17 on without it too, for
//! all sessions that load the library.
//!
//! A small control block lies in main shared memory, or, where the server did not preload us, in a segment of
//! PostgreSQL's registry (`GetNamedDSMSegment`); such a store is not saved, for the postmaster does not know us. The
//! plans lie in dynamic shared memory (one area, limited by `pg_rowsource.max_memory`), and so do the buffers of the
//! sessions (another area, see [`pending`]). Both are made by the first backend that needs them.
//!
//! Locks, and the order in which they are taken:
//! 1. a slot of a session's buffer (`pending`): to add an execution of a short plan, or to flush the slot;
//! 2. the control lock, exclusive: to evict, to insert a new plan;
//! 3. a partition lock of the table (dshash): shared to find a plan, exclusive to insert or delete one;
//! 4. a plan's own lock: exclusive to add to it, shared to copy it.
//!
//! So the update of a known plan takes no exclusive lock that other plans share, and mostly none that other sessions
//! share. Nothing is called into PostgreSQL's executor or catalogs while any of them is held.
//!
//! When there is no memory, a new plan evicts others; when that does not help, its executions are counted as refused.

mod blocks;
mod control;
mod entry;
mod file;
mod owner;
mod pending;

use super::backend_local::BackendLocal;
use super::contained::contained;
use super::{compat, memory, server, unguarded};
use crate::guc;
use crate::session::Execution;
use control::Control;
use entry::{Batch, Entry};
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::model::{NodeTotals, Plan, PlanKey};
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

pub use control::init;

/// Larger plans are not kept.
pub const MOST_NODES: usize = 1_000;

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

/// This backend's access to the store.
#[derive(Clone, Copy)]
struct Store {
    control: *mut Control,
    /// The plans and their table.
    plans: *mut pg_sys::dsa_area,
    /// The sessions' buffers.
    pending: *mut pg_sys::dsa_area,
    table: *mut pg_sys::dshash_table,
}

static STORE: BackendLocal<Cell<Option<Store>>> = BackendLocal::new(Cell::new(None));

/// Attaches this backend to the store, making and loading it first where nobody has. To be called where memory may
/// be allocated for good, and where a cancel request may be heard: when a statement starts, or from a function. A backend
/// that cannot (there is no shared memory left) tries again after a minute.
#[inline(always)]
pub fn attach() {
    if STORE.get().is_none() {
        attach_now();
    }
}

/// Attaches as [`attach`] does, and waits until the file is in.
fn attach_and_see_all() {
    attach();
    while STORE.get().is_some() && control::is_being_made() {
        pause();
    }
}

/// Waits a moment for another backend; may be cancelled.
fn pause() {
    server::check_for_interrupts();
    std::thread::sleep(Duration::from_millis(1));
}

#[cold]
#[inline(never)]
fn attach_now() {
    const RETRY: i64 = 60_000_000;
    /// So long a statement waits for the backend that makes the store: some milliseconds, unless that is stopped.
    const PATIENCE: Duration = Duration::from_secs(2);
    static FAILED_AT: BackendLocal<Cell<Option<i64>>> = BackendLocal::new(Cell::new(None));
    if !control::may_exist() || FAILED_AT.get().is_some_and(|at| server::now() - at < RETRY) {
        return;
    }
    let began = Instant::now();
    loop {
        // SAFETY: the caller holds no lock. Shared memory is mapped for good, and so is what PostgreSQL keeps about it.
        let attached = unsafe {
            let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            let attached = contained(|| make_or_attach(control::find_or_make()));
            pg_sys::MemoryContextSwitchTo(context);
            attached
        };
        match attached {
            Ok(Some(store)) => {
                STORE.set(Some(store));
                // SAFETY: as above.
                return unsafe { complete(&store) };
            }
            Ok(None) if began.elapsed() < PATIENCE => pause(),
            Ok(None) => return FAILED_AT.set(Some(server::now())),
            Err(message) => {
                FAILED_AT.set(Some(server::now()));
                return control::log_no_memory(&message);
            }
        }
    }
}

/// Makes the store, or attaches to it; `None` while another backend makes it. What it maps and makes is pinned last: an
/// error before that gives all of it back.
///
/// # Safety
/// * `control` must point to the store's control block.
/// * Not inside a boundary, holding no lock. Raises where there is no memory; the rest is left to `contained`.
unsafe fn make_or_attach(control: *mut Control) -> Option<Store> {
    // SAFETY: who is the maker makes the store alone; handles of a made store do not change.
    unsafe {
        compat::register_tranche((*control).tranche, control::TRANCHE);
        let parameters = compat::dshash_parameters(Entry::KEY_SIZE, size_of::<Entry>(), (*control).tranche);
        let none = std::ptr::null_mut();
        let store = if (*control).made.load(Acquire) {
            let (plans, pending) = (
                pg_sys::dsa_attach((*control).plans_area),
                pg_sys::dsa_attach((*control).pending_area),
            );
            let table = pg_sys::dshash_attach(plans, &parameters, (*control).table, none);
            Store {
                control,
                plans,
                pending,
                table,
            }
        } else {
            let _maker = (*control).become_maker()?;
            if (*control).made.load(Acquire) {
                return None;
            }
            let make = |limit| {
                let area = compat::dsa_create((*control).tranche);
                pg_sys::dsa_set_size_limit(area, limit);
                area
            };
            let limit = guc::max_memory();
            let (plans, pending) = (make(limit), make(limit / pending::SHARE));
            let table = pg_sys::dshash_create(plans, &parameters, none);
            (*control).note_limit(limit);
            (*control).plans_area = pg_sys::dsa_get_handle(plans);
            (*control).pending_area = pg_sys::dsa_get_handle(pending);
            (*control).table = pg_sys::dshash_get_hash_table_handle(table);
            pg_sys::dsa_pin(plans);
            pg_sys::dsa_pin(pending);
            (*control).made.store(true, Release);
            Store {
                control,
                plans,
                pending,
                table,
            }
        };
        pg_sys::dsa_pin_mapping(store.plans);
        pg_sys::dsa_pin_mapping(store.pending);
        Some(store)
    }
}

/// Loads the file where nobody has, and takes a buffer, once this backend is attached. It can do without.
///
/// # Safety
/// Not inside a boundary, holding no lock.
unsafe fn complete(store: &Store) {
    // SAFETY: the caller holds no lock.
    unsafe {
        file::load(store);
        if !server::is_postmaster() {
            let _ = contained(|| pending::attach_backend(store));
        }
    }
}

/// Adds an execution to its plan's statistics, making an entry for a plan that is new. Never raises: without a store,
/// without memory, or for too large a plan it returns false.
#[inline(always)]
pub fn record(execution: &Execution) -> bool {
    // SAFETY: this session has attached to the store, which stays. Nothing here raises, and what is called does not
    // let errors out.
    unsafe {
        let Some(store) = STORE.get() else { return false };
        if pending::add(execution) {
            return true;
        }
        // An error would be fatal to a process that ends.
        (!server::is_exiting() || memory::can_map((*store.control).mapped_bytes()))
            && record_at_once(&store, execution)
    }
}

/// Adds an execution that cannot wait in the session's buffer.
///
/// # Safety
/// Not inside a boundary, holding no lock.
#[inline(never)]
unsafe fn record_at_once(store: &Store, execution: &Execution) -> bool {
    // SAFETY: this session has attached to the store, which stays. One boundary stands around calls that take and
    // release their locks.
    unsafe {
        let (key, batch) = (&execution.plan.key, Batch::Execution(execution));
        let kept = contained(|| pg_guard_ffi_boundary(|| entry::update(store, key, &batch))) == Ok(true)
            || entry::insert_new(store, key, execution.description, &batch);
        if kept {
            pending::claim_slot(store, execution);
        } else {
            (*store.control).refused.fetch_add(1, Relaxed);
        }
        kept
    }
}

/// Returns the keys of all plans, the most recently run first; `None` without a shared store.
///
/// # Errors
/// Raises "out of memory".
pub fn keys() -> Option<Vec<PlanKey>> {
    attach_and_see_all();
    // SAFETY: only functions of the user's, and the postmaster at its end, call this: no lock is held.
    unsafe {
        let store = STORE.get()?;
        pending::flush_all(&store, |_| true);
        let mut used = entry::used(&store);
        used.sort_unstable_by_key(|(_, last_seen)| std::cmp::Reverse(*last_seen));
        let mut keys = memory::with_room(used.len());
        keys.extend(used.iter().map(|(key, _)| *key));
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
        let store = STORE.get()?;
        entry::copy(&store, key)
    }
}

/// Returns a copy of one plan with all that sessions have not flushed yet.
///
/// # Errors
/// Raises "out of memory".
pub fn current_plan(key: &PlanKey) -> Option<Plan> {
    attach_and_see_all();
    // SAFETY: only functions of the user's call this: no lock is held, and errors may be raised.
    unsafe {
        let store = STORE.get()?;
        pending::flush_all(&store, |pending| pending == key);
        entry::copy(&store, key)
    }
}

/// Forgets the plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    attach_and_see_all();
    // SAFETY: only functions of the user's call this: no lock is held, and errors may be raised.
    unsafe {
        let Some(store) = STORE.get() else { return };
        let meant = |key: &PlanKey| key.matches(userid, dbid, queryid);
        pending::discard(&store, meant);
        entry::delete(&store, |key, _| meant(key));
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
    attach_and_see_all();
    // SAFETY: the control block stays as long as the process, and what is read of it is atomic.
    unsafe {
        STORE.get().map(|store| {
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

/// The lock helpers of the update path: raw, for they raise nothing and stand inside one boundary.
///
/// # Safety
/// * `lock` must point to a lock that this process does not hold.
/// * `body` must not raise: nobody would release the lock.
unsafe fn locked<T>(lock: *mut pg_sys::LWLock, exclusive: bool, body: impl FnOnce() -> T) -> T {
    let mode = if exclusive {
        pg_sys::LWLockMode::LW_EXCLUSIVE
    } else {
        pg_sys::LWLockMode::LW_SHARED
    };
    // SAFETY: a lock in shared memory; `body` does not raise.
    unsafe {
        unguarded::LWLockAcquire(lock, mode);
        let result = body();
        unguarded::LWLockRelease(lock);
        result
    }
}
