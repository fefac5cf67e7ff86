//! The waits of a plan, by node and event.

use super::Event;
use serde::{Deserialize, Serialize};

/// How many pairs of a node and an event are kept of a plan.
const EVENTS: usize = 8;
/// How many are told apart while the plan runs.
const EVENTS_OF_A_RUN: usize = 16;

/// The waits of one execution.
pub type RunWaits = PlanWaits<EVENTS_OF_A_RUN>;

/// The waits of a node for an event, of one execution or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWaits {
    /// The node's index in the plan; [`EventWaits::OUTSIDE`] for what a statement waited outside of its
    /// nodes.
    pub node: u32,
    /// The event; 0 for the sum of several.
    pub event: Event,
    /// The number of waits.
    pub waits: u64,
    /// The nanoseconds of all waits.
    pub ns: u64,
    /// The nanoseconds of the longest one.
    pub max_ns: u64,
}

impl EventWaits {
    /// Stands for what a statement waited outside of its nodes.
    pub const OUTSIDE: u32 = u32::MAX;
    /// The mark of a plan node id that stands for all nodes that are one with it in the folded plan.
    pub const FOLDED: u32 = 1 << 30;

    /// Returns the node's index in the plan, if it is of a node.
    pub fn node(&self) -> Option<usize> {
        (self.node != Self::OUTSIDE).then_some(self.node as usize)
    }

    /// Counts a wait.
    #[inline(always)]
    pub fn count(&mut self, ns: u64) {
        self.waits = self.waits.wrapping_add(1);
        self.ns = self.ns.wrapping_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    #[inline(always)]
    fn add(&mut self, other: &EventWaits) {
        self.waits = self.waits.wrapping_add(other.waits);
        self.ns = self.ns.wrapping_add(other.ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// The waits of a plan's nodes, and of its statement outside of them, for at most `N` pairs of a node and an
/// event.
///
/// If there are more pairs, those with the largest sums are kept, also if each single wait is short. For
/// that, a pair that got its place late ranks as if it had waited before for as long as the pair that gave
/// way (the algorithm "space-saving"). What it waited before is one of the other waits, so all sums are
/// right.
///
/// [`PlanWaits::add`], [`PlanWaits::clear`] and what they call cannot panic, because they are called inside
/// system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "[EventWaits; N]: Serialize, [u64; N]: Serialize",
    deserialize = "[EventWaits; N]: Deserialize<'de>, [u64; N]: Deserialize<'de>"
))]
pub struct PlanWaits<const N: usize = EVENTS> {
    events: [EventWaits; N],
    /// The nanoseconds that each pair had in rank when it got its place.
    ranked_ns: [u64; N],
    /// How many of these places are in use. All others are zero, and so are the fields below if none is in
    /// use.
    used: u32,
    /// All other events.
    other: EventWaits,
    /// The nanoseconds that were added to the other waits since a pair last gave way.
    missed_ns: u64,
    /// See [`PlanWaits::run_ns`] and [`PlanWaits::client_ns`].
    run_ns: u64,
    client_ns: u64,
}

impl<const N: usize> Default for PlanWaits<N> {
    fn default() -> Self {
        Self::none()
    }
}

impl<const N: usize> PlanWaits<N> {
    /// Returns no waits.
    pub const fn none() -> Self {
        const NONE: EventWaits = EventWaits {
            node: 0,
            event: 0,
            waits: 0,
            ns: 0,
            max_ns: 0,
        };
        PlanWaits {
            events: [NONE; N],
            ranked_ns: [0; N],
            used: 0,
            other: NONE,
            missed_ns: 0,
            run_ns: 0,
            client_ns: 0,
        }
    }

    /// Adds waits. If there is no place for them, they join the other ones, or the lowest ranking ones do.
    /// Returns the sum of this node and event, which stays in its place until waits of another node or event
    /// are added; `None` if it has no place.
    #[inline(always)]
    pub fn add(&mut self, waits: EventWaits) -> Option<&mut EventWaits> {
        match self.place(&waits) {
            Some(at) => {
                let kept = self.events.get_mut(at)?;
                kept.add(&waits);
                Some(kept)
            }
            None => {
                self.missed_ns = self.missed_ns.wrapping_add(waits.ns);
                self.add_another(waits)
            }
        }
    }

