//! The times of gets of blocks: of those that found the block in a buffer, and of those that had to read it.
//! They differ a thousandfold, so one mean of both says nothing.

use crate::histogram::{CallTimes, Histogram};
use hdrhistogram::Histogram as FineHistogram;

/// The times of gets of one kind.
struct Times {
    sum_ns: f64,
    min_ns: f64,
    max_ns: f64,
    /// For the number and the percentiles. Its buckets are so narrow that they are right to 1 %.
    fine: FineHistogram<u64>,
}

/// What is known of the gets of one kind, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of gets.
    pub count: u64,
    /// The shortest time.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The median, to 1 %.
    pub p50_us: f64,
    /// The time that 1 % of the gets exceeded, to 1 %.
    pub p99_us: f64,
    /// The longest time.
    pub max_us: f64,
}

/// A bucket of times, and how many gets of each kind took so long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The lower bound in microseconds.
    pub from_us: f64,
    /// The upper bound in microseconds; `None` in the last bucket.
    pub to_us: Option<f64>,
    /// The gets that found the block in a buffer.
    pub hits: u64,
    /// The gets that read the block.
    pub reads: u64,
}

/// The times of many gets.
pub struct Gets {
    hits: Times,
    reads: Times,
    histogram: Histogram,
}

impl Times {
    fn new() -> Self {
        /// Longer times count as this long in percentiles.
        const MAX_NS: u64 = 3_600_000_000_000;
        const DIGITS: u8 = 2;
        Times {
            sum_ns: 0.0,
            min_ns: f64::INFINITY,
            max_ns: 0.0,
            // The bounds and the digits are within those that the library accepts.
            fine: FineHistogram::new_with_bounds(1, MAX_NS, DIGITS).expect("valid bounds"),
        }
    }

    fn add(&mut self, ns: f64) {
        self.sum_ns += ns;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.fine.saturating_record(ns.round() as u64);
    }

    fn summary(&self) -> Option<Summary> {
        let percentile = |quantile| {
            let ns = self.fine.value_at_quantile(quantile) as f64;
            ns.clamp(self.min_ns, self.max_ns) / 1e3
        };
        let count = self.fine.len();
        (count > 0).then(|| Summary {
            count,
            min_us: self.min_ns / 1e3,
            mean_us: self.sum_ns / count as f64 / 1e3,
            p50_us: percentile(0.5),
            p99_us: percentile(0.99),
            max_us: self.max_ns / 1e3,
        })
    }
}

impl Default for Gets {
    fn default() -> Self {
        Gets {
            hits: Times::new(),
            reads: Times::new(),
            histogram: Histogram::default(),
        }
    }
}

impl Gets {
    /// Adds a get. A time that is not a positive number counts as zero.
    pub fn add(&mut self, ns: f64, read: bool) {
        let ns = ns.max(0.0);
        let times = if read { &mut self.reads } else { &mut self.hits };
        times.add(ns);
        self.histogram.count(ns, read);
    }

    /// Returns what is known of the gets that found their block in a buffer; `None` if there were none.
    pub fn hits(&self) -> Option<Summary> {
        self.hits.summary()
    }

    /// Returns what is known of the gets that read their block; `None` if there were none.
    pub fn reads(&self) -> Option<Summary> {
        self.reads.summary()
    }

    /// Returns the buckets that are not empty, the shortest times first.
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut counts = [[0; 2]; CallTimes::BUCKETS];
        for (read, bucket, count) in self.histogram.counts() {
            counts[bucket][usize::from(read)] = count;
        }
        let filled = counts.iter().enumerate().filter(|(_, counts)| **counts != [0; 2]);
        filled
            .map(|(bucket, &[hits, reads])| {
                let (from_us, to_us) = CallTimes::bounds_us(bucket);
                Bucket {
                    from_us,
                    to_us,
                    hits,
                    reads,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_and_reads_are_two_humps() {
        let mut gets = Gets::default();
        (0..990).for_each(|i| gets.add(100.0 + f64::from(i) / 100.0, false));
        (0..10).for_each(|_| gets.add(80_000.0, true));
        assert_eq!(
            gets.buckets(),
            [
                Bucket {
                    from_us: 0.064,
                    to_us: Some(0.128),
                    hits: 990,
                    reads: 0
                },
                Bucket {
                    from_us: 65.536,
                    to_us: Some(131.072),
                    hits: 0,
                    reads: 10
                },
            ]
        );
        let (hits, reads) = (gets.hits().expect("hits"), gets.reads().expect("reads"));
        assert_eq!((hits.count, reads.count), (990, 10));
        assert_eq!((hits.min_us, reads.min_us, reads.max_us), (0.1, 80.0, 80.0));
        assert!((hits.mean_us - 0.104_945).abs() < 1e-6, "{hits:?}");
        assert!((hits.p50_us / 0.105 - 1.0).abs() < 0.01, "{hits:?}");
        assert!((hits.p99_us / 0.110 - 1.0).abs() < 0.01, "{hits:?}");
        assert_eq!((reads.p50_us, reads.p99_us), (80.0, 80.0));
    }

    #[test]
    fn a_kind_without_gets_has_no_summary() {
        let mut gets = Gets::default();
        assert_eq!((gets.hits(), gets.reads()), (None, None));
        assert!(gets.buckets().is_empty());
        gets.add(f64::NAN, true);
        gets.add(-5.0, true);
        gets.add(1e15, true);
        let reads = gets.reads().expect("reads");
        assert_eq!((reads.count, reads.min_us, reads.max_us), (3, 0.0, 1e12));
        assert_eq!((gets.hits(), reads.p50_us), (None, 0.0));
    }
}
