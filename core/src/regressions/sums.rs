//! What is known of the executions of a plan in an interval: sums, so that intervals can be added, and
//! counters of two moments subtracted.

use super::chance::Moments;
use crate::model::PlanStats;
use serde::{Deserialize, Serialize};

/// Shorter times count as this many milliseconds in logarithms: a nanosecond.
const MIN_MS: f64 = 1e-6;

/// Sums over executions. Zero bytes are no executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Sums {
    /// The number of executions, those that failed included.
    pub executions: u64,
    /// Those that an error, a cancel request or a timeout ended.
    pub failed: u64,
    /// Their busy time, in milliseconds.
    pub failed_ms: f64,
    /// The busy time of all, in milliseconds.
    pub busy_ms: f64,
    /// The time of all, waits included, in milliseconds.
    pub wall_ms: f64,
    /// The sum of the squares of these times.
    pub wall_squares: f64,
    /// The sum of the binary logarithms of the busy times in milliseconds.
    pub logs: f64,
    /// The sum of the squares of these logarithms.
    pub log_squares: f64,
    /// The busy time of the longest execution, in milliseconds.
    pub max_ms: f64,
}

/// Returns the binary logarithm of a time.
pub(super) fn log2(ms: f64) -> f64 {
    ms.max(MIN_MS).log2()
}

impl Sums {
    /// Adds an execution.
    pub fn add(&mut self, busy_ms: f64, wall_ms: f64, has_failed: bool) {
        let log = log2(busy_ms);
        self.merge(&Sums {
            executions: 1,
            failed: u64::from(has_failed),
            failed_ms: if has_failed { busy_ms } else { 0.0 },
            busy_ms,
            wall_ms,
            wall_squares: wall_ms * wall_ms,
            logs: log,
            log_squares: log * log,
            max_ms: busy_ms,
        });
    }

    /// Returns those of the executions of a plan in the store.
    pub fn of(plan: &PlanStats) -> Sums {
        let PlanStats { times, busy, .. } = plan;
        Sums {
            executions: times.calls,
            failed: plan.failed_calls + plan.cancelled_calls,
            failed_ms: busy.failed_ms,
            busy_ms: (times.total_ms - busy.waited_ms).max(0.0),
            wall_ms: times.total_ms,
            wall_squares: times.squares(),
            logs: times.mean_log2() * times.calls as f64 + busy.log_change,
            log_squares: busy.log_squares,
            max_ms: busy.longest_ms(times.max_ms),
        }
    }

