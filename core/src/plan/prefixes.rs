//! The aliases of tables before the names of columns in expressions, as PostgreSQL prints them.

use rustc_hash::FxHashMap;

/// An alias in expressions, and the one that takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    from: String,
    /// Whether SQL has it in quotes in any case.
    is_quoted: bool,
    /// The other one, as SQL has it.
    to: String,
    /// The same in quotes.
    in_quotes: String,
    /// It changes anything.
    is_needed: bool,
}

impl Rename {
    /// Makes it. `quoted` returns a name as SQL has it.
    pub fn new(from: &str, to: &str, quoted: impl Fn(&str) -> String) -> Rename {
        Rename {
            is_quoted: quoted(from) != from,
            from: from.to_owned(),
            to: quoted(to),
            in_quotes: in_quotes(to),
            is_needed: !from.is_empty() && from != to,
        }
    }

    /// Returns what takes the place of a token that is the alias before this column.
    fn instead_of(&self, token: &Token, column: &str) -> Option<&str> {
        if !self.is_needed || !token.is_quoted && self.is_quoted {
            return None;
        }
        // With quote_all_identifiers, all names are in quotes, also if they need none.
        let are_all_quoted = match self.is_quoted {
            true => Token::of(column)
                .is_some_and(|column| column.is_quoted && has_usual_characters(&column.name())),
            false => token.is_quoted,
        };
        Some(if are_all_quoted { &self.in_quotes } else { &self.to })
    }
}

/// Aliases, and what takes the place of each.
#[derive(Clone, Debug, Default)]
pub struct Renames(FxHashMap<String, Rename>);

impl Renames {
    /// Adds one, unless its alias has another one already.
    pub fn add(&mut self, rename: Rename) {
        self.0.entry(rename.from.clone()).or_insert(rename);
    }

    /// Returns that of an alias.
    pub fn of(&self, alias: &str) -> Option<&Rename> {
        self.0.get(alias)
    }

    /// Returns whether one of them changes anything.
    pub fn are_needed(&self) -> bool {
        self.0.values().any(|rename| rename.is_needed)
    }
}

/// A name, a number or a string in an expression.
struct Token<'t> {
    text: &'t str,
    is_quoted: bool,
}

impl<'t> Token<'t> {
    /// Returns the one that a text begins with.
    fn of(text: &'t str) -> Option<Token<'t>> {
        let first = text.chars().next()?;
        let is_quoted = matches!(first, '"' | '\'');
        let length = match is_quoted {
            true => quoted_length(text, first),
            false => text.find(|c: char| !is_of_name(c)).unwrap_or(text.len()),
        };
        (length > 0).then(|| Token {
            text: &text[..length],
            is_quoted,
        })
    }

    /// Returns the name without quotes. A string has none.
    fn name(&self) -> std::borrow::Cow<'t, str> {
        let inner = self
            .text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        match inner {
            Some(inner) if inner.contains('"') => inner.replace("\"\"", "\"").into(),
            Some(inner) => inner.into(),
            None => self.text.into(),
        }
    }
}

/// Returns the length of what is in these quotes, with them. Two of them inside stand for one.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(end) = text[at..].find(quote) {
        at += end + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// Words after which the name of a schema may come.
const BEFORE_SCHEMAS: [&str; 4] = ["COLLATE", "RETURNING", "AS", "OPERATOR"];

/// Replaces the aliases of tables before the names of columns: `a_1.x` becomes `a.x`, but not that in
/// `ba_1.x`, in a string, or before a type or a function, where it is a schema. All are replaced at once, so
/// two may swap their names. `rename_of` returns what takes the place of an alias.
pub(super) fn with_prefixes<'r>(text: &str, rename_of: &impl Fn(&str) -> Option<&'r Rename>) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut rest = text;
    // The word before that nothing but blanks or a parenthesis comes after.
    let mut word = "";
    while let Some(next) = rest.chars().next() {
        let Some(token) = Token::of(rest) else {
            changed.push(next);
            if !matches!(next, ' ' | '(') {
                word = "";
            }
            rest = &rest[next.len_utf8()..];
            continue;
        };
        let behind = &rest[token.text.len()..];
        let is_alias = !changed.ends_with('.') && !changed.ends_with("::") && !BEFORE_SCHEMAS.contains(&word);
        let column = behind.strip_prefix('.').filter(|_| is_alias);
        let column = column.filter(|column| !is_called(column));
        let renamed = column.and_then(|column| rename_of(&token.name())?.instead_of(&token, column));
        changed.push_str(renamed.unwrap_or(token.text));
        word = if token.is_quoted { "" } else { token.text };
        rest = behind;
    }
    changed
}

