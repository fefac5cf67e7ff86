//! A backend's pointers to the store after it has attached, and the locks.

use super::control::Control;
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use pgrx::pg_sys;
use std::cell::Cell;

/// This backend's pointers to the store. All of them stay valid until the process ends.
#[derive(Clone, Copy)]
pub(super) struct Store {
    pub control: *mut Control,
    /// The plans and their table.
    pub plans: *mut pg_sys::dsa_area,
    /// The sessions' buffers.
    pub pending: *mut pg_sys::dsa_area,
    pub table: *mut pg_sys::dshash_table,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static STORE: BackendLocal<Cell<Option<Store>>> = BackendLocal::new(Cell::new(None));

/// The area of the sessions' buffers, if this process has attached to that alone: a parallel worker, and the
/// background worker.
static AREA_ALONE: BackendLocal<Cell<Option<*mut pg_sys::dsa_area>>> = BackendLocal::new(Cell::new(None));

/// Returns the area of the sessions' buffers, if this process has attached to it alone.
pub(super) fn area_alone() -> Option<*mut pg_sys::dsa_area> {
    AREA_ALONE.get()
}

/// Stores that this process has attached to the area of the sessions' buffers alone.
pub(super) fn set_area_alone(area: Option<*mut pg_sys::dsa_area>) {
    AREA_ALONE.set(area);
}

/// Returns the store, if this backend has attached to it.
#[inline(always)]
pub(super) fn store() -> Option<Store> {
    STORE.get()
}

/// Returns whether this backend has attached to the store.
#[inline(always)]
pub(super) fn is_attached() -> bool {
    // SAFETY: a backend has one thread that uses the cell. Nothing writes the cell before the reference ends,
    // in this line.
    unsafe { (*STORE.as_ptr()).is_some() }
}

/// Stores the pointers after this backend has attached to the store.
pub(super) fn set_attached(store: Store) {
    STORE.set(Some(store));
}

/// Runs a body under a lock. It raises nothing, so one FFI boundary can contain several of these calls.
///
/// # Safety
/// * `lock` must point to a lock that this process does not hold.
/// * `body` must not raise: then the lock would not be released.
#[allow(
    ffi_unwind_calls,
    reason = "the caller is inside of a boundary, and the frames up to it are plain"
)]
pub(super) unsafe fn locked<T>(lock: *mut pg_sys::LWLock, exclusive: bool, body: impl FnOnce() -> T) -> T {
    let mode = if exclusive {
        pg_sys::LWLockMode::LW_EXCLUSIVE
    } else {
        pg_sys::LWLockMode::LW_SHARED
    };
    // SAFETY: the caller ensures that `lock` is a lock, that this process does not hold it, and that `body`
    // does not raise. So the lock is always released.
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
/// * This process must not hold the control lock, nor a lock that is taken after it.
/// * The caller must be inside [`contained`](crate::pg::server::contained::contained), which releases the
///   lock after an error.
pub(super) unsafe fn locked_by_control<T>(store: &Store, body: impl FnOnce() -> T) -> T {
    // SAFETY: the lock lies in the control block, which stays valid. The caller ensures that this process
    // does not hold it. After an error of the body, `contained` releases it.
    unsafe {
        let lock = &raw mut (*store.control).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let result = body();
        pg_sys::LWLockRelease(lock);
        result
    }
}
