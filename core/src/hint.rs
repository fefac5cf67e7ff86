//! The hint that asks for a statement to be measured at any level: `/*+ gather_plan_statistics */`.
//!
//! At level basic every execution searches for the hint, so the cost must have a bound whatever a client
//! sends. The search covers the first 32 kB of a statement and the first 8 kB of its comments. A hint behind
//! them is not found.

use crate::normalise::lexer::{self, comment};
use memchr::{memchr, memchr_iter, memchr2};

const HINT: &[u8] = b"gather_plan_statistics";

/// The number of bytes of a statement that are searched.
pub const LONGEST_SEARCH: usize = 32 * 1024;
/// The number of bytes of its comments that are searched.
pub const LONGEST_COMMENTS: usize = 8 * 1024;

/// Returns whether a statement has a hint comment that contains `gather_plan_statistics`, in upper or lower
/// case. The comment may contain other hints.
///
/// Skips literals, quoted identifiers and `--` comments as PostgreSQL's lexer does. Comments may be nested. A
/// backslash escapes only in `E''`, as with `standard_conforming_strings`. Runs in linear time.
pub fn present(statement: &[u8]) -> bool {
    let text = &statement[..statement.len().min(LONGEST_SEARCH)];
    // Slashes are rare in SQL, so most statements need only this search.
    memchr_iter(b'/', text).any(|at| text[at..].starts_with(b"/*+")) && in_comments(text)
}

/// Returns whether one of the text's comments contains the hint.
fn in_comments(text: &[u8]) -> bool {
    let mut left = LONGEST_COMMENTS;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        at += match rest {
            [b'/', b'*', ..] => {
                let comment = &rest[..comment(rest)];
                let read = &comment[..comment.len().min(left)];
                if read.starts_with(b"/*+") && contains_hint(read) {
                    return true;
                }
                left -= read.len();
                if left == 0 {
                    return false;
                }
                comment.len()
            }
            [b'-', b'-', ..] => memchr(b'\n', rest).unwrap_or(rest.len()),
            [b'\'' | b'"', ..] => quoted(rest),
            [b'$', ..] => dollar_quoted(rest),
            [b'e' | b'E', b'\'', ..] => 1 + escaped(&rest[1..]),
            // Skips the whole word: a dollar sign or a final `e` inside a word does not begin a literal.
            [first, ..] if is_word(*first) => word(rest),
            _ => 1,
        };
    }
    false
}

/// Returns whether the hint is one of the words of a comment.
fn contains_hint(comment: &[u8]) -> bool {
    let mut words = comment.split(|&b| !b.is_ascii_alphanumeric() && b != b'_');
    words.any(|word| word.eq_ignore_ascii_case(HINT))
}

/// Returns the length of the literal or quoted identifier that a text begins with. At a doubled quote it
/// ends; the rest then counts as another literal.
fn quoted(text: &[u8]) -> usize {
    memchr(text[0], &text[1..]).map_or(text.len(), |end| end + 2)
}

/// Returns the length of the literal that a text begins with. A backslash in it escapes the next character.
fn escaped(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(next) = memchr2(b'\'', b'\\', &text[at.min(text.len())..]) {
        at += next;
        match text[at..] {
            // A doubled quote does not end the literal.
            [b'\'', b'\'', ..] | [b'\\', _, ..] => at += 2,
            _ => return at + 1,
        }
    }
    text.len()
}

/// Returns the length of the dollar-quoted literal that a text begins with, or 1 if the dollar sign begins
/// none.
fn dollar_quoted(text: &[u8]) -> usize {
    let is_parameter = text.get(1).is_some_and(u8::is_ascii_digit);
    let literal = (!is_parameter).then(|| lexer::dollar_quoted(text));
    literal.flatten().unwrap_or(1)
}

