//! The second estimate: what the beats tell about the calls that are not timed.
//!
//! A beat comes at a random moment, whatever runs. One that stands for the time T falls into a call of length t with the probability
//! t/T, or 1 if t is longer. So the sum of w = max(t, T) over the calls that beats fall into is the node's time, on average, however its
//! calls are distributed: for a call shorter than T, its length need not be known. The variance of that sum is the sum of w(w - t),
//! times the share of the time watched in which the node does not run: the sum of w of the node and of all others is that time.
//!
//! For calls that are all alike, samples of the calls tell far more. But they tell nothing about rare long calls of which none was
//! chosen, not even that there may be some. So both estimates are weighted with the inverse of their variances. If the beats show
//! much more time, the samples have missed something, and their variance is what it must be for them not to contradict: then the
//! beats decide, and the error is theirs. What is shorter than a beat, and in no sample, is not missed by this.

use super::config::Config;
use super::evidence::{LongCallEvidence, is_within};
use crate::float::{at_least, at_most};

/// The samples have missed something if the square of what the beats show more is above this many times the sum of the variances. Calls
/// that are alike get to it once in thousands of executions.
const CONTRADICTION: f64 = 12.0;

/// With a smaller `sampfreq`, the timer itself takes too much of the time in which beats come.
const LEAST_MAX_GAP: f64 = 64.0;

/// The timers of a node and of those below it take about this part of its time, in which beats come too.
const TIMER: f64 = 0.02;

/// The beats that were seen since the node's calls are not all timed. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Watch {
    /// The reading from which on not all calls were timed.
    since: u64,
    /// The end of the last timed call.
    until: u64,
    /// The last beat that was seen.
    last: u64,
    /// The sums over all beats of the session, at the first one that was seen and at the last one.
    watched: [f64; 2],
    squares: [f64; 2],
    /// The sum of w over the beats in calls that are not counted for certain.
    beats: f64,
    /// The sum of w(w - t).
    variance: f64,
    /// The time of calls that were longer than what a beat stands for.
    skipped: f64,
    /// The time of those of their calls that were counted individually.
    pub(super) counted: f64,
}

impl Watch {
    /// Notes that a timed call ended, and that not all calls are timed. The beats until now are in the evidence.
    #[inline]
    pub(super) fn note_time(&mut self, config: &Config, end: u64, evidence: &LongCallEvidence) {
        if self.since == 0 {
            // A coarse clock does not tell in which call a beat came.
            if config.step() > 0.0 || config.max_gap < LEAST_MAX_GAP {
                return;
            }
            self.since = end;
        }
        self.until = end;
        self.note_beat(evidence);
    }

    /// Notes the last beat of all. Returns whether it is new, and whether another one was seen before.
    #[inline]
    fn note_beat(&mut self, evidence: &LongCallEvidence) -> bool {
        if self.since == 0 || evidence.ticked <= self.last || evidence.ticked <= self.since {
            return false;
        }
        let is_first = self.last == 0;
        self.last = evidence.ticked;
        self.watched[1] = evidence.watched;
        self.squares[1] = evidence.squares;
        if is_first {
            self.watched[0] = evidence.watched;
            self.squares[0] = evidence.squares;
        }
        !is_first
    }

    /// Notes a call of this length that is not counted for certain, and the last reading before it. A beat may have come in it.
    #[inline]
    pub(super) fn note_call(&mut self, before: u64, ticks: f64, counted: f64, evidence: &LongCallEvidence) {
        let is_watched = self.note_beat(evidence) && is_within(evidence.ticked, before, evidence.last);
        if counted > 0.0 && counted >= evidence.period {
            // It was found for certain, and is no part of what both estimates are about.
            self.skipped += counted;
            if is_watched {
                self.watched[0] += evidence.period;
            }
            return;
        }
        self.counted += counted;
        if is_watched {
            let w = at_least(ticks, evidence.period);
            self.beats += w;
            let uncertain = at_least(w, evidence.usual);
            self.variance += uncertain * (uncertain - at_least(ticks, 0.0));
            self.watched[0] -= w - evidence.period;
        }
    }

    /// Combines the estimate from samples of those calls, and its variance, with that from the beats.
    pub(super) fn combine(&self, sampled: f64, variance: f64) -> (f64, f64) {
        let watched = self.watched[1] - self.watched[0];
        if watched <= 0.0 {
            return (sampled, variance);
        }
        let one = (self.squares[1] - self.squares[0]) / watched;
        let whole = self.until.saturating_sub(self.since) as i64 as f64 - self.skipped;
        let unwatched = at_least(whole - watched, 0.0);
        let scale = 1.0 + unwatched / watched;
        let by_beats = self.beats * scale;
        // One beat more or less, so that no beat is no proof.
        let k = crate::xp(6) * one;
        let outside = |inside: f64| (at_least(watched - inside, 0.0) + k) / (watched + 2.0 * k);
        let (one_squared, unknown) = (crate::xp(7) * one * one, unwatched * unwatched / 12.0);
        let of_beats = |inside: f64| crate::xp(8) * (self.variance + one_squared) * outside(inside) * scale * scale + unknown;
        let difference = by_beats - sampled;
        let timer = TIMER * sampled;
        let missed = at_least(difference, 0.0);
        let mut inside = self.beats;
        let mut result = (sampled, variance);
        for _ in 0..2 {
            let beats_variance = of_beats(inside);
            let by_samples = at_most(sampled / scale, watched);
            let expected = crate::xp(8) * (by_samples * one + one_squared) * outside(by_samples) * scale * scale + unknown;
            let doubt = variance + at_least(beats_variance, expected) + timer * timer;
            let excess = missed * missed - crate::xp(10) * doubt;
            let variance = variance + at_least(excess, 0.0);
            let sum = variance + beats_variance;
            if sum <= 0.0 {
                return (sampled, 0.0);
            }
            result = (sampled + difference * (variance / sum), variance * beats_variance / sum);
            if !(crate::xp(11) > 0.0) {
                return result;
            }
            inside = at_most(result.0 / scale, watched);
        }
        result
    }
}
