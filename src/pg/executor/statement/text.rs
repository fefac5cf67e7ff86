//! Finds the text of a statement.

use crate::pg::compat;
use crate::pg::executor::{explain, parsed, unnamed};
use crate::pg::plan::describe::StatementText;
use crate::pg::server;
use pgrx::pg_sys::QueryDesc;
use std::borrow::Cow;

/// What is shown if a statement has no text.
const NO_TEXT: &[u8] = b"(no text)";

/// Returns the text of a query that is recorded with this queryid.
///
/// # Safety
/// `query` must be valid, and outlive the result.
#[inline(never)]
pub unsafe fn text<'a>(query: *mut QueryDesc, queryid: i64) -> StatementText<'a> {
    // SAFETY: the query is valid by the caller's promise, and so are its text and its plan.
    let (source, plan) = unsafe { ((*query).sourceText, &*(*query).plannedstmt) };
    let (mut source, mut location, mut length) = (source, plan.stmt_location, plan.stmt_len);
    let mut parsed_as = queryid;
    if compat::query_id(plan) == 0 {
        if let Some(utility) = unnamed::utility_of(queryid) {
            (source, location, length) = (utility.source, utility.location, utility.length);
            parsed_as = utility.own_queryid;
        } else if let Some(made) = unnamed::text(queryid) {
            return StatementText {
                bytes: Cow::Owned(made.to_vec()),
                location: None,
                constants: None,
            };
        }
    }
    // SAFETY: the text is valid by the caller's promise. PostgreSQL keeps the text of a running utility
    // statement.
    let (bytes, start) = unsafe {
        explain::text_inside(source).unwrap_or_else(|| server::statement_text(source, location, length))
    };
    StatementText {
        bytes: Cow::Borrowed(if bytes.is_empty() { NO_TEXT } else { bytes }),
        location: Some(start),
        constants: parsed::constants(parsed_as),
    }
}

/// Returns the text of a query, as [`text`] does. Returns `None` if it has none.
///
/// # Safety
/// `query` must be valid, and outlive the result.
pub unsafe fn known_text<'a>(query: *mut QueryDesc, queryid: i64) -> Option<Cow<'a, [u8]>> {
    // SAFETY: the query is valid by the caller's promise.
    let text = unsafe { text(query, queryid) };
    Some(text.bytes).filter(|bytes| **bytes != *NO_TEXT)
}

/// Copies the text. Leaves `to` empty if there is no memory.
///
/// # Safety
/// `query` must be valid.
#[cold]
#[inline(never)]
pub unsafe fn copy_text(query: *mut QueryDesc, queryid: i64, to: &mut Vec<u8>) {
    // SAFETY: the query is valid by the caller's promise.
    let text = unsafe { text(query, queryid) };
    to.clear();
    if to.try_reserve(text.bytes.len()).is_ok() {
        to.extend_from_slice(&text.bytes);
    }
}
