//! The second estimate: what the beats tell about the calls that are not timed.
//!
//! A beat comes at a random moment, whatever runs. One that stands for the time T falls into a call of length
//! t with the probability t/T, or 1 if t is longer. So the sum of T over the calls that beats fall into is
//! the node's time, on average, however its calls are distributed, and their lengths need not be known. Its
//! variance is the sum of T(T - t), times the share of the time watched in which the node does not run: the
//! sum of T of the node and of all others is that time.
//!
//! For calls that are all alike, samples of the calls tell far more. But they tell nothing about rare long
//! calls of which none was chosen, not even that there may be some. So both estimates are mixed, with weights
//! inverse to their variances, and the variance of the result is that of the mixture:
//!
//! - The beats are trials of a share, weighted with T. Its estimate is the mean of Jeffreys' posterior: half
//!   a beat more came inside, and half a one outside. So the share is never 0 or 1, and a node that takes all
//!   the time has no error of zero because no beat came outside.
//! - The variance of the beats is that of the share which the mixture shows, not of what the beats alone
//!   show: where samples know better how much of the time is inside, they also know better how many beats
//!   should have come.
//! - A part of the time is not watched, because it is before the first beat, or all calls were timed. Any
//!   share of it may be inside.
//! - Calls that a beat is certain to find, and those that did I/O, are in neither estimate. Their time is
//!   known.
//! - If the beats show much more time, the samples have missed something, and their variance is what it must
//!   be for them not to contradict: then the beats decide, and the error is theirs. What is shorter than a
//!   beat, and in no sample, is not missed by this.
//! - A heart that is late or stopped makes no beats. What took longer than usual then was in nobody's sight:
//!   see `add_missed`.
//! - No single call decides. One that a beat found is long only if it ended late for what is known of all
//!   calls so far.

use super::config::Config;
use super::evidence::{LongCallEvidence, is_within};
use crate::float::{at_least, at_most};

/// The samples have missed something if the square of what the beats show more is above this many times the
/// sum of the variances. Calls that are alike get to it once in thousands of executions.
const CONTRADICTION: f64 = 12.0;

/// So many beats more are taken to have come inside, and outside, as Jeffreys does with the share of
/// successes in a few trials.
const OTHER_BEATS: f64 = 0.5;

/// The correlation of both estimates, as far as the long calls of the first one were found by the beats, too.
const ALIKE: f64 = 0.5;

/// With a smaller `sampfreq`, the timer itself takes too much of the time in which beats come.
const LEAST_MAX_GAP: f64 = 64.0;

/// The error of a share of the time in which no beats came, as a part of the largest difference to it. With
/// half of that, the truth would lie just within two errors, if nothing else was wrong.
const ERROR_OF_SHARE: f64 = 0.75;

/// A smaller part of the time watched is no beat.
const ROUNDED: f64 = 1e-3;

/// The timers of a node and of those below it take about this part of its time, in which beats come too.
const TIMER: f64 = 0.02;

/// The beats since the node's calls are not all timed. Zero bytes are none. Sums that a thousandth more or
/// less does not change are kept in half a word.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Watch {
    /// The reading since which the time is watched, moved on by the time of the calls that were found for
    /// certain. 0 if it is not watched.
    since: u64,
    /// What all beats of the session stood for, when the last one was seen.
    seen: f64,
    /// The same of the time in which beats were due and did not come.
    seen_missed: f64,
    /// What the beats stand for that came in the time watched.
    watched: f32,
    /// The same of those in calls of the node.
    inside: f32,
    /// The sums of T(T - t) over the latter, and of T squared over all.
    variance: f32,
    squares: f32,
    /// The time beyond what is usual in which beats were due and did not come, and the sum of its squares.
    missed: f32,
    missed_squares: f32,
    /// What samples of long calls add to the estimate for the calls like them that were not timed, while no
    /// beats came, and the variance of that.
    guessed: f32,
    guessed_variance: f32,
}

impl Watch {
    /// Returns the ticks from one call to the next, of the `calls` calls until the reading `until`; 0 if they
    /// are not watched.
    #[cold]
    pub(super) fn cycle(&self, until: u64, calls: u32) -> f64 {
        if self.since == 0 || calls == 0 {
            return 0.0;
        }
        until.saturating_sub(self.since) as i64 as f64 / f64::from(calls)
    }

    /// Notes the beats until a timed call, which ended at `now`.
    #[inline(always)]
    pub(super) fn note_time(&mut self, config: &Config, now: u64, evidence: &LongCallEvidence) {
        if self.seen != evidence.watched {
            self.note_beats(config, now, evidence);
        }
    }

    /// Notes the beats since the last time. Before the first time, it begins to watch.
    #[cold]
    #[inline(never)]
    fn note_beats(&mut self, config: &Config, now: u64, evidence: &LongCallEvidence) {
        if self.seen == 0.0 {
            // A coarse clock does not tell in which call a beat came.
            if config.step == 0.0 && config.max_gap >= LEAST_MAX_GAP {
                self.since = now;
            }
        } else {
            let missed = evidence.missed - self.seen_missed;
            let more = evidence.watched - self.seen - missed;
            self.watched += more as f32;
            self.squares += (more * evidence.period) as f32;
            self.missed += missed as f32;
            self.missed_squares += (missed * evidence.last_missed) as f32;
        }
        self.seen = evidence.watched;
        self.seen_missed = evidence.missed;
    }

