//! One execution of a plan as a whole, and the times of many executions.

use crate::clock::Source;
use crate::float::{at_least, at_most, log2};
use crate::waits::plan::PlanWaits;
use serde::{Deserialize, Serialize};

/// How an execution ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ran to its end, or its cursor was closed.
    #[default]
    Completed,
    /// An error ended it. The statistics end with the error.
    Failed,
    /// A cancel request or a timeout ended it. The statistics end at that moment.
    Cancelled,
}

/// Where the plan of an execution comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanOrigin {
    /// Not from the plan cache.
    #[default]
    Other,
    /// The plan cache made it for all parameters.
    Generic,
    /// The plan cache made it for the parameters of this execution.
    Custom,
}

/// Shorter times count as this many milliseconds in logarithms: a nanosecond.
const MIN_MS: f64 = 1e-6;

/// The execution times of a plan, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The number of executions.
    pub calls: u64,
    /// The sum of their times.
    pub total_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// The mean time.
    pub mean_ms: f64,
    /// The sum of squared differences from the mean (Welford's algorithm).
    square_ms: f64,
    /// The sum of their binary logarithms.
    logarithms: f64,
}

impl Times {
    /// Adds one execution.
    #[inline(always)]
    pub fn add(&mut self, ms: f64) {
        self.min_ms = if self.calls == 0 {
            ms
        } else {
            at_most(ms, self.min_ms)
        };
        self.max_ms = at_least(ms, self.max_ms);
        self.calls += 1;
        self.total_ms += ms;
        let difference = ms - self.mean_ms;
        self.mean_ms += difference / self.calls as i64 as f64;
        self.square_ms += difference * (ms - self.mean_ms);
        self.logarithms += log2(at_least(ms, MIN_MS));
    }

    /// Adds executions that were counted separately (the parallel form of Welford's algorithm, by Chan and
    /// others).
    pub fn merge(&mut self, other: &Times) {
        if self.calls == 0 {
            *self = *other;
            return;
        }
        if other.calls == 0 {
            return;
        }
        let (ours, theirs) = (self.calls as f64, other.calls as f64);
        let difference = other.mean_ms - self.mean_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
        self.calls += other.calls;
        self.total_ms += other.total_ms;
        self.mean_ms += difference * theirs / (ours + theirs);
        self.square_ms += other.square_ms + difference * difference * ours * theirs / (ours + theirs);
        self.logarithms += other.logarithms;
    }

    /// Returns the mean of the times' binary logarithms: that of the geometric mean. It is 0 if there are no
    /// executions.
    pub fn mean_log2(&self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        self.logarithms / self.calls as f64
    }

    /// Returns the sum of the squares of the times.
    pub fn squares(&self) -> f64 {
        self.square_ms + self.calls as f64 * self.mean_ms * self.mean_ms
    }

    /// Returns the population's standard deviation, as in pg_stat_statements.
    pub fn stddev_ms(&self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        (self.square_ms / self.calls as f64).sqrt()
    }
}

/// What the planner did for a plan, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Planning {
    /// How often a statement was planned.
    pub plans: u64,
    /// The sum of the times.
    pub total_ms: f64,
    /// The shortest time.
    pub min_ms: f64,
    /// The longest time.
    pub max_ms: f64,
}

impl Planning {
    /// What the planner did if it did nothing.
    pub const NONE: Planning = Planning {
        plans: 0,
        total_ms: 0.0,
        min_ms: 0.0,
        max_ms: 0.0,
    };

    /// Adds one planning, or several of them.
    #[inline(always)]
    pub fn add(&mut self, other: &Planning) {
        if other.plans == 0 {
            return;
        }
        self.min_ms = if self.plans == 0 {
            other.min_ms
        } else {
            at_most(self.min_ms, other.min_ms)
        };
        self.max_ms = at_least(self.max_ms, other.max_ms);
        self.plans += other.plans;
        self.total_ms += other.total_ms;
    }

    /// Returns the mean time; 0 if nothing was planned.
    pub fn mean_ms(&self) -> f64 {
        if self.plans == 0 {
            return 0.0;
        }
        self.total_ms / self.plans as f64
    }
}

