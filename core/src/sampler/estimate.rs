//! Estimates a node's time from its timer.

use super::timer::NodeTimer;
use crate::float::{at_least, at_most};

/// How many more calls there may be like those that are least certain. Without them, 2 of 15 estimates from
/// three calls that chance found would lie outside of two errors.
const MISSED: f64 = 2.0;

/// The estimated times of one node, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Time in the node and in all nodes below it.
    pub total: f64,
    /// Time to the first row of each start, summed over the starts.
    pub startup: f64,
    /// One standard error of `total`; zero if every call was timed.
    pub error: f64,
}

impl NodeTimer {
    /// Returns the node's time and its time to first rows, if every call was timed.
    #[inline(always)]
    pub fn exact(&self) -> Option<(f64, f64)> {
        (self.calls() == self.certain_calls).then(|| {
            let total = at_least(self.certain_ticks, 0.0);
            (total, at_most(at_least(self.startup_ticks, 0.0), total))
        })
    }

    /// Returns the estimate from all readings. `starts` is the exact number of starts, and `interrupted` is
    /// the ticks of a last call that an error ended.
    pub fn estimate(&self, starts: f64, interrupted: Option<u64>) -> Estimate {
        if interrupted.is_none()
            && let Some((total, startup)) = self.exact()
        {
            return Estimate {
                total,
                startup,
                error: 0.0,
            };
        }
        let calls = self.calls().saturating_sub(u64::from(interrupted.is_some()));
        let interrupted = interrupted.unwrap_or(0) as i64 as f64;
        if calls == 0 || self.timed_calls == 0 {
            return Estimate {
                total: interrupted,
                ..Estimate::default()
            };
        }
        let rest = calls
            .saturating_sub(self.certain_calls)
            .saturating_sub(self.gaps.detected_calls) as f64;
        let rest = (rest - self.gaps.long.weight).max(0.0);
        let (mean, sampling_variance) = if self.gaps.samples.weight > 0.0 {
            let share = rest / self.gaps.samples.weight;
            (
                (self.gaps.samples.ticks / self.gaps.samples.weight).max(0.0),
                f64::from(self.gaps.samples.error_squared()) * share * share,
            )
        } else {
            // No call of the rest was sampled. So its time is a guess, and the error is as large as the
            // guess.
            let guess = rest * self.recent;
            (self.recent, guess * guess)
        };
        // There may be more calls like the longest of them.
        let variance =
            sampling_variance + f64::from(self.gaps.long.variance) + MISSED * f64::from(self.gaps.largest);
        let sampled = self.gaps.long.ticks + rest * mean;
        let (uncertain, variance) = if self.clock_backsteps == 0 {
            let (watch, until) = (&self.gaps.watch, self.gaps.own_reading);
            let (sampled, variance) = watch.add_missed(until, self.gap, sampled, variance);
            watch.combine(until, sampled, variance, f64::from(self.gaps.long.common))
        } else {
            (sampled, variance)
        };
        let total = (self.certain_ticks + self.gaps.detected_ticks + uncertain).max(0.0) + interrupted;
        let error = (variance + f64::from(self.gaps.detected_variance)).sqrt();

        let rest_starts = (starts - self.startup_calls as f64).max(0.0);
        let mean_first = if self.gaps.first.weight > 0.0 {
            f64::from(self.gaps.first.ticks) / f64::from(self.gaps.first.weight)
        } else {
            mean
        };
        // Not `clamp`, which panics if its bounds are not numbers: this is called where no panic may cross.
        let startup = at_most(
            at_least(self.startup_ticks + rest_starts * mean_first.max(0.0), 0.0),
            total,
        );
        Estimate {
            total,
            startup,
            error,
        }
    }
}
