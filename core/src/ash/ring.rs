//! The ring: one process writes it, any number of processes read it, and nobody waits for anybody.
//!
//! It consists of tiers. The first has each moment at which the sessions were sampled, the next ones have a
//! moment of each tenth of a second, each second and each ten seconds. Such a moment is chosen by chance from
//! those of its slot ([`super::Writer`]), and stands for them: it has their number, so sums over moments are
//! right whichever tiers they come from. Slots lie in each other: a moment of a tier is one of the tier
//! below, too.
//!
//! Samples never move. Each tier is written when a slot ends, and overwrites its own oldest records. A reader
//! begins with the oldest moment that any tier has. It goes over to a finer tier as soon as that has all
//! moments from there on, which is at the end of a slot: so each moment is counted once. If the writer
//! overtakes a reader, it goes on in a coarser tier, from the next slot on. It sees a moment with all its
//! samples, or not at all.

use super::names::{self, NAME_BYTES, PLACES, Place, SavedName};
use super::sample::Sample;
pub use super::tier::{Moment, RECORD_BYTES, Record};
use super::tier::{Tier, TierHeader, Words};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of tiers.
pub const TIERS: usize = 4;
/// The microseconds of a slot of each tier. The first has all moments.
pub const SLOT_US: [i64; TIERS] = [1, 100_000, 1_000_000, 10_000_000];

/// What lies before the records. Zero bytes are that of an empty ring.
#[repr(C)]
pub struct Header {
    tiers: [TierHeader; TIERS],
    /// The time of the newest moment; 0 if there is none.
    at: AtomicU64,
    /// Since when it has samples, and the number of the server's run; 0 before the first writer.
    begun_at: AtomicU64,
    run: AtomicU64,
    names: [Place; PLACES],
}

/// What is saved of a ring beside its moments.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedHeader {
    begun_at: u64,
    run: u64,
    names: Vec<SavedName>,
}

/// A moment that is saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SavedMoment {
    tier: usize,
    is_cut: bool,
    moment: Moment,
    samples: Vec<Words>,
}

/// What a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A moment, and the tier that it is from. Its samples follow.
    Moment(Moment, usize),
    /// A sample, and how many moments it stands for.
    Sample(Sample, u64),
}

/// The ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    header: &'a Header,
    tiers: [Tier<'a>; TIERS],
}

/// Returns how many records each tier has: the last a third, the others two ninths. So with 16 MB, a hundred
/// active sessions, and a hundred samples a second, the first has six seconds, the next ones a minute and ten
/// minutes, and the last two hours and 24 minutes.
fn division(records: usize) -> [usize; TIERS] {
    let fine = records / 9 * 2;
    [fine, fine, fine, records - 3 * fine]
}

