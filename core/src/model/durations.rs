//! How long the executions of a plan took: a histogram, from which percentiles are read.

use crate::histogram::{Counted, quantile};
use serde::{Deserialize, Serialize};

/// The number of octaves. The histogram begins at 2^-10 ms (about a microsecond) and ends at 2^20 ms (17.5
/// minutes).
const OCTAVES: usize = 30;
/// The number of buckets in an octave. They have the same width.
const PARTS: usize = 4;
const BUCKETS: usize = OCTAVES * PARTS;
/// The number of low bits of a double that do not select the bucket: all but the exponent and two bits of the
/// mantissa.
const IGNORED_BITS: u32 = 50;
/// What the other bits of 2^-10 are.
const FIRST: i64 = (1023 - 10) * PARTS as i64;

/// Counts of executions by their time. The first bucket is also for shorter times, the last one for longer
/// ones.
///
/// If a count would overflow, all counts are halved. So of very many executions, the recent ones have more
/// weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    counts: [[u16; PARTS]; OCTAVES],
}

impl Durations {
    /// Adds an execution. Each measured statement calls this.
    #[inline(always)]
    pub fn add(&mut self, ms: f64) {
        let count = self.counts.as_flattened_mut().get_mut(unlimited_bucket(ms));
        match count.and_then(|count| Some((count.checked_add(1)?, count))) {
            Some((more, count)) => *count = more,
            None => self.add_rare(ms),
        }
    }

    /// Adds an execution whose time is out of range, or whose count is full.
    #[cold]
    #[inline(never)]
    fn add_rare(&mut self, ms: f64) {
        let bucket = bucket(ms);
        let counts = self.counts.as_flattened_mut();
        if counts[bucket] == u16::MAX {
            counts.iter_mut().for_each(|count| *count /= 2);
        }
        counts[bucket] += 1;
    }

    /// Adds executions that were counted separately.
    pub fn merge(&mut self, other: &Durations) {
        let others = other.counts.as_flattened();
        let counts = self.counts.as_flattened_mut();
        // Both loops have no branches, so the compiler makes vector instructions of them.
        let pairs = counts.iter().zip(others);
        let overflow = pairs.fold(0, |overflow, (count, &other)| {
            overflow | (count.saturating_add(other) ^ count.wrapping_add(other))
        });
        if overflow == 0 {
            for (count, &other) in counts.iter_mut().zip(others) {
                *count = count.wrapping_add(other);
            }
        } else {
            for (count, &other) in counts.iter_mut().zip(others) {
                *count = count.midpoint(other);
            }
        }
    }

    /// Returns the time that a part of the executions did not exceed: 0.5 is the median. Returns `None` if
    /// there are none. The result is in the bucket of the true value, so the error is less than a quarter.
    /// `min_ms` and `max_ms` are the shortest and the longest time of all executions.
    pub fn percentile(&self, part: f64, min_ms: f64, max_ms: f64) -> Option<f64> {
        let counts = self.counts.as_flattened().iter().enumerate();
        let counted = counts.filter(|(_, count)| **count > 0).map(|(bucket, &count)| {
            let (from, to) = bounds(bucket, min_ms, max_ms);
            let count = f64::from(count);
            Counted { from, to, count }
        });
        quantile(counted, part)
    }
}

impl Durations {
    /// Where the first octave begins, in microseconds.
    pub const FIRST_US: f64 = 1e3 / 1024.0;

    /// Returns the counts of the octaves: each ends at twice the time at which it begins.
    pub fn octaves(&self) -> impl Iterator<Item = u64> {
        self.counts
            .iter()
            .map(|parts| parts.iter().copied().map(u64::from).sum())
    }
}

/// Shorter times count as this many milliseconds in logarithms: a nanosecond.
const MIN_MS: f64 = 1e-6;

