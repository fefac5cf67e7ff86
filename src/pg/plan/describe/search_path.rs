//! Keeps object_access_hook from running because a plan or a query is printed.
//!
//! After a change of `search_path`, PostgreSQL computes the path when it is needed first, and asks the hook
//! for each schema. EXPLAIN may be the first that needs it. The hook's answer belongs in the path, so nothing
//! else can give it: the printing ends with an error instead. The path stays as it is until the user's own
//! statement needs it.

use crate::pg::border::backend_local::BackendLocal;
use pgrx::pg_sys::panic::pgrx_extern_c_guard;
use pgrx::pg_sys::{self, ObjectAccessType, Oid};
use std::cell::Cell;
use std::ffi::c_void;

/// The hook that was set, and whether it must not run now.
static HOOK: BackendLocal<Cell<(pg_sys::object_access_hook_type, bool)>> =
    BackendLocal::new(Cell::new((None, false)));

/// While this lives, object_access_hook does not run.
pub struct Unasked(pg_sys::object_access_hook_type);

impl Unasked {
    /// Mutes the hook, if there is one.
    pub fn new() -> Unasked {
        // SAFETY: the hook is a global of a plain type, which only this thread uses.
        unsafe {
            let hook = pg_sys::object_access_hook;
            if hook.is_some() {
                HOOK.set((hook, true));
                pg_sys::object_access_hook = Some(unasked);
            }
            Unasked(hook)
        }
    }
}

impl Drop for Unasked {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        HOOK.set((self.0, false));
        // SAFETY: as in `new`.
        unsafe {
            // A library that was loaded meanwhile has set its own hook, which calls `unasked`.
            let is_ours = pg_sys::object_access_hook.is_some_and(|hook| std::ptr::fn_addr_eq(hook, UNASKED));
            if is_ours {
                pg_sys::object_access_hook = self.0;
            }
        }
    }
}

/// The type of the hook.
type Hook = unsafe extern "C-unwind" fn(ObjectAccessType::Type, Oid, Oid, i32, *mut c_void);

const UNASKED: Hook = unasked;

/// Stands in for the hook of another extension.
///
/// # Safety
/// Only PostgreSQL and other hooks may call this. The caller's frame must be plain, because an error crosses
/// it.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn unasked(
    access: ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    part: i32,
    argument: *mut c_void,
) {
    // SAFETY: the caller makes the promises that the hook requires.
    unsafe {
        match HOOK.get() {
            (_, true) if access == ObjectAccessType::OAT_NAMESPACE_SEARCH => pgrx_extern_c_guard(|| {
                pgrx::error!(
                    "pg_rowsource does not compute the search path, because that would call object_access_hook"
                );
            }),
            (Some(hook), false) => hook(access, class, object, part, argument),
            _ => {}
        }
    }
}
