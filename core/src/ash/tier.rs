//! A tier of the ring: records of moments, each followed by those of its samples. The oldest are overwritten.
//!
//! A record has the number of the record that it holds, which is 0 while the writer changes it. A reader
//! copies a record and then looks at the number again: if it has changed, the copy is dropped. The numbers
//! start at 1 and never repeat.

use super::sample::WORDS;
use serde::{Deserialize, Serialize};
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

/// The words of a record.
pub(super) type Words = [u64; WORDS];

/// What lies before the records of a tier. Zero bytes are that of an empty one.
#[repr(C)]
pub(super) struct TierHeader {
    /// How many records have been written.
    written: AtomicU64,
    /// Not 0: the first of them is not the first that there was before the server was restarted.
    is_cut: AtomicU64,
}

/// A moment at which the sessions were sampled, and the moments that it stands for: those of its slot. Of
/// these, it was chosen by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Its time, in microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// How many moments it stands for.
    pub moments: u64,
    /// The time of the first of them.
    pub first: i64,
    /// The time of the last of them.
    pub last: i64,
    /// The microseconds from the moment before the first of them to the last, without those in which sampling
    /// was off.
    pub span: i64,
    /// The number of the server's run: processes of different runs are different ones, also with one pid.
    pub run: u64,
}

impl Moment {
    /// Returns the words of the record. A process has a number other than 0.
    fn words(&self, samples: usize) -> Words {
        [
            self.at as u64,
            (samples as u64) << 32,
            self.moments,
            self.first as u64,
            self.last as u64,
            self.span as u64,
            self.run,
        ]
    }

    /// Returns the moment, and the number of its samples, of the words of its record.
    fn of(words: &Words) -> Option<(Moment, u64)> {
        let [at, samples, moments, first, last, span, run] = *words;
        (samples as u32 == 0).then_some((
            Moment {
                at: at as i64,
                moments,
                first: first as i64,
                last: last as i64,
                span: span as i64,
                run,
            },
            samples >> 32,
        ))
    }
}

/// A tier.
#[derive(Clone, Copy)]
pub(super) struct Tier<'a> {
    header: &'a TierHeader,
    records: &'a [Record],
}

