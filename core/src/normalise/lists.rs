//! The lists of IN, and the arrays of ANY and ALL. The planner makes one constant of all their constants.

use super::constants::{Place, Text};
use super::lexer::{Kind, Lexer, Token};
use serde::{Deserialize, Serialize};

/// A list of constants, for which one symbol stands in the conditions of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// The number of the symbol.
    pub number: u32,
    /// The number of the first constant in the statement's text.
    pub first: u32,
    /// The number of the last one.
    pub last: u32,
}

/// Returns the constants in the brackets behind the operator that begins at this byte of a text: `IN`,
/// `NOT IN`, or another one with `ANY` or `ALL`. Returns `None` if none begins there.
pub fn constants_of_list<'a>(text: Text, places: &'a [Place], at: usize) -> Option<&'a [Place]> {
    let rest = text.bytes.get(at..)?;
    let mut lexer = Lexer::new(rest, text.backslashes);
    let word = |token: &Token| rest[token.start..token.end].to_ascii_lowercase();
    let is_part =
        |token: &Token| token.kind == Kind::Other && !matches!(rest[token.start], b'(' | b')' | b';');
    let mut token = lexer.next()?;
    let is_operator = is_part(&token);
    while is_part(&token) {
        token = lexer.next()?;
    }
    if !is_operator && word(&token) == b"not" {
        token = lexer.next()?;
    }
    let words: &[&[u8]] = if is_operator {
        &[b"any", b"all", b"some"]
    } else {
        &[b"in"]
    };
    let is_list = token.kind == Kind::Word && words.contains(&&*word(&token));
    let open = lexer
        .next()
        .filter(|open| is_list && &rest[open.start..open.end] == b"(")?;
    let mut depth = 1usize;
    let close = lexer.find(|token| {
        depth = match rest[token.start] {
            b'(' | b'[' => depth + 1,
            b')' | b']' => depth - 1,
            _ => depth,
        };
        depth == 0
    })?;
    let first = places.partition_point(|place| place.range.start < at + open.end);
    let behind = places.partition_point(|place| place.range.start < at + close.start);
    places.get(first..behind).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalise::Constants;

    #[test]
    fn the_list_of_an_in_is_found() {
        let bytes =
            "a = 1 AND b in ('x', (2), f(3)) AND c NOT /* ( */ IN(4,5) AND d IN (SELECT e) AND 6 = ANY (g)
            AND h <> ALL (ARRAY[7, 8]) AND i + 9";
        let text = Text {
            bytes: bytes.as_bytes(),
            backslashes: false,
        };
        let places = Constants::literals(text)
            .and_then(|constants| constants.places(text))
            .expect("places");
        let found = |word: &str| {
            let list = constants_of_list(text, &places, bytes.find(word).expect("the word"))?;
            Some(list.iter().map(|place| place.number).collect::<Vec<_>>())
        };
        assert_eq!(found("in ("), Some(vec![2, 3, 4]));
        assert_eq!(found("NOT"), Some(vec![5, 6]));
        assert_eq!(found("IN (SELECT"), None);
        assert_eq!(found("= ANY"), None);
        assert_eq!(found("<> ALL"), Some(vec![8, 9]));
        assert_eq!(found("+ 9"), None);
        assert_eq!(constants_of_list(text, &places, 1_000), None);
        assert_eq!(constants_of_list(text, &places, bytes.len()), None);
    }
}
