//! Runs work of the extension's whose failure must not become the user's: errors end here, and so does all that they
//! leave behind.
//!
//! An error that is swallowed leaves locks held and resources registered with the statement's resource owner. At commit
//! PostgreSQL would warn the client of each ("dynamic shared memory leak"). So the work has a resource owner of its
//! own, which is released when it fails.

use super::backend_local::BackendLocal;
use super::protect::is_cancel;
use super::server;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// The resource owner of shared memory; null until it is needed, and after a failure.
static OWNER: BackendLocal<Cell<pg_sys::ResourceOwner>> = BackendLocal::new(Cell::new(std::ptr::null_mut()));

/// Runs a body that may raise while it holds lightweight locks. On an error, returns what was raised, with the locks and
/// all resources of the body given back.
///
/// The body must not hold on to resources: shared memory that is to stay mapped is pinned. The caller must hold no
/// lightweight lock, unless an abort is about to release it.
pub fn contained<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // SAFETY: the owner lives until it is released below. CurrentResourceOwner and the memory context are
    // put back on both ways out; what the body registered is released with its own owner.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let context = pg_sys::CurrentMemoryContext;
        let result = server::caught(|| {
            if OWNER.get().is_null() {
                OWNER.set(pg_sys::ResourceOwnerCreate(
                    std::ptr::null_mut(),
                    c"pg_rowsource".as_ptr(),
                ));
            }
            pg_sys::CurrentResourceOwner = OWNER.get();
            body()
        });
        pg_sys::CurrentResourceOwner = outer;
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        pg_sys::CurrentMemoryContext = context;
        pg_sys::LWLockReleaseAll();
        let owner = OWNER.replace(std::ptr::null_mut());
        if !owner.is_null() {
            release(owner, false, true);
        }
        Err(server::message(&*error))
    }
}

/// Runs a body that may raise and that calls into PostgreSQL at large: catalogs, types' functions, foreign data wrappers.
/// `None` where it fails. A cancel or shutdown request goes on.
///
/// # Safety
/// In a transaction, where an error may be raised.
pub unsafe fn contained_or_cancelled<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: as a subtransaction has it: a child of the owner in force, whose locks go to that owner when all went
    // well. It is not used after it is released.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let owner = pg_sys::ResourceOwnerCreate(outer, c"pg_rowsource".as_ptr());
        pg_sys::CurrentResourceOwner = owner;
        let result = PgTryBuilder::new(AssertUnwindSafe(|| Ok(body())))
            .catch_others(move |error| {
                let cancel = match &error {
                    CaughtError::PostgresError(report) => is_cancel(report.sql_error_code() as i32),
                    _ => false,
                };
                if cancel {
                    pg_sys::CurrentResourceOwner = outer;
                    error.rethrow();
                }
                Err(())
            })
            .execute();
        pg_sys::CurrentResourceOwner = outer;
        release(owner, result.is_ok(), false);
        result.ok().flatten()
    }
}

/// Releases a resource owner and deletes it. What cannot be released stays with the process; there is nothing better to
/// do about it.
///
/// # Safety
/// Nobody may use the owner any more.
unsafe fn release(owner: pg_sys::ResourceOwner, commit: bool, toplevel: bool) {
    use pg_sys::ResourceReleasePhase::*;
    // SAFETY: nobody uses the owner any more, by the caller's promise. The owner in force is put back.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let _ = server::caught(|| {
            for phase in [
                RESOURCE_RELEASE_BEFORE_LOCKS,
                RESOURCE_RELEASE_LOCKS,
                RESOURCE_RELEASE_AFTER_LOCKS,
            ] {
                pg_sys::ResourceOwnerRelease(owner, phase, commit, toplevel);
            }
            pg_sys::ResourceOwnerDelete(owner);
        });
        pg_sys::CurrentResourceOwner = outer;
    }
}
