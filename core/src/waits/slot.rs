//! The waits of one process. Only that process writes them, and any process may read them.
//!
//! Each number is read and written as one word, so each is right by itself. A reader may see a wait in the
//! histogram and not yet in the sum of times. The writer never waits for a reader, nor a reader for the
//! writer: it may be stopped at any point.

use super::{Event, WaitTimes, Waits};
use crate::histogram::SharedCounts;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The counters of one event. Zeroed memory is free.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    /// 0 means free.
    event: AtomicU32,
    ns: AtomicU64,
    max_ns: AtomicU64,
    histogram: SharedCounts<{ WaitTimes::BUCKETS }>,
}

impl Counters {
    /// Counts a wait. If it is the rest of a wait that is already counted, `before` is how long that took so
    /// far: then the two become one. Only the process that owns the counters may call this.
    #[inline(always)]
    pub fn add(&self, ns: u64, before: Option<u64>) {
        let whole = match before {
            None => ns,
            Some(before) => {
                self.histogram.take_alone(WaitTimes::bucket(before as f64));
                ns.wrapping_add(before)
            }
        };
        self.histogram.add_alone(WaitTimes::bucket(whole as f64));
        self.ns.store(self.ns.load(Relaxed).wrapping_add(ns), Relaxed);
        if whole > self.max_ns.load(Relaxed) {
            self.max_ns.store(whole, Relaxed);
        }
    }

    /// Adds waits that were counted elsewhere. Several processes may do this at once.
    pub(super) fn add_all(&self, waits: &Waits) {
        self.ns.fetch_add(waits.ns, Relaxed);
        self.max_ns.fetch_max(waits.max_ns, Relaxed);
        self.histogram.add_all(&waits.histogram);
    }

    /// Returns a copy.
    pub fn copy(&self) -> Waits {
        Waits {
            ns: self.ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
            histogram: self.histogram.copy(),
        }
    }

    fn clear(&self) {
        self.ns.store(0, Relaxed);
        self.max_ns.store(0, Relaxed);
        self.histogram.reset();
        self.event.store(0, Relaxed);
    }
}

/// The waits of one process, for at most `N` events. All other events share one set of counters. Zeroed
/// memory is a slot that was never used.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot<const N: usize> {
    pid: AtomicI32,
    backend_type: AtomicU32,
    events: [Counters; N],
    other: Counters,
}

impl<const N: usize> Slot<N> {
    /// Returns the counters of an event. If all are in use, returns those of all other events. Only the
    /// process that owns the slot may call this. It cannot panic, because it is called inside system calls.
    #[inline(always)]
    pub fn counters(&self, event: Event) -> &Counters {
        let mut at = place(u64::from(event), N);
        for _ in 0..N {
            let Some(counters) = self.events.get(at) else {
                break;
            };
            let of = counters.event.load(Relaxed);
            if of == event {
                return counters;
            }
            if of == 0 {
                counters.event.store(event, Relaxed);
                return counters;
            }
            at = if at + 1 < N { at + 1 } else { 0 };
        }
        &self.other
    }

    /// Passes all waits on, and clears them. 0 stands for all events that have no counters of their own.
    pub(super) fn take(&self, mut to: impl FnMut(Event, &Waits)) {
        for counters in self.events.iter().chain(std::iter::once(&self.other)) {
            let waits = counters.copy();
            if waits.count() > 0 {
                to(counters.event.load(Relaxed), &waits);
            }
            counters.clear();
        }
    }

    /// Notes the process that has the slot.
    pub(super) fn set_process(&self, pid: i32, backend_type: u32) {
        self.pid.store(pid, Relaxed);
        self.backend_type.store(backend_type, Relaxed);
    }

    /// Notes the type of the process. It may become known only after the slot was claimed.
    pub fn set_backend_type(&self, backend_type: u32) {
        self.backend_type.store(backend_type, Relaxed);
    }

    /// Returns the process that has or had the slot; 0 if none ever had.
    pub fn pid(&self) -> i32 {
        self.pid.load(Relaxed)
    }

    /// Returns the type of that process.
    pub fn backend_type(&self) -> u32 {
        self.backend_type.load(Relaxed)
    }

    /// Returns the process's waits by event. 0 stands for all events that have no counters of their own.
    pub fn waits(&self) -> impl Iterator<Item = (Event, Waits)> + '_ {
        let counters = self.events.iter().chain(std::iter::once(&self.other));
        counters
            .map(|counters| (counters.event.load(Relaxed), counters.copy()))
            .filter(|(_, waits)| waits.count() > 0)
    }
}

impl<const N: usize> Default for Slot<N> {
    fn default() -> Self {
        Slot {
            pid: AtomicI32::new(0),
            backend_type: AtomicU32::new(0),
            events: std::array::from_fn(|_| Counters::default()),
            other: Counters::default(),
        }
    }
}

/// Returns where the search for a key begins, in a table of `size` places.
#[inline(always)]
pub(super) const fn place(key: u64, size: usize) -> usize {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (hash as usize * size) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Event = 0x0300_0005;
    const CLIENT: Event = 0x0600_0000;

    fn summary<const N: usize>(slot: &Slot<N>) -> Vec<(Event, u64, u64, u64)> {
        let mut all: Vec<_> = slot
            .waits()
            .map(|(event, waits)| (event, waits.count(), waits.ns, waits.max_ns))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn each_event_has_its_counters() {
        let slot = Slot::<4>::default();
        slot.counters(LOCK).add(5_000, None);
        slot.counters(CLIENT).add(100, None);
        slot.counters(LOCK).add(1_000, None);
        assert_eq!(summary(&slot), [(LOCK, 2, 6_000, 5_000), (CLIENT, 1, 100, 100)]);
    }

    #[test]
    fn the_rest_of_a_wait_belongs_to_it() {
        let slot = Slot::<4>::default();
        slot.counters(LOCK).add(1_000, None);
        slot.counters(LOCK).add(1_000_000, None);
        slot.counters(LOCK).add(500_000, Some(1_000_000));
        assert_eq!(summary(&slot), [(LOCK, 2, 1_501_000, 1_500_000)]);
        let (_, waits) = slot.waits().next().expect("waits");
        assert_eq!((waits.histogram[1], waits.histogram[11]), (1, 1));
    }

    #[test]
    fn events_beyond_the_table_add_up() {
        let slot = Slot::<4>::default();
        for event in 1..=10 {
            slot.counters(event).add(10, None);
            slot.counters(event).add(10, None);
        }
        let all = summary(&slot);
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], (0, 12, 120, 10));
        assert!(all[1..].iter().all(|&(_, count, ns, _)| (count, ns) == (2, 20)));
    }
}
