//! Raises errors with a hint for the user, and sends notices.

use super::encoding::as_message;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// Ends the user's call with an error. The hint says what to do about it.
pub fn fail(code: PgSqlErrorCode, message: &str, hint: &str) -> ! {
    ErrorReport::new(code, as_message(message), "pg_rowsource")
        .set_hint(as_message(hint))
        .report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// Sends the client a notice with a hint.
pub fn notify(message: &str, hint: &str) {
    let code = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    ErrorReport::new(code, as_message(message), "pg_rowsource")
        .set_hint(as_message(hint))
        .report(PgLogLevel::NOTICE);
}
