//! Converts text between the database's encoding and UTF-8.

use super::error::caught;
use crate::pg::border::unguarded;
use pgrx::pg_sys;
use std::ffi::{CStr, c_char};

/// Returns text in the database's encoding as UTF-8.
pub fn from_database(bytes: &[u8]) -> String {
    let converted = converted(bytes, pg_sys::pg_server_to_any);
    String::from_utf8_lossy(converted.as_deref().unwrap_or(bytes)).into_owned()
}

/// Returns UTF-8 text in the database's encoding. If a character does not exist there, all characters that
/// are not ASCII become question marks.
pub fn to_database(text: &str) -> Vec<u8> {
    let ascii = |c: char| if c.is_ascii() { c as u8 } else { b'?' };
    converted(text.as_bytes(), pg_sys::pg_any_to_server).unwrap_or_else(|| text.chars().map(ascii).collect())
}

/// Returns a message that can be raised in this database. pgrx passes its bytes to PostgreSQL, which expects
/// the database's encoding. If that is not UTF-8, characters that are not ASCII become question marks.
pub fn as_message(text: &str) -> String {
    let ascii = |c: char| if c.is_ascii() { c } else { '?' };
    match is_utf8() {
        true => text.to_owned(),
        false => text.chars().map(ascii).collect(),
    }
}

/// Converts a text with one of PostgreSQL's functions. Returns `None` if that fails.
fn converted(bytes: &[u8], with: unsafe fn(*const c_char, i32, i32) -> *mut c_char) -> Option<Vec<u8>> {
    if bytes.is_ascii() || is_utf8() {
        return Some(bytes.to_vec());
    }
    caught(|| {
        // SAFETY: the source and its length are those of a slice. The result is the source or a palloc'd,
        // terminated string.
        unsafe {
            let source = bytes.as_ptr().cast();
            let result = with(source, bytes.len() as i32, UTF8);
            if std::ptr::eq(result, source) {
                bytes.to_vec()
            } else {
                CStr::from_ptr(result).to_bytes().to_vec()
            }
        }
    })
    .ok()
}

/// Returns text in the database's encoding as UTF-8. It is not copied if it is UTF-8 already. Invalid bytes
/// become question marks.
///
/// # Safety
/// The current memory context must outlive the result, because a converted text is allocated in it. May
/// raise.
pub unsafe fn as_utf8(bytes: &mut [u8]) -> &str {
    if !is_utf8() && !bytes.is_ascii() {
        // SAFETY: the source and its length are those of a slice. The result is the source or a palloc'd,
        // terminated string.
        return unsafe {
            let source = bytes.as_ptr().cast();
            let result = pg_sys::pg_server_to_any(source, bytes.len() as i32, UTF8);
            if std::ptr::eq(result, source) {
                ""
            } else {
                CStr::from_ptr(result).to_str().unwrap_or_default()
            }
        };
    }
    let mut valid = 0;
    while let Err(error) = std::str::from_utf8(&bytes[valid..]) {
        valid += error.valid_up_to();
        bytes[valid] = b'?';
    }
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns the beginning of a text in the database's encoding: at most `max` bytes, and only whole
/// characters.
pub fn first_bytes(text: &[u8], max: usize) -> &[u8] {
    clipped(text, max, pg_sys::pg_mbcliplen)
}

/// Returns the beginning of a text in the database's encoding: at most `max` characters.
pub fn first_characters(text: &[u8], max: usize) -> &[u8] {
    clipped(text, max, pg_sys::pg_mbcharcliplen)
}

/// Returns the beginning of a text. One of PostgreSQL's functions computes its length.
fn clipped(text: &[u8], max: usize, by: unsafe fn(*const c_char, i32, i32) -> i32) -> &[u8] {
    if text.len() <= max {
        return text;
    }
    // SAFETY: the pointer is a slice's, and the length that is passed does not exceed the slice's. No
    // character has more than four bytes, so the function needs no more.
    let length = unsafe {
        by(
            text.as_ptr().cast(),
            text.len().min(4 * max + 4) as i32,
            max as i32,
        )
    };
    &text[..(length.max(0) as usize).min(text.len())]
}

const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;

/// Returns whether the database's text needs no conversion: it is UTF-8, or has no known encoding.
pub fn is_utf8() -> bool {
    let encoding = unguarded::GetDatabaseEncoding();
    encoding == UTF8 || encoding == pg_sys::pg_enc::PG_SQL_ASCII as i32
}
