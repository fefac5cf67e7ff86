//! The texts of statements: as many as have room, and for as long as they are what the server has stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Server, Text};
use crate::own::OwnShapes;

/// At most this many texts are kept, and this many bytes of them. All are forgotten then, and those that are
/// shown are asked for again.
const MAX_TEXTS: usize = 5_000;
pub const MAX_BYTES: usize = 12_000_000;
/// At most this many are asked for at once.
const AT_ONCE: usize = 300;
/// After so many seconds a text that did not come is asked for again: after the first time, and at most. Each
/// time, it takes four times as long.
const FIRST_SECONDS: f64 = 2.0;
const MOST_SECONDS: f64 = 300.0;

/// A text that was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    times: u32,
    /// When it was asked for, and when it may be asked for again, by the server's clock, which may be set
    /// back.
    last: f64,
    next: f64,
}

/// A text that came.
#[derive(Clone, Debug)]
struct Known {
    text: String,
    /// Whether it is the message of a session that runs the statement, with its constants and perhaps other
    /// statements: until the server has stored the statement.
    is_passing: bool,
}

/// The texts, by the statements' queryids.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    known: BTreeMap<i64, Known>,
    /// How many bytes they are.
    bytes: usize,
    asked: BTreeMap<i64, Asked>,
    /// Those of this program.
    own: BTreeSet<i64>,
    shapes: OwnShapes,
}

impl Texts {
    /// Takes texts over.
    pub fn add(&mut self, rows: Vec<Text>, server: &Server) {
        if !self.shapes.fits(server) {
            self.shapes = OwnShapes::new(server);
        }
        let more: usize = { rows.iter() }
            .filter_map(|row| row.query.as_deref())
            .map(str::len)
            .sum();
        if self.known.len() + rows.len() > MAX_TEXTS || self.bytes + more > MAX_BYTES {
            (self.bytes, self.known) = (0, BTreeMap::new());
            self.own.clear();
            self.asked.clear();
        }
        for Text {
            queryid,
            query,
            is_passing,
        } in rows
        {
            let Some(text) = query else { continue };
            let is_own = if is_passing {
                self.shapes.has_message(&text)
            } else {
                self.shapes.has(&text)
            };
            if is_own {
                self.own.insert(queryid);
            } else {
                self.own.remove(&queryid);
            }
            self.bytes += text.len();
            let known = Known { text, is_passing };
            let before = self.known.insert(queryid, known);
            self.bytes -= before.map_or(0, |known| known.text.len());
        }
    }

    /// Returns those of these that are to be asked for now, the first ones: that are not known, or only for
    /// the time being, and were not asked for just before.
    pub fn wanted(&mut self, all: impl Iterator<Item = i64>, now: f64) -> Vec<i64> {
        let mut ids: Vec<i64> = Vec::new();
        let mut seen = BTreeSet::new();
        for id in all {
            if ids.len() == AT_ONCE {
                break;
            }
            let is_wanted = self.known.get(&id).is_none_or(|known| known.is_passing);
            let is_due = || {
                self.asked
                    .get(&id)
                    .is_none_or(|asked| asked.next <= now || now < asked.last)
            };
            if is_wanted && is_due() && seen.insert(id) {
                ids.push(id);
            }
        }
        if self.asked.len() + ids.len() > MAX_TEXTS {
            self.asked.clear();
        }
        for id in &ids {
            let asked = self.asked.entry(*id).or_default();
            let wait = FIRST_SECONDS * f64::from(1_u32 << (2 * asked.times.min(8)));
            asked.times += 1;
            (asked.last, asked.next) = (now, now + wait.min(MOST_SECONDS));
        }
        ids
    }

    /// Returns the same texts, as if none had been asked for: for a server that has started anew.
    pub fn of_next_run(self) -> Self {
        Self {
            asked: BTreeMap::new(),
            ..self
        }
    }

    /// Returns whether a statement is one of this program's.
    pub fn is_own(&self, queryid: i64) -> bool {
        self.own.contains(&queryid)
    }

