//! The waits of parallel workers in the nodes of their leader's plan, in memory that they share.

use super::Event;
use super::plan::EventWaits;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many pairs of a node and an event are kept by themselves.
const EVENTS: usize = 32;

#[repr(C)]
#[derive(Debug, Default)]
struct Shared {
    /// The node and the event; 0 if the place is free.
    key: AtomicU64,
    waits: AtomicU64,
    ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Shared {
    fn add(&self, waits: &EventWaits) {
        self.waits.fetch_add(waits.waits, Relaxed);
        self.ns.fetch_add(waits.ns, Relaxed);
        self.max_ns.fetch_max(waits.max_ns, Relaxed);
    }

    fn copy(&self) -> EventWaits {
        let key = self.key.load(Relaxed);
        EventWaits {
            node: (key >> 32) as u32,
            event: key as Event,
            waits: self.waits.load(Relaxed),
            ns: self.ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
        }
    }
}

/// The waits of the workers of one statement. Nodes are identified as the statement's processes agree. Zeroed
/// memory is empty.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TeamWaits {
    events: [Shared; EVENTS],
    other: Shared,
}

impl TeamWaits {
    /// Adds waits of a worker. Several workers may do this at once.
    pub fn add(&self, waits: &EventWaits) {
        let key = u64::from(waits.node) << 32 | u64::from(waits.event);
        let place = self.events.iter().filter(|_| waits.event != 0).find(|place| {
            place.key.compare_exchange(0, key, Relaxed, Relaxed).is_ok() || place.key.load(Relaxed) == key
        });
        place.unwrap_or(&self.other).add(waits);
    }

    /// Returns the waits of all workers. The event 0 stands for all that have no place.
    pub fn waits(&self) -> impl Iterator<Item = EventWaits> + '_ {
        let all = self.events.iter().chain(std::iter::once(&self.other));
        all.map(Shared::copy).filter(|waits| waits.waits > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let team = TeamWaits::default();
        std::thread::scope(|scope| {
            for worker in 1..=4u64 {
                let team = &team;
                scope.spawn(move || {
                    for event in (1..=40).chain(1..=40) {
                        team.add(&EventWaits {
                            node: 3,
                            event,
                            waits: 1,
                            ns: 10,
                            max_ns: worker,
                        });
                    }
                });
            }
        });
        let found: Vec<EventWaits> = team.waits().collect();
        assert_eq!(found.len(), EVENTS + 1);
        assert!(
            found[..EVENTS]
                .iter()
                .all(|waits| (waits.node, waits.waits, waits.ns, waits.max_ns) == (3, 8, 80, 4))
        );
        assert_eq!((found[EVENTS].event, found[EVENTS].waits), (0, 64));
    }
}
