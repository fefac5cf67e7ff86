//! Runs the protocol of the blocks through all schedules and memory orders that a model checker (loom)
//! distinguishes.

#![allow(unsafe_code, reason = "the protocol guards the cells, not the compiler")]

mod loom_atomics;

use loom::thread;
use loom_atomics::{AsRequested, Loom, LoomCell, NoAcquire, NoFence, NoRelease, Orderings};
use rowsource_core::blocks::{BlockId, Generation, Slot};
use rowsource_core::pending::{Atomic, Atomics, Owner, OwnerGuard, SharedCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

type Word<O> = <Loom<O> as Atomics>::U64;

/// What lies in a block.
struct Content<O: Orderings> {
    generation: Generation<Loom<O>>,
    /// What readers copy: the session that runs, and the number of its execution.
    words: [Word<O>; 2],
    /// What the executions add to, and the store does not have yet. The model checker fails if two sessions
    /// use it at the same time, or if one does not see what the other has written.
    sum: LoomCell<u64>,
}

/// The slots of two sessions, and the block that lies in that of the first one.
struct Shared<O: Orderings> {
    content: Content<O>,
    slots: [Slot<Loom<O>>; 2],
    /// The owner of the first session's slots.
    owner: Owner<Loom<O>>,
    /// That session's process has ended.
    has_ended: Word<O>,
}

fn block() -> BlockId {
    BlockId::new(64, 3).expect("a valid block")
}

impl<O: Orderings> Shared<O> {
    /// Returns the memory after the first session has put its block into its slot, which it holds.
    fn new() -> Arc<Self> {
        let shared = Shared {
            content: Content {
                generation: Generation::default(),
                words: [0, 0].map(Word::<O>::new),
                sum: SharedCell::new(0),
            },
            slots: Default::default(),
            owner: Owner::default(),
            has_ended: Word::<O>::new(0),
        };
        shared.slots[0].put(block());
        Arc::new(shared)
    }

    /// Sets up a statement in the block, which this session holds, and begins its nth execution.
    fn begin(&self, session: usize, number: u64) {
        let content = &self.content;
        for word in &content.words {
            word.store(session as u64 * 10 + number, Relaxed);
        }
        content.generation.begin();
    }

    /// Ends it.
    fn end(&self) {
        self.content.generation.end();
        // SAFETY: the session holds the block. The model checker checks that nobody else uses the cell.
        unsafe { *self.content.sum.write() += 1 };
    }

    fn execute(&self, session: usize, number: u64) {
        self.begin(session, number);
        self.end();
    }

    /// Runs a statement in a block that the session has given back. Returns whether the block was still
    /// there.
    fn execute_again(&self, session: usize, number: u64) -> bool {
        let is_held = self.slots[session].hold(block());
        if is_held {
            self.execute(session, number);
            self.slots[session].give_back(block());
        }
        is_held
    }

    /// Claims what the other session has given back, and runs a statement in it. Returns whether it could.
    fn claim(&self, session: usize, number: u64) -> bool {
        let is_claimed = self.slots[1 - session].claim(block());
        if is_claimed {
            self.slots[session].put(block());
            self.execute(session, number);
            self.slots[session].give_back(block());
        }
        is_claimed
    }

    /// Looks at a session. What it sees is of one execution of that session.
    fn read(&self, session: usize) {
        let slot = &self.slots[session];
        let Some(found) = slot.found().filter(|found| found.is_held) else {
            return;
        };
        let Some(number) = self.content.generation.live() else {
            return;
        };
        let [first, second] = [0, 1].map(|i| self.content.words[i].load(Relaxed));
        if slot.has(found.block) && self.content.generation.is_still(number) {
            assert_eq!(first, second, "a copy of two executions");
            assert_eq!(first / 10, session as u64, "a copy of another session");
        }
    }

    /// Returns how many executions the block has counted. The caller must be the last thread.
    fn sum(&self) -> u64 {
        // SAFETY: no other thread runs.
        unsafe { *self.content.sum.read() }
    }
}

/// Each schedule has up to two preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// A session runs its statement again and again while another one claims the block. Nothing that was counted
/// is lost.
fn a_block_is_used_by_one<O: Orderings>() {
    check(|| {
        let shared = Shared::<O>::new();
        let other = thread::spawn({
            let shared = shared.clone();
            move || u64::from(shared.claim(1, 1)) + u64::from(shared.claim(1, 2))
        });
        shared.execute(0, 1);
        shared.slots[0].give_back(block());
        let again = 1 + u64::from(shared.execute_again(0, 2)) + u64::from(shared.execute_again(0, 3));
        let claimed = other.join().expect("the other session");
        assert_eq!(shared.sum(), again + claimed);
        let places = shared.slots.iter().filter(|slot| slot.has(block())).count();
        assert_eq!(places, 1);
    });
}

#[test]
fn a_block_is_held_or_claimed() {
    a_block_is_used_by_one::<AsRequested>();
}

/// Without `Acquire`, the session that claims a block does not see what it holds.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_acquire_sums_may_be_lost() {
    a_block_is_used_by_one::<NoAcquire>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_release_sums_may_be_lost() {
    a_block_is_used_by_one::<NoRelease>();
}

/// A reader looks at both sessions while the block passes from one to the other.
fn copies_are_of_one_execution<O: Orderings>() {
    check(|| {
        let shared = Shared::<O>::new();
        let reader = thread::spawn({
            let shared = shared.clone();
            move || {
                shared.read(0);
                shared.read(1);
            }
        });
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.claim(1, 1)
        });
        shared.execute(0, 1);
        shared.slots[0].give_back(block());
        shared.execute_again(0, 2);
        reader.join().expect("the reader");
        other.join().expect("the other session");
    });
}

