//! State of a backend. It has one thread, so its state needs no lock and no look-up by thread.

use std::ops::Deref;

/// A value that only a backend's main thread touches. What changes in it lies in a cell.
///
/// A signal handler may interrupt the main thread anywhere. It may look at such a value only where that is said, and then
/// only at fields that are read and written as one word.
pub struct BackendLocal<T>(T);

// SAFETY: `Sync` lets other threads share the value, and there are none: PostgreSQL's backends have one thread, and this
// library starts no other. Nobody borrows from a cell in a signal handler.
unsafe impl<T> Sync for BackendLocal<T> {}

impl<T> BackendLocal<T> {
    pub const fn new(value: T) -> Self {
        BackendLocal(value)
    }

    /// Returns the value, also where a static is initialised.
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
