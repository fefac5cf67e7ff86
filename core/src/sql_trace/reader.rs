//! Reads the lines of a trace file.
//!
//! A process may have been killed while it wrote the last line, and other programs may have changed the file.
//! So a line that cannot be read is skipped, and counted.

use super::MAX_CURSORS;
use super::event::{Call, Cursor, Event, Header, Phase, PlannedNode, Stat, Wait, WaitObject};
use rustc_hash::FxHashMap;

/// The keys of texts, which extend to the end of their line.
const TEXTS: [&str; 6] = ["sql", "value", "op", "nam", "session", "reason"];

/// The most bytes of memory that the nodes of a file may take.
const MAX_NODE_BYTES: usize = 64 << 20;

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

    /// Returns a number that is missing if it is 0.
    fn count(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(value) => value.parse().ok(),
            None => Some(0),
        }
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
fn read_line(line: &str) -> Option<Event> {
    let (word, rest) = line.split_once(" #")?;
    let (number, fields) = rest.split_once(':')?;
    let cursor = number.parse().ok()?;
    let fields = Fields(fields);
    Some(match word {
        "TRACE" => Event::Header(Header {
            version: fields.number("version")?,
            pid: fields.number("pid")?,
            uid: fields.number("uid")?,
            datid: fields.number("datid")?,
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
        // Version 1 of the format calls them BIND.
        "VALUE" | "BIND" if fields.value("n").is_some() => Event::Value {
            cursor,
            number: fields.number("n")?,
            of: fields.number("type")?,
            value: fields.text("value"),
            size: fields.number("size"),
        },
        "NODE" => Event::Node {
            cursor,
            id: fields.number("id")?,
            node: node(&fields)?,
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
            call: call(cursor, &fields)?,
        },
        "ERROR" => Event::Error {
            cursor,
            code: fields.value("err")?.to_owned(),
            tim: fields.number("tim")?,
        },
        "PARSE ERROR" => Event::ParseError {
            uid: fields.number("uid")?,
            code: fields.value("err")?.to_owned(),
            call: call(cursor, &fields)?,
            sql: fields.text("sql")?,
        },
        "LOST" => Event::Lost {
            lines: fields.number("lines")?,
            reason: fields.text("reason")?,
        },
        "END" => Event::End {
            tim: fields.number("tim")?,
        },
        word => {
            let phase = Phase::ALL.into_iter().find(|phase| phase.word() == word)?;
            Event::Call(phase, call(cursor, &fields)?)
        }
    })
}

fn call(cursor: u64, fields: &Fields) -> Option<Call> {
    Some(Call {
        cursor,
        dep: fields.count("dep")?,
        cpu_us: fields.count("c")?,
        elapsed_us: fields.number("e"),
        reads: fields.count("p")?,
        gets: fields.count("cr")?,
        dirtied: fields.count("cu")?,
        rows: fields.count("r")?,
        is_utility: fields.flag("util"),
        has_failed: fields.flag("fail"),
        follows_others: fields.flag("alone"),
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

fn node(fields: &Fields) -> Option<PlannedNode> {
    Some(PlannedNode {
        plan: fields.signed("plh")?,
        parent: fields.number("pid"),
        cost_cents: fields.number("cost")?,
        card: fields.number("card")?,
        operation: fields.text("op")?,
    })
}

/// Reads what a node did. The node itself is in an earlier line, or, in version 1 of the format, in the same
/// one.
fn stat(cursor: u64, fields: &Fields) -> Option<Stat> {
    let gets = fields.number("cr");
    let measured = |key| match gets {
        Some(_) => fields.count(key).map(Some),
        None => Some(None),
    };
    Some(Stat {
        cursor,
        dep: fields.count("dep")?,
        id: fields.number("id")?,
        node: node(fields).unwrap_or_default(),
        rows: fields.count("rows")?,
        gets,
        reads: measured("pr")?,
        writes: measured("pw")?,
        time_us: fields.number("time"),
        starts: fields.number("starts"),
    })
}

/// Reads the lines of a file one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    /// The nodes of plans, by their cursor and their number.
    nodes: FxHashMap<(u64, u64), PlannedNode>,
    /// The memory of these, in bytes.
    bytes: usize,
    /// The cursor at which old ones were last forgotten.
    swept_at: u64,
    /// How many lines could not be read.
    pub unreadable: u64,
    /// Whether the last line had no end, because its process was killed or writes it now.
    pub is_cut: bool,
}

impl Reader {
    /// Reads a line with the character that ends it, if it has one. What a node did is returned with the
    /// node, so a line that only describes a node is not.
    pub fn read(&mut self, line: &[u8]) -> Option<Event> {
        let Some(line) = line.strip_suffix(b"\n") else {
            self.is_cut |= !line.is_empty();
            return None;
        };
        let event = match read_line(&String::from_utf8_lossy(line)) {
            Some(Event::Node { cursor, id, node }) => {
                self.keep((cursor, id), node);
                return None;
            }
            Some(Event::Stat(stat)) if stat.node.operation.is_empty() => {
                self.nodes.get(&(stat.cursor, stat.id)).map(|node| {
                    Event::Stat(Stat {
                        node: node.clone(),
                        ..stat
                    })
                })
            }
            other => other,
        };
        self.unreadable += u64::from(event.is_none());
        event
    }

    /// Keeps a node, if there is memory for it. Else what it does cannot be read.
    fn keep(&mut self, key: (u64, u64), node: PlannedNode) {
        fn size(node: &PlannedNode) -> usize {
            2 * size_of::<((u64, u64), PlannedNode)>() + node.operation.capacity()
        }
        let bytes = size(&node);
        if let Some(before) = self.nodes.remove(&key) {
            self.bytes -= size(&before);
        }
        // This looks at all nodes, so it happens at most once for many cursors.
        let oldest = key.0.saturating_sub(MAX_CURSORS as u64);
        if self.bytes + bytes > MAX_NODE_BYTES && oldest > self.swept_at {
            self.swept_at = key.0;
            self.nodes.retain(|(cursor, _), _| *cursor > oldest);
            self.bytes = self.nodes.values().map(size).sum();
        }
        if self.bytes + bytes <= MAX_NODE_BYTES && self.nodes.try_reserve(1).is_ok() {
            self.nodes.insert(key, node);
            self.bytes += bytes;
        }
    }

    /// Returns the memory that it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
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
        let without = read_line("PARSE #2:c=1,dep=1,fail=1,tim=70");
        let Some(Event::Call(Phase::Parse, call)) = without else {
            panic!("{without:?}");
        };
        assert_eq!((call.elapsed_us, call.has_failed), (None, true));
        assert_eq!((call.reads, call.rows, call.dep), (0, 0, 1));
    }

    #[test]
    fn what_a_node_did_has_the_node_that_was_described_last() {
        let mut reader = Reader::default();
        let stat = b"STAT #2:id=1,rows=5,cr=7,time=0,starts=1\n";
        assert_eq!((reader.read(stat), reader.unreadable), (None, 1));
        for (rows, line) in [
            (
                3,
                "NODE #2:plh=-4,id=1,pid=0,cost=250,card=3,op=Seq Scan on a, b=c\n",
            ),
            (
                8,
                "NODE #2:plh=-4,id=1,pid=0,cost=250,card=8,op=Seq Scan on a, b=c\n",
            ),
        ] {
            assert_eq!(reader.read(line.as_bytes()), None);
            let expected = Stat {
                cursor: 2,
                id: 1,
                node: PlannedNode {
                    plan: -4,
                    parent: Some(0),
                    cost_cents: 250,
                    card: rows,
                    operation: "Seq Scan on a, b=c".to_owned(),
                },
                rows: 5,
                gets: Some(7),
                reads: Some(0),
                writes: Some(0),
                time_us: Some(0),
                starts: Some(1),
                ..Stat::default()
            };
            assert_eq!(reader.read(stat), Some(Event::Stat(expected)));
        }
        assert_eq!(reader.unreadable, 1);
        assert!(reader.bytes() > 0);
    }

    /// A long file has more nodes than may be kept. Those of statements that have got other numbers are
    /// forgotten.
    #[test]
    fn nodes_of_old_cursors_are_forgotten() {
        let mut reader = Reader::default();
        let operation = "x".repeat(20_000);
        for cursor in 1..=12_000_u64 {
            let line = format!("NODE #{cursor}:plh=1,id=0,cost=1,card=1,op={operation}\n");
            reader.read(line.as_bytes());
            assert!(reader.bytes() <= MAX_NODE_BYTES);
        }
        let stats = [1, 5_100, 12_000].map(|cursor| format!("STAT #{cursor}:id=0\n"));
        let found = stats.map(|line| reader.read(line.as_bytes()).is_some());
        assert!(!found[0], "{found:?}");
        assert!(reader.nodes.len() > 1_000);
    }

    #[test]
    fn files_of_version_1_are_read() {
        let line = b"STAT #2:dep=1,plh=-4,id=1,pid=0,rows=0,cr=7,pr=0,pw=0,time=9,starts=1,cost=250,card=3,op=Sort\n";
        let Some(Event::Stat(stat)) = Reader::default().read(line) else {
            panic!("it is not read");
        };
        assert_eq!(
            (
                stat.node.plan,
                stat.node.operation.as_str(),
                stat.gets,
                stat.time_us
            ),
            (-4, "Sort", Some(7), Some(9))
        );
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut reader = Reader::default();
        reader.read(b"NODE #2:plh=1,id=0,cost=250,card=3,op=Result\n");
        let Some(Event::Stat(stat)) = reader.read(b"STAT #2:id=0\n") else {
            panic!("it is not read");
        };
        assert_eq!(
            (stat.gets, stat.reads, stat.writes, stat.time_us),
            (None, None, None, None)
        );
        assert_eq!(stat.rows, 0);
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
            "EXEC #1:c=x,e=1,tim=5\n",
            "\u{fffd}\n",
        ] {
            assert_eq!(reader.read(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!((reader.unreadable, reader.is_cut), (7, false));
        assert_eq!(reader.read(b"END #0:tim=5\n"), Some(Event::End { tim: 5 }));
        assert_eq!(reader.read(b"END #0:tim="), None);
        assert!(reader.is_cut);
    }
}
