//! Where the constants of a statement are.

use super::lexer::{Kind, Lexer, Token};
use rustc_hash::{FxBuildHasher, FxHasher};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

/// A statement's text without spaces at its ends, in the server's encoding.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// The text itself.
    pub bytes: &'a [u8],
    /// A backslash escapes in plain strings too (`standard_conforming_strings = off`).
    pub backslashes: bool,
}

/// Where the parser found a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The first byte in the text.
    pub start: usize,
    /// The number of bytes of a list of constants, which are replaced by one symbol. `None` is a single
    /// constant.
    pub list: Option<usize>,
}

/// The constants of all texts with the same queryid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constants {
    /// The number that the first constant gets.
    first: u32,
    /// The numbers of the tokens at which the constants begin, in ascending order. A constant or list counts
    /// as one token.
    tokens: Box<[u32]>,
    /// The number of tokens of a whole text.
    count: u32,
    /// The number of literals that are no constants, for example in `varchar(10)`.
    kept: u32,
    /// A hash of the other tokens of the text in which they were found. Texts of one queryid may have other
    /// aliases, or other names since something was renamed.
    words: u64,
}

/// The bit of a token's number that says that a list begins there.
const LIST: u32 = 1 << 31;

/// The place of a constant in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number in `$1`.
    pub number: u32,
    /// Its bytes in the text.
    pub range: Range<usize>,
    /// Whether it is a list of constants, which get one number.
    pub is_list: bool,
}

/// What follows a constant list in a normalised text.
const MORE: &str = " /*, ... */";

impl Constants {
    /// Makes them from the parser's findings in a text, in ascending order. `highest` is the highest number
    /// of a parameter. Returns `None` if a constant does not begin where a token does, or there is no memory.
    pub fn at(text: Text, found: &[Found], highest: u32) -> Option<Self> {
        let mut found = found.iter().peekable();
        let mut tokens = Vec::new();
        let (mut count, mut kept) = (0, 0);
        let mut words = FxHasher::default();
        let mut lexer = Lexer::new(text.bytes, text.backslashes).peekable();
        while let Some(token) = lexer.next() {
            if let Some(&constant) = found.next_if(|constant| constant.start <= token.start) {
                let list = if let Some(length) = constant.list {
                    let end = constant.start.checked_add(length)?;
                    while lexer.next_if(|token| token.start < end).is_some() {}
                    LIST
                } else if constant.start == token.start {
                    skip_negative(text.bytes, token, &mut lexer);
                    0
                } else {
                    return None;
                };
                tokens.try_reserve(1).ok()?;
                tokens.push(count | list);
            } else {
                kept += u32::from(token.is_literal());
                text.bytes[token.start..token.end].hash(&mut words);
            }
            count += 1;
        }
        // The parser has read what is behind the end of a cut text.
        if found
            .next()
            .is_some_and(|constant| constant.start < text.bytes.len())
        {
            return None;
        }
        Some(Constants {
            first: highest.checked_add(1)?,
            tokens: tokens.into_boxed_slice(),
            count,
            kept,
            words: words.finish(),
        })
    }

    /// Makes them from a text alone: all literals count as constants. Returns `None` if there is no memory.
    pub fn literals(text: Text) -> Option<Self> {
        let (mut tokens, mut count, mut highest) = (Vec::new(), 0, 0);
        let mut words = FxHasher::default();
        for token in Lexer::new(text.bytes, text.backslashes) {
            let bytes = &text.bytes[token.start..token.end];
            if token.is_literal() {
                tokens.try_reserve(1).ok()?;
                tokens.push(count);
            } else {
                bytes.hash(&mut words);
            }
            if token.kind == Kind::Parameter {
                highest = highest.max(number_of(bytes));
            }
            count += 1;
        }
        Some(Constants {
            first: highest.checked_add(1)?,
            tokens: tokens.into_boxed_slice(),
            count,
            kept: 0,
            words: words.finish(),
        })
    }

    /// Returns the number that follows those of the constants.
    pub fn next_number(&self) -> u32 {
        let count = u32::try_from(self.tokens.len()).unwrap_or(u32::MAX);
        self.first.saturating_add(count)
    }

    /// Returns where another text has the constants: the query is the same, but stands in another statement
    /// (PREPARE, DECLARE CURSOR). All its literals are constants, or it is not known which are: then this
    /// returns `None`.
    pub fn places_in_other_text(&self, text: Text) -> Option<Vec<Place>> {
        let all = Constants::literals(text)?;
        let is_same = self.kept == 0 && (all.first, all.tokens.len()) == (self.first, self.tokens.len());
        if is_same { all.places(text) } else { None }
    }

    /// Returns a number that is the same in each session for the same constants in the same text, but for
    /// their values.
    pub fn fingerprint(&self) -> u64 {
        FxBuildHasher.hash_one(self)
    }

