//! Remembers which plans were evicted, in a memory of fixed size.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The words of one generation's bits.
const WORDS: usize = 1024;
const BITS: u64 = WORDS as u64 * 64;
/// A generation has this many plans at most. Then one plan in forty that was never evicted seems to be in it.
const MAX_PLANS: u32 = 8 * 1024;
/// The number of bits that a plan sets.
const BITS_PER_PLAN: u64 = 4;

/// A Bloom filter of the plans that were evicted last: it knows all of the last 8,192, and up to as many
/// before them.
///
/// A plan that comes again is worth keeping, even if each of its executions finds it evicted. The filter has
/// two generations. When the current one is full, the older one is cleared and becomes the current one.
///
/// Zero bytes are an empty filter. Several processes may read it while one changes it.
#[repr(C)]
pub struct Doorkeeper {
    generations: [[AtomicU64; WORDS]; 2],
    /// The index of the current generation.
    current: AtomicU32,
    /// The number of plans in the current generation.
    plans: AtomicU32,
}

/// Returns the bits of a plan: the index of a word, and the mask in it.
fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    // The two halves of a well mixed hash are as good as many hashes (Kirsch and Mitzenmacher).
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let (first, step) = (mixed >> 32, (mixed & 0xffff_ffff) | 1);
    (0..BITS_PER_PLAN).map(move |i| {
        let bit = first.wrapping_add(i.wrapping_mul(step)) % BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

impl Doorkeeper {
    /// Returns whether a plan with this hash was evicted lately. It may be wrong for a plan that was not.
    pub fn knows(&self, hash: u64) -> bool {
        self.generations.iter().any(|words| {
            bits(hash).all(|(at, mask)| words.get(at).is_some_and(|word| word.load(Relaxed) & mask != 0))
        })
    }

    /// Adds an evicted plan. Only one process at a time may call this.
    pub fn add(&self, hash: u64) {
        if self.plans.load(Relaxed) >= MAX_PLANS {
            let next = (self.current.load(Relaxed) + 1) % 2;
            self.clear_generation(next);
            self.current.store(next, Relaxed);
            self.plans.store(0, Relaxed);
        }
        self.plans.fetch_add(1, Relaxed);
        if let Some(words) = self.generations.get(self.current.load(Relaxed) as usize) {
            for (at, mask) in bits(hash) {
                words[at].fetch_or(mask, Relaxed);
            }
        }
    }

    /// Forgets all plans. Only one process at a time may call this.
    pub fn clear(&self) {
        self.clear_generation(0);
        self.clear_generation(1);
        self.plans.store(0, Relaxed);
    }

    fn clear_generation(&self, generation: u32) {
        if let Some(words) = self.generations.get(generation as usize) {
            words.iter().for_each(|word| word.store(0, Relaxed));
        }
    }
}

impl Default for Doorkeeper {
    fn default() -> Self {
        Doorkeeper {
            generations: [const { [const { AtomicU64::new(0) }; WORDS] }; 2],
            current: AtomicU32::new(0),
            plans: AtomicU32::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_plans_evicted_last_and_forgets_older_ones() {
        let doorkeeper = Doorkeeper::default();
        assert!(!doorkeeper.knows(0) && !doorkeeper.knows(1));
        let total = 5 * u64::from(MAX_PLANS) + 100;
        for hash in 0..total {
            doorkeeper.add(hash);
            assert!(doorkeeper.knows(hash));
        }
        let known = |hashes: std::ops::Range<u64>| hashes.filter(|hash| doorkeeper.knows(*hash)).count();
        let last = u64::from(MAX_PLANS);
        assert_eq!(known(total - last..total), MAX_PLANS as usize);
        // What it knows of others is chance.
        let wrong = |count: usize| count as f64 / f64::from(MAX_PLANS);
        let (older, never) = (known(0..last), known(total..total + last));
        assert!(wrong(older) < 0.06 && wrong(never) < 0.06, "{older} {never}");
        doorkeeper.clear();
        assert_eq!(known(0..total), 0);
    }
}
