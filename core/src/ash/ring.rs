//! The ring: one process writes it, any number of processes read it, and nobody waits for anybody.
//!
//! A record has the number of the record that it holds, which is 0 while the writer changes it. A reader
//! copies a record and then looks at the number again: if it has changed, the copy is dropped. The numbers
//! start at 1 and never repeat.
//!
//! Beside the samples, the ring has a record once a second of how many times the sessions were sampled. From
//! these follows how many sessions were active on average, also if the sampling frequency changed or sampling
//! was off for a while.

use super::names::{self, NAME_BYTES, PLACES, Place};
use super::sample::{Sample, WORDS};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// The size of a record: a cache line.
pub const RECORD_BYTES: usize = size_of::<Record>();
const _: () = assert!(RECORD_BYTES == 64);

/// A place for a record. Zero bytes are an empty one.
#[repr(C)]
pub struct Record {
    number: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What lies before the records. Zero bytes are that of an empty ring.
#[repr(C)]
pub struct Header {
    /// How many records have been written.
    written: AtomicU64,
    /// How many records the oldest ones are that nobody may read any more.
    forgotten: AtomicU64,
    /// What the next record of ticks will have: the time of its first tick, and the number of ticks.
    ticks_since: AtomicU64,
    ticks: AtomicU64,
    names: [Place; PLACES],
}

/// How often the sessions were sampled in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// The time of the last of them.
    pub at: i64,
    /// The microseconds from the one before the first of them.
    pub span: i64,
    /// Their number.
    pub count: u64,
}

impl Ticks {
    /// Returns how many of them were in an interval.
    pub fn between(&self, from: i64, to: i64) -> f64 {
        let (first, last) = (self.at.saturating_sub(self.span), self.at);
        if self.span <= 0 {
            return if (from..=to).contains(&last) {
                self.count as f64
            } else {
                0.0
            };
        }
        let inside = last.min(to).saturating_sub(first.max(from)).max(0);
        self.count as f64 * inside as f64 / self.span as f64
    }
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A sample, and the number of its record.
    Sample(Sample, u64),
    /// How often the sessions were sampled.
    Ticks(Ticks),
}

/// How often a record of ticks is written, in microseconds.
const TICKS_EVERY_US: i64 = 1_000_000;

/// The ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    header: &'a Header,
    records: &'a [Record],
}

