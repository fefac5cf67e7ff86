//! The sessions' buffers in shared memory: what a session's short plans did and has not reached the store yet. The protocol is
//! that of `rowsource_core::pending`.
//!
//! Nothing is hidden by the buffers: who reads the store first flushes all sessions' slots. The session itself flushes a slot
//! after a second, when another plan needs it, and when it ends.
//!
//! A slot is guarded by an atomic owner pid instead of an LWLock: acquiring an LWLock costs a short statement as much as
//! adding to its statistics. Who waits for a slot holds no lock.

use super::access::Store;
use super::entry;
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::contained;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::eviction::Candidate;
use rowsource_core::model::{Batch, ExecutionStats, NodeTotals, PlanDescription, PlanKey, PlanStats};
use rowsource_core::pending::{self, Key};
use rustc_hash::FxBuildHasher;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Plans that a session's buffer holds at the same time.
const SLOTS: usize = 8;
/// Larger plans go to the store at once: they take longer than that does.
const NODES: usize = 8;
/// Microseconds until a slot is flushed.
const KEPT: i64 = 1_000_000;

/// Where a session keeps which slot of its buffer a plan has, if any.
#[derive(Default)]
pub struct PlanSlot(Cell<usize>);

/// A plan as a session hands it to the store.
#[derive(Clone, Copy)]
pub struct PlanRef<'a> {
    pub key: &'a PlanKey,
    pub slot: &'a PlanSlot,
    pub description: &'a Rc<PlanDescription>,
}

/// What a slot is kept for.
#[derive(Clone, Copy, Default, PartialEq)]
#[repr(C)]
struct SlotKey {
    plan: PlanKey,
    /// The plan's nodes, at most [`NODES`].
    nodes: usize,
}

/// What a slot is looked for by.
struct Wanted<'a> {
    plan: &'a PlanKey,
    nodes: usize,
}

impl PartialEq<Wanted<'_>> for SlotKey {
    #[inline(always)]
    fn eq(&self, wanted: &Wanted<'_>) -> bool {
        self.nodes == wanted.nodes && self.plan.is(wanted.plan)
    }
}

impl Key for SlotKey {
    fn tag(&self) -> u64 {
        tag(&self.plan)
    }
}

/// Returns a number that tells most plans apart.
fn tag(plan: &PlanKey) -> u64 {
    FxBuildHasher.hash_one(plan)
}

/// What one plan did.
#[derive(Default)]
#[repr(C)]
struct Sum {
    plan: PlanStats,
    nodes: [NodeTotals; NODES],
}

impl Sum {
    /// Returns it as the store takes it. `key` is its slot's.
    fn batch(&self, key: &SlotKey) -> Batch<'_> {
        Batch::Sum(&self.plan, self.nodes.get(..key.nodes).unwrap_or_default())
    }
}

type Slot = pending::Slot<SlotKey, Sum>;
type SlotGuard<'a> = pending::SlotGuard<'a, SlotKey, Sum>;
type Buffer = pending::Buffer<SlotKey, Sum, SLOTS>;
type OwnBuffer = pending::OwnBuffer<'static, SlotKey, Sum, SLOTS>;

pub(super) const BUFFER_SIZE: usize = size_of::<Buffer>();

// PostgreSQL aligns what it allocates to this.
const _: () = assert!(align_of::<Buffer>() <= pg_sys::MAXIMUM_ALIGNOF as usize);

/// What this session has of the buffers.
struct Own {
    buffer: Cell<Option<OwnBuffer>>,
    /// Describe the plans of the slots: for the store, where it meets one again that was evicted.
    descriptions: [RefCell<Option<Rc<PlanDescription>>>; SLOTS],
}

static OWN: BackendLocal<Own> = BackendLocal::new(Own {
    buffer: Cell::new(None),
    descriptions: [const { RefCell::new(None) }; SLOTS],
});

/// Returns this session's buffer, if it has one.
///
/// # Safety
/// The caller must not keep the reference beyond [`attach_backend`] or [`leave`].
#[inline(always)]
unsafe fn own() -> Option<&'static OwnBuffer> {
    // SAFETY: only this thread uses the cell. It changes only in the two functions that the caller knows of.
    unsafe { (*OWN.buffer.as_ptr()).as_ref() }
}