    /// Returns whether waits can be added while all others keep their places.
    pub fn has_room_for(&self, waits: &EventWaits) -> bool {
        (self.used as usize) < N || self.place(waits).is_some()
    }

    /// Returns the place of the sum of the same node and event.
    #[inline(always)]
    fn place(&self, waits: &EventWaits) -> Option<usize> {
        let same = |kept: &EventWaits| (kept.node, kept.event) == (waits.node, waits.event);
        self.kept().iter().position(same)
    }

    /// Adds waits that have no place.
    #[inline(never)]
    fn add_another(&mut self, mut waits: EventWaits) -> Option<&mut EventWaits> {
        // The beginning of a wait may have been dropped.
        waits.waits = waits.waits.max(1);
        let used = self.used as usize;
        if used < N {
            let free = self.events.get_mut(used)?;
            *free = waits;
            self.used += 1;
            self.missed_ns = 0;
            return Some(free);
        }
        let places = self.events.iter_mut().zip(&mut self.ranked_ns);
        let ranks = places.map(|(kept, ranked)| (kept.ns.wrapping_add(*ranked), kept, ranked));
        let lowest = ranks.min_by_key(|(rank, ..)| *rank)?;
        let (rank, kept, ranked) = lowest;
        if waits.event == 0 || rank >= self.missed_ns {
            self.other.add(&waits);
            return None;
        }
        self.other.add(kept);
        self.missed_ns = 0;
        *ranked = rank;
        *kept = waits;
        Some(kept)
    }

    /// Notes that the statement's own process waited while the statement ran, and whether it waited for the
    /// client. The waits must have been added before.
    #[inline(always)]
    pub fn add_run(&mut self, waits: &EventWaits, for_client: bool) {
        self.run_ns = self.run_ns.wrapping_add(waits.ns);
        if for_client {
            self.client_ns = self.client_ns.wrapping_add(waits.ns);
        }
    }

    /// Returns the address of the nanoseconds of [`PlanWaits::run_ns`].
    #[inline(always)]
    pub fn run_ns_mut(&mut self) -> &mut u64 {
        &mut self.run_ns
    }

    /// Returns the nanoseconds that the statement's own process waited while the statement ran.
    pub fn run_ns(&self) -> u64 {
        self.run_ns
    }

    /// Returns that part of them in which it waited for the client, to send to it or to receive.
    pub fn client_ns(&self) -> u64 {
        self.client_ns
    }

    /// Returns the largest waits of others, and the sum of the rest.
    pub fn of<const M: usize>(others: &PlanWaits<M>) -> Self {
        let mut waits = Self::none();
        waits.merge(others);
        waits
    }

    /// Adds the waits of other executions, or of another part of the execution.
    pub fn merge<const M: usize>(&mut self, other: &PlanWaits<M>) {
        if other.is_empty() {
            return;
        }
        // First those that have a place here: none of them is to give way to the others. Mostly these are
        // all, or all but one.
        let (mut missing, mut count) = (None, 0);
        for waits in other.kept() {
            match self.place(waits).and_then(|at| self.events.get_mut(at)) {
                Some(kept) => kept.add(waits),
                None => {
                    missing = Some(*waits);
                    count += 1;
                }
            }
        }
        if let Some(waits) = missing {
            match count {
                1 => self.merge_missing(&[waits]),
                _ => self.sort_missing(other),
            }
        }
        self.other.add(&other.other);
        self.run_ns = self.run_ns.wrapping_add(other.run_ns);
        self.client_ns = self.client_ns.wrapping_add(other.client_ns);
    }

    /// Adds those waits of others that have no place here, the largest first.
    #[cold]
    #[inline(never)]
    fn sort_missing<const M: usize>(&mut self, other: &PlanWaits<M>) {
        let mut missing = other.events;
        let mut count = 0;
        for waits in other.kept().iter().filter(|waits| self.place(waits).is_none()) {
            if let Some(free) = missing.get_mut(count) {
                *free = *waits;
                count += 1;
            }
        }
        let missing = missing.get_mut(..count).unwrap_or_default();
        missing.sort_unstable_by_key(|waits| std::cmp::Reverse(waits.ns));
        self.merge_missing(missing);
    }