impl<'a> Ring<'a> {
    /// Returns the ring that has this memory. There must be records.
    pub fn new(header: &'a Header, records: &'a [Record]) -> Option<Ring<'a>> {
        (!records.is_empty()).then_some(Ring { header, records })
    }

    /// Returns how many records have room.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Writes a record. Only the one writer may call this.
    fn write(&self, words: [u64; WORDS]) {
        let number = self.header.written.load(Relaxed) + 1;
        let record = &self.records[((number - 1) % self.records.len() as u64) as usize];
        record.number.store(0, Relaxed);
        fence(Release);
        for (word, new) in record.words.iter().zip(words) {
            word.store(new, Relaxed);
        }
        record.number.store(number, Release);
        self.header.written.store(number, Release);
    }

    /// Writes a sample. Only the one writer may call this.
    pub fn add(&self, sample: &Sample) {
        self.write(sample.words());
    }

    /// Returns the number of the application's name of a role's session, for the next sample. `hint` is the
    /// number that it probably has. Only the one writer may call this.
    pub fn number_of(&self, hint: u16, userid: u32, name: &[u8; NAME_BYTES]) -> u16 {
        let record = self.header.written.load(Relaxed) + 1;
        names::number(&self.header.names, hint, userid, name, record)
    }

    /// Returns the bytes of the application's name of a sample in a record.
    pub fn name(&self, sample: &Sample, record: u64) -> Option<Vec<u8>> {
        names::name(&self.header.names, sample.application, record)
    }

    /// Notes that the sessions were sampled at a time. `previous` is the time before, unless sampling has
    /// just begun. Only the one writer may call this.
    pub fn tick(&self, at: i64, previous: Option<i64>) {
        let header = self.header;
        if header.ticks.load(Relaxed) == 0 || previous.is_none() {
            self.end_ticks(previous.unwrap_or(at));
            header.ticks_since.store(previous.unwrap_or(at) as u64, Relaxed);
        }
        header.ticks.store(header.ticks.load(Relaxed) + 1, Relaxed);
        if at - header.ticks_since.load(Relaxed) as i64 >= TICKS_EVERY_US {
            self.end_ticks(at);
        }
    }

    /// Writes a record of the ticks up to a time, if there are any. Only the one writer may call this.
    pub fn end_ticks(&self, at: i64) {
        let header = self.header;
        let (since, count) = (
            header.ticks_since.load(Relaxed) as i64,
            header.ticks.load(Relaxed),
        );
        if count > 0 {
            header.ticks.store(0, Relaxed);
            // A process has a number other than 0.
            self.write([
                at as u64,
                0,
                at.saturating_sub(since).max(0) as u64,
                count,
                0,
                0,
                0,
            ]);
        }
    }

    /// Returns the time of the last record.
    pub fn last_at(&self) -> Option<i64> {
        let number = self.header.written.load(Acquire);
        let words = self.read(number.checked_sub(1)? + 1)?;
        Some(words[0] as i64)
    }

    /// Forgets all records. Only the one writer may call this.
    pub fn clear(&self) {
        let written = self.header.written.load(Relaxed);
        self.header.forgotten.store(written, Release);
        self.header.ticks.store(0, Relaxed);
    }

    /// Returns the words of a record, unless it is overwritten.
    fn read(&self, number: u64) -> Option<[u64; WORDS]> {
        let record = &self.records[((number - 1) % self.records.len() as u64) as usize];
        let before = record.number.load(Acquire);
        let words = std::array::from_fn(|i| record.words[i].load(Relaxed));
        fence(Acquire);
        (before == number && record.number.load(Relaxed) == number).then_some(words)
    }

    /// Visits what the ring holds, the oldest first. Returns how many records were dropped, because the
    /// writer overwrote them.
    pub fn each(&self, mut visit: impl FnMut(Entry)) -> u64 {
        let header = self.header;
        let (since, ticks) = (
            header.ticks_since.load(Relaxed) as i64,
            header.ticks.load(Relaxed),
        );
        let written = header.written.load(Acquire);
        let oldest = written.saturating_sub(self.records.len() as u64);
        let oldest = oldest.max(header.forgotten.load(Acquire));
        let (mut dropped, mut last) = (0, None);
        for number in oldest + 1..=written {
            let Some(words) = self.read(number) else {
                dropped += 1;
                continue;
            };
            last = Some(words[0] as i64);
            if words[1] as u32 == 0 {
                visit(Entry::Ticks(Ticks {
                    at: words[0] as i64,
                    span: words[2] as i64,
                    count: words[3],
                }));
            } else {
                visit(Entry::Sample(Sample::of(words), number));
            }
        }
        // The ticks of the current second.
        if ticks > 0 {
            let at = last.unwrap_or(since).max(since);
            visit(Entry::Ticks(Ticks {
                at,
                span: at - since,
                count: ticks,
            }));
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::sample;
    use super::*;

    struct Memory {
        header: Box<Header>,
        records: Vec<Record>,
    }

    impl Memory {
        fn new(count: usize) -> Memory {
            let zero = || AtomicU64::new(0);
            let place = || Place::zero();
            let record = || Record {
                number: zero(),
                words: [const { AtomicU64::new(0) }; WORDS],
            };
            Memory {
                header: Box::new(Header {
                    written: zero(),
                    forgotten: zero(),
                    ticks_since: zero(),
                    ticks: zero(),
                    names: std::array::from_fn(|_| place()),
                }),
                records: (0..count).map(|_| record()).collect(),
            }
        }

        fn ring(&self) -> Ring<'_> {
            Ring::new(&self.header, &self.records).expect("records")
        }
    }

    fn samples(ring: Ring<'_>) -> Vec<Sample> {
        let mut all = Vec::new();
        ring.each(|entry| {
            if let Entry::Sample(sample, _) = entry {
                all.push(sample);
            }
        });
        all
    }

    fn name(name: &str) -> [u8; NAME_BYTES] {
        let mut bytes = [0; NAME_BYTES];
        let length = name.len().min(NAME_BYTES);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        bytes
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let memory = Memory::new(10);
        let ring = memory.ring();
        assert_eq!((samples(ring), ring.last_at()), (vec![], None));
        for i in 0..25 {
            ring.add(&sample(i));
            let kept: Vec<Sample> = (i.saturating_sub(9)..=i).map(sample).collect();
            assert_eq!((samples(ring), ring.last_at()), (kept, Some(i as i64)));
        }
        ring.clear();
        assert_eq!(samples(ring), []);
        ring.add(&sample(99));
        assert_eq!(samples(ring), [sample(99)]);
        assert!(Ring::new(&memory.header, &[]).is_none());
    }

    #[test]
    fn torn_records_are_dropped() {
        let memory = Memory::new(64);
        // Each word of a record tells its number.
        let words = |i: u64| std::array::from_fn(|word| i * 16 + word as u64 + 1);
        let last = if cfg!(miri) { 500 } else { 300_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..last {
                    memory.ring().write(words(i));
                }
            });
            let mut seen = 0;
            while seen < last {
                let ring = memory.ring();
                let written = ring.header.written.load(Acquire);
                for number in written.saturating_sub(64) + 1..=written {
                    if let Some(got) = ring.read(number) {
                        assert_eq!(got, words(number - 1));
                    }
                }
                seen = written;
            }
        });
    }

    #[test]
    fn ticks_tell_how_often_sessions_were_sampled() {
        let memory = Memory::new(1000);
        let ring = memory.ring();
        let count = |from, to| {
            let mut sum = 0.0;
            ring.each(|entry| {
                if let Entry::Ticks(ticks) = entry {
                    sum += ticks.between(from, to);
                }
            });
            sum
        };
        let (mut at, mut previous) = (5_000_000, None);
        for _ in 0..1000 {
            ring.tick(at, previous);
            ring.add(&Sample { at, ..sample(1) });
            previous = Some(at);
            at += 10_000;
        }
        assert_eq!(count(0, i64::MAX), 1000.0);
        // A quarter of an interval has a quarter of the ticks.
        assert!((count(7_000_000, 9_500_000) - 250.0).abs() < 2.0);
        // Nothing was sampled for a minute.
        ring.end_ticks(at);
        at += 60_000_000;
        for i in 0..100 {
            ring.tick(at, (i > 0).then_some(at - 10_000));
            at += 10_000;
        }
        assert_eq!(count(0, i64::MAX), 1100.0);
        assert_eq!(count(16_000_000, 74_000_000), 0.0);
    }

    #[test]
    fn a_name_is_stored_once_and_belongs_to_its_records_only() {
        let memory = Memory::new(4000);
        let ring = memory.ring();
        let add = |hint, text: &str| {
            let number = ring.number_of(hint, 10, &name(text));
            ring.add(&Sample {
                application: number,
                ..sample(1)
            });
            number
        };
        assert_eq!(add(0, ""), 0);
        assert_eq!((add(0, "psql"), add(0, "pgbench")), (1, 2));
        assert_eq!((add(0, "psql"), add(2, "psql"), add(2000, "pgbench")), (1, 1, 2));
        // A name of any length is cut.
        let long = "x".repeat(NAME_BYTES);
        assert_eq!((add(0, &long), add(3, &long)), (3, 3));
        let shown = |ring: Ring<'_>| {
            let mut all = Vec::new();
            ring.each(|entry| {
                if let Entry::Sample(sample, record) = entry {
                    all.push(
                        ring.name(&sample, record)
                            .map(|name| String::from_utf8(name).expect("UTF-8")),
                    );
                }
            });
            all
        };
        let expected =
            ["", "psql", "pgbench", "psql", "psql", "pgbench"].map(|name| (!name.is_empty()).then_some(name));
        let all = shown(ring);
        assert!(all.iter().map(Option::as_deref).take(6).eq(expected), "{all:?}");
        assert_eq!(all[6].as_deref(), Some(&long[..NAME_BYTES - 1]));
        // More names than there are places: the old records lose theirs, and get no other.
        for i in 0..PLACES {
            add(0, &format!("application {i}"));
        }
        let all = shown(ring);
        assert!(all[..8].iter().all(Option::is_none), "{:?}", &all[..8]);
        assert_eq!(all[8].as_deref(), Some("application 0"));
    }

    /// A role that changes its application's name all the time replaces its own.
    #[test]
    fn a_role_pushes_out_its_own_names() {
        let memory = Memory::new(10_000);
        let ring = memory.ring();
        let add = |userid, text: &str| {
            let application = ring.number_of(0, userid, &name(text));
            let of_record = Sample {
                application,
                ..sample(1)
            };
            ring.add(&of_record);
            (of_record, ring.header.written.load(Relaxed))
        };
        let shown = |(sample, record): &(Sample, u64)| ring.name(sample, *record);
        let first: Vec<_> = (0..20).map(|i| add(10, &format!("first {i}"))).collect();
        let same = add(77, "first 0");
        assert_ne!(same.0.application, first[0].0.application);
        let others: Vec<_> = (0..3 * PLACES).map(|i| add(77, &format!("other {i}"))).collect();
        for (i, sample) in first.iter().enumerate() {
            assert_eq!(shown(sample), Some(format!("first {i}").into_bytes()));
        }
        assert_eq!((shown(&same), shown(&others[0])), (None, None));
        let last = others.last().expect("a name");
        assert!(shown(last).is_some());
    }
}
