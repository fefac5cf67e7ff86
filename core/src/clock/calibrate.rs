//! Measures how fast a counter ticks, against a clock in nanoseconds.
//!
//! Both are read together at the start and at the end of a window. The frequency is the ratio of the two
//! differences. "Together" means that the counter is read between two readings of the clock. The error of its
//! time is at most half the gap between these two, so the error of the result has a known bound. One long
//! window is better than the mean of many short ones, so the window doubles until the bound is small enough.

use std::time::Duration;

use super::scale::elapsed;

/// The number of attempts to read both. The attempt with the smallest gap is used. With 16 attempts, which
/// take one or two microseconds, it is unlikely that all of them are preempted or miss the caches.
const PAIR_TRIES: u32 = 16;
/// The relative error at which a measurement is good enough: 10 us per second. NTP may slew the system clock
/// by fifty times as much.
pub(super) const TARGET_ERROR: f64 = 10e-6;
/// The first window of a full calibration.
pub(super) const FIRST_WINDOW: Duration = Duration::from_millis(2);
/// The longest window. It keeps a noisy machine from delaying the postmaster's start.
pub(super) const MAX_WINDOW: Duration = Duration::from_millis(50);

/// A measured frequency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Ticks per second.
    pub hz: f64,
    /// The largest relative error that it can have.
    pub error: f64,
}

/// The counter and the clock, read together.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    /// The clock's reading before the counter's.
    ns: u64,
    /// The time between the clock's readings before and after the counter's.
    width_ns: u64,
}

/// A counter, the clock to compare it with, and a function that waits. Tests use their own.
pub(super) struct Bench<Ticks, Clock, Pause> {
    /// Reads the counter.
    pub ticks: Ticks,
    /// Reads the clock, in nanoseconds.
    pub ns: Clock,
    /// Waits about this long.
    pub pause: Pause,
}

impl<Ticks: FnMut() -> u64, Clock: FnMut() -> u64, Pause: FnMut(Duration)> Bench<Ticks, Clock, Pause> {
    /// Measures over windows that grow from `first` until the error is at most `target`, but not beyond
    /// [`MAX_WINDOW`]. Returns `None` if the counter or the clock stood still or stepped back.
    pub(super) fn measure(&mut self, first: Duration, target: f64) -> Option<Measured> {
        let start = self.pair();
        let (mut window, mut passed, mut best) = (first, Duration::ZERO, None);
        while window <= MAX_WINDOW {
            (self.pause)(window - passed);
            passed = window;
            best = slope(start, self.pair()).or(best);
            if best.is_some_and(|measured| measured.error <= target) {
                break;
            }
            window *= 2;
        }
        best
    }

    /// Reads both. Returns the best of [`PAIR_TRIES`] attempts.
    fn pair(&mut self) -> Pair {
        let mut best = Pair {
            ticks: 0,
            ns: 0,
            width_ns: u64::MAX,
        };
        for _ in 0..PAIR_TRIES {
            let (ns, ticks, after) = ((self.ns)(), (self.ticks)(), (self.ns)());
            match elapsed(ns, after) {
                Some(width_ns) if width_ns < best.width_ns => best = Pair { ticks, ns, width_ns },
                _ => {}
            }
        }
        best
    }
}

/// Returns the frequency between two pairs, and the error bound that results from their gaps.
fn slope(start: Pair, end: Pair) -> Option<Measured> {
    let ticks = elapsed(start.ticks, end.ticks)? as f64;
    let half_gaps = (start.width_ns as f64 + end.width_ns as f64) / 2.0;
    let middle = |pair: Pair| pair.width_ns as f64 / 2.0;
    let ns = elapsed(start.ns, end.ns)? as f64 + middle(end) - middle(start);
    (ticks > 0.0 && ns > half_gaps).then(|| Measured {
        hz: ticks / ns * 1e9,
        error: half_gaps / ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::mock::Mock;

    /// Measures a counter of 2.3 GHz with a clock that takes `cost` ns per reading.
    fn measured(cost: u64, first: Duration, target: f64) -> (Option<Measured>, u64) {
        let clock = Mock::new(1_000_000).with_cost(cost);
        let mut bench = Bench {
            ticks: || clock.now() * 23 / 10,
            ns: || clock.read(),
            pause: |time: Duration| clock.advance(time.as_nanos() as u64),
        };
        let result = bench.measure(first, target);
        (result, clock.now() - 1_000_000)
    }

    #[test]
    fn the_frequency_is_within_its_error_and_takes_no_longer_than_needed() {
        let (result, took) = measured(25, FIRST_WINDOW, TARGET_ERROR);
        let result = result.unwrap();
        assert!((result.hz / 2.3e9 - 1.0).abs() <= result.error, "{result:?}");
        assert!(result.error <= TARGET_ERROR);
        assert!(took < 5_000_000, "took {took} ns");
    }

    #[test]
    fn a_slow_clock_gets_longer_windows_up_to_the_limit() {
        let (result, took) = measured(5_000, FIRST_WINDOW, TARGET_ERROR);
        let result = result.unwrap();
        assert!((result.hz / 2.3e9 - 1.0).abs() <= result.error, "{result:?}");
        assert!(result.error > TARGET_ERROR);
        assert!(took < MAX_WINDOW.as_nanos() as u64, "took {took} ns");
    }

    #[test]
    fn a_clock_that_stands_still_or_steps_back_measures_nothing() {
        let still = Mock::new(5);
        let mut bench = Bench {
            ticks: || 7,
            ns: || still.read(),
            pause: |_| {},
        };
        assert_eq!(bench.measure(FIRST_WINDOW, TARGET_ERROR), None);
        let back = Mock::new(1 << 40);
        let pause = |time: Duration| back.step_back(time.as_nanos() as u64);
        let mut bench = Bench {
            ticks: || back.now(),
            ns: || back.read(),
            pause,
        };
        assert_eq!(bench.measure(FIRST_WINDOW, TARGET_ERROR), None);
    }
}
