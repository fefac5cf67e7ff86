//! The heart's sleep.

use crate::pending::{Atomic, Atomics, Native};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Whether the heart sleeps. A session that has a wish wakes it up. The heart stays awake for some time then,
/// so that sessions wake it up seldom. Zero bytes are a heart that is awake, or that there is none.
#[derive(Debug)]
#[repr(transparent)]
pub struct Sleep<A: Atomics = Native>(A::I32);

impl<A: Atomics> Default for Sleep<A> {
    fn default() -> Self {
        Sleep(A::I32::new(0))
    }
}

impl<A: Atomics> Sleep<A> {
    /// Notes that the heart is about to sleep. It must look for wishes afterwards, and sleep only if there
    /// are none.
    pub fn begin(&self) {
        self.0.store(1, Release);
        A::full_fence();
    }

    /// Returns whether the heart sleeps, or is about to. If not, a session has woken it up.
    pub fn has_begun(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Notes that the heart is awake.
    pub fn end(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns whether this session must wake up the heart, after it has stored a wish. Of several sessions,
    /// one must.
    #[inline]
    pub fn must_be_ended(&self) -> bool {
        A::full_fence();
        self.0.load(Relaxed) != 0 && self.0.compare_exchange(1, 0, Acquire, Relaxed).is_ok()
    }
}
