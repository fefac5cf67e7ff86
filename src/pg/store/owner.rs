//! An owner in shared memory, by its pid: what one process has at a time, and others find again when that process is gone.

use crate::pg::server;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What this process owns, until this is dropped.
pub(super) struct OwnerGuard<'a>(&'a AtomicI32);

impl<'a> OwnerGuard<'a> {
    /// Returns `None` where another process owns it.
    #[inline(always)]
    pub fn at_once(owner: &'a AtomicI32) -> Option<Self> {
        let free = owner.compare_exchange(0, server::pid(), Acquire, Relaxed).is_ok();
        free.then(|| OwnerGuard(owner))
    }

    /// The same; what a process owned that is no more is free.
    pub fn take(owner: &'a AtomicI32) -> Option<Self> {
        Self::at_once(owner).or_else(|| {
            let before = owner.load(Relaxed);
            let left = before != 0 && (before == server::pid() || !server::is_alive(before));
            let taken = left
                && owner
                    .compare_exchange(before, server::pid(), Acquire, Relaxed)
                    .is_ok();
            taken.then(|| OwnerGuard(owner))
        })
    }
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
