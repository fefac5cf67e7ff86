//! Makes a script for psql that runs a statement again.

use super::lexer::{Kind, Lexer, Token};
use std::fmt::Write;

/// A parameter of the execution that is to run again.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The name of its type.
    pub type_name: String,
    /// Its value as SQL.
    pub value: String,
}

/// Why a statement cannot run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrepeatable {
    /// It has symbols like `$3`, the values of which are not known.
    Symbols,
    /// It has parameters, and PREPARE takes no such statement.
    NoPrepare,
    /// psql would run something else: there is a semicolon or a backslash in it, outside of its strings.
    SeveralStatements,
}

/// The commands that PREPARE takes.
const PREPARED: [&str; 8] = [
    "SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE",
];

/// The name under which a statement is prepared.
const NAME: &str = "rowsource";

/// Returns the lines of a script that runs a statement again. One with parameters is prepared, executed and
/// deallocated, and so is a PREPARE. If `is_generic`, its plan is made for all values.
///
/// # Errors
/// Returns an error if that is not possible.
pub fn script(text: &str, arguments: &[Argument], is_generic: bool) -> Result<Vec<String>, Unrepeatable> {
    let text = text.trim_end_matches(|end: char| end == ';' || end.is_ascii_whitespace());
    let tokens = || Lexer::new(text.as_bytes(), false);
    let of = |token: Token| text.get(token.start..token.end).unwrap_or_default();
    if tokens().any(|token| token.kind == Kind::Other && matches!(of(token), ";" | "\\")) {
        return Err(Unrepeatable::SeveralStatements);
    }
    let symbols = tokens().filter(|token| token.kind == Kind::Parameter);
    let symbols = symbols.map(|token| of(token)[1..].parse().unwrap_or(usize::MAX));
    let last_symbol = symbols.max().unwrap_or(0);
    if last_symbol > arguments.len() {
        return Err(Unrepeatable::Symbols);
    }
    let mut words = tokens().filter(|token| token.kind == Kind::Word).map(of);
    let first = words.next().unwrap_or_default().to_ascii_uppercase();
    let mut script = String::new();
    let takes_backslashes = tokens().any(|token| of(token).starts_with('\'') && of(token).contains('\\'));
    if takes_backslashes {
        script.push_str("SET standard_conforming_strings = on;\n");
    }
    let prepared = match first.as_str() {
        "PREPARE" => words.next(),
        _ if last_symbol == 0 => None,
        command if PREPARED.contains(&command) => Some(NAME),
        _ => return Err(Unrepeatable::NoPrepare),
    };
    let is_generic = is_generic && prepared.is_some() && !arguments.is_empty();
    if is_generic {
        script.push_str("SET plan_cache_mode = force_generic_plan;\n");
    }
    if prepared == Some(NAME) && first != "PREPARE" {
        let types = listed(arguments, |argument| &argument.type_name);
        let _ = writeln!(script, "PREPARE {NAME}{types} AS");
    }
    // The semicolon has a line of its own, because the text may end with a comment.
    script.push_str(&without_variables(text, tokens()));
    script.push_str("\n;");
    if let Some(name) = prepared {
        let values = listed(arguments, |argument| &argument.value);
        let _ = write!(script, "\nEXECUTE {name}{values};\nDEALLOCATE {name};");
    }
    if is_generic {
        script.push_str("\nRESET plan_cache_mode;");
    }
    Ok(script.split('\n').map(str::to_owned).collect())
}

