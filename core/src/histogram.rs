//! How long a node's timed calls took, in powers of two of a nanosecond, split by whether they read blocks inside:
//! a mean of calls that hit and calls that read means nothing.

use serde::{Deserialize, Serialize};

/// Bucket `i` holds calls of 2^i to 2^(i+1) nanoseconds; the first also shorter, the last also longer ones (2.1 s).
pub const BUCKETS: usize = 32;

/// Counts of calls by their time.
///
/// Most statements touch few of the buckets, and are short: a bucket's count means something only where its bit is
/// set, so that neither beginning anew nor adding need go through them all.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct Histogram {
    /// A bit for each bucket in use, the reading calls' in the upper half.
    touched: u64,
    /// Calls that read no block.
    plain: [u64; BUCKETS],
    /// Calls that read blocks: from disk, or from a work file.
    reading: [u64; BUCKETS],
}

/// The bucket of a call of so many nanoseconds.
#[inline(always)]
pub fn bucket(ns: f64) -> usize {
    // Negative and huge times saturate.
    let ns = ns as u64;
    (63 - (ns | 1).leading_zeros() as usize).min(BUCKETS - 1)
}

/// The bounds of a bucket in microseconds; none above the last.
pub fn bounds_us(bucket: usize) -> (f64, Option<f64>) {
    let from = if bucket == 0 {
        0.0
    } else {
        2f64.powi(bucket as i32) / 1e3
    };
    (
        from,
        (bucket + 1 < BUCKETS).then(|| 2f64.powi(bucket as i32 + 1) / 1e3),
    )
}

impl Histogram {
    /// Forgets all counts.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.touched = 0;
    }

    /// Counts a call.
    #[inline(always)]
    pub fn count(&mut self, ns: f64, read: bool) {
        self.add_to(bucket(ns), read, 1);
    }

    /// Counts several calls in a bucket.
    #[inline(always)]
    pub fn add_to(&mut self, bucket: usize, read: bool, calls: u64) {
        let counts = if read { &mut self.reading } else { &mut self.plain };
        let bit = 1 << ((bucket + if read { BUCKETS } else { 0 }) & 63);
        // Within bounds by `bucket`; written so that no panic remains in the hot path.
        if let Some(count) = counts.get_mut(bucket) {
            let so_far = if self.touched & bit == 0 { 0 } else { *count };
            *count = so_far + calls;
            self.touched |= bit;
        }
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (read, bucket, calls) in other.counts() {
            self.add_to(bucket, read, calls);
        }
    }

    /// The counts of the buckets in use: those of plain calls, then those of reading ones.
    pub fn counts(&self) -> impl Iterator<Item = (bool, usize, u64)> {
        let mut left = self.touched;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let (read, bucket) = (at >= BUCKETS, at % BUCKETS);
            let counts = if read { &self.reading } else { &self.plain };
            (at < 2 * BUCKETS).then(|| (read, bucket, counts[bucket]))
        })
    }
}

const _: () = assert!(2 * BUCKETS == u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(
            [0.0, 1.0, 1.9, 2.0, 3.9, 4.0, 1023.0, 1024.0].map(bucket),
            [0, 0, 0, 1, 1, 2, 9, 10]
        );
        assert_eq!([-5.0, f64::NAN, 1e30].map(bucket), [0, 0, BUCKETS - 1]);
        assert_eq!(bounds_us(0), (0.0, Some(0.002)));
        assert_eq!(bounds_us(10), (1.024, Some(2.048)));
        assert_eq!(bounds_us(BUCKETS - 1).1, None);
    }

    #[test]
    fn readers_are_apart() {
        let mut histogram = Histogram::default();
        histogram.count(100.0, false);
        histogram.count(100.0, true);
        histogram.count(90.0, true);
        let mut sum = Histogram::default();
        sum.add(&histogram);
        sum.add(&histogram);
        let found = |histogram: &Histogram| histogram.counts().collect::<Vec<_>>();
        assert_eq!(found(&sum), [(false, 6, 2), (true, 6, 4)]);
        sum.clear();
        assert_eq!(found(&sum), []);
        // What was counted before does not come back.
        sum.count(100.0, true);
        assert_eq!(found(&sum), [(true, 6, 1)]);
        sum.add_to(BUCKETS - 1, true, 3);
        sum.add_to(0, false, 5);
        assert_eq!(found(&sum), [(false, 0, 5), (true, 6, 1), (true, 31, 3)]);
    }
}
