//! How fast the server is now: how the latest executions of plans compare with all earlier ones of the same
//! plans. Queries with several plans are left out. So a change of a plan on a machine that has become slower
//! meanwhile is not taken for a slower plan.
//!
//! It is a moving median, in one number: each plan moves it towards its own value, but by no more than
//! [`STEP`], however far that is. So it stays where as many plans pull up as down. A mean would follow the
//! few plans that have become much slower themselves.

use crate::model::Times;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// A plan needs this many executions before its next ones say something.
const MIN_CALLS: u64 = 8;
/// How far one plan can move the median: a binary logarithm.
const STEP: f64 = 1.0 / 16.0;
/// The part of its distance by which a near plan moves it. So it does not jump to and fro.
const WEIGHT: f64 = 1.0 / 4.0;
/// After this time without executions, in microseconds, nothing is known.
const KNOWN_US: i64 = 30_000_000;

/// A moving median over plans: the binary logarithm of the time of their latest executions, compared with
/// their earlier ones. Zero bytes are one that knows nothing. If two processes change it at once, one of the
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
        let level = level + ((change - level) * WEIGHT).clamp(-STEP, STEP);
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

    /// Runs plans once a second each, and returns the median after the last second.
    fn run(pace: &Pace, plans: &mut [(Times, i64)], seconds: std::ops::Range<i64>, ms: f64) -> f32 {
        run_each(pace, plans, seconds, |i| ms * (i + 1) as f64)
    }

    /// Does so with a time for each plan.
    fn run_each(
        pace: &Pace,
        plans: &mut [(Times, i64)],
        seconds: std::ops::Range<i64>,
        ms: impl Fn(usize) -> f64,
    ) -> f32 {
        for second in seconds.clone() {
            for (i, (times, last_at)) in plans.iter_mut().enumerate() {
                let at = second * 1_000_000 + i as i64;
                let mut after = *times;
                after.add(ms(i));
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

    /// A third of the plans become much slower for reasons of their own. That says nothing of the machine.
    #[test]
    fn a_few_plans_that_become_slower_do_not_change_it() {
        let pace = Pace::default();
        let mut plans = [(Times::default(), 0); 9];
        run(&pace, &mut plans, 1..100, 1.0);
        let slower = |i| (i + 1) as f64 * if i < 3 { 8.0 } else { 1.0 };
        let level = run_each(&pace, &mut plans, 100..160, slower);
        // The mean of these logarithms is 1.
        assert!(level.abs() < 0.25, "{level}");
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
        assert!((level - STEP).abs() < 1e-6, "{level}");
    }
}
