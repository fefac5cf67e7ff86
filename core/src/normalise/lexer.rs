//! Splits a statement's text into tokens, as far as constants need it: each character of an operator is a
//! token.

use memchr::{memchr, memchr2, memmem};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A string: `'a'`, `E'a'`, `B'1'`, `X'1'`, `U&'a'`, `$$a$$`.
    String,
    /// A parameter: `$1`.
    Parameter,
    /// A keyword or a name, also a quoted one.
    Word,
    /// A character of an operator, or a separator.
    Other,
}

/// A token, and its place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

impl Token {
    /// Returns whether it is a number or a string.
    pub fn is_literal(&self) -> bool {
        matches!(self.kind, Kind::Number | Kind::String)
    }
}

/// Reads the tokens of a text. Skips spaces and comments.
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// A backslash escapes in plain strings too (`standard_conforming_strings = off`).
    backslashes: bool,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8], backslashes: bool) -> Self {
        Lexer {
            text,
            at: 0,
            backslashes,
        }
    }

    /// Returns the token at the beginning of a text that is not empty: its kind and its length.
    #[inline]
    fn token(&self, rest: &[u8]) -> (Kind, usize) {
        let (first, second) = (rest[0], rest.get(1).copied().unwrap_or(0));
        match class(first) {
            NAME if matches!(second, b'\'' | b'&') => prefixed(rest),
            NAME => (Kind::Word, word(rest)),
            DIGIT => (Kind::Number, number(rest)),
            _ => match (first, second) {
                (b'\'', _) => (Kind::String, string(rest, self.backslashes)),
                (b'"', _) => (Kind::Word, quoted(rest)),
                (b'$', b'0'..=b'9') => (Kind::Parameter, 1 + digits(&rest[1..], u8::is_ascii_digit)),
                (b'$', _) => dollar_quoted(rest).map_or((Kind::Other, 1), |length| (Kind::String, length)),
                // PL/pgSQL has ranges of numbers: 1..10.
                (b'.', b'.') => (Kind::Other, 2),
                (b'.', b'0'..=b'9') => (Kind::Number, number(rest)),
                _ => (Kind::Other, 1),
            },
        }
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.at += gap(&self.text[self.at..]);
        let start = self.at;
        if start == self.text.len() {
            return None;
        }
        let (kind, length) = self.token(&self.text[start..]);
        self.at = (start + length).min(self.text.len());
        Some(Token {
            kind,
            start,
            end: self.at,
        })
    }
}

/// What a byte can be a part of. The first three can be in a name.
const NAME: u8 = 1;
const DIGIT: u8 = 2;
const DOLLAR: u8 = 3;
const SPACE: u8 = 4;
const NO_NAME: u8 = 5;

/// The class of each byte.
static CLASSES: [u8; 256] = {
    let mut classes = [NO_NAME; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => NAME,
            b'0'..=b'9' => DIGIT,
            b'$' => DOLLAR,
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => SPACE,
            _ => NO_NAME,
        };
        byte += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// Returns whether PostgreSQL's scanner skips this byte.
pub fn is_space(byte: u8) -> bool {
    class(byte) == SPACE
}

fn is_name(byte: u8) -> bool {
    class(byte) == NAME
}

/// Returns the token of a text that begins with a letter and a quote or an ampersand.
#[cold]
#[inline(never)]
fn prefixed(text: &[u8]) -> (Kind, usize) {
    match text {
        [b'e' | b'E', b'\'', ..] => (Kind::String, 1 + string(&text[1..], true)),
        [b'b' | b'B' | b'x' | b'X', b'\'', ..] => (Kind::String, 1 + string(&text[1..], false)),
        [b'u' | b'U', b'&', b'\'', ..] => (Kind::String, 2 + string(&text[2..], false)),
        [b'u' | b'U', b'&', b'"', ..] => (Kind::Word, 2 + quoted(&text[2..])),
        _ => (Kind::Word, word(text)),
    }
}

/// Returns the length of the spaces and comments that a text begins with.
#[inline]
fn gap(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += match &text[at..] {
            [space, ..] if is_space(*space) => 1,
            [b'-', b'-', ..] => line_comment(&text[at..]),
            [b'/', b'*', ..] => comment(&text[at..]),
            _ => return at,
        };
    }
}

/// Returns the length of the comment of one line that a text begins with.
pub fn line_comment(text: &[u8]) -> usize {
    memchr2(b'\n', b'\r', text).unwrap_or(text.len())
}

