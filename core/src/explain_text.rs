//! Finds the statement inside the text of an EXPLAIN.

use crate::normalise::lexer::{comment, line_comment};

/// Returns where the statement begins that an EXPLAIN is about. Returns `None` if the text is no EXPLAIN, or
/// ends before its statement. Runs in linear time.
pub fn statement_inside(text: &[u8]) -> Option<usize> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_spaces();
    if !reader.takes_word("EXPLAIN") {
        return None;
    }
    if reader.rest().first() == Some(&b'(') {
        let before = reader.at;
        reader.skip_parentheses();
        reader.skip_spaces();
        // If nothing follows, the statement itself is in parentheses.
        let is_statement = matches!(reader.rest(), [] | [b';', ..]);
        return Some(if is_statement { before } else { reader.at });
    }
    let _ = reader.takes_word("ANALYZE") || reader.takes_word("ANALYSE");
    reader.takes_word("VERBOSE");
    (!reader.rest().is_empty()).then_some(reader.at)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips a keyword, and what separates it from the next word. Returns false and skips nothing if another
    /// word follows.
    fn takes_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
        let taken = rest
            .get(..word.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
            && !rest.get(word.len()).is_some_and(is_word);
        if taken {
            self.at += word.len();
            self.skip_spaces();
        }
        taken
    }

    /// Skips spaces and comments.
    fn skip_spaces(&mut self) {
        loop {
            self.at += match self.rest() {
                [b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C, ..] => 1,
                [b'-', b'-', ..] | [b'/', b'*', ..] => self.comment(),
                _ => return,
            };
        }
    }

    /// Returns the length of the comment that begins here.
    fn comment(&self) -> usize {
        let rest = self.rest();
        if rest.starts_with(b"--") {
            return line_comment(rest);
        }
        comment(rest)
    }

    /// Skips from an opening parenthesis to the closing one.
    fn skip_parentheses(&mut self) {
        let mut depth = 0usize;
        while let [first, ..] = self.rest() {
            self.at += match self.rest() {
                [b'-', b'-', ..] | [b'/', b'*', ..] => self.comment(),
                [b'e' | b'E', b'\'', ..] => 1 + quoted(&self.rest()[1..], true),
                [b'\'' | b'"', ..] => quoted(self.rest(), false),
                _ => 1,
            };
            match first {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}

/// Returns the length of the quoted text that a text begins with. A doubled quote ends it and begins another
/// one. A backslash escapes the next byte if `escapes`.
fn quoted(text: &[u8], escapes: bool) -> usize {
    let quote = text[0];
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(text: &str) -> Option<&str> {
        statement_inside(text.as_bytes()).map(|at| &text[at..])
    }

    #[test]
    fn the_prefix_is_found() {
        for prefix in [
            "EXPLAIN ",
            "explain analyze ",
            "  Explain\n\tAnalyse verbose ",
            "EXPLAIN/**/ANALYZE--x\n",
            "/* a /* b */ */ -- c\nEXPLAIN VERBOSE ",
            "EXPLAIN (ANALYZE)",
            "EXPLAIN (ANALYZE, FORMAT 'json', \"a)b\" ')', x E'\\')') ",
            "EXPLAIN (ANALYZE /* ) */, BUFFERS OFF -- )\n)",
        ] {
            for statement in [
                "SELECT 1",
                "(SELECT 1) UNION SELECT 2",
                "analyzed",
                "INSERT INTO t VALUES (1)",
            ] {
                // A plain EXPLAIN does not run the statement, so it does not matter.
                if statement.starts_with('(') && prefix.to_uppercase().trim_end().ends_with("EXPLAIN") {
                    continue;
                }
                let text = format!("{prefix}{statement}");
                assert_eq!(inside(&text), Some(statement), "{text}");
            }
        }
        assert_eq!(inside("EXPLAIN ANALYZE (SELECT 1)"), Some("(SELECT 1)"));
        assert_eq!(inside("EXPLAIN (SELECT ')');"), Some("(SELECT ')');"));
    }

    #[test]
    fn other_texts_have_none() {
        for text in [
            "",
            "SELECT 1",
            "EXPLAINED",
            "explain$",
            "/* EXPLAIN",
            "EXPLAIN",
            "EXPLAIN ANALYZE ",
            "(EXPLAIN)",
        ] {
            assert_eq!(inside(text), None, "{text}");
        }
    }

    /// Whatever a client sends, the result is a place in the text.
    #[test]
    fn unfinished_texts_are_no_problem() {
        let whole = "EXPLAIN (ANALYZE, x E'\\'', \"y\", /* ( /* */ */ z '') SELECT 1";
        for end in 0..whole.len() {
            let place = statement_inside(&whole.as_bytes()[..end]);
            assert!(place.is_none_or(|place| place <= end), "{end}: {place:?}");
        }
        assert_eq!(inside("EXPLAIN )"), Some(")"));
    }
}
