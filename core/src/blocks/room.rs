//! How much memory all blocks may take.

use super::slot::BlockId;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Each kind of block has a share, and so has what is not a block.
const SHARES: usize = BlockId::KINDS + 1;
/// The shares together are one part in this many of the room.
const SHARED_PART: u64 = 2;

/// The bytes that are in use, by share. Blocks are never freed, so each share has a part of the room to
/// itself: else blocks of some kinds could take all of it, and no other kind could ever have one. Whoever
/// comes first has the rest. Zero bytes are a room that nobody uses.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Room([AtomicU64; SHARES]);

/// Bytes that are counted as used, until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Charge<'a> {
    used: &'a AtomicU64,
    bytes: u64,
}

impl Room {
    /// The share of what is not a block.
    pub const OTHER: usize = BlockId::KINDS;

    /// Counts bytes as used. Returns `None` if they do not fit into this limit of all bytes.
    ///
    /// # Panics
    /// If there is no such share.
    pub fn charge(&self, share: usize, bytes: u64, limit: u64) -> Option<Charge<'_>> {
        let used = &self.0[share];
        let charge = Charge { used, bytes };
        let own = used.fetch_add(bytes, Relaxed) + bytes;
        let of_each = limit / SHARED_PART / SHARES as u64;
        let beyond = self
            .0
            .iter()
            .map(|used| used.load(Relaxed).saturating_sub(of_each));
        let fits = own <= of_each || beyond.sum::<u64>() <= limit - SHARES as u64 * of_each;
        fits.then_some(charge)
    }
}

impl Charge<'_> {
    /// Keeps the bytes in use for ever.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_800;
    const OF_EACH: u64 = 100;

    /// Charges pieces until there is no room. Returns how many bytes fit.
    fn fill(room: &Room, share: usize, bytes: u64) -> u64 {
        let fits = || room.charge(share, bytes, LIMIT).map(Charge::keep).is_some();
        (0..).take_while(|_| fits()).count() as u64 * bytes
    }

    #[test]
    fn no_kind_takes_the_shares_of_others() {
        let room = Room::default();
        assert_eq!(fill(&room, 0, 50), LIMIT / 2 + OF_EACH);
        let others: Vec<u64> = (1..SHARES).map(|share| fill(&room, share, 50)).collect();
        assert_eq!(others, [OF_EACH; SHARES - 1]);
        assert_eq!(room.0.iter().map(|used| used.load(Relaxed)).sum::<u64>(), LIMIT);
    }

    #[test]
    fn a_large_block_needs_the_rest() {
        let room = Room::default();
        assert_eq!(fill(&room, 7, 400), 800);
        assert_eq!(fill(&room, Room::OTHER, 30), 300);
    }

    #[test]
    fn what_is_not_kept_is_given_back() {
        let room = Room::default();
        let all = room.charge(2, LIMIT / 2, LIMIT).expect("room");
        assert!(room.charge(3, LIMIT / 2, LIMIT).is_none());
        drop(all);
        room.charge(3, LIMIT / 2, LIMIT).expect("room").keep();
    }

    #[test]
    fn a_limit_that_falls_refuses_all() {
        let room = Room::default();
        assert_eq!(fill(&room, 0, 50), LIMIT / 2 + OF_EACH);
        assert!(room.charge(1, 50, 0).is_none());
        assert!(room.charge(0, 50, LIMIT / 2).is_none());
    }
}