    /// Adds executions that were counted separately.
    pub fn merge(&mut self, other: &Sums) {
        self.executions += other.executions;
        self.failed += other.failed;
        self.failed_ms += other.failed_ms;
        self.busy_ms += other.busy_ms;
        self.wall_ms += other.wall_ms;
        self.wall_squares += other.wall_squares;
        self.logs += other.logs;
        self.log_squares += other.log_squares;
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// Returns the executions since an earlier moment, at which the counters were `earlier`. If they have
    /// been reset since, these are all. A maximum cannot be subtracted: if the longest execution is not of
    /// this time, the longest time is the most that it may be, that of all or their sum.
    pub fn since(&self, earlier: &Sums) -> Sums {
        if earlier.executions > self.executions || earlier.failed > self.failed {
            return *self;
        }
        let busy_ms = (self.busy_ms - earlier.busy_ms).max(0.0);
        Sums {
            executions: self.executions - earlier.executions,
            failed: self.failed - earlier.failed,
            failed_ms: (self.failed_ms - earlier.failed_ms).max(0.0),
            busy_ms,
            wall_ms: (self.wall_ms - earlier.wall_ms).max(0.0),
            wall_squares: (self.wall_squares - earlier.wall_squares).max(0.0),
            logs: self.logs - earlier.logs,
            log_squares: (self.log_squares - earlier.log_squares).max(0.0),
            max_ms: match self.max_ms > earlier.max_ms {
                true => self.max_ms,
                false => self.max_ms.min(busy_ms),
            },
        }
    }

    /// Returns the same with the least that the longest time may be: who calls it too long must be right.
    pub fn surely_since(&self, earlier: &Sums) -> Sums {
        let since = self.since(earlier);
        // After a reset, or if it is the longest of all, it is known.
        if since.executions == self.executions || self.max_ms > earlier.max_ms {
            return since;
        }
        Sums {
            max_ms: since.mean_busy_ms(),
            ..since
        }
    }

    /// Returns the mean busy time, in milliseconds; 0 if there are no executions.
    pub fn mean_busy_ms(&self) -> f64 {
        self.busy_ms / self.executions.max(1) as f64
    }

    /// Returns the mean time, in milliseconds; 0 if there are no executions.
    pub fn mean_wall_ms(&self) -> f64 {
        self.wall_ms / self.executions.max(1) as f64
    }

    /// Returns the geometric mean of the busy times, in milliseconds: few very long executions hardly change
    /// it.
    pub fn typical_ms(&self) -> f64 {
        self.log_moments().mean.exp2()
    }

    /// Returns one standard error of the mean time, in milliseconds. One execution has none.
    pub fn error_ms(&self) -> Option<f64> {
        self.wall_moments().error()
    }

    /// Returns whether the mean times differ by more than chance, at 95 %.
    pub fn differs(&self, later: &Sums) -> bool {
        const ONE_SIDE: f64 = 0.025;
        let (ours, theirs) = (self.wall_moments(), later.wall_moments());
        ours.chance_of_larger(&theirs).min(theirs.chance_of_larger(&ours)) <= ONE_SIDE
    }

    /// Returns the moments of the logarithms of busy times.
    pub(super) fn log_moments(&self) -> Moments {
        Moments::of(self.executions, self.logs, self.log_squares)
    }

    /// Returns the moments of the times.
    pub(super) fn wall_moments(&self) -> Moments {
        Moments::of(self.executions, self.wall_ms, self.wall_squares)
    }

    /// Returns these executions with those that failed counted against them, as far as more of them failed
    /// than of those before: each of these takes at least `least_ms`.
    pub(super) fn with_failed_as(&self, before: &Sums, least_ms: f64) -> Sums {
        if self.failed == 0 {
            return *self;
        }
        let usual = before.failed as f64 / before.executions.max(1) as f64 * self.executions as f64;
        let more = (self.failed as f64 - usual).max(0.0);
        let mean = self.failed_ms / self.failed as f64;
        let least = mean.max(least_ms);
        let (log_mean, log_least) = (log2(mean), log2(least));
        Sums {
            busy_ms: self.busy_ms + more * (least - mean),
            wall_ms: self.wall_ms + more * (least - mean),
            wall_squares: self.wall_squares + more * (least * least - mean * mean),
            logs: self.logs + more * (log_least - log_mean),
            log_squares: (self.log_squares + more * (log_least * log_least - log_mean * log_mean)).max(0.0),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(times: &[f64]) -> Sums {
        let mut sums = Sums::default();
        times.iter().for_each(|ms| sums.add(*ms, 2.0 * ms, false));
        sums
    }

    /// One of a thousand executions took long before the interval.
    #[test]
    fn the_longest_time_of_an_interval_is_not_that_of_all() {
        let mut early = sums(&[1.0; 1_000]);
        early.merge(&sums(&[500.0]));
        let mut late = early;
        late.merge(&sums(&[2.0, 4.0]));
        assert_eq!(
            (late.since(&early).max_ms, late.surely_since(&early).max_ms),
            (6.0, 3.0)
        );
        late.merge(&sums(&[600.0]));
        assert_eq!(
            (late.since(&early).max_ms, late.surely_since(&early).max_ms),
            (600.0, 600.0)
        );
        assert_eq!(early.surely_since(&late), early);
    }

    #[test]
    fn sums_of_two_moments_are_subtracted() {
        let (early, late) = (sums(&[1.0, 2.0]), sums(&[1.0, 2.0, 4.0, 8.0]));
        let since = late.since(&early);
        assert_eq!((since.executions, since.busy_ms, since.wall_ms), (2, 12.0, 24.0));
        assert_eq!((since.mean_busy_ms(), since.logs, since.max_ms), (6.0, 5.0, 8.0));
        // After a reset, all of them are new.
        assert_eq!(early.since(&late), early);
        let mut merged = early;
        merged.merge(&sums(&[4.0, 8.0]));
        assert_eq!(merged, late);
        assert_eq!(Sums::default().mean_wall_ms(), 0.0);
    }

    #[test]
    fn failures_count_only_as_far_as_there_are_more_of_them() {
        let with = |failed: u64| {
            let mut sums = Sums::default();
            (0..10).for_each(|i| sums.add(1.0, 1.0, i < failed));
            sums
        };
        assert_eq!(with(5).with_failed_as(&with(5), 8.0), with(5));
        assert_eq!(with(0).with_failed_as(&with(5), 8.0), with(0));
        let against = with(7).with_failed_as(&with(5), 8.0);
        assert_eq!((against.busy_ms, against.logs), (24.0, 6.0));
        // What took longer than that counts as it is.
        assert_eq!(with(7).with_failed_as(&with(5), 0.5), with(7));
    }
}
