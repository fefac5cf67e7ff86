//! Runs work of the extension's whose failure must not become the user's: errors end here, and so does all that they
//! leave behind.
//!
//! An error that is swallowed leaves locks held and resources registered with the statement's resource owner. At commit
//! PostgreSQL would warn the client of each ("dynamic shared memory leak"). So the work has a resource owner of its
//! own, which is released when it fails.

use super::server;
use pgrx::pg_sys;

/// The resource owner of shared memory; null until it is needed, and after a failure.
static mut OWNER: pg_sys::ResourceOwner = std::ptr::null_mut();

/// Runs a body that may raise while it holds lightweight locks. On an error, returns what was raised, with the locks and
/// all resources of the body given back.
///
/// The body must not hold on to resources: shared memory that is to stay mapped is pinned. The caller must hold no
/// lightweight lock, unless an abort is about to release it.
pub fn contained<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // SAFETY: main thread. The owner lives until it is released below. CurrentResourceOwner and the memory context are
    // put back on both ways out; what the body registered is released with its own owner.
    unsafe {
        let outer = pg_sys::CurrentResourceOwner;
        let context = pg_sys::CurrentMemoryContext;
        let result = server::caught(|| {
            if OWNER.is_null() {
                OWNER = pg_sys::ResourceOwnerCreate(std::ptr::null_mut(), c"pg_rowsource".as_ptr());
            }
            pg_sys::CurrentResourceOwner = OWNER;
            body()
        });
        pg_sys::CurrentResourceOwner = outer;
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        pg_sys::CurrentMemoryContext = context;
        pg_sys::LWLockReleaseAll();
        let owner = OWNER;
        OWNER = std::ptr::null_mut();
        if !owner.is_null() {
            // What cannot be released stays with the process; there is nothing better to do about it.
            let _ = server::caught(|| {
                use pg_sys::ResourceReleasePhase::*;
                for phase in [
                    RESOURCE_RELEASE_BEFORE_LOCKS,
                    RESOURCE_RELEASE_LOCKS,
                    RESOURCE_RELEASE_AFTER_LOCKS,
                ] {
                    pg_sys::ResourceOwnerRelease(owner, phase, false, true);
                }
                pg_sys::ResourceOwnerDelete(owner);
            });
            pg_sys::CurrentResourceOwner = outer;
        }
        Err(server::message(&*error))
    }
}
