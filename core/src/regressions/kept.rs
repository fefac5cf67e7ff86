//! What is kept of a plan to compare it with: its executions in an interval of the history. Each snapshot
//! says it anew, of each plan that ran since the previous one: also that there is nothing.

use super::judge::{MIN_EXECUTIONS, Reference};
use super::sums::Sums;

/// For how many microseconds the same hour of an earlier day is the right one, if no snapshot is taken.
const VALID_US: i64 = 7_200_000_000;

/// What a plan without a change is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Against {
    /// Its executions in an interval.
    pub sums: Sums,
    /// When the interval began and ended, in microseconds since 2000-01-01 UTC.
    pub interval: [i64; 2],
    /// Which interval it is.
    pub reference: Reference,
}

/// Executions of a plan in an interval of the history. Zero bytes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Kept {
    /// [`Reference::Plan`] is none.
    against: Against,
    /// When they were noted, in microseconds since 2000-01-01 UTC: at a snapshot.
    at: i64,
    /// The OID of the database that has this snapshot.
    datid: u32,
}

impl Kept {
    /// Notes executions at a snapshot, or that it has none. Of those of one snapshot, the best ones with
    /// enough executions stay. Those of an earlier one of the database go: their baseline may have been
    /// dropped. A snapshot of another database has its own history, so if that has nothing, they stay.
    pub fn note(&mut self, (at, datid): (i64, u32), against: Option<&Against>) {
        let has_other = self.datid != datid && self.against.reference != Reference::Plan;
        if at < self.at || has_other && against.is_none() {
            return;
        }
        if (self.at, self.datid) != (at, datid) {
            *self = Kept {
                at,
                datid,
                ..Kept::default()
            };
        }
        let rank = |wanted| Reference::ALL.iter().position(|known| *known == wanted);
        let is_better =
            |new: &&Against| rank(new.reference) < rank(self.against.reference).or(Some(usize::MAX));
        let is_enough = |new: &&Against| {
            new.sums.executions >= MIN_EXECUTIONS && rank(new.reference).is_some() && is_better(new)
        };
        if let Some(new) = against.filter(is_enough) {
            self.against = *new;
        }
    }

    /// Returns what a plan can be compared with at a moment.
    pub fn at(&self, now: i64) -> Option<Against> {
        let is_valid = match self.against.reference {
            Reference::Plan => false,
            Reference::Baseline => true,
            _ => now.saturating_sub(self.at) <= VALID_US,
        };
        is_valid.then_some(self.against)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(reference: Reference, executions: u64) -> Against {
        Against {
            sums: Sums {
                executions,
                ..Sums::default()
            },
            interval: [1, 2],
            reference,
        }
    }

    #[test]
    fn the_best_executions_of_the_last_snapshot_are_kept() {
        let mut kept = Kept::default();
        assert_eq!(kept.at(0), None);
        let mut note = |at, reference, executions, now| {
            kept.note((at, 5), Some(&against(reference, executions)));
            kept.at(now)
        };
        note(10, Reference::Yesterday, 7, 0);
        note(10, Reference::Week, 4, 0);
        assert_eq!(
            note(10, Reference::Plan, 9, 10),
            Some(against(Reference::Yesterday, 7))
        );
        note(10, Reference::Week, 5, 0);
        let week = Some(against(Reference::Week, 5));
        assert_eq!(note(10, Reference::Yesterday, 8, 10), week);
        let yesterday = Some(against(Reference::Yesterday, 9));
        assert_eq!(note(20, Reference::Yesterday, 9, 20 + VALID_US), yesterday);
        assert_eq!(note(20, Reference::Yesterday, 9, 21 + VALID_US), None);
        let baseline = Some(against(Reference::Baseline, 6));
        assert_eq!(note(20, Reference::Baseline, 6, i64::MAX), baseline);
    }

    /// The next snapshot has no baseline any more. It notes each plan that ran.
    #[test]
    fn a_baseline_that_was_dropped_is_no_reference_any_more() {
        let mut kept = Kept::default();
        kept.note((10, 5), Some(&against(Reference::Baseline, 9)));
        kept.note((10, 5), None);
        assert_eq!(kept.at(15), Some(against(Reference::Baseline, 9)));
        kept.note((20, 5), None);
        assert_eq!(kept.at(20), None);
        // The plan did not run in an older one with enough executions.
        kept.note((30, 5), Some(&against(Reference::Baseline, 9)));
        kept.note((40, 5), Some(&against(Reference::Baseline, 4)));
        assert_eq!(kept.at(40), None);
        kept.note((40, 5), Some(&against(Reference::Week, 5)));
        assert_eq!(kept.at(40), Some(against(Reference::Week, 5)));
    }

    /// Each database has the snapshots that were taken in it, with the plans of all.
    #[test]
    fn a_snapshot_of_another_database_takes_nothing_away() {
        let mut kept = Kept::default();
        let week = Some(against(Reference::Week, 9));
        kept.note((10, 5), week.as_ref());
        kept.note((20, 6), None);
        assert_eq!(kept.at(20), week);
        // The older one commits later.
        kept.note((5, 5), None);
        assert_eq!(kept.at(20), week);
        let baseline = Some(against(Reference::Baseline, 9));
        kept.note((30, 6), baseline.as_ref());
        kept.note((40, 5), None);
        assert_eq!(kept.at(40), baseline);
        kept.note((50, 6), None);
        assert_eq!(kept.at(50), None);
    }
}
