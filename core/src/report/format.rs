//! Parses display formats as in DBMS_XPLAN: `ALLSTATS LAST -PREDICATE +COST`.

use std::str::FromStr;

/// The words that a display format may contain.
pub const FORMAT_WORDS: [&str; 11] = [
    "ALLSTATS",
    "IOSTATS",
    "MEMSTATS",
    "LAST",
    "ROWS",
    "BYTES",
    "COST",
    "TIME",
    "BUFFERS",
    "WAL",
    "PREDICATE",
];

/// The words that select statistics. A format without any of them shows all, so `LAST` or `-COST` alone work as expected.
const STATISTICS_WORDS: [&str; 3] = ["ALLSTATS", "IOSTATS", "MEMSTATS"];

/// What is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    last: bool,
    pub(super) rows: bool,
    pub(super) bytes: bool,
    pub(super) cost: bool,
    pub(super) time: bool,
    pub(super) buffers: bool,
    /// Reads, writes and temp blocks.
    pub(super) io: bool,
    pub(super) memory: bool,
    pub(super) wal: bool,
    pub(super) predicates: bool,
}

/// A display format that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown word \"{word}\" in display format, known words are {}", FORMAT_WORDS.join(", "))]
pub struct FormatError {
    /// The word as it was written, with its sign.
    pub word: String,
}

impl Default for Format {
    /// Returns `ALLSTATS LAST`.
    fn default() -> Self {
        Format {
            last: true,
            rows: true,
            bytes: false,
            cost: false,
            time: true,
            buffers: true,
            io: true,
            memory: true,
            wal: false,
            predicates: true,
        }
    }
}

impl Format {
    /// Returns whether the last execution is displayed, not the totals.
    pub fn last(&self) -> bool {
        self.last
    }

    fn set(&mut self, word: &str, on: bool) -> bool {
        match word {
            "ALLSTATS" => (self.buffers, self.io, self.memory) = (on, on, on),
            "IOSTATS" => (self.buffers, self.io) = (on, on),
            "MEMSTATS" => self.memory = on,
            "LAST" => self.last = on,
            "ROWS" => self.rows = on,
            "BYTES" => self.bytes = on,
            "COST" => self.cost = on,
            "TIME" => self.time = on,
            "BUFFERS" => self.buffers = on,
            "WAL" => self.wal = on,
            "PREDICATE" => self.predicates = on,
            _ => return false,
        }
        true
    }
}

impl FromStr for Format {
    type Err = FormatError;

    /// Parses words in upper or lower case, separated by spaces or commas. Each may begin with `+` or `-`; without a sign
    /// it is `+`. They apply from left to right. An empty format is the default one. Any other format shows totals unless
    /// it contains LAST.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|word| !word.is_empty())
            .collect();
        let mut format = Format::default();
        if words.is_empty() {
            return Ok(format);
        }
        format.last = false;
        let signed: Vec<(String, bool)> = words.iter().map(|word| signed(word)).collect();
        if signed
            .iter()
            .any(|(word, on)| *on && STATISTICS_WORDS.contains(&word.as_str()))
        {
            format.set("ALLSTATS", false);
        }
        for (written, (word, on)) in words.into_iter().zip(signed) {
            if !format.set(&word, on) {
                return Err(FormatError {
                    word: written.to_owned(),
                });
            }
        }
        Ok(format)
    }
}

fn signed(word: &str) -> (String, bool) {
    let bare = word.strip_prefix(['+', '-']).unwrap_or(word);
    (bare.to_ascii_uppercase(), !word.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Format {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_word_is_known() {
        for word in FORMAT_WORDS {
            assert!(Format::default().set(word, true), "{word}");
        }
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
        assert!(parsed("").last());
    }

    #[test]
    fn totals_unless_last() {
        assert!(!parsed("ALLSTATS").last());
        assert!(!parsed("ALLSTATS LAST -LAST").last());
        assert!(parsed("+last").last());
    }

    #[test]
    fn naming_statistics_leaves_the_others_out() {
        let io = parsed("IOSTATS LAST");
        assert_eq!(
            io,
            Format {
                memory: false,
                ..Format::default()
            }
        );
        assert_eq!(parsed("LAST -MEMSTATS"), io);
        assert_eq!(parsed("ALLSTATS -MEMSTATS LAST"), io);
        assert_eq!(
            parsed("MEMSTATS LAST"),
            Format {
                buffers: false,
                io: false,
                ..Format::default()
            }
        );
        assert_eq!(
            parsed("MEMSTATS +BUFFERS LAST"),
            Format {
                io: false,
                ..Format::default()
            }
        );
    }

    #[test]
    fn signs_add_and_remove() {
        let format = parsed("ALLSTATS LAST -PREDICATE,+COST bytes -rows +WAL -TIME");
        let expected = Format {
            predicates: false,
            cost: true,
            bytes: true,
            rows: false,
            wal: true,
            time: false,
            ..Format::default()
        };
        assert_eq!(format, expected);
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
            Err("unknown word \"-Foo\" in display format, known words are ALLSTATS, IOSTATS, MEMSTATS, LAST, \
                 ROWS, BYTES, COST, TIME, BUFFERS, WAL, PREDICATE"
                .to_owned())
        );
    }
}
