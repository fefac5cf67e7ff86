//! Parses display formats as in DBMS_XPLAN: `ALLSTATS LAST -PREDICATE +COST`.

use crate::model::Exemplar;
use std::str::FromStr;

/// A part of the display that words select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    /// The last execution, not the totals.
    Last,
    /// The slowest execution.
    Slowest,
    /// The last execution that failed.
    Failed,
    /// The last execution that was cancelled.
    Cancelled,
    /// The table and the texts are at most 80 columns wide.
    Compact,
    /// E-Rows.
    Rows,
    Bytes,
    Cost,
    /// Starts and A-Rows.
    Actual,
    Time,
    Buffers,
    /// Reads, writes and temp blocks.
    Io,
    Memory,
    Wal,
    /// W-Time, and the waits of each operation.
    Waits,
    Predicates,
    /// The keys of sorts, groups and caches.
    Keys,
    Aliases,
    /// The partitions that took the longest.
    Partitions,
    Notes,
}

/// A set of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts(u32);

impl Parts {
    const fn of(parts: &[Part]) -> Parts {
        let mut bits = 0;
        let mut i = 0;
        while i < parts.len() {
            bits |= 1 << parts[i] as u32;
            i += 1;
        }
        Parts(bits)
    }

    const fn and(self, others: Parts) -> Parts {
        Parts(self.0 | others.0)
    }

    const fn without(self, others: Parts) -> Parts {
        Parts(self.0 & !others.0)
    }

    const fn has_any(self, others: Parts) -> bool {
        self.0 & others.0 != 0
    }
}

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It selects how much of the plan is shown. As in DBMS_XPLAN, a format with such a word shows statistics
    /// only if it also has a word for them.
    Level,
    /// It selects statistics. A format with such a word shows no others.
    Statistics,
    /// It adds or removes one thing.
    Single,
}

struct Word {
    name: &'static str,
    kind: Kind,
    adds: Parts,
    /// What the word removes if it has a `-`.
    removes: Parts,
}

const fn word(name: &'static str, kind: Kind, parts: &[Part]) -> Word {
    let parts = Parts::of(parts);
    Word {
        name,
        kind,
        adds: parts,
        removes: parts,
    }
}

const fn single(name: &'static str, part: Part) -> Word {
    word(name, Kind::Single, &[part])
}

/// Returns a word for statistics. Each of them also adds rows, starts and `more`, which stay when the word is
/// removed.
const fn statistics(name: &'static str, parts: &[Part], more: &[Part]) -> Word {
    let parts = Parts::of(parts);
    Word {
        name,
        kind: Kind::Statistics,
        adds: parts
            .and(Parts::of(more))
            .and(Parts::of(&[Part::Rows, Part::Actual])),
        removes: parts,
    }
}

use Part::{
    Actual, Aliases, Buffers, Bytes, Cancelled, Compact, Cost, Failed, Io, Keys, Last, Memory, Notes,
};
use Part::{Partitions, Predicates, Rows, Slowest, Time, Waits, Wal};

/// The parts of which a format has one at most.
const ONE_EXECUTION: Parts = Parts::of(&[Last, Slowest, Failed, Cancelled]);

const TYPICAL: [Part; 5] = [Rows, Bytes, Cost, Predicates, Notes];

/// The words that a display format may contain.
static WORDS: [Word; 25] = [
    word("BASIC", Kind::Level, &[]),
    word("TYPICAL", Kind::Level, &TYPICAL),
    word(
        "ALL",
        Kind::Level,
        &[Rows, Bytes, Cost, Predicates, Notes, Aliases, Keys],
    ),
    word(
        "ADVANCED",
        Kind::Level,
        &[Rows, Bytes, Cost, Predicates, Notes, Aliases, Keys, Wal],
    ),
    statistics("ALLSTATS", &[Actual, Time, Buffers, Io, Memory], &[]),
    statistics("IOSTATS", &[Buffers, Io], &[Time]),
    statistics("MEMSTATS", &[Memory], &[Time]),
    statistics("ROWSTATS", &[Actual], &[]),
    single("LAST", Last),
    single("SLOWEST", Slowest),
    single("FAILED", Failed),
    single("CANCELLED", Cancelled),
    single("COMPACT", Compact),
    single("ROWS", Rows),
    single("BYTES", Bytes),
    single("COST", Cost),
    single("TIME", Time),
    single("BUFFERS", Buffers),
    single("WAL", Wal),
    single("WAITS", Waits),
    single("PREDICATE", Predicates),
    single("KEYS", Keys),
    single("ALIAS", Aliases),
    single("PARTITIONS", Partitions),
    single("NOTE", Notes),
];