impl<'a> Ring<'a> {
    /// Returns the ring that has this memory. Each tier must have room for a moment and a sample.
    pub fn new(header: &'a Header, records: &'a [Record]) -> Option<Ring<'a>> {
        let mut rest = records;
        let counts = division(records.len());
        let tiers = std::array::from_fn(|i| {
            let (tier, others) = rest.split_at(counts[i]);
            rest = others;
            Tier::new(&header.tiers[i], tier)
        });
        counts
            .iter()
            .all(|count| *count >= 2)
            .then_some(Ring { header, tiers })
    }

    /// Writes a moment of a tier. Only the one writer may call this.
    pub(super) fn write<'w>(
        &self,
        tier: usize,
        moment: &Moment,
        samples: impl Iterator<Item = &'w Words> + Clone,
    ) {
        self.tiers[tier].write(moment, samples);
        if tier == 0 {
            self.header.at.store(moment.at as u64, Release);
        }
    }

    /// Returns whether no writer has begun with it.
    pub fn is_new(&self) -> bool {
        self.header.run.load(Relaxed) == 0
    }

    /// Begins with a new ring, or with one that was restored, in a run of the server. Only the one writer may
    /// call this.
    pub fn begin(&self, now: i64) {
        let header = self.header;
        if self.is_new() {
            header.begun_at.store(now as u64, Relaxed);
        }
        header.run.store(header.run.load(Relaxed) + 1, Relaxed);
    }

    /// Returns since when it has samples: what was before is lost.
    pub fn begun_at(&self) -> i64 {
        self.header.begun_at.load(Relaxed) as i64
    }

    /// Returns the number of the server's run.
    pub fn run(&self) -> u64 {
        self.header.run.load(Relaxed)
    }

    /// Returns what is saved beside the moments. Nobody may write meanwhile.
    pub fn saved_header(&self) -> SavedHeader {
        SavedHeader {
            begun_at: self.header.begun_at.load(Relaxed),
            run: self.run(),
            names: names::saved(&self.header.names),
        }
    }

    /// Visits the moments that are saved, at most `most` records of each tier. Nobody may write meanwhile.
    ///
    /// # Errors
    /// Returns the first error of `visit`.
    pub fn save<E>(&self, most: u64, mut visit: impl FnMut(&SavedMoment) -> Result<(), E>) -> Result<(), E> {
        for tier in 0..TIERS {
            self.tiers[tier].save(most, |moment, samples, is_cut| {
                visit(&SavedMoment {
                    tier,
                    is_cut,
                    moment: *moment,
                    samples: samples.clone(),
                })
            })?;
        }
        Ok(())
    }

    /// Restores what was saved into a new ring, which may be smaller or larger. Only the one writer may call
    /// this.
    pub fn restore(&self, saved: &SavedHeader) {
        self.header.begun_at.store(saved.begun_at, Relaxed);
        self.header.run.store(saved.run, Relaxed);
        names::restore(&self.header.names, &saved.names);
    }

    /// Restores a moment.
    pub fn restore_moment(&self, saved: &SavedMoment) {
        if let Some(tier) = self.tiers.get(saved.tier) {
            tier.restore(&saved.moment, &saved.samples, saved.is_cut);
            if saved.tier == 0 {
                self.header.at.store(saved.moment.at as u64, Release);
            }
        }
    }

    /// Returns the number of the application's name of a role's session, for samples of a moment. `hint` is
    /// the number that it probably has. Only the one writer may call this.
    pub fn number_of(&self, hint: u16, userid: u32, name: &[u8; NAME_BYTES], at: i64) -> u16 {
        names::number(&self.header.names, hint, userid, name, at as u64)
    }

    /// Returns the bytes of the application's name of a sample.
    pub fn name(&self, sample: &Sample) -> Option<Vec<u8>> {
        names::name(&self.header.names, sample.application, sample.at as u64)
    }

    /// Returns the time of the newest moment.
    pub fn last_at(&self) -> Option<i64> {
        match self.header.at.load(Acquire) {
            0 => None,
            at => Some(at as i64),
        }
    }

    /// Returns the time from which on it has all moments, in one tier or another, until the writer has
    /// overwritten a good part of it.
    pub fn complete_from(&self) -> Option<i64> {
        let first = |tier: &Tier<'_>| Some(tier.find(i64::MIN, tier.margin())?.1.first);
        self.tiers.iter().filter_map(first).min()
    }

    /// Visits the moments of an interval and their samples, the oldest first, from a tier and the coarser
    /// ones.
    pub fn each(&self, finest: usize, from: i64, to: i64, mut visit: impl FnMut(Entry)) {
        /// How often a place that was found may be overwritten before it is read.
        const TRIES: usize = 100;
        let Some(newest) = self.last_at() else { return };
        let end = to.min(newest);
        // The slots of all tiers begin there, so the first moment is not one of a slot that began before.
        let longest = SLOT_US[TIERS - 1];
        let mut rest = from.div_euclid(longest).saturating_mul(longest);
        let (mut place, mut failed) = (None, 0);
        let mut samples: Vec<Words> = Vec::new();
        while rest <= end && failed < TRIES {
            let here = match place.take() {
                Some((tier, number)) => {
                    let finer = (finest..tier).find_map(|finer| self.covering(finer, rest, true));
                    Some(finer.unwrap_or((tier, number)))
                }
                None => self.place(finest, rest),
            };
            let Some((tier, number)) = here else { return };
            let Some((moment, next)) = self.tiers[tier].moment(number) else {
                failed += 1;
                continue;
            };
            if moment.first > end {
                return;
            }
            if (from..=to).contains(&moment.at) {
                if !self.tiers[tier].samples(number, next, &mut samples) {
                    (rest, failed) = (rest.max(moment.first.saturating_add(1)), failed + 1);
                    continue;
                }
                visit(Entry::Moment(moment, tier));
                for words in &samples {
                    visit(Entry::Sample(Sample::of(*words), moment.moments));
                }
            }
            (rest, failed) = (moment.last.saturating_add(1), 0);
            place = Some((tier, next));
        }
    }

    /// Returns the place where a tier has all moments from a time on.
    fn covering(&self, tier: usize, rest: i64, is_safe: bool) -> Option<(usize, u64)> {
        let margin = if is_safe { self.tiers[tier].margin() } else { 0 };
        let (number, _, is_first) = self.tiers[tier].find(rest, margin)?;
        is_first.then_some((tier, number))
    }

    /// Returns the place from which to read all from a time on. If some of that is not there any more, it
    /// begins with the oldest that is.
    fn place(&self, finest: usize, rest: i64) -> Option<(usize, u64)> {
        let tiers = finest..TIERS;
        let mut covering = [true, false]
            .into_iter()
            .flat_map(|is_safe| tiers.clone().map(move |tier| (tier, is_safe)));
        covering
            .find_map(|(tier, is_safe)| self.covering(tier, rest, is_safe))
            .or_else(|| {
                let oldest = tiers.filter_map(|tier| Some((tier, self.tiers[tier].find(rest, 0)?)));
                let oldest = oldest.min_by_key(|(_, (_, moment, _))| moment.first);
                oldest.map(|(tier, (number, ..))| (tier, number))
            })
    }
}

#[cfg(test)]
mod tests;
