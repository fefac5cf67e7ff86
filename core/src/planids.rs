//! The planids of plans that some session has described, for the other sessions: by the number that sessions
//! know a plan by. A table in shared memory that needs no lock.
//!
//! A place has the planid, and the hash of the plan's key mixed with the planid. A reader that sees half of a
//! change finds that both do not fit together. If a bucket is full, one of its plans goes: the next session
//! that meets it describes it again, and finds the same planid.

use crate::model::PlanKey;
use crate::stable_hash::StableHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The places of a bucket.
const PLACES: usize = 4;

/// A bucket: a cache line. Zero bytes are an empty one.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Bucket([Place; PLACES]);

#[derive(Default)]
#[repr(C)]
struct Place {
    check: AtomicU64,
    planid: AtomicU64,
}

/// Returns the number of buckets for a number of plans: they have room for twice as many.
pub fn buckets(plans: usize) -> usize {
    (2 * plans).div_ceil(PLACES).next_power_of_two()
}

/// Returns the planid that was noted for the plan that sessions know by this key.
pub fn find(buckets: &[Bucket], key: &PlanKey) -> Option<i64> {
    let hash = hash(key);
    bucket(buckets, hash)?.0.iter().find_map(|place| {
        let planid = place.planid.load(Relaxed);
        (place.check.load(Relaxed) ^ planid == hash).then_some(planid as i64)
    })
}

/// Notes a plan's planid.
pub fn note(buckets: &[Bucket], key: &PlanKey, planid: i64) {
    let hash = hash(key);
    let Some(Bucket(places)) = bucket(buckets, hash) else {
        return;
    };
    let is_own = |place: &&Place| place.check.load(Relaxed) ^ place.planid.load(Relaxed) == hash;
    let is_free = |place: &&Place| place.planid.load(Relaxed) == 0;
    let place = places.iter().find(is_own).or_else(|| places.iter().find(is_free));
    // The highest bits did not choose the bucket.
    let place = place.unwrap_or(&places[(hash >> 62) as usize % PLACES]);
    place.check.store(hash ^ planid as u64, Relaxed);
    place.planid.store(planid as u64, Relaxed);
}

fn bucket(buckets: &[Bucket], hash: u64) -> Option<&Bucket> {
    buckets.get((hash as usize).checked_rem(buckets.len())?)
}

/// Returns a hash of a key, which is never 0.
fn hash(key: &PlanKey) -> u64 {
    let mut hasher = StableHasher::new();
    for number in [key.queryid, key.planid] {
        hasher.bytes(number.to_le_bytes());
    }
    for number in [key.userid, key.datid, u32::from(key.toplevel())] {
        hasher.number(number);
    }
    hasher.finish() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(queryid: i64, number: i64) -> PlanKey {
        PlanKey::new(10, 5, queryid, number, true)
    }

    #[test]
    fn what_was_noted_is_found_until_others_take_the_place() {
        let made: Vec<Bucket> = (0..buckets(1000)).map(|_| Bucket::default()).collect();
        assert_eq!((made.len(), size_of::<Bucket>()), (512, 64));
        assert_eq!(find(&made, &key(1, 1)), None);
        let found = |plans: i64| {
            let is_found = |n: &i64| find(&made, &key(*n, *n + 1)) == Some(*n + 2);
            (1..=plans).filter(is_found).count()
        };
        (1..=1000).for_each(|n| note(&made, &key(n, n + 1), n + 2));
        assert!(found(1000) > 940, "{}", found(1000));
        (1..=1000).for_each(|n| note(&made, &key(n, n + 1), n + 2));
        (1001..=100_000).for_each(|n| note(&made, &key(n, n + 1), n + 2));
        assert!(found(100_000) <= made.len() * PLACES);
        note(&made, &key(1, 2), 7);
        note(&made, &key(1, 2), 8);
        assert_eq!(find(&made, &key(1, 2)), Some(8));
        assert_eq!(find(&[], &key(1, 2)), None);
    }
}
