//! How long a node's timed calls took, in powers of two of a nanosecond, split by whether they read blocks inside:
//! a mean of calls that hit and calls that read means nothing.

use serde::{Deserialize, Serialize};

/// Bucket `i` holds calls of 2^i to 2^(i+1) nanoseconds; the first also shorter, the last also longer ones (2.1 s).
pub const BUCKETS: usize = 32;

/// Counts of calls by their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Histogram {
    /// Calls that read no block.
    pub plain: [u64; BUCKETS],
    /// Calls that read blocks: from disk, or from a work file.
    pub reading: [u64; BUCKETS],
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
    /// Counts a call.
    #[inline(always)]
    pub fn count(&mut self, ns: f64, read: bool) {
        let counts = if read { &mut self.reading } else { &mut self.plain };
        // Within bounds by `bucket`; written so that no panic remains in the hot path.
        if let Some(count) = counts.get_mut(bucket(ns)) {
            *count += 1;
        }
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (sum, add) in self.plain.iter_mut().zip(other.plain) {
            *sum += add;
        }
        for (sum, add) in self.reading.iter_mut().zip(other.reading) {
            *sum += add;
        }
    }

    /// All counts: those of plain calls, then those of reading ones.
    pub fn counts(&self) -> impl Iterator<Item = (bool, usize, u64)> {
        let plain = self.plain.into_iter().enumerate().map(|(i, n)| (false, i, n));
        plain.chain(self.reading.into_iter().enumerate().map(|(i, n)| (true, i, n)))
    }
}

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
        let found: Vec<_> = sum.counts().filter(|(.., n)| *n > 0).collect();
        assert_eq!(found, [(false, 6, 2), (true, 6, 4)]);
    }
}
