//! The buffers: one for each running session, in a list that only grows.

use super::atomics::{Atomic, Atomics, Native};
use super::slot::{Adding, Key, Slot, SlotGuard};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The slots of one session. When the session ends, another session can take the buffer.
///
/// With [`Native`] atomics, zero bytes are an empty buffer if they are a valid `K` and `V`.
#[repr(C)]
pub struct Buffer<K, V, const SLOTS: usize, A: Atomics = Native> {
    /// The address of the buffer that was listed before this one; 0 in the first buffer.
    next: A::U64,
    /// 1 if a session has the buffer.
    taken: A::I32,
    slots: [Slot<K, V, A>; SLOTS],
}

impl<K: Key, V: Default, const SLOTS: usize, A: Atomics> Default for Buffer<K, V, SLOTS, A> {
    fn default() -> Self {
        Buffer {
            next: A::U64::new(0),
            taken: A::I32::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

impl<K: Key, V, const SLOTS: usize, A: Atomics> Buffer<K, V, SLOTS, A> {
    /// Returns the buffer's slots.
    pub fn slots(&self) -> &[Slot<K, V, A>; SLOTS] {
        &self.slots
    }

    /// Takes the buffer for the session of the process `pid`. Returns `None` if a session has it.
    fn take(&self, pid: i32) -> Option<OwnBuffer<'_, K, V, SLOTS, A>> {
        self.taken.compare_exchange(0, 1, Acquire, Relaxed).ok()?;
        Some(OwnBuffer {
            buffer: self,
            pid,
            not_shared: PhantomData,
        })
    }
}

/// All buffers. The caller defines what an address is; no address is 0.
#[repr(transparent)]
pub struct List<A: Atomics = Native> {
    /// The address of the newest buffer, or 0.
    newest: A::U64,
}

impl<A: Atomics> Default for List<A> {
    fn default() -> Self {
        List {
            newest: A::U64::new(0),
        }
    }
}

impl<A: Atomics> List<A> {
    /// Visits all buffers until `visit` returns something, and returns that. `at` returns the buffer at an
    /// address.
    pub fn find<'a, K: Key + 'a, V: 'a, const SLOTS: usize, R>(
        &self,
        at: impl Fn(u64) -> &'a Buffer<K, V, SLOTS, A>,
        mut visit: impl FnMut(&'a Buffer<K, V, SLOTS, A>) -> Option<R>,
    ) -> Option<R>
    where
        A: 'a,
    {
        let mut address = self.newest.load(Acquire);
        while address != 0 {
            let buffer = at(address);
            if let Some(found) = visit(buffer) {
                return Some(found);
            }
            // `next` does not change after the buffer was listed.
            address = buffer.next.load(Relaxed);
        }
        None
    }

    /// Visits the slots of all sessions. `at` returns the buffer at an address.
    pub fn each_slot<'a, K: Key + 'a, V: 'a, const SLOTS: usize>(
        &self,
        at: impl Fn(u64) -> &'a Buffer<K, V, SLOTS, A>,
        mut visit: impl FnMut(&'a Slot<K, V, A>),
    ) where
        A: 'a,
    {
        self.find::<K, V, SLOTS, ()>(at, |buffer| {
            buffer.slots.iter().for_each(&mut visit);
            None
        });
    }

    /// Gives the session of the process `pid` a buffer: a listed one that no session has, or a new one from
    /// `make`, which returns its address. `at` returns the buffer at an address. Returns `None` if `make`
    /// returns `None`.
    pub fn attach<'a, K: Key + 'a, V: 'a, const SLOTS: usize>(
        &self,
        pid: i32,
        at: impl Fn(u64) -> &'a Buffer<K, V, SLOTS, A>,
        make: impl FnOnce() -> Option<u64>,
    ) -> Option<OwnBuffer<'a, K, V, SLOTS, A>>
    where
        A: 'a,
    {
        self.find(&at, |buffer| buffer.take(pid)).or_else(|| {
            let address = make()?;
            let buffer = at(address);
            // This succeeds, because no other session knows the buffer yet.
            let own = buffer.take(pid)?;
            self.push(address, buffer);
            Some(own)
        })
    }

    /// Adds a new buffer to the list.
    fn push<K, V, const SLOTS: usize>(&self, address: u64, buffer: &Buffer<K, V, SLOTS, A>) {
        let mut newest = self.newest.load(Relaxed);
        loop {
            buffer.next.store(newest, Relaxed);
            // `Release` ensures that readers who find the buffer see it complete. The exchange continues the
            // release sequences of earlier exchanges, so this is also true for the older buffers.
            match self.newest.compare_exchange(newest, address, Release, Relaxed) {
                Ok(_) => return,
                Err(newer) => newest = newer,
            }
        }
    }
}

/// A session's own buffer. After this is dropped, another session can take the buffer.
pub struct OwnBuffer<'a, K, V, const SLOTS: usize, A: Atomics = Native> {
    buffer: &'a Buffer<K, V, SLOTS, A>,
    pid: i32,
    /// Makes the type `!Sync`: a slot's key is read without holding the slot, so two threads must not use
    /// this type at the same time.
    not_shared: PhantomData<*const ()>,
}