/// Returns whether a text begins with a function that is called.
fn is_called(text: &str) -> bool {
    Token::of(text).is_some_and(|name| text[name.text.len()..].starts_with('('))
}

/// Returns a name in quotes.
pub fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns whether a name needs no quotes for its characters.
pub fn has_usual_characters(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(is_usual) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL does: `order` is a word that it reserves.
    fn quoted(name: &str) -> String {
        match has_usual_characters(name) && name != "order" {
            true => name.to_owned(),
            false => in_quotes(name),
        }
    }

    fn renamed(text: &str, renames: &[(&str, &str)]) -> String {
        let mut all = Renames::default();
        for (from, to) in renames {
            all.add(Rename::new(from, to, quoted));
        }
        with_prefixes(text, &|alias| all.of(alias))
    }

    #[test]
    fn aliases_before_columns_are_replaced() {
        for (text, expected) in [
            ("(a.x > ba.x)", "(a_1.x > ba.x)"),
            ("(a.x = (a.y).a)", "(a_1.x = (a_1.y).a)"),
            ("((a.*)::text = 'a.x'::text)", "((a_1.*)::text = 'a.x'::text)"),
            ("(a.x = 'it''s a.x'::text)", "(a_1.x = 'it''s a.x'::text)"),
            ("(a.x = 'paid'::a.state)", "(a_1.x = 'paid'::a.state)"),
            ("(a.f(a.x) > 1)", "(a.f(a_1.x) > 1)"),
            ("(a.x OPERATOR(a.+) 1.5)", "(a_1.x OPERATOR(a.+) 1.5)"),
            ("a.x COLLATE a.mine DESC", "a_1.x COLLATE a.mine DESC"),
            ("(\"b a.x\" > a.\"Mixed\")", "(\"b a.x\" > a_1.\"Mixed\")"),
            ("(\"a\".\"x\" > 1)", "(\"a_1\".\"x\" > 1)"),
            (
                "(a.arr[1:a.n] <> '{}'::a.t[])",
                "(a_1.arr[1:a_1.n] <> '{}'::a.t[])",
            ),
            ("\u{e9}a.x", "\u{e9}a.x"),
            ("'a.x", "'a.x"),
            ("", ""),
        ] {
            assert_eq!(renamed(text, &[("a", "a_1")]), expected);
        }
        assert_eq!(renamed("(a.x = b.x)", &[("a", "b"), ("b", "a")]), "(b.x = a.x)");
    }

    #[test]
    fn quotes_are_those_of_the_text() {
        let to_numbered = [("order", "order_1")];
        assert_eq!(renamed("(\"order\".x > 1)", &to_numbered), "(order_1.x > 1)");
        assert_eq!(
            renamed("(\"order\".\"X\" > 1)", &to_numbered),
            "(order_1.\"X\" > 1)"
        );
        assert_eq!(
            renamed("(\"order\".\"x\" > 1)", &to_numbered),
            "(\"order_1\".\"x\" > 1)"
        );
        assert_eq!(
            renamed("(order_1.x > 1)", &[("order_1", "order")]),
            "(\"order\".x > 1)"
        );
        assert_eq!(renamed("(order.x > 1)", &to_numbered), "(order.x > 1)");
        let to_other = [("A \"b\"", "A \"b\"_2")];
        assert_eq!(
            renamed("(\"A \"\"b\"\"\".x > 1)", &to_other),
            "(\"A \"\"b\"\"_2\".x > 1)"
        );
    }
}
