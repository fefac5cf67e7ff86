//! The hint that asks for a statement to be measured at any level: `/*+ gather_plan_statistics */`.

use memchr::{memchr_iter, memmem};

const HINT: &[u8] = b"gather_plan_statistics";

/// Whether the text has a hint comment with our word in it, among others perhaps, in any case. Asked for every
/// statement at level basic: a slash is rare in SQL.
pub fn present(text: &[u8]) -> bool {
    memchr_iter(b'/', text).any(|at| {
        let Some(hints) = text[at..].strip_prefix(b"/*+") else {
            return false;
        };
        let end = memmem::find(hints, b"*/").unwrap_or(hints.len());
        let mut words = hints[..end].split(|&b| !b.is_ascii_alphanumeric() && b != b'_');
        words.any(|word| word.eq_ignore_ascii_case(HINT))
    })
}