impl<'a, K: Key, V, const SLOTS: usize, A: Atomics> OwnBuffer<'a, K, V, SLOTS, A> {
    /// Returns the buffer's slots.
    pub fn slots(&self) -> &'a [Slot<K, V, A>; SLOTS] {
        &self.buffer.slots
    }

    /// Holds the slot `at`, to add an execution that ended at the time `now`. Returns `None` if the slot is
    /// not kept for the key, must be flushed, or is held by a reader. The caller then adds the execution to
    /// the store.
    #[inline(always)]
    pub fn add_to<Q>(&self, at: usize, key: &Q, now: i64) -> Option<Adding<'a, K, V, A>>
    where
        K: PartialEq<Q>,
    {
        let slot = self.buffer.slots.get(at)?;
        if slot.is_due(now) || !slot.has_key(key) {
            return None;
        }
        slot.try_hold(self.pid).map(Adding::to)
    }

    /// Keeps a slot for a key until the time `until`: the slot that the key has, or a free one, or one that
    /// must be flushed at the time `now`. Has `prepare` prepare the slot's value, and then flushes the slot's
    /// earlier content to `sink`. Returns the slot's number, or `None` if no slot is available, or if
    /// `prepare` returns false.
    ///
    /// Both are called while the slot is held. They must not wait for a slot. `prepare` must not change the
    /// content.
    pub fn claim(
        &self,
        key: K,
        now: i64,
        until: i64,
        prepare: impl FnOnce(usize, &mut V) -> bool,
        sink: impl FnOnce(usize, &K, &V),
    ) -> Option<usize> {
        let slots = &self.buffer.slots;
        let kept_for_key = slots.iter().position(|slot| slot.is_kept_for(&key));
        let at = kept_for_key.or_else(|| slots.iter().position(|slot| slot.is_due(now)))?;
        // The key's own slot may not be due: the caller could not add to it because a reader held it.
        if !slots[at].is_due(now) {
            return None;
        }
        let guard = slots[at].try_hold(self.pid)?;
        if !guard.prepare(|value| prepare(at, value)) {
            return None;
        }
        self.flush(at, &guard, sink);
        guard.keep_for(key, until);
        Some(at)
    }

    /// Passes the content of the slot `at` to `sink`, and frees the slot. `guard` must be the guard of that
    /// slot.
    ///
    /// `sink` is called while the slot is held. It must not wait for a slot.
    pub fn flush(&self, at: usize, guard: &SlotGuard<'_, K, V, A>, sink: impl FnOnce(usize, &K, &V)) {
        guard.free();
        guard.flush(|key, value| {
            sink(at, key, value);
            true
        });
    }
}

impl<K, V, const SLOTS: usize, A: Atomics> Drop for OwnBuffer<'_, K, V, SLOTS, A> {
    fn drop(&mut self) {
        self.buffer.taken.store(0, Release);
    }
}
