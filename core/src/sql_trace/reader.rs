//! Reads the lines of a trace file.
//!
//! A process may have been killed while it wrote the last line, and other programs may have changed the file. So a line that
//! cannot be read is skipped, and counted.

use super::event::{Call, Cursor, Event, Header, Phase, Stat, Wait, WaitObject};

/// The keys of texts, which extend to the end of their line.
const TEXTS: [&str; 6] = ["sql", "value", "op", "nam", "session", "reason"];

/// The fields of a line.
struct Fields<'a>(&'a str);

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, rest) = self.0.split_once('=')?;
        let (value, rest) = if TEXTS.contains(&key) {
            (rest, "")
        } else {
            rest.split_once(',').unwrap_or((rest, ""))
        };
        self.0 = rest;
        Some((key, value))
    }
}

impl Fields<'_> {
    /// Returns the field with this key.
    fn value(&self, key: &str) -> Option<&str> {
        Fields(self.0).find(|field| field.0 == key).map(|field| field.1)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }

    fn signed(&self, key: &str) -> Option<i64> {
        self.value(key)?.parse().ok()
    }

    fn flag(&self, key: &str) -> bool {
        self.number(key).is_some_and(|number| number != 0)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.value(key).map(plain)
    }
}

/// Returns a text without its backslashes.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

/// Reads a line, without the character that ends it. Returns `None` if it cannot be read.
pub fn read_line(line: &str) -> Option<Event> {
    let (word, rest) = line.split_once(" #")?;
    let (number, fields) = rest.split_once(':')?;
    let cursor = number.parse().ok()?;
    let fields = Fields(fields);
    if let Some(phase) = Phase::ALL.into_iter().find(|phase| phase.word() == word) {
        return Some(Event::Call(phase, call(cursor, &fields)?));
    }
    Some(match word {
        "TRACE" => Event::Header(Header {
            version: fields.number("version")?,
            pid: fields.number("pid")?,
            uid: fields.number("uid")?,
            dbid: fields.number("dbid")?,
            part: fields.number("part")?,
            unix_us: fields.number("unix")?,
            tim: fields.number("tim")?,
            session: fields.text("session")?,
        }),
        "PARSING IN CURSOR" => Event::Cursor(Cursor {
            number: cursor,
            dep: fields.number("dep")?,
            uid: fields.number("uid")?,
            queryid: fields.signed("queryid")?,
            tim: fields.number("tim")?,
            sql: fields.text("sql")?,
        }),
        "BIND" => Event::Bind {
            cursor,
            number: fields.number("n")?,
            of: fields.number("type")?,
            value: fields.text("value"),
            size: fields.number("size"),
        },
        "STAT" => Event::Stat(stat(cursor, &fields)?),
        "WAIT" => Event::Wait(Wait {
            cursor,
            dep: fields.number("dep")?,
            elapsed_us: fields.number("ela")?,
            node: fields.number("node"),
            is_rest: fields.flag("rest"),
            tim: fields.number("tim")?,
            name: fields.text("nam")?,
            object: object(&fields),
        }),
        "XCTEND" => Event::Transaction {
            rollback: fields.flag("rlbk"),
            read_only: fields.flag("rd_only"),
            tim: fields.number("tim")?,
        },
        "ERROR" => Event::Error {
            cursor,
            code: fields.value("err")?.to_owned(),
            tim: fields.number("tim")?,
        },
        "LOST" => Event::Lost {
            lines: fields.number("lines")?,
            reason: fields.text("reason")?,
        },
        "END" => Event::End {
            tim: fields.number("tim")?,
        },
        _ => return None,
    })
}

fn call(cursor: u64, fields: &Fields) -> Option<Call> {
    Some(Call {
        cursor,
        dep: fields.number("dep")?,
        cpu_us: fields.number("c")?,
        elapsed_us: fields.number("e"),
        reads: fields.number("p")?,
        gets: fields.number("cr")?,
        dirtied: fields.number("cu")?,
        rows: fields.number("r")?,
        is_utility: fields.flag("util"),
        has_failed: fields.flag("fail"),
        tim: fields.number("tim")?,
    })
}

