//! Replaces the literals in the body of a DO statement. For PostgreSQL, the whole body is one string.

use super::constants::{Constants, Text, replaced};
use super::lexer::{Kind, Lexer, Token};
use std::borrow::Cow;

/// The languages whose literals are those of SQL.
const LANGUAGES: [&[u8]; 2] = [b"plpgsql", b"sql"];

/// Returns the text of a DO statement with symbols instead of the literals in its body, and whether it was
/// cut because it would have more than `most` bytes. Returns `None` if the body is in another language, or
/// its quotes are unusual, or there is no memory.
pub fn block(text: Text, most: usize) -> Option<(Vec<u8>, bool)> {
    let body = body(text)?;
    let string = text.bytes.get(body.start..body.end)?;
    let (quote, inner) = unquoted(string, text.backslashes)?;
    let inside = Text {
        bytes: &inner,
        backslashes: text.backslashes,
    };
    let places = Constants::literals(inside)?.places(inside)?;
    let (shown, is_cut) = replaced(&inner, &places, most);
    let shown = if quote == b"'" { doubled(&shown) } else { shown };
    let mut result = [&text.bytes[..body.start], quote, &shown].concat();
    if !is_cut {
        result.extend_from_slice(quote);
        result.extend_from_slice(&text.bytes[body.end..]);
    }
    let is_cut = is_cut || result.len() > most;
    result.truncate(most);
    Some((result, is_cut))
}

/// Returns the token that is the body, if its language is known.
fn body(text: Text) -> Option<Token> {
    let mut body = None;
    let mut is_language = false;
    for token in Lexer::new(text.bytes, text.backslashes) {
        let bytes = text.bytes.get(token.start..token.end)?;
        if is_language {
            let name = bytes
                .strip_prefix(b"\"")
                .and_then(|name| name.strip_suffix(b"\""));
            let name = name.unwrap_or(bytes);
            if !LANGUAGES.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                return None;
            }
        } else if token.kind == Kind::String {
            body = Some(token);
        }
        is_language = bytes.eq_ignore_ascii_case(b"language");
    }
    body
}

/// Returns the quote with which a string begins, and what is between the quotes.
fn unquoted(string: &[u8], backslashes: bool) -> Option<(&[u8], Cow<'_, [u8]>)> {
    if string.first() == Some(&b'$') {
        let length = 2 + string.get(1..)?.iter().position(|&byte| byte == b'$')?;
        let (tag, rest) = string.split_at(length);
        return Some((tag, Cow::Borrowed(rest.strip_suffix(tag).unwrap_or(rest))));
    }
    if backslashes {
        return None;
    }
    let rest = string.strip_prefix(b"'")?;
    let rest = rest.strip_suffix(b"'").unwrap_or(rest);
    let mut inner = Vec::new();
    inner.try_reserve_exact(rest.len()).ok()?;
    let mut bytes = rest.iter();
    while let Some(&byte) = bytes.next() {
        // A string that goes on behind a line break has single quotes inside.
        if byte == b'\'' && bytes.next() != Some(&b'\'') {
            return None;
        }
        inner.push(byte);
    }
    Some((b"'", Cow::Owned(inner)))
}

/// Returns a text with its quotes doubled.
fn doubled(text: &[u8]) -> Vec<u8> {
    let twice = |&byte: &u8| std::iter::repeat_n(byte, if byte == b'\'' { 2 } else { 1 });
    text.iter().flat_map(twice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, most: usize) -> Option<(String, bool)> {
        let text = Text {
            bytes: text.as_bytes(),
            backslashes: false,
        };
        let (shown, is_cut) = block(text, most)?;
        Some((String::from_utf8(shown).expect("UTF-8"), is_cut))
    }

    #[test]
    fn literals_in_the_body_become_symbols() {
        for (text, expected) in [
            (
                "DO $$BEGIN PERFORM f('it''s', 1); END$$",
                "DO $$BEGIN PERFORM f($1, $2); END$$",
            ),
            (
                "do language plpgsql 'begin -- it''s\n perform ''a'', \"b\"; end'",
                "do language plpgsql 'begin -- it''s\n perform $1, \"b\"; end'",
            ),
            (
                "DO $a$ BEGIN EXECUTE $b$ SELECT 'x' $b$; FOR i IN 1..10 LOOP END LOOP; END $a$ LANGUAGE \"plpgsql\"",
                "DO $a$ BEGIN EXECUTE $1; FOR i IN $2..$3 LOOP END LOOP; END $a$ LANGUAGE \"plpgsql\"",
            ),
        ] {
            assert_eq!(shown(text, 1000), Some((expected.to_owned(), false)));
        }
    }

    #[test]
    fn other_bodies_are_refused() {
        for text in [
            "DO LANGUAGE plpython3u $$ print(\"secret\") $$",
            "DO $$ print(\"secret\") $$ LANGUAGE plperl",
            "DO E'begin end'",
            "DO 'begin'\n' end'",
            "DO",
            "DO LANGUAGE",
        ] {
            assert_eq!(shown(text, 1000), None, "{text}");
        }
    }

    #[test]
    fn long_bodies_are_cut() {
        let (text, is_cut) = shown("DO $$BEGIN PERFORM 'secret', 'secret'; END$$", 20).expect("a text");
        assert_eq!((text.as_str(), is_cut), ("DO $$BEGIN PERFORM $", true));
        // The end of the body is missing.
        let (text, _) = shown("DO $$BEGIN PERFORM 'sec", 100).expect("a text");
        assert_eq!(text, "DO $$BEGIN PERFORM $1$$");
    }
}
