//! The plans of each query that the store has: so a change of plan is noticed, however many queries ran
//! since.
//!
//! A hash table with open addressing, of a fixed size. A plan is noted when it comes into the store, and
//! forgotten when it leaves it. So what it costs to look for a query does not depend on the number of plans.
//! Numbers are atomic only because the table lies in shared memory: a lock guards it.

use crate::model::PlanKey;
use crate::stable_hash::StableHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// How many plans of a query are known. If it has more, another plan takes the place of one of them.
const PLANS: usize = 8;

/// A plan. Zero bytes are a free place.
#[derive(Default)]
#[repr(C)]
pub struct KnownPlan {
    /// A hash of the query; 0 if the place is free.
    query: AtomicU64,
    planid: AtomicI64,
}

impl KnownPlan {
    fn get(&self) -> (u64, i64) {
        (self.query.load(Relaxed), self.planid.load(Relaxed))
    }

    fn set(&self, (query, planid): (u64, i64)) {
        self.query.store(query, Relaxed);
        self.planid.store(planid, Relaxed);
    }
}

/// The table, for who holds its lock.
#[derive(Clone, Copy)]
pub struct KnownPlans<'a>(pub &'a [KnownPlan]);

impl KnownPlans<'_> {
    /// Returns the number of places for a number of plans. A third of them is free, so that one is found
    /// soon. Sessions that store plans at the same time may store some more.
    pub const fn places(plans: usize) -> usize {
        plans + plans / 2 + 64
    }

    /// Notes a plan that is in the store from now on.
    pub fn note(self, key: &PlanKey) {
        let query = hash_of_query(key);
        let mut of_query = [0; PLANS];
        let mut count = 0;
        for at in self.places_from(query) {
            match self.0[at].get() {
                (0, _) => return self.0[at].set((query, key.planid)),
                (known, planid) if known == query && planid == key.planid => return,
                (known, _) if known == query => {
                    of_query[count] = at;
                    count += 1;
                }
                _ => {}
            }
            if count == PLANS {
                // Any of them.
                let at = of_query[key.planid.unsigned_abs() as usize % PLANS];
                return self.0[at].set((query, key.planid));
            }
        }
    }

    /// Forgets a plan that is not in the store any more.
    pub fn forget(self, key: &PlanKey) {
        let plan = (hash_of_query(key), key.planid);
        if let Some(at) = self.used_from(plan.0).find(|at| self.0[*at].get() == plan) {
            self.remove(at);
        }
    }

    /// Removes the plan at a place. Those behind it move forward, so that no free place lies between the
    /// first place of a query and its plans.
    fn remove(self, removed: usize) {
        let mut free = removed;
        for at in self.from(removed).skip(1) {
            let plan = self.0[at].get();
            if plan.0 == 0 {
                break;
            }
            // How far it lies behind its first place, and behind the free one.
            if self.distance(self.first(plan.0), at) >= self.distance(free, at) {
                self.0[free].set(plan);
                free = at;
            }
        }
        self.0[free].set((0, 0));
    }

    /// Returns the plans of a query, the newest last: some of them if it has many.
    pub fn of_query(self, key: &PlanKey) -> impl DoubleEndedIterator<Item = PlanKey> {
        let query = hash_of_query(key);
        let (mut found, mut count) = ([0; PLANS], 0);
        for at in self.used_from(query).filter(|_| key.queryid != 0) {
            let (known, planid) = self.0[at].get();
            if known == query && count < PLANS {
                found[count] = planid;
                count += 1;
            }
        }
        let key = *key;
        found
            .into_iter()
            .take(count)
            .map(move |planid| key.with_plan(planid))
    }

    /// Returns the first place for the plans of a query.
    fn first(self, query: u64) -> usize {
        ((u128::from(query) * self.0.len() as u128) >> 64) as usize
    }

    /// Returns how far one place lies behind another one.
    fn distance(self, from: usize, to: usize) -> usize {
        (to + self.0.len() - from) % self.0.len().max(1)
    }

    /// Returns all places, beginning with this one.
    fn from(self, first: usize) -> impl Iterator<Item = usize> {
        (first..self.0.len()).chain(0..first.min(self.0.len()))
    }

    fn places_from(self, query: u64) -> impl Iterator<Item = usize> {
        self.from(self.first(query))
    }

    /// Returns the places from the first one of a query to the next free one.
    fn used_from(self, query: u64) -> impl Iterator<Item = usize> {
        self.places_from(query)
            .take_while(move |at| self.0[*at].query.load(Relaxed) != 0)
    }
}

