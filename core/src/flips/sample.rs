//! The times of executions, and whether two plans differ.
//!
//! A plan is slower or faster if three things hold: the difference is more than chance, it is a factor of
//! [`FACTOR`] at least, and this is so after what the plans of other queries have changed meanwhile is taken
//! off ([`super::Pace`]). A difference that is only more than chance says little: executions of a busy time
//! have something in common, so those of two times differ.
//!
//! Two things are compared: the times of a typical execution (the geometric means), and the mean times. One
//! execution that waited for a lock changes the geometric mean a little, but the mean and its standard error
//! so much that it hides a difference between the plans. On the other hand, a plan that takes long for a few
//! parameters shows in the mean only.

use crate::model::{Batch, Durations, Times};
use serde::{Deserialize, Serialize};

/// The factor by which times of plans must differ.
const FACTOR: f64 = 1.5;

/// The times of executions: their number, their mean and their spread, and those of their logarithms. Zero
/// bytes are no executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Sample {
    /// The number of executions.
    pub calls: u64,
    /// The mean time in milliseconds.
    pub mean_ms: f64,
    /// The sum of squared differences from the mean. Single precision is enough for this and what follows.
    square_ms: f32,
    /// The mean of the binary logarithms.
    mean_log: f32,
    /// The sum of squared differences from that mean.
    square_log: f32,
    /// How much longer plans of other queries took meanwhile than before, as a binary logarithm: the mean
    /// over the executions.
    others: f32,
}

impl Sample {
    /// Returns one execution.
    pub fn single(ms: f64) -> Self {
        let mut times = Times::default();
        times.add(ms);
        Sample::of(&times, &Durations::default())
    }

    /// Returns the executions of which these are the times.
    pub fn of(times: &Times, durations: &Durations) -> Self {
        let stddev = times.stddev_ms();
        let log_variance = match times.calls {
            0 | 1 => 0.0,
            _ => durations.log2_variance(times.min_ms, times.max_ms),
        };
        Sample {
            calls: times.calls,
            mean_ms: times.mean_ms,
            square_ms: (stddev * stddev * times.calls as f64) as f32,
            mean_log: times.mean_log2() as f32,
            square_log: (log_variance * times.calls as f64) as f32,
            others: 0.0,
        }
    }

    /// Returns the same executions, while plans of other queries took this much longer than before.
    pub fn among(self, others: f32) -> Self {
        Sample { others, ..self }
    }

    /// Adds executions that were counted separately (the parallel form of Welford's algorithm, by Chan and
    /// others).
    pub fn merge(&mut self, other: &Sample) {
        if self.calls == 0 || other.calls == 0 {
            if self.calls == 0 {
                *self = *other;
            }
            return;
        }
        let (ours, theirs) = (self.calls as f64, other.calls as f64);
        let part = theirs / (ours + theirs);
        self.calls = self.calls.saturating_add(other.calls);
        let difference = other.mean_ms - self.mean_ms;
        self.mean_ms += difference * part;
        self.square_ms += other.square_ms + (difference * difference * ours * part) as f32;
        let difference = f64::from(other.mean_log) - f64::from(self.mean_log);
        self.mean_log += (difference * part) as f32;
        self.square_log += other.square_log + (difference * difference * ours * part) as f32;
        self.others += (other.others - self.others) * part as f32;
    }

    /// Returns one standard error of the mean, in milliseconds. One execution has none.
    pub fn error_ms(&self) -> Option<f64> {
        self.times().error()
    }

    /// Returns the geometric mean in milliseconds.
    pub fn typical_ms(&self) -> f64 {
        f64::from(self.mean_log).exp2()
    }

    /// Returns whether the times of two plans differ more than by chance.
    #[cfg(test)]
    pub(super) fn differs(&self, after: &Sample) -> bool {
        let typical = self.logarithms().change(&after.logarithms());
        typical.or_else(|| self.times().change(&after.times())).is_some()
    }

