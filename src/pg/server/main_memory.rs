//! Main shared memory, if the server preloads the library: PostgreSQL's hooks for it, installed once for all
//! parts of the extension.

use crate::pg::border::backend_local::BackendLocal;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;

/// A part of the extension that uses main shared memory.
#[derive(Clone, Copy)]
pub struct MainMemory {
    /// Returns how many bytes it needs.
    pub size: fn() -> usize,
    /// Finds or makes its structures, when PostgreSQL sets up shared memory. Raises an error if there is no
    /// memory.
    pub set_up: fn(&SettingUp),
}

/// Shows that PostgreSQL sets up shared memory now.
pub struct SettingUp(());

impl SettingUp {
    /// Finds or makes so many bytes of main shared memory, which are aligned to cache lines and stay mapped.
    /// Returns where they are, and whether they are new. New bytes may have any values, and no other process
    /// sees them before it is started. Raises an error if there is no memory.
    pub fn find_or_make(&self, name: &CStr, bytes: usize) -> (*mut u8, bool) {
        let mut is_old = false;
        // SAFETY: PostgreSQL allows that now. The name is a C string, and is copied.
        let found = unsafe { pg_sys::ShmemInitStruct(name.as_ptr(), bytes, &mut is_old) };
        (found.cast(), !is_old)
    }

    /// Does that for so many values, which consist of zero bytes at first.
    pub fn zeroed<T: Zeroed>(&self, name: &CStr, count: usize) -> (&'static [T], bool) {
        const { assert!(align_of::<T>() <= 64) };
        let (first, is_new) = self.find_or_make(name, count * size_of::<T>());
        let first = first.cast::<T>();
        // SAFETY: there is room for so many values, which zero bytes are. They stay mapped, and consist of
        // atomics.
        let values = unsafe {
            if is_new {
                first.write_bytes(0, count);
            }
            std::slice::from_raw_parts(first, count)
        };
        (values, is_new)
    }
}

/// A type whose values may lie in shared memory.
///
/// # Safety
/// It consists of atomics, and all bytes of it may be zero.
pub unsafe trait Zeroed: 'static {}

// SAFETY: it is an atomic.
unsafe impl Zeroed for AtomicU64 {}

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
    if let Some(previous) = PREV_SHMEM_STARTUP.get() {
        // SAFETY: PostgreSQL calls this hook to set up shared memory, as the previous hook expects.
        unsafe { pg_guard_ffi_boundary(|| previous()) };
    }
    for part in parts() {
        (part.set_up)(&SettingUp(()));
    }
}
