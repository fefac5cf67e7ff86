//! How fast a counter ticks, measured against a clock that tells nanoseconds.
//!
//! Both are read together at the start and at the end of a window; the frequency is the ratio of the two
//! differences. "Together" is a reading of the counter between two of the clock, so it is known how far off
//! each can be: half the gap between the two. That bounds the error of the result with no statistics, and one
//! long window beats the mean of many short ones, so the window doubles until the bound is small enough.

use std::time::Duration;

use super::scale::elapsed;

/// Attempts at a reading of both; the narrowest counts. 16 make it unlikely that each was preempted or took
/// cache misses, and take a microsecond or two.
const PAIR_TRIES: u32 = 16;
/// The relative error at which a measurement is good enough: 10 us in a second, a fiftieth of what
/// NTP may slew the system clock by.
pub(super) const TARGET_ERROR: f64 = 10e-6;
/// The first window of a full calibration.
pub(super) const FIRST_WINDOW: Duration = Duration::from_millis(2);
/// No window is longer, so that a noisy machine does not hold up the postmaster's start: one
/// measurement takes less than this.
pub(super) const LONGEST_WINDOW: Duration = Duration::from_millis(50);

/// A measured frequency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Ticks a second.
    pub hz: f64,
    /// The largest error it can have, relative to it.
    pub error: f64,
}

/// The counter and the clock, read together.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    /// The clock before the counter was read.
    ns: u64,
    /// What had passed on the clock after the counter was read.
    width_ns: u64,
}

/// A counter, the clock to hold it against, and a way to let time pass. Injected, so that it can be tested.
pub(super) struct Bench<Ticks, Clock, Pause> {
    /// Reads the counter.
    pub ticks: Ticks,
    /// Reads the clock, in nanoseconds.
    pub ns: Clock,
    /// Lets about this much time pass.
    pub pause: Pause,
}

impl<Ticks: FnMut() -> u64, Clock: FnMut() -> u64, Pause: FnMut(Duration)> Bench<Ticks, Clock, Pause> {
    /// Measures over windows that grow from `first` until the error is at most `target`, or as long as
    /// [`LONGEST_WINDOW`] allows; `None` if the counter or the clock stood still or stepped back.
    pub(super) fn measure(&mut self, first: Duration, target: f64) -> Option<Measured> {
        let start = self.pair();
        let (mut window, mut passed, mut best) = (first, Duration::ZERO, None);
        while window <= LONGEST_WINDOW {
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

    /// Reads both, as closely together as [`PAIR_TRIES`] attempts allow.
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

/// The frequency between two readings, with what the gaps within them leave open.
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

    /// A counter of 2.3 GHz beside a clock whose every reading takes `cost` ns.
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
    fn the_frequency_is_right_within_the_bound_and_no_longer_than_needed() {
        let (result, took) = measured(25, FIRST_WINDOW, TARGET_ERROR);
        let result = result.unwrap();
        assert!((result.hz / 2.3e9 - 1.0).abs() <= result.error, "{result:?}");
        assert!(result.error <= TARGET_ERROR);
        assert!(took < 5_000_000, "took {took} ns");
    }

    #[test]
    fn a_slow_clock_gets_longer_windows_but_not_for_ever() {
        let (result, took) = measured(5_000, FIRST_WINDOW, TARGET_ERROR);
        let result = result.unwrap();
        assert!((result.hz / 2.3e9 - 1.0).abs() <= result.error, "{result:?}");
        assert!(result.error > TARGET_ERROR);
        assert!(took < LONGEST_WINDOW.as_nanos() as u64, "took {took} ns");
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
