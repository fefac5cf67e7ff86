//! PostgreSQL's PG_TRY for plain old frames: what pgrx's guard and boundary do together, for a third of their price.
//! It leaves the error as it was raised.

use super::unguarded;
use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;
use rowsource_core::model::Outcome;

/// Runs a body; if it raises, `put_back` and then `afterwards` run before the error goes on to whoever is next to catch
/// it.
///
/// While `afterwards` works, the error is kept in a copy. When memory is out, there is no room for copies: `afterwards`
/// does not run then. Each copy that fails would raise an error upon the error, and PostgreSQL ends the server at the
/// fifth of those.
///
/// # Safety
/// The caller's and the body's own frames must be plain: an error crosses the body's, and leaves the
/// caller's. Neither `put_back` nor `afterwards` may raise or panic; `put_back` must leave PostgreSQL's record of the
/// error alone.
#[inline(always)]
pub unsafe fn pg_try(body: impl FnOnce(), put_back: impl FnOnce(Outcome), afterwards: impl FnOnce()) {
    // SAFETY: the exception stack points to our buffer only while the body runs. What is put back was kept before
    // the jump buffer was made, and not written since.
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
            let code = unguarded::geterrcode();
            put_back(outcome(code));
            if code == PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as i32 {
                unguarded::pg_re_throw();
            }
            let error = unguarded::CopyErrorData();
            unguarded::FlushErrorState();
            afterwards();
            unguarded::ReThrowError(error);
        }
    }
}

fn outcome(sqlerrcode: i32) -> Outcome {
    if is_cancel(sqlerrcode) {
        Outcome::Cancelled
    } else {
        Outcome::Failed
    }
}

/// Whether an error of this code ends a statement from outside: a cancel or shutdown request, or on a standby a conflict
/// with recovery. Statements on a standby have no such failures of their own, but for deadlocks over advisory locks.
pub fn is_cancel(sqlerrcode: i32) -> bool {
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
    // SAFETY: no arguments; looks at shared memory only.
    is_one_of(&REQUESTS) || (is_one_of(&CONFLICTS) && unsafe { unguarded::RecoveryInProgress() })
}
