//! The table of plan changes in the control block, which `rowsource_core::flips` detects, and beside it what
//! the background worker finds out about them.
//!
//! Its lock is taken last, and only for a query that has several plans: when executions are added to the
//! store, not for each execution.

use crate::pg::border::unguarded;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::flips::{Executions, Flips, Pace};
use rowsource_core::model::{Batch, PlanKey};
use rowsource_core::regressions::{DatabaseTime, Regressions};
use std::cell::UnsafeCell;

/// What the lock guards. Zero bytes are empty tables.
#[repr(C)]
pub(super) struct Tables {
    pub flips: Flips,
    pub regressions: Regressions,
    pub database: DatabaseTime,
}

/// The tables and their lock. Zero bytes are empty tables, apart from the lock.
#[repr(C)]
pub(super) struct SharedFlips {
    lock: UnsafeCell<pg_sys::LWLock>,
    tables: UnsafeCell<Tables>,
    /// How fast the plans of other queries are, which no lock guards.
    pub(super) pace: Pace,
}

impl SharedFlips {
    /// Initializes the lock.
    ///
    /// # Safety
    /// No other process may see the table yet.
    pub(super) unsafe fn initialize(&self, tranche: i32) {
        // SAFETY: the caller ensures that no other process sees the table.
        unsafe { pg_sys::LWLockInitialize(self.lock.get(), tranche) }
    }

    /// Adds executions of a plan whose query has several plans.
    ///
    /// # Safety
    /// The caller must be inside an FFI boundary, and not hold the lock of the table.
    pub(super) unsafe fn add(&self, key: &PlanKey, batch: &Batch) {
        let done = self.executions(batch);
        // SAFETY: the caller is inside a boundary and does not hold the lock. The body does not raise.
        unsafe { self.locked(|all| all.flips.add(key, &done)) }
    }

    /// Returns the executions of a batch, which has just ended.
    pub(super) fn executions(&self, batch: &Batch) -> Executions {
        let done = Executions::of(batch);
        let sample = done.sample.among(self.pace.level(done.last_at));
        Executions { sample, ..done }
    }

    /// Runs a body with the changes of plans, under the lock. The body must not raise.
    pub(super) fn with_table<T>(&self, body: impl FnOnce(&mut Flips) -> T) -> T {
        self.with_all(|all| body(&mut all.flips))
    }

    /// Runs a body with all tables, under the lock. The body must not raise.
    pub(super) fn with_all<T>(&self, body: impl FnOnce(&mut Tables) -> T) -> T {
        // SAFETY: this is inside a boundary. The lock is taken last, so this process does not hold it.
        unsafe { pg_guard_ffi_boundary(|| self.locked(body)) }
    }

    /// Runs a body under the lock.
    ///
    /// # Safety
    /// * The caller must be inside an FFI boundary, and not hold the lock of the table.
    /// * `body` must not raise: then the lock would not be released.
    #[allow(
        ffi_unwind_calls,
        reason = "the caller is inside of a boundary, and the frames up to it are plain"
    )]
    unsafe fn locked<T>(&self, body: impl FnOnce(&mut Tables) -> T) -> T {
        // SAFETY: the exclusive lock ensures that this is the only reference to the tables, in all processes.
        unsafe {
            unguarded::LWLockAcquire(self.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE);
            let result = body(&mut *self.tables.get());
            unguarded::LWLockRelease(self.lock.get());
            result
        }
    }
}
