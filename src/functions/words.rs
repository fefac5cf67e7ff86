//! Arguments that are one of a few words, and the word that replaces hidden texts.

use crate::pg::server::fail;
use pgrx::PgSqlErrorCode;
use rowsource_core::export::ExplainFormat;

/// Replaces the texts of other users' statements, as in pg_stat_statements.
pub const MASKED: &str = "<insufficient privilege>";

/// How a user finds the ids of plans.
pub const WHERE_IDS_ARE: &str = "pg_stat_rowsource_plans lists the kept plans. Roles with the privileges of pg_read_all_stats also see those of other roles.";

/// The formats of EXPLAIN, as users write them.
pub const EXPLAIN_FORMATS: [(&str, ExplainFormat); 4] = [
    ("text", ExplainFormat::Text),
    ("json", ExplainFormat::Json),
    ("yaml", ExplainFormat::Yaml),
    ("xml", ExplainFormat::Xml),
];

/// Returns what a word stands for. Letter case and spaces around the word do not matter. NULL stands for the
/// default, which is the first known word.
///
/// # Errors
/// Raises an error that names the argument and the known words.
pub fn choose<T: Copy>(argument: &str, word: Option<&str>, known: &[(&str, T)]) -> T {
    let word = word.unwrap_or(known[0].0);
    let found = known
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word.trim()));
    found.map(|(_, meaning)| *meaning).unwrap_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("unknown word \"{word}\" for the argument \"{argument}\""),
            &format!("Known words: {}.", names.join(", ")),
        )
    })
}

/// Returns a part of a sentence as a sentence of its own.
pub fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    let first: String = first.into_iter().flatten().collect();
    format!("{first}{}.", characters.as_str())
}
