//! The targets of the SQL trace, which all sessions share.
//!
//! The lock is held for a look at each target only. No other lock is taken meanwhile.

use crate::pg::border::unguarded;
use pgrx::pg_sys;
use rowsource_core::sql_trace::target::{MAX_TARGETS, Target};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// A target, and how many sessions write a trace because of it.
#[repr(C)]
pub struct Place {
    target: UnsafeCell<Target>,
    pub sessions: AtomicU32,
}

/// The targets and their lock. Zero bytes are a list without targets, apart from the lock.
#[repr(C)]
pub struct SharedTargets {
    lock: UnsafeCell<pg_sys::LWLock>,
    /// Changes with each change of the list.
    pub generation: AtomicU64,
    /// The last number of a target.
    last: AtomicI32,
    places: [Place; MAX_TARGETS],
}

impl SharedTargets {
    /// Initializes the lock.
    ///
    /// # Safety
    /// No other process may see the targets yet.
    pub(super) unsafe fn initialize(&self, tranche: i32) {
        // SAFETY: the caller ensures that no other process sees the lock.
        unsafe { pg_sys::LWLockInitialize(self.lock.get(), tranche) }
    }

    /// Calls a function with each place. The target of a free place has the number 0. The caller must hold no
    /// lock of PostgreSQL's.
    pub fn read(&self, mut see: impl FnMut(&Target, &AtomicU32)) {
        self.locked(pg_sys::LWLockMode::LW_SHARED, || {
            for place in &self.places {
                // SAFETY: while the lock is held, nobody changes it.
                see(unsafe { &*place.target.get() }, &place.sessions);
            }
        });
    }

    /// Adds a target, and returns its number; `None` if no place is free. The caller must hold no lock of
    /// PostgreSQL's.
    pub fn add(&self, target: &Target) -> Option<i32> {
        self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            let place = self.places.iter().find(|place| {
                // SAFETY: the lock is held.
                unsafe { (*place.target.get()).number == 0 }
            })?;
            // After two billion, the numbers begin again.
            let number = self.last.load(Relaxed).checked_add(1).unwrap_or(1);
            self.last.store(number, Relaxed);
            place.sessions.store(0, Relaxed);
            // SAFETY: the exclusive lock is held, so there is no other reference to the target.
            unsafe { place.target.get().write(Target { number, ..*target }) };
            self.generation.fetch_add(1, Release);
            Some(number)
        })
    }

    /// Removes the targets that a function chooses, and calls it once for each. The caller must hold no lock
    /// of PostgreSQL's.
    pub fn remove(&self, mut chosen: impl FnMut(&Target) -> bool) {
        self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            for place in &self.places {
                // SAFETY: the exclusive lock is held, so there is no other reference to the target.
                let target = unsafe { &mut *place.target.get() };
                if target.number != 0 && chosen(target) {
                    *target = Target::FREE;
                    self.generation.fetch_add(1, Release);
                }
            }
        });
    }

    /// Runs a body under the lock. The body must neither raise nor panic: then the lock would not be
    /// released.
    #[allow(
        ffi_unwind_calls,
        reason = "the caller is inside of a boundary, and the frames up to it are plain"
    )]
    fn locked<T>(&self, mode: pg_sys::LWLockMode::Type, body: impl FnOnce() -> T) -> T {
        // SAFETY: the lock was initialized with the list. The callers hold none, and the bodies do not raise.
        unsafe {
            unguarded::LWLockAcquire(self.lock.get(), mode);
            let result = body();
            unguarded::LWLockRelease(self.lock.get());
            result
        }
    }
}