    /// Notes a call of which it is uncertain whether it is found, and the last reading before it. A beat may
    /// have come in it.
    #[inline]
    pub(super) fn note_call(&mut self, before: u64, ticks: f64, evidence: &LongCallEvidence) {
        if is_within(evidence.ticked, before, evidence.last) {
            let period = evidence.period;
            self.inside += period as f32;
            let usual = at_least(period, evidence.usual);
            self.variance += (usual * at_least(usual - at_least(ticks, 0.0), 0.0)) as f32;
        }
    }

    /// Notes a call that was found for certain, by the last beat. It is no part of what both estimates are
    /// about.
    #[inline]
    pub(super) fn skip_call(&mut self, ticks: f64, evidence: &LongCallEvidence) {
        self.watched -= evidence.period as f32;
        self.squares -= (evidence.period * evidence.period) as f32;
        if self.since > 0 {
            self.since += at_least(ticks, 0.0) as u64;
        }
    }

    /// Notes what a sample of a long call adds for others while no beats come, and the variance of that.
    #[inline]
    pub(super) fn note_guess(&mut self, ticks: f64, variance: f64) {
        self.guessed += ticks as f32;
        self.guessed_variance += variance as f32;
    }

    /// Adds to an estimate from samples, and to its variance, what no beat could find until the reading
    /// `until`. Each timed call stands for `gap` calls.
    ///
    /// How long that took is known, but not in which node. If something else held up the process, the node
    /// has the same share of it as of all other time. If it was in rare long calls of one node, this one has
    /// all of it or nothing. The estimate is that share, and the error is so large that both lie within two
    /// errors. If there were many long calls, samples of them know it better.
    pub(super) fn add_missed(&self, until: u64, gap: f64, sampled: f64, variance: f64) -> (f64, f64) {
        let [missed, squares, guessed, guessed_variance] = [
            self.missed,
            self.missed_squares,
            self.guessed,
            self.guessed_variance,
        ]
        .map(f64::from);
        if self.since == 0 || missed <= 0.0 {
            return (sampled, variance);
        }
        let usual = until.saturating_sub(self.since) as i64 as f64 - missed;
        let sampled = at_least(sampled - guessed, 0.0);
        let share = at_most(sampled / at_least(usual, 1.0), 1.0);
        let inside = share * missed;
        let error = at_least(share, 1.0 - share) * missed * ERROR_OF_SHARE;
        let of_share = error * error;
        let of_samples = at_least(gap * squares * share, guessed_variance);
        let weight = of_samples / (of_samples + of_share);
        let variance = at_least(variance - guessed_variance, 0.0);
        (
            sampled + guessed + (inside - guessed) * weight,
            variance + weight * of_share,
        )
    }

    /// Combines the estimate from samples of those calls, and its variance, with that from the beats until
    /// the reading `until`. `common` is the part of the variance that is that of the beats.
    pub(super) fn combine(&self, until: u64, sampled: f64, variance: f64, common: f64) -> (f64, f64) {
        let [watched, inside, of_beats, squares] =
            [self.watched, self.inside, self.variance, self.squares].map(f64::from);
        let whole = until.saturating_sub(self.since) as i64 as f64;
        // What is left of the beats in calls that were found for certain was rounded.
        if self.since == 0 || watched <= ROUNDED * whole || squares <= 0.0 {
            return (sampled, variance);
        }
        let one = squares / watched;
        let unwatched = at_least(whole - watched, 0.0);
        let whole = watched + unwatched;
        let scale = whole / watched;
        let unknown = unwatched * unwatched / 12.0;
        // No beat is no proof.
        let k = OTHER_BEATS * one;
        let [inside, most] = [inside, watched].map(|inside| whole * (inside + k) / (watched + 2.0 * k));
        let difference = inside - sampled;
        let variance_if = |inside: f64, of_beats: f64| {
            let share = at_most(inside, most) / whole;
            (of_beats + k * one) * (1.0 - share) * scale * scale + unknown
        };
        let expected = variance_if(sampled, at_most(sampled / scale, watched) * one);
        let timer = TIMER * sampled;
        let missed = at_least(difference, 0.0);
        // How much of the time is outside is best known from both.
        let mut result = (inside, 0.0);
        for _ in 0..2 {
            let of_beats = variance_if(result.0, of_beats);
            let doubt = variance + at_least(of_beats, expected) + timer * timer;
            let excess = missed * missed - CONTRADICTION * doubt;
            let variance = variance + at_least(excess, 0.0);
            if variance + of_beats <= 0.0 {
                return (sampled, 0.0);
            }
            let share = variance / (variance + of_beats);
            let both = 2.0 * ALIKE * share * (1.0 - share) * (common * of_beats).sqrt();
            result = (sampled + difference * share, share * of_beats + both);
        }
        result
    }
}
