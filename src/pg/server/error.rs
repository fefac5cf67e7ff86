//! Errors that are caught, what they say, and interrupts.

use pgrx::pg_sys;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a body that may raise, and returns its error.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let held = HeldInterrupts::now();
    catch_unwind(AssertUnwindSafe(body)).inspect_err(|_| {
        // SAFETY: the panic has a copy of the error. PostgreSQL's own record of it must be removed, or its stack fills.
        unsafe { pg_sys::FlushErrorState() }
        held.put_back();
    })
}

/// How often interrupts are held off. An error resets this count, which is right if it ends a transaction. If it is caught
/// here, the functions above that hold interrupts off would decrement the count below zero, and the session would never
/// see an interrupt again.
pub struct HeldInterrupts {
    interrupts: u32,
    cancels: u32,
}

impl HeldInterrupts {
    /// Remembers the present count.
    pub fn now() -> Self {
        // SAFETY: globals of plain types, which are valid at all times.
        unsafe {
            HeldInterrupts {
                interrupts: pg_sys::InterruptHoldoffCount,
                cancels: pg_sys::QueryCancelHoldoffCount,
            }
        }
    }

    /// Restores the count. To be called after an error was caught. The caller must hold no lightweight lock.
    pub fn put_back(&self) {
        // SAFETY: globals of plain types. The functions that held interrupts off at that time still run.
        unsafe {
            pg_sys::InterruptHoldoffCount = self.interrupts;
            pg_sys::QueryCancelHoldoffCount = self.cancels;
        }
    }
}

/// Returns the message of an error that [`caught`] took.
pub fn message(error: &(dyn Any + Send)) -> String {
    use pg_sys::panic::CaughtError;
    match error.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) => {
            report.message().to_owned()
        }
        Some(CaughtError::RustPanic { ereport, .. }) => ereport.message().to_owned(),
        None => "an error of pg_rowsource".to_owned(),
    }
}

/// Writes to the server's log without the user's statement, which has nothing to do with the message.
pub fn log_alone(message: &str) {
    // SAFETY: globals of plain types, which are restored at once. A LOG line raises nothing while interrupts are held off:
    // a cancel request waits.
    unsafe {
        let statement = pg_sys::debug_query_string;
        pg_sys::debug_query_string = std::ptr::null();
        pg_sys::InterruptHoldoffCount += 1;
        pgrx::log!("{message}");
        pg_sys::InterruptHoldoffCount -= 1;
        pg_sys::debug_query_string = statement;
    }
}

/// Raises an error if the user cancelled the statement, or the session is to end.
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}