    /// Returns how many bytes they take.
    pub fn size(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.tokens)
    }

    /// Returns where a text has the constants. Returns `None` if it is not a text of this queryid, as far as
    /// its tokens tell, or there is no memory.
    pub fn places(&self, text: Text) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        places.try_reserve_exact(self.tokens.len()).ok()?;
        let mut wanted = self.tokens.iter().peekable();
        let (mut count, mut kept, mut end) = (0u32, 0, 0);
        let mut lexer = Lexer::new(text.bytes, text.backslashes).peekable();
        while let Some(token) = lexer.next() {
            let before = end;
            end = token.end;
            if let Some(&wanted) = wanted.next_if(|&&wanted| wanted & !LIST == count) {
                let range = if wanted & LIST != 0 {
                    before..skip_list(text.bytes, token, &mut lexer)
                } else if may_be_constant(text.bytes, token) {
                    token.start..skip_negative(text.bytes, token, &mut lexer)
                } else {
                    return None;
                };
                end = range.end;
                places.push(Place {
                    number: self.first.saturating_add(places.len() as u32),
                    range,
                    is_list: wanted & LIST != 0,
                });
            } else {
                kept += u32::from(token.is_literal());
            }
            count += 1;
        }
        ((count, kept) == (self.count, self.kept) && wanted.next().is_none()).then_some(places)
    }
}

/// Returns a text with its constants replaced, and whether it was cut because it would have more than `most`
/// bytes.
pub fn replaced(text: &[u8], places: &[Place], most: usize) -> (Vec<u8>, bool) {
    let mut result = Vec::new();
    let mut at = 0;
    for place in places {
        result.extend_from_slice(&text[at..place.range.start]);
        let more = if place.is_list { MORE } else { "" };
        result.extend_from_slice(format!("${}{more}", place.number).as_bytes());
        at = place.range.end;
        if result.len() > most {
            break;
        }
    }
    if result.len() <= most {
        let left = most - result.len() + 1;
        result.extend_from_slice(&text[at..text.len().min(at + left)]);
    }
    let is_cut = result.len() > most;
    result.truncate(most);
    (result, is_cut)
}

/// Returns the end of a constant. A minus sign before a number belongs to it.
fn skip_negative(text: &[u8], token: Token, lexer: &mut impl Iterator<Item = Token>) -> usize {
    let next = if text[token.start] == b'-' {
        lexer.next()
    } else {
        None
    };
    next.map_or(token.end, |next| next.end)
}

/// Skips the tokens of a list of which `first` is the first one. Returns where the closing bracket is, which
/// is not skipped.
fn skip_list(text: &[u8], first: Token, lexer: &mut std::iter::Peekable<Lexer>) -> usize {
    let mut depth = 0usize;
    let mut token = first;
    loop {
        match text[token.start] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let closes = |next: &Token| depth == 0 && matches!(text[next.start], b')' | b']');
        match lexer.peek() {
            Some(next) if closes(next) => return next.start,
            None => return text.len(),
            Some(_) => {}
        }
        match lexer.next() {
            Some(next) => token = next,
            None => return text.len(),
        }
    }
}

/// Returns whether a token may begin a constant. A keyword may: TRUE, NULL, or the field of EXTRACT.
fn may_be_constant(text: &[u8], token: Token) -> bool {
    token.kind != Kind::Other || text[token.start] == b'-'
}

