//! Runs the protocol of the sessions' buffers through all schedules and memory orders that a model checker (loom) can
//! distinguish, with up to three preemptions (two if there are three threads). Loom also finds cells that two threads use
//! without synchronization.
//!
//! The store is a pair of relaxed atomics, so that only the protocol synchronizes threads.

#![allow(unsafe_code, reason = "the model checker's cells")]

use loom::sync::atomic::{AtomicI32, AtomicI64, AtomicU64};
use loom::thread;
use rowsource_core::pending::{Atomic, Atomics, Buffer, Key, List, OwnBuffer, SharedCell, Slot, SlotGuard};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

/// Maps the ordering that the protocol requests to the one that the atomic uses.
trait Orderings: 'static {
    fn used(requested: Ordering) -> Ordering;
}

/// The orderings that the protocol requests.
struct AsRequested;

impl Orderings for AsRequested {
    fn used(requested: Ordering) -> Ordering {
        requested
    }
}

/// No ordering at all. Loom must report an error.
struct NoOrder;

impl Orderings for NoOrder {
    fn used(_requested: Ordering) -> Ordering {
        Relaxed
    }
}

/// Without acquire. Loom must report an error.
struct NoAcquire;

impl Orderings for NoAcquire {
    fn used(requested: Ordering) -> Ordering {
        match requested {
            Ordering::Acquire => Relaxed,
            other => other,
        }
    }
}

/// Without release. Loom must report an error.
struct NoRelease;

impl Orderings for NoRelease {
    fn used(requested: Ordering) -> Ordering {
        match requested {
            Ordering::Release => Relaxed,
            other => other,
        }
    }
}

struct Loom<O>(PhantomData<O>);

impl<O: Orderings> Atomics for Loom<O> {
    type I32 = Ordered<AtomicI32, O>;
    type I64 = Ordered<AtomicI64, O>;
    type U64 = Ordered<AtomicU64, O>;
    type Cell<T> = LoomCell<T>;
}

struct Ordered<T, O>(T, PhantomData<fn(O)>);

macro_rules! ordered {
    ($atomic:ty, $value:ty) => {
        impl<O: Orderings> Atomic<$value> for Ordered<$atomic, O> {
            fn new(value: $value) -> Self {
                Ordered(<$atomic>::new(value), PhantomData)
            }

            fn load(&self, order: Ordering) -> $value {
                self.0.load(O::used(order))
            }

            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, O::used(order));
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0
                    .compare_exchange(current, new, O::used(success), O::used(failure))
            }
        }
    };
}

ordered!(AtomicI32, i32);
ordered!(AtomicI64, i64);
ordered!(AtomicU64, u64);

struct LoomCell<T>(loom::cell::UnsafeCell<T>);

/// A reference to the cell's value. For loom, the cell is in use until this is dropped.
struct LoomRef<T>(loom::cell::ConstPtr<T>);

/// The same for an exclusive reference.
struct LoomMut<T>(loom::cell::MutPtr<T>);

impl<T> Deref for LoomRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the caller of `read` ensured that no thread writes the value while this lives. Loom checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> Deref for LoomMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the caller of `write` ensured that no other thread uses the value while this lives. Loom checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> DerefMut for LoomMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the caller of `write` ensured that no other thread uses the value while this lives. Loom checks it.
        unsafe { self.0.deref() }
    }
}

