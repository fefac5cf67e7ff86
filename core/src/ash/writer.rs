//! Writes the ring: gathers the samples of a moment, and chooses the moments of the coarser tiers.

use super::ring::{Moment, Ring, SLOT_US, TIERS};
use super::sample::Sample;
use super::tier::Words;
use rand_core::RngCore;

/// The most processes that block others of which a slot has samples.
const MAX_BLOCKERS: usize = 64;

/// The samples of a moment.
struct Samples {
    /// Those that count.
    active: Vec<Words>,
    /// Those of processes that others wait for. They are taken once in a while, so a slot keeps the last one
    /// of each process, whichever its moment is.
    blockers: Vec<(i32, Words)>,
}

impl Samples {
    fn with_room(active: usize) -> Option<Samples> {
        let mut samples = Samples {
            active: Vec::new(),
            blockers: Vec::new(),
        };
        samples.active.try_reserve_exact(active).ok()?;
        samples.blockers.try_reserve_exact(MAX_BLOCKERS).ok()?;
        Some(samples)
    }

    fn note_blocker(&mut self, pid: i32, words: Words) {
        if let Some(known) = self.blockers.iter_mut().find(|(of, _)| *of == pid) {
            known.1 = words;
        } else if self.blockers.len() < MAX_BLOCKERS {
            self.blockers.push((pid, words));
        }
    }

    fn clear(&mut self) {
        self.active.clear();
        self.blockers.clear();
    }
}

/// The slot of a tier that has not ended.
struct Slot {
    /// The moment that is chosen so far.
    moment: Option<Moment>,
    samples: Samples,
}

/// The one writer of a ring.
pub struct Writer<'a> {
    ring: Ring<'a>,
    /// The samples of the moment.
    samples: Samples,
    /// Those of each tier but the first, which has no slots.
    slots: [Slot; TIERS - 1],
    /// The moment before, unless sampling was off since.
    previous: Option<i64>,
}

impl<'a> Writer<'a> {
    /// Prepares to write moments at which at most `active` processes are active. Returns `None` if there is
    /// no memory.
    pub fn new(ring: Ring<'a>, active: usize) -> Option<Writer<'a>> {
        let slot = || {
            Some(Slot {
                moment: None,
                samples: Samples::with_room(active)?,
            })
        };
        Some(Writer {
            ring,
            samples: Samples::with_room(active)?,
            slots: [slot()?, slot()?, slot()?],
            previous: None,
        })
    }

    /// Returns the ring.
    pub fn ring(&self) -> Ring<'a> {
        self.ring
    }

    /// Adds a sample of the moment. One too many is left out.
    pub fn add(&mut self, sample: &Sample) {
        let active = &mut self.samples.active;
        if sample.is_blocker {
            self.samples.note_blocker(sample.pid, sample.words());
        } else if active.len() < active.capacity() {
            active.push(sample.words());
        }
    }

    /// Ends the moment: its samples were taken at this time.
    pub fn end_moment(&mut self, at: i64, random: &mut impl RngCore) {
        let moment = Moment {
            at,
            moments: 1,
            first: at,
            last: at,
            span: self.previous.map_or(0, |previous| at.saturating_sub(previous)),
            run: self.ring.run(),
        };
        self.previous = Some(at);
        self.end(0, &moment, |writer| &mut writer.samples, random);
    }

    /// Notes that sampling is off, or that this writer ends: all slots end.
    pub fn pause(&mut self, random: &mut impl RngCore) {
        if self.previous.take().is_some() {
            (1..TIERS).for_each(|tier| self.end_slot(tier, random));
        }
    }

    /// Writes a moment of a tier, and offers it to the next one.
    fn end(
        &mut self,
        tier: usize,
        moment: &Moment,
        samples: impl Fn(&mut Self) -> &mut Samples,
        random: &mut impl RngCore,
    ) {
        const NONE: Samples = Samples {
            active: Vec::new(),
            blockers: Vec::new(),
        };
        let mut of_moment = std::mem::replace(samples(self), NONE);
        let blockers = of_moment.blockers.iter().map(|(_, words)| words);
        self.ring
            .write(tier, moment, of_moment.active.iter().chain(blockers));
        if tier + 1 < TIERS {
            self.offer(tier + 1, moment, &of_moment, random);
        }
        of_moment.clear();
        *samples(self) = of_moment;
    }

    /// Has a tier choose between the moment that it has for the slot, and another one. All moments that they
    /// stand for get the same chance.
    fn offer(&mut self, tier: usize, moment: &Moment, samples: &Samples, random: &mut impl RngCore) {
        let slot_of = |moment: &Moment| moment.first.div_euclid(SLOT_US[tier]);
        if let Some(open) = &self.slots[tier - 1].moment
            && slot_of(open) != slot_of(moment)
        {
            self.end_slot(tier, random);
        }
        let slot = &mut self.slots[tier - 1];
        let (mut chosen, mut is_chosen) = (*moment, true);
        if let Some(open) = &slot.moment {
            chosen.moments += open.moments;
            chosen.first = open.first;
            chosen.span += open.span;
            is_chosen = random.next_u64() % chosen.moments < moment.moments;
            if !is_chosen {
                chosen.at = open.at;
            }
        }
        slot.moment = Some(chosen);
        if is_chosen {
            slot.samples.active.clear();
            slot.samples.active.extend_from_slice(&samples.active);
        }
        for (pid, words) in &samples.blockers {
            slot.samples.note_blocker(*pid, *words);
        }
    }

    /// Ends a slot.
    fn end_slot(&mut self, tier: usize, random: &mut impl RngCore) {
        if let Some(moment) = self.slots[tier - 1].moment.take() {
            self.end(
                tier,
                &moment,
                |writer| &mut writer.slots[tier - 1].samples,
                random,
            );
        }
    }
}
