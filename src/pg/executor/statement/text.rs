//! Finds the text of a statement.

use crate::pg::compat;
use crate::pg::executor::{explain, parsed, unnamed};
use crate::pg::handles::QueryRef;
use crate::pg::plan::describe::StatementText;
use crate::pg::server::SourceText;
use std::borrow::Cow;

/// What is shown if a statement has no text.
const NO_TEXT: &[u8] = b"(no text)";

/// Returns the text of a query that is recorded with this queryid.
#[inline(never)]
pub fn text<'q>(query: QueryRef<'q>, queryid: i64) -> StatementText<'q> {
    let plan = query.plan();
    let (mut source, mut location, mut length) = (query.sourceText, plan.stmt_location, plan.stmt_len);
    let mut parsed_as = queryid;
    if compat::query_id(&plan) == 0 {
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
    // SAFETY: the text is as live as the query. PostgreSQL keeps the text of a running utility statement.
    let source = unsafe { SourceText::new(source, location, length) };
    let (bytes, start) = explain::text_inside(source).unwrap_or_else(|| source.statement());
    StatementText {
        bytes: Cow::Borrowed(if bytes.is_empty() { NO_TEXT } else { bytes }),
        location: Some(start),
        constants: parsed::constants(parsed_as),
    }
}

/// Returns the text of a query, as [`text`] does. Returns `None` if it has none.
pub fn known_text(query: QueryRef<'_>, queryid: i64) -> Option<Cow<'_, [u8]>> {
    let text = text(query, queryid);
    Some(text.bytes).filter(|bytes| **bytes != *NO_TEXT)
}

/// Copies the text. Leaves `to` empty if there is no memory.
#[cold]
#[inline(never)]
pub fn copy_text(query: QueryRef, queryid: i64, to: &mut Vec<u8>) {
    let text = text(query, queryid);
    to.clear();
    if to.try_reserve(text.bytes.len()).is_ok() {
        to.extend_from_slice(&text.bytes);
    }
}