fn object(fields: &Fields) -> WaitObject {
    let number = |key| fields.number(key);
    WaitObject {
        node_relation: number("obj"),
        relation: number("rel"),
        database: number("db"),
        tablespace: number("tbs"),
        file: number("file"),
        fork: number("fork"),
        block: number("block"),
        blocks: number("blocks"),
        tuple: number("tuple"),
        xid: number("xid"),
        mode: number("mode"),
    }
}

fn stat(cursor: u64, fields: &Fields) -> Option<Stat> {
    Some(Stat {
        cursor,
        dep: fields.number("dep")?,
        plan: fields.signed("plh")?,
        id: fields.number("id")?,
        parent: fields.number("pid"),
        rows: fields.number("rows")?,
        gets: fields.number("cr"),
        reads: fields.number("pr"),
        writes: fields.number("pw"),
        time_us: fields.number("time"),
        starts: fields.number("starts"),
        cost_cents: fields.number("cost")?,
        card: fields.number("card")?,
        operation: fields.text("op")?,
    })
}

/// Reads lines one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    /// How many lines could not be read.
    pub unreadable: u64,
    /// Whether the last line had no end, because its process was killed or writes it now.
    pub is_cut: bool,
}

impl Reader {
    /// Reads a line with the character that ends it, if it has one.
    pub fn read(&mut self, line: &[u8]) -> Option<Event> {
        let Some(line) = line.strip_suffix(b"\n") else {
            self.is_cut |= !line.is_empty();
            return None;
        };
        let event = read_line(&String::from_utf8_lossy(line));
        self.unreadable += u64::from(event.is_none());
        event
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::Buffer;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = Buffer::with_room(1000).expect("memory");
        let sql = "select 'a=b,c', E'\\\\n'\n\tfrom t -- ä";
        let cursor = buffer
            .line(b"PARSING IN CURSOR", 3)
            .number(b"dep", 1)
            .number(b"uid", 10);
        cursor
            .signed(b"queryid", -5)
            .number(b"tim", 99)
            .text(b"sql", sql.as_bytes())
            .end();
        let mut reader = Reader::default();
        let event = reader.read(buffer.lines());
        let expected = Cursor {
            number: 3,
            dep: 1,
            uid: 10,
            queryid: -5,
            tim: 99,
            sql: sql.to_owned(),
        };
        assert_eq!(event, Some(Event::Cursor(expected)));
    }

    #[test]
    fn calls_are_read() {
        let line = b"EXEC #2:c=1,e=20,p=3,cr=4,cu=5,r=6,dep=0,new=1,tim=70\n";
        let call = Call {
            cursor: 2,
            cpu_us: 1,
            elapsed_us: Some(20),
            reads: 3,
            gets: 4,
            dirtied: 5,
            rows: 6,
            tim: 70,
            ..Call::default()
        };
        assert_eq!(Reader::default().read(line), Some(Event::Call(Phase::Exec, call)));
        let without = read_line("PARSE #2:c=1,p=3,cr=4,cu=5,r=6,dep=0,fail=1,tim=70");
        let Some(Event::Call(Phase::Parse, call)) = without else {
            panic!("{without:?}");
        };
        assert_eq!((call.elapsed_us, call.has_failed), (None, true));
    }

    #[test]
    fn damaged_lines_are_counted() {
        let mut reader = Reader::default();
        for line in [
            "",
            "\n",
            "EXEC\n",
            "EXEC #x:\n",
            "WAIT #1:ela=5\n",
            "OTHER #1:x=1\n",
            "\u{fffd}\n",
        ] {
            assert_eq!(reader.read(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!((reader.unreadable, reader.is_cut), (6, false));
        assert_eq!(reader.read(b"END #0:tim=5\n"), Some(Event::End { tim: 5 }));
        assert_eq!(reader.read(b"END #0:tim="), None);
        assert!(reader.is_cut);
    }
}