/// Returns the number of a parameter.
pub(super) fn number_of(parameter: &[u8]) -> u32 {
    let digits = std::str::from_utf8(&parameter[1..]).unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &str) -> Text<'_> {
        Text {
            bytes: bytes.as_bytes(),
            backslashes: false,
        }
    }

    /// Makes the constants of a text in which they begin at `^`, and lists are between `{` and `}`. Also
    /// returns the text without the marks.
    fn marked(marked: &str, highest: u32) -> (String, Option<Constants>) {
        let (mut plain, mut found) = (String::new(), Vec::new());
        for character in marked.chars() {
            let list = match character {
                '^' => None,
                '{' => Some(0),
                '}' => {
                    let open: &mut Found = found.last_mut().expect("a list");
                    open.list = Some(plain.len() - open.start);
                    continue;
                }
                other => {
                    plain.push(other);
                    continue;
                }
            };
            let start = plain.len();
            found.push(Found { start, list });
        }
        let constants = Constants::at(text(&plain), &found, highest);
        (plain, constants)
    }

    fn shown(bytes: &str, constants: &Constants) -> Option<String> {
        let places = constants.places(text(bytes))?;
        let (replaced, _) = replaced(bytes.as_bytes(), &places, 1000);
        Some(String::from_utf8(replaced).expect("UTF-8"))
    }

    #[test]
    fn the_same_query_may_stand_in_another_statement() {
        let text = |bytes: &'static str| Text {
            bytes: bytes.as_bytes(),
            backslashes: false,
        };
        let found = [Found {
            start: 18,
            list: None,
        }];
        let constants = Constants::at(text("SELECT a WHERE b =7"), &found, 0).expect("constants");
        let other = text("PREPARE p AS SELECT a WHERE b = 81");
        assert_eq!(constants.places(other), None);
        let places = constants.places_in_other_text(other).expect("places");
        assert_eq!(
            (places.len(), places[0].number, places[0].range.clone()),
            (1, 1, 32..34)
        );
        let more = text("PREPARE p (varchar(3)) AS SELECT a WHERE b = 81");
        assert_eq!(constants.places_in_other_text(more), None);
    }

    #[test]
    fn constants_become_symbols() {
        for (with_marks, highest, expected) in [
            ("SELECT 1", 0, "SELECT 1"),
            (
                "SELECT ^1, ^'it''s', ^-5, ^TRUE ORDER BY 1",
                0,
                "SELECT $1, $2, $3, $4 ORDER BY 1",
            ),
            ("a = $1 AND b = ^- /* x */ 2.5::int", 1, "a = $1 AND b = $2::int"),
            (
                "a IN ({ 1, (2), f(3) }) AND b = ^4",
                0,
                "a IN ($1 /*, ... */) AND b = $2",
            ),
            ("ARRAY[{1,2}], ^$$ $a$ $$ é", 0, "ARRAY[$1 /*, ... */], $2 é"),
        ] {
            let (plain, constants) = marked(with_marks, highest);
            let constants = constants.expect("constants");
            assert_eq!(shown(&plain, &constants).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_texts_with_the_same_tokens_have_the_same_constants() {
        let (_, constants) = marked("SELECT ^1, a FROM t WHERE a IN ({1, 2}) AND b = ^'x' LIMIT 10", 0);
        let constants = constants.expect("constants");
        for (other, expected) in [
            (
                "select  - 100,a from t /* - */ where a in (3,4 , 5)and b = E'\\''\nlimit 10",
                "select  $1,a from t /* - */ where a in ($2 /*, ... */)and b = $3\nlimit 10",
            ),
            (
                "SELECT NULL, a FROM t WHERE a IN (1, 2) AND b = $$'$$ LIMIT 10",
                "SELECT $1, a FROM t WHERE a IN ($2 /*, ... */) AND b = $3 LIMIT 10",
            ),
        ] {
            assert_eq!(shown(other, &constants).as_deref(), Some(expected));
        }
        for different in [
            "SELECT 1, a FROM t WHERE a IN (1, 2) AND b = 'x' LIMIT (10)",
            "SELECT 1, a FROM t WHERE a IN (1, 2) AND 'x' = b LIMIT 10",
            "SELECT (1), a FROM t WHERE a IN (1, 2) AND b = 'x' LIMIT 10",
            "SELECT",
            "",
        ] {
            assert_eq!(shown(different, &constants), None, "{different}");
        }
    }

    #[test]
    fn without_the_parser_all_literals_are_constants() {
        let bytes = "SELECT $2, 1, -'a', b1 FROM t LIMIT 5 -- 'x'";
        let constants = Constants::literals(text(bytes)).expect("constants");
        assert_eq!(
            shown(bytes, &constants).as_deref(),
            Some("SELECT $2, $3, -$4, b1 FROM t LIMIT $5 -- 'x'")
        );
        assert_eq!(constants.next_number(), 6);
    }

    #[test]
    fn a_constant_that_is_no_token_is_refused() {
        assert_eq!(marked("SELECT 1^2", 0).1, None);
        assert_eq!(marked("SELECT /* ^1 */ 2", 0).1, None);
    }

    #[test]
    fn a_cut_text_has_the_constants_before_its_end() {
        let bytes = "SELECT 1, 'long";
        let found = [7, 10, 40].map(|start| Found { start, list: None });
        let constants = Constants::at(text(bytes), &found, 0).expect("constants");
        assert_eq!(shown(bytes, &constants).as_deref(), Some("SELECT $1, $2"));
    }

    #[test]
    fn a_long_text_is_cut() {
        let (plain, constants) = marked("a = ^1 AND b", 0);
        let places = constants
            .and_then(|constants| constants.places(text(&plain)))
            .expect("places");
        for (most, expected, is_cut) in [
            (12, "a = $1 AND b", false),
            (11, "a = $1 AND ", true),
            (5, "a = $", true),
        ] {
            let (shown, was_cut) = replaced(plain.as_bytes(), &places, most);
            assert_eq!((&*shown, was_cut), (expected.as_bytes(), is_cut));
        }
    }
}
