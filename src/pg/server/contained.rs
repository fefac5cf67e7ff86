//! Runs work of the extension that must not fail the user's statement. Catches its errors and cleans up after
//! them.
//!
//! After a caught error, locks are still held, and resources are still registered with the statement's
//! resource owner. At commit PostgreSQL would warn the client of each ("dynamic shared memory leak"). So the
//! work gets its own resource owner, which is released if the work fails.

use super::before::Before;
use super::pg_try::is_request;
use super::setting::Level;
use crate::pg::border::{backend_local::BackendLocal, frames::PlainFrames};
use crate::pg::server;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::{CaughtError, pgrx_extern_c_guard};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A resource owner that the next [`contained`] reuses, or null.
static REUSABLE_OWNER: BackendLocal<Cell<pg_sys::ResourceOwner>> =
    BackendLocal::new(Cell::new(std::ptr::null_mut()));

/// The promise that this process holds no lightweight lock, and that its code is outside of any FFI boundary.
/// It is lent to a body that takes a lock, so what runs under the lock has none.
pub struct Unlocked(());

impl Unlocked {
    /// Makes the promise.
    ///
    /// # Safety
    /// It must hold wherever the result is used.
    #[inline(always)]
    pub const unsafe fn promised() -> Unlocked {
        Unlocked(())
    }
}

/// Runs a body that may raise an error while it holds lightweight locks. On an error, releases all locks,
/// which are those of the body, and all of its resources, and returns the error's message.
///
/// The body must leave no resources with its owner: it must pin shared memory that stays mapped.
pub fn contained<T>(unlocked: &mut Unlocked, body: impl FnOnce(&mut Unlocked) -> T) -> Result<T, String> {
    caught_and_released(unlocked, body).map_err(|error| server::message(&*error))
}

/// Does what [`contained`] does for work that must not fail the user's statement. An error is noted
/// ([`server::note_error`]). `what` is what could not be done then.
pub fn attempt<T>(unlocked: &mut Unlocked, what: &str, body: impl FnOnce(&mut Unlocked) -> T) -> Option<T> {
    caught_and_released(unlocked, body)
        .map_err(|error| server::note_error(what, &*error))
        .ok()
}

/// Does what [`contained`] does. Returns the error itself.
fn caught_and_released<T>(
    unlocked: &mut Unlocked,
    body: impl FnOnce(&mut Unlocked) -> T,
) -> Result<T, Box<dyn Any + Send>> {
    // SAFETY: only this body uses the owner, because a nested `contained` takes another one. The outer owner
    // is current again before this one is released, whether the body succeeds or fails.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let context = pg_sys::CurrentMemoryContext;
        let mut owner = REUSABLE_OWNER.replace(std::ptr::null_mut());
        let result = server::caught(|| {
            if owner.is_null() {
                owner = pg_sys::ResourceOwnerCreate(std::ptr::null_mut(), c"pg_rowsource".as_ptr());
            }
            pg_sys::CurrentResourceOwner = owner;
            body(unlocked)
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
                Err(error)
            }
        }
    }
}

/// An error that [`contained_or_cancelled`] or [`contained_with_others`] raises again, because it must reach
/// the user.
pub struct Raised(Box<dyn Any + Send>);

impl Raised {
    /// Returns the error that was caught now, if it must reach the user.
    pub fn of(error: Box<dyn Any + Send>) -> Result<Raised, Box<dyn Any + Send>> {
        error.downcast().map(|raised| *raised)
    }

    /// Raises the error again.
    pub fn raise(self) -> ! {
        resume_unwind(self.0)
    }
}

/// Runs a body for a plain frame, which an error crosses: pgrx's guard, for a body that may raise a
/// [`Raised`].
pub fn guarded<T: Copy>(_: PlainFrames, body: impl FnOnce() -> T) -> T {
    let raising = || {
        let result = catch_unwind(AssertUnwindSafe(body));
        result.unwrap_or_else(|error| match Raised::of(error) {
            Ok(raised) => raised.raise(),
            Err(error) => resume_unwind(error),
        })
    };
    // SAFETY: the caller's frame is plain.
    unsafe { pgrx_extern_c_guard(raising) }
}

