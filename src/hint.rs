//! The hint that asks for a statement to be measured at any level: `/*+ gather_plan_statistics */`.

use memchr::memmem;

const HINT: &str = "gather_plan_statistics";

/// Whether the text has a hint comment with our word in it, among others perhaps, in any case.
pub fn present(text: &str) -> bool {
    let mut rest = text;
    while let Some(start) = memmem::find(rest.as_bytes(), b"/*+") {
        rest = &rest[start + 3..];
        let end = memmem::find(rest.as_bytes(), b"*/").unwrap_or(rest.len());
        let words = rest[..end].split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.into_iter().any(|word| word.eq_ignore_ascii_case(HINT)) {
            return true;
        }
        rest = &rest[end..];
    }
    false
}
