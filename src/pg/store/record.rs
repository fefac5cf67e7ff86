//! Adds an execution to the store: to the session's buffer, or directly to its plan's entry. Makes the entry if needed.

use super::access::{self, Store};
use super::blocks::NoMemory;
use super::entry::{self, NewPlan, NoRoom};
use super::evict;
use super::pending::{self, PlanRef, PlanSlot};
use crate::pg::server::contained::contained;
use crate::pg::server::{self, memory};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use rowsource_core::eviction;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Batch, ExecutionStats, NodeStats, PlanDescription, PlanKey, Run};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Adds an execution to its plan's statistics. Makes an entry for a new plan. Raises nothing: returns false if there is no
/// store or no memory, or if the plan is too large.
#[inline(always)]
pub fn record(plan: PlanRef<'_>, execution: ExecutionStats<'_>) -> bool {
    let (run, nodes, histograms) = (execution.run, execution.nodes, execution.histograms);
    access::is_attached()
        && (pending::add(plan, execution)
            || record_at_once(plan.key, plan.slot, plan.description, run, nodes, histograms))
}

/// Adds an execution directly to its plan's entry. The arguments are separate, so that the caller does not write them to
/// memory unless it calls this.
#[inline(never)]
fn record_at_once(
    key: &PlanKey,
    slot: &PlanSlot,
    description: &Rc<PlanDescription>,
    run: &Run,
    nodes: &[NodeStats],
    histograms: &[&Histogram],
) -> bool {
    let Some(store) = access::store() else {
        return false;
    };
    let plan = PlanRef {
        key,
        slot,
        description,
    };
    let execution = ExecutionStats {
        run,
        nodes,
        histograms,
    };
    // SAFETY: this session has attached to the store, which stays mapped until the process ends. Executions are recorded at
    // places where the session holds no lock and is outside of any boundary.
    unsafe {
        // In a process that ends, an error is fatal. So this first checks that there is enough memory.
        if server::is_exiting() && !memory::can_map((*store.control).mapped_bytes()) {
            return false;
        }
        let batch = Batch::Execution(execution);
        let kept = add_or_insert(&store, key, Some(description), &batch);
        if kept {
            pending::claim_slot(plan, execution, |key, description, batch| {
                add_or_insert(&store, key, description, batch);
            });
        }
        kept
    }
}

/// Gives this session a buffer. It is flushed and released when the session ends.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises if memory cannot be mapped.
pub(super) unsafe fn attach_backend(store: &Store) {
    // SAFETY: the caller is outside of any boundary and holds no lock. `at_exit` has the type of the callback.
    unsafe {
        if pending::attach_backend(store) {
            pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
}

/// Flushes and releases the session's buffer when the session ends. The session's shared memory is still mapped then, and other
/// processes still see the session as running.
///
/// # Safety
/// Only PostgreSQL may call this, before this process detaches from shared memory.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    let Some(store) = access::store() else { return };
    // SAFETY: shared memory is still mapped. A process that ends holds no lock and is outside of any boundary.
    unsafe {
        // Errors are fatal here, and none are raised if there is enough memory. Otherwise other processes flush the buffer.
        if memory::can_map((*store.control).mapped_bytes()) {
            pending::flush_own(|key, description, batch| {
                add_or_insert(&store, key, description, batch);
            });
        }
    }
    pending::release_buffer();
}

/// Adds a batch to a plan's entry, or makes an entry if there is a description. If neither is possible, counts the executions
/// as refused and returns false.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock except a slot. Raises nothing.
unsafe fn add_or_insert(
    store: &Store,
    key: &PlanKey,
    description: Option<&PlanDescription>,
    batch: &Batch,
) -> bool {
    // SAFETY: the caller is outside of any boundary and holds no LWLock. `update` runs inside a boundary, as it requires, and
    // `contained` catches its errors.
    unsafe {
        let kept = contained(|| pg_guard_ffi_boundary(|| entry::update(store, key, batch))) == Ok(true)
            || description.is_some_and(|description| insert_new(store, key, description, batch));
        if !kept {
            (*store.control).refused.fetch_add(batch.executions(), Relaxed);
        }
        kept
    }
}

/// Makes an entry for a new plan, and evicts other plans if there is no room. Returns whether the plan has an entry now.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock except a slot. Raises nothing.
#[cold]
#[inline(never)]
unsafe fn insert_new(store: &Store, key: &PlanKey, description: &PlanDescription, batch: &Batch) -> bool {
    let Some(new) = NewPlan::of(description, batch) else {
        return false;
    };
    // SAFETY: the caller is outside of any boundary and holds no LWLock. The control block stays mapped until the process ends,
    // and the plans' area is attached.
    unsafe {
        let control = &*store.control;
        if control.is_full() {
            make_room(store, eviction::PARTS[0], true);
        }
        let mut parts = eviction::PARTS.into_iter();
        loop {
            control.apply_limit(store.plans);
            // If there is no room for the plan or for its entry in the table, other plans are evicted.
            let failure = match entry::insert_or_update(store, key, &new, batch) {
                Ok(kept) => return kept,
                Err(NoRoom::Entry(message)) => Some(message),
                Err(NoRoom::Plan(NoMemory::System(message))) => {
                    control.note_exhausted(&message);
                    None
                }
                Err(NoRoom::Plan(NoMemory::Limit)) => None,
            };
            match parts.next() {
                Some(part) => make_room(store, part, false),
                None => {
                    failure.inspect(|message| control.note_exhausted(message));
                    return false;
                }
            }
        }
    }
}

/// Evicts one in `part` of the plans, and invalidates their slots. Flushes the free slots first, so that the store knows which
/// plans were used last.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock except a slot. Raises nothing.
unsafe fn make_room(store: &Store, part: usize, only_if_full: bool) {
    // SAFETY: all three functions require the same as this one, and raise nothing.
    unsafe {
        pending::flush_free(store);
        let evicted = evict::evict(store, part, only_if_full);
        pending::invalidate(store, &evicted);
    }
}
