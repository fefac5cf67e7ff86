//! The sessions' buffers in shared memory. They hold the executions of short plans that are not in the store
//! yet. The protocol is in `rowsource_core::pending`.
//!
//! The buffers hide nothing: readers flush the slots of all sessions before they read the store. The session
//! itself flushes a slot after a second, when another plan needs the slot, when it runs another plan of the
//! same query, and when it ends.
//!
//! The memory for a slot's sum is allocated when the session first uses the slot, and belongs to the slot
//! from then on.
//!
//! Each slot is guarded by an atomic owner pid instead of an LWLock, because acquiring an LWLock costs a
//! short statement as much as adding to its statistics. A process that waits for a slot holds no LWLock.

use super::access::Store;
use super::slot_wait::SlotWait;
use super::{entry, evict};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use crate::pg::server::contained::{self, Unlocked, contained};
use pgrx::pg_sys;
use rowsource_core::eviction::Candidate;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::partitions::{PartitionSum, PendingPartitions};
use rowsource_core::model::{
    Batch, ExecutionStats, Late, LazyDescription, MIN_SLOWEST_MS, Outside, PlanKey, Run,
};
use rowsource_core::pending::{self, Key};
use rowsource_core::results::{Counts, PlanSum};
use rustc_hash::FxBuildHasher;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;

/// The number of plans that a session's buffer holds at the same time.
const SLOTS: usize = 8;
/// Microseconds until a slot is flushed.
const FLUSH_AFTER_US: i64 = 1_000_000;
/// How often in that time a session flushes a slot because it runs another plan of the same query. So plans
/// that it uses in turn cost no more than others.
const MAX_TURNS: u32 = 4;

/// What a session knows of a plan in the store.
pub struct PlanSlot {
    /// The number of the slot that the plan last had in the session's buffer. Another plan may have the slot
    /// by now.
    at: Cell<usize>,
    /// The session has recorded an execution of it. Many plans run once.
    pub(super) has_run: Cell<bool>,
    /// The milliseconds that an execution must exceed to be kept as the slowest one, or to enter the ring of
    /// executions, when the session last looked.
    pub(super) slowest_ms: Cell<f64>,
}

impl Default for PlanSlot {
    fn default() -> Self {
        PlanSlot {
            at: Cell::new(0),
            has_run: Cell::new(false),
            slowest_ms: Cell::new(MIN_SLOWEST_MS),
        }
    }
}

/// A plan as a session passes it to the store.
#[derive(Clone, Copy)]
pub struct PlanRef<'a> {
    pub key: &'a PlanKey,
    pub slot: &'a PlanSlot,
    pub description: &'a Rc<LazyDescription>,
}

/// The plan that a slot is kept for.
#[derive(Clone, Copy, Default, PartialEq)]
#[repr(C)]
struct SlotKey {
    plan: PlanKey,
    /// The number of the plan's nodes, at most [`PlanSum::MAX_NODES`].
    nodes: usize,
}

/// A [`SlotKey`] without a copy of the plan's key, for comparisons.
struct BorrowedSlotKey<'a> {
    plan: &'a PlanKey,
    nodes: usize,
}

impl PartialEq<BorrowedSlotKey<'_>> for SlotKey {
    #[inline(always)]
    fn eq(&self, other: &BorrowedSlotKey<'_>) -> bool {
        self.nodes == other.nodes && self.plan.is(other.plan)
    }
}

impl Key for SlotKey {
    fn tag(&self) -> u64 {
        tag(&self.plan)
    }
}

/// Returns a number that distinguishes most plans.
fn tag(plan: &PlanKey) -> u64 {
    FxBuildHasher.hash_one(plan)
}

/// The address of a slot's sum in the store's area; 0 if it has no memory yet. A slot that is kept for a plan
/// has some. The sum belongs to the holder of the slot.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct SumAddress(u64);

type Slot = pending::Slot<SlotKey, SumAddress>;
type Adding<'a> = pending::Adding<'a, SlotKey, SumAddress>;
type Buffer = pending::Buffer<SlotKey, SumAddress, SLOTS>;
type OwnBuffer = pending::OwnBuffer<'static, SlotKey, SumAddress, SLOTS>;