impl Durations {
    /// Returns the variance of the times' binary logarithms, as if the times of a bucket were spread evenly
    /// in it. `min_ms` and `max_ms` are the shortest and the longest time. It is 0 if there are no
    /// executions.
    pub fn log2_variance(&self, min_ms: f64, max_ms: f64) -> f64 {
        let (mut total, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for (bucket, &count) in self.counts.as_flattened().iter().enumerate() {
            if count == 0 {
                continue;
            }
            let count = f64::from(count);
            let (from, to) = bounds(bucket, min_ms, max_ms);
            let (from, to) = (from.max(MIN_MS).log2(), to.max(MIN_MS).log2());
            total += count;
            let difference = f64::midpoint(from, to) - mean;
            mean += difference * count / total;
            squares += count * difference * (f64::midpoint(from, to) - mean);
            squares += count * (to - from) * (to - from) / 12.0;
        }
        if total > 0.0 { squares / total } else { 0.0 }
    }
}

/// Returns the bucket of a time: the exponent of the number and two bits of its mantissa. It is `BUCKETS` or
/// more if the time is out of range.
#[inline(always)]
fn unlimited_bucket(ms: f64) -> usize {
    (((ms.to_bits() as i64) >> IGNORED_BITS) - FIRST) as usize
}

/// Returns the bucket of any time.
fn bucket(ms: f64) -> usize {
    let is_short = ms.is_sign_negative() || ms < 1.0;
    let bucket = unlimited_bucket(ms);
    match bucket < BUCKETS {
        true => bucket,
        false if is_short => 0,
        false => BUCKETS - 1,
    }
}

/// Returns the bounds of a bucket in milliseconds, as far as they lie between the shortest and the longest
/// time.
fn bounds(bucket: usize, min_ms: f64, max_ms: f64) -> (f64, f64) {
    let bound = |bucket: usize| f64::from_bits(((bucket as i64 + FIRST) << IGNORED_BITS) as u64);
    let from = if bucket == 0 { min_ms } else { bound(bucket) };
    let to = if bucket + 1 == BUCKETS {
        max_ms
    } else {
        bound(bucket + 1)
    };
    (from.max(min_ms).min(max_ms), to.min(max_ms).max(min_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::Xoroshiro128PlusPlus;

    fn of(times: &[f64]) -> (Durations, f64, f64) {
        let mut durations = Durations::default();
        times.iter().for_each(|&ms| durations.add(ms));
        let min = times.iter().copied().fold(f64::INFINITY, f64::min);
        let max = times.iter().copied().fold(0.0, f64::max);
        (durations, min, max)
    }

    #[test]
    fn buckets_are_quarters_of_octaves() {
        let first = 1.0 / 1024.0;
        assert_eq!(
            [0.0, first / 2.0, first, first * 1.24, first * 1.25, first * 2.0].map(bucket),
            [0, 0, 0, 0, 1, 4]
        );
        assert_eq!([1.0, 1.25, 1.5, 1.75, 2.0].map(bucket), [40, 41, 42, 43, 44]);
        assert_eq!([-1.0, -0.0].map(bucket), [0, 0]);
        assert_eq!([1e6, 1e9, f64::INFINITY, f64::NAN].map(bucket), [119; 4]);
        for bucket_number in 1..BUCKETS - 1 {
            let (from, to) = bounds(bucket_number, 0.0, f64::INFINITY);
            assert_eq!(bucket(from), bucket_number);
            assert_eq!(bucket(to), bucket_number + 1);
            assert!(to <= from * 1.25, "{from} to {to}");
        }
    }

    #[test]
    fn no_executions_have_no_percentile_and_one_has_its_own_time() {
        assert_eq!(Durations::default().percentile(0.5, 0.0, 0.0), None);
        for ms in [0.0, 0.0003, 0.7, 12.5, 7e6] {
            let (durations, min, max) = of(&[ms]);
            for part in [0.5, 0.95, 0.99] {
                assert_eq!(durations.percentile(part, min, max), Some(ms));
            }
        }
    }

    /// The true values are those of the sorted times.
    #[test]
    fn percentiles_are_in_the_bucket_of_the_true_value() {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(17);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        type Shape = Box<dyn Fn(f64) -> f64>;
        let shapes: [(&str, Shape); 4] = [
            ("uniform", Box::new(|u| 1.0 + 9.0 * u)),
            ("exponential", Box::new(|u| -3.0 * (1.0 - u).ln())),
            ("heavy tail", Box::new(|u| 0.01 / (1.0 - u).powf(1.5))),
            (
                "two modes",
                Box::new(|u| if u < 0.93 { 0.02 + u / 100.0 } else { 40.0 + u }),
            ),
        ];
        for (name, shape) in shapes {
            let mut times: Vec<f64> = (0..20_000).map(|_| shape(uniform())).collect();
            let (durations, min, max) = of(&times);
            times.sort_by(f64::total_cmp);
            for part in [0.5, 0.95, 0.99] {
                let truth = times[(part * times.len() as f64).ceil() as usize - 1];
                let found = durations.percentile(part, min, max).expect("executions");
                let ratio = found / truth;
                assert!(
                    (0.8..=1.25).contains(&ratio),
                    "{name}: {part} is {truth}, not {found}"
                );
            }
        }
    }

    #[test]
    fn the_variance_of_logarithms_is_nearly_that_of_the_times() {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(4711);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        for octaves in [0.5, 2.0, 12.0] {
            let times: Vec<f64> = (0..5_000).map(|_| 0.05 * (octaves * uniform()).exp2()).collect();
            let (durations, min, max) = of(&times);
            let truth: f64 = octaves * octaves / 12.0;
            let found = durations.log2_variance(min, max);
            assert!(
                (found / truth - 1.0).abs() < 0.1,
                "{octaves}: {found}, not {truth}"
            );
        }
        let (same, min, max) = of(&[0.7; 50]);
        assert_eq!(same.log2_variance(min, max), 0.0);
        assert_eq!(Durations::default().log2_variance(0.0, 0.0), 0.0);
        let (short, min, max) = of(&[0.0; 5]);
        assert_eq!(short.log2_variance(min, max), 0.0);
    }

    #[test]
    fn sums_are_those_of_single_executions() {
        let times: Vec<f64> = (1..3_000).map(|i| f64::from(i) * 0.013).collect();
        let (all, ..) = of(&times);
        let mut sum = Durations::default();
        for part in times.chunks(700) {
            sum.merge(&of(part).0);
        }
        assert_eq!(sum, all);
    }

    #[test]
    fn counts_are_halved_before_they_overflow() {
        let mut durations = Durations::default();
        for _ in 0..60_000 {
            durations.add(1.0);
        }
        for _ in 0..20_000 {
            durations.add(8.0);
        }
        let mut sum = durations;
        sum.merge(&durations);
        assert_eq!((sum.counts[10][0], sum.counts[13][0]), (60_000, 20_000));
        for _ in 0..10_000 {
            durations.add(1.0);
        }
        assert_eq!(
            (durations.counts[10][0], durations.counts[13][0]),
            (37_232, 10_000)
        );
        assert_eq!(durations.percentile(0.5, 1.0, 8.0).map(f64::round), Some(1.0));
        let full = Durations {
            counts: [[u16::MAX; PARTS]; OCTAVES],
        };
        sum.merge(&full);
        sum.merge(&full);
        assert!(
            sum.counts
                .as_flattened()
                .iter()
                .all(|&count| count >= u16::MAX / 2)
        );
    }
}
