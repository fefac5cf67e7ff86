//! How long a node's timed calls took, in powers of two of a nanosecond, split by whether they read blocks inside:
//! a mean of calls that hit and calls that read means nothing.

use serde::{Deserialize, Serialize};

/// Bucket `i` holds calls of 2^i to 2^(i+1) nanoseconds; the first also shorter, the last also longer ones (2.1 s).
pub const BUCKETS: usize = 32;

/// Counts of calls by their time.
///
/// Most statements touch few of the buckets, and are short: a bucket's count means something only where its bit is
/// set, so that neither beginning anew nor adding need go through them all.
///
/// Zero bytes are an empty histogram. Memory for histograms is zeroed when it is allocated: [`Histogram::add_to`] reads
/// a count before it decides whether the count means something.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct Histogram {
    /// A bit for each count in use.
    touched: u64,
    /// Calls that read no block, then those that read blocks: from disk, or from a work file.
    counts: [[u64; BUCKETS]; 2],
}

/// The bucket of a call of so many nanoseconds.
#[inline(always)]
pub fn bucket(ns: f64) -> usize {
    // A power of two is its exponent. The first bucket takes all below, and what is no time at all.
    let exponent = (ns.max(1.0).to_bits() >> 52) - 1023;
    (exponent as usize).min(BUCKETS - 1)
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
        let bucket = bucket % BUCKETS;
        let at = bucket + BUCKETS * usize::from(read);
        let in_use = self.touched >> at & 1;
        let count = &mut self.counts[usize::from(read)][bucket];
        // What was counted before it was forgotten counts no more.
        *count = (*count & in_use.wrapping_neg()).wrapping_add(calls);
        self.touched |= 1 << at;
    }

    /// Adds another histogram.
    #[inline(always)]
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
            let calls = self.counts.get(at / BUCKETS)?[at % BUCKETS];
            Some((at >= BUCKETS, at % BUCKETS, calls))
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
        assert_eq!([-0.0, 1e-9].map(bucket), [0, 0]);
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

    /// Goes through the life of a histogram in the nodes of a statement. Miri sees every read of memory that nobody wrote.
    #[test]
    #[allow(unsafe_code, reason = "the nodes of a statement are allocated like this")]
    fn zeroed_memory_is_an_empty_histogram() {
        // SAFETY: all fields are integers, for which zero bytes are a valid value.
        let mut histogram = unsafe { Box::<Histogram>::new_zeroed().assume_init() };
        assert_eq!(histogram.counts().count(), 0);
        for _execution in 0..2 {
            histogram.clear();
            for bucket in 0..BUCKETS {
                histogram.add_to(bucket, false, 1);
                histogram.add_to(bucket, true, 2);
                histogram.add_to(bucket, true, 2);
            }
            let counted = histogram.counts().map(|(_, _, calls)| calls).sum::<u64>();
            assert_eq!(counted, 5 * BUCKETS as u64);
        }
    }
}
