//! The words that a session shares with the heart.

use crate::pending::{Atomic, Atomics, Native};
use crate::wrapper::scope;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};

/// No sum of counters is negative, because each counts up from 0. A sum that grows from here stays negative.
const MARK: i64 = i64::MIN;
/// The session itself has left a mark.
const OWN_MARK: u64 = 1 << 63;

/// The number of scopes: see [`Scope`](crate::wrapper::Scope).
pub const SCOPES: usize = 3;

/// What a session wishes. A word has it in its lowest bits, and in the others a number that changes with each
/// statement.
mod wish {
    pub const MASK: u64 = 3;
    pub const NOTHING: u64 = 0;
    /// A statement runs that may need beats.
    pub const MAYBE: u64 = 1;
    pub const BEATS: u64 = 2;
}

/// The words that a session shares with the heart.
#[derive(Debug)]
#[repr(C)]
pub struct Beats<A: Atomics = Native> {
    /// For each scope, the sum of the counters at the last charge, or a mark.
    expected: [A::I64; SCOPES],
    /// The number of beats. Only the heart counts it up.
    count: A::U64,
    /// The number of beats that the session has taken. Only the session writes it.
    taken: A::U64,
    /// How many nanoseconds the last beat stands for. Only the heart writes it.
    gap_ns: A::U64,
    /// What the session wishes. Only the session writes it.
    wish: A::U64,
}

/// The beats that a session has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How many.
    pub beats: u64,
    /// How many nanoseconds the last of them stands for; 0 if that is not known.
    pub gap_ns: u64,
}

impl Beats {
    /// Returns the words of a session without beats.
    pub const fn new() -> Self {
        Beats {
            expected: [const { AtomicI64::new(0) }; SCOPES],
            count: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            gap_ns: AtomicU64::new(0),
            wish: AtomicU64::new(0),
        }
    }
}

impl<A: Atomics> Default for Beats<A> {
    fn default() -> Self {
        let word = || A::U64::new(0);
        Beats {
            expected: std::array::from_fn(|_| A::I64::new(0)),
            count: word(),
            taken: word(),
            gap_ns: word(),
            wish: word(),
        }
    }
}

/// What the session does.
impl<A: Atomics> Beats<A> {
    /// Returns the sum that the counters of a scope had at the last charge, or a mark.
    #[inline(always)]
    pub fn expected(&self, scope: usize) -> i64 {
        self.expected[scope].load_in_place()
    }

    /// Notes that each sum has grown by this much. A mark stays a mark.
    #[inline(always)]
    pub fn expect_more(&self, more: i64) {
        for expected in &self.expected {
            expected.store(expected.load(Relaxed).wrapping_add(more), Relaxed);
        }
    }

    /// Sets the expected sums after a charge. If there are beats that are not taken, leaves a mark instead.
    pub fn expect_sums(&self, sums: [i64; SCOPES]) {
        let is_pending = self.is_pending();
        for (expected, sum) in self.expected.iter().zip(sums) {
            expected.store(if is_pending { MARK } else { sum }, Relaxed);
        }
    }

    /// Returns whether there is a mark in the place of the sums.
    #[inline(always)]
    pub fn is_marked(&self) -> bool {
        self.expected(scope::ALL as usize) < 0
    }

    /// Returns whether there are beats that are not taken, or a mark of the session itself.
    #[inline(always)]
    pub fn is_pending(&self) -> bool {
        self.count.load(Relaxed) != self.taken.load_in_place()
    }

    /// Leaves a mark that the session itself wants to find at the next check.
    pub fn mark(&self) {
        self.taken.store(self.taken.load(Relaxed) | OWN_MARK, Relaxed);
        self.put_mark();
    }

    /// Takes the beats, if there are any, and removes all marks. `sums` are those of the last charge.
    pub fn take(&self, sums: [i64; SCOPES]) -> Taken {
        let count = self.count.load(Acquire);
        let before = self.taken.load(Relaxed) & !OWN_MARK;
        self.taken.store(count, Relaxed);
        for (expected, sum) in self.expected.iter().zip(sums) {
            expected.store(sum, Relaxed);
        }
        Taken {
            beats: count.wrapping_sub(before),
            gap_ns: self.gap_ns.load(Relaxed),
        }
    }

    /// Notes that a statement begins that may need beats.
    pub fn may_wish(&self) {
        let next = (self.wish.load(Relaxed) | wish::MASK).wrapping_add(1);
        self.wish.store(next | wish::MAYBE, Release);
    }

    /// Returns whether the session wishes for beats.
    #[inline(always)]
    pub fn has_wish(&self) -> bool {
        self.wish.load_in_place() & wish::BEATS != 0
    }

    /// Wishes for beats.
    pub fn wish(&self) {
        let mut now = self.wish.load(Relaxed);
        if now & wish::MASK == wish::NOTHING {
            now = (now | wish::MASK).wrapping_add(1);
        }
        self.wish.store(now & !wish::MASK | wish::BEATS, Relaxed);
    }

    /// Returns whether the statement wishes or may wish for something.
    #[inline(always)]
    pub fn is_wishing(&self) -> bool {
        self.wish.load_in_place() & wish::MASK != wish::NOTHING
    }

