//! What is kept of a plan to compare it with: its executions in an interval of the history. Each snapshot
//! says it anew.

use super::judge::{MIN_EXECUTIONS, Reference};
use super::sums::Sums;

/// For how many microseconds the same hour of an earlier day is the right one, if no snapshot is taken.
const VALID_US: i64 = 7_200_000_000;

/// Executions of a plan in an interval of the history. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Kept {
    sums: Sums,
    /// When they were noted, in microseconds since 2000-01-01 UTC: at a snapshot.
    at: i64,
    /// Which interval it was: [`Reference::Plan`] is none.
    reference: Reference,
}

impl Kept {
    /// Notes executions at a snapshot. Of those of one snapshot, the best ones with enough executions stay.
    pub fn note(&mut self, at: i64, reference: Reference, sums: Sums) {
        let rank = |wanted| Reference::ALL.iter().position(|known| *known == wanted);
        let is_better = self.at != at || rank(reference) < rank(self.reference).or(Some(usize::MAX));
        if sums.executions >= MIN_EXECUTIONS && rank(reference).is_some() && is_better {
            *self = Kept { sums, at, reference };
        }
    }

    /// Returns what a plan can be compared with at a moment.
    pub fn at(&self, now: i64) -> Option<(Reference, Sums)> {
        let is_valid = match self.reference {
            Reference::Plan => false,
            Reference::Baseline => true,
            _ => now.saturating_sub(self.at) <= VALID_US,
        };
        is_valid.then_some((self.reference, self.sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_executions_of_the_last_snapshot_are_kept() {
        let of = |executions| Sums {
            executions,
            ..Sums::default()
        };
        let mut kept = Kept::default();
        assert_eq!(kept.at(0), None);
        kept.note(10, Reference::Yesterday, of(7));
        kept.note(10, Reference::Week, of(4));
        kept.note(10, Reference::Plan, of(9));
        assert_eq!(kept.at(10), Some((Reference::Yesterday, of(7))));
        kept.note(10, Reference::Week, of(5));
        kept.note(10, Reference::Yesterday, of(8));
        assert_eq!(kept.at(10), Some((Reference::Week, of(5))));
        kept.note(20, Reference::Yesterday, of(9));
        assert_eq!(kept.at(20), Some((Reference::Yesterday, of(9))));
        assert_eq!(kept.at(20 + VALID_US), Some((Reference::Yesterday, of(9))));
        assert_eq!(kept.at(21 + VALID_US), None);
        kept.note(20, Reference::Baseline, of(6));
        assert_eq!(kept.at(i64::MAX), Some((Reference::Baseline, of(6))));
    }
}
