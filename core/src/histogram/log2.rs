//! Histograms of times whose buckets are powers of two.

use crate::float::at_least;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The buckets of a histogram of times.
///
/// Bucket `i` is for times from `UNIT_NS * 2^i` to `UNIT_NS * 2^(i+1)` nanoseconds. The first bucket is also
/// for shorter times, the last for longer ones.
#[derive(Clone, Copy, Debug)]
pub struct Log2<const BUCKETS: usize, const UNIT_NS: u32>;

impl<const BUCKETS: usize, const UNIT_NS: u32> Log2<BUCKETS, UNIT_NS> {
    /// The number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// Returns the bucket of a time. It is less than `BUCKETS`.
    #[inline(always)]
    pub fn bucket(ns: f64) -> usize {
        // The exponent of a double is its logarithm. `max` also replaces negative values and NaN.
        let units = at_least(ns / f64::from(UNIT_NS), 1.0);
        ((units.to_bits() >> 52) as usize - 1023).min(BUCKETS - 1)
    }

    /// Returns the bounds of a bucket in microseconds. The last bucket has no upper one.
    pub fn bounds_us(bucket: usize) -> (f64, Option<f64>) {
        let power = |exponent: usize| f64::from(UNIT_NS) * 2f64.powi(exponent as i32) / 1e3;
        let from = if bucket == 0 { 0.0 } else { power(bucket) };
        (from, (bucket + 1 < BUCKETS).then(|| power(bucket + 1)))
    }
}

/// The counts of a histogram that several processes share. Zero bytes are an empty histogram.
#[repr(C)]
#[derive(Debug)]
pub struct SharedCounts<const BUCKETS: usize>([AtomicU64; BUCKETS]);

impl<const BUCKETS: usize> Default for SharedCounts<BUCKETS> {
    fn default() -> Self {
        SharedCounts([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl<const BUCKETS: usize> SharedCounts<BUCKETS> {
    /// Adds to the count of a bucket. Does nothing if the bucket does not exist, so that it cannot panic.
    #[inline(always)]
    pub fn add(&self, bucket: usize, count: u64) {
        if let Some(sum) = self.0.get(bucket) {
            sum.fetch_add(count, Relaxed);
        }
    }

    /// Adds one to the count of a bucket. Only one process may write the counts. It does nothing if the
    /// bucket does not exist.
    #[inline(always)]
    pub fn add_alone(&self, bucket: usize) {
        if let Some(sum) = self.0.get(bucket) {
            sum.store(sum.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Takes one from the count of a bucket, which [`SharedCounts::add_alone`] has added. Only one process
    /// may write the counts.
    #[inline(always)]
    pub fn take_alone(&self, bucket: usize) {
        if let Some(sum) = self.0.get(bucket) {
            sum.store(sum.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }

    /// Returns a copy of the counts.
    pub fn copy(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].load(Relaxed))
    }

    /// Adds counts that were copied from another histogram.
    pub fn add_all(&self, counts: &[u64; BUCKETS]) {
        for (bucket, &count) in counts.iter().enumerate() {
            self.add(bucket, count);
        }
    }

    /// Sets all counts to zero.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_of_a_nanosecond() {
        type Scale = Log2<32, 1>;
        assert_eq!(
            [0.0, 1.0, 1.9, 2.0, 3.9, 4.0, 1023.0, 1024.0].map(Scale::bucket),
            [0, 0, 0, 1, 1, 2, 9, 10]
        );
        assert_eq!([-5.0, f64::NAN, 1e30].map(Scale::bucket), [0, 0, 31]);
        assert_eq!([-0.0, 1e-9].map(Scale::bucket), [0, 0]);
        assert_eq!(Scale::bounds_us(0), (0.0, Some(0.002)));
        assert_eq!(Scale::bounds_us(10), (1.024, Some(2.048)));
        assert_eq!(Scale::bounds_us(31).1, None);
    }

    #[test]
    fn buckets_are_powers_of_two_of_a_microsecond() {
        type Scale = Log2<28, 500>;
        let bucket = |ns: u64| Scale::bucket(ns as f64);
        assert_eq!(
            [0, 999, 1_000, 1_999, 2_000, 3_999, 4_000, 5_000_000, u64::MAX].map(bucket),
            [0, 0, 1, 1, 2, 2, 3, 13, 27]
        );
        assert_eq!(Scale::bounds_us(0), (0.0, Some(1.0)));
        assert_eq!(Scale::bounds_us(1), (1.0, Some(2.0)));
        assert_eq!(Scale::bounds_us(13), (4096.0, Some(8192.0)));
        assert_eq!(Scale::bounds_us(27), (67_108_864.0, None));
        for ns in (0..40).map(|shift| 1234u64 << shift) {
            let (from, to) = Scale::bounds_us(bucket(ns));
            let us = ns as f64 / 1e3;
            assert!(from <= us && to.is_none_or(|to| us < to), "{ns}");
        }
    }

    #[test]
    fn shared_counts_are_added_and_reset() {
        let counts = SharedCounts::<4>::default();
        counts.add(1, 2);
        counts.add(9, 1);
        counts.add_all(&[1, 1, 0, 5]);
        assert_eq!(counts.copy(), [1, 3, 0, 5]);
        counts.reset();
        assert_eq!(counts.copy(), [0; 4]);
    }
}