    /// Wishes for nothing more.
    pub fn end_wish(&self) {
        self.wish.store(self.wish.load(Relaxed) & !wish::MASK, Relaxed);
    }

    /// Gives the words the values of this session's own. A session that takes over the memory of another one
    /// copies the whole page in this way, word by word, while beats may arrive.
    pub fn take_over(&self, own: &Beats<A>) {
        for (to, from) in self.expected.iter().zip(&own.expected) {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (to, from) in [
            (&self.count, &own.count),
            (&self.taken, &own.taken),
            (&self.gap_ns, &own.gap_ns),
            (&self.wish, &own.wish),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    fn put_mark(&self) {
        // The mark that makes a session restore all sums comes last. So no mark stays if the session restores
        // the sums meanwhile.
        for expected in self.expected.iter().rev() {
            expected.store(MARK, Release);
        }
    }
}

const _: () = assert!(scope::ALL == 0);

/// What the heart does.
impl<A: Atomics> Beats<A> {
    /// Returns what the session wishes. It may change at any time.
    pub fn wished(&self) -> Wish {
        Wish(self.wish.load(Acquire))
    }

    /// Returns whether the session has taken all beats: it has passed a check since the last one.
    pub fn are_taken(&self) -> bool {
        self.count.load(Relaxed) == self.taken.load(Relaxed) & !OWN_MARK
    }

    /// Makes a beat that stands for this time. Only one process may do this at a time.
    pub fn beat(&self, gap_ns: u64) {
        self.gap_ns.store(gap_ns, Relaxed);
        let count = self.count.load(Relaxed);
        let next = count.wrapping_add(1) & !OWN_MARK;
        // If the words pass to another session meanwhile, its count stays.
        if self.count.compare_exchange(count, next, Release, Relaxed).is_ok() {
            self.put_mark();
        }
    }
}

/// What a session wishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish(u64);

impl Wish {
    /// It has a statement that wishes or may wish for beats.
    pub fn is_any(self) -> bool {
        self.0 & wish::MASK != wish::NOTHING
    }

    pub(super) fn is_for_beats(self) -> bool {
        self.0 & wish::MASK == wish::BEATS
    }

    /// A number of the statement.
    pub(super) fn statement(self) -> u64 {
        self.0 & !wish::MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: [i64; SCOPES] = [7, 5, 3];

    fn beats() -> Beats {
        let beats = Beats::new();
        beats.expect_sums(SUMS);
        beats
    }

    fn expected(beats: &Beats) -> [i64; SCOPES] {
        std::array::from_fn(|scope| beats.expected(scope))
    }

    #[test]
    fn a_beat_is_found_and_taken_once() {
        let beats = beats();
        assert!(!beats.is_pending() && expected(&beats) == SUMS);
        beats.beat(1500);
        beats.beat(2500);
        assert!(beats.is_pending() && beats.is_marked() && !beats.are_taken());
        assert!(
            expected(&beats)
                .iter()
                .zip(SUMS)
                .all(|(expected, sum)| *expected != sum)
        );
        let taken = beats.take(SUMS);
        assert_eq!((taken.beats, taken.gap_ns), (2, 2500));
        assert!(!beats.is_pending() && !beats.is_marked());
        assert_eq!(expected(&beats), SUMS);
        assert_eq!(beats.take(SUMS).beats, 0);
    }

    #[test]
    fn a_mark_of_the_session_is_no_beat() {
        let beats = beats();
        beats.mark();
        assert!(beats.is_pending() && beats.is_marked() && beats.are_taken());
        beats.beat(1000);
        beats.mark();
        assert_eq!(beats.take(SUMS).beats, 1);
        assert!(!beats.is_pending());
        beats.mark();
        assert_eq!(beats.take(SUMS).beats, 0);
        assert!(!beats.is_pending() && expected(&beats) == SUMS);
    }

    #[test]
    fn a_charge_keeps_the_mark_until_the_beat_is_taken() {
        let beats = beats();
        beats.beat(1000);
        beats.expect_more(4);
        assert!(beats.is_marked());
        beats.expect_sums(SUMS);
        assert!(beats.is_marked());
        beats.take(SUMS);
        beats.expect_more(4);
        assert_eq!(expected(&beats), SUMS.map(|sum| sum + 4));
    }

    #[test]
    fn a_late_mark_goes_with_the_next_sums() {
        let beats = beats();
        beats.beat(1000);
        beats.take(SUMS);
        beats.put_mark();
        assert!(beats.is_marked() && !beats.is_pending());
        beats.expect_sums(SUMS);
        assert_eq!(expected(&beats), SUMS);
    }

    #[test]
    fn each_statement_has_another_wish() {
        let beats = beats();
        assert!(!beats.wished().is_any() && !beats.is_wishing());
        beats.may_wish();
        let first = beats.wished();
        assert!(first.is_any() && !first.is_for_beats() && !beats.has_wish());
        beats.wish();
        assert!(beats.has_wish() && beats.wished().is_for_beats());
        assert_eq!(beats.wished().statement(), first.statement());
        beats.end_wish();
        assert!(!beats.is_wishing());
        beats.wish();
        assert!(beats.has_wish());
        assert_ne!(beats.wished().statement(), first.statement());
    }
}
