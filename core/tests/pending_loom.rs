//! Runs the protocol of the sessions' buffers through the schedules and the orders of memory that a model checker (loom) can
//! tell apart, with up to three changes of thread against a thread's will (two where there are three threads). Loom also finds cells that two threads use without
//! an order between them.
//!
//! The store is a pair of relaxed atomics, so that nothing but the protocol puts threads in order.

#![allow(unsafe_code, reason = "the model checker's cells")]

use loom::sync::atomic::{AtomicI32, AtomicI64, AtomicU64};
use loom::thread;
use rowsource_core::pending::{Atomic, Atomics, Buffer, Key, List, OwnBuffer, SharedCell, Slot, SlotGuard};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

/// Decides which orderings an atomic really has.
trait Orderings: 'static {
    fn really(asked: Ordering) -> Ordering;
}

/// The orderings that the protocol asks for.
struct AsAsked;

impl Orderings for AsAsked {
    fn really(asked: Ordering) -> Ordering {
        asked
    }
}

/// No ordering at all. Loom must find fault with it.
struct NoOrder;

impl Orderings for NoOrder {
    fn really(_asked: Ordering) -> Ordering {
        Relaxed
    }
}

/// What takes something does not wait for what was released. Loom must find fault with it.
struct NoAcquire;

impl Orderings for NoAcquire {
    fn really(asked: Ordering) -> Ordering {
        match asked {
            Ordering::Acquire => Relaxed,
            other => other,
        }
    }
}

/// What gives something back does not release it. Loom must find fault with it.
struct NoRelease;

impl Orderings for NoRelease {
    fn really(asked: Ordering) -> Ordering {
        match asked {
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
                self.0.load(O::really(order))
            }

            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, O::really(order));
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0
                    .compare_exchange(current, new, O::really(success), O::really(failure))
            }
        }
    };
}

ordered!(AtomicI32, i32);
ordered!(AtomicI64, i64);
ordered!(AtomicU64, u64);

struct LoomCell<T>(loom::cell::UnsafeCell<T>);

/// Loom counts as a use of the cell what happens until this is dropped.
struct LoomRef<T>(loom::cell::ConstPtr<T>);

/// Likewise, where the value may be changed.
struct LoomMut<T>(loom::cell::MutPtr<T>);

impl<T> Deref for LoomRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody writes the value meanwhile, by the promise of who made this, which loom checks.
        unsafe { self.0.deref() }
    }
}

impl<T> Deref for LoomMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of who made this, which loom checks.
        unsafe { self.0.deref() }
    }
}

impl<T> DerefMut for LoomMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of who made this, which loom checks.
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
/// A slot is kept for so long. Times are numbers of executions here.
const KEPT: i64 = 10;

type TestSlot<O> = Slot<Plan, u64, Loom<O>>;
type TestBuffer<O> = Buffer<Plan, u64, 1, Loom<O>>;
type Own<'a, O> = OwnBuffer<'a, Plan, u64, 1, Loom<O>>;

/// What all sessions share: the list, memory for two buffers, and the store.
struct Shared<O: Orderings> {
    list: List<Loom<O>>,
    buffers: [TestBuffer<O>; 2],
    /// True where a buffer's memory was made. Who finds a buffer in the list must see that.
    made: [loom::cell::UnsafeCell<bool>; 2],
    /// Executions of plan A and of plan B that the store was given.
    counted: [AtomicU64; 2],
    /// 1 where plan A was evicted from the store.
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
        // SAFETY: loom checks that nobody writes meanwhile.
        assert!(self.made[at].with(|made| unsafe { *made }));
        &self.buffers[at]
    }

    fn make(&self, address: u64) -> Option<u64> {
        // SAFETY: loom checks that nobody else uses it meanwhile.
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

    /// One execution, as a session records it.
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
        own.claim(plan, now, now + KEPT, |_, plan, sum| self.count(*plan, *sum));
    }

    /// A reader flushes what is in its way.
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

    /// The session ends: it flushes what no reader holds, and leaves the rest.
    fn leave(&self, own: Own<O>, pid: i32) {
        if let Some(guard) = own.slots()[0].try_hold(pid) {
            own.flush(0, &guard, |_, plan, sum| self.count(*plan, *sum));
        }
    }

    /// Asserts that so many executions of plan A and of plan B are in the store once all is flushed.
    fn assert_counted(&self, executions: [u64; 2]) {
        self.evicted.store(0, Relaxed);
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
        // What was flushed is not flushed again.
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
    }
}