/// Gives this session a buffer. Returns whether there is one.
///
/// # Safety
/// Not inside a boundary, holding no lock. Raises where memory cannot be mapped in.
pub(super) unsafe fn attach_backend(store: &Store) -> bool {
    // SAFETY: the store stays, and so do buffers. A new one is zero bytes, which the protocol wants, and which are valid
    // statistics.
    unsafe {
        let own = (*store.control).buffers.attach(
            server::pid(),
            |address| buffer_at(store, address),
            || {
                let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
                let made = pg_sys::dsa_allocate_extended(store.pending, BUFFER_SIZE, flags);
                (made != 0).then_some(made)
            },
        );
        let attached = own.is_some();
        OWN.buffer.set(own);
        attached
    }
}

/// Adds an execution to the slot of its plan; false where it has none, or the slot is to be flushed. Raises nothing.
#[inline(always)]
pub(super) fn add(plan: PlanRef<'_>, execution: ExecutionStats<'_>) -> bool {
    // SAFETY: the reference is not used beyond this function, which does not attach or leave.
    let Some(own) = (unsafe { own() }) else {
        return false;
    };
    let nodes = execution.nodes.len();
    if nodes > NODES {
        return false;
    }
    let key = Wanted {
        plan: plan.key,
        nodes,
    };
    let Some(mut slot) = own.add_to(plan.slot.0.get(), &key, execution.run.at) else {
        return false;
    };
    let is_empty = slot.is_empty();
    let sum = slot.value();
    let totals = sum.nodes.get_mut(..nodes).unwrap_or_default();
    if is_empty {
        sum.plan = PlanStats::default();
        totals.iter_mut().for_each(NodeTotals::clear);
    }
    sum.plan.add(execution.run);
    execution.add_to_nodes(totals);
    true
}

/// Begins to keep a plan in a slot, where one is free, or due to be flushed to `sink`.
///
/// `sink` gets a plan's key, its description if this session has one, and what the plan did. It is called while the slot is
/// held, and must not raise.
pub(super) fn claim_slot(
    plan: PlanRef<'_>,
    execution: ExecutionStats<'_>,
    sink: impl FnOnce(&PlanKey, Option<&PlanDescription>, &Batch),
) {
    // SAFETY: the reference is not used beyond this function, which does not attach or leave.
    let Some(own) = (unsafe { own() }) else { return };
    let nodes = execution.nodes.len();
    if nodes > NODES {
        return;
    }
    let key = SlotKey {
        plan: *plan.key,
        nodes,
    };
    let now = execution.run.at;
    let claimed = own.claim(key, now, now + KEPT, |at, key, sum| {
        hand_to(sink, at, key, sum);
    });
    if let Some(at) = claimed {
        OWN.descriptions[at].replace(Some(plan.description.clone()));
        plan.slot.0.set(at);
    }
}

/// Flushes all slots of this session to `sink`, which is as in [`claim_slot`]. Does not wait long for readers: what one of them
/// holds then is left to others.
pub(super) fn flush_own(mut sink: impl FnMut(&PlanKey, Option<&PlanDescription>, &Batch)) {
    // SAFETY: the reference is not used beyond this function, which does not attach or leave.
    let Some(own) = (unsafe { own() }) else { return };
    let mut patience = Patience::at_exit();
    for (at, slot) in own.slots().iter().enumerate() {
        if let Some(guard) = wait_for(slot, &mut patience) {
            own.flush(at, &guard, |at, key, sum| hand_to(&mut sink, at, key, sum));
            OWN.descriptions[at].replace(None);
        }
    }
}

/// Hands the slot `at` of this session to a sink.
fn hand_to(
    sink: impl FnOnce(&PlanKey, Option<&PlanDescription>, &Batch),
    at: usize,
    key: &SlotKey,
    sum: &Sum,
) {
    let description = OWN.descriptions[at].borrow();
    sink(&key.plan, description.as_deref(), &sum.batch(key));
}

/// Leaves this session's buffer to the next session.
pub(super) fn leave() {
    OWN.buffer.set(None);
}

/// Flushes the slots of all sessions. A plan that was evicted is left to its session, which can describe it.
///
/// # Safety
/// In a function of the user's, not inside a boundary, holding no lock.
pub(super) unsafe fn flush_all(store: &Store) {
    // SAFETY: the caller's promise.
    unsafe { flush(store, None, Patience::of_reader()) }
}

