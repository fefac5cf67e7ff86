//! An owner in shared memory: the pid of the process that holds something. Other processes can check whether
//! that process still runs.

use super::atomics::{Atomic, Atomics, Native};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The pid of the process that holds something, or 0.
#[repr(transparent)]
pub struct Owner<A: Atomics = Native>(A::I32);

impl<A: Atomics> Default for Owner<A> {
    fn default() -> Self {
        Owner(A::I32::new(0))
    }
}

impl<A: Atomics> Owner<A> {
    /// Returns the pid of the holder, or 0. The holder may change at any time.
    pub fn pid(&self) -> i32 {
        self.0.load(Relaxed)
    }

    /// Becomes the owner as the process `pid`. Returns `None` if a process holds it, also if that is this
    /// process.
    #[inline(always)]
    pub fn try_hold(&self, pid: i32) -> Option<OwnerGuard<'_, A>> {
        let held = self.0.compare_exchange(0, pid, Acquire, Relaxed).is_ok();
        held.then(|| OwnerGuard(&self.0))
    }

    /// Becomes the owner as [`Owner::try_hold`] does, also if the holder is a process that has ended. This
    /// process must not hold it already: if the owner is `pid`, an earlier process with the same pid left it.
    pub fn hold_or_inherit(&self, pid: i32, is_alive: impl FnOnce(i32) -> bool) -> Option<OwnerGuard<'_, A>> {
        self.try_hold(pid).or_else(|| {
            let holder = self.pid();
            let is_abandoned = holder != 0 && (holder == pid || !is_alive(holder));
            let held = is_abandoned && self.0.compare_exchange(holder, pid, Acquire, Relaxed).is_ok();
            held.then(|| OwnerGuard(&self.0))
        })
    }
}

/// Keeps this process the owner until it is dropped.
#[must_use]
pub struct OwnerGuard<'a, A: Atomics = Native>(&'a A::I32);

impl<A: Atomics> Drop for OwnerGuard<'_, A> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_can_be_the_owner() {
        let owner: Owner = Owner::default();
        let guard = owner.try_hold(7).expect("free");
        assert_eq!(owner.pid(), 7);
        assert!(owner.try_hold(7).is_none());
        assert!(owner.hold_or_inherit(8, |_| true).is_none());
        drop(guard);
        assert_eq!(owner.pid(), 0);
        assert!(owner.try_hold(8).is_some());
    }

    #[test]
    fn an_owner_that_ended_is_replaced() {
        let owner: Owner = Owner::default();
        std::mem::forget(owner.try_hold(7).expect("free"));
        assert!(owner.try_hold(8).is_none());
        let guard = owner.hold_or_inherit(8, |pid| pid != 7).expect("left by 7");
        assert_eq!(owner.pid(), 8);
        std::mem::forget(guard);
        // A later process may have the pid of the one that ended.
        assert!(owner.hold_or_inherit(8, |_| true).is_some());
    }
}
