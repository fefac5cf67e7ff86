//! The sums of the executions whose plans are not stored: of evicted plans, and of refused executions.

use super::plan::PlanStats;
use super::statement_facts::StatementSums;
use serde::{Deserialize, Serialize};

/// How many sums belong to one database. A database may have two: of the statements that clients sent, and of
/// nested ones.
const MAX_DATABASES: usize = 64;

/// The statistics of executions as a whole, without their nodes.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct PlanTotals {
    /// The executions and their times.
    pub plan: PlanStats,
    /// What they used.
    pub statement: StatementSums,
}

impl PlanTotals {
    /// Adds other executions.
    pub fn add(&mut self, other: &PlanTotals) {
        self.plan.merge(&other.plan);
        self.statement += &other.statement;
    }
}

/// The sum of a database: of the statements that clients sent, or of those that are nested in them.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct DatabaseSum {
    /// The OID of the database; 0 stands for the databases that have no sum of their own.
    pub datid: u32,
    /// Whether clients sent the statements.
    pub toplevel: bool,
    /// The sum. It has no calls if this place is free.
    pub totals: PlanTotals,
}

/// The sums of all databases. Zero bytes are empty sums.
#[repr(C)]
pub struct Others {
    databases: [DatabaseSum; MAX_DATABASES],
    /// The sums of the databases that found no place: of nested statements, and of others.
    rest: [DatabaseSum; 2],
}

impl Others {
    /// The largest number of sums.
    pub const MAX: usize = MAX_DATABASES + 2;

    /// Adds executions to the sum of a database.
    pub fn add(&mut self, datid: u32, toplevel: bool, totals: &PlanTotals) {
        if totals.plan.times.calls == 0 {
            return;
        }
        // A free place may lie before that of the database, because places are cleared.
        let is_own = |sum: &DatabaseSum| (sum.datid, sum.toplevel) == (datid, toplevel) && !sum.is_empty();
        let own = self.databases.iter().position(is_own);
        let free = || self.databases.iter().position(DatabaseSum::is_empty);
        let place = own.or_else(|| if datid == 0 { None } else { free() });
        let sum = match place.and_then(|at| self.databases.get_mut(at)) {
            Some(sum) => {
                sum.datid = datid;
                sum
            }
            None => &mut self.rest[usize::from(toplevel)],
        };
        sum.toplevel = toplevel;
        sum.totals.add(totals);
    }

    /// Returns the sums that are not empty.
    pub fn sums(&self) -> impl Iterator<Item = &DatabaseSum> {
        let all = self.databases.iter().chain(&self.rest);
        all.filter(|sum| !sum.is_empty())
    }

    /// Clears the sum of a database; all sums if `datid` is 0.
    pub fn clear(&mut self, datid: u32) {
        for sum in self.databases.iter_mut().chain(&mut self.rest) {
            if datid == 0 || sum.datid == datid {
                *sum = DatabaseSum::default();
            }
        }
    }
}

impl DatabaseSum {
    fn is_empty(&self) -> bool {
        self.totals.plan.times.calls == 0
    }
}

impl Default for Others {
    fn default() -> Self {
        Others {
            databases: [DatabaseSum::default(); MAX_DATABASES],
            rest: [DatabaseSum::default(); 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Times;

    fn totals(times: &[f64]) -> PlanTotals {
        let mut totals = PlanTotals::default();
        let mut sum = Times::default();
        times.iter().for_each(|ms| sum.add(*ms));
        totals.plan.times = sum;
        totals.statement.rows = times.len() as u64;
        totals
    }

    fn found(others: &Others) -> Vec<(u32, u64, f64)> {
        let sums = others.sums();
        sums.map(|sum| {
            let times = &sum.totals.plan.times;
            assert_eq!(sum.totals.statement.rows, times.calls);
            (sum.datid, times.calls, times.total_ms)
        })
        .collect()
    }

    #[test]
    fn each_database_has_a_sum() {
        let mut others = Others::default();
        others.add(5, true, &PlanTotals::default());
        assert_eq!(found(&others), []);
        others.add(5, true, &totals(&[1.0, 2.0]));
        others.add(7, true, &totals(&[4.0]));
        others.add(5, true, &totals(&[8.0]));
        assert_eq!(found(&others), [(5, 3, 11.0), (7, 1, 4.0)]);
        others.clear(5);
        assert_eq!(found(&others), [(7, 1, 4.0)]);
        // It goes on with its own place, though an earlier one is free.
        others.add(7, true, &totals(&[1.0]));
        assert_eq!(found(&others), [(7, 2, 5.0)]);
        others.add(9, true, &totals(&[1.0]));
        assert_eq!(found(&others), [(9, 1, 1.0), (7, 2, 5.0)]);
        others.clear(0);
        assert_eq!(found(&others), []);
    }

    #[test]
    fn many_databases_share_the_last_sum() {
        let mut others = Others::default();
        let databases = 1..=1_000u32;
        for _ in 0..2 {
            databases
                .clone()
                .for_each(|datid| others.add(datid, true, &totals(&[1.0])));
        }
        let sums = found(&others);
        assert_eq!(sums.len(), Others::MAX - 1);
        assert_eq!(sums[0], (1, 2, 2.0));
        assert_eq!(sums[MAX_DATABASES], (0, 2 * (1_000 - 64), 2.0 * (1_000.0 - 64.0)));
        let calls: u64 = sums.iter().map(|sum| sum.1).sum();
        assert_eq!(calls, 2_000);
        // The sum of an unknown database is in the shared one, also if a place is free.
        others.clear(1);
        others.add(0, true, &totals(&[1.0]));
        assert_eq!(found(&others)[MAX_DATABASES - 1], (0, 1_873, 1_873.0));
    }
    #[test]
    fn nested_statements_have_sums_of_their_own() {
        let mut others = Others::default();
        for datid in [5, 6, 5, 0] {
            others.add(datid, true, &totals(&[4.0]));
            others.add(datid, false, &totals(&[1.0, 2.0]));
        }
        let sums = |toplevel| {
            let sums = others.sums().filter(|sum| sum.toplevel == toplevel);
            sums.map(|sum| (sum.datid, sum.totals.plan.times.calls))
                .collect::<Vec<_>>()
        };
        assert_eq!(sums(true), [(5, 2), (6, 1), (0, 1)]);
        assert_eq!(sums(false), [(5, 4), (6, 2), (0, 2)]);
    }
}
