//! Which plans go when there is no room for another.

/// How many plans are kept at most, and how many bytes they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The plans.
    pub plans: u64,
    /// The bytes of all plans.
    pub bytes: u64,
}

impl Limits {
    /// Returns whether so many plans of so many bytes leave no room for another.
    pub fn are_reached(&self, plans: u64, bytes: u64) -> bool {
        plans >= self.plans || bytes >= self.bytes
    }
}

/// The parts of the plans that go one after the other until there is room for a new one: a twentieth, and where that frees no
/// block of the size that is wanted, more.
pub const PARTS: [usize; 5] = [20, 20, 10, 4, 2];

/// A plan that may go, and when it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// What identifies it.
    pub key: K,
    /// When it was last used; larger is later.
    pub last_used: i64,
}

/// Returns the plans that go: one in `part`, those that were used longest ago, and at least one. Puts the candidates into
/// another order.
pub fn least_recently_used<K>(candidates: &mut [Candidate<K>], part: usize) -> &mut [Candidate<K>] {
    let Some(last) = candidates.len().checked_sub(1) else {
        return candidates;
    };
    let last_to_go = (candidates.len() / part.max(1)).min(last);
    candidates.select_nth_unstable_by_key(last_to_go, |candidate| candidate.last_used);
    &mut candidates[..=last_to_go]
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
        let mut gone: Vec<i64> = least_recently_used(&mut candidates, part)
            .iter()
            .map(|gone| gone.last_used)
            .collect();
        gone.sort_unstable();
        gone
    }

    #[test]
    fn those_used_longest_ago_go() {
        assert_eq!(evicted(&[5, 3, 9, 1, 7], 20), [1]);
        assert_eq!(evicted(&[5, 3, 9, 1, 7], 4), [1, 3]);
        let uses: Vec<i64> = (0..100).map(|i| i * 37 % 100).collect();
        assert_eq!(evicted(&uses, 20), [0, 1, 2, 3, 4, 5]);
        assert_eq!(evicted(&uses, 2), (0..=50).collect::<Vec<_>>());
    }

    #[test]
    fn at_least_one_goes_and_never_more_than_there_are() {
        assert!(evicted(&[], 20).is_empty());
        assert_eq!(evicted(&[4], 20), [4]);
        assert_eq!(evicted(&[4], 1), [4]);
        assert_eq!(evicted(&[4, 2], 1), [2, 4]);
        assert_eq!(evicted(&[4, 2], 0), [2, 4]);
    }

    #[test]
    fn of_plans_used_at_one_moment_no_more_go() {
        for part in PARTS {
            assert_eq!(evicted(&[8; 100], part).len(), 100 / part + 1);
        }
    }

    #[test]
    fn each_plan_goes_once() {
        let mut candidates = candidates(&[3, 3, 3, 1, 1, 2, 2, 9, 9, 9]);
        let gone = least_recently_used(&mut candidates, 2);
        let mut keys: Vec<usize> = gone.iter().map(|gone| gone.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 6);
        let newest_gone = gone.iter().map(|gone| gone.last_used).max();
        let oldest_kept = candidates[6..].iter().map(|kept| kept.last_used).min();
        assert!(newest_gone <= oldest_kept);
    }

    #[test]
    fn either_limit_is_one() {
        let limits = Limits {
            plans: 10,
            bytes: 1_000,
        };
        assert!(!limits.are_reached(9, 999));
        assert!(limits.are_reached(10, 0));
        assert!(limits.are_reached(0, 1_000));
    }
}
