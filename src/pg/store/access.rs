//! A backend's pointers to the store after it has attached, and the locks.

use super::control::Control;
use super::evicted::Controlled;
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use crate::pg::server::contained::Unlocked;
use pgrx::pg_sys;
use std::cell::Cell;

/// This backend's pointers to the store. All of them stay valid until the process ends.
#[derive(Clone, Copy)]
pub(super) struct Store {
    control: &'static Control,
    plans: *mut pg_sys::dsa_area,
    pending: *mut pg_sys::dsa_area,
    table: *mut pg_sys::dshash_table,
}

impl Store {
    /// Returns the pointers.
    ///
    /// # Safety
    /// They must be those of the store, to which this process has attached until it ends.
    pub const unsafe fn new(
        control: &'static Control,
        plans: *mut pg_sys::dsa_area,
        pending: *mut pg_sys::dsa_area,
        table: *mut pg_sys::dshash_table,
    ) -> Store {
        Store {
            control,
            plans,
            pending,
            table,
        }
    }

    /// Returns the control block.
    #[inline(always)]
    pub const fn control(&self) -> &'static Control {
        self.control
    }

    /// Returns the area of the plans and their table.
    #[inline(always)]
    pub const fn plans(&self) -> *mut pg_sys::dsa_area {
        self.plans
    }

    /// Returns the area of the sessions' buffers.
    #[inline(always)]
    pub const fn pending(&self) -> *mut pg_sys::dsa_area {
        self.pending
    }

    /// Returns the table of the plans.
    #[inline(always)]
    pub const fn table(&self) -> *mut pg_sys::dshash_table {
        self.table
    }

    /// Sets the limits of both areas to those of today, see [`Control::new_limits`].
    pub fn apply_limit(&self) {
        if let Some((plans, sessions)) = self.control.new_limits() {
            // SAFETY: this process has attached to both areas.
            unsafe {
                pg_sys::dsa_set_size_limit(self.plans, plans);
                pg_sys::dsa_set_size_limit(self.pending, sessions);
            }
        }
    }
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

/// Runs a body under the control lock, exclusively. If the body raises, the lock is released by
/// [`contained`](crate::pg::server::contained::contained), or by the abort of the transaction.
pub(super) fn locked_by_control<T>(
    store: &Store,
    _: &mut Unlocked,
    body: impl FnOnce(&Controlled) -> T,
) -> T {
    let lock = store.control.lock.get();
    // SAFETY: the lock lies in the control block, which stays valid. This process holds none.
    let held = unsafe {
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        Controlled::promised()
    };
    let result = body(&held);
    // SAFETY: this process holds it.
    unsafe { pg_sys::LWLockRelease(lock) };
    result
}
