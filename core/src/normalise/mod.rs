//! Replaces the constants of a statement's text by `$1`, `$2` ..., as pg_stat_statements does.
//!
//! PostgreSQL's parser knows where the constants of a text are ([`Constants::at`]). All texts with the same
//! queryid have their constants at the same tokens. So the places are kept as numbers of tokens, and serve
//! for other texts of the same queryid, with longer or shorter constants. If the parser's knowledge is
//! missing, all literals count as constants ([`Constants::literals`]).
//!
//! Everything takes linear time, and never fails: at the end of a cut text, a literal may be incomplete.

mod again;
mod block;
mod constants;
mod fingerprint;
pub(crate) mod lexer;
mod lists;
mod restore;

pub use again::{Argument, Unrepeatable, literal, script};
pub use block::block;
pub use constants::{Constants, Found, Place, Text, replaced};
pub use fingerprint::fingerprint;
pub use lists::{List, constants_of_list};
pub use restore::{hide_strings, with_literals};

/// Returns a text without the spaces at its ends, and how many bytes of spaces it began with.
pub fn trimmed(text: &[u8]) -> (&[u8], usize) {
    let start = text.iter().take_while(|&&byte| lexer::is_space(byte)).count();
    let end = text
        .iter()
        .rev()
        .take_while(|&&byte| lexer::is_space(byte))
        .count();
    (&text[start..text.len().saturating_sub(end).max(start)], start)
}
