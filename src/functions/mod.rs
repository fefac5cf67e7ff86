//! What SQL sees. The SQL that declares these is written by hand: `pg_rowsource--*.sql`.

use crate::pg::server;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

mod clocks;
pub mod display;
pub mod history;
mod store;
pub mod temp_usage;
pub mod tempfile;
pub mod views;

/// Ends the user's call with an error that says what to do about it.
pub fn fail(code: PgSqlErrorCode, message: &str, hint: &str) -> ! {
    ErrorReport::new(code, server::as_message(message), "pg_rowsource")
        .set_hint(server::as_message(hint))
        .report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}