/// Returns a hash of a query that is not 0.
pub(super) fn hash_of_query(key: &PlanKey) -> u64 {
    let mut hasher = StableHasher::new();
    hasher.bytes(key.queryid.to_le_bytes());
    for number in [key.userid, key.datid, u32::from(key.toplevel())] {
        hasher.number(number);
    }
    hasher.finish() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flips::tests::{key, random};

    /// Returns an empty table for these many plans.
    fn table(plans: usize) -> Vec<KnownPlan> {
        let places = KnownPlans::places(plans);
        (0..places).map(|_| KnownPlan::default()).collect()
    }

    fn of(known: KnownPlans<'_>, query: i64) -> Vec<i64> {
        known.of_query(&key(query, 0)).map(|plan| plan.planid).collect()
    }

    #[test]
    fn the_first_plan_of_each_query_is_known() {
        let all = table(5_000);
        let known = KnownPlans(&all);
        (1..=5_000).for_each(|query| known.note(&key(query, query + 1)));
        (1..=5_000).for_each(|query| assert_eq!(of(known, query), [query + 1]));
        assert_eq!(of(known, 5_001), [] as [i64; 0]);
        assert_eq!((size_of::<KnownPlan>(), all.len()), (16, 7_564));
    }

    #[test]
    fn the_plans_of_a_query_are_known_in_their_order() {
        let all = table(100);
        let known = KnownPlans(&all);
        (1..=3).for_each(|plan| known.note(&key(7, plan)));
        known.note(&key(7, 2));
        assert_eq!(of(known, 7), [1, 2, 3]);
        known.forget(&key(7, 1));
        known.forget(&key(8, 2));
        assert_eq!(of(known, 7), [2, 3]);
        // A query with many plans has eight places, the newest among them.
        (1..=1_000).for_each(|plan| known.note(&key(7, plan)));
        let plans = of(known, 7);
        assert!(plans.len() == PLANS && plans.contains(&1_000), "{plans:?}");
        (1..=1_000).for_each(|plan| known.forget(&key(7, plan)));
        assert!(all.iter().all(|plan| plan.get() == (0, 0)));
    }

    /// Plans come and go. What is known is always what is there.
    #[test]
    fn what_left_the_store_is_forgotten_and_all_else_is_known() {
        let all = table(200);
        let known = KnownPlans(&all);
        let mut random = random(7);
        let mut stored: Vec<PlanKey> = Vec::new();
        for _ in 0..50_000 {
            let new = key(random(1_000) as i64 + 1, random(3) as i64);
            if stored.len() == 200 || random(3) == 0 && !stored.is_empty() {
                let gone = stored.swap_remove(random(stored.len() as u64) as usize);
                known.forget(&gone);
            } else if !stored.contains(&new) {
                known.note(&new);
                stored.push(new);
            }
            let expected = stored.iter().filter(|plan| plan.queryid == new.queryid).count();
            assert_eq!(of(known, new.queryid).len(), expected);
        }
        let used = all.iter().filter(|plan| plan.get().0 != 0).count();
        assert_eq!(used, stored.len());
        for plan in &stored {
            assert!(of(known, plan.queryid).contains(&plan.planid));
        }
    }

    #[test]
    fn a_full_table_or_none_is_no_error() {
        let known = KnownPlans(&[]);
        known.note(&key(7, 1));
        known.forget(&key(7, 1));
        assert_eq!(of(known, 7), [] as [i64; 0]);
        let all = table(0);
        let known = KnownPlans(&all);
        (1..=1_000).for_each(|query| known.note(&key(query, 1)));
        assert_eq!(
            (1..=1_000).filter(|query| !of(known, *query).is_empty()).count(),
            64
        );
        (1..=1_000).for_each(|query| known.forget(&key(query, 1)));
        assert!(all.iter().all(|plan| plan.get() == (0, 0)));
    }
}