/// Flushes the slots of one plan, as [`flush_all`] does.
///
/// # Safety
/// In a function of the user's, not inside a boundary, holding no lock.
pub(super) unsafe fn flush_plan(store: &Store, plan: &PlanKey) {
    // SAFETY: the caller's promise.
    unsafe { flush(store, Some(plan), Patience::of_reader()) }
}

/// Flushes the slots that nobody holds just now.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
pub(super) unsafe fn flush_free(store: &Store) {
    // SAFETY: the caller's promise; errors end here.
    let _ = contained(|| unsafe { flush(store, None, Patience::none()) });
}

/// Flushes the slots of all sessions: those of one plan, if one is named.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises where memory cannot be mapped in.
unsafe fn flush(store: &Store, plan: Option<&PlanKey>, mut patience: Patience) {
    let tag = plan.map(tag);
    // SAFETY: the caller holds no lock; the store stays.
    unsafe {
        each_slot(store, |slot| {
            if slot.seems_filled(tag)
                && let Some(guard) = wait_for(slot, &mut patience)
            {
                guard.flush(|key, sum| {
                    plan.is_none_or(|plan| *plan == key.plan)
                        && pg_guard_ffi_boundary(|| entry::update(store, &key.plan, &sum.batch(key)))
                });
            }
        });
    }
}

/// Forgets what sessions have not flushed yet of these plans. Their next executions make new entries.
///
/// # Safety
/// In a function of the user's, not inside a boundary, holding no lock.
pub(super) unsafe fn discard(store: &Store, unwanted: impl Fn(&PlanKey) -> bool) {
    let mut patience = Patience::of_reader();
    // SAFETY: the caller's promise.
    unsafe {
        each_slot(store, |slot| {
            if slot.seems_used() {
                match wait_for(slot, &mut patience) {
                    Some(guard) if unwanted(&guard.key().plan) => guard.discard(),
                    Some(_) => (),
                    // Its plan may be one of them: the session is to look it up.
                    None => slot.invalidate(|_| true),
                }
            }
        });
    }
}

/// Plans have been evicted: the next executions of those that have a slot are to make new entries.
///
/// # Safety
/// Not inside a boundary, holding no lock but a slot. Raises nothing.
pub(super) unsafe fn invalidate(store: &Store, evicted: &[Candidate<PlanKey>]) {
    if evicted.is_empty() {
        return;
    }
    let mut tags: Vec<u64> = Vec::new();
    let listed = tags.try_reserve_exact(evicted.len()).is_ok();
    if listed {
        tags.extend(evicted.iter().map(|plan| tag(&plan.key)));
        tags.sort_unstable();
    }
    // A plan that is looked up in vain costs its session a little time.
    let gone = |tag: u64| !listed || tags.binary_search(&tag).is_ok();
    // SAFETY: the caller's promise; errors end here.
    let _ = contained(|| unsafe { each_slot(store, |slot| slot.invalidate(gone)) });
}

/// Waits for a slot as long as there is patience, and may be cancelled meanwhile.
fn wait_for<'a>(slot: &'a Slot, patience: &mut Patience) -> Option<SlotGuard<'a>> {
    loop {
        let guard = slot.try_hold(server::pid());
        if guard.is_some() || patience.most.is_zero() {
            return guard;
        }
        if !patience.pause() {
            return slot.hold_or_inherit(server::pid(), server::is_alive);
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

    /// Of who does not wait at all.
    fn none() -> Self {
        Patience {
            until: None,
            most: Duration::ZERO,
            cancellable: false,
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

/// Visits the slots of all sessions.
///
/// # Safety
/// Not inside a boundary. Raises where memory cannot be mapped in.
unsafe fn each_slot(store: &Store, visit: impl FnMut(&'static Slot)) {
    // SAFETY: the store stays, and the list has only buffers' addresses.
    unsafe {
        let list = &(*store.control).buffers;
        list.each_slot(|address| buffer_at(store, address), visit);
    }
}

/// Returns the buffer at an address.
///
/// # Safety
/// * `address` must be that of a buffer in the store's area.
/// * Not inside a boundary. Raises where memory cannot be mapped in.
unsafe fn buffer_at(store: &Store, address: u64) -> &'static Buffer {
    // SAFETY: there is a buffer, by the caller's promise. Buffers are never freed, and the area stays mapped.
    unsafe { &*pg_sys::dsa_get_address(store.pending, address).cast::<Buffer>() }
}
