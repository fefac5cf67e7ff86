//! Measures what reading a clock costs. This is subtracted from the times that are measured with it.

use std::hint::black_box;

use super::scale::elapsed;
use super::source::{self, Source};
use super::tsc;

/// The number of pairs of readings in one round.
const PAIRS: usize = 8;
/// The largest number of rounds. With [`PAIRS`] this makes 64 empty intervals: enough for a stable middle
/// half.
const ROUNDS: usize = 8;
/// The smallest number of rounds, also for a slow clock. With three, one may be preempted.
const MIN_ROUNDS: usize = 3;
/// No round starts later than this after the first, so the measurement takes at most about 50 us.
const BUDGET_NS: f64 = 35_000.0;

/// The cost of reading a clock, in this process and on this CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The difference between two readings in a row, in raw ticks. It is subtracted from every timed
    /// interval.
    pub empty_interval_ticks: u64,
    /// The time of one reading in nanoseconds. This is what a timer call costs the statement.
    pub reading_ns: f64,
}

/// Measures the cost of reading `source`, which must be [usable](Source::usable). It takes at most about 50
/// us, because slow clocks get fewer rounds. A backend does this once per source, when it first needs the
/// source.
///
/// The TSC's frequency should be known before; see [`source::prepare`].
///
/// As on the hot path, the TSC is read inline, and other clocks are read through the pointer of
/// [`Source::read_fn`].
pub fn measure_costs(source: Source) -> Cost {
    measure_with(source, tsc::read)
}

/// Does the same for readings that wait for all that was executed before. Of the clocks, only the TSC has
/// others.
pub fn measure_costs_in_order(source: Source) -> Cost {
    measure_with(source, tsc::read_in_order)
}

fn measure_with(source: Source, read_tsc: impl FnMut() -> u64) -> Cost {
    let reference = source::auto();
    let (clock, scale) = (reference.read_fn(), reference.scale());
    let ns = |start, end| scale.nanoseconds(elapsed(start, end).unwrap_or(0));
    match source {
        Source::Tsc => measure(read_tsc, clock, ns),
        _ => measure(black_box(source.read_fn()), clock, ns),
    }
}

/// Measures `read` by `clock`. `ns` returns the nanoseconds between two readings of `clock`.
fn measure(
    mut read: impl FnMut() -> u64,
    mut clock: impl FnMut() -> u64,
    ns: impl Fn(u64, u64) -> f64,
) -> Cost {
    let mut intervals = [0u64; PAIRS * ROUNDS];
    let mut readings = [0f64; ROUNDS];
    let (begun, mut rounds) = (clock(), 0);
    // The first round only fills the caches, and the second one overwrites its results. It takes 0.2 to 4 us.
    // The first readings miss the caches and take 10 to 100 times as long.
    for round in 0..=ROUNDS {
        rounds = round.saturating_sub(1);
        let slots = &mut intervals[rounds * PAIRS..][..PAIRS];
        let (before, start) = (clock(), clock());
        for slot in slots {
            let (first, second) = (read(), read());
            *slot = elapsed(first, second).unwrap_or(0);
        }
        let end = clock();
        // The interval contains one reading of the reference clock, which is subtracted.
        let net = ns(start, end) - ns(before, start);
        readings[rounds] = (net / (2 * PAIRS) as f64).max(0.0);
        if rounds + 1 >= MIN_ROUNDS && ns(begun, end) > BUDGET_NS {
            break;
        }
    }
    let rounds = rounds + 1;
    Cost {
        empty_interval_ticks: middle_mean(&mut intervals[..rounds * PAIRS]).round() as u64,
        reading_ns: median(&mut readings[..rounds]),
    }
}

/// Returns the mean of the middle half. It is as robust as the median, but also resolves values between the
/// ticks of a clock: an interval of 25.6 ns is read as 25 or 26, an interval of 15 ns on a clock of 40 ns as
/// 0 or 40.
fn middle_mean(values: &mut [u64]) -> f64 {
    values.sort_unstable();
    let quarter = values.len() / 4;
    let middle = &values[quarter..values.len() - quarter];
    middle.iter().map(|&value| value as f64).sum::<f64>() / middle.len().max(1) as f64
}

/// Returns the median, or the higher of the two middle values; 0 if there are no values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::mock::Mock;

    /// Measures a clock whose readings take `ticks`, except every `outlier`th one, which takes much longer.
    fn measured(ticks: u64, outlier: u64) -> (Cost, u64) {
        let time = Mock::new(0);
        let read = || {
            let now = time.now();
            time.advance(if time.readings() % outlier == outlier - 1 {
                100 * ticks
            } else {
                ticks
            });
            time.read();
            now
        };
        let clock = || {
            time.advance(20);
            time.now()
        };
        let cost = measure(read, clock, |start, end| (end - start) as f64);
        (cost, time.now())
    }

    #[test]
    fn the_cost_is_measured() {
        assert_eq!(
            measured(25, u64::MAX).0,
            Cost {
                empty_interval_ticks: 25,
                reading_ns: 25.0
            }
        );
    }

    #[test]
    fn outliers_are_ignored() {
        assert_eq!(
            measured(25, 37).0,
            Cost {
                empty_interval_ticks: 25,
                reading_ns: 25.0
            }
        );
    }

    #[test]
    fn a_slow_clock_gets_fewer_rounds() {
        let (cost, took) = measured(1000, u64::MAX);
        assert_eq!(cost.empty_interval_ticks, 1000);
        assert!(took < 70_000, "took {took} ns");
    }

    #[test]
    fn a_clock_that_steps_back_has_a_cost_of_zero() {
        let back = Mock::new(1 << 40);
        let read = || {
            back.step_back(7);
            back.read()
        };
        let cost = measure(read, || 0, |_, _| 0.0);
        assert_eq!(
            cost,
            Cost {
                empty_interval_ticks: 0,
                reading_ns: 0.0
            }
        );
    }

    #[test]
    fn the_middle_mean_resolves_fractions_of_a_tick() {
        assert_eq!(middle_mean(&mut [26, 9000, 25, 26, 0, 25, 26, 26]), 25.75);
        assert_eq!(middle_mean(&mut []), 0.0);
    }
}
