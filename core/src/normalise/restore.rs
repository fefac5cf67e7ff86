//! Changes conditions that PostgreSQL printed.

use super::constants::number_of;
use super::lexer::{Kind, Lexer, Token};

/// Returns a condition with the literal of each `$n` for which there is one. `literal` also gets whether the
/// symbol is the array of an operator: `= ANY ($1)`.
pub fn with_literals(condition: &str, literal: impl Fn(u32, bool) -> Option<String>) -> String {
    // Whether the token before was ANY or ALL, and whether the bracket behind one was.
    let (mut quantified, mut opened) = (false, false);
    changed(condition, |token, text| {
        let is_array = opened;
        opened = quantified && text == "(";
        quantified = matches!(text, "ANY" | "ALL");
        match token.kind {
            Kind::Parameter => literal(number_of(text.as_bytes()), is_array),
            _ => None,
        }
    })
}

/// Returns a condition without strings: each becomes a symbol, with the numbers from `next` on. Conditions
/// have no strings if their constants were replaced before they were printed. But an extension may print its
/// own.
pub fn hide_strings(condition: &str, next: &mut u32) -> String {
    changed(condition, |token, _| {
        let symbol = (token.kind == Kind::String).then(|| format!("${next}"));
        *next = next.saturating_add(u32::from(symbol.is_some()));
        symbol
    })
}

/// Returns a text in which `change` has replaced some tokens.
fn changed(text: &str, mut change: impl FnMut(Token, &str) -> Option<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for token in Lexer::new(text.as_bytes(), false) {
        if let Some(new) = change(token, &text[token.start..token.end]) {
            result.push_str(&text[at..token.start]);
            result.push_str(&new);
            at = token.end;
        }
    }
    result.push_str(&text[at..]);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_replace_their_symbols_only() {
        let literal = |number, _| (number == 2).then(|| "'it''s $2'".to_owned());
        assert_eq!(
            with_literals(
                "((a = $2) AND (b = $12) AND (\"$2\" = '$2'::text) AND é = $2)",
                literal
            ),
            "((a = 'it''s $2') AND (b = $12) AND (\"$2\" = '$2'::text) AND é = 'it''s $2')"
        );
    }

    #[test]
    fn arrays_of_operators_are_known() {
        let literal = |number, is_array: bool| is_array.then(|| format!("list {number}"));
        assert_eq!(
            with_literals(
                "(a = ANY ($1)) OR (b <> ALL ($2)) OR c = ($3) OR d = ANY (f($4))",
                literal
            ),
            "(a = ANY (list 1)) OR (b <> ALL (list 2)) OR c = ($3) OR d = ANY (f($4))"
        );
    }

    #[test]
    fn strings_are_hidden() {
        let mut next = 3;
        assert_eq!(
            hide_strings(
                "(a = 'x''y'::text) AND (\"it's\" ~ E'\\\\') AND (n = $1) AND (m < 10)",
                &mut next
            ),
            "(a = $3::text) AND (\"it's\" ~ $4) AND (n = $1) AND (m < 10)"
        );
        assert_eq!(next, 5);
    }
}
