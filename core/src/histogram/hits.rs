//! How much longer a call takes if it gets blocks that are in a buffer, from the sampled calls of a node.

use serde::{Deserialize, Serialize};

/// Fewer calls of a kind say nothing.
const MIN_CALLS: u64 = 5;

/// Sums over the sampled calls that read no block: of those that got no block either, and of those that got
/// some.
///
/// Zero bytes are empty sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct HitSums {
    /// The number of calls. The other sums of a kind are valid only if there are any.
    calls: [u64; 2],
    ns: [f64; 2],
    /// The sum of their squares.
    squares: [f64; 2],
    /// The blocks that all of them got.
    hits: f64,
}

/// The time of one hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitTime {
    /// Nanoseconds.
    pub ns: f64,
    /// One standard error, in nanoseconds.
    pub error_ns: f64,
}

impl HitSums {
    /// Deletes all sums.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.calls = [0; 2];
    }

    /// Adds a call: how long it took, and how many blocks it found in shared buffers.
    #[inline]
    pub fn add(&mut self, ns: f64, hits: i64) {
        let kind = usize::from(hits > 0);
        let one = HitSums {
            calls: [(hits <= 0).into(), (hits > 0).into()],
            ns: [ns; 2],
            squares: [ns * ns; 2],
            hits: hits as f64,
        };
        self.merge_kind(&one, kind);
    }

    /// Adds other sums.
    #[inline(always)]
    pub fn merge(&mut self, other: &HitSums) {
        if other.calls != [0; 2] {
            self.merge_all(other);
        }
    }

    #[inline(never)]
    fn merge_all(&mut self, other: &HitSums) {
        (0..2).for_each(|kind| self.merge_kind(other, kind));
    }

    #[inline]
    fn merge_kind(&mut self, other: &HitSums, kind: usize) {
        let kind = kind & 1;
        if other.calls[kind] == 0 {
            return;
        }
        if self.calls[kind] == 0 {
            (self.ns[kind], self.squares[kind]) = (0.0, 0.0);
            if kind == 1 {
                self.hits = 0.0;
            }
        }
        self.calls[kind] = self.calls[kind].wrapping_add(other.calls[kind]);
        self.ns[kind] += other.ns[kind];
        self.squares[kind] += other.squares[kind];
        if kind == 1 {
            self.hits += other.hits;
        }
    }

    /// Returns how much longer the calls took that got blocks than the others, per block. Returns `None` if
    /// that cannot be told: too few calls of one kind, or an error that is larger than the result.
    pub fn time(&self) -> Option<HitTime> {
        if self.calls.iter().any(|calls| *calls < MIN_CALLS) {
            return None;
        }
        let calls = self.calls.map(|calls| calls as f64);
        let mean = |kind: usize| self.ns[kind] / calls[kind];
        // The variance of a mean.
        let variance = |kind: usize| {
            let squares = self.squares[kind] - self.ns[kind] * mean(kind);
            squares.max(0.0) / (calls[kind] - 1.0) / calls[kind]
        };
        let hits_per_call = self.hits / calls[1];
        let ns = (mean(1) - mean(0)) / hits_per_call;
        let error_ns = (variance(0) + variance(1)).sqrt() / hits_per_call;
        (error_ns < ns).then_some(HitTime { ns, error_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of 50 or 52 ns, and each tenth of 250 or 252 ns more for each of its hits.
    fn sums(calls: u64, hits: i64) -> HitSums {
        let mut sums = HitSums::default();
        for i in 0..calls {
            let jitter = 2.0 * f64::from(u8::from(i % 3 == 0));
            let got = if i % 10 == 0 { hits } else { 0 };
            sums.add(50.0 + jitter + 250.0 * got as f64, got);
        }
        sums
    }

    #[test]
    fn the_difference_of_both_kinds_is_the_time_of_a_hit() {
        for hits in [1, 4] {
            let time = sums(1_000, hits).time().expect("a time");
            assert!(
                (time.ns - 250.0).abs() < 3.0 * time.error_ns.max(0.05),
                "{time:?}"
            );
            assert!(time.error_ns > 0.0 && time.error_ns < 0.2, "{time:?}");
        }
        let mut twice = sums(1_000, 1);
        twice.merge(&sums(1_000, 1));
        let (one, two) = (
            sums(1_000, 1).time().expect("a time"),
            twice.time().expect("a time"),
        );
        assert!((one.ns - two.ns).abs() < 1e-9);
        assert!((one.error_ns / two.error_ns - 2f64.sqrt()).abs() < 0.01);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        assert_eq!(HitSums::default().time(), None);
        // Only one kind of calls, or too few of one.
        assert_eq!(sums(1_000, 0).time(), None);
        assert_eq!(sums(30, 1).time(), None);
        // The calls with hits are not longer.
        let mut noise = HitSums::default();
        (0..1_000).for_each(|i| noise.add(100.0 + f64::from(i % 7), i64::from(i % 2)));
        noise.add(50.0, 1);
        assert_eq!(noise.time(), None);
    }

    #[test]
    fn cleared_sums_do_not_come_back() {
        let mut cleared = sums(500, 3);
        cleared.clear();
        assert_eq!(cleared.time(), None);
        cleared.merge(&sums(1_000, 1));
        assert_eq!(cleared.time(), sums(1_000, 1).time());
        let mut other = HitSums::default();
        cleared.clear();
        other.merge(&cleared);
        assert_eq!(other, HitSums::default());
    }
}