/// Returns the name that views show for the clock of an execution. `None` is PostgreSQL's own clock: EXPLAIN
/// ANALYZE measured the times.
pub fn clock_name(clock: Option<Source>) -> &'static str {
    clock.map_or("core", Source::name)
}

/// One execution as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// The sampling frequency: on average one call in this many was timed.
    pub sampfreq: i32,
    /// The clock that measured it; `None` is PostgreSQL's own.
    pub clock: Option<Source>,
    /// Milliseconds that it ran, without the time between the fetches of a cursor.
    pub elapsed_ms: f64,
    /// Milliseconds from the arrival of the client's message to the executor, for the parser, the planner and
    /// locks; 0 if no client sent it.
    pub before_ms: f64,
    /// Milliseconds from its end to that of its transaction, if that ended with it; 0 as long as that is not
    /// known.
    pub commit_ms: f64,
    /// What the planner did for it.
    pub planning: Planning,
    /// Where its plan comes from.
    pub origin: PlanOrigin,
    /// When it ended, in microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// Its caller did not read all of its rows: its cursor was closed early, for example.
    pub unfinished: bool,
    /// EXPLAIN (ANALYZE) ran it. Such executions are only counted.
    pub explained: bool,
    /// The queryid of the statement that called it; 0 if a client sent it, or if the caller is not known.
    pub caller: i64,
    /// Rows that it changed without returning them, or that COPY copied.
    pub changed_rows: u64,
}

impl Run {
    /// Returns the milliseconds that its client waited for it.
    #[inline(always)]
    pub fn response_ms(&self) -> f64 {
        self.before_ms + self.elapsed_ms + self.commit_ms
    }
}

/// What comes after the end of an execution, when its transaction ends.
#[derive(Clone, Copy)]
pub enum Late<'a> {
    /// What it waited then.
    Waits(&'a PlanWaits),
    /// The execution, whose `commit_ms` is known now.
    Commit(&'a Run),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_mean_and_standard_deviation() {
        let mut times = Times::default();
        assert_eq!(times.stddev_ms(), 0.0);
        for ms in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            times.add(ms);
        }
        assert_eq!((times.calls, times.total_ms), (8, 40.0));
        assert_eq!((times.min_ms, times.max_ms, times.mean_ms), (2.0, 9.0, 5.0));
        assert!((times.stddev_ms() - 2.0).abs() < 1e-12);
        let geometric = (2.0f64 * 4.0 * 4.0 * 4.0 * 5.0 * 5.0 * 7.0 * 9.0).powf(1.0 / 8.0);
        assert!((times.mean_log2().exp2() / geometric - 1.0).abs() < 1e-3);
    }

    #[test]
    fn an_execution_without_a_time_has_a_logarithm() {
        let mut times = Times::default();
        assert_eq!(times.mean_log2(), 0.0);
        times.add(0.0);
        assert!((times.mean_log2().exp2() / 1e-6 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn planning_is_summed_up() {
        let one = |ms| Planning {
            plans: 1,
            total_ms: ms,
            min_ms: ms,
            max_ms: ms,
        };
        let mut sum = Planning::default();
        assert_eq!(sum.mean_ms(), 0.0);
        sum.add(&one(3.0));
        sum.add(&Planning::default());
        sum.add(&one(1.0));
        sum.add(&one(5.0));
        assert_eq!((sum.plans, sum.total_ms, sum.mean_ms()), (3, 9.0, 3.0));
        assert_eq!((sum.min_ms, sum.max_ms), (1.0, 5.0));
    }

    #[test]
    fn merged_times_equal_times_added_together() {
        let all = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let of = |part: &[f64]| {
            let mut times = Times::default();
            part.iter().for_each(|ms| times.add(*ms));
            times
        };
        for at in 0..=all.len() {
            let mut merged = of(&all[..at]);
            merged.merge(&of(&all[at..]));
            assert_eq!((merged.calls, merged.total_ms), (8, 40.0));
            assert_eq!((merged.min_ms, merged.max_ms), (2.0, 9.0));
            assert!((merged.mean_ms - 5.0).abs() < 1e-12, "{at}");
            assert!((merged.stddev_ms() - 2.0).abs() < 1e-12, "{at}");
            assert!((merged.mean_log2() - of(&all).mean_log2()).abs() < 1e-12, "{at}");
        }
    }
}
