//! The hint that asks for a statement to be measured at any level: `/*+ gather_plan_statistics */`.

use memchr::memmem;

const HINT: &[u8] = b"gather_plan_statistics";

/// Whether the text has a hint comment with our word in it, among others perhaps, in any case.
pub fn present(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(start) = memmem::find(rest, b"/*+") {
        rest = &rest[start + 3..];
        let end = memmem::find(rest, b"*/").unwrap_or(rest.len());
        let mut words = rest[..end].split(|&b| !b.is_ascii_alphanumeric() && b != b'_');
        if words.any(|word| word.eq_ignore_ascii_case(HINT)) {
            return true;
        }
        rest = &rest[end..];
    }
    false
}
