//! Finds the text of a statement in its query string.

use pgrx::pg_sys;
use rowsource_core::hint;
use std::ffi::c_char;

/// The maximal bytes of a statement's text that are read. A prepared statement may have 100 MB and run thousands of times a
/// second.
const MAX_TEXT: usize = 64 * 1024;

/// Returns the text of one statement in its query string, in the server's encoding, and at most [`MAX_TEXT`] bytes of it.
/// From 18 on, PostgreSQL leaves out the comments before it.
///
/// # Safety
/// `source` must be a valid C string, and `statement` a valid planned statement made from it.
pub unsafe fn statement_text<'a>(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> &'a [u8] {
    // SAFETY: the text and the statement are valid by the caller's promise; `place` stays within the text.
    unsafe {
        let (location, length) = place(source, statement);
        beginning(source.add(location), length.min(MAX_TEXT))
    }
}

/// Returns the text and the comments before it, as far as they are searched for a hint. Only comments and spaces are
/// between a statement and the previous one.
///
/// # Safety
/// `source` must be a valid C string, or null, and `statement` a valid planned statement made from it.
pub unsafe fn commented_text<'a>(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> &'a [u8] {
    if source.is_null() {
        return &[];
    }
    // SAFETY: the string and the statement are valid by the caller's promise. `location` is a place in the string, so the
    // bytes before it are part of the string.
    unsafe {
        let (location, length) = place(source, statement);
        let start = source.add(location);
        let looked_at = location.min(hint::LONGEST_COMMENTS);
        let before = std::slice::from_raw_parts(start.sub(looked_at).cast::<u8>(), looked_at);
        let comments = looked_at - memchr::memrchr(b';', before).map_or(0, |end| end + 1);
        let text = beginning(start, length.min(hint::LONGEST_SEARCH));
        std::slice::from_raw_parts(start.sub(comments).cast(), comments + text.len())
    }
}

/// Returns where in its query string a statement begins, and its maximal length. The cost does not depend on the length of
/// the string, which may contain tens of thousands of statements.
///
/// # Safety
/// `statement` must point to a live planned statement.
unsafe fn place(source: *const c_char, statement: *const pg_sys::PlannedStmt) -> (usize, usize) {
    // SAFETY: the statement is live by the caller's promise.
    let (location, length) = unsafe { ((*statement).stmt_location, (*statement).stmt_len) };
    // The query of a rule or a function has a length, but is not in this string.
    match (usize::try_from(location), usize::try_from(length)) {
        _ if source.is_null() => (0, 0),
        (Err(_), _) => (0, usize::MAX),
        // It is the last statement of the string.
        (Ok(location), Ok(0) | Err(_)) => (location, usize::MAX),
        (Ok(location), Ok(length)) => (location, length),
    }
}

/// Returns at most `max` bytes from the beginning of a C string, and reads no more.
///
/// # Safety
/// `text` must be a C string that stays valid while the result is used, unless `max` is 0.
unsafe fn beginning<'a>(text: *const c_char, max: usize) -> &'a [u8] {
    if max == 0 {
        return &[];
    }
    // SAFETY: the string is valid by the caller's promise, and strnlen stops at its end.
    unsafe { std::slice::from_raw_parts(text.cast(), libc::strnlen(text, max)) }
}
