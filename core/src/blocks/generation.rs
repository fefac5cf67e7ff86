//! The number of a statement's execution.

use crate::pending::{Atomic, Atomics, Native};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of the execution that is in a block. Only the session that holds the block writes it.
///
/// It is odd while a statement runs there, which is then *live*. It is even while a statement is set up or
/// reset, and after it has ended. It goes on when the block passes to another session. So a copy is of one
/// execution if the number was the same odd one before and after. Zero bytes are a block without a live
/// statement.
#[derive(Debug)]
#[repr(transparent)]
pub struct Generation<A: Atomics = Native>(A::U64);

impl Generation {
    /// Returns the number of a block that no statement has used.
    pub const fn new() -> Self {
        Generation(AtomicU64::new(0))
    }
}

impl<A: Atomics> Default for Generation<A> {
    fn default() -> Self {
        Generation(A::U64::new(0))
    }
}

impl<A: Atomics> Generation<A> {
    /// Notes that an execution begins.
    #[inline(always)]
    pub fn begin(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Release);
    }

    /// Notes that the execution has ended: what is in the block may change from now on. Does nothing if none
    /// is live.
    #[inline(always)]
    pub fn end(&self) {
        let number = self.0.load(Relaxed);
        if number & 1 == 1 {
            self.0.store(number.wrapping_add(1), Relaxed);
            A::fence(Release);
        }
    }

    /// Returns the number of the execution, if one is live.
    #[inline(always)]
    pub fn live(&self) -> Option<u64> {
        Some(self.0.load(Acquire)).filter(|number| number & 1 == 1)
    }

    /// Returns whether the execution was live since [`Generation::live`] returned this number. Then copies
    /// that were made since are of that execution.
    #[inline(always)]
    pub fn is_still(&self, number: u64) -> bool {
        A::fence(Acquire);
        self.0.load(Relaxed) == number
    }
}
