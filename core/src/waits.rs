//! Waits: their counters, for memory that many processes share.

pub mod names;
pub mod plan;
pub mod slot;
pub mod sums;
pub mod team;

use crate::histogram::{Counted, Log2, quantile};

/// The times of waits, in powers of two of a microsecond. The first bucket is for waits of less than a
/// microsecond, the last begins at 67 s.
pub type WaitTimes = Log2<28, 500>;

/// A wait event, as PostgreSQL numbers it: its class in the highest byte, and its number in the class. It is
/// never 0.
pub type Event = u32;

/// The bits of an event that are its class.
pub const CLASS: Event = 0xFF00_0000;

/// The waits for one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The nanoseconds of all waits.
    pub ns: u64,
    /// The nanoseconds of the longest one.
    pub max_ns: u64,
    /// The number of waits by their time.
    pub histogram: [u64; WaitTimes::BUCKETS],
}

impl Waits {
    /// Returns the number of waits.
    pub fn count(&self) -> u64 {
        self.histogram.iter().sum()
    }

    /// Adds the waits of another process.
    pub fn add(&mut self, other: &Waits) {
        self.ns += other.ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
        }
    }

    /// Returns the nanoseconds below which this part of the waits was; `None` if there was none. Inside a
    /// bucket, times are taken as evenly distributed. No wait took longer than the longest one.
    pub fn quantile_ns(&self, part: f64) -> Option<f64> {
        let counted = self.histogram.iter().enumerate().map(|(bucket, &count)| {
            let (from_us, to_us) = WaitTimes::bounds_us(bucket);
            let (from, to) = (from_us * 1e3, to_us.map_or(f64::INFINITY, |us| us * 1e3));
            let longest = (self.max_ns as f64).max(from);
            Counted {
                from,
                to: to.min(longest),
                count: count as f64,
            }
        });
        quantile(counted, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile_ns(0.99), None);
        // 99 waits of 1 to 2 us, and one of 8 to 16 us.
        waits.histogram[1] = 99;
        waits.histogram[4] = 1;
        waits.max_ns = 9_000;
        assert_eq!(waits.count(), 100);
        assert_eq!(waits.quantile_ns(0.99), Some(2_000.0));
        assert_eq!(waits.quantile_ns(1.0), Some(9_000.0));
        assert!(
            waits
                .quantile_ns(0.5)
                .is_some_and(|ns| (1_500.0..1_520.0).contains(&ns))
        );
        // The last bucket has no upper bound.
        let mut long = Waits {
            max_ns: 100_000_000_000,
            ..Waits::default()
        };
        long.histogram[WaitTimes::BUCKETS - 1] = 1;
        assert_eq!(long.quantile_ns(1.0), Some(100e9));
    }
}
