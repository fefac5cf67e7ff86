//! The first line of a file.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server::{self, from_database};
use pgrx::pg_sys;
use rowsource_core::sql_trace::VERSION;
use std::cell::RefCell;
use std::ffi::{CStr, c_char};

/// The session's user and database when the trace began.
static WHO: BackendLocal<RefCell<String>> = BackendLocal::new(RefCell::new(String::new()));

/// Returns `user@database`, without the names if the catalog cannot be read now.
pub fn who() -> String {
    // SAFETY: the function has no preconditions, and the other one is a global of a plain type.
    let (in_transaction, database) = unsafe { (pg_sys::IsTransactionState(), pg_sys::MyDatabaseId) };
    if !in_transaction {
        return "@".to_owned();
    }
    let user = server::user_name(server::session_user_id()).unwrap_or_default();
    let database = server::database_name(database.to_u32()).unwrap_or_default();
    format!("{user}@{database}")
}

/// Keeps what [`who`] returned, for all files of the trace.
pub fn keep_who(who: String) {
    WHO.replace(who);
}

/// Writes the first line of the file with this number. Reads no catalog.
pub fn write(part: u32) {
    // SAFETY: these are globals of plain types. The name is null or a C string.
    let (database, program) = unsafe { (pg_sys::MyDatabaseId, text(pg_sys::application_name)) };
    let uid = server::session_user_id();
    let session = match WHO.try_borrow() {
        Ok(who) => format!("{who} {program}"),
        Err(_) => program,
    };
    hot::with_buffer(|buffer| {
        buffer
            .line(b"TRACE", 0)
            .number(b"version", VERSION)
            .number(b"pid", server::pid() as u64)
            .number(b"uid", u64::from(uid))
            .number(b"datid", u64::from(database.to_u32()))
            .number(b"part", u64::from(part))
            .signed(b"unix", server::now_unix())
            .number(b"tim", hot::now_us())
            .text(b"session", session.as_bytes())
            .end()
    });
}

/// Returns a copy of a text; empty if it is null.
///
/// # Safety
/// `text` must be null or a C string in the database's encoding.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it is a C string, by the caller's promise.
    from_database(unsafe { CStr::from_ptr(text) }.to_bytes())
}
