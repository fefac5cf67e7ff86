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
    /// Those that came when the places before were taken, by nodes of the folded plan.
    folded: [Shared; EVENTS],
    other: Shared,
}

/// Returns the place of a pair: its own, or a free one.
fn place(places: &[Shared; EVENTS], node: u32, event: Event) -> Option<&Shared> {
    let key = u64::from(node) << 32 | u64::from(event);
    let mut places = places.iter().filter(|_| event != 0);
    places.find(|place| {
        place.key.compare_exchange(0, key, Relaxed, Relaxed).is_ok() || place.key.load(Relaxed) == key
    })
}

impl TeamWaits {
    /// Adds waits of a worker. If there is no place for their node, they are those of the node `folded`.
    /// Several workers may do this at once.
    pub fn add(&self, waits: &EventWaits, folded: u32) {
        let by_itself = place(&self.events, waits.node, waits.event);
        let place = by_itself.or_else(|| place(&self.folded, folded, waits.event));
        place.unwrap_or(&self.other).add(waits);
    }

    /// Returns the waits of all workers. The event 0 stands for all that have no place.
    pub fn waits(&self) -> impl Iterator<Item = EventWaits> + '_ {
        let all = self.events.iter().chain(&self.folded);
        let all = all.chain(std::iter::once(&self.other));
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
                    for event in (1..=80).chain(1..=80) {
                        team.add(&waits(3, event, worker), 3);
                    }
                });
            }
        });
        let found: Vec<EventWaits> = team.waits().collect();
        assert_eq!(found.len(), 2 * EVENTS + 1);
        assert!(
            found[..2 * EVENTS]
                .iter()
                .all(|waits| (waits.node, waits.waits, waits.ns, waits.max_ns) == (3, 8, 80, 4))
        );
        assert_eq!((found[2 * EVENTS].event, found[2 * EVENTS].waits), (0, 128));
    }

    #[test]
    fn nodes_without_a_place_are_folded() {
        const FOLDED: u32 = EventWaits::FOLDED | 1;
        let team = TeamWaits::default();
        for node in (1..=100).chain(1..=100) {
            team.add(&waits(node, 7, 1), FOLDED);
        }
        let (folded, by_themselves): (Vec<EventWaits>, Vec<EventWaits>) =
            team.waits().partition(|waits| waits.node == FOLDED);
        assert_eq!(by_themselves.len(), EVENTS);
        assert!(by_themselves.iter().all(|waits| waits.waits == 2));
        assert_eq!(folded.len(), 1);
        assert_eq!(folded[0].waits, 200 - 2 * EVENTS as u64);
    }

    fn waits(node: u32, event: Event, max_ns: u64) -> EventWaits {
        EventWaits {
            node,
            event,
            waits: 1,
            ns: 10,
            max_ns,
        }
    }
}