    /// Returns the text of a statement, if it is known.
    pub fn get(&self, queryid: i64) -> Option<&str> {
        self.known.get(&queryid).map(|known| known.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{Want, info, rows_of};
    use crate::raw::Form;

    fn server() -> Server {
        Server {
            schema: Some("public".to_owned()),
            loaded: true,
            ..Server::default()
        }
    }

    fn text(queryid: i64, query: &str, is_passing: bool) -> Text {
        Text {
            queryid,
            query: Some(query.to_owned()),
            is_passing,
        }
    }

    #[test]
    fn texts_take_little_memory_however_many_come() {
        let mut texts = Texts::default();
        // The longest that come: each letter may have four bytes.
        let long = "𝄞".repeat(2_000);
        for id in 0..20_000 {
            texts.add(vec![text(id, &long, false)], &server());
            let bytes: usize = texts.known.values().map(|known| known.text.len()).sum();
            assert_eq!(texts.bytes, bytes);
            assert!(bytes <= MAX_BYTES && texts.known.len() <= MAX_TEXTS);
        }
        assert_eq!(texts.get(19_999), Some(long.as_str()));
        // The same one again takes no more.
        let before = texts.bytes;
        texts.add(vec![text(19_999, &long, false)], &server());
        assert_eq!(texts.bytes, before);
        for id in 0..20_000 {
            texts.add(vec![text(id, "", false)], &server());
            assert!(texts.known.len() <= MAX_TEXTS);
        }
    }

    /// Otherwise nothing would be asked for until the clock is where it was.
    #[test]
    fn a_clock_that_is_set_back_keeps_no_text_away() {
        let mut texts = Texts::default();
        assert_eq!(texts.wanted([7].into_iter(), 5_000.0), [7]);
        assert_eq!(texts.wanted([7].into_iter(), 5_000.5), [0; 0]);
        assert_eq!(texts.wanted([7].into_iter(), 1_400.0), [7]);
        assert_eq!(texts.wanted([7].into_iter(), 1_401.0), [0; 0]);
    }

    /// What a session runs has constants, and may have more statements than this one.
    #[test]
    fn the_message_of_a_session_is_a_text_until_the_statement_is_stored() {
        let mut texts = Texts::default();
        assert_eq!(texts.wanted([7].into_iter(), 0.0), [7]);
        texts.add(vec![text(7, "SET x = 1; SELECT 4711", true)], &server());
        assert_eq!(texts.get(7), Some("SET x = 1; SELECT 4711"));
        assert_eq!(texts.wanted([7].into_iter(), 1.0), [0; 0]);
        assert_eq!(texts.wanted([7].into_iter(), 2.0), [7]);
        texts.add(vec![text(7, "SELECT $1", false)], &server());
        assert_eq!(texts.get(7), Some("SELECT $1"));
        assert_eq!(texts.wanted([7].into_iter(), 1_000.0), [0; 0]);
    }

    /// Also while it runs for the first time, and has its settings before it.
    #[test]
    fn a_question_of_the_program_is_its_own() {
        let (query, _) = Want::Findings.query(&server());
        let message = crate::server::message(500, std::slice::from_ref(&query), Form::Text);
        let mut texts = Texts::default();
        let other = message.replace("rowsource_regressions", "slow");
        let two = |want: Want| {
            let queries = [want.query(&server()).0, info("public")];
            crate::server::message(500, &queries, Form::Text)
        };
        for (query, is_passing, is_own) in [
            (message.as_str(), true, true),
            (rows_of(&query, Form::Text).as_str(), false, true),
            ("SELECT 1", false, false),
            (other.as_str(), true, false),
            (two(Want::Plans(Some(1))).as_str(), true, true),
            (
                two(Want::Findings).replace("regressions", "slow").as_str(),
                true,
                false,
            ),
            (
                two(Want::Plans(None)).replace("rowsource_info", "slow").as_str(),
                true,
                false,
            ),
            ("SET LOCAL statement_timeout = 1; SELECT 1", true, false),
        ] {
            texts.add(vec![text(7, query, is_passing)], &server());
            assert_eq!(texts.is_own(7), is_own, "{query}");
        }
    }
}