#[test]
fn readers_see_executions_of_the_session_that_they_look_at() {
    copies_are_of_one_execution::<AsRequested>();
}

#[test]
#[should_panic(expected = "a copy of")]
fn without_fences_copies_are_of_two_executions() {
    copies_are_of_one_execution::<NoFence>();
}

/// The block goes to the other session and comes back while a reader looks at it.
#[test]
fn a_block_that_comes_back_is_seen_as_it_is() {
    check(|| {
        let shared = Shared::<AsRequested>::new();
        shared.slots[0].give_back(block());
        let reader = thread::spawn({
            let shared = shared.clone();
            move || shared.read(0)
        });
        assert!(shared.claim(1, 1));
        assert!(shared.claim(0, 2));
        reader.join().expect("the reader");
        assert_eq!(shared.sum(), 2);
    });
}

/// A session ends while it holds a block. One session takes its slots over, another one gives back what it
/// held to claim it.
#[test]
fn what_a_session_held_when_it_ended_is_used_again() {
    check(|| {
        let shared = Shared::<AsRequested>::new();
        std::mem::forget(shared.owner.try_hold(7).expect("free"));
        /// Becomes the owner of the slots if the session before has ended, and gives back what it held.
        fn inherit(shared: &Shared<AsRequested>, pid: i32) -> Option<OwnerGuard<'_, Loom<AsRequested>>> {
            let is_alive = |holder| holder != 7 || shared.has_ended.load(Acquire) == 0;
            let guard = shared.owner.hold_or_inherit(pid, is_alive)?;
            shared.slots[0].inherit(|_| shared.content.generation.end());
            Some(guard)
        }
        let claims = thread::spawn({
            let shared = shared.clone();
            move || {
                drop(inherit(&shared, 8));
                u64::from(shared.claim(1, 1))
            }
        });
        let takes_over = thread::spawn({
            let shared = shared.clone();
            move || {
                let guard = inherit(&shared, 9);
                u64::from(guard.is_some() && shared.execute_again(0, 2))
            }
        });
        shared.execute(0, 1);
        shared.begin(0, 2);
        shared.has_ended.store(1, Release);
        let executed = 1 + claims.join().expect("the session that claims");
        let executed = executed + takes_over.join().expect("the new session");
        assert_eq!(shared.sum(), executed);
    });
}
