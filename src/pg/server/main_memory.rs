//! Main shared memory, if the server preloads the library: PostgreSQL's hooks for it, installed once for all
//! parts of the extension.

use crate::pg::border::backend_local::BackendLocal;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};

/// A part of the extension that uses main shared memory.
#[derive(Clone, Copy)]
pub struct MainMemory {
    /// Returns how many bytes it needs.
    pub size: fn() -> usize,
    /// Finds or makes its structures, when PostgreSQL sets up shared memory. Raises an error if there is no
    /// memory.
    pub set_up: unsafe fn(),
}

static PARTS: BackendLocal<RefCell<Vec<MainMemory>>> = BackendLocal::new(RefCell::new(Vec::new()));

static PREV_SHMEM_REQUEST: BackendLocal<Cell<pg_sys::shmem_request_hook_type>> =
    BackendLocal::new(Cell::new(None));
static PREV_SHMEM_STARTUP: BackendLocal<Cell<pg_sys::shmem_startup_hook_type>> =
    BackendLocal::new(Cell::new(None));

/// Makes the server request and set up a part's memory, after that of the parts before. Only `_PG_init` may
/// call this, while the server preloads the library.
pub fn use_main_memory(part: MainMemory) {
    let is_first = PARTS.borrow().is_empty();
    PARTS.borrow_mut().push(part);
    if is_first {
        // SAFETY: this runs once, in the postmaster's `_PG_init`, when there is one thread. The hooks have
        // the right types.
        unsafe {
            PREV_SHMEM_REQUEST.set(pg_sys::shmem_request_hook);
            pg_sys::shmem_request_hook = Some(shmem_request);
            PREV_SHMEM_STARTUP.set(pg_sys::shmem_startup_hook);
            pg_sys::shmem_startup_hook = Some(shmem_startup);
        }
    }
}

/// Returns the parts. An error may leave the hook while one is visited, so nothing is borrowed then.
fn parts() -> impl Iterator<Item = MainMemory> {
    (0..).map_while(|i| PARTS.borrow().get(i).copied())
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
#[allow(ffi_unwind_calls, reason = "it is inside of a boundary")]
unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: PostgreSQL calls this hook when libraries may request shared memory. The previous hook expects
    // the same.
    unsafe {
        if let Some(previous) = PREV_SHMEM_REQUEST.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        for part in parts() {
            pg_sys::RequestAddinShmemSpace((part.size)());
        }
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
#[allow(ffi_unwind_calls, reason = "it is inside of a boundary")]
unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: PostgreSQL calls this hook to set up shared memory, as the parts and the previous hook expect.
    unsafe {
        if let Some(previous) = PREV_SHMEM_STARTUP.get() {
            pg_guard_ffi_boundary(|| previous());
        }
        for part in parts() {
            (part.set_up)();
        }
    }
}