/// Returns the length of the word that a text begins with.
fn word(text: &[u8]) -> usize {
    let length = text.iter().take_while(|&&b| is_word(b) || b == b'$').count();
    length.max(1)
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor_time;
    use std::time::Duration;

    const COMMENT: &str = "/*+ gather_plan_statistics */";

    fn found(text: &str) -> bool {
        present(text.as_bytes())
    }

    #[test]
    fn hints_are_found() {
        for text in [
            "/*+ gather_plan_statistics */ SELECT 1",
            "SELECT /*+gather_plan_statistics*/ 1",
            "select /*+ Leading(a b) GATHER_PLAN_STATISTICS HashJoin(a b) */ 1",
            "SELECT 1 /*+ gather_plan_statistics",
            "SELECT 'it''s a /*+ ', /*+ gather_plan_statistics */ 1",
            "SELECT E'it\\'s /*+ ', /*+ gather_plan_statistics */ 1",
            "SELECT e'\\\\', /*+ gather_plan_statistics */ 1",
            "SELECT U&'\\', /*+ gather_plan_statistics */ 1",
            "SELECT name'\\' /*+ gather_plan_statistics */",
            "SELECT $a$ ' $b$ $a$ /*+ gather_plan_statistics */",
            "SELECT $1 + $2 /*+ gather_plan_statistics */ , '$'",
            "SELECT a$b$c /*+ gather_plan_statistics */ , $b$ $b$",
            "SELECT \"it's\" /*+ gather_plan_statistics */",
            "-- it's\nSELECT /*+ gather_plan_statistics */",
            "/* it's /* nested */ */ SELECT /*+ gather_plan_statistics */",
            "SELECT 2 */*+ gather_plan_statistics */ 3",
            "SELECT '\u{fc}' /*+ \u{fc} gather_plan_statistics */",
        ] {
            assert!(found(text), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_hints() {
        for text in [
            "",
            "/",
            "/*",
            "/*+",
            "'",
            "E'",
            "E'\\",
            "$",
            "$$",
            "$a$",
            "\"",
            "--",
            "SELECT 1 / 2 /* gather_plan_statistics */",
            "SELECT '/*+ gather_plan_statistics */'",
            "SELECT 'a''/*+ gather_plan_statistics */'",
            "SELECT E'a\\'/*+ gather_plan_statistics */'",
            "SELECT E'a''\\'/*+ gather_plan_statistics */'",
            "SELECT $$ ' /*+ gather_plan_statistics */ ' $$",
            "SELECT $a$ $ $$ /*+ gather_plan_statistics */ $a$",
            "SELECT 1 AS \"/*+ gather_plan_statistics */\"",
            "SELECT 1 -- /*+ gather_plan_statistics */",
            "SELECT 1 /* /*+ gather_plan_statistics */ */",
            "SELECT 1 /*+ gather_plan_statistics_not */",
            "SELECT 1 /*+ not */ gather_plan_statistics",
            "SELECT '/*+ gather_plan_statistics */",
            "SELECT $a$ /*+ gather_plan_statistics */",
        ] {
            assert!(!found(text), "{text}");
        }
    }

    #[test]
    fn only_the_beginning_is_searched() {
        let after = |before: &str, bytes: usize| {
            let filler = before.replace('_', &"x".repeat(bytes - before.len() - COMMENT.len() + 1));
            found(&format!("{filler}{COMMENT}"))
        };
        assert!(after("SELECT '_' ", LONGEST_SEARCH));
        assert!(!after("SELECT '_' ", LONGEST_SEARCH + COMMENT.len()));
        assert!(after("/* _ */", LONGEST_COMMENTS));
        assert!(!after("/* _ */", LONGEST_COMMENTS + COMMENT.len()));
    }

    fn time(text: &[u8]) -> Duration {
        processor_time::smallest(|| assert!(!std::hint::black_box(present(std::hint::black_box(text)))))
    }

    #[test]
    fn the_time_does_not_grow_with_the_text() {
        for unit in [
            "/*+", "/*+ */", "'/*+'", "'/*+", "$/*+", "$a$/*+", "$a$b/*+ ", "E'/*+\\'", "\"/*+", "--/*+",
            "--/*+\n", "/*/*+", "*/ /*+ ", "/*+'",
        ] {
            let text = unit.repeat((32 << 20) / unit.len());
            let (small, large) = (time(&text.as_bytes()[..1 << 20]), time(text.as_bytes()));
            assert!(
                large < 4 * small + Duration::from_millis(1),
                "{unit}: 1 MB in {small:?}, 32 MB in {large:?}"
            );
        }
    }

    #[test]
    fn reading_comments_is_linear() {
        // Calls the functions that do not limit the length.
        for unit in [
            "/*+ */",
            "'/*+'",
            "$/*+ */",
            "$a$b/*+ */",
            "$abc ",
            "a$b$",
            "/*/*",
            "/ * ",
        ] {
            let time = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                processor_time::smallest(|| {
                    std::hint::black_box((in_comments(text.as_bytes()), comment(text.as_bytes())));
                })
            };
            let (small, large) = (time(1 << 16), time(1 << 20));
            // Quadratic time would be 256 times as long.
            assert!(
                large < 64 * small + Duration::from_millis(1),
                "{unit}: 64 kB in {small:?}, 1 MB in {large:?}"
            );
        }
    }
}