    /// Adds waits that have no place here. Each is that of a whole execution, so the smaller ones are no
    /// reason to give one of them a place.
    #[inline(always)]
    fn merge_missing(&mut self, largest_first: &[EventWaits]) {
        self.missed_ns = self
            .missed_ns
            .wrapping_add(largest_first.first().map_or(0, |waits| waits.ns));
        for waits in largest_first {
            self.add_another(*waits);
        }
    }

    /// Adds to the other waits what cannot be told apart.
    pub fn add_other(&mut self, waits: &EventWaits) {
        self.add(EventWaits {
            node: EventWaits::OUTSIDE,
            event: 0,
            ..*waits
        });
    }

    /// Deletes all waits.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.used > 0 {
            *self = Self::none();
        }
    }

    /// Returns whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn kept(&self) -> &[EventWaits] {
        self.events.get(..self.used as usize).unwrap_or_default()
    }

    /// Returns all waits. The last may be the sum of events that have no place, whose event is 0.
    pub fn events(&self) -> impl Iterator<Item = EventWaits> + '_ {
        let other = EventWaits {
            node: EventWaits::OUTSIDE,
            ..self.other
        };
        let other = Some(other).filter(|other| other.waits > 0);
        self.kept().iter().copied().chain(other)
    }

    /// Gives events other numbers. `to` returns the new number of an event.
    pub fn renumber(&mut self, to: impl Fn(Event) -> Event) {
        if self.kept().iter().all(|waits| to(waits.event) == waits.event) {
            return;
        }
        let before = *self;
        *self = Self::none();
        for waits in before.kept() {
            self.add(EventWaits {
                event: to(waits.event),
                ..*waits
            });
        }
        (self.other, self.run_ns, self.client_ns) = (before.other, before.run_ns, before.client_ns);
        self.missed_ns = before.missed_ns;
    }

    /// Moves waits to other nodes. `to` returns the new node of a node's waits for an event.
    pub fn move_nodes(&mut self, to: impl Fn(&EventWaits) -> u32) {
        let before = *self;
        *self = Self::none();
        for waits in before.kept() {
            self.add(EventWaits {
                node: to(waits),
                ..*waits
            });
        }
        (self.other, self.run_ns, self.client_ns) = (before.other, before.run_ns, before.client_ns);
        self.missed_ns = before.missed_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(node: u32, event: Event, ns: u64) -> EventWaits {
        EventWaits {
            node,
            event,
            waits: 1,
            ns,
            max_ns: ns,
        }
    }

    fn sums<const N: usize>(waits: &PlanWaits<N>) -> (u64, u64) {
        waits
            .events()
            .fold((0, 0), |sum, waits| (sum.0 + waits.waits, sum.1 + waits.ns))
    }

    #[test]
    fn each_node_and_event_has_its_sum() {
        let mut waits = PlanWaits::<EVENTS>::default();
        assert!(waits.is_empty());
        for (node, event, ns) in [(1, 7, 10), (2, 7, 100), (1, 8, 1), (1, 7, 30)] {
            waits.add(one(node, event, ns));
        }
        // The rest of a wait is not another one.
        waits.add(EventWaits {
            waits: 0,
            ns: 5,
            max_ns: 35,
            ..one(1, 7, 0)
        });
        let found: Vec<_> = waits
            .events()
            .map(|w| (w.node, w.event, w.waits, w.ns, w.max_ns))
            .collect();
        assert_eq!(found, [(1, 7, 2, 45, 35), (2, 7, 1, 100, 100), (1, 8, 1, 1, 1)]);
        waits.clear();
        assert!(waits.is_empty() && waits.events().count() == 0);
    }

    #[test]
    fn the_longest_waits_are_kept() {
        let mut run = RunWaits::default();
        for event in 1..=12 {
            run.add(one(0, event, u64::from(event)));
            run.add(one(0, event, u64::from(event)));
        }
        assert_eq!(run.events().count(), 12);
        let waits = PlanWaits::<EVENTS>::of(&run);
        let found: Vec<_> = waits.events().collect();
        assert_eq!(found.len(), EVENTS + 1);
        let (node, other) = (found[EVENTS].node(), found[EVENTS]);
        assert_eq!((node, other.event, other.ns, other.max_ns), (None, 0, 20, 4));
        assert!(
            found[..EVENTS]
                .iter()
                .all(|waits| waits.event > 4 && waits.waits == 2)
        );
        assert_eq!(sums(&waits), (24, 156));
        // Further executions that wait in the same way change nothing.
        let mut twice = waits;
        for _ in 0..9 {
            twice.merge(&run);
        }
        assert_eq!(sums(&twice), (240, 1560));
        assert!(
            twice
                .events()
                .take(EVENTS)
                .all(|waits| waits.waits == 20 && waits.ns == 20 * u64::from(waits.event))
        );
    }

    /// Returns what part of the waits for an event has its place.
    fn part_kept<const N: usize>(waits: &PlanWaits<N>, event: Event, all_ns: u64) -> f64 {
        let kept = waits.events().find(|waits| waits.event == event);
        kept.map_or(0.0, |waits| waits.ns as f64 / all_ns as f64)
    }

    #[test]
    fn many_short_waits_are_kept_in_a_full_table() {
        for late in 1..=4 {
            let mut waits = RunWaits::default();
            for event in 1..=60 {
                waits.add(one(0, event, 1_000_000));
            }
            // These come last, in turn, and each wait is short.
            for i in 0..100_000 * late {
                waits.add(one(0, 100 + i % late, 10_000));
            }
            for event in 100..100 + late {
                let part = part_kept(&waits, event, 1_000_000_000);
                assert!(part > 0.9, "{part} of {event}, one of {late}");
            }
            assert_eq!(sums(&waits).1, 60_000_000 + 1_000_000_000 * u64::from(late));
        }
    }

    #[test]
    fn a_plan_that_changes_what_it_waits_for_shows_that() {
        let mut plan = PlanWaits::<EVENTS>::default();
        for (first, executions) in [(1, 1_000), (101, 3_000)] {
            let mut run = RunWaits::default();
            for event in first..first + 8 {
                run.add(one(0, event, 1_000));
            }
            for _ in 0..executions {
                plan.merge(&run);
            }
        }
        // Each of the later ones waited three times as long. None of them has been mixed with another one.
        let later: Vec<_> = plan.events().filter(|waits| waits.event > 100).collect();
        assert!(!later.is_empty(), "{plan:?}");
        assert!(
            later
                .iter()
                .all(|waits| waits.max_ns == 1_000 && waits.ns == 1_000 * waits.waits)
        );
        assert_eq!(sums(&plan), (32_000, 32_000_000));
        // One that dominates is always kept.
        for _ in 0..10_000 {
            let mut run = RunWaits::default();
            run.add(one(0, 7_777, 10_000));
            plan.merge(&run);
        }
        assert!(part_kept(&plan, 7_777, 100_000_000) > 0.9, "{plan:?}");
    }

    #[test]
    fn events_get_other_numbers() {
        let mut waits = PlanWaits::<EVENTS>::default();
        waits.add(one(0, 7, 10));
        waits.add(one(0, 8, 20));
        waits.add(one(1, 8, 1));
        waits.renumber(|event| if event == 8 { 7 } else { event });
        let found: Vec<_> = waits.events().map(|w| (w.node, w.event, w.waits, w.ns)).collect();
        assert_eq!(found, [(0, 7, 2, 30), (1, 7, 1, 1)]);
    }

    #[test]
    fn waits_move_to_another_node() {
        let mut waits = PlanWaits::<EVENTS>::default();
        waits.add(one(0, 7, 10));
        waits.add(one(1, 7, 20));
        waits.add(one(1, 8, 1));
        waits.move_nodes(|waits| if waits.event == 7 { 5 } else { waits.node });
        let found: Vec<_> = waits.events().map(|w| (w.node, w.event, w.waits, w.ns)).collect();
        assert_eq!(found, [(5, 7, 2, 30), (1, 8, 1, 1)]);
    }
}
