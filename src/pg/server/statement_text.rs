//! Finds the text of a statement in its query string.

use super::encoding::{first_bytes, from_database};
use crate::pg::compat::jumble;
use crate::pg::handles::{QueryRef, ToPlan};
use rowsource_core::hint;
use rowsource_core::model::PlanDescription;
use rowsource_core::normalise::{Text, trimmed};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

/// The maximal bytes of a statement's text that are read. A prepared statement may have 100 MB and run
/// thousands of times a second.
const MAX_TEXT: usize = 64 * 1024;

/// Longer statement texts are cut, because a plan's statistics must not hold megabytes.
pub const MAX_SHOWN_TEXT: usize = 16 * 1024;

/// Where the text of a statement is: in its query string, at the place that PostgreSQL gave the statement.
#[derive(Clone, Copy)]
pub struct SourceText<'q> {
    source: *const c_char,
    location: i32,
    length: i32,
    lives: PhantomData<&'q [u8]>,
}

impl<'q> SourceText<'q> {
    /// Describes the place.
    ///
    /// # Safety
    /// `source` must be null or a C string that lives for `'q`, and the place that of a statement in it.
    #[inline(always)]
    pub const unsafe fn new(source: *const c_char, location: i32, length: i32) -> SourceText<'q> {
        SourceText {
            source,
            location,
            length,
            lives: PhantomData,
        }
    }

    /// Describes a text that is one statement.
    pub const fn whole(text: &'q CStr) -> SourceText<'q> {
        SourceText {
            source: text.as_ptr(),
            location: 0,
            length: 0,
            lives: PhantomData,
        }
    }

    /// Returns that of a query.
    #[inline(always)]
    pub fn of(query: QueryRef<'q>) -> SourceText<'q> {
        let plan = query.plan();
        // SAFETY: the text of a query is null, or as live as it, and has its statement there.
        unsafe { SourceText::new(query.sourceText, plan.stmt_location, plan.stmt_len) }
    }

    /// Returns that of a query which is not planned yet.
    #[inline(always)]
    pub fn of_parsed(query: &ToPlan<'q>) -> SourceText<'q> {
        let parsed = query.query();
        // SAFETY: the text of a query lives as long as it says, and has the query there.
        unsafe { SourceText::new(query.source(), parsed.stmt_location, parsed.stmt_len) }
    }

    /// Returns the query string, if there is one.
    pub fn string(self) -> Option<&'q CStr> {
        // SAFETY: it is live, as who made this has promised.
        (!self.source.is_null()).then(|| unsafe { CStr::from_ptr(self.source) })
    }

    /// Returns the query string; null if there is none.
    #[inline(always)]
    pub fn source(self) -> *const c_char {
        self.source
    }

    /// Returns the text of the statement, in the server's encoding, without spaces at its ends, and where it
    /// begins. At most [`MAX_TEXT`] bytes are read. From 18 on, PostgreSQL leaves out the comments before it.
    pub fn statement(self) -> (&'q [u8], usize) {
        self.up_to(MAX_TEXT)
    }

    /// Returns at most the first `max` bytes of the statement's text.
    pub fn beginning(self, max: usize) -> &'q [u8] {
        self.up_to(max).0
    }

    /// Returns at most the first `max` bytes of the statement's text, and where it begins.
    fn up_to(self, max: usize) -> (&'q [u8], usize) {
        let (location, length) = place(self.source, self.location, self.length);
        let start = self.source.wrapping_add(location);
        // SAFETY: the text is live, as who made this has promised, and `place` stays within it.
        unsafe {
            let (text, spaces) = trimmed(beginning(start, length.min(max)));
            if spaces == 0 {
                return (text, location);
            }
            let (text, spaces) = text_after_spaces(start, length, max);
            (text, location + spaces)
        }
    }

    /// Returns the text and the comments before it, as far as they are searched for a hint. Only comments and
    /// spaces are between a statement and the previous one.
    pub fn commented(self) -> &'q [u8] {
        if self.source.is_null() {
            return &[];
        }
        let (location, length) = place(self.source, self.location, self.length);
        let looked_at = location.min(hint::LONGEST_COMMENTS);
        // SAFETY: the text is live, as who made this has promised, and `place` stays within it. So the bytes
        // before that place are part of it.
        unsafe {
            let start = self.source.add(location);
            let before = std::slice::from_raw_parts(start.sub(looked_at).cast::<u8>(), looked_at);
            let comments = looked_at - memchr::memrchr(b';', before).map_or(0, |end| end + 1);
            let text = beginning(start, length.min(hint::LONGEST_SEARCH));
            std::slice::from_raw_parts(start.sub(comments).cast(), comments + text.len())
        }
    }
}

/// Returns at most the first `max` bytes of a text that begins with spaces, and how many spaces there are.
/// They do not count among these bytes, so that a text that is shorter was not cut. At most [`MAX_TEXT`]
/// spaces are skipped.
///
/// # Safety
/// `start` must be a C string that stays valid while the result is used, and have `length` bytes unless it
/// ends before.
#[cold]
#[inline(never)]
unsafe fn text_after_spaces<'a>(start: *const c_char, length: usize, max: usize) -> (&'a [u8], usize) {
    // SAFETY: the string is valid by the caller's promise. The spaces are part of it, so it goes on after
    // them.
    unsafe {
        let (_, spaces) = trimmed(beginning(start, length.min(MAX_TEXT)));
        let text = beginning(start.add(spaces), (length - spaces).min(max));
        (trimmed(text).0, spaces)
    }
}

/// Returns where in its query string a statement begins, and its maximal length. The cost does not depend on
/// the length of the string, which may contain tens of thousands of statements.
fn place(source: *const c_char, location: i32, length: i32) -> (usize, usize) {
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

/// Returns a session's description of a plan with this text.
pub fn with_text(description: &PlanDescription, text: &[u8]) -> PlanDescription {
    let shown = first_bytes(text, MAX_SHOWN_TEXT);
    let mark = if shown.len() < text.len() { "..." } else { "" };
    let mut described = description.clone();
    described.text = [&from_database(shown), mark].concat();
    described
}

/// Returns a session's description of a plan with the literals of an execution, whose statement had this
/// text.
pub fn with_literals(description: &PlanDescription, text: &[u8]) -> PlanDescription {
    let shown = first_bytes(text, MAX_SHOWN_TEXT);
    let text = Text {
        bytes: text,
        backslashes: jumble::backslashes_escape(),
    };
    let mut literal = description.with_literals(text, from_database);
    if shown.len() < text.bytes.len() {
        literal.text = [&from_database(shown), "..."].concat();
    }
    literal
}