/// Returns a list in parentheses; nothing if there are no arguments.
fn listed(arguments: &[Argument], item: impl Fn(&Argument) -> &str) -> String {
    match arguments {
        [] => String::new(),
        _ => format!("({})", arguments.iter().map(item).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns a text in which psql finds none of its variables, like `:name`: a space follows each such colon.
fn without_variables(text: &str, tokens: impl Iterator<Item = Token>) -> String {
    let mut result = String::new();
    let mut copied = 0;
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(b' ');
    for token in tokens.filter(|token| token.kind == Kind::Other && bytes[token.start] == b':') {
        let is_variable = !matches!(byte(token.end), b':' | b'=' | b' ')
            && (token.start == 0 || byte(token.start - 1) != b':');
        if is_variable {
            result.push_str(text.get(copied..token.end).unwrap_or_default());
            result.push(' ');
            copied = token.end;
        }
    }
    result.push_str(text.get(copied..).unwrap_or_default());
    result
}

/// Returns a literal of SQL, in one line.
pub fn literal(text: &str) -> String {
    let is_plain = |c: char| c != '\\' && !c.is_control();
    let mut literal = String::from(if text.chars().all(is_plain) { "'" } else { "E'" });
    for c in text.chars() {
        match c {
            '\'' => literal.push_str("''"),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            c if c.is_ascii_control() => {
                let _ = write!(literal, "\\x{:02x}", c as u8);
            }
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(all: &[(&str, &str)]) -> Vec<Argument> {
        let argument = |(type_name, value): &(&str, &str)| Argument {
            type_name: (*type_name).to_owned(),
            value: (*value).to_owned(),
        };
        all.iter().map(argument).collect()
    }

    fn printed(text: &str, all: &[(&str, &str)]) -> String {
        script(text, &arguments(all), false)
            .map_or_else(|error| format!("{error:?}"), |lines| lines.join("\n"))
    }

    #[test]
    fn a_statement_runs_again() {
        assert_eq!(
            printed("SELECT '$1', \"$2\"\nFROM t -- $3", &[]),
            "SELECT '$1', \"$2\"\nFROM t -- $3\n;"
        );
        assert_eq!(printed("(SELECT 1) ; ", &[]), "(SELECT 1)\n;");
        assert_eq!(
            printed("prepare \"A b\" as SELECT 1", &[]),
            "prepare \"A b\" as SELECT 1\n;\nEXECUTE \"A b\";\nDEALLOCATE \"A b\";"
        );
    }

    #[test]
    fn parameters_are_passed() {
        let two = [("integer", "1"), ("text[]", "'{a,b}'")];
        assert_eq!(
            printed("(select $1 -- $3\n) UNION SELECT $2", &two),
            "PREPARE rowsource(integer, text[]) AS\n(select $1 -- $3\n) UNION SELECT $2\n;\n\
             EXECUTE rowsource(1, '{a,b}');\nDEALLOCATE rowsource;"
        );
        assert_eq!(
            printed("PREPARE q (int, text[]) AS SELECT $1", &two),
            "PREPARE q (int, text[]) AS SELECT $1\n;\nEXECUTE q(1, '{a,b}');\nDEALLOCATE q;"
        );
        let generic = script("SELECT $1", &arguments(&two[..1]), true).expect("a script");
        assert_eq!(generic[0], "SET plan_cache_mode = force_generic_plan;");
        assert_eq!(generic[generic.len() - 1], "RESET plan_cache_mode;");
        assert_eq!(printed("SELECT 1", &two), "SELECT 1\n;");
    }

    #[test]
    fn what_cannot_run_again_is_refused() {
        assert_eq!(printed("SELECT $1", &[]), "Symbols");
        assert_eq!(
            printed("SELECT 1 FROM t WHERE a=$2", &[("text", "''")]),
            "Symbols"
        );
        assert_eq!(
            printed("SELECT $99999999999999999999", &[("text", "''")]),
            "Symbols"
        );
        assert_eq!(
            printed("DECLARE c CURSOR FOR SELECT $1", &[("text", "''")]),
            "NoPrepare"
        );
    }

    #[test]
    fn psql_runs_nothing_else() {
        // These were one string where backslashes escape.
        assert_eq!(
            printed(r"SELECT 'a\'; DROP TABLE t; --'", &[]),
            "SeveralStatements"
        );
        assert_eq!(printed(r"SELECT 'a\' \! reboot --'", &[]), "SeveralStatements");
        assert_eq!(
            printed(r"SELECT 'a\', '; DROP TABLE t; --'", &[]),
            "SET standard_conforming_strings = on;\nSELECT 'a\\', '; DROP TABLE t; --'\n;"
        );
        assert_eq!(
            printed(r"SELECT E'\'; --', ';'", &[]),
            "SELECT E'\\'; --', ';'\n;"
        );
        assert_eq!(
            printed(
                "SELECT a[1:n], a[:'2'], a[1: 2], b::text, f(c := ':d'), \":e\" -- :g",
                &[]
            ),
            "SELECT a[1: n], a[: '2'], a[1: 2], b::text, f(c := ':d'), \":e\" -- :g\n;"
        );
    }

    #[test]
    fn literals_are_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("\\x00'\n\u{1}ä"), "E'\\\\x00''\\n\\x01ä'");
        assert_eq!(literal(""), "''");
    }
}
