//! The postmaster asks for the store's main shared memory, where the server preloads the library.

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

/// Asks for shared memory; does nothing in a session that loads the library later.
pub fn init() {
    if !server::preloading() {
        return;
    }
    // SAFETY: _PG_init runs once in the postmaster.
    unsafe {
        PREV_SHMEM_REQUEST.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(shmem_request);
        PREV_SHMEM_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(shmem_startup);
    }
}

/// Asks for shared memory.
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: PostgreSQL calls this as the hook in which shared memory may be asked for.
    unsafe {
        if let Some(previous) = PREV_SHMEM_REQUEST.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Control>());
        pg_sys::RequestAddinShmemSpace(tempfile::counters::SIZE);
    }
}

/// Finds or makes what lies in shared memory.
///
/// # Safety
/// To be called by PostgreSQL as its hook of this name.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: PostgreSQL calls this as the hook in which shared memory is set up.
    unsafe {
        if let Some(previous) = PREV_SHMEM_STARTUP.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        control::find_or_make_preloaded();
    }
    tempfile::set_up();
    saving::save_at_exit();
}
