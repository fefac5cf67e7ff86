//! Selects the plans to evict when there is no room for a new one.
//!
//! Plans that cost most are kept longest. The value of a plan is its cost: its total time, and a little for
//! each call. The value halves for each [`HALF_LIFE_US`] since the last use. A plan that ran only once is
//! worth a sixteenth of that: most of those plans never run again. A long report stays nevertheless, because
//! it costs much more than sixteen times as much as a lookup.
//!
//! The newest of the plans that ran once are evicted last: they had no time to run again. A plan that was
//! evicted before and comes again counts as a plan that ran twice ([`Doorkeeper`]).

mod doorkeeper;
#[cfg(test)]
mod simulation;

pub use doorkeeper::Doorkeeper;

use std::cmp::Ordering;

/// The maximum number of plans, and of bytes that they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of plans.
    pub plans: u64,
    /// The maximum number of bytes of all plans together.
    pub bytes: u64,
}

impl Limits {
    /// Returns whether one of the limits is reached.
    pub fn are_reached(&self, plans: u64, bytes: u64) -> bool {
        plans >= self.plans || bytes >= self.bytes
    }
}

/// Evictions try these divisors one after the other until there is room for the new plan. 20 evicts one plan
/// in twenty. If that frees no block of the needed size, the later steps evict larger parts.
pub const PARTS: [usize; 5] = [20, 20, 10, 4, 2];

/// The newest plans that ran once are evicted last: as many as one in this many of all plans.
const WINDOW_PART: usize = 20;
/// The value of a plan halves in this time: six hours.
pub const HALF_LIFE_US: f64 = 6.0 * 3600.0 * 1e6;
/// A plan that ran once is worth one part in 2 to the power of this.
const ONCE_HALVINGS: f64 = 4.0;
/// The total time of a plan counts as this at least, in milliseconds. So the age decides between plans that
/// all took little.
const MIN_TOTAL_MS: f64 = 1.0;
/// What each call adds to the cost of a plan, in milliseconds.
const CALL_MS: f64 = 0.1;

/// Returns the cost of a plan, which its value is based on.
#[inline(always)]
pub fn cost(total_ms: f64, calls: u64) -> f64 {
    // `max` replaces a NaN.
    total_ms.max(MIN_TOTAL_MS).clamp(MIN_TOTAL_MS, f64::MAX / 2.0) + calls as f64 * CALL_MS
}

/// A plan that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<K> {
    /// Identifies the plan.
    pub key: K,
    /// When the plan was last used, in microseconds; larger is later.
    pub last_used: i64,
    /// The result of [`cost`].
    pub cost: f64,
    /// The plan ran only once, and the doorkeeper does not know it.
    pub ran_once: bool,
    /// The plan is one of the newest that ran once.
    is_new: bool,
}

impl<K> Candidate<K> {
    /// Makes a candidate.
    pub fn new(key: K, last_used: i64, cost: f64, ran_once: bool) -> Self {
        Candidate {
            key,
            last_used,
            cost,
            ran_once,
            is_new: false,
        }
    }

    /// Returns the rank of the plan among those of the window, or among the others: the lowest is evicted
    /// first.
    ///
    /// It is the logarithm of the value, which the same time reduces by the same amount for all plans. So the
    /// rank does not depend on the current time, nor on steps of the clock, and never overflows.
    pub fn rank(&self) -> f64 {
        let halvings = if self.ran_once { ONCE_HALVINGS } else { 0.0 };
        self.cost.log2() + self.last_used as f64 / HALF_LIFE_US - halvings
    }

    /// Compares two plans: the smaller one is evicted first.
    fn compare(&self, other: &Self) -> Ordering {
        let by_rank = || self.rank().total_cmp(&other.rank());
        self.is_new.cmp(&other.is_new).then_with(by_rank)
    }
}