/// PostgreSQL's allocator places pieces of this size at multiples of it. So no two sessions share a cache
/// line.
const BUFFER_SIZE: usize = 1024;
const SUM_SIZE: usize = size_of::<PlanSum>();
/// What the layout of the buffers depends on.
pub(super) const SIZES: [usize; 2] = [size_of::<Buffer>(), SUM_SIZE];

// PostgreSQL aligns allocated memory to `MAXIMUM_ALIGNOF`.
const _: () = assert!(align_of::<Buffer>() <= pg_sys::MAXIMUM_ALIGNOF as usize);
const _: () = assert!(size_of::<Buffer>() <= BUFFER_SIZE);
const _: () = assert!(align_of::<PlanSum>() <= pg_sys::MAXIMUM_ALIGNOF as usize);

/// This session's buffer.
struct Own {
    buffer: Cell<Option<OwnBuffer>>,
    /// Where the sums of the slots are in this process. Null for a slot that the session has not used.
    sums: [Cell<*mut PlanSum>; SLOTS],
    /// When the session may ask for memory for a slot again, after there was none.
    ask_at: Cell<i64>,
    /// The descriptions of the slots' plans. The store needs one if the plan was evicted.
    descriptions: [RefCell<Option<Rc<LazyDescription>>>; SLOTS],
    /// When a period of [`FLUSH_AFTER_US`] ends, and how often in it the session ran another plan of a query.
    turns: Cell<(i64, u32)>,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OWN: BackendLocal<Own> = BackendLocal::new(Own {
    buffer: Cell::new(None),
    sums: [const { Cell::new(std::ptr::null_mut()) }; SLOTS],
    ask_at: Cell::new(0),
    descriptions: [const { RefCell::new(None) }; SLOTS],
    turns: Cell::new((0, 0)),
});

/// Returns this session's buffer, if it has one.
///
/// # Safety
/// The caller must not use the reference after a call of [`attach_backend`] or [`release_buffer`].
#[inline(always)]
unsafe fn own() -> Option<&'static OwnBuffer> {
    // SAFETY: a backend has one thread that uses the cell. Only `attach_backend` and `release_buffer` change
    // it, and the caller does not use the reference after them.
    unsafe { (*OWN.buffer.as_ptr()).as_ref() }
}

/// Gives this session a buffer. Returns whether it got one. Raises if memory cannot be mapped.
pub(super) fn attach_backend(store: &Store) -> bool {
    // SAFETY: the store stays mapped until the process ends, and buffers are never freed. The list contains
    // only addresses of buffers. A new buffer is `BUFFER_SIZE` zero bytes: a valid empty buffer, because zero
    // bytes are valid keys and addresses.
    unsafe {
        let own = store.control().buffers.attach(
            server::pid(),
            |address| buffer_at(store, address),
            || {
                let made = allocate(store, BUFFER_SIZE);
                (made != 0).then_some(made)
            },
        );
        let attached = own.is_some();
        OWN.buffer.set(own);
        attached
    }
}

/// Allocates zero bytes. Returns 0 if there is no memory, or raises.
fn allocate(store: &Store, size: usize) -> u64 {
    let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
    // SAFETY: the area is attached.
    unsafe { pg_sys::dsa_allocate_extended(store.pending(), size, flags) }
}

/// Adds an execution to the slot of its plan. Returns false if the plan has no slot, the slot must be
/// flushed, or a reader holds it. Raises nothing.
#[inline(always)]
pub(super) fn add(plan: PlanRef<'_>, execution: ExecutionStats<'_>) -> bool {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else {
        return false;
    };
    let nodes = execution.nodes.len();
    if nodes > PlanSum::MAX_NODES || execution.partitions.len() > PendingPartitions::MAX {
        return false;
    }
    let key = BorrowedSlotKey {
        plan: plan.key,
        nodes,
    };
    let at = plan.slot.at.get();
    let Some(mut slot) = Held::hold(own, at, &key, execution.run.at) else {
        return false;
    };
    slot.sum(nodes).add(&execution) || refuse(own, at)
}

