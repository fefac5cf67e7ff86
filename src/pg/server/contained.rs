//! Runs work of the extension that must not fail the user's statement. Catches its errors and cleans up after them.
//!
//! After a caught error, locks are still held, and resources are still registered with the statement's resource owner. At
//! commit PostgreSQL would warn the client of each ("dynamic shared memory leak"). So the work gets its own resource owner,
//! which is released if the work fails.

use super::backend_local::BackendLocal;
use super::before::Before;
use super::pg_try::is_request;
use crate::pg::server;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// A resource owner that the next [`contained`] reuses, or null.
static REUSABLE_OWNER: BackendLocal<Cell<pg_sys::ResourceOwner>> =
    BackendLocal::new(Cell::new(std::ptr::null_mut()));

/// Runs a body that may raise an error while it holds lightweight locks. On an error, releases the locks and all resources
/// of the body, and returns the error's message.
///
/// The body must leave no resources with its owner: it must pin shared memory that stays mapped. The caller must hold no
/// lightweight lock.
pub fn contained<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // SAFETY: only this body uses the owner, because a nested `contained` takes another one. The outer owner is current
    // again before this one is released, whether the body succeeds or fails.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let context = pg_sys::CurrentMemoryContext;
        let mut owner = REUSABLE_OWNER.replace(std::ptr::null_mut());
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
                let other = REUSABLE_OWNER.replace(owner);
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

/// Whether the last body that failed had its error raised again.
static RAISED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Returns whether the error that was caught now is one that [`contained_or_cancelled`] or
/// [`contained_with_others`] has raised again, so that it must reach the user.
pub fn take_raised() -> bool {
    RAISED.replace(false)
}

/// Runs a body that may raise an error and that calls functions of PostgreSQL, which may read catalogs.
/// Returns `None` if it fails. After that, all is as before. A cancel or shutdown request of this session is
/// raised again, because it must reach the user.
///
/// # Safety
/// The caller must be in a transaction, must allow errors, and must hold no lightweight lock.
pub unsafe fn contained_or_cancelled<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: the caller makes the same promises.
    unsafe { contained_from(&Before::now(false), body) }
}

/// Runs a body that may also call functions of other extensions, those of types and foreign data wrappers, if
/// `runs_others`.
///
/// An error is raised again also if the body left something that only the abort of a transaction takes away, for
/// example a subtransaction or a cursor. Then the user must see an error: he must not lose work that is reported as
/// committed.
///
/// # Safety
/// The same as for [`contained_or_cancelled`].
pub unsafe fn contained_with_others<T>(runs_others: bool, body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: the caller makes the same promises.
    unsafe { contained_from(&Before::now(runs_others), body) }
}

/// Runs a body. If it fails, all becomes as `before`, or the error is raised again.
///
/// # Safety
/// The same as for [`contained_or_cancelled`]. `before` must be the current state.
unsafe fn contained_from<T>(before: &Before, body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: the owner is a child of the current owner, as in a subtransaction, and is not used after its release. If the
    // body succeeds, its locks pass to the outer owner. If it fails, everything is released that the abort of a
    // subtransaction releases.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        RAISED.set(false);
        let owner = pg_sys::ResourceOwnerCreate(outer, c"pg_rowsource".as_ptr());
        pg_sys::CurrentResourceOwner = owner;
        let result = PgTryBuilder::new(AssertUnwindSafe(|| Ok(body())))
            .catch_others(|error| {
                // What follows may raise an error, which must reach the user, too.
                RAISED.set(true);
                let is_postgres = matches!(error, CaughtError::PostgresError(_));
                if before.has_open_subtransactions() {
                    let copy = is_postgres.then(|| copy_error(before));
                    before.roll_back();
                    pg_sys::CurrentResourceOwner = outer;
                    if let Some(copy) = copy {
                        pg_sys::ReThrowError(copy);
                    }
                    error.rethrow();
                }
                if is_request(&error) || !before.restore() {
                    pg_sys::CurrentResourceOwner = outer;
                    error.rethrow();
                }
                RAISED.set(false);
                Err(())
            })
            .execute();
        pg_sys::CurrentResourceOwner = outer;
        release(owner, result.is_ok(), false);
        result.ok().flatten()
    }
}

/// Copies the error that was caught, and removes PostgreSQL's record of it: what follows may raise errors
/// itself.
///
/// # Safety
/// An error of PostgreSQL must have been caught. May raise.
unsafe fn copy_error(before: &Before) -> *mut pg_sys::ErrorData {
    // SAFETY: the context is that in which the caller runs, so it outlives the subtransactions that are open.
    unsafe {
        pg_sys::CurrentMemoryContext = before.context();
        let copy = pg_sys::CopyErrorData();
        pg_sys::FlushErrorState();
        copy
    }
}

/// Releases a resource owner and deletes it. If the release fails, the remaining resources stay with the process, because
/// nothing else can release them.
///
/// # Safety
/// Nothing may use the owner afterwards.
unsafe fn release(owner: pg_sys::ResourceOwner, commit: bool, toplevel: bool) {
    use pg_sys::ResourceReleasePhase::*;
    // SAFETY: nothing else uses the owner, by the caller's promise. The current owner is restored.
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
