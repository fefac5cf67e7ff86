//! Runs work of the extension's whose failure must not become the user's: errors end here, and so does all that they
//! leave behind.
//!
//! An error that is swallowed leaves locks held and resources registered with the statement's resource owner. At commit
//! PostgreSQL would warn the client of each ("dynamic shared memory leak"). So the work has a resource owner of its
//! own, which is released when it fails.

use super::backend_local::BackendLocal;
use super::compat;
use super::pg_try::is_cancel;
use super::server::{self, HeldInterrupts};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// A resource owner that is kept for the next time; null where there is none.
static SPARE: BackendLocal<Cell<pg_sys::ResourceOwner>> = BackendLocal::new(Cell::new(std::ptr::null_mut()));

/// Runs a body that may raise while it holds lightweight locks. On an error, returns what was raised, with the locks and
/// all resources of the body given back.
///
/// The body must not hold on to resources: shared memory that is to stay mapped is pinned. The caller must hold no
/// lightweight lock.
pub fn contained<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // SAFETY: while the body runs the owner is its own: a `contained` within takes another. What is in force outside is put
    // back on both ways out, before the owner goes.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let context = pg_sys::CurrentMemoryContext;
        let mut owner = SPARE.replace(std::ptr::null_mut());
        let result = server::caught(|| {
            if owner.is_null() {
                owner = pg_sys::ResourceOwnerCreate(std::ptr::null_mut(), c"pg_rowsource".as_ptr());
            }
            pg_sys::CurrentResourceOwner = owner;
            body()
        });
        pg_sys::CurrentResourceOwner = outer;
        match result {
            Ok(value) => {
                let other = SPARE.replace(owner);
                if !other.is_null() {
                    release(other, true, true);
                }
                Ok(value)
            }
            Err(error) => {
                pg_sys::CurrentMemoryContext = context;
                pg_sys::LWLockReleaseAll();
                if !owner.is_null() {
                    release(owner, false, true);
                }
                Err(server::message(&*error))
            }
        }
    }
}

/// Runs a body that may raise and that calls into PostgreSQL at large: catalogs, types' functions, foreign data wrappers.
/// `None` where it fails. A cancel or shutdown request goes on.
///
/// # Safety
/// In a transaction, where an error may be raised, holding no lightweight lock.
pub unsafe fn contained_or_cancelled<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: as a subtransaction has it: a child of the owner in force, whose locks go to that owner when all went
    // well. It is not used after it is released. What a failed body left is given back as at a subtransaction's abort.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let held = HeldInterrupts::now();
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
        if result.is_err() {
            pg_sys::LWLockReleaseAll();
            compat::abort_io();
            held.put_back();
        }
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
