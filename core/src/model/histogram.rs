//! The histogram of many executions, in half of the memory.

use crate::histogram::{BUCKETS, CallTimes, Counted, Histogram, HitSums, place, quantile};
use serde::{Deserialize, Serialize};

/// How many buckets may count more calls than fit into 32 bits.
const LARGE: usize = 8;

/// Counts of calls by their time, summed over many executions.
///
/// A count has 32 bits. What exceeds them goes to one of a few larger counts, so sums are exact. If more than
/// [`LARGE`] buckets need one, which takes billions of timed calls in each of them, the others stay at the
/// largest count.
///
/// Zero bytes are an empty histogram.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct HistogramTotals {
    /// A bit for each count that is not zero.
    touched: u64,
    /// The low 32 bits of the counts.
    low: [[u32; BUCKETS]; 2],
    /// The high 32 bits of large counts.
    high: [u32; LARGE],
    /// To which bucket each of `high` belongs. Valid if that is not zero.
    owner: [u8; LARGE],
    /// What tells how long a hit takes.
    pub hits: HitSums,
}

impl HistogramTotals {
    /// Clears all counts.
    #[inline(always)]
    pub fn clear(&mut self) {
        *self = HistogramTotals::default();
    }

    /// Adds the histogram of an execution.
    #[inline(always)]
    pub fn add(&mut self, execution: &Histogram) {
        for (at, calls) in execution.counted() {
            self.add_to(at, calls);
        }
        for at in execution.listed() {
            self.add_to(at, 1);
        }
        self.hits.merge(&execution.hits);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &HistogramTotals) {
        for (read, bucket, calls) in other.counts() {
            self.add_to(place(bucket, read), calls);
        }
        self.hits.merge(&other.hits);
    }

    /// Counts several calls in the bucket at this place.
    #[inline(always)]
    fn add_to(&mut self, at: usize, calls: u64) {
        let at = at % (2 * BUCKETS);
        let low = &mut self.low.as_flattened_mut()[at];
        let sum = u64::from(*low).wrapping_add(calls);
        *low = sum as u32;
        self.touched |= 1 << at;
        if sum > u64::from(u32::MAX) {
            self.carry(at, (sum >> 32) as u32);
        }
    }

    /// Adds to the high bits of a count.
    #[cold]
    #[inline(never)]
    fn carry(&mut self, at: usize, high: u32) {
        for (sum, owner) in self.high.iter_mut().zip(&mut self.owner) {
            if *sum == 0 || usize::from(*owner) == at {
                *owner = at as u8;
                *sum = sum.saturating_add(high);
                return;
            }
        }
        self.low[at / BUCKETS][at % BUCKETS] = u32::MAX;
    }

    /// Returns the counts of the buckets in use: whether the calls read blocks, the bucket, and the number of
    /// calls.
    pub fn counts(&self) -> impl Iterator<Item = (bool, usize, u64)> {
        (0..2 * BUCKETS)
            .filter(|at| self.touched >> at & 1 == 1)
            .map(|at| {
                let mut large = self.high.iter().zip(&self.owner);
                let high = large.find(|(high, owner)| **high > 0 && usize::from(**owner) == at);
                let high = high.map_or(0, |(high, _)| u64::from(*high));
                let low = self.low[at / BUCKETS][at % BUCKETS];
                (at >= BUCKETS, at % BUCKETS, high << 32 | u64::from(low))
            })
    }

    /// Returns the milliseconds that a part of the calls did not exceed: 0.5 is the median. Returns `None` if
    /// no call was timed. The result is in the bucket of the true value, so it is at most twice or half as
    /// long. No call took longer than `longest_ms`.
    pub fn quantile_ms(&self, part: f64, longest_ms: f64) -> Option<f64> {
        let mut counts = [0.0; BUCKETS];
        for (_, bucket, calls) in self.counts() {
            counts[bucket] += calls as f64;
        }
        let counted = counts.into_iter().enumerate().map(|(bucket, count)| {
            let (from_us, to_us) = CallTimes::bounds_us(bucket);
            let from = from_us / 1e3;
            let to = to_us
                .map_or(f64::INFINITY, |us| us / 1e3)
                .min(longest_ms.max(from));
            Counted { from, to, count }
        });
        quantile(counted, part)
    }

