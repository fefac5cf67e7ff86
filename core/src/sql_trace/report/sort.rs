//! The order of the statements: TKPROF's words.

use super::super::event::Phase;
use super::statement::{Calls, Statement, Sums};

/// What a word adds up.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    phases: &'static [Phase],
    of: fn(&Sums) -> Option<u64>,
}

type Prefix = (&'static str, &'static [Phase]);
type Suffix = (&'static str, fn(&Sums) -> Option<u64>);

/// The phases, by the letters that a word begins with.
const PREFIXES: [Prefix; 6] = [
    ("prs", &[Phase::Parse]),
    ("pln", &[Phase::Plan]),
    ("exe", &[Phase::Exec, Phase::Finish]),
    ("fch", &[Phase::Fetch]),
    ("cls", &[Phase::Close]),
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

/// Reads words like `exeela,fchela`. Returns the word that is unknown, if one is.
pub fn parse(words: &str) -> Result<Vec<Key>, String> {
    let words = words.split([',', ' ']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let lower = word.to_ascii_lowercase();
            let found = PREFIXES.iter().find_map(|(prefix, phases)| {
                let rest = lower.strip_prefix(prefix)?;
                let suffix = SUFFIXES.iter().find(|suffix| suffix.0 == rest)?;
                Some(Key { phases, of: suffix.1 })
            });
            found.ok_or_else(|| word.to_owned())
        })
        .collect()
}

/// Returns all prefixes and suffixes, for the hint of an error.
pub fn words() -> String {
    let prefixes = PREFIXES.map(|prefix| prefix.0).join(", ");
    let suffixes = SUFFIXES.map(|suffix| suffix.0).join(", ");
    format!("A word is one of {prefixes} followed by one of {suffixes}, for example exeela.")
}

/// Returns the sum of the keys. What is not known counts as 0.
pub fn value(calls: &Calls, keys: &[Key]) -> u64 {
    let values = keys.iter().flat_map(|key| {
        let phases = key.phases.iter();
        phases.filter_map(|phase| (key.of)(&calls[*phase as usize]))
    });
    values.fold(0, u64::saturating_add)
}

/// Puts the statements with the largest sum of the keys first. Without keys, they keep their order.
pub fn sort(statements: &mut [&Statement], keys: &[Key]) {
    if !keys.is_empty() {
        statements.sort_by_key(|statement| std::cmp::Reverse(value(&statement.calls, keys)));
    }
}