impl<T> SharedCell<T> for LoomCell<T> {
    type Ref<'a>
        = LoomRef<T>
    where
        T: 'a;
    type Mut<'a>
        = LoomMut<T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        LoomCell(loom::cell::UnsafeCell::new(value))
    }

    unsafe fn read(&self) -> LoomRef<T> {
        LoomRef(self.0.get())
    }

    unsafe fn write(&self) -> LoomMut<T> {
        LoomMut(self.0.get_mut())
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Plan(u64);

impl Key for Plan {
    fn tag(&self) -> u64 {
        self.0
    }
}

const A: Plan = Plan(1);
const B: Plan = Plan(2);
/// How long a session keeps a slot. Times are numbers of executions here.
const KEPT_FOR: i64 = 10;

type TestSlot<O> = Slot<Plan, u64, Loom<O>>;
type TestBuffer<O> = Buffer<Plan, u64, 1, Loom<O>>;
type Own<'a, O> = OwnBuffer<'a, Plan, u64, 1, Loom<O>>;

/// The state that all sessions share: the list, memory for two buffers, and the store.
struct Shared<O: Orderings> {
    list: List<Loom<O>>,
    buffers: [TestBuffer<O>; 2],
    /// Whether each buffer's memory is allocated. A thread that finds a buffer in the list must see true.
    made: [loom::cell::UnsafeCell<bool>; 2],
    /// Executions of plan A and of plan B in the store.
    counted: [AtomicU64; 2],
    /// 1 if plan A was evicted from the store.
    evicted: AtomicI32,
}

impl<O: Orderings> Shared<O> {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            list: List::default(),
            buffers: [Buffer::default(), Buffer::default()],
            made: [false, false].map(loom::cell::UnsafeCell::new),
            counted: [0, 0].map(AtomicU64::new),
            evicted: AtomicI32::new(0),
        })
    }

    fn at(&self, address: u64) -> &TestBuffer<O> {
        let at = address as usize - 1;
        // SAFETY: `make` wrote the flag before the buffer was listed, and nothing writes it later. Loom checks it.
        assert!(self.made[at].with(|made| unsafe { *made }));
        &self.buffers[at]
    }

    fn make(&self, address: u64) -> Option<u64> {
        // SAFETY: only the thread that adds this buffer to the list calls this, before it is listed. Loom checks it.
        self.made[address as usize - 1].with_mut(|made| unsafe { *made = true });
        Some(address)
    }

    fn attach(&self, pid: i32, address: u64) -> Own<'_, O> {
        let own = self
            .list
            .attach(pid, |address| self.at(address), || self.make(address));
        own.expect("a buffer that is left, or a new one")
    }

    fn count(&self, plan: Plan, executions: u64) {
        self.counted[plan.0 as usize - 1].fetch_add(executions, Relaxed);
    }

    fn counted(&self) -> [u64; 2] {
        [0, 1].map(|plan: usize| self.counted[plan].load(Relaxed))
    }

    /// Records one execution as a session does.
    fn execute(&self, own: &Own<O>, plan: Plan, now: i64) {
        if let Some(mut slot) = own.add_to(0, &plan, now) {
            let sum = if slot.is_empty() { 0 } else { *slot.value() };
            *slot.value() = sum + 1;
            return;
        }
        self.count(plan, 1);
        if plan == A {
            self.evicted.store(0, Relaxed);
        }
        own.claim(plan, now, now + KEPT_FOR, |_, plan, sum| self.count(*plan, *sum));
    }

    /// Flushes all slots as a reader does.
    fn flush_all(&self, pid: i32) {
        self.each_slot(|slot| {
            if slot.seems_filled(None)
                && let Some(guard) = slot.try_hold(pid)
            {
                self.flush(&guard);
            }
        });
    }

    fn flush(&self, guard: &SlotGuard<Plan, u64, Loom<O>>) {
        guard.flush(|plan, sum| {
            assert!([A, B].contains(plan));
            let known = *plan != A || self.evicted.load(Relaxed) == 0;
            if known {
                self.count(*plan, *sum);
            }
            known
        });
    }

    fn each_slot<'a>(&'a self, visit: impl FnMut(&'a TestSlot<O>)) {
        self.list.each_slot(|address| self.at(address), visit);
    }

    /// Ends the session: flushes its slot unless a reader holds it.
    fn leave(&self, own: Own<O>, pid: i32) {
        if let Some(guard) = own.slots()[0].try_hold(pid) {
            own.flush(0, &guard, |_, plan, sum| self.count(*plan, *sum));
        }
    }

    /// Fails unless the store has this many executions of plan A and of plan B after a flush of all slots.
    fn assert_counted(&self, executions: [u64; 2]) {
        self.evicted.store(0, Relaxed);
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
        // A second flush adds nothing.
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
    }
}

/// Runs all schedules of the first thread and this many others.
fn check(other_threads: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if other_threads > 1 { 2 } else { 3 });
    model.check(body);
}

/// Runs a session and other threads, and checks that `executions` are counted.
fn beside_a_session<O: Orderings>(
    executions: [u64; 2],
    session: impl Fn(&Shared<O>) + Copy + Send + Sync + 'static,
    others: &'static [fn(&Shared<O>)],
) {
    check(others.len(), move || {
        let shared = Shared::<O>::new();
        let other_threads: Vec<_> = others
            .iter()
            .map(|other| {
                let shared = shared.clone();
                thread::spawn(move || other(&shared))
            })
            .collect();
        session(&shared);
        for thread in other_threads {
            thread.join().expect("a thread that ends well");
        }
        shared.assert_counted(executions);
    });
}

/// Records three executions of one plan. The first one puts it into a slot.
fn three_executions<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    for now in 1..=3 {
        shared.execute(&own, A, now);
    }
}

/// Records executions of two plans that use one slot in turn.
fn two_plans<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    shared.execute(&own, A, 1);
    shared.execute(&own, A, 2);
    shared.execute(&own, B, 2 * KEPT_FOR);
    shared.execute(&own, B, 2 * KEPT_FOR + 1);
}

fn reader<O: Orderings>(shared: &Shared<O>) {
    shared.flush_all(2);
}

