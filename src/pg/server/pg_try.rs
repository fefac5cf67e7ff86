//! PostgreSQL's PG_TRY for plain frames. It replaces pgrx's guard and boundary at a third of their cost, and
//! does not change the error.

use crate::pg::border::frames::PlainFrames;
use crate::pg::border::unguarded;
use crate::pg::handles::Handle;
use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use rowsource_core::model::Outcome;

/// Runs a body. If it raises an error, `restore` and then `afterwards` run before the error is raised again.
/// `afterwards` gets the outcome of the statement that the error ends.
///
/// While `afterwards` runs, the error is kept in a copy. `afterwards` does not run after an error "out of
/// memory", because there is no memory for the copy. A failed copy would raise an error within the error, and
/// PostgreSQL ends the server at the fifth of those.
///
/// The error crosses the frames of the caller and of the body, as `PlainFrames` allows. Neither `restore` nor
/// `afterwards` may raise or panic, and `restore` must leave PostgreSQL's record of the error as it is.
#[inline(always)]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub fn pg_try(_: PlainFrames, body: impl FnOnce(), restore: impl FnOnce(), afterwards: impl FnOnce(Outcome)) {
    // SAFETY: the exception stack points to this buffer only while the body runs. The values that are
    // restored were read before the jump buffer was made, and have not changed since. The frames are plain.
    unsafe {
        let exception_stack = pg_sys::PG_exception_stack;
        let context_stack = pg_sys::error_context_stack;
        let memory = pg_sys::CurrentMemoryContext;
        let raised = call_with_sigsetjmp(false, |buffer| {
            let buffer: *const SigJmpBufFields = buffer;
            pg_sys::PG_exception_stack = buffer.cast_mut().cast();
            body();
            0
        });
        pg_sys::PG_exception_stack = exception_stack;
        pg_sys::error_context_stack = context_stack;
        if raised != 0 {
            pg_sys::CurrentMemoryContext = memory;
            restore();
            if unguarded::geterrcode() == PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as i32 {
                unguarded::pg_re_throw();
            }
            let error = unguarded::CopyErrorData();
            unguarded::FlushErrorState();
            afterwards(outcome(Handle::new(error)));
            unguarded::ReThrowError(error);
        }
    }
}

/// Returns the outcome of a statement that an error ends: it was cancelled if PostgreSQL raised the error for
/// a request of this session.
fn outcome(error: Handle<pg_sys::ErrorData>) -> Outcome {
    match error.file() {
        Some(file) if is_cancel(error.sqlerrcode) && raises_requests(file.to_bytes()) => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}

/// Returns whether an error with this code ends a statement from outside: a cancel or shutdown request, or on
/// a standby a conflict with recovery. On a standby, statements themselves cause errors with these codes only
/// by deadlocks of advisory locks.
fn is_cancel(sqlerrcode: i32) -> bool {
    const REQUESTS: [PgSqlErrorCode; 4] = [
        PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
        PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN,
        PgSqlErrorCode::ERRCODE_CRASH_SHUTDOWN,
        PgSqlErrorCode::ERRCODE_DATABASE_DROPPED,
    ];
    const CONFLICTS: [PgSqlErrorCode; 2] = [
        PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
        PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED,
    ];
    let is_one_of = |codes: &[PgSqlErrorCode]| codes.iter().any(|&code| code as i32 == sqlerrcode);
    is_one_of(&REQUESTS) || (is_one_of(&CONFLICTS) && unguarded::RecoveryInProgress())
}

/// Returns whether PostgreSQL raises errors for requests of this session in a file of its source. It does
/// where it handles interrupts, in two files. A foreign data wrapper raises errors with the codes that its
/// server reports.
fn raises_requests(file: &[u8]) -> bool {
    file == b"postgres.c" || file == b"standby.c"
}

/// Returns whether an error that was caught is a cancel or shutdown request of this session.
pub fn is_request(error: &CaughtError) -> bool {
    let (CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) = error else {
        return false;
    };
    is_cancel(report.sql_error_code() as i32) && raises_requests(report.file().as_bytes())
}
