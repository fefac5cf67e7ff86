//! Has PostgreSQL call functions at the end of a transaction and of the process. An error or a panic in one
//! becomes PostgreSQL's error.

use pgrx::pg_sys::{self, panic::pgrx_extern_c_guard};
use std::ffi::{c_int, c_void};
use std::mem::transmute;

/// What is called with the process's exit code.
type AtExit = fn(c_int);

/// What is called with what happens to a transaction.
type AtTransactionEnd = fn(pg_sys::XactEvent::Type);

/// Calls a function before this process detaches from shared memory, and before it aborts its transaction.
/// Raises a fatal error if PostgreSQL has no room for another callback; so do the next two functions.
pub fn before_leaving_memory(act: AtExit) {
    register(pg_sys::before_shmem_exit, act);
}

/// Calls a function after this process has detached from dynamic shared memory. In the postmaster, all other
/// processes have ended then.
pub fn after_leaving_memory(act: AtExit) {
    register(pg_sys::on_shmem_exit, act);
}

/// Calls a function last, when the process exits.
pub fn at_exit(act: AtExit) {
    register(pg_sys::on_proc_exit, act);
}

/// Registers a function with one of PostgreSQL's.
fn register(with: unsafe fn(pg_sys::pg_on_exit_callback, pg_sys::Datum), act: AtExit) {
    // SAFETY: the callback has the type that PostgreSQL calls, and gets the argument that it expects.
    unsafe { with(Some(exits), pg_sys::Datum::from(act as usize)) }
}

/// Calls a function whenever a transaction commits, aborts or is prepared.
pub fn at_transaction_end(act: AtTransactionEnd) {
    // SAFETY: as above.
    unsafe { pg_sys::RegisterXactCallback(Some(transaction_ends), act as *mut c_void) }
}

/// # Safety
/// Only PostgreSQL may call this, with an [`AtExit`].
unsafe extern "C-unwind" fn exits(code: c_int, act: pg_sys::Datum) {
    // SAFETY: it is the function that was registered. The guard turns a panic into PostgreSQL's error.
    unsafe { pgrx_extern_c_guard(|| transmute::<usize, AtExit>(act.value())(code)) }
}

/// # Safety
/// Only PostgreSQL may call this, with an [`AtTransactionEnd`].
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, act: *mut c_void) {
    // SAFETY: as above.
    unsafe { pgrx_extern_c_guard(|| transmute::<*mut c_void, AtTransactionEnd>(act)(event)) }
}
