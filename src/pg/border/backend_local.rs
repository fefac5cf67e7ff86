//! Holds a backend's state. A backend has one thread, so its state needs neither locks nor thread-local
//! storage.
//!
//! Statics that every statement uses are placed in one section, `rowsource_state`, except `HOT`, which fills
//! a page. A short statement finds cold caches, because other sessions ran since the last one: it pays for
//! each cache line and each page that it touches. The section has 3 kB; otherwise the same statics would lie
//! on nine pages, between tables of up to a megabyte.

use std::ops::Deref;

/// A value that only a backend's main thread uses. Fields that change are cells.
///
/// A signal handler may interrupt the main thread anywhere. It may read a value of this type only if the
/// value's comment allows it, and only fields that are read and written as one word.
pub struct BackendLocal<T>(T);

// SAFETY: `Sync` lets other threads share the value, but there are none: PostgreSQL's backends have one
// thread, and this library starts no other. A signal handler takes no reference into a cell.
unsafe impl<T> Sync for BackendLocal<T> {}

impl<T> BackendLocal<T> {
    pub const fn new(value: T) -> Self {
        BackendLocal(value)
    }

    /// Returns the value. This can also be called in the initialiser of a static.
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
