//! The first line of a file.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::unguarded;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server::{self, from_database};
use rowsource_core::sql_trace::VERSION;
use std::cell::RefCell;

/// The session's user and database when the trace began.
static WHO: BackendLocal<RefCell<String>> = BackendLocal::new(RefCell::new(String::new()));

/// Returns `user@database`, without the names if the catalog cannot be read now.
pub fn who() -> String {
    if !unguarded::IsTransactionState() {
        return "@".to_owned();
    }
    let user = server::user_name(server::session_user_id()).unwrap_or_default();
    let database = server::database_name(server::database_id()).unwrap_or_default();
    format!("{user}@{database}")
}

/// Keeps what [`who`] returned, for all files of the trace.
pub fn keep_who(who: String) {
    WHO.replace(who);
}

/// Writes the first line of the file with this number. Reads no catalog.
pub fn write(part: u32) {
    let program = server::with_application_name(from_database);
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
            .number(b"datid", u64::from(server::database_id()))
            .number(b"part", u64::from(part))
            .signed(b"unix", server::now_unix())
            .number(b"tim", hot::now_us())
            .text(b"session", session.as_bytes())
            .end()
    });
}