/// Returns the plans of the least value: about one in `part`, and at least one. Reorders the candidates.
pub fn least_valuable<K>(candidates: &mut [Candidate<K>], part: usize) -> &mut [Candidate<K>] {
    let Some(last) = candidates.len().checked_sub(1) else {
        return candidates;
    };
    let last_selected = (candidates.len() / part.max(1)).min(last);
    mark_new(candidates);
    candidates.select_nth_unstable_by(last_selected, Candidate::compare);
    &mut candidates[..=last_selected]
}

/// Marks the newest plans that ran once. Reorders the candidates.
fn mark_new<K>(candidates: &mut [Candidate<K>]) {
    let newest = candidates.len() / WINDOW_PART;
    let at = candidates.len() - newest;
    if newest == 0 {
        return;
    }
    // The largest keys: those that ran once, and of these the newest.
    candidates.select_nth_unstable_by_key(at, |plan| (plan.ran_once, plan.last_used));
    for plan in &mut candidates[at..] {
        plan.is_new = plan.ran_once;
    }
}

/// Returns the oldest times of use: about one in `part`, and at least one. The last of them is the latest.
/// Reorders the times.
pub fn oldest(times: &mut [i64], part: usize) -> &mut [i64] {
    let Some(last) = times.len().checked_sub(1) else {
        return times;
    };
    let last_selected = (times.len() / part.max(1)).min(last);
    times.select_nth_unstable(last_selected);
    &mut times[..=last_selected]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;
    /// A time of 2026.
    const NOW: i64 = 26 * 365 * 24 * HOUR;

    fn plan(key: usize, age: i64, total_ms: f64, calls: u64) -> Candidate<usize> {
        Candidate::new(key, NOW - age, cost(total_ms, calls), calls == 1)
    }

    fn evicted(candidates: &[Candidate<usize>], part: usize) -> Vec<usize> {
        let mut candidates = candidates.to_vec();
        let mut evicted: Vec<usize> = least_valuable(&mut candidates, part)
            .iter()
            .map(|plan| plan.key)
            .collect();
        evicted.sort_unstable();
        evicted
    }

    #[test]
    fn plans_that_cost_less_are_evicted_first() {
        let costs = [500.0, 30.0, 90_000.0, 10.0, 7_000.0];
        let plans: Vec<_> = (0..5).map(|i| plan(i, HOUR, costs[i], 9)).collect();
        assert_eq!(evicted(&plans, 20), [3]);
        assert_eq!(evicted(&plans, 4), [1, 3]);
        assert_eq!(evicted(&plans, 2), [0, 1, 3]);
    }

    #[test]
    fn of_equal_plans_the_least_recently_used_are_evicted() {
        for calls in [1, 7] {
            // One microsecond makes a difference. Short times make none.
            let of = |i: usize| plan(i, i as i64 * 37 % 100, 0.001 * i as f64, calls);
            let plans: Vec<_> = (0..100).map(of).collect();
            let mut oldest = plans.clone();
            oldest.sort_by_key(|plan| plan.last_used);
            let mut expected: Vec<usize> = oldest[..=5].iter().map(|plan| plan.key).collect();
            expected.sort_unstable();
            assert_eq!(evicted(&plans, 20), expected, "{calls} calls");
        }
    }

    #[test]
    fn the_value_halves_with_age() {
        let half_life = HALF_LIFE_US as i64;
        let plans = [plan(0, half_life, 1_000.0, 1_000), plan(1, 0, 490.0, 500)];
        assert_eq!(evicted(&plans, 20), [1]);
        let plans = [plan(0, half_life, 1_000.0, 1_000), plan(1, 0, 510.0, 500)];
        assert_eq!(evicted(&plans, 20), [0]);
    }

    #[test]
    fn plans_that_ran_once_are_evicted_first_but_not_the_newest() {
        // The plans 50 to 99 ran once; the last is the newest.
        let of = |i: usize| plan(i, (100 - i as i64) * SECOND, 2.0, if i < 50 { 2 } else { 1 });
        let plans: Vec<_> = (0..100).map(of).collect();
        assert_eq!(evicted(&plans, 20), (50..=55).collect::<Vec<_>>());
        // If all others are evicted, the newest stay.
        let kept = |part| {
            let evicted = evicted(&plans, part);
            (0..100).filter(|i| !evicted.contains(i)).collect::<Vec<_>>()
        };
        assert!(kept(1).is_empty());
        assert_eq!(kept(2)[44..], [95, 96, 97, 98, 99]);
    }

    #[test]
    fn an_expensive_plan_that_ran_once_stays() {
        let mut plans: Vec<_> = (1..100).map(|i| plan(i, i as i64 * SECOND, 40.0, 20)).collect();
        plans.push(plan(0, 12 * HOUR, 219_000.0, 1));
        assert!(!evicted(&plans, 2).contains(&0));
    }

    #[test]
    fn any_number_has_a_rank() {
        let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 0.0, f64::MAX];
        let times = [i64::MIN, -1, 0, NOW, i64::MAX];
        let mut plans = Vec::new();
        for total_ms in strange {
            for last_used in times {
                for calls in [0, 1, u64::MAX] {
                    let cost = cost(total_ms, calls);
                    plans.push(Candidate::new(plans.len(), last_used, cost, calls == 1));
                }
            }
        }
        assert!(plans.iter().all(|plan| plan.rank().is_finite()));
        for part in PARTS {
            assert_eq!(evicted(&plans, part).len(), plans.len() / part + 1);
        }
    }

    /// A clock that was set back makes a plan look older, and nothing else.
    #[test]
    fn a_clock_that_goes_backwards_does_no_harm() {
        let mut plans: Vec<_> = (0..50).map(|i| plan(i, -30 * 24 * HOUR, 5.0, 3)).collect();
        plans.push(plan(99, 0, 5.0, 3));
        plans.push(plan(98, 0, 1e300, 3));
        let evicted = evicted(&plans, 20);
        assert!(evicted.contains(&99) && !evicted.contains(&98), "{evicted:?}");
    }

    #[test]
    fn at_least_one_plan_and_at_most_all_plans_are_evicted() {
        let plans = |count: usize| (0..count).map(|i| plan(i, 0, 1.0, 1)).collect::<Vec<_>>();
        assert!(evicted(&plans(0), 20).is_empty());
        assert_eq!(evicted(&plans(1), 20), [0]);
        assert_eq!(evicted(&plans(1), 1), [0]);
        assert_eq!(evicted(&plans(2), 1), [0, 1]);
        assert_eq!(evicted(&plans(2), 0), [0, 1]);
        for part in PARTS {
            assert_eq!(evicted(&plans(100), part).len(), 100 / part + 1);
        }
    }

    #[test]
    fn no_plan_is_evicted_twice() {
        let ages = [3, 3, 3, 1, 1, 2, 2, 9, 9, 9];
        let plans: Vec<_> = (0..10).map(|i| plan(i, ages[i], 1.0, 1)).collect();
        let mut keys = evicted(&plans, 2);
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn the_oldest_times_are_found() {
        let found = |times: &[i64], part| {
            let mut times = times.to_vec();
            let oldest = oldest(&mut times, part);
            let last = oldest.last().copied();
            oldest.sort_unstable();
            assert_eq!(last, oldest.last().copied());
            oldest.to_vec()
        };
        assert!(found(&[], 10).is_empty());
        assert_eq!(found(&[4], 10), [4]);
        assert_eq!(found(&[4, 2], 0), [2, 4]);
        assert_eq!(found(&[5, 3, 9, 1, 7], 4), [1, 3]);
    }

    #[test]
    fn one_reached_limit_suffices() {
        let limits = Limits {
            plans: 10,
            bytes: 1_000,
        };
        assert!(!limits.are_reached(9, 999));
        assert!(limits.are_reached(10, 0));
        assert!(limits.are_reached(0, 1_000));
    }
}