/// Runs all schedules of so many threads beside the first.
fn check(other_threads: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if other_threads > 1 { 2 } else { 3 });
    model.check(body);
}

/// Lets a session run, and others beside it; counts what came of `executions`.
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

/// Three executions of one plan: the first puts it into a slot.
fn three_executions<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    for now in 1..=3 {
        shared.execute(&own, A, now);
    }
}

/// Two plans take turns in one slot.
fn two_plans<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    shared.execute(&own, A, 1);
    shared.execute(&own, A, 2);
    shared.execute(&own, B, 2 * KEPT);
    shared.execute(&own, B, 2 * KEPT + 1);
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
    beside_a_session::<AsAsked>([3, 0], three_executions, &[reader]);
}

#[test]
fn a_reader_flushes_while_plans_take_turns_in_a_slot() {
    beside_a_session::<AsAsked>([2, 2], two_plans, &[reader]);
}

#[test]
fn two_readers_flush_while_the_session_adds() {
    beside_a_session::<AsAsked>([3, 0], three_executions, &[reader, other_reader]);
}

#[test]
fn a_plan_is_evicted_while_the_session_adds() {
    beside_a_session::<AsAsked>([3, 0], three_executions, &[evictor]);
}

#[test]
fn a_plan_is_evicted_while_the_session_adds_and_a_reader_flushes() {
    beside_a_session::<AsAsked>([3, 0], three_executions, &[evictor, reader]);
}

#[test]
fn a_session_ends_while_a_reader_flushes() {
    let session = |shared: &Shared<AsAsked>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.leave(own, 1);
    };
    beside_a_session([2, 0], session, &[reader]);
}

/// The next session may take the buffer, or a new one where the first has not left it yet.
#[test]
fn a_session_ends_while_another_begins_and_a_reader_flushes() {
    fn next<O: Orderings>(shared: &Shared<O>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 1);
        shared.execute(&own, B, 2);
        shared.leave(own, 4);
    }
    let session = |shared: &Shared<AsAsked>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.leave(own, 1);
    };
    beside_a_session([2, 2], session, &[next, reader]);
}

/// What a session could not flush at its end goes to the store when the next session needs the slot.
#[test]
fn a_session_takes_what_the_last_one_left() {
    fn next(shared: &Shared<AsAsked>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 2 * KEPT);
        shared.execute(&own, B, 2 * KEPT + 1);
    }
    let session = |shared: &Shared<AsAsked>| {
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
        let shared = Shared::<AsAsked>::new();
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
        let shared = Shared::<AsAsked>::new();
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

/// A reset forgets what sessions have not flushed; what they do afterwards counts.
#[test]
fn a_reader_discards_while_the_session_adds() {
    check(1, || {
        let shared = Shared::<AsAsked>::new();
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
        // The first execution went to the store at once; of the others, those before the reset may be missing.
        let [counted, _] = shared.counted();
        assert!((1..=3).contains(&counted), "{counted}");
        shared.execute(&own, A, 4);
        shared.assert_counted([counted + 1, 0]);
    });
}

/// An eviction that the session can know of is known at its next execution.
#[test]
fn an_evicted_plan_is_looked_up() {
    check(1, || {
        let shared = Shared::<AsAsked>::new();
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

// That the checks above find something is checked with orderings that are too weak.

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
