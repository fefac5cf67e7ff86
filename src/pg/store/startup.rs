//! Requests the store's main shared memory, in a postmaster that preloads the library.

use super::control::{self, Control};
use super::saving;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::{server, tempfile};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::cell::Cell;

static PREV_SHMEM_REQUEST: BackendLocal<Cell<pg_sys::shmem_request_hook_type>> =
    BackendLocal::new(Cell::new(None));
static PREV_SHMEM_STARTUP: BackendLocal<Cell<pg_sys::shmem_startup_hook_type>> =
    BackendLocal::new(Cell::new(None));

/// Installs the hooks that set up shared memory. Does nothing in a session that loads the library later.
pub fn init() {
    if !server::preloading() {
        return;
    }
    // SAFETY: this runs once, in the postmaster's `_PG_init`, when there is one thread. The hooks have the right types.
    unsafe {
        PREV_SHMEM_REQUEST.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(shmem_request);
        PREV_SHMEM_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(shmem_startup);
    }
}

/// Requests shared memory.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: PostgreSQL calls this hook when libraries may request shared memory. The previous hook expects the same.
    unsafe {
        if let Some(previous) = PREV_SHMEM_REQUEST.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Control>());
        pg_sys::RequestAddinShmemSpace(tempfile::counters::SIZE);
    }
}

/// Finds or makes the extension's structures in main shared memory.
///
/// # Safety
/// Only PostgreSQL may call this, as its hook of this name.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: PostgreSQL calls this hook to set up shared memory, as `find_or_make_preloaded` and the previous hook expect.
    unsafe {
        if let Some(previous) = PREV_SHMEM_STARTUP.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        control::find_or_make_preloaded();
    }
    tempfile::set_up();
    saving::save_at_exit();
}
