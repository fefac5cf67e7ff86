//! Runs the protocol of the sessions' buffers through all schedules and memory orders that a model checker
//! (loom) distinguishes. Each schedule has up to three preemptions, or up to two if there are three threads.
//! Loom also finds cells that two threads use without synchronization.
//!
//! The store is a pair of relaxed atomics, so that only the protocol synchronizes threads.

#![allow(unsafe_code, reason = "the model checker's cells give raw pointers")]

mod loom_atomics;

use loom::sync::atomic::{AtomicI32, AtomicU64};
use loom::thread;
use loom_atomics::{AsRequested, Loom, NoAcquire, NoOrder, NoRelease, Orderings};
use rowsource_core::pending::{Buffer, Key, List, OwnBuffer, Slot, SlotGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Clone, Copy, Default, PartialEq)]
struct Plan(u64);

impl Key for Plan {
    fn tag(&self) -> u64 {
        self.0
    }
}

const A: Plan = Plan(1);
const B: Plan = Plan(2);
/// How long a slot is kept until it must be flushed. In these tests, a time is the number of an execution.
const FLUSH_AFTER: i64 = 10;

type TestSlot<O> = Slot<Plan, u64, Loom<O>>;
type TestBuffer<O> = Buffer<Plan, u64, 1, Loom<O>>;
type Own<'a, O> = OwnBuffer<'a, Plan, u64, 1, Loom<O>>;

/// The memory that all sessions share: the list, memory for two buffers, and the store.
struct Shared<O: Orderings> {
    list: List<Loom<O>>,
    buffers: [TestBuffer<O>; 2],
    /// True if a buffer's memory was made. A thread that finds the buffer in the list must see true.
    made: [loom::cell::UnsafeCell<bool>; 2],
    /// The number of executions of plan A and of plan B in the store.
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
        // SAFETY: a buffer is made before it is listed, and never written again. Loom checks it.
        assert!(self.made[at].with(|made| unsafe { *made }));
        &self.buffers[at]
    }

    fn make(&self, address: u64) -> Option<u64> {
        // SAFETY: the buffer is not listed yet, so no other thread knows it. Loom checks it.
        self.made[address as usize - 1].with_mut(|made| unsafe { *made = true });
        Some(address)
    }

    fn attach(&self, pid: i32, address: u64) -> Own<'_, O> {
        let own = self
            .list
            .attach(pid, |address| self.at(address), || self.make(address));
        own.expect("a free buffer or a new one")
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
        own.claim(
            plan,
            now,
            now + FLUSH_AFTER,
            |_, _| true,
            |_, plan, sum| self.count(*plan, *sum),
        );
    }

    /// Flushes all slots that nobody holds, as a reader does.
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

    /// Ends the session: flushes its slot unless a reader holds it, and gives the buffer up.
    fn end_session(&self, own: Own<O>, pid: i32) {
        if let Some(guard) = own.slots()[0].try_hold(pid) {
            own.flush(0, &guard, |_, plan, sum| self.count(*plan, *sum));
        }
    }

    /// Asserts that after a flush of all slots, the store has these numbers of executions of plan A and of
    /// plan B.
    fn assert_counted(&self, executions: [u64; 2]) {
        self.evicted.store(0, Relaxed);
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
        // A second flush adds nothing.
        self.flush_all(99);
        assert_eq!(self.counted(), executions);
    }
}

/// Runs `body` in all schedules. `body` starts `other_threads` threads.
fn check(other_threads: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if other_threads > 1 { 2 } else { 3 });
    model.check(body);
}

/// Runs a session and `others` at the same time, in all schedules. Asserts that the store has `executions`
/// afterwards.
fn check_session_with<O: Orderings>(
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
            thread.join().expect("the thread does not panic");
        }
        shared.assert_counted(executions);
    });
}

/// Runs one plan three times. The first execution puts the plan into a slot.
fn three_executions<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    for now in 1..=3 {
        shared.execute(&own, A, now);
    }
}

/// Runs two plans. The second one replaces the first in the slot.
fn two_plans<O: Orderings>(shared: &Shared<O>) {
    let own = shared.attach(1, 1);
    shared.execute(&own, A, 1);
    shared.execute(&own, A, 2);
    shared.execute(&own, B, 2 * FLUSH_AFTER);
    shared.execute(&own, B, 2 * FLUSH_AFTER + 1);
}

fn reader<O: Orderings>(shared: &Shared<O>) {
    shared.flush_all(2);
}

fn other_reader<O: Orderings>(shared: &Shared<O>) {
    shared.flush_all(3);
}

