//! The waits of the processes that have ended, by the type of the process and the event.

use super::slot::{Counters, Slot, place};
use super::{Event, Waits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The number of types of processes. PostgreSQL has fewer than 20.
pub const BACKEND_TYPES: usize = 32;
/// How often a reader tries again because the waits of a process were moved meanwhile.
const TRIES: usize = 10;

/// Sums of at most `M` events of types of processes. All other events of a type share one sum. Zeroed memory
/// is empty.
#[repr(C)]
#[derive(Debug)]
pub struct Sums<const M: usize> {
    /// Since when all waits are counted, by the caller's clock.
    since: AtomicI64,
    /// How often a process began to move waits to the sums, and how often one ended that.
    begun: AtomicU64,
    done: AtomicU64,
    /// The type and the event of each sum; 0 means free.
    keys: [AtomicU64; M],
    sums: [Counters; M],
    others: [Counters; BACKEND_TYPES],
}

impl<const M: usize> Sums<M> {
    /// Notes that counting begins.
    pub fn begin(&self, now: i64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// Returns since when all waits are counted.
    pub fn since(&self) -> i64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Gives a slot to a new process. The waits of the process that had it are added to the sums of its type.
    pub fn give<const N: usize>(&self, slot: &Slot<N>, pid: i32, backend_type: u32) {
        let of = slot.backend_type();
        self.begun.fetch_add(1, Ordering::SeqCst);
        slot.take(|event, waits| self.of(of, event).add_all(waits));
        slot.set_process(pid, backend_type);
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the sum for an event of a type of processes. If all are in use, returns that of all other
    /// events. It cannot panic, because it is called inside system calls.
    fn of(&self, backend_type: u32, event: Event) -> &Counters {
        let other = &self.others[backend_type as usize % BACKEND_TYPES];
        if event == 0 {
            return other;
        }
        let key = u64::from(backend_type) << 32 | u64::from(event);
        let mut at = place(key, M);
        for _ in 0..M {
            let (Some(of), Some(sum)) = (self.keys.get(at), self.sums.get(at)) else {
                break;
            };
            match of.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return sum,
                Err(taken_by) if taken_by == key => return sum,
                Err(_) => at = if at + 1 < M { at + 1 } else { 0 },
            }
        }
        other
    }

    /// Returns the waits of the ended processes, by type and event. The event 0 stands for all that have no
    /// sum of their own.
    fn ended(&self) -> impl Iterator<Item = ((u32, Event), Waits)> + '_ {
        let own = self.keys.iter().zip(&self.sums).map(|(key, sum)| {
            let key = key.load(Ordering::Relaxed);
            (((key >> 32) as u32, key as Event), sum)
        });
        let others = (0u32..).zip(&self.others).map(|(of, sum)| ((of, 0), sum));
        own.chain(others).map(|(key, sum)| (key, sum.copy()))
    }

    /// Returns the waits of all processes, those that have ended included, by type and event. The event 0
    /// stands for all that have no counters of their own.
    ///
    /// A new process moves what the one before it counted in the same slot. If that happens meanwhile, this
    /// reads again, but not for ever: a process may be stopped at that point. Then the waits of one process
    /// may be missing or count twice.
    pub fn total<const N: usize>(&self, slots: &[Slot<N>]) -> BTreeMap<(u32, Event), Waits> {
        self.total_within(slots, TRIES)
    }

    fn total_within<const N: usize>(
        &self,
        slots: &[Slot<N>],
        mut tries: usize,
    ) -> BTreeMap<(u32, Event), Waits> {
        loop {
            let begun = self.begun.load(Ordering::SeqCst);
            let is_quiet = self.done.load(Ordering::SeqCst) == begun;
            let mut total: BTreeMap<(u32, Event), Waits> = BTreeMap::new();
            let living = slots.iter().flat_map(|slot| {
                let of = slot.backend_type();
                slot.waits().map(move |(event, waits)| ((of, event), waits))
            });
            for (key, waits) in living.chain(self.ended()).filter(|(_, waits)| waits.count() > 0) {
                total.entry(key).or_default().add(&waits);
            }
            tries -= 1;
            if tries == 0 || is_quiet && self.begun.load(Ordering::SeqCst) == begun {
                return total;
            }
        }
    }
}

impl<const M: usize> Default for Sums<M> {
    fn default() -> Self {
        Sums {
            since: AtomicI64::new(0),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            sums: std::array::from_fn(|_| Counters::default()),
            others: std::array::from_fn(|_| Counters::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKEND: u32 = 3;
    const CHECKPOINTER: u32 = 6;

    fn counts(total: &BTreeMap<(u32, Event), Waits>) -> Vec<((u32, Event), u64)> {
        total.iter().map(|(key, waits)| (*key, waits.count())).collect()
    }

    #[test]
    fn waits_of_ended_processes_are_kept() {
        let sums = Sums::<8>::default();
        let slots = [Slot::<4>::default(), Slot::default()];
        sums.give(&slots[0], 100, BACKEND);
        sums.give(&slots[1], 101, CHECKPOINTER);
        slots[0].counters(7).add(10, None);
        slots[1].counters(7).add(10, None);
        // Another process gets the slot of the first one.
        sums.give(&slots[0], 102, BACKEND);
        assert_eq!((slots[0].pid(), slots[0].waits().count()), (102, 0));
        slots[0].counters(7).add(30, None);
        slots[0].counters(8).add(1, None);
        let total = sums.total(&slots);
        assert_eq!(
            counts(&total),
            [((BACKEND, 7), 2), ((BACKEND, 8), 1), ((CHECKPOINTER, 7), 1)]
        );
        assert_eq!((total[&(BACKEND, 7)].ns, total[&(BACKEND, 7)].max_ns), (40, 30));
    }

    #[test]
    fn no_wait_is_lost_in_a_full_table() {
        let sums = Sums::<4>::default();
        let slot = [Slot::<16>::default()];
        for pid in 1..=3 {
            sums.give(&slot[0], pid, BACKEND);
            for event in 1..=20 {
                slot[0].counters(event).add(10, None);
            }
        }
        sums.give(&slot[0], 4, BACKEND);
        let total = sums.total(&slot);
        assert_eq!(total.len(), 5);
        assert_eq!(total.values().map(Waits::count).sum::<u64>(), 60);
        assert_eq!(total.values().map(|waits| waits.ns).sum::<u64>(), 600);
    }

    /// A process that was stopped while it moved waits does not stop readers.
    #[test]
    fn a_reader_does_not_wait_for_ever() {
        let sums = Sums::<4>::default();
        let slot = [Slot::<4>::default()];
        slot[0].counters(1).add(10, None);
        sums.begun.fetch_add(1, Ordering::SeqCst);
        assert_eq!(sums.total(&slot).len(), 1);
    }

    /// Readers never see a wait twice, nor miss one that they have seen.
    #[test]
    fn moved_waits_count_once() {
        const PROCESSES: i32 = 3_000;
        let sums = Sums::<8>::default();
        let slots = [Slot::<4>::default()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for pid in 1..=PROCESSES {
                    sums.give(&slots[0], pid, BACKEND);
                    slots[0].counters(1).add(1, None);
                    std::thread::yield_now();
                }
            });
            let mut seen = 0;
            while seen < PROCESSES as u64 {
                let now = sums
                    .total_within(&slots, usize::MAX)
                    .values()
                    .map(Waits::count)
                    .sum();
                assert!(now >= seen && now <= PROCESSES as u64, "{now} after {seen}");
                seen = now;
            }
        });
    }
}
