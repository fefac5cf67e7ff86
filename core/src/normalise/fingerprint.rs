//! A number for all texts that differ only in constants.

use super::constants::Text;
use super::lexer::{Kind, Lexer};
use crate::stable_hash::StableHasher;

/// Returns a number for a statement's text, which does not depend on literals, spaces, comments, or the case
/// of unquoted words. It is never 0, and the same in all sessions and versions.
pub fn fingerprint(text: Text) -> i64 {
    let mut hasher = StableHasher::new();
    for token in Lexer::new(text.bytes, text.backslashes) {
        let bytes = text.bytes.get(token.start..token.end).unwrap_or_default();
        match token.kind {
            Kind::Number | Kind::String => hasher.byte(b'?'),
            Kind::Word if !bytes.contains(&b'"') => hasher.bytes(bytes.iter().map(u8::to_ascii_lowercase)),
            Kind::Word | Kind::Parameter | Kind::Other => hasher.bytes(bytes.iter().copied()),
        }
        // No text has this byte.
        hasher.byte(0);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> i64 {
        fingerprint(Text {
            bytes: text.as_bytes(),
            backslashes: false,
        })
    }

    #[test]
    fn only_constants_spaces_comments_and_case_make_no_difference() {
        let statement = of("SELECT a FROM t WHERE b = 5 AND c = 'x'");
        for same in [
            "select A from T where b=17 and c=''",
            "SELECT a -- comment\n FROM t /* another */ WHERE b = 1e5 AND c = $$x$$",
            "SELECT a FROM t WHERE b = 'x' AND c = 5",
        ] {
            assert_eq!(of(same), statement, "{same}");
        }
        let others = [
            "SELECT a FROM t WHERE b = 5",
            "SELECT a FROM t WHERE b = $1 AND c = 'x'",
            "SELECT a FROM \"T\" WHERE b = 5 AND c = 'x'",
            "SELECT a FROM t2 WHERE b = 5 AND c = 'x'",
            "SELECT afrom t WHERE b = 5 AND c = 'x'",
            "SELECT a FROM t WHERE b = -5 AND c = 'x'",
            "",
        ];
        let mut all: Vec<i64> = others.into_iter().map(of).chain([statement, 0]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), others.len() + 2);
    }
}
