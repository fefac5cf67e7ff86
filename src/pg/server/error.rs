//! Catches errors, returns their messages, and handles interrupts.

use super::memory;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a body that may raise an error, and returns the error.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let held = HeldInterrupts::now();
    catch_unwind(AssertUnwindSafe(body)).inspect_err(|error| {
        // SAFETY: the panic has a copy of the error, so PostgreSQL's own record of it is not needed. It must
        // be removed, because its stack of records has room for only a few.
        unsafe { pg_sys::FlushErrorState() }
        held.restore();
        note_panic(&**error);
    })
}

/// Runs work that the library does beside a user's statement, and that must not fail the statement. An error
/// is noted ([`note_error`]). `what` is what could not be done then.
#[inline(always)]
pub fn attempt<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    caught(work).map_err(|error| note_error(what, &*error)).ok()
}

/// Counts an error that was caught and that no user sees. The server's log names the first one of a session.
#[cold]
#[inline(never)]
pub fn note_error(what: &str, error: &(dyn Any + Send)) {
    // Nothing is left to be done if this fails too.
    let _ = caught(|| {
        if let Some(count) = ON_ERROR.get() {
            count();
        }
        if is_internal(error) {
            note_fault();
        }
        if !IS_LOGGED.get() && memory::has_headroom(0) {
            IS_LOGGED.set(true);
            log_alone(&format!("pg_rowsource could not {what}: {}", message(error)));
        }
    });
}

/// What counts the errors that no user sees.
static ON_ERROR: BackendLocal<Cell<Call>> = BackendLocal::new(Cell::new(None));
/// The session has logged one.
static IS_LOGGED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Has a function called for each error that no user sees. It must not raise.
pub fn on_error(count: fn()) {
    ON_ERROR.set(Some(count));
}

/// What is called when a fault of the library was caught.
static ON_FAULT: BackendLocal<Cell<Call>> = BackendLocal::new(Cell::new(None));
type Call = Option<fn()>;

/// Has a function called whenever a fault of the library was caught: a panic, or an error that PostgreSQL
/// calls internal in work that no user has asked for. It must not raise.
pub fn on_fault(call: fn()) {
    ON_FAULT.set(Some(call));
}

/// Notes an error that was caught, if it is a panic of the library. Errors of PostgreSQL have other types.
#[cold]
pub fn note_panic(error: &(dyn Any + Send)) {
    let caught = error.downcast_ref::<CaughtError>();
    let is_own =
        matches!(caught, Some(CaughtError::RustPanic { .. })) || error.is::<&str>() || error.is::<String>();
    if is_own {
        note_fault();
    }
}

fn note_fault() {
    if let Some(call) = ON_FAULT.get() {
        call();
    }
}

/// Returns whether PostgreSQL calls an error internal: nobody expects it.
fn is_internal(error: &(dyn Any + Send)) -> bool {
    let code = match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            report.sql_error_code()
        }
        _ => return false,
    };
    code == PgSqlErrorCode::ERRCODE_INTERNAL_ERROR
}

/// How often interrupts are held off. An error resets this count, which is right if the error ends a
/// transaction. If the error is caught, callers that hold interrupts off would decrement the count below
/// zero, and the session would never handle an interrupt again.
pub struct HeldInterrupts {
    interrupts: u32,
    cancels: u32,
}

impl HeldInterrupts {
    /// Copies the current count.
    pub fn now() -> Self {
        HeldInterrupts {
            interrupts: GLOBALS.InterruptHoldoffCount.get(),
            cancels: GLOBALS.QueryCancelHoldoffCount.get(),
        }
    }

    /// Restores the count after an error was caught. The caller must hold no lightweight lock.
    pub fn restore(&self) {
        // SAFETY: these are globals of plain types. The functions that held interrupts off at that time still
        // run.
        unsafe {
            pg_sys::InterruptHoldoffCount = self.interrupts;
            pg_sys::QueryCancelHoldoffCount = self.cancels;
        }
    }
}

/// Returns the message of an error that [`caught`] returned.
pub fn message(error: &(dyn Any + Send)) -> String {
    match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            report.message().to_owned()
        }
        Some(CaughtError::RustPanic { ereport, .. }) => ereport.message().to_owned(),
        // A panic that no guard of pgrx has caught.
        None => match (error.downcast_ref::<&str>(), error.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "an error of pg_rowsource".to_owned(),
        },
    }
}

/// Writes a message to the server's log, without the user's unrelated statement.
pub fn log_alone(message: &str) {
    // SAFETY: these are globals of plain types, which are restored at once. A LOG line raises no error while
    // interrupts are held off, because cancel requests wait.
    unsafe {
        let statement = pg_sys::debug_query_string;
        pg_sys::debug_query_string = std::ptr::null();
        pg_sys::InterruptHoldoffCount += 1;
        pgrx::log!("{message}");
        pg_sys::InterruptHoldoffCount -= 1;
        pg_sys::debug_query_string = statement;
    }
}

/// Returns whether the user cancelled the statement, or the session must end, or something else waits to be
/// handled.
pub fn is_interrupted() -> bool {
    // SAFETY: this is a global of a plain type, which is valid at all times. A signal handler writes it.
    unsafe { (&raw const pg_sys::InterruptPending).read_volatile() != 0 }
}

/// Raises an error if the user cancelled the statement, or if the session must end.
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}
