//! State of a backend. It has one thread, so nothing need be looked up for each.

use std::ops::Deref;

/// A value that only a backend's main thread touches.
pub struct OneThread<T>(T);

// SAFETY: PostgreSQL's backends have one thread, and nothing of ours starts another; signal handlers keep away.
unsafe impl<T> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    pub const fn new(value: T) -> Self {
        OneThread(value)
    }
}

impl<T> Deref for OneThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