/// Runs a body that may raise an error and that calls functions of PostgreSQL, which may read catalogs.
/// Returns `None` if it fails. After that, all is as before. A cancel or shutdown request of this session is
/// raised again as [`Raised`], because it must reach the user: the caller must allow that. Outside of a
/// transaction, the body does not run.
pub fn contained_or_cancelled<T>(unlocked: &mut Unlocked, body: impl FnOnce() -> Option<T>) -> Option<T> {
    contained_from(unlocked, &Before::now(false), body)
}

/// Runs a body that may also call functions of other extensions, those of types and foreign data wrappers, if
/// `runs_others`.
///
/// An error is raised again also if the body left something that only the abort of a transaction takes away,
/// for example a subtransaction or a cursor. Then the user must see an error: he must not lose work that is
/// reported as committed.
pub fn contained_with_others<T>(
    unlocked: &mut Unlocked,
    runs_others: bool,
    body: impl FnOnce() -> Option<T>,
) -> Option<T> {
    // A function of others that fails may leave settings changed.
    let settings = runs_others.then(Level::open);
    let result = contained_from(unlocked, &Before::now(runs_others), body);
    if let Some(settings) = settings {
        settings.close(result.is_some());
    }
    result
}

/// Runs a body in a subtransaction, and rolls that back also if the body succeeds. Only an SQL function that
/// is not parallel safe may call this.
pub fn rolled_back<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: an SQL function runs in a transaction and holds no lightweight lock. The subtransaction ends
    // here whether the body succeeds or fails, as in PL/pgSQL, and the context and the owner that were
    // current are so again.
    unsafe {
        let (before, owner) = (Before::now(false), pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = before.context();
        let result = catch_unwind(AssertUnwindSafe(body));
        before.roll_back();
        pg_sys::CurrentResourceOwner = owner;
        result.unwrap_or_else(|error| resume_unwind(error))
    }
}

/// Runs a body. If it fails, all becomes as `before`, which is the current state, or the error is raised
/// again.
fn contained_from<T>(_: &mut Unlocked, before: &Before, body: impl FnOnce() -> Option<T>) -> Option<T> {
    // SAFETY: the owner is a child of the current owner, as in a subtransaction, and is not used after its
    // release. If the body succeeds, its locks pass to the outer owner. If it fails, everything is released
    // that the abort of a subtransaction releases.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        if outer.is_null() {
            return None;
        }
        let owner = pg_sys::ResourceOwnerCreate(outer, c"pg_rowsource".as_ptr());
        pg_sys::CurrentResourceOwner = owner;
        let result = catch_unwind(AssertUnwindSafe(body)).or_else(|error| {
            // What is raised meanwhile must reach the user, too.
            match catch_unwind(AssertUnwindSafe(|| is_undone(before, outer, &*error))) {
                Ok(true) => {
                    pg_sys::FlushErrorState();
                    Err(())
                }
                undone => {
                    pg_sys::CurrentResourceOwner = outer;
                    resume_unwind(Box::new(Raised(undone.err().unwrap_or(error))))
                }
            }
        });
        pg_sys::CurrentResourceOwner = outer;
        release(owner, result.is_ok(), false);
        result.ok().flatten()
    }
}

/// Makes all as `before` after an error was caught. Returns false if that is not possible, or if the error
/// must reach the user. `outer` is the resource owner that was the current one.
///
/// # Safety
/// The same as for [`contained_or_cancelled`], whose body has just failed with this error. May raise.
unsafe fn is_undone(before: &Before, outer: pg_sys::ResourceOwner, error: &(dyn Any + Send)) -> bool {
    let caught = error.downcast_ref::<CaughtError>();
    // SAFETY: the body does not run any more. If PostgreSQL raised the error, it has a record of it.
    unsafe {
        if before.has_open_subtransactions() {
            let is_postgres = matches!(caught, Some(CaughtError::PostgresError(_)));
            let copy = is_postgres.then(|| copy_error(before));
            before.roll_back();
            pg_sys::CurrentResourceOwner = outer;
            if let Some(copy) = copy {
                pg_sys::ReThrowError(copy);
            }
            return false;
        }
        !caught.is_some_and(is_request) && before.restore()
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

/// Releases a resource owner and deletes it. If the release fails, the remaining resources stay with the
/// process, because nothing else can release them.
///
/// # Safety
/// Nothing may use the owner afterwards.
unsafe fn release(owner: pg_sys::ResourceOwner, commit: bool, toplevel: bool) {
    use pg_sys::ResourceReleasePhase::*;
    // SAFETY: nothing else uses the owner, by the caller's promise. The current owner is restored.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        server::attempt("release what it used", || {
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
