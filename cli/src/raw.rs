//! Texts that are not UTF-8: a server shows what sessions of all databases run, and each database has its
//! own encoding. The bytes of such texts come as hexadecimal digits, and what is no UTF-8 in them becomes a
//! replacement character.

use tokio_postgres::error::{DbError, SqlState};

/// In which form an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As UTF-8.
    Text,
    /// As the digits of its bytes.
    Bytes,
}

impl Form {
    /// Returns the statement before the question: bytes are not to be converted.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Bytes => "SET LOCAL client_encoding = 'SQL_ASCII'; ",
        }
    }

    /// Returns an expression whose value is a text, in this form.
    pub fn value(self, text: &str) -> String {
        match self {
            Self::Text => text.to_owned(),
            Self::Bytes => format!("{BEGIN}{text}), 'hex')"),
        }
    }

    /// Returns a query whose functions of characters bear bytes that are none. A character that is not whole
    /// at the end of a text is an error: spaces after it make it whole.
    pub fn query(self, query: &str) -> String {
        match self {
            Self::Text => query.to_owned(),
            Self::Bytes => ["query", "a.query"].iter().fold(query.to_owned(), |query, text| {
                let padded = format!("{text} || '   '");
                query
                    .replace(&format!("left({text},"), &format!("left({padded},"))
                    .replace(&format!("length({text})"), &format!("length({padded})"))
            }),
        }
    }
}

/// How an expression begins whose bytes are asked for.
pub const BEGIN: &str = "pg_catalog.encode(pg_catalog.textsend(";

/// Returns whether a server refused a question because of a text that it cannot convert, or cut.
pub fn is_about_encoding(error: &DbError) -> bool {
    [
        &SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        &SqlState::UNTRANSLATABLE_CHARACTER,
    ]
    .contains(&error.code())
}

/// Returns the text that bytes make. What is not hexadecimal is returned as it is.
pub fn text_of_hex(digits: &str) -> String {
    let pairs = digits.as_bytes().chunks(2);
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
            _ => None,
        })
        .collect();
    bytes.map_or_else(
        || digits.to_owned(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(text_of_hex("5b2267f6df6572225d"), "[\"g\u{fffd}\u{fffd}er\"]");
        assert_eq!(text_of_hex("c3bc"), "ü");
        assert_eq!(text_of_hex(""), "");
        for other in ["abc", "xy", "ü"] {
            assert_eq!(text_of_hex(other), other);
        }
    }

    #[test]
    fn texts_that_are_cut_have_an_end() {
        let query = "SELECT left(query, 400), length(query), left(a.query, 9), left(name, 3)";
        assert_eq!(Form::Text.query(query), query);
        assert_eq!(
            Form::Bytes.query(query),
            "SELECT left(query || '   ', 400), length(query || '   '), left(a.query || '   ', 9), left(name, 3)"
        );
    }
}
