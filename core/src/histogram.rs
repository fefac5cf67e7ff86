//! The histogram of a node's timed calls. Calls that read blocks are counted separately, because a mean of
//! both kinds is meaningless.

mod hits;
mod log2;
mod plot;
mod quantile;

pub use hits::{HitSums, HitTime};
pub use log2::{Log2, SharedCounts};
pub use plot::{Bucket, plot};
pub use quantile::{Counted, quantile};

/// The times of calls, in powers of two of a nanosecond. The last bucket begins at 2.1 s.
pub type CallTimes = Log2<BUCKETS, 1>;

/// The number of buckets.
pub const BUCKETS: usize = 32;

/// How many calls can be listed.
const LISTED: usize = 16;

/// Counts of calls by their time.
///
/// Most statements are short and use few buckets. A bucket's count is valid only if its bit is set, so
/// clearing and adding histograms need not visit all buckets. The first calls are not counted in the buckets,
/// but listed.
///
/// Zero bytes are an empty histogram. Memory for histograms is zeroed when it is allocated (see `zeroed`):
/// [`Histogram::add_to`] reads a count before it checks whether the count is valid.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Histogram {
    /// A bit for each valid count.
    touched: u64,
    /// How many calls are listed.
    listed: u64,
    /// The buckets of the listed calls, as the places of their bits in `touched`.
    list: [u8; LISTED],
    /// What tells how long a hit takes.
    pub hits: HitSums,
    /// The calls that read no block, then the calls that read blocks, from disk or from a work file.
    counts: [[u64; BUCKETS]; 2],
}

impl Histogram {
    /// Clears all counts.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.touched, self.listed) = (0, 0);
        self.hits.clear();
    }

    /// Counts a call.
    #[inline(always)]
    pub fn count(&mut self, ns: f64, read: bool) {
        self.add_to(CallTimes::bucket(ns), read, 1);
    }

    /// Lists a call, which costs less than to count it. Counts it if no more calls can be listed.
    #[inline(always)]
    pub fn list(&mut self, ns: f64, read: bool) {
        let bucket = CallTimes::bucket(ns);
        match self.list.get_mut(self.listed as usize) {
            Some(listed) => {
                *listed = place(bucket, read) as u8;
                self.listed += 1;
            }
            None => self.count_unlisted(bucket, read),
        }
    }

    #[cold]
    #[inline(never)]
    fn count_unlisted(&mut self, bucket: usize, read: bool) {
        self.add_to(bucket, read, 1);
    }

    /// Counts several calls in a bucket.
    #[inline(always)]
    pub fn add_to(&mut self, bucket: usize, read: bool, calls: u64) {
        let bucket = bucket % BUCKETS;
        let at = place(bucket, read);
        let in_use = self.touched >> at & 1;
        let count = &mut self.counts[usize::from(read)][bucket];
        // Counts from before `clear` are ignored.
        *count = (*count & in_use.wrapping_neg()).wrapping_add(calls);
        self.touched |= 1 << at;
    }

    /// Adds another histogram.
    #[inline(always)]
    pub fn add(&mut self, other: &Histogram) {
        for (read, bucket, calls) in other.counts() {
            self.add_to(bucket, read, calls);
        }
        self.hits.merge(&other.hits);
    }

    /// Returns the counts of calls: whether they read blocks, the bucket, and the number of calls. A bucket
    /// may come several times.
    pub fn counts(&self) -> impl Iterator<Item = (bool, usize, u64)> {
        let listed = self.listed().map(|at| (at, 1));
        let counts = self.counted().chain(listed);
        counts.map(|(at, calls)| (at >= BUCKETS, at % BUCKETS, calls))
    }

    /// Returns the places of the buckets in use, and their counts, without the listed calls.
    #[inline(always)]
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, u64)> {
        let mut left = self.touched;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let calls = *self.counts.as_flattened().get(at)?;
            Some((at, calls))
        })
    }

    /// Returns the places of the listed calls.
    #[inline(always)]
    pub(crate) fn listed(&self) -> impl Iterator<Item = usize> {
        let list = self.list.get(..self.listed as usize).unwrap_or(&self.list);
        list.iter().map(|at| usize::from(*at))
    }
}

/// Returns the place of a bucket's bit.
#[inline(always)]
pub(crate) fn place(bucket: usize, read: bool) -> usize {
    bucket + BUCKETS * usize::from(read)
}

const _: () = assert!(2 * BUCKETS == u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_read_are_counted_separately() {
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
        // Counts from before `clear` do not come back.
        sum.count(100.0, true);
        assert_eq!(found(&sum), [(true, 6, 1)]);
        sum.add_to(BUCKETS - 1, true, 3);
        sum.add_to(0, false, 5);
        assert_eq!(found(&sum), [(false, 0, 5), (true, 6, 1), (true, 31, 3)]);
    }

    #[test]
    fn listed_calls_are_counted_too() {
        // More calls than can be listed.
        let times = (0..3 * LISTED).map(|i| (f64::from(1_u32 << (i % 7)), i % 3 == 0));
        let (mut listed, mut counted) = (Histogram::default(), Histogram::default());
        for (ns, read) in times {
            listed.list(ns, read);
            counted.count(ns, read);
        }
        assert_eq!(listed.listed().count(), LISTED);
        let sum_of = |histogram: &Histogram| {
            let mut sum = Histogram::default();
            sum.add(histogram);
            sum.counts().collect::<Vec<_>>()
        };
        assert_eq!(sum_of(&listed), sum_of(&counted));
        listed.clear();
        assert_eq!(listed.counts().count(), 0);
        listed.list(100.0, true);
        assert_eq!(listed.counts().collect::<Vec<_>>(), [(true, 6, 1)]);
    }
}
