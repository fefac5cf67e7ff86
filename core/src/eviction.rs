//! Selects the plans to evict when there is no room for a new one.

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

/// Evictions try these divisors one after the other until there is room for the new plan. 20 evicts one plan in twenty. If
/// that frees no block of the needed size, the later steps evict larger parts.
pub const PARTS: [usize; 5] = [20, 20, 10, 4, 2];

/// A plan that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// Identifies the plan.
    pub key: K,
    /// When the plan was last used; larger is later.
    pub last_used: i64,
}

/// Returns the least recently used plans: about one in `part`, and at least one. Reorders the candidates.
pub fn least_recently_used<K>(candidates: &mut [Candidate<K>], part: usize) -> &mut [Candidate<K>] {
    let Some(last) = candidates.len().checked_sub(1) else {
        return candidates;
    };
    let last_selected = (candidates.len() / part.max(1)).min(last);
    candidates.select_nth_unstable_by_key(last_selected, |candidate| candidate.last_used);
    &mut candidates[..=last_selected]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(uses: &[i64]) -> Vec<Candidate<usize>> {
        let keys = uses.iter().enumerate();
        keys.map(|(key, &last_used)| Candidate { key, last_used })
            .collect()
    }

    fn evicted(uses: &[i64], part: usize) -> Vec<i64> {
        let mut candidates = candidates(uses);
        let mut evicted: Vec<i64> = least_recently_used(&mut candidates, part)
            .iter()
            .map(|plan| plan.last_used)
            .collect();
        evicted.sort_unstable();
        evicted
    }

    #[test]
    fn the_least_recently_used_plans_are_evicted() {
        assert_eq!(evicted(&[5, 3, 9, 1, 7], 20), [1]);
        assert_eq!(evicted(&[5, 3, 9, 1, 7], 4), [1, 3]);
        let uses: Vec<i64> = (0..100).map(|i| i * 37 % 100).collect();
        assert_eq!(evicted(&uses, 20), [0, 1, 2, 3, 4, 5]);
        assert_eq!(evicted(&uses, 2), (0..=50).collect::<Vec<_>>());
    }

    #[test]
    fn at_least_one_plan_and_at_most_all_plans_are_evicted() {
        assert!(evicted(&[], 20).is_empty());
        assert_eq!(evicted(&[4], 20), [4]);
        assert_eq!(evicted(&[4], 1), [4]);
        assert_eq!(evicted(&[4, 2], 1), [2, 4]);
        assert_eq!(evicted(&[4, 2], 0), [2, 4]);
    }

    #[test]
    fn equal_times_of_use_do_not_evict_more_plans() {
        for part in PARTS {
            assert_eq!(evicted(&[8; 100], part).len(), 100 / part + 1);
        }
    }

    #[test]
    fn no_plan_is_evicted_twice() {
        let mut candidates = candidates(&[3, 3, 3, 1, 1, 2, 2, 9, 9, 9]);
        let evicted = least_recently_used(&mut candidates, 2);
        let mut keys: Vec<usize> = evicted.iter().map(|plan| plan.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 6);
        let newest_evicted = evicted.iter().map(|plan| plan.last_used).max();
        let oldest_kept = candidates[6..].iter().map(|plan| plan.last_used).min();
        assert!(newest_evicted <= oldest_kept);
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
