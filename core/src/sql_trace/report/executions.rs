//! How long the executions of a statement took.

use crate::histogram::Bucket;
use crate::model::Durations;

const BUCKETS: usize = 32;

/// Counts of executions in powers of two of a unit: below 1, below 2, below 4, and so on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executions {
    counts: [u64; BUCKETS],
    unit_us: f64,
}

impl Default for Executions {
    fn default() -> Self {
        Executions {
            counts: [0; BUCKETS],
            unit_us: 1.0,
        }
    }
}

impl Executions {
    /// Adds an execution that took this many microseconds.
    pub fn add(&mut self, elapsed_us: u64) {
        let bucket = (u64::BITS - elapsed_us.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
    }

    /// Adds executions of the store. They must not be added to others.
    pub fn add_stored(&mut self, durations: &Durations) {
        self.unit_us = Durations::FIRST_US;
        for (count, more) in self.counts[1..].iter_mut().zip(durations.octaves()) {
            *count = count.saturating_add(more);
        }
    }

    /// Returns all buckets. The first one has what took less than the unit.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(bucket, &count)| Bucket {
            from_us: self.unit_us * 2f64.powi(bucket as i32 - 1),
            count,
        })
    }
}