/// Returns the length of the comment that a text begins with. Comments may be nested in it.
pub fn comment(text: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(next) = memchr2(b'/', b'*', &text[at..]) {
        at += next;
        match &text[at..] {
            [b'/', b'*', ..] => depth += 1,
            [b'*', b'/', ..] => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the quoted name that a text begins with.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(next) = memchr(b'"', &text[at..]) {
        at += next + 1;
        if text.get(at) != Some(&b'"') {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Returns the length of the string that a text begins with. It goes on after a line break if a quote
/// follows.
fn string(text: &[u8], backslashes: bool) -> usize {
    let mut at = 1;
    loop {
        let rest = &text[at..];
        let next = if backslashes {
            memchr2(b'\'', b'\\', rest)
        } else {
            memchr(b'\'', rest)
        };
        let Some(next) = next else {
            return text.len();
        };
        at += next;
        match text[at..] {
            [b'\\', _, ..] | [b'\'', b'\'', ..] => at += 2,
            [b'\\'] => return text.len(),
            _ => match continuation(&text[at + 1..]) {
                Some(length) => at += 1 + length,
                None => return at + 1,
            },
        }
    }
}

/// Returns the bytes from the end of a string to behind the quote that continues it, if a line break is in
/// between.
fn continuation(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut breaks = false;
    loop {
        match &text[at..] {
            [b'\'', ..] => return breaks.then_some(at + 1),
            [b'-', b'-', ..] => at += line_comment(&text[at..]),
            [space, ..] if is_space(*space) => {
                breaks |= matches!(space, b'\n' | b'\r');
                at += 1;
            }
            _ => return None,
        }
    }
}

/// Returns the length of the dollar-quoted string that a text begins with. Returns `None` if its dollar sign
/// begins none.
pub fn dollar_quoted(text: &[u8]) -> Option<usize> {
    let name = digits(&text[1..], |&byte| is_name(byte) || byte.is_ascii_digit());
    if text.get(1 + name) != Some(&b'$') {
        return None;
    }
    let (tag, rest) = text.split_at(name + 2);
    Some(memmem::find(rest, tag).map_or(text.len(), |end| end + 2 * tag.len()))
}

fn word(text: &[u8]) -> usize {
    digits(text, |&byte| class(byte) <= DOLLAR)
}

/// Returns the length of the number that a text begins with.
fn number(text: &[u8]) -> usize {
    let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
    if let [b'0', base, after, ..] = text {
        let is_digit: Option<fn(&u8) -> bool> = match base {
            b'x' | b'X' => Some(|byte| byte.is_ascii_hexdigit() || *byte == b'_'),
            b'o' | b'O' | b'b' | b'B' => Some(|byte| byte.is_ascii_digit() || *byte == b'_'),
            _ => None,
        };
        if let Some(is_digit) = is_digit.filter(|is_digit| is_digit(after)) {
            return 2 + digits(&text[2..], is_digit);
        }
    }
    let mut at = digits(text, digit);
    if text.get(at) == Some(&b'.') && text.get(at + 1) != Some(&b'.') {
        at += 1;
        at += digits(&text[at..], digit);
    }
    if let [b'e' | b'E', exponent @ ..] = &text[at..] {
        let sign = usize::from(matches!(exponent.first(), Some(b'+' | b'-')));
        let length = digits(&exponent[sign..], digit);
        if length > 0 {
            at += 1 + sign + length;
        }
    }
    at
}

fn digits(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_digit(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor_time;

    fn tokens(text: &str) -> Vec<&str> {
        Lexer::new(text.as_bytes(), false)
            .map(|token| &text[token.start..token.end])
            .collect()
    }

    #[test]
    fn texts_are_split_as_postgresql_does() {
        for (text, expected) in [
            ("a=-1", vec!["a", "=", "-", "1"]),
            ("- 1.5e-3+.5", vec!["-", "1.5e-3", "+", ".5"]),
            (
                "1. 1_000 0xfF 0b1 0o17",
                vec!["1.", "1_000", "0xfF", "0b1", "0o17"],
            ),
            (
                "1e 0x 1..10 1...5",
                vec!["1", "e", "0", "x", "1", "..", "10", "1", "..", ".5"],
            ),
            ("'it''s' 'a' 'b'", vec!["'it''s'", "'a'", "'b'"]),
            ("'a'\n  -- c\n 'b' 'c'", vec!["'a'\n  -- c\n 'b'", "'c'"]),
            (
                r"E'\'' e'\\' 'a\' N'x'",
                vec![r"E'\''", r"e'\\'", r"'a\'", "N", "'x'"],
            ),
            (
                "B'1'x'f'U&'\\0041' U&\"a\"\"b\"",
                vec!["B'1'", "x'f'", "U&'\\0041'", "U&\"a\"\"b\""],
            ),
            (
                "$1 $$ ' $$ $a$ $$ $a$ $ $b",
                vec!["$1", "$$ ' $$", "$a$ $$ $a$", "$", "$", "b"],
            ),
            ("a$b \"it's\" é1", vec!["a$b", "\"it's\"", "é1"]),
            ("/* ' /* */ */ 1 -- 2\n3", vec!["1", "3"]),
            ("2*/**/3", vec!["2", "*", "3"]),
            ("'open", vec!["'open"]),
            ("E'\\", vec!["E'\\"]),
            ("$a$ open", vec!["$a$ open"]),
            ("", vec![]),
            (" /* open", vec![]),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn a_backslash_may_escape_in_plain_strings() {
        let ends: Vec<usize> = Lexer::new(br"'a\' 1'", true).map(|token| token.end).collect();
        assert_eq!(ends, [7]);
    }

    #[test]
    fn splitting_is_linear() {
        for unit in [
            "'a'\n", "'a' ", "$a$", "$ab", "/*", "--", "\"", "1e", "'\\", "0x", "$", "'a'--\n", "a ",
        ] {
            let time = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                processor_time::smallest(|| {
                    std::hint::black_box(Lexer::new(text.as_bytes(), false).count());
                })
            };
            let (small, large) = (time(1 << 14), time(1 << 18));
            assert!(
                large < 64 * small + std::time::Duration::from_millis(1),
                "{unit}: 16 kB in {small:?}, 256 kB in {large:?}"
            );
        }
    }
}
