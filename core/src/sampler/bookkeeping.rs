//! Measures what a sample costs besides its clock readings.

use super::config::{BOOKKEEPING_NS, Config};
use super::evidence::LongCallEvidence;
use super::timer::{FIRST_CALLS, NodeTimer, TimedCall};
use rand_core::RngCore;

/// The number of samples of a round.
const SAMPLES: u64 = 16;

/// The number of rounds. The process may be interrupted in some of them.
const ROUNDS: u64 = 4;

/// Returns the cost of a sample without its clock readings, in nanoseconds. `clock` returns nanoseconds. The
/// result is at least the usual cost, because a sample is faster in this tight loop than in a statement. On a
/// slow machine or under an emulator, the measured cost is higher.
///
/// A backend does this once, and takes the result off each time that contains samples. So it is the least
/// mean of some rounds: a process that another one interrupts would take milliseconds for the cost of a
/// sample.
pub fn measure_bookkeeping(random: &mut impl RngCore, mut clock: impl FnMut() -> u64) -> f64 {
    let config = Config::new(128, 1.0, 0.0, 10.0, BOOKKEEPING_NS, 0.0);
    let mut timer = NodeTimer::default();
    timer.start();
    let mut samples = |from: u64, count: u64| {
        for i in from..from + count {
            let call = TimedCall {
                before: 1000 * i,
                start: 1000 * i + 10,
                end: 1000 * i + 50,
                nested_readings: 0,
                did_io: false,
                first_of_start: false,
            };
            timer.record_timed(&config, random, &call, &mut LongCallEvidence::default());
        }
        std::hint::black_box(&timer);
    };
    // These cost less than those after them.
    samples(0, FIRST_CALLS);
    let mut least = f64::INFINITY;
    for round in 0..ROUNDS {
        let start = clock();
        samples(FIRST_CALLS + round * SAMPLES, SAMPLES);
        least = least.min(clock().saturating_sub(start) as f64 / SAMPLES as f64);
    }
    least.max(BOOKKEEPING_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoroshiro128PlusPlus;

    /// Returns the cost on a machine where a round takes `round_ns`, and where the process is interrupted for
    /// 10 ms in each of the rounds `interrupted`.
    fn measured(round_ns: u64, interrupted: &[u64]) -> f64 {
        let (mut now, mut readings) = (0, 0);
        measure_bookkeeping(&mut Xoroshiro128PlusPlus::seed_from_u64(1), || {
            let is_end = readings % 2 == 1;
            if is_end {
                now += round_ns;
                if interrupted.contains(&(readings / 2)) {
                    now += 10_000_000;
                }
            }
            readings += 1;
            now
        })
    }

    #[test]
    fn an_interruption_is_no_cost() {
        for interrupted in [&[0][..], &[1], &[3], &[0, 1, 2]] {
            assert_eq!(measured(100 * SAMPLES, interrupted), 100.0, "{interrupted:?}");
        }
    }

    #[test]
    fn it_costs_at_least_what_is_usual() {
        assert_eq!(measured(SAMPLES, &[]), BOOKKEEPING_NS);
    }
}
