//! A slot: what one session has done with one plan since it last told the store.

#![allow(unsafe_code, reason = "a slot's owner guards its cells")]

use super::atomics::{Atomic, Atomics, Native, SharedCell};
use super::owner::{Owner, OwnerGuard};
use std::sync::atomic::Ordering::Relaxed;

/// What a slot is kept for.
pub trait Key: Copy + Default + PartialEq {
    /// Returns a number that tells most keys apart. Who does not hold a slot can read its tag, not its key.
    fn tag(&self) -> u64;
}

/// What one session has done under a key since it last told the store.
///
/// Only the session of the buffer writes the cells, and it holds the slot then. So it may read the key at any time. Others
/// read the cells while they hold the slot.
#[repr(C)]
pub struct Slot<K, V, A: Atomics = Native> {
    owner: Owner<A>,
    /// 1 where there is something to flush. It changes only while the slot is held; others read it as a hint.
    filled: A::I32,
    /// When the session is to flush it; 0 where the slot is free, or the plan has gone from the store.
    until: A::I64,
    /// The key's tag. Who does not hold the slot reads it as a hint.
    tag: A::U64,
    key: A::Cell<K>,
    value: A::Cell<V>,
}

// SAFETY: the cells are shared as the type's own comment says. What lies in them is sent from the process that writes it
// to those that read it, one at a time.
unsafe impl<K: Send, V: Send, A: Atomics> Sync for Slot<K, V, A>
where
    A::I32: Sync,
    A::I64: Sync,
    A::U64: Sync,
{
}

impl<K: Key, V: Default, A: Atomics> Default for Slot<K, V, A> {
    fn default() -> Self {
        Slot {
            owner: Owner::default(),
            filled: A::I32::new(0),
            until: A::I64::new(0),
            tag: A::U64::new(0),
            key: A::Cell::new(K::default()),
            value: A::Cell::new(V::default()),
        }
    }
}

impl<K: Key, V, A: Atomics> Slot<K, V, A> {
    /// Holds the slot; `None` where a process does.
    #[inline(always)]
    pub fn try_hold(&self, pid: i32) -> Option<SlotGuard<'_, K, V, A>> {
        let owner = self.owner.try_hold(pid)?;
        Some(SlotGuard {
            slot: self,
            _owner: owner,
        })
    }

    /// Holds the slot as [`Slot::try_hold`] does, also where a process that has ended holds it. This process must not hold
    /// it.
    pub fn hold_or_inherit(
        &self,
        pid: i32,
        is_alive: impl FnOnce(i32) -> bool,
    ) -> Option<SlotGuard<'_, K, V, A>> {
        let owner = self.owner.hold_or_inherit(pid, is_alive)?;
        Some(SlotGuard {
            slot: self,
            _owner: owner,
        })
    }

    /// Returns whether there seems to be something to flush: of the key with this tag, if one is named.
    pub fn seems_filled(&self, tag: Option<u64>) -> bool {
        self.filled.load(Relaxed) != 0 && tag.is_none_or(|tag| self.tag.load(Relaxed) == tag)
    }

    /// Returns whether the slot seems to be in use.
    pub fn seems_used(&self) -> bool {
        self.filled.load(Relaxed) != 0 || self.until.load(Relaxed) != 0
    }

    /// Lets the session look its plan up again at the next execution if `gone` returns true for the key's tag. It does not
    /// wait for the slot. A key that the session puts in meanwhile may be missed, or looked up in vain: both only cost time.
    pub fn invalidate(&self, gone: impl FnOnce(u64) -> bool) {
        if self.until.load(Relaxed) != 0 && gone(self.tag.load(Relaxed)) {
            self.until.store(0, Relaxed);
        }
    }

    /// Returns whether the session is to flush the slot at the time `now`.
    #[inline(always)]
    pub(super) fn is_due(&self, now: i64) -> bool {
        self.until.load(Relaxed) <= now
    }

    /// Returns whether the slot is kept for this key.
    pub(super) fn is_kept_for(&self, key: &K) -> bool {
        self.until.load(Relaxed) != 0 && self.has_key(key)
    }

    /// Returns whether this is the slot's key. To be called by the session of the buffer.
    #[inline(always)]
    pub(super) fn has_key<Q>(&self, key: &Q) -> bool
    where
        K: PartialEq<Q>,
    {
        // SAFETY: only the session of the buffer writes the key, and that is the caller, who does nothing else meanwhile.
        let own = unsafe { *self.key.read() };
        own == *key
    }
}

/// A slot to which its session is adding, and which it holds until this is dropped.
#[must_use]
pub struct Adding<'a, K, V, A: Atomics + 'a = Native>
where
    A::Cell<V>: 'a,
{
    // Goes before the guard does.
    value: <A::Cell<V> as SharedCell<V>>::Mut<'a>,
    is_empty: bool,
    _guard: SlotGuard<'a, K, V, A>,
}

impl<'a, K: Key, V, A: Atomics> Adding<'a, K, V, A> {
    /// Adds to a slot. To be called by the session of the buffer.
    #[inline(always)]
    pub(super) fn to(guard: SlotGuard<'a, K, V, A>) -> Self {
        let slot = guard.slot;
        let is_empty = slot.filled.load(Relaxed) == 0;
        if is_empty {
            slot.filled.store(1, Relaxed);
        }
        Adding {
            // SAFETY: others use the value only while they hold the slot. This process holds it as long as the reference
            // lives, and the session uses the value nowhere else meanwhile: it cannot hold the slot twice.
            value: unsafe { slot.value.write() },
            is_empty,
            _guard: guard,
        }
    }

    /// Returns whether the slot was empty. Then its value is an old one.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns the value to add to.
    #[inline(always)]
    pub fn value(&mut self) -> &mut V {
        &mut self.value
    }
}

/// A slot that this process holds until this is dropped.
#[must_use]
pub struct SlotGuard<'a, K, V, A: Atomics = Native> {
    slot: &'a Slot<K, V, A>,
    _owner: OwnerGuard<'a, A>,
}

impl<K: Key, V, A: Atomics> SlotGuard<'_, K, V, A> {
    /// Returns the slot's key.
    pub fn key(&self) -> K {
        // SAFETY: the key is only written by who holds the slot, and this process does.
        unsafe { *self.slot.key.read() }
    }

    /// Hands what the slot has to `sink`. The slot is empty afterwards if `sink` returns true, and else as it was.
    pub fn flush(&self, sink: impl FnOnce(&K, &V) -> bool) {
        if self.slot.filled.load(Relaxed) == 0 {
            return;
        }
        // SAFETY: key and value are only written by who holds the slot, and this process does.
        let (key, value) = unsafe { (self.slot.key.read(), self.slot.value.read()) };
        if sink(&key, &value) {
            self.slot.filled.store(0, Relaxed);
        }
    }

    /// Forgets what the slot has. The session's next execution looks its plan up.
    pub fn discard(&self) {
        self.slot.filled.store(0, Relaxed);
        self.slot.until.store(0, Relaxed);
    }

    /// Lets the slot be kept for a key until a time. It must be empty. To be called by the session of the buffer.
    pub(super) fn keep_for(&self, key: K, until: i64) {
        // SAFETY: others read the key only while they hold the slot, and this process does.
        unsafe { *self.slot.key.write() = key }
        self.slot.tag.store(key.tag(), Relaxed);
        self.slot.until.store(until, Relaxed);
    }

    /// Frees the slot: the session keeps it for no key. What it has stays to be flushed.
    pub(super) fn free(&self) {
        self.slot.until.store(0, Relaxed);
    }
}