    fn times(&self) -> Moments {
        Moments {
            count: self.calls as f64,
            mean: self.mean_ms,
            square: f64::from(self.square_ms),
        }
    }

    fn logarithms(&self) -> Moments {
        Moments {
            count: self.calls as f64,
            mean: f64::from(self.mean_log),
            square: f64::from(self.square_log),
        }
    }
}

/// Executions of one plan that are added together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executions {
    /// Their times.
    pub sample: Sample,
    /// When the first one ended, in microseconds since 2000-01-01 UTC.
    pub first_at: i64,
    /// When the last one ended.
    pub last_at: i64,
}

impl Executions {
    /// Returns the executions of a batch.
    pub fn of(batch: &Batch) -> Self {
        match batch {
            Batch::Execution(execution) => Executions {
                sample: Sample::single(execution.run.elapsed_ms),
                first_at: execution.run.at,
                last_at: execution.run.at,
            },
            Batch::Explained(at, _) | Batch::Late(_, at, _) => Executions {
                sample: Sample::default(),
                first_at: *at,
                last_at: *at,
            },
            Batch::Sum(plan, ..) => Executions {
                sample: Sample::of(&plan.times, &plan.durations),
                first_at: plan.first_seen_at,
                last_at: plan.last_seen_at,
            },
        }
    }
}

/// The number of values, their mean, and the sum of squared differences from it.
#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    square: f64,
}

impl Moments {
    /// Returns one standard error of the mean. One value has none.
    fn error(&self) -> Option<f64> {
        (self.count >= 2.0).then(|| (self.square / (self.count - 1.0) / self.count).sqrt())
    }

    /// Returns the difference between the means of later values and of these, if it is more than chance:
    /// Welch's test at 95 %. Without two values of each, nothing can be told.
    fn change(&self, later: &Moments) -> Option<f64> {
        let (error_before, error_after) = (self.error()?, later.error()?);
        let (variance_before, variance_after) = (error_before * error_before, error_after * error_after);
        let variance = variance_before + variance_after;
        let per_degree = variance_before * variance_before / (self.count - 1.0)
            + variance_after * variance_after / (later.count - 1.0);
        let degrees = if per_degree > 0.0 {
            (variance * variance / per_degree).max(1.0)
        } else {
            f64::INFINITY
        };
        let difference = later.mean - self.mean;
        (difference.abs() > critical(degrees) * variance.sqrt()).then_some(difference)
    }
}

/// How the executions after a change compare with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A typical execution takes longer.
    Slower,
    /// A typical execution takes less time.
    Faster,
    /// The mean is longer, but a typical execution is not.
    SlowerOnAverage,
    /// The mean is shorter, but a typical execution is not.
    FasterOnAverage,
    /// The difference may be chance.
    Unknown,
}

impl Verdict {
    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::SlowerOnAverage => "slower on average",
            Verdict::FasterOnAverage => "faster on average",
            Verdict::Unknown => "no difference that can be told",
        }
    }
}

/// Compares the times of two plans: the means of their logarithms, and their means. If the means say the
/// opposite, or the logarithms say nothing, the verdict is that of the means.
pub fn verdict(before: &Sample, after: &Sample) -> Verdict {
    let others = f64::from(after.others - before.others);
    let is_slower = |log: f64| {
        // If others have changed in the other direction, that says nothing about this plan.
        let own = log - others.clamp(log.min(0.0), log.max(0.0));
        (own.abs() >= FACTOR.log2()).then_some(own > 0.0)
    };
    let typical = before.logarithms().change(&after.logarithms());
    let mean = before.times().change(&after.times());
    let mean = mean.map(|_| log2_ratio(before.mean_ms, after.mean_ms));
    match (typical.and_then(is_slower), mean.and_then(is_slower)) {
        (None, None) => Verdict::Unknown,
        (Some(true), None | Some(true)) => Verdict::Slower,
        (Some(false), None | Some(false)) => Verdict::Faster,
        (None | Some(false), Some(true)) => Verdict::SlowerOnAverage,
        (None | Some(true), Some(false)) => Verdict::FasterOnAverage,
    }
}

