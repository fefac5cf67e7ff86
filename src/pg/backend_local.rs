//! State of a backend. A backend has one thread, so its state needs no lock and no look-up by thread.

use std::ops::Deref;

/// A value that only a backend's main thread uses. Everything in it that changes is a cell.
///
/// A signal handler may interrupt the main thread at any point. It may use such a value only if the value's description
/// says so, and then only fields that are read and written as one word.
pub struct BackendLocal<T>(T);

// SAFETY: `Sync` lets other threads share the value, but there are none: PostgreSQL's backends have one thread, and this
// library starts no other. No signal handler borrows from a cell.
unsafe impl<T> Sync for BackendLocal<T> {}

impl<T> BackendLocal<T> {
    /// Makes the value of a static.
    pub const fn new(value: T) -> Self {
        BackendLocal(value)
    }

    /// Returns the value. Unlike `deref` this can be used in constants.
    pub const fn inner(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for BackendLocal<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
