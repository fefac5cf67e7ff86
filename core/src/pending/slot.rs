//! A slot: the statistics of one plan in one session since the last flush to the store.

#![allow(unsafe_code, reason = "the slot's owner guards the cells, not the compiler")]

use super::atomics::{Atomic, Atomics, Native, SharedCell};
use super::owner::{Owner, OwnerGuard};
use std::sync::atomic::Ordering::Relaxed;

/// Identifies the plan that a slot is kept for.
pub trait Key: Copy + Default + PartialEq {
    /// Returns a number that distinguishes most keys. A process that does not hold a slot can read its tag,
    /// but not its key.
    fn tag(&self) -> u64;
}

/// The value that one session has collected for one key since the last flush to the store.
///
/// Only the session of the buffer writes the cells, and only while it holds the slot. So it may read the key
/// at any time. Other processes read the cells only while they hold the slot.
#[repr(C)]
pub struct Slot<K, V, A: Atomics = Native> {
    owner: Owner<A>,
    /// 1 if there is something to flush. It changes only while the slot is held; others read it as a hint.
    filled: A::I32,
    /// When the session must flush the slot; 0 if the slot is free, or the plan was removed from the store.
    until: A::I64,
    /// The key's tag. Processes that do not hold the slot read it as a hint.
    tag: A::U64,
    key: A::Cell<K>,
    value: A::Cell<V>,
}

// SAFETY: the key and the value are written, and read by other sessions, only by the holder of the slot.
// There is one holder at a time, and `Owner` orders one holder after the other. The session's read of its key
// without the slot conflicts with no write, because only that session writes the key. `K: Send` and
// `V: Send`, because the values pass from thread to thread.
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
    /// Holds the slot for the process `pid`. Returns `None` if a process holds it already.
    #[inline(always)]
    pub fn try_hold(&self, pid: i32) -> Option<SlotGuard<'_, K, V, A>> {
        let owner = self.owner.try_hold(pid)?;
        Some(SlotGuard {
            slot: self,
            _owner: owner,
        })
    }

    /// Holds the slot as [`Slot::try_hold`] does, also if the holder is a process that has ended. This
    /// process must not hold the slot already.
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

    /// Returns whether the slot seems to have something to flush: for the key with this tag, if a tag is
    /// given.
    pub fn seems_filled(&self, tag: Option<u64>) -> bool {
        self.filled.load(Relaxed) != 0 && tag.is_none_or(|tag| self.tag.load(Relaxed) == tag)
    }

    /// Returns whether the slot seems to be in use.
    pub fn seems_used(&self) -> bool {
        self.filled.load(Relaxed) != 0 || self.until.load(Relaxed) != 0
    }

    /// Makes the session look up its plan again at the next execution if `is_evicted` returns true for the
    /// key's tag. It does not wait for the slot. If the session changes the key at the same time, this may
    /// miss the new key, or cause a lookup that was not necessary: both only cost time.
    pub fn invalidate(&self, is_evicted: impl FnOnce(u64) -> bool) {
        if self.until.load(Relaxed) != 0 && is_evicted(self.tag.load(Relaxed)) {
            self.until.store(0, Relaxed);
        }
    }

    /// Returns whether the session must flush the slot at the time `now`. A free slot is always due.
    #[inline(always)]
    pub(super) fn is_due(&self, now: i64) -> bool {
        self.until.load(Relaxed) <= now
    }

    /// Returns whether the slot is kept for this key.
    pub(super) fn is_kept_for(&self, key: &K) -> bool {
        self.until.load(Relaxed) != 0 && self.has_key(key)
    }

    /// Returns whether this is the slot's key. Only the session of the buffer may call it.
    #[inline(always)]
    pub(super) fn has_key<Q>(&self, key: &Q) -> bool
    where
        K: PartialEq<Q>,
    {
        // SAFETY: only the session of the buffer writes the key. That session is the caller, in one thread,
        // so it does not write the key during this read.
        let current = unsafe { *self.key.read() };
        current == *key
    }
}

/// A slot to which its session is adding. The session holds the slot until this is dropped.
#[must_use]
pub struct Adding<'a, K, V, A: Atomics + 'a = Native>
where
    A::Cell<V>: 'a,
{
    // This field stands before the guard, because it must be dropped first.
    value: <A::Cell<V> as SharedCell<V>>::Mut<'a>,
    is_empty: bool,
    _guard: SlotGuard<'a, K, V, A>,
}

impl<'a, K: Key, V, A: Atomics> Adding<'a, K, V, A> {
    /// Starts to add to a slot. Only the session of the buffer may call it.
    #[inline(always)]
    pub(super) fn to(guard: SlotGuard<'a, K, V, A>) -> Self {
        let slot = guard.slot;
        let is_empty = slot.filled.load(Relaxed) == 0;
        if is_empty {
            slot.filled.store(1, Relaxed);
        }
        Adding {
            // SAFETY: a process uses the value only while it holds the slot. This process holds the slot as
            // long as the reference lives, and it has no other reference to the value: it cannot hold the
            // slot twice.
            value: unsafe { slot.value.write() },
            is_empty,
            _guard: guard,
        }
    }

    /// Returns whether the slot was empty. If so, its value is an old one that was already flushed or
    /// discarded.
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
        // SAFETY: only the holder of the slot writes the key. This process is the holder, and does not write
        // it here.
        unsafe { *self.slot.key.read() }
    }

    /// Passes the slot's content to `sink`. Empties the slot if `sink` returns true, and leaves it unchanged
    /// otherwise.
    pub fn flush(&self, sink: impl FnOnce(&K, &V) -> bool) {
        if self.slot.filled.load(Relaxed) == 0 {
            return;
        }
        // SAFETY: only the holder of the slot writes key and value. This process is the holder, and `sink`
        // gets them only to read.
        let (key, value) = unsafe { (self.slot.key.read(), self.slot.value.read()) };
        if sink(&key, &value) {
            self.slot.filled.store(0, Relaxed);
        }
    }

    /// Has the session prepare the slot's value. Only the session of the buffer may call it.
    pub(super) fn prepare(&self, prepare: impl FnOnce(&mut V) -> bool) -> bool {
        // SAFETY: a process uses the value only while it holds the slot. This process is the holder, and has
        // no other reference to the value.
        let mut value = unsafe { self.slot.value.write() };
        prepare(&mut value)
    }

    /// Deletes the slot's content. The session's next execution looks up its plan again.
    pub fn discard(&self) {
        self.slot.filled.store(0, Relaxed);
        self.slot.until.store(0, Relaxed);
    }

    /// Keeps the slot for a key until a time. The slot must be empty. Only the session of the buffer may call
    /// it.
    pub(super) fn keep_for(&self, key: K, until: i64) {
        // SAFETY: other processes read the key only while they hold the slot. This process is the holder, and
        // has no other reference to the key.
        unsafe { *self.slot.key.write() = key }
        self.slot.tag.store(key.tag(), Relaxed);
        self.slot.until.store(until, Relaxed);
    }

    /// Frees the slot: the session keeps it for no key. Its content stays until it is flushed.
    pub(super) fn free(&self) {
        self.slot.until.store(0, Relaxed);
    }
}