/// Adds an execution to the slot of its plan, as [`add`] does, if its statistics are not computed yet, and
/// the commit of the execution before, if it is given.
#[inline(always)]
pub(super) fn add_counts<'h>(
    plan: PlanRef<'_>,
    run: &Run,
    outside: Option<&Outside<'_>>,
    (counts, partitions): (&Counts, &[PartitionSum]),
    histograms: impl Iterator<Item = &'h Histogram>,
    committed: Option<&Run>,
) -> bool {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else {
        return false;
    };
    let key = BorrowedSlotKey {
        plan: plan.key,
        nodes: counts.count(),
    };
    let at = plan.slot.at.get();
    let Some(mut slot) = Held::hold(own, at, &key, run.at) else {
        return false;
    };
    let sum = slot.sum(counts.count());
    if !sum.add_partitions(partitions) {
        return refuse(own, at);
    }
    sum.add_counts(run, outside, counts, histograms);
    if let Some(committed) = committed {
        sum.add_late(Late::Commit(committed));
    }
    true
}

/// Notes that a slot has no room for more partitions, and must be flushed. Returns false.
#[cold]
#[inline(never)]
fn refuse(own: &OwnBuffer, at: usize) -> bool {
    if let Some(slot) = own.slots().get(at) {
        slot.invalidate(|_| true);
    }
    false
}

/// A slot of this session that it holds, to add to its sum.
struct Held {
    slot: Adding<'static>,
    sum: *mut PlanSum,
}

impl Held {
    /// Holds a slot. Returns `None` if it is not kept for the key, must be flushed, or is held by a reader.
    #[inline(always)]
    fn hold(own: &OwnBuffer, at: usize, key: &BorrowedSlotKey<'_>, now: i64) -> Option<Held> {
        // An ended session may have left its buffer with a slot for the same plan.
        let sum = OWN.inner().sums.get(at)?.get();
        if sum.is_null() {
            return None;
        }
        let slot = own.add_to(at, key, now)?;
        Some(Held { slot, sum })
    }

    /// Returns the sum, of a plan with so many nodes. That of an empty slot is an old one, which is cleared.
    #[inline(always)]
    fn sum(&mut self, nodes: usize) -> &mut PlanSum {
        // SAFETY: the memory belongs to the slot, is never freed, and is a valid sum. Whoever uses the sum
        // holds the slot: this session does as long as the reference lives.
        let sum = unsafe { &mut *self.sum };
        if self.slot.is_empty() {
            sum.clear(nodes);
        }
        sum
    }
}

/// Adds what came after the end of an execution, which ended at this time, to the slot of its plan. Returns
/// false if the plan has no slot, the slot must be flushed, or a reader holds it. Also returns false if the
/// slot is empty: then the store has the execution. Raises nothing.
#[inline(always)]
pub(super) fn add_late(plan: PlanRef<'_>, at: i64, nodes: usize, late: Late<'_>) -> bool {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else {
        return false;
    };
    let key = BorrowedSlotKey {
        plan: plan.key,
        nodes,
    };
    let number = plan.slot.at.get();
    if !own
        .slots()
        .get(number)
        .is_some_and(|slot| slot.seems_filled(None))
    {
        return false;
    }
    let Some(mut slot) = Held::hold(own, number, &key, at) else {
        return false;
    };
    // A reader may have flushed it just now.
    slot.sum(nodes).add_late(late);
    true
}

/// Keeps a slot for a plan from now on, if one is free, or can be flushed to `sink`, and if there is memory
/// for its sum.
///
/// `sink` gets a plan's key, its description if this session has one, and the statistics. It is called while
/// the slot is held, and must not raise. Raises nothing.
pub(super) fn claim_slot(
    store: &Store,
    unlocked: &mut Unlocked,
    plan: PlanRef<'_>,
    execution: ExecutionStats<'_>,
    sink: impl FnOnce(&mut Unlocked, &PlanKey, Option<&LazyDescription>, &Batch),
) {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else { return };
    let nodes = execution.nodes.len();
    if nodes > PlanSum::MAX_NODES {
        return;
    }
    let key = SlotKey {
        plan: *plan.key,
        nodes,
    };
    let now = execution.run.at;
    if now < OWN.ask_at.get() {
        return;
    }
    let unlocked = RefCell::new(unlocked);
    let prepare = |at, sum: &mut SumAddress| {
        let is_found = find_sum(store, &mut unlocked.borrow_mut(), at, sum);
        if !is_found {
            OWN.ask_at.set(now + FLUSH_AFTER_US);
        }
        is_found
    };
    let claimed = own.claim(key, now, now + FLUSH_AFTER_US, prepare, |at, key, _| {
        pass_to(&mut unlocked.borrow_mut(), sink, at, key);
    });
    if let Some(at) = claimed {
        OWN.descriptions[at].replace(Some(plan.description.clone()));
        plan.slot.at.set(at);
    }
}

