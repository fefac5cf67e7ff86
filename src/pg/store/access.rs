//! What a backend knows of the store once it has attached to it, and the locks.

use super::control::Control;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::unguarded;
use pgrx::pg_sys;
use std::cell::Cell;

/// This backend's access to the store. All that it points to stays as long as the process.
#[derive(Clone, Copy)]
pub(super) struct Store {
    pub control: *mut Control,
    /// The plans and their table.
    pub plans: *mut pg_sys::dsa_area,
    /// The sessions' buffers.
    pub pending: *mut pg_sys::dsa_area,
    pub table: *mut pg_sys::dshash_table,
}

static STORE: BackendLocal<Cell<Option<Store>>> = BackendLocal::new(Cell::new(None));

/// Returns the store, if this backend has attached to it.
#[inline(always)]
pub(super) fn store() -> Option<Store> {
    STORE.get()
}

/// Returns whether this backend has attached to the store.
#[inline(always)]
pub(super) fn is_attached() -> bool {
    // SAFETY: only this thread uses the cell, and the reference ends here.
    unsafe { (*STORE.as_ptr()).is_some() }
}

/// Notes that this backend has attached to the store.
pub(super) fn set_attached(store: Store) {
    STORE.set(Some(store));
}

/// Runs a body under a lock. Raises nothing, so that it may stand inside one boundary with others.
///
/// # Safety
/// * `lock` must point to a lock that this process does not hold.
/// * `body` must not raise: nobody would release the lock.
pub(super) unsafe fn locked<T>(lock: *mut pg_sys::LWLock, exclusive: bool, body: impl FnOnce() -> T) -> T {
    let mode = if exclusive {
        pg_sys::LWLockMode::LW_EXCLUSIVE
    } else {
        pg_sys::LWLockMode::LW_SHARED
    };
    // SAFETY: the caller's lock, which this process does not hold. `body` does not raise, so that the lock is released.
    unsafe {
        unguarded::LWLockAcquire(lock, mode);
        let result = body();
        unguarded::LWLockRelease(lock);
        result
    }
}

/// Runs a body under the control lock, exclusively.
///
/// # Safety
/// * This process must not hold the control lock, nor one that is taken after it.
/// * The caller must be inside [`contained`](crate::pg::contained::contained), which releases the lock after an error.
pub(super) unsafe fn locked_by_control<T>(store: &Store, body: impl FnOnce() -> T) -> T {
    // SAFETY: the lock lies in shared memory, and this process does not hold it. An error of the body leaves it to
    // `contained`.
    unsafe {
        let lock = &raw mut (*store.control).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let result = body();
        pg_sys::LWLockRelease(lock);
        result
    }
}
