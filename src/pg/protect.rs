//! PostgreSQL's PG_TRY for plain old frames: what pgrx's guard and boundary do together, for a third of their price.
//! It leaves the error as it was raised.

use super::raw;
use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;
use rowsource_core::figures::Outcome;

/// Runs a body; if it raises, `on_error` runs before the error goes on to whoever is next to catch it.
///
/// # Safety
/// Main thread. The caller's and the body's own frames must be plain: an error crosses the body's, and leaves the
/// caller's. `on_error` must neither raise nor panic.
#[inline(always)]
pub unsafe fn or_else(body: impl FnOnce(), on_error: impl FnOnce(Outcome)) {
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
            let error = raw::CopyErrorData();
            raw::FlushErrorState();
            on_error(outcome((*error).sqlerrcode));
            raw::ReThrowError(error);
        }
    }
}

fn outcome(sqlerrcode: i32) -> Outcome {
    const CANCELLED: [i32; 2] = [
        PgSqlErrorCode::ERRCODE_QUERY_CANCELED as i32,
        PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN as i32,
    ];
    if CANCELLED.contains(&sqlerrcode) {
        Outcome::Cancelled
    } else {
        Outcome::Failed
    }
}