/// Notes where the sum of this session's slot `at` is. Allocates it if the slot was never used. Returns false
/// if there is no memory. Raises nothing.
fn find_sum(store: &Store, unlocked: &mut Unlocked, at: usize, sum: &mut SumAddress) -> bool {
    if !OWN.sums[at].get().is_null() {
        return true;
    }
    let found = contained(unlocked, |_| {
        if sum.0 == 0 {
            sum.0 = allocate(store, SUM_SIZE);
        }
        match sum.0 {
            0 => std::ptr::null_mut(),
            // SAFETY: the address is that of a sum, which stays mapped until the process ends.
            address => unsafe { pg_sys::dsa_get_address(store.pending(), address).cast() },
        }
    });
    let found = found.unwrap_or(std::ptr::null_mut());
    OWN.sums[at].set(found);
    !found.is_null()
}

/// Flushes the slots of other plans of the same query to `sink`, see [`claim_slot`], and frees them. So the
/// store knows in which order the session ran the plans. It does nothing if that happens too often, or if a
/// reader holds the slot.
pub(super) fn flush_other_plans(
    unlocked: &mut Unlocked,
    plan: &PlanKey,
    now: i64,
    mut sink: impl FnMut(&mut Unlocked, &PlanKey, Option<&LazyDescription>, &Batch),
) {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else { return };
    if plan.queryid == 0 {
        return;
    }
    for (at, slot) in own.slots().iter().enumerate() {
        let is_own = slot.seems_used() && !OWN.sums[at].get().is_null();
        let Some(guard) = is_own.then(|| slot.try_hold(server::pid())).flatten() else {
            continue;
        };
        let other = guard.key().plan;
        if other != *plan && other.is_same_query(plan) && may_take_turns(now) {
            own.flush(at, &guard, |at, key, _| pass_to(unlocked, &mut sink, at, key));
        }
    }
}

/// Returns whether the session may flush a slot because it runs another plan of a query now.
fn may_take_turns(now: i64) -> bool {
    let (until, turns) = match OWN.turns.get() {
        (until, turns) if now < until => (until, turns),
        _ => (now + FLUSH_AFTER_US, 0),
    };
    OWN.turns.set((until, turns + 1));
    turns < MAX_TURNS
}

/// Flushes all slots of this session to `sink`, see [`claim_slot`]. Waits for readers up to 0.1 s in total.
/// Other processes can later flush the slots that a reader still holds then.
pub(super) fn flush_own(
    unlocked: &mut Unlocked,
    mut sink: impl FnMut(&mut Unlocked, &PlanKey, Option<&LazyDescription>, &Batch),
) {
    // SAFETY: the reference is used only in this function, which neither attaches nor releases the buffer.
    let Some(own) = (unsafe { own() }) else { return };
    let mut wait = SlotWait::at_exit();
    for (at, slot) in own.slots().iter().enumerate() {
        if !OWN.sums[at].get().is_null()
            && let Some(guard) = wait.hold(slot)
        {
            own.flush(at, &guard, |at, key, _| pass_to(unlocked, &mut sink, at, key));
            OWN.descriptions[at].replace(None);
        }
    }
}

/// Passes the content of this session's slot `at`, which it holds and has used, to a sink.
fn pass_to(
    unlocked: &mut Unlocked,
    sink: impl FnOnce(&mut Unlocked, &PlanKey, Option<&LazyDescription>, &Batch),
    at: usize,
    key: &SlotKey,
) {
    let description = OWN.descriptions[at].borrow();
    // SAFETY: the pointer is null, or that of the slot's sum, which is never freed. Whoever uses the sum
    // holds the slot.
    let Some(sum) = (unsafe { OWN.sums[at].get().as_ref() }) else {
        return;
    };
    sum.with_batch(key.nodes, |batch| {
        sink(unlocked, &key.plan, description.as_deref(), batch);
    });
}

/// Releases this session's buffer. Another session can take it.
pub(super) fn release_buffer() {
    OWN.sums.iter().for_each(|sum| sum.set(std::ptr::null_mut()));
    OWN.buffer.set(None);
}

/// Flushes the slots of all sessions. Executions of evicted plans are added to the sums of their databases,
/// because only their sessions can describe them. Raises if memory cannot be mapped.
pub(super) fn flush_all(store: &Store, unlocked: &mut Unlocked) {
    flush(store, unlocked, None, SlotWait::of_reader());
}

