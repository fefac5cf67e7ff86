//! How far a call is from the last reading of the clock before it, and what is far.

use super::config::Config;
use super::elapsed::elapsed;
use super::evidence::LongCallEvidence;
use super::timer::NodeTimer;
use crate::float::{at_least, at_most};

/// A call in which a beat came is long only if it ends at least this many times the usual distance after the
/// last reading.
const FAR_FACTOR: f64 = 8.0;

/// If the last reading is the node's own, the distance is that of a known number of its calls. Then this is
/// the number of standard errors of their sum, if their times are exponentially distributed, and of one call
/// more.
const FAR_DEVIATIONS: f64 = 4.0;

/// The time from one call to the next may be far above what is usual if it is this many times that.
const MAYBE_FAR: f32 = 1.25;

/// A detected call that is longer than all usual calls of this many gaps ends its block.
const CHANGE_FACTOR: f64 = 4.0;

impl NodeTimer {
    /// Returns how many calls after the node's own last reading the call in progress is, if that is the last
    /// reading of all.
    #[inline]
    fn calls_since(&self, before: u64) -> Option<f32> {
        (before == self.gaps.own_reading).then(|| {
            (self.drawn.wrapping_sub(self.countdown) as u32).wrapping_sub(self.gaps.own_calls) as i32 as f32
        })
    }

    /// Returns the usual ticks from the last reading to the call in progress.
    #[inline]
    pub(super) fn distance(&self, before: u64) -> f64 {
        f64::from(match self.calls_since(before) {
            Some(calls) => calls * self.gaps.cycle,
            None => self.gaps.distance,
        })
    }

    /// Returns whether the call in progress ended so late after the last reading before it that it was long.
    #[inline]
    pub(super) fn is_far(&self, config: &Config, before: u64, end: u64) -> bool {
        let least = config.long / 2.0;
        let ticks = elapsed(before, end).0;
        if ticks < least {
            return false;
        }
        let least = match self.calls_since(before) {
            Some(calls) if self.gaps.cycle > 0.0 => {
                // That of the last blocks may be that of a few short calls by chance, and that of all calls
                // that of another phase.
                let first = self.first_calls as u32;
                let all = self
                    .gaps
                    .watch
                    .cycle(self.gaps.own_reading, self.gaps.own_calls.wrapping_sub(first));
                let (calls, cycle) = (f64::from(calls), at_least(all, f64::from(self.gaps.cycle)));
                let deviation = FAR_DEVIATIONS * (calls.sqrt() + 1.0) * cycle;
                calls * cycle + at_least(deviation, least)
            }
            _ => {
                let distance = f64::from(self.gaps.distance);
                at_least(FAR_FACTOR * distance, distance + config.long)
            }
        };
        ticks >= least
    }

    /// Returns whether a detected call is so long that the next call must be timed.
    #[inline]
    pub(super) fn is_change(&self, ticks: f64) -> bool {
        ticks > CHANGE_FACTOR * self.gap * self.recent
    }

    /// Records the time between the last reading and the start of a call.
    #[inline]
    pub(super) fn note_distance(
        &mut self,
        config: &Config,
        before: u64,
        start: u64,
        evidence: &mut LongCallEvidence,
    ) {
        let (ticks, backsteps) = elapsed(before, start);
        self.clock_backsteps += backsteps;
        let ticks = ticks as f32;
        match self.calls_since(before) {
            Some(calls) => {
                let (mean, cycle) = (ticks / calls, self.gaps.cycle);
                if mean > MAYBE_FAR * cycle {
                    self.note_gap(config, before, start, evidence);
                }
                self.gaps.cycle = if cycle > 0.0 {
                    cycle + at_most(mean - cycle, 4.0 * cycle) / 8.0
                } else {
                    mean
                };
            }
            None => {
                if ticks > FAR_FACTOR as f32 * self.gaps.distance {
                    self.note_gap(config, before, start, evidence);
                }
                self.gaps.distance += (ticks - self.gaps.distance) / 8.0;
            }
        }
    }

    /// Notes a time between the last reading and the start of a call that may be longer than usual.
    #[cold]
    #[inline(never)]
    fn note_gap(&self, config: &Config, before: u64, start: u64, evidence: &mut LongCallEvidence) {
        let distance = self.distance(before);
        if distance > 0.0 && self.is_far(config, before, start) {
            evidence.note_gap(start, elapsed(before, start).0 - distance);
        }
    }
}
