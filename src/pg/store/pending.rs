//! The sessions' buffers: what a session's short plans did and has not reached the store yet. Many sessions that run the
//! same plan would otherwise write to the same memory all the time.
//!
//! Each session has a buffer of its own in shared memory, with a slot for each of a few plans. Nothing is hidden by that:
//! who reads the store first flushes all sessions' slots. The session itself flushes a slot after a second, when another
//! plan needs it, and when it ends.
//!
//! A slot is guarded by an atomic owner pid instead of an LWLock: acquiring an LWLock costs a short statement as much as
//! adding to its statistics. A session never waits for a slot while it runs statements: when a reader flushes its slot,
//! its execution goes to the store at once. Readers wait for a copy of some statistics, and for all slots together not
//! longer than [`Patience`]. Who waits for a slot holds no lock.

use super::entry::{self, Batch};
use super::owner::OwnerGuard;
use super::{Store, contained};
use crate::pg::backend_local::BackendLocal;
use crate::pg::{memory, server};
use crate::session::{Execution, KnownPlan};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use rowsource_core::model::{NodeTotals, PlanKey, PlanStats};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64};
use std::time::{Duration, Instant};

/// Plans that a session's buffer holds at the same time.
const SLOTS: usize = 8;
/// Larger plans go to the store at once: they take longer than that does.
const NODES: usize = 8;
/// Microseconds until a slot is flushed.
const KEPT: i64 = 1_000_000;
/// The buffers take this part of `pg_rowsource.max_memory` at most, beside it; sessions for which there is no room go to
/// the store at once.
pub(super) const SHARE: usize = 4;

/// What one plan did.
#[repr(C)]
struct Slot {
    /// The process that holds it, or 0.
    owner: AtomicI32,
    key: PlanKey,
    /// No execution: nothing to flush.
    statistics: PlanStats,
    /// When it is to be flushed; 0 where the slot is free, or the plan has gone from the store.
    until: AtomicI64,
    nodes: usize,
    totals: [NodeTotals; NODES],
}

/// Waits for a slot as long as there is patience, and may be cancelled meanwhile.
fn wait_for<'a>(owner: &'a AtomicI32, patience: &mut Patience) -> Option<OwnerGuard<'a>> {
    loop {
        let guard = OwnerGuard::at_once(owner);
        if guard.is_some() {
            return guard;
        }
        if !patience.pause() {
            return OwnerGuard::take(owner);
        }
    }
}

/// How long a reader waits for slots, all of them together: a process that is stopped while it holds one must not hold up
/// others for long.
struct Patience {
    until: Option<Instant>,
    most: Duration,
    cancellable: bool,
}

impl Patience {
    /// Of a function that a user called.
    fn of_reader() -> Self {
        Patience {
            until: None,
            most: Duration::from_millis(500),
            cancellable: true,
        }
    }

    /// Of a session that ends.
    fn at_exit() -> Self {
        Patience {
            until: None,
            most: Duration::from_millis(100),
            cancellable: false,
        }
    }

    /// Waits a moment; false where the patience is at its end.
    fn pause(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_micros(100);
        let now = Instant::now();
        if now >= *self.until.get_or_insert(now + self.most) {
            return false;
        }
        if self.cancellable {
            server::check_for_interrupts();
        }
        std::thread::sleep(PAUSE);
        true
    }
}

/// The slots of one session. Buffers are made for good; a session that ends leaves its own to the next.
#[repr(C)]
pub(super) struct Buffer {
    /// The buffer made before it; 0 at the first.
    next: pg_sys::dsa_pointer,
    taken: AtomicBool,
    slots: [Slot; SLOTS],
}

pub(super) const BUFFER_SIZE: usize = size_of::<Buffer>();

/// A session's own buffer.
struct Own {
    /// Null where the session has none.
    buffer: Cell<*mut Buffer>,
    /// The plans of the slots: for what the store wants to know when it meets one.
    plans: [RefCell<Option<Rc<KnownPlan>>>; SLOTS],
}

static OWN: BackendLocal<Own> = BackendLocal::new(Own {
    buffer: Cell::new(std::ptr::null_mut()),
    plans: [const { RefCell::new(None) }; SLOTS],
});

/// Gives this session a buffer.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn attach_backend(store: &Store) {
    // SAFETY: the list only grows; new buffers are complete before they are in it.
    unsafe {
        let mut own: *mut Buffer = std::ptr::null_mut();
        each_buffer(store, |buffer| {
            if own.is_null() && !(*buffer).taken.swap(true, Acquire) {
                own = buffer;
            }
        });
        if own.is_null() {
            let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
            let made = pg_sys::dsa_allocate_extended(store.pending, size_of::<Buffer>(), flags);
            if made == 0 {
                return;
            }
            own = pg_sys::dsa_get_address(store.pending, made).cast();
            (*own).taken.store(true, Relaxed);
            let newest = &(*store.control).buffers;
            let mut next = newest.load(Relaxed);
            loop {
                (*own).next = next as pg_sys::dsa_pointer;
                match newest.compare_exchange_weak(next, made, Release, Relaxed) {
                    Ok(_) => break,
                    Err(newer) => next = newer,
                }
            }
        }
        OWN.buffer.set(own);
        pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::from(0));
    }
}