fn other_reader<O: Orderings>(shared: &Shared<O>) {
    shared.flush_all(3);
}

/// Evicts plan A, and tells the buffers.
fn evictor<O: Orderings>(shared: &Shared<O>) {
    shared.evicted.store(1, Relaxed);
    shared.each_slot(|slot| slot.invalidate(|tag| tag == A.tag()));
}

#[test]
fn a_reader_flushes_while_the_session_adds() {
    beside_a_session::<AsRequested>([3, 0], three_executions, &[reader]);
}

#[test]
fn a_reader_flushes_while_plans_take_turns_in_a_slot() {
    beside_a_session::<AsRequested>([2, 2], two_plans, &[reader]);
}

#[test]
fn two_readers_flush_while_the_session_adds() {
    beside_a_session::<AsRequested>([3, 0], three_executions, &[reader, other_reader]);
}

#[test]
fn a_plan_is_evicted_while_the_session_adds() {
    beside_a_session::<AsRequested>([3, 0], three_executions, &[evictor]);
}

#[test]
fn a_plan_is_evicted_while_the_session_adds_and_a_reader_flushes() {
    beside_a_session::<AsRequested>([3, 0], three_executions, &[evictor, reader]);
}

#[test]
fn a_session_ends_while_a_reader_flushes() {
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.leave(own, 1);
    };
    beside_a_session([2, 0], session, &[reader]);
}

/// The next session takes this buffer, or a new one if the first session has not left it yet.
#[test]
fn a_session_ends_while_another_begins_and_a_reader_flushes() {
    fn next<O: Orderings>(shared: &Shared<O>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 1);
        shared.execute(&own, B, 2);
        shared.leave(own, 4);
    }
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.leave(own, 1);
    };
    beside_a_session([2, 2], session, &[next, reader]);
}

/// If a session could not flush a slot at its end, the next session flushes it when it needs the slot.
#[test]
fn a_session_takes_what_the_last_one_left() {
    fn next(shared: &Shared<AsRequested>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 2 * KEPT_FOR);
        shared.execute(&own, B, 2 * KEPT_FOR + 1);
    }
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        drop(own);
    };
    beside_a_session([2, 2], session, &[next, reader]);
}

#[test]
fn sessions_that_begin_together_have_a_buffer_each() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || std::mem::forget(shared.attach(2, 2)))
        };
        std::mem::forget(shared.attach(1, 1));
        other.join().expect("a thread that ends well");
        let mut slots = 0;
        shared.each_slot(|_| slots += 1);
        assert_eq!(slots, 2);
    });
}

#[test]
fn only_one_session_takes_a_buffer_that_was_left() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        drop(shared.attach(3, 1));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || std::mem::forget(shared.attach(2, 2)))
        };
        std::mem::forget(shared.attach(1, 2));
        other.join().expect("a thread that ends well");
        let mut slots = 0;
        shared.each_slot(|_| slots += 1);
        assert_eq!(slots, 2, "one took the old buffer, the other made one");
    });
}

/// A reset discards executions that sessions have not flushed. Later executions count.
#[test]
fn a_reader_discards_while_the_session_adds() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.each_slot(|slot| {
                    if let Some(guard) = slot.try_hold(2) {
                        guard.discard();
                    }
                });
            })
        };
        let own = shared.attach(1, 1);
        for now in 1..=3 {
            shared.execute(&own, A, now);
        }
        other.join().expect("a thread that ends well");
        shared.flush_all(99);
        // The first execution went to the store at once. Of the others, those before the reset may be missing.
        let [counted, _] = shared.counted();
        assert!((1..=3).contains(&counted), "{counted}");
        shared.execute(&own, A, 4);
        shared.assert_counted([counted + 1, 0]);
    });
}

/// If an eviction happened before an execution, this execution looks up the plan.
#[test]
fn an_evicted_plan_is_looked_up() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || evictor(&shared))
        };
        shared.execute(&own, A, 2);
        other.join().expect("a thread that ends well");
        shared.execute(&own, A, 3);
        assert_eq!(shared.evicted.load(Relaxed), 0, "the session made a new entry");
        shared.assert_counted([3, 0]);
    });
}

// With orderings that are too weak, the checks above must fail.

#[test]
#[should_panic(expected = "Causality violation")]
fn without_orderings_threads_use_a_slot_at_the_same_time() {
    beside_a_session::<NoOrder>([2, 2], two_plans, &[reader]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_acquire_threads_use_a_slot_at_the_same_time() {
    beside_a_session::<NoAcquire>([2, 2], two_plans, &[reader]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_threads_use_a_slot_at_the_same_time() {
    beside_a_session::<NoRelease>([2, 2], two_plans, &[reader]);
}