/// Evicts plan A, and invalidates its slots.
fn evictor<O: Orderings>(shared: &Shared<O>) {
    shared.evicted.store(1, Relaxed);
    shared.each_slot(|slot| slot.invalidate(|tag| tag == A.tag()));
}

#[test]
fn a_reader_that_flushes_loses_no_execution() {
    check_session_with::<AsRequested>([3, 0], three_executions, &[reader]);
}

#[test]
fn a_reader_that_flushes_while_a_slot_changes_its_plan_loses_no_execution() {
    check_session_with::<AsRequested>([2, 2], two_plans, &[reader]);
}

#[test]
fn two_readers_that_flush_count_no_execution_twice() {
    check_session_with::<AsRequested>([3, 0], three_executions, &[reader, other_reader]);
}

#[test]
fn an_eviction_loses_no_unflushed_execution() {
    check_session_with::<AsRequested>([3, 0], three_executions, &[evictor]);
}

#[test]
fn an_eviction_and_a_reader_together_lose_no_execution() {
    check_session_with::<AsRequested>([3, 0], three_executions, &[evictor, reader]);
}

#[test]
fn a_session_that_ends_while_a_reader_flushes_loses_no_execution() {
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.end_session(own, 1);
    };
    check_session_with([2, 0], session, &[reader]);
}

/// The next session takes the first one's buffer, or a new one if the first session has not ended yet.
#[test]
fn a_session_that_starts_while_another_ends_loses_no_execution() {
    fn next<O: Orderings>(shared: &Shared<O>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 1);
        shared.execute(&own, B, 2);
        shared.end_session(own, 4);
    }
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        shared.end_session(own, 1);
    };
    check_session_with([2, 2], session, &[next, reader]);
}

/// The content that a session could not flush at its end is flushed to the store when the next session needs
/// the slot.
#[test]
fn the_next_session_flushes_the_content_of_the_last_one() {
    fn next(shared: &Shared<AsRequested>) {
        let own = shared.attach(4, 2);
        shared.execute(&own, B, 2 * FLUSH_AFTER);
        shared.execute(&own, B, 2 * FLUSH_AFTER + 1);
    }
    let session = |shared: &Shared<AsRequested>| {
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        shared.execute(&own, A, 2);
        drop(own);
    };
    check_session_with([2, 2], session, &[next, reader]);
}

#[test]
fn sessions_that_start_together_get_different_buffers() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || std::mem::forget(shared.attach(2, 2)))
        };
        std::mem::forget(shared.attach(1, 1));
        other.join().expect("the thread does not panic");
        let mut slots = 0;
        shared.each_slot(|_| slots += 1);
        assert_eq!(slots, 2);
    });
}

#[test]
fn only_one_session_takes_a_free_buffer() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        drop(shared.attach(3, 1));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || std::mem::forget(shared.attach(2, 2)))
        };
        std::mem::forget(shared.attach(1, 2));
        other.join().expect("the thread does not panic");
        let mut slots = 0;
        shared.each_slot(|_| slots += 1);
        assert_eq!(slots, 2, "one took the old buffer, the other made one");
    });
}

/// A reset discards the executions that sessions have not flushed.
#[test]
fn executions_after_a_discard_are_counted() {
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
        other.join().expect("the thread does not panic");
        shared.flush_all(99);
        // The first execution was added to the store at once. The others may be missing if they were before
        // the reset.
        let [counted, _] = shared.counted();
        assert!((1..=3).contains(&counted), "{counted}");
        shared.execute(&own, A, 4);
        shared.assert_counted([counted + 1, 0]);
    });
}

/// After `join`, the session can see the eviction. So its next execution must use it.
#[test]
fn an_evicted_plan_is_looked_up_at_the_next_execution() {
    check(1, || {
        let shared = Shared::<AsRequested>::new();
        let own = shared.attach(1, 1);
        shared.execute(&own, A, 1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || evictor(&shared))
        };
        shared.execute(&own, A, 2);
        other.join().expect("the thread does not panic");
        shared.execute(&own, A, 3);
        assert_eq!(shared.evicted.load(Relaxed), 0, "the session made a new entry");
        shared.assert_counted([3, 0]);
    });
}

// The tests below use orderings that are too weak. They show that loom finds errors of this kind.

#[test]
#[should_panic(expected = "Causality violation")]
fn relaxed_orderings_are_found_to_be_too_weak() {
    check_session_with::<NoOrder>([2, 2], two_plans, &[reader]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_missing_acquire_is_found() {
    check_session_with::<NoAcquire>([2, 2], two_plans, &[reader]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_missing_release_is_found() {
    check_session_with::<NoRelease>([2, 2], two_plans, &[reader]);
}
