//! What happens at the end of transactions and subtransactions.

use super::listener::Listen;
use super::{outermost_planner, response, statement};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::store;
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::c_void;

pub struct Listener;

impl Listen for Listener {
    fn init() {
        if !REGISTERED.replace(true) {
            // SAFETY: the callbacks have the types that PostgreSQL calls, and need no argument.
            unsafe {
                pg_sys::RegisterXactCallback(Some(at_end), std::ptr::null_mut());
                pg_sys::RegisterSubXactCallback(Some(of_subtransaction), std::ptr::null_mut());
            }
        }
    }
}

/// Whether the callbacks are registered.
static REGISTERED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Ends what belongs to the transaction.
///
/// # Safety
/// Only PostgreSQL may call this, when a transaction ends.
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT | pg_sys::XactEvent::XACT_EVENT_PREPARE => ended(true),
        pg_sys::XactEvent::XACT_EVENT_ABORT => ended(false),
        _ => statement::at_end_of_transaction(false),
    }
}

/// Ends what belongs to a transaction that has ended.
#[inline(always)]
fn ended(is_committed: bool) {
    statement::at_end_of_transaction(is_committed);
    outermost_planner::all_ended();
    response::transaction_ended(is_committed);
}

/// Notes where a subtransaction begins and ends.
///
/// # Safety
/// Only PostgreSQL may call this, when a subtransaction begins or ends.
unsafe extern "C-unwind" fn of_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subtransaction: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_START_SUB => outermost_planner::subtransaction_begins(),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            outermost_planner::subtransaction_ends(true);
            store::forget_references();
        }
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => outermost_planner::subtransaction_ends(false),
        _ => {}
    }
}