    /// Returns the same counts as the histogram of one execution.
    pub fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (read, bucket, calls) in self.counts() {
            histogram.add_to(bucket, read, calls);
        }
        histogram.hits = self.hits;
        histogram
    }
}

const _: () = assert!(2 * BUCKETS <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bucket: usize, read: bool, calls: u64) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.add_to(bucket, read, calls);
        histogram
    }

    fn counts(totals: &HistogramTotals) -> Vec<(bool, usize, u64)> {
        totals.counts().collect()
    }

    #[test]
    fn sums_are_exact_beyond_32_bits() {
        const MAX: u64 = u32::MAX as u64;
        let mut totals = HistogramTotals::default();
        totals.add(&one(0, false, MAX));
        totals.add(&one(6, false, 5));
        totals.add(&one(0, true, 3));
        assert_eq!(counts(&totals), [(false, 0, MAX), (false, 6, 5), (true, 0, 3)]);
        totals.add(&one(0, false, 1));
        totals.add(&one(0, true, 10 * MAX));
        totals.add(&one(0, false, 7 * MAX));
        let expected = [(false, 0, 8 * MAX + 1), (false, 6, 5), (true, 0, 10 * MAX + 3)];
        assert_eq!(counts(&totals), expected);
        let histogram = totals.to_histogram();
        assert_eq!(histogram.counts().collect::<Vec<_>>(), expected);
        let mut twice = totals;
        twice.merge(&totals);
        assert_eq!(counts(&twice)[0], (false, 0, 16 * MAX + 2));
        assert_eq!(counts(&twice)[2], (true, 0, 20 * MAX + 6));
        // Counts from before `clear` do not come back.
        totals.clear();
        assert_eq!(counts(&totals), []);
        totals.add(&one(0, true, 2));
        assert_eq!(counts(&totals), [(true, 0, 2)]);
    }

    #[test]
    fn listed_calls_are_added() {
        let mut execution = Histogram::default();
        let calls = [(100.0, false), (3.0, false), (100.0, true), (120.0, false)];
        calls.into_iter().for_each(|(ns, read)| execution.list(ns, read));
        execution.count(70.0, false);
        let mut totals = HistogramTotals::default();
        totals.add(&execution);
        assert_eq!(counts(&totals), [(false, 1, 1), (false, 6, 3), (true, 6, 1)]);
    }

    #[test]
    fn percentiles_are_in_the_bucket_of_the_true_value() {
        let mut totals = HistogramTotals::default();
        assert_eq!(totals.quantile_ms(0.5, 10.0), None);
        // 90 calls of 1 to 2 us, half of them read; 10 of at least 2.1 s, and of at most 3 s.
        totals.add(&one(10, false, 45));
        totals.add(&one(10, true, 45));
        totals.add(&one(BUCKETS - 1, false, 10));
        let found = [0.5, 0.9, 0.95, 1.0].map(|part| totals.quantile_ms(part, 3_000.0).expect("calls"));
        let expected = [0.001_593, 0.002_048, 2_573.742, 3_000.0];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found}, not {expected}");
        }
        // The longest time may not be known exactly.
        assert_eq!(totals.quantile_ms(1.0, 1.0), Some(2_147.483_648));
    }

    #[test]
    fn a_count_without_high_bits_stops_at_the_largest() {
        let mut totals = HistogramTotals::default();
        for bucket in 0..=LARGE {
            totals.add(&one(bucket, false, 1 << 33 | 1));
        }
        let counts = counts(&totals);
        assert_eq!(counts[LARGE - 1], (false, LARGE - 1, 1 << 33 | 1));
        assert_eq!(counts[LARGE], (false, LARGE, u64::from(u32::MAX)));
    }
}
