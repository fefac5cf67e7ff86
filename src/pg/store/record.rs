//! Adds an execution to the store: to the session's buffer, or at once to its plan's entry, which may have to be made.

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

/// Adds an execution to its plan's statistics, making an entry for a plan that is new. Never raises: without a store,
/// without memory, or for too large a plan it returns false.
#[inline(always)]
pub fn record(plan: PlanRef<'_>, execution: ExecutionStats<'_>) -> bool {
    let (run, nodes, histograms) = (execution.run, execution.nodes, execution.histograms);
    access::is_attached()
        && (pending::add(plan, execution)
            || record_at_once(plan.key, plan.slot, plan.description, run, nodes, histograms))
}

/// Adds an execution that cannot wait in the session's buffer. The arguments are apart, so that a caller has no need to put
/// them into memory before it knows that it calls this.
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
    // SAFETY: this session has attached to the store, which stays. It records where it holds no lock and is inside no
    // boundary.
    unsafe {
        // An error would be fatal to a process that ends.
        if server::is_exiting() && !memory::can_map((*store.control).mapped_bytes()) {
            return false;
        }
        let batch = Batch::Execution(execution);
        let kept = keep(&store, key, Some(description), &batch);
        if kept {
            pending::claim_slot(plan, execution, |key, description, batch| {
                keep(&store, key, description, batch);
            });
        }
        kept
    }
}

/// Gives this session a buffer, which is flushed and left when the session ends.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn attach_backend(store: &Store) {
    // SAFETY: the caller's promise. The callback is a valid one.
    unsafe {
        if pending::attach_backend(store) {
            pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
        }
    }
}

/// Flushes the session's buffer when it ends: while its shared memory is still mapped, and before the server counts it as
/// gone.
///
/// # Safety
/// To be called by PostgreSQL only, before this process detaches from shared memory.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    let Some(store) = access::store() else { return };
    // SAFETY: shared memory is still mapped. A process that ends holds no lock and is inside no boundary.
    unsafe {
        // Errors are fatal here, and nothing raises them where there is room. Others find what this process leaves.
        if memory::can_map((*store.control).mapped_bytes()) {
            pending::flush_own(|key, description, batch| {
                keep(&store, key, description, batch);
            });
        }
    }
    pending::leave();
}

/// Adds to a plan's entry, or makes one if there is a description. Where neither can be done, the executions are counted as
/// refused, and it returns false.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
unsafe fn keep(store: &Store, key: &PlanKey, description: Option<&PlanDescription>, batch: &Batch) -> bool {
    // SAFETY: the caller's promise. One boundary stands around calls that take and release their locks.
    unsafe {
        let kept = contained(|| pg_guard_ffi_boundary(|| entry::update(store, key, batch))) == Ok(true)
            || description.is_some_and(|description| insert_new(store, key, description, batch));
        if !kept {
            (*store.control).refused.fetch_add(batch.executions(), Relaxed);
        }
        kept
    }
}

/// Makes an entry for a new plan, and evicts others where there is no room. False where it cannot be kept.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
#[cold]
#[inline(never)]
unsafe fn insert_new(store: &Store, key: &PlanKey, description: &PlanDescription, batch: &Batch) -> bool {
    let Some(new) = NewPlan::of(description, batch) else {
        return false;
    };
    // SAFETY: the caller's promise; the store stays.
    unsafe {
        let control = &*store.control;
        if control.is_full() {
            make_room(store, eviction::PARTS[0], true);
        }
        let mut parts = eviction::PARTS.into_iter();
        loop {
            control.apply_limit(store.plans);
            // Without room for the plan, or for its entry in the table, others go.
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

/// Evicts one in `part` of the plans, and tells the sessions' buffers. Which plans were used last is only known when all that
/// sessions have not flushed yet has come in.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
unsafe fn make_room(store: &Store, part: usize, only_if_full: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        pending::flush_free(store);
        let evicted = evict::evict(store, part, only_if_full);
        pending::invalidate(store, &evicted);
    }
}
