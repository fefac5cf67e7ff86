//! The names of wait events and of types of processes, as in pg_stat_activity.

use super::slots::PARALLEL_WORKER;
use pgrx::pg_sys;
use rowsource_core::waits::Event;
use std::ffi::{CStr, c_char};

/// Returns the names of an event's type and of the event. Core knows them, those of extensions' own events
/// included.
pub fn event_names(event: Event) -> Option<(String, String)> {
    // SAFETY: the function accepts any number, and raises an error or returns null or a C string that stays
    // as it is until the statement ends.
    unsafe { Some((type_name(event)?, owned(pg_sys::pgstat_get_wait_event(event))?)) }
}

/// Returns the name of an event's type.
pub fn type_name(event: Event) -> Option<String> {
    // SAFETY: the function accepts any number, and returns null or a C string that lives for ever.
    unsafe { owned(pg_sys::pgstat_get_wait_event_type(event)) }
}

/// Returns the name of a type of processes.
pub fn backend_type_name(of: u32) -> String {
    if of == PARALLEL_WORKER {
        return "parallel worker".to_owned();
    }
    // SAFETY: the function accepts any number, and returns a C string, which is translated and stays as it
    // is.
    unsafe { owned(pg_sys::GetBackendTypeDesc(of)) }.unwrap_or_default()
}

/// Returns a copy of a name.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn owned(name: *const c_char) -> Option<String> {
    // SAFETY: a name that is not null is a C string, by the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
