//! The order of the statements: TKPROF's words.

use super::super::event::Phase;
use super::statement::{Calls, Statement, Sums};

/// What a word adds up.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// A column of some phases.
    Calls(&'static [Phase], fn(&Sums) -> Option<u64>),
    /// The OID of the user.
    User,
}

/// The word of [`Key::User`].
const USER: &str = "userid";

type Prefix = (&'static str, &'static [Phase]);
type Suffix = (&'static str, fn(&Sums) -> Option<u64>);

/// The phases, by the letters that a word begins with.
const PREFIXES: [Prefix; 9] = [
    ("prs", &[Phase::Parse]),
    ("bnd", &[Phase::Bind]),
    ("pln", &[Phase::Plan]),
    ("exe", &[Phase::Exec, Phase::Finish]),
    ("fch", &[Phase::Fetch]),
    ("fin", &[Phase::Finish]),
    ("cls", &[Phase::Close]),
    ("cmt", &[Phase::Commit]),
    ("tot", &Phase::ALL),
];

/// The columns, by the letters that it ends with.
const SUFFIXES: [Suffix; 7] = [
    ("cnt", |sums| sums.count),
    ("cpu", |sums| sums.cpu_us),
    ("ela", |sums| sums.elapsed_us),
    ("dsk", |sums| sums.reads),
    ("qry", |sums| sums.gets),
    ("cu", |sums| sums.dirtied),
    ("row", |sums| sums.rows),
];

fn split(words: &str) -> impl Iterator<Item = &str> {
    words.split([',', ' ']).filter(|word| !word.is_empty())
}

/// Reads words like `exeela,fchela`. Returns the word that is unknown, if one is.
pub fn parse(words: &str) -> Result<Vec<Key>, String> {
    split(words)
        .map(|word| {
            let lower = word.to_ascii_lowercase();
            if lower == USER {
                return Ok(Key::User);
            }
            let found = PREFIXES.iter().find_map(|(prefix, phases)| {
                let rest = lower.strip_prefix(prefix)?;
                let suffix = SUFFIXES.iter().find(|suffix| suffix.0 == rest)?;
                Some(Key::Calls(phases, suffix.1))
            });
            found.ok_or_else(|| word.to_owned())
        })
        .collect()
}

/// Returns all prefixes and suffixes, for the hint of an error.
pub fn words() -> String {
    let prefixes = PREFIXES.map(|prefix| prefix.0).join(", ");
    let suffixes = SUFFIXES.map(|suffix| suffix.0).join(", ");
    format!(
        "A word is {USER}, or one of {prefixes} followed by one of {suffixes}, for example exeela. PostgreSQL has no library cache \
         whose misses TKPROF's prsmis and exemis count."
    )
}

/// Returns the first of these words whose value is unknown in all of these calls.
pub fn never_known<'a>(words: &'a str, keys: &[Key], calls: &[Calls]) -> Option<&'a str> {
    let is_known = |key: &Key| match key {
        Key::User => true,
        Key::Calls(phases, of) => {
            let sums = calls
                .iter()
                .flat_map(|calls| phases.iter().map(|phase| &calls[*phase as usize]));
            sums.filter_map(of).next().is_some()
        }
    };
    split(words)
        .zip(keys)
        .find(|(_, key)| !is_known(key))
        .map(|(word, _)| word)
}

/// Returns the sum of the keys over calls, without that of the user. What is not known counts as 0.
pub fn value(calls: &Calls, keys: &[Key]) -> u64 {
    let values = keys.iter().map(|key| match key {
        Key::Calls(phases, of) => {
            let known = phases.iter().filter_map(|phase| of(&calls[*phase as usize]));
            known.fold(0, u64::saturating_add)
        }
        Key::User => 0,
    });
    values.fold(0, u64::saturating_add)
}

/// Returns what the keys say of the user of a statement.
pub fn value_of_user(uid: Option<u64>, keys: &[Key]) -> u64 {
    let is_wanted = keys.iter().any(|key| matches!(key, Key::User));
    uid.filter(|_| is_wanted).unwrap_or(0)
}

/// Puts the statements with the largest sum of the keys first. Without keys, they keep their order.
pub fn sort(statements: &mut [&Statement], keys: &[Key]) {
    if !keys.is_empty() {
        statements.sort_by_key(|statement| {
            let value = value(&statement.calls, keys);
            std::cmp::Reverse(value.saturating_add(value_of_user(statement.uid, keys)))
        });
    }
}