/// Returns the binary logarithm of the ratio of two times.
fn log2_ratio(before_ms: f64, after_ms: f64) -> f64 {
    const MIN_MS: f64 = 1e-6;
    after_ms.max(MIN_MS).log2() - before_ms.max(MIN_MS).log2()
}

/// Returns how many milliseconds the executions after a change took longer in all than they would have taken
/// before; less than 0 if they took less. It is the difference of the means, if that is more than chance;
/// else that of the geometric means.
pub fn extra_ms(before: &Sample, after: &Sample) -> Option<f64> {
    if before.calls == 0 || after.calls == 0 {
        return None;
    }
    let change = before.times().change(&after.times());
    Some(change.unwrap_or(after.typical_ms() - before.typical_ms()) * after.calls as f64)
}

/// Returns how many standard errors a difference needs to be more than chance, at 95 %: an approximation of
/// Student's distribution within 4 %.
fn critical(degrees: f64) -> f64 {
    1.96 + 2.4 / degrees + 8.4 / degrees.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: &[f64]) -> Sample {
        let mut sample = Sample::default();
        times.iter().for_each(|&ms| sample.merge(&Sample::single(ms)));
        sample
    }

    /// The same as one batch.
    fn batch(times: &[f64]) -> Sample {
        let (mut all, mut durations) = (Times::default(), Durations::default());
        for &ms in times {
            all.add(ms);
            durations.add(ms);
        }
        Sample::of(&all, &durations)
    }

    #[test]
    fn mean_and_standard_error_are_those_of_the_times() {
        let times = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let mut parts = batch(&times[..3]);
        parts.merge(&batch(&times[3..]));
        for sample in [sample(&times), batch(&times), parts] {
            assert!(sample.calls == 8 && (sample.mean_ms - 5.0).abs() < 1e-12);
            let error = sample.error_ms().expect("several executions");
            assert!((error - (32.0f64 / 7.0 / 8.0).sqrt()).abs() < 1e-6, "{error}");
            let typical = times.iter().product::<f64>().powf(1.0 / 8.0);
            assert!((sample.typical_ms() / typical - 1.0).abs() < 1e-3, "{sample:?}");
            let logs = times.map(f64::log2);
            let mean = logs.iter().sum::<f64>() / 8.0;
            let square = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            assert!(
                (f64::from(sample.square_log) / square - 1.0).abs() < 0.2,
                "{sample:?}, not {square}"
            );
        }
        assert_eq!(sample(&[3.0]).error_ms(), None);
        assert_eq!(Sample::default().error_ms(), None);
    }

    #[test]
    fn a_verdict_needs_a_difference_beyond_chance() {
        for make in [sample, batch] {
            let of = |before: &[f64], after: &[f64]| verdict(&make(before), &make(after));
            assert_eq!(of(&[1.0, 1.1, 0.9], &[5.0, 5.2, 4.9]), Verdict::Slower);
            assert_eq!(of(&[5.0, 5.2, 4.9], &[1.0, 1.1, 0.9]), Verdict::Faster);
            assert_eq!(of(&[1.0, 1.1, 0.9], &[1.05, 1.1, 0.95]), Verdict::Unknown);
            assert_eq!(of(&[1.0], &[500.0, 500.0]), Verdict::Unknown);
            assert_eq!(of(&[1.0, 1.0], &[500.0]), Verdict::Unknown);
            assert_eq!(of(&[], &[1.0, 1.0]), Verdict::Unknown);
            // Two executions of each say little.
            assert_eq!(of(&[1.0, 2.0], &[3.0, 4.0]), Verdict::Unknown);
            assert_eq!(of(&[1.0, 1.0], &[1.0, 1.0]), Verdict::Unknown);
            assert_eq!(of(&[1.0, 1.0], &[2.0, 2.0]), Verdict::Slower);
        }
    }

    #[test]
    fn a_verdict_needs_a_factor_beyond_that_of_other_plans() {
        let times =
            |ms: f64| -> Vec<f64> { (0..100).map(|i| ms * (1.0 + 0.01 * f64::from(i % 7))).collect() };
        for make in [sample, batch] {
            let of = |after_ms: f64, others: [f64; 2]| {
                let [before, after] = [(1.0, others[0]), (after_ms, others[1])]
                    .map(|(ms, others)| make(&times(ms)).among(others.log2() as f32));
                verdict(&before, &after)
            };
            for (after_ms, others, expected) in [
                (1.4, [1.0, 1.0], Verdict::Unknown),
                (1.6, [1.0, 1.0], Verdict::Slower),
                (0.7, [1.0, 1.0], Verdict::Unknown),
                (0.6, [1.0, 1.0], Verdict::Faster),
                // All plans have become slower, and this one not much more.
                (4.0, [1.0, 3.0], Verdict::Unknown),
                (4.0, [0.5, 1.5], Verdict::Unknown),
                (6.0, [1.0, 3.0], Verdict::Slower),
                (0.3, [1.0, 0.4], Verdict::Unknown),
                // It has not become faster because others have become slower.
                (1.0, [1.0, 4.0], Verdict::Unknown),
                (1.6, [1.0, 0.2], Verdict::Slower),
            ] {
                assert_eq!(of(after_ms, others), expected, "{after_ms}, {others:?}");
            }
        }
    }

    /// Each of these waited for a lock once. The plans differ by a factor of 500.
    #[test]
    fn one_long_wait_does_not_hide_a_difference() {
        let times = |ms: f64, wait: Option<usize>| -> Vec<f64> {
            (0..50)
                .map(|i| match wait {
                    Some(at) if at == i => 5_000.0,
                    _ => ms * (1.0 + 0.01 * (i % 7) as f64),
                })
                .collect()
        };
        for make in [sample, batch] {
            for waits in [(Some(3), None), (None, Some(40)), (Some(3), Some(40))] {
                let (fast, slow) = (make(&times(0.01, waits.0)), make(&times(5.0, waits.1)));
                assert_eq!(verdict(&fast, &slow), Verdict::Slower, "{waits:?}");
                assert_eq!(verdict(&slow, &fast), Verdict::Faster, "{waits:?}");
                let extra = extra_ms(&fast, &slow).expect("executions");
                assert!((225.0..320.0).contains(&extra), "{waits:?}: {extra}");
            }
        }
    }

    /// A generic plan that is faster for most parameters, and a thousand times slower for 5 % of them.
    #[test]
    fn a_plan_that_is_slow_for_a_few_parameters_is_slower_on_average() {
        let before = batch(&[5.0, 5.5, 4.8, 5.1].repeat(100));
        let mut times = vec![1.0; 380];
        times.extend([1_000.0; 20]);
        let after = batch(&times);
        assert_eq!(verdict(&before, &after), Verdict::SlowerOnAverage);
        assert_eq!(verdict(&after, &before), Verdict::FasterOnAverage);
        let extra = extra_ms(&before, &after).expect("executions");
        let sum = 380.0 + 20.0 * 1_000.0 - 400.0 * 5.1;
        assert!((extra / sum - 1.0).abs() < 1e-6, "{extra}");
    }

    #[test]
    fn critical_values_are_those_of_students_distribution() {
        for (degrees, truth) in [
            (1.0, 12.71),
            (2.0, 4.30),
            (3.0, 3.18),
            (5.0, 2.57),
            (10.0, 2.23),
            (100.0, 1.98),
        ] {
            let found = critical(degrees);
            assert!(
                (found / truth - 1.0f64).abs() < 0.04,
                "{degrees}: {found}, not {truth}"
            );
        }
    }
}