/// Returns the words that a display format may contain, in the order in which messages list them.
pub fn format_words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|word| word.name)
}

/// What is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format(Parts);

/// Which executions are displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The totals of all.
    #[default]
    Totals,
    /// The last one.
    Last,
    /// One that was kept whole.
    Kept(Exemplar),
}

/// A display format that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown word \"{word}\" in display format, known words are {}", format_words().collect::<Vec<_>>().join(", "))]
pub struct FormatError {
    /// The word as it was written, with its sign.
    pub word: String,
}

/// What a format without a level shows beside statistics.
const SECTIONS: Parts = Parts::of(&[Rows, Predicates, Notes]);
const ALL_STATISTICS: Parts = Parts::of(&[Actual, Time, Buffers, Io, Memory]);

impl Default for Format {
    /// Returns `ALLSTATS LAST`.
    fn default() -> Self {
        Format(SECTIONS.and(ALL_STATISTICS).and(Parts::of(&[Last])))
    }
}

impl Format {
    /// Returns which executions are displayed.
    pub fn shown(&self) -> Shown {
        let kept = [
            (Slowest, Exemplar::Slowest),
            (Failed, Exemplar::Failed),
            (Cancelled, Exemplar::Cancelled),
        ];
        let kept = kept.into_iter().find(|(part, _)| self.has(*part));
        match kept {
            Some((_, which)) => Shown::Kept(which),
            None if self.has(Last) => Shown::Last,
            None => Shown::Totals,
        }
    }

    /// Returns whether a part is displayed.
    pub(super) fn has(&self, part: Part) -> bool {
        self.0.has_any(Parts::of(&[part]))
    }

    /// Returns the maximal width of the lines, as far as it can be kept.
    pub(super) fn width(&self) -> usize {
        if self.has(Compact) { 80 } else { 120 }
    }
}

impl FromStr for Format {
    type Err = FormatError;

    /// Parses words in upper or lower case, separated by spaces or commas. Each may begin with `+` or `-`;
    /// without a sign it is `+`. They apply from left to right. An empty format is the default one. Any other
    /// format shows totals unless it contains LAST or a word for another single execution.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let signed: Vec<(&Word, bool)> = text
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|written| !written.is_empty())
            .map(signed)
            .collect::<Result<_, _>>()?;
        if signed.is_empty() {
            return Ok(Format::default());
        }
        let added = |kind| {
            let words = signed.iter().filter(move |(word, on)| *on && word.kind == kind);
            words.map(|(word, _)| word.adds)
        };
        let level = added(Kind::Level).next_back();
        let mut parts = level.unwrap_or(SECTIONS);
        if level.is_none() && added(Kind::Statistics).next().is_none() {
            parts = parts.and(ALL_STATISTICS);
        }
        for (word, on) in signed {
            parts = match on {
                true if word.kind == Kind::Level => parts,
                true if word.adds.has_any(ONE_EXECUTION) => parts.without(ONE_EXECUTION).and(word.adds),
                true => parts.and(word.adds),
                false => parts.without(word.removes),
            };
        }
        Ok(Format(parts))
    }
}

