//! How fast the server is now: how the latest executions of plans compare with all earlier ones of the same
//! plans. Queries with several plans are left out. So a change of a plan on a machine that has become slower
//! meanwhile is not taken for a slower plan.

use crate::model::Times;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// A plan needs this many executions before its next ones say something.
const MIN_CALLS: u64 = 8;
/// The part that the latest executions of a plan have in the mean.
const WEIGHT: f64 = 1.0 / 16.0;
/// One plan can change the mean by at most this part of a factor of eight.
const MOST: f64 = 3.0;
/// After this time without executions, in microseconds, nothing is known.
const KNOWN_US: i64 = 30_000_000;

/// A moving mean over plans: the binary logarithm of the time of their latest executions, compared with their
/// earlier ones. Zero bytes are one that knows nothing. If two processes change it at once, one of the
/// changes may be lost.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Pace {
    /// When a plan last ran, in microseconds since 2000-01-01 UTC.
    at: AtomicI64,
    level: AtomicU32,
}

impl Pace {
    /// Adds executions of a plan, whose times were `before` until `last_at`, and with them `after`. Of each
    /// plan, the first executions of a second count.
    pub fn add(&self, (before, last_at): (&Times, i64), after: &Times, at: i64) {
        const SECOND: i64 = 1_000_000;
        if before.calls < MIN_CALLS
            || after.calls <= before.calls
            || at.div_euclid(SECOND) <= last_at.div_euclid(SECOND)
        {
            return;
        }
        let change = (after.mean_log2() - before.mean_log2()) * after.calls as f64
            / after.calls.saturating_sub(before.calls) as f64;
        let level = f64::from(self.level(at));
        let level = level + (change.clamp(-MOST, MOST) - level) * WEIGHT;
        self.level.store((level as f32).to_bits(), Relaxed);
        self.at.store(at, Relaxed);
    }

    /// Returns the binary logarithm of how many times as long executions take now as they did before; 0 if
    /// that is not known.
    pub fn level(&self, at: i64) -> f32 {
        let is_known = at.saturating_sub(self.at.load(Relaxed)) <= KNOWN_US;
        if is_known {
            f32::from_bits(self.level.load(Relaxed))
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs plans once a second each, and returns the mean after each second.
    fn run(pace: &Pace, plans: &mut [(Times, i64)], seconds: std::ops::Range<i64>, ms: f64) -> f32 {
        for second in seconds.clone() {
            for (i, (times, last_at)) in plans.iter_mut().enumerate() {
                let at = second * 1_000_000 + i as i64;
                let mut after = *times;
                after.add(ms * (i + 1) as f64);
                pace.add((times, *last_at), &after, at);
                (*times, *last_at) = (after, at);
            }
        }
        pace.level(seconds.end * 1_000_000)
    }

    #[test]
    fn a_machine_that_becomes_slower_is_slower_for_all_plans() {
        let pace = Pace::default();
        let mut plans = [(Times::default(), 0); 10];
        let level = run(&pace, &mut plans, 1..100, 1.0);
        assert!(level.abs() < 1e-6, "{level}");
        let level = run(&pace, &mut plans, 100..110, 2.0);
        assert!((0.9..1.01).contains(&level), "{level}");
        let level = run(&pace, &mut plans, 110..120, 1.0);
        assert!((-0.2..0.1).contains(&level), "{level}");
        // One plan alone does not make it slower, and nothing is known later.
        let before = pace.level(120_000_000);
        run(&pace, &mut plans[..1], 120..121, 1e6);
        let level = pace.level(121_000_000);
        assert!((0.0..0.3).contains(&(level - before)), "{level}");
        assert_eq!(pace.level(200_000_000), 0.0);
    }

    #[test]
    fn many_executions_of_a_plan_in_a_second_count_once() {
        let (pace, mut times) = (Pace::default(), Times::default());
        (0..20).for_each(|_| times.add(1.0));
        let mut after = times;
        after.add(4.0);
        pace.add((&times, 5_000_000), &after, 5_500_000);
        assert_eq!(pace.level(6_000_000), 0.0);
        pace.add((&times, 5_000_000), &after, 6_000_000);
        let level = f64::from(pace.level(6_000_000));
        assert!((level - 2.0 * WEIGHT).abs() < 1e-6, "{level}");
    }
}
