//! The place of a block in a session.

use crate::pending::{Atomic, Atomics, Native};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The session holds the block.
const HELD: u64 = 1;
const KIND_SHIFT: u32 = 1;
/// The bits of the kind.
const KIND: u64 = 7;
/// Blocks begin at multiples of this number of bytes, so the lowest bits of their addresses are free.
const ALIGNMENT: u64 = 64;

/// Which block it is: its address in shared memory, and of what kind it is. Both never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(u64);

impl BlockId {
    /// The number of kinds.
    pub const KINDS: usize = KIND as usize + 1;

    /// Returns the block of this kind at this address. Returns `None` if there can be none.
    pub fn new(address: u64, kind: usize) -> Option<BlockId> {
        let is_valid = address != 0 && address.is_multiple_of(ALIGNMENT) && kind < Self::KINDS;
        is_valid.then_some(BlockId(address | (kind as u64) << KIND_SHIFT))
    }

    /// Returns its address.
    pub fn address(self) -> u64 {
        self.0 & !(ALIGNMENT - 1)
    }

    /// Returns its kind.
    pub fn kind(self) -> usize {
        (self.0 >> KIND_SHIFT & KIND) as usize
    }
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The block.
    pub block: BlockId,
    /// The session holds it.
    pub is_held: bool,
}

/// A slot of a session, for one block. Zero bytes are an empty one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Slot<A: Atomics = Native>(A::U64);

impl<A: Atomics> Default for Slot<A> {
    fn default() -> Self {
        Slot(A::U64::new(0))
    }
}

/// What the session of the slot does.
impl<A: Atomics> Slot<A> {
    /// Puts a block that is in no slot into this one, which is empty. The session holds it.
    pub fn put(&self, block: BlockId) {
        self.0.store(block.0 | HELD, Release);
    }

    /// Takes the block again that it has given back. Returns false if another session has claimed it.
    #[inline(always)]
    pub fn hold(&self, block: BlockId) -> bool {
        self.0
            .compare_exchange(block.0, block.0 | HELD, Relaxed, Relaxed)
            .is_ok()
    }

    /// Gives back the block that it holds.
    #[inline(always)]
    pub fn give_back(&self, block: BlockId) {
        self.0.store(block.0, Release);
    }

    /// Returns whether the session holds this block here.
    #[inline(always)]
    pub fn holds(&self, block: BlockId) -> bool {
        self.0.load(Relaxed) == block.0 | HELD
    }

    /// Gives back what the session before left here, if it held it. `end` ends the statement in that block
    /// before. Only who has become the owner of that session's slots may call this.
    pub fn inherit(&self, end: impl FnOnce(BlockId)) {
        if let Some(found) = self.found().filter(|found| found.is_held) {
            end(found.block);
            self.give_back(found.block);
        }
    }
}

/// What others do.
impl<A: Atomics> Slot<A> {
    /// Returns what is in the slot.
    #[inline(always)]
    pub fn found(&self) -> Option<Found> {
        let word = self.0.load(Acquire);
        (word != 0).then_some(Found {
            block: BlockId(word & !HELD),
            is_held: word & HELD != 0,
        })
    }

    /// Takes a block away that the slot's session has given back. Returns false if the session holds it
    /// again, or if it is not there any more.
    pub fn claim(&self, block: BlockId) -> bool {
        let is_claimed = self.0.compare_exchange(block.0, 0, Acquire, Relaxed).is_ok();
        // A reader that sees what is written from now on also sees that the last execution has ended.
        A::fence(Release);
        is_claimed
    }

    /// Returns whether the block is in this slot. A reader asks that after it has copied what it needs, and
    /// before it asks [`Generation::is_still`](super::Generation::is_still).
    #[inline(always)]
    pub fn has(&self, block: BlockId) -> bool {
        self.0.load(Acquire) & !HELD == block.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_address_and_the_kind() {
        for kind in 0..BlockId::KINDS {
            let address = (3 << 40) + 4096 + 64 * kind as u64;
            let block = BlockId::new(address, kind).expect("valid");
            assert_eq!((block.address(), block.kind()), (address, kind));
        }
        assert_eq!(BlockId::new(0, 1), None);
        assert_eq!(BlockId::new(4096 + 8, 1), None);
        assert_eq!(BlockId::new(4096, BlockId::KINDS), None);
    }

    #[test]
    fn a_block_is_held_or_claimed() {
        let slot: Slot = Slot::default();
        let [block, other] = [4096, 8192].map(|address| BlockId::new(address, 2).expect("valid"));
        assert!(slot.found().is_none() && !slot.hold(block) && !slot.has(block));
        slot.put(block);
        let found = |is_held| Some(Found { block, is_held });
        assert_eq!(slot.found(), found(true));
        assert!(slot.holds(block) && slot.has(block) && !slot.claim(block) && !slot.hold(block));
        slot.give_back(block);
        assert_eq!(slot.found(), found(false));
        assert!(!slot.holds(block) && !slot.claim(other) && slot.hold(block));
        slot.give_back(block);
        assert!(slot.claim(block));
        assert!(slot.found().is_none() && !slot.hold(block) && !slot.claim(block));
    }

    #[test]
    fn what_a_session_left_is_given_back() {
        let slot: Slot = Slot::default();
        let block = BlockId::new(4096, 0).expect("valid");
        let mut ended = Vec::new();
        slot.inherit(|block| ended.push(block));
        slot.put(block);
        slot.inherit(|block| ended.push(block));
        slot.inherit(|block| ended.push(block));
        assert_eq!(ended, [block]);
        assert!(slot.claim(block));
    }
}