/// Adds an execution to the slot of its plan; false where it has none, or the slot is to be flushed.
///
/// # Safety
/// This process must hold none of its slots. Raises nothing.
#[inline(always)]
pub(super) unsafe fn add(execution: &Execution) -> bool {
    // SAFETY: only this session writes to its slots, but for the readers, who flush them holding them.
    unsafe {
        let Some(buffer) = own_buffer() else { return false };
        let nodes = execution.figures.len();
        let slot = &raw mut (*buffer).slots[execution.plan.slot.get()];
        if (*slot).until.load(Relaxed) <= execution.run.at
            || (*slot).nodes != nodes
            || (*slot).key != execution.plan.key
        {
            return false;
        }
        let Some(_guard) = OwnerGuard::at_once(&(*slot).owner) else {
            return false;
        };
        let totals = &mut (&mut (*slot).totals)[..nodes];
        if (*slot).statistics.times.calls == 0 {
            (*slot).statistics = PlanStats::default();
            totals.iter_mut().for_each(NodeTotals::clear);
        }
        (*slot).statistics.add(&execution.run);
        entry::add_nodes(totals, execution.figures, execution.histograms);
        true
    }
}

/// Begins to keep a plan in a slot, where one is free, or due to be flushed.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises nothing.
pub(super) unsafe fn claim_slot(store: &Store, execution: &Execution) {
    // SAFETY: only this session writes to its slots, but for the readers, who flush them holding them. The caller
    // holds no lock.
    unsafe {
        let Some(buffer) = own_buffer() else { return };
        let nodes = execution.figures.len();
        if nodes > NODES {
            return;
        }
        let (plan, now) = (execution.plan, execution.run.at);
        let slots = &raw mut (*buffer).slots;
        let its = |at: &usize| (*slots)[*at].until.load(Relaxed) != 0 && (*slots)[*at].key == plan.key;
        let is_due = |at: &usize| (*slots)[*at].until.load(Relaxed) <= now;
        let Some(at) = (0..SLOTS).find(its).or_else(|| (0..SLOTS).find(is_due)) else {
            return;
        };
        // It is not due where a reader held it just now.
        if !is_due(&at) {
            return;
        }
        let slot = &raw mut (*slots)[at];
        let Some(_guard) = OwnerGuard::at_once(&(*slot).owner) else {
            return;
        };
        flush(store, buffer, at);
        (*slot).key = plan.key;
        (*slot).nodes = nodes;
        (*slot).until.store(now + KEPT, Relaxed);
        OWN.plans[at].replace(Some(plan.clone()));
        plan.slot.set(at);
    }
}

/// Flushes a slot of this session, and frees it.
///
/// # Safety
/// The caller holds the slot, and no lock. Raises nothing.
unsafe fn flush(store: &Store, buffer: *mut Buffer, at: usize) {
    // SAFETY: the caller holds the slot: nobody else reads or writes it.
    unsafe {
        let slot = &raw mut (*buffer).slots[at];
        (*slot).until.store(0, Relaxed);
        let calls = (*slot).statistics.times.calls;
        if calls > 0 {
            let pending = Batch::Pending(&(*slot).statistics, &(&(*slot).totals)[..(*slot).nodes]);
            let key = &(*slot).key;
            let kept =
                contained(|| pg_guard_ffi_boundary(|| entry::update(store, key, &pending))) == Ok(true)
                    || OWN.plans[at].borrow().as_ref().is_some_and(|plan| {
                        entry::insert_new(store, key, &plan.description.borrow(), &pending)
                    });
            if !kept {
                (*store.control).refused.fetch_add(calls, Relaxed);
            }
            (*slot).statistics.times.calls = 0;
        }
        OWN.plans[at].replace(None);
    }
}

/// Flushes the slots of all sessions whose keys are `wanted`. What was evicted meanwhile is left to its session, which can
/// describe it.
///
/// # Safety
/// In a function of the user's, not inside a boundary, holding no lock.
pub(super) unsafe fn flush_all(store: &Store, wanted: impl Fn(&PlanKey) -> bool) {
    let mut patience = Patience::of_reader();
    // SAFETY: a slot's content is only used while it is held; looked at before, it is a hint.
    unsafe {
        each_slot(store, |slot| {
            if has_pending(slot)
                && wanted(&(&raw const (*slot).key).read_volatile())
                && let Some(_guard) = wait_for(&(*slot).owner, &mut patience)
            {
                flush_others(store, slot);
            }
        });
    }
}

/// Flushes the slots that nobody holds just now.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises nothing.
pub(super) unsafe fn flush_free(store: &Store) {
    // SAFETY: a slot's content is only used while it is held; looked at before, it is a hint.
    unsafe {
        let _ = contained(|| {
            each_slot(store, |slot| {
                if has_pending(slot)
                    && let Some(_guard) = OwnerGuard::at_once(&(*slot).owner)
                {
                    flush_others(store, slot);
                }
            });
        });
    }
}