/// Flushes the slots of one plan, as [`flush_all`] does.
pub(super) fn flush_plan(store: &Store, unlocked: &mut Unlocked, plan: &PlanKey) {
    flush(store, unlocked, Some(plan), SlotWait::of_reader());
}

/// Flushes the slots of all sessions, as [`flush_all`] does, without a long wait for those that others hold.
pub(super) fn flush_soon(store: &Store, unlocked: &mut Unlocked) {
    flush(store, unlocked, None, SlotWait::at_exit());
}

/// Flushes the slots that nobody holds now. Raises nothing.
pub(super) fn flush_free(store: &Store, unlocked: &mut Unlocked) {
    contained::attempt(unlocked, "flush buffers", |unlocked| {
        flush(store, unlocked, None, SlotWait::none());
    });
}

/// Flushes the slots of all sessions. If a plan is given, flushes only its slots. Raises if memory cannot be
/// mapped.
fn flush(store: &Store, unlocked: &mut Unlocked, plan: Option<&PlanKey>, mut wait: SlotWait) {
    let tag = plan.map(tag);
    each_slot(store, |slot| {
        if slot.seems_filled(tag)
            && let Some(guard) = wait.hold(slot)
        {
            guard.flush(|key, sum| {
                let is_wanted = plan.is_none_or(|plan| *plan == key.plan);
                if is_wanted {
                    // SAFETY: a slot that is filled has a sum, which is never freed, and belongs to its
                    // holder.
                    let sum = unsafe { &*pg_sys::dsa_get_address(store.pending(), sum.0).cast::<PlanSum>() };
                    sum.with_batch(key.nodes, |batch| {
                        if entry::update(store, &key.plan, batch).is_none() {
                            evict::add_to_others(store, unlocked, &key.plan, batch);
                        }
                    });
                }
                is_wanted
            });
        }
    });
}

/// Discards the unflushed executions of the plans that `is_unwanted` selects. Later executions make new
/// entries. Raises if memory cannot be mapped.
pub(super) fn discard(store: &Store, is_unwanted: impl Fn(&PlanKey) -> bool) {
    let mut wait = SlotWait::of_reader();
    each_slot(store, |slot| {
        if slot.seems_used() {
            match wait.hold(slot) {
                Some(guard) if is_unwanted(&guard.key().plan) => guard.discard(),
                Some(_) => (),
                // The slot's plan may be an unwanted one. So the session must look it up in the store.
                None => slot.invalidate(|_| true),
            }
        }
    });
}

/// Makes the sessions look up the evicted plans again. Their next executions make new entries. Raises
/// nothing.
pub(super) fn invalidate(store: &Store, unlocked: &mut Unlocked, evicted: &[Candidate<PlanKey>]) {
    if evicted.is_empty() {
        return;
    }
    let mut tags: Vec<u64> = Vec::new();
    let listed = tags.try_reserve_exact(evicted.len()).is_ok();
    if listed {
        tags.extend(evicted.iter().map(|plan| tag(&plan.key)));
        tags.sort_unstable();
    }
    // Without memory for the tags, this is true for each plan. An unnecessary lookup only costs its session a
    // little time.
    let may_be_evicted = |tag: u64| !listed || tags.binary_search(&tag).is_ok();
    contained::attempt(unlocked, "invalidate buffers", |_| {
        each_slot(store, |slot| slot.invalidate(may_be_evicted));
    });
}

/// Visits the slots of all sessions. Raises if memory cannot be mapped.
fn each_slot(store: &Store, visit: impl FnMut(&'static Slot)) {
    // SAFETY: the list contains only addresses of buffers.
    unsafe {
        let list = &store.control().buffers;
        list.each_slot(|address| buffer_at(store, address), visit);
    }
}

/// Returns the buffer at an address. Raises if memory cannot be mapped.
///
/// # Safety
/// `address` must be the address of a buffer in the store's area.
unsafe fn buffer_at(store: &Store, address: u64) -> &'static Buffer {
    // SAFETY: the caller ensures that there is a buffer. Buffers are never freed, and the area stays mapped
    // until the process ends.
    unsafe { &*pg_sys::dsa_get_address(store.pending(), address).cast::<Buffer>() }
}