/// Returns a written word, and whether it adds something.
fn signed(written: &str) -> Result<(&'static Word, bool), FormatError> {
    let bare = written.strip_prefix(['+', '-']).unwrap_or(written);
    let word = WORDS.iter().find(|word| word.name.eq_ignore_ascii_case(bare));
    let word = word.ok_or_else(|| FormatError {
        word: written.to_owned(),
    })?;
    Ok((word, !written.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Format {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn default_without(parts: &[Part]) -> Format {
        Format(Format::default().0.without(Parts::of(parts)))
    }

    #[test]
    fn default_is_allstats_last() {
        for text in [
            "",
            " , ",
            "ALLSTATS LAST",
            "allstats,last",
            "Last  +AllStats",
            "IOSTATS\tMEMSTATS LAST",
            "LAST",
        ] {
            assert_eq!(parsed(text), Format::default(), "{text}");
        }
    }

    #[test]
    fn totals_unless_one_execution_is_named() {
        let shown = |text| parsed(text).shown();
        assert_eq!(shown(""), Shown::Last);
        assert_eq!(shown("ALLSTATS"), Shown::Totals);
        assert_eq!(shown("ALLSTATS LAST -LAST"), Shown::Totals);
        assert_eq!(shown("+last"), Shown::Last);
        assert_eq!(shown("Slowest"), Shown::Kept(Exemplar::Slowest));
        assert_eq!(shown("ALLSTATS LAST FAILED"), Shown::Kept(Exemplar::Failed));
        assert_eq!(shown("CANCELLED -CANCELLED"), Shown::Totals);
        assert_eq!(parsed("SLOWEST LAST"), parsed("LAST"));
        assert_eq!(parsed("SLOWEST").0.without(ONE_EXECUTION), parsed("ALLSTATS").0);
    }

    #[test]
    fn naming_statistics_leaves_the_others_out() {
        let io = parsed("IOSTATS LAST");
        assert_eq!(io, default_without(&[Memory]));
        assert_eq!(parsed("LAST -MEMSTATS"), io);
        assert_eq!(parsed("ALLSTATS -MEMSTATS LAST"), io);
        assert_eq!(parsed("MEMSTATS LAST"), default_without(&[Buffers, Io]));
        assert_eq!(parsed("MEMSTATS +BUFFERS LAST"), default_without(&[Io]));
        assert_eq!(
            parsed("ROWSTATS LAST"),
            default_without(&[Time, Buffers, Io, Memory])
        );
    }

    #[test]
    fn a_level_shows_statistics_only_if_they_are_named() {
        let parts = |parts: &[Part]| Format(Parts::of(parts));
        assert_eq!(parsed("BASIC"), parts(&[]));
        assert_eq!(parsed("basic +note"), parts(&[Notes]));
        assert_eq!(parsed("TYPICAL"), parts(&TYPICAL));
        assert_eq!(parsed("TYPICAL BASIC"), parsed("BASIC"));
        assert_eq!(
            parsed("ALL -ALIAS"),
            parts(&[Rows, Bytes, Cost, Predicates, Notes, Keys])
        );
        assert_eq!(parsed("BASIC ROWSTATS"), parts(&[Rows, Actual]));
        assert_eq!(
            parsed("LAST ALLSTATS TYPICAL"),
            Format(Format::default().0.and(Parts::of(&TYPICAL)))
        );
        assert_eq!(parsed("ADVANCED"), Format(parsed("ALL").0.and(Parts::of(&[Wal]))));
    }

    #[test]
    fn signs_add_and_remove() {
        let format = parsed("ALLSTATS LAST -PREDICATE,+COST bytes -rows +WAL -TIME");
        let expected = default_without(&[Predicates, Rows, Time]).0;
        assert_eq!(format, Format(expected.and(Parts::of(&[Cost, Bytes, Wal]))));
    }

    #[test]
    fn an_unknown_word_is_named_and_the_known_ones_listed() {
        for (text, word) in [
            ("ALLSTATS typicl", "typicl"),
            ("-", "-"),
            ("LAST + COST", "+"),
            ("--COST", "--COST"),
        ] {
            assert_eq!(
                text.parse::<Format>(),
                Err(FormatError {
                    word: word.to_owned()
                })
            );
        }
        assert_eq!(
            "-Foo".parse::<Format>().map_err(|error| error.to_string()),
            Err("unknown word \"-Foo\" in display format, known words are BASIC, TYPICAL, ALL, ADVANCED, ALLSTATS, \
                 IOSTATS, MEMSTATS, ROWSTATS, LAST, SLOWEST, FAILED, CANCELLED, COMPACT, ROWS, BYTES, COST, TIME, BUFFERS, WAL, WAITS, PREDICATE, KEYS, ALIAS, PARTITIONS, NOTE"
                .to_owned())
        );
    }
}