/// Forgets what sessions have not flushed yet of these plans. Their next executions make new entries.
///
/// # Safety
/// In a function of the user's, not inside a boundary, holding no lock.
pub(super) unsafe fn discard(store: &Store, unwanted: impl Fn(&PlanKey) -> bool) {
    let mut patience = Patience::of_reader();
    // SAFETY: a key that is just being replaced matches by chance at worst, which costs its plan a look-up.
    unsafe {
        each_slot(store, |slot| {
            if unwanted(&(&raw const (*slot).key).read_volatile()) {
                if has_pending(slot)
                    && let Some(_guard) = wait_for(&(*slot).owner, &mut patience)
                {
                    (*slot).statistics.times.calls = 0;
                }
                (*slot).until.store(0, Relaxed);
            }
        });
    }
}

/// Plans have been evicted: the next executions of those that have a slot are to make new entries.
///
/// # Safety
/// Not inside a boundary, holding no partition lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn invalidate_evicted(store: &Store) {
    // SAFETY: a key that is just being replaced may be missing by chance, which costs its plan a look-up.
    unsafe {
        each_slot(store, |slot| {
            if (*slot).until.load(Relaxed) != 0
                && !entry::is_known(store, &(&raw const (*slot).key).read_volatile())
            {
                (*slot).until.store(0, Relaxed);
            }
        });
    }
}

/// Returns whether a slot seems to have something to flush.
///
/// # Safety
/// `slot` must point to a slot in shared memory.
unsafe fn has_pending(slot: *mut Slot) -> bool {
    // SAFETY: a slot in shared memory; another process may be writing the number, so that this is a hint.
    unsafe { (&raw const (*slot).statistics.times.calls).read_volatile() > 0 }
}

/// Flushes a slot of any session.
///
/// # Safety
/// The caller holds the slot. Raises where memory cannot be mapped in.
unsafe fn flush_others(store: &Store, slot: *mut Slot) {
    // SAFETY: the caller holds the slot: nobody else reads or writes it.
    unsafe {
        if (*slot).statistics.times.calls == 0 {
            return;
        }
        let pending = Batch::Pending(&(*slot).statistics, &(&(*slot).totals)[..(*slot).nodes]);
        if pg_guard_ffi_boundary(|| entry::update(store, &(*slot).key, &pending)) {
            (*slot).statistics.times.calls = 0;
        }
    }
}

/// A session ends: while its shared memory is still mapped, and before the server counts it as gone.
///
/// # Safety
/// To be called by PostgreSQL only, before this process detaches from shared memory.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    // SAFETY: the store was there when this was registered, and shared memory is still mapped. This session's buffer
    // is its own.
    unsafe {
        let (Some(store), Some(buffer)) = (super::STORE.get(), own_buffer()) else {
            return;
        };
        // Errors are fatal here, and nothing raises them where there is room. Others find what this process leaves.
        if memory::can_map((*store.control).mapped_bytes()) {
            let mut patience = Patience::at_exit();
            for at in 0..SLOTS {
                let owner = &raw const (*buffer).slots[at].owner;
                if let Some(_guard) = wait_for(&*owner, &mut patience) {
                    flush(&store, buffer, at);
                }
            }
        }
        (*buffer).taken.store(false, Release);
        OWN.buffer.set(std::ptr::null_mut());
    }
}

/// Returns this session's buffer, if it has one.
#[inline(always)]
fn own_buffer() -> Option<*mut Buffer> {
    Some(OWN.buffer.get()).filter(|buffer| !buffer.is_null())
}

/// Visits all sessions' slots.
///
/// # Safety
/// * Not inside a boundary. Raises where memory cannot be mapped in.
/// * `visit` gets slots that other processes use at the same time: it must hold a slot before it looks at more than
///   atomics.
unsafe fn each_slot(store: &Store, mut visit: impl FnMut(*mut Slot)) {
    // SAFETY: buffers are never freed. A slot's address is made without a reference to what others write to.
    unsafe {
        each_buffer(store, |buffer| {
            for at in 0..SLOTS {
                visit(&raw mut (*buffer).slots[at]);
            }
        });
    }
}

/// Visits all sessions' buffers.
///
/// # Safety
/// * Not inside a boundary. Raises where memory cannot be mapped in.
/// * `visit` gets buffers that other processes use at the same time: it must not make references to more than their
///   atomics.
unsafe fn each_buffer(store: &Store, mut visit: impl FnMut(*mut Buffer)) {
    // SAFETY: buffers are never freed, and complete before they are in the list.
    unsafe {
        let mut at = (*store.control).buffers.load(Acquire);
        while at != 0 {
            let buffer: *mut Buffer = pg_sys::dsa_get_address(store.pending, at).cast();
            visit(buffer);
            at = (*buffer).next;
        }
    }
}
