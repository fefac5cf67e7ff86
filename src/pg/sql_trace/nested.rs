//! The queries that the client has not sent: a call of one that is written may run inside none of its
//! client's statements. Such are those of triggers that fire when the transaction ends, and those in
//! statements that a trace of a single statement leaves out.

use crate::pg::border::backend_local::BackendLocal;
use pgrx::pg_sys::QueryDesc;
use std::cell::RefCell;

/// The most that are known.
const MAX: usize = 64;

static QUERIES: BackendLocal<RefCell<Vec<*const QueryDesc>>> = BackendLocal::new(RefCell::new(Vec::new()));

/// Notes that such a query begins.
pub fn begin(query: *const QueryDesc) {
    if let Ok(mut queries) = QUERIES.try_borrow_mut()
        && queries.len() < MAX
        && queries.try_reserve(1).is_ok()
    {
        queries.push(query);
    }
}

/// Returns whether this is such a query.
pub fn is(query: *const QueryDesc) -> bool {
    QUERIES.try_borrow().is_ok_and(|queries| queries.contains(&query))
}

/// Notes that a query has ended.
pub fn end(query: *const QueryDesc) {
    if let Ok(mut queries) = QUERIES.try_borrow_mut() {
        queries.retain(|running| *running != query);
    }
}

/// Notes that the transaction has ended, and with it all queries.
pub fn end_all() {
    if let Ok(mut queries) = QUERIES.try_borrow_mut() {
        queries.clear();
    }
}