impl<'a> Tier<'a> {
    pub(super) fn new(header: &'a TierHeader, records: &'a [Record]) -> Tier<'a> {
        Tier { header, records }
    }

    fn len(&self) -> u64 {
        self.records.len() as u64
    }

    fn record(&self, number: u64) -> &'a Record {
        &self.records[((number - 1) % self.len()) as usize]
    }

    /// Writes a moment and its samples. Those that the tier has no room for are left out. Only the one writer
    /// may call this.
    pub(super) fn write<'w>(&self, moment: &Moment, samples: impl Iterator<Item = &'w Words> + Clone) {
        let samples = samples.take(self.records.len().saturating_sub(1));
        let mut number = self.header.written.load(Relaxed);
        let first = moment.words(samples.clone().count());
        for words in std::iter::once(first).chain(samples.copied()) {
            number += 1;
            let record = self.record(number);
            record.number.store(0, Relaxed);
            fence(Release);
            for (word, new) in record.words.iter().zip(words) {
                word.store(new, Relaxed);
            }
            record.number.store(number, Release);
        }
        self.header.written.store(number, Release);
    }

    /// Visits its moments and their samples, the oldest first, but at most `most` records, and whether
    /// there were older ones. Nobody may write meanwhile.
    pub(super) fn save<E>(
        &self,
        most: u64,
        mut visit: impl FnMut(&Moment, &Vec<Words>, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let written = self.header.written.load(Acquire);
        let oldest = written.saturating_sub(self.len().min(most)) + 1;
        let is_cut = oldest > 1 || self.header.is_cut.load(Relaxed) != 0;
        let mut number = (oldest..=written).find(|number| self.moment(*number).is_some());
        let mut samples = Vec::new();
        while let Some(at) = number
            && let Some((moment, next)) = self.moment(at)
        {
            if self.samples(at, next, &mut samples) {
                visit(&moment, &samples, is_cut)?;
            }
            number = Some(next);
        }
        Ok(())
    }

    /// Writes a moment that was saved. Only the one writer may call this.
    pub(super) fn restore(&self, moment: &Moment, samples: &[Words], is_cut: bool) {
        self.header.is_cut.store(u64::from(is_cut), Relaxed);
        self.write(moment, samples.iter());
    }

    /// Returns the words of a record, if it is there.
    fn read(&self, number: u64) -> Option<Words> {
        let record = self.record(number);
        let before = record.number.load(Acquire);
        let words = std::array::from_fn(|i| record.words[i].load(Relaxed));
        fence(Acquire);
        (before == number && record.number.load(Relaxed) == number).then_some(words)
    }

    /// Returns the moment of a record, and the number of the next moment's record.
    pub(super) fn moment(&self, number: u64) -> Option<(Moment, u64)> {
        let (moment, samples) = Moment::of(&self.read(number)?)?;
        Some((moment, number + 1 + samples))
    }

    /// Copies the samples between the records of two moments. Returns whether all were there.
    pub(super) fn samples(&self, number: u64, next: u64, samples: &mut Vec<Words>) -> bool {
        samples.clear();
        let count = next.saturating_sub(number + 1);
        if count >= self.len() || samples.try_reserve(count as usize).is_err() {
            return false;
        }
        samples.extend((number + 1..next).map_while(|number| self.read(number)));
        samples.len() as u64 == count
    }

    /// Returns the record of the first moment whose slot does not begin before a time, and whether it is
    /// known to be the first that there was. The oldest records are left out: those that will be overwritten
    /// when `margin` more are written.
    pub(super) fn find(&self, at: i64, margin: u64) -> Option<(u64, Moment, bool)> {
        let written = self.header.written.load(Acquire);
        let oldest = written.saturating_sub(self.len().saturating_sub(margin)) + 1;
        let mut is_first = oldest == 1 && self.header.is_cut.load(Relaxed) == 0;
        let mut number = (oldest..=written).find(|number| self.moment(*number).is_some())?;
        while number <= written {
            let (moment, next) = self.moment(number)?;
            if moment.first >= at {
                return Some((number, moment, is_first));
            }
            is_first = true;
            number = next;
        }
        None
    }

    /// Returns the size of the part of a tier that a reader should not begin with, because the writer may
    /// overtake it.
    pub(super) fn margin(&self) -> u64 {
        self.len() / 8
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn zero_record() -> Record {
        Record {
            number: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    pub(crate) fn zero_header() -> TierHeader {
        TierHeader {
            written: AtomicU64::new(0),
            is_cut: AtomicU64::new(0),
        }
    }

    fn moment(at: i64) -> Moment {
        Moment {
            at,
            moments: 1,
            first: at,
            last: at,
            ..Moment::default()
        }
    }

    #[test]
    fn torn_records_are_dropped() {
        let header = zero_header();
        let records: Vec<Record> = (0..64).map(|_| zero_record()).collect();
        let tier = Tier::new(&header, &records);
        // Each word of a sample tells the moment.
        let words = |i: u64| std::array::from_fn(|word| i * 16 + word as u64 + 1);
        let last = if cfg!(miri) { 200 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..last {
                    tier.write(&moment(i as i64), vec![words(i); i as usize % 5].iter());
                }
            });
            let (mut seen, mut samples) = (0, Vec::new());
            while seen < last as i64 - 1 {
                let Some((mut number, ..)) = tier.find(seen, 8) else {
                    continue;
                };
                while let Some((moment, next)) = tier.moment(number) {
                    assert!(moment.at >= seen, "{moment:?} after {seen}");
                    if tier.samples(number, next, &mut samples) {
                        assert_eq!(samples, vec![words(moment.at as u64); moment.at as usize % 5]);
                    }
                    (seen, number) = (moment.at, next);
                }
            }
        });
    }
}
