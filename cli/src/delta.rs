//! What happened between two refreshes: differences of counters that the server only adds to.

use std::collections::BTreeMap;

use crate::model::{Node, Plan, Wait};

/// How far the times of executions may be behind the clock.
pub const MARGIN_SECONDS: f64 = 2.0;

/// A row of counters.
pub trait Counted: Clone {
    /// What identifies the row.
    type Key: Ord + Clone + std::fmt::Debug;

    /// Returns that.
    fn key(&self) -> Self::Key;

    /// Returns when its counters began, if that is known.
    fn born(&self) -> f64 {
        0.0
    }

    /// Returns all of its counters. Only the first says whether something happened.
    fn counters(&mut self) -> Vec<&mut f64>;

    /// Returns what is estimated: it may become less, and nothing follows from that.
    fn estimates(&mut self) -> Vec<&mut f64> {
        Vec::new()
    }
}

/// The differences.
#[derive(Clone, Debug, Default)]
pub struct Difference<T> {
    /// The rows that changed, with what was added.
    pub rows: Vec<T>,
    /// Rows that were there before, and are not now.
    pub gone: usize,
    /// Rows whose counters began anew: their figures are since then.
    pub anew: usize,
}

/// Returns whether a row whose beginning is not known began anew: its first counter is less than half of what
/// it was. One that fell by less had counted something twice for a moment, such as the waits of a process
/// that ended just then: nothing was added then, and by no means all that the row has.
fn fell_to_its_beginning(now: f64, old: f64) -> bool {
    now < old / 2.0
}

/// Returns what was added to rows after a time, when these were as in `before`. The figures of a row that
/// began anew are what it has now: they are too small rather than negative. A row that was not there before
/// has figures only if it is not older.
pub fn difference<'a, T: Counted + 'a>(
    before: impl IntoIterator<Item = &'a T>,
    now: &[T],
    then: f64,
) -> Difference<T> {
    let mut old: BTreeMap<T::Key, &T> = before.into_iter().map(|row| (row.key(), row)).collect();
    let mut result = Difference {
        rows: Vec::new(),
        gone: 0,
        anew: 0,
    };
    for row in now {
        let mut added = row.clone();
        if let Some(old) = old.remove(&row.key()) {
            let mut old = old.clone();
            let began = row.born() > old.born();
            let values: Vec<f64> = old.counters().into_iter().map(|value| *value).collect();
            if began || fell_to_its_beginning(*added.counters()[0], values[0]) {
                result.anew += 1;
            } else {
                for (value, old) in added.counters().into_iter().zip(values) {
                    *value = (*value - old).max(0.0);
                }
                for (value, old) in added.estimates().into_iter().zip(old.estimates()) {
                    *value = (*value - *old).max(0.0);
                }
            }
        } else if 0.0 < row.born() && row.born() < then - MARGIN_SECONDS {
            continue;
        }
        if *added.counters()[0] > 0.0 {
            result.rows.push(added);
        }
    }
    result.gone = old.len();
    result
}

impl Counted for Plan {
    type Key = (i64, i64, Option<i64>, Option<i64>, bool);

    fn key(&self) -> Self::Key {
        (self.userid, self.datid, self.queryid, self.planid, self.toplevel)
    }

    fn born(&self) -> f64 {
        // The sum of plans that are not stored has no beginning of its own.
        if self.queryid.is_some() {
            self.first_seen
        } else {
            0.0
        }
    }

    fn counters(&mut self) -> Vec<&mut f64> {
        vec![
            &mut self.calls,
            &mut self.failed,
            &mut self.time,
            &mut self.wait,
            &mut self.rows,
            &mut self.hits,
            &mut self.reads,
            &mut self.temp,
            &mut self.wal,
        ]
    }
}

impl Counted for Node {
    type Key = (i64, i64, Option<i64>, Option<i64>, bool, i64);

    fn key(&self) -> Self::Key {
        (
            self.userid,
            self.datid,
            self.queryid,
            self.planid,
            self.toplevel,
            self.node_id,
        )
    }

    fn counters(&mut self) -> Vec<&mut f64> {
        vec![
            &mut self.executions,
            &mut self.starts,
            &mut self.rows,
            &mut self.wait,
            &mut self.hits,
            &mut self.reads,
            &mut self.temp,
            &mut self.removed,
        ]
    }

    fn estimates(&mut self) -> Vec<&mut f64> {
        vec![&mut self.time, &mut self.own_time]
    }
}

impl Counted for Wait {
    type Key = (Option<String>, Option<String>, Option<String>);

    fn key(&self) -> Self::Key {
        (self.backend_type.clone(), self.class.clone(), self.event.clone())
    }

    fn counters(&mut self) -> Vec<&mut f64> {
        vec![&mut self.waits, &mut self.time]
    }
}

/// Adds up the plans of each statement, with the key of the plan that took the most time.
pub fn by_statement(plans: &[Plan]) -> Vec<(Plan, usize)> {
    let mut sums: BTreeMap<_, (Plan, usize, f64)> = BTreeMap::new();
    for plan in plans {
        let key = (plan.userid, plan.datid, plan.queryid, plan.toplevel);
        let Some((sum, count, most)) = sums.get_mut(&key) else {
            sums.insert(key, (plan.clone(), 1, plan.time));
            continue;
        };
        *count += 1;
        if plan.time > *most {
            *most = plan.time;
            sum.planid = plan.planid;
        }
        let mut plan = plan.clone();
        for (total, value) in sum.counters().into_iter().zip(plan.counters()) {
            *total += *value;
        }
    }
    sums.into_values().map(|(sum, count, _)| (sum, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(queryid: i64, calls: f64, time: f64, first_seen: f64) -> Plan {
        Plan {
            queryid: Some(queryid),
            planid: Some(queryid),
            calls,
            time,
            first_seen,
            ..Plan::default()
        }
    }

    #[test]
    fn only_what_was_added_is_shown() {
        let found = difference(
            &[plan(1, 10.0, 5.0, 1.0), plan(2, 3.0, 1.0, 1.0)],
            &[plan(1, 12.0, 9.0, 1.0), plan(2, 3.0, 1.0, 1.0)],
            8.0,
        );
        assert_eq!(found.rows, [plan(1, 2.0, 4.0, 1.0)]);
        assert_eq!((found.gone, found.anew), (0, 0));
    }

    #[test]
    fn a_plan_that_was_evicted_and_came_back_is_never_negative() {
        let found = difference(&[plan(1, 10.0, 500.0, 1.0)], &[plan(1, 2.0, 7.0, 9.0)], 0.0);
        assert_eq!(found.rows, [plan(1, 2.0, 7.0, 9.0)]);
        assert_eq!(found.anew, 1);
        // It came back, and already has more calls than before.
        let found = difference(&[plan(1, 1.0, 1.0, 1.0)], &[plan(1, 2.0, 7.0, 9.0)], 0.0);
        assert_eq!(found.rows, [plan(1, 2.0, 7.0, 9.0)]);
        // A reset that left no other trace.
        let found = difference(&[plan(1, 10.0, 500.0, 1.0)], &[plan(1, 2.0, 7.0, 1.0)], 0.0);
        assert_eq!((found.rows[0].calls, found.anew), (2.0, 1));
    }

    /// A process that ends is counted twice for a moment, with all that it has ever waited.
    #[test]
    fn a_counter_that_falls_a_little_did_not_begin_anew() {
        let wait = |waits: f64, time: f64| Wait {
            waits,
            time,
            ..Wait::default()
        };
        let found = difference(&[wait(1e6, 1e6)], &[wait(1e6 - 1.0, 1e6)], 8.0);
        assert_eq!((found.rows, found.anew), (vec![], 0));
        // All of it was counted twice.
        let found = difference(&[wait(2e6, 2e6)], &[wait(1e6, 1e6)], 8.0);
        assert_eq!((found.rows, found.anew), (vec![], 0));
        // Only another counter fell.
        let found = difference(&[wait(1e6, 1e6)], &[wait(1e6 + 3.0, 1e6 - 5.0)], 8.0);
        assert_eq!((found.rows, found.anew), (vec![wait(3.0, 0.0)], 0));
        let found = difference(&[wait(1e6, 1e6)], &[wait(7.0, 9.0)], 8.0);
        assert_eq!((found.rows, found.anew), (vec![wait(7.0, 9.0)], 1));
    }

    /// It may be seen for the first time because the role may see more now.
    #[test]
    fn an_old_plan_that_was_not_listed_before_does_not_count_its_life() {
        let now = [plan(1, 500.0, 9.0, 10.0), plan(2, 1.0, 1.0, 99.0)];
        let found = difference(&[], &now, 100.0);
        assert_eq!(found.rows, [plan(2, 1.0, 1.0, 99.0)]);
        assert_eq!(difference(&[], &now, 0.0).rows.len(), 2);
    }

    #[test]
    fn evicted_plans_are_counted() {
        let found = difference(
            &[plan(1, 10.0, 5.0, 1.0), plan(2, 3.0, 1.0, 1.0)],
            &[plan(3, 1.0, 2.0, 7.0)],
            6.0,
        );
        assert_eq!(found.rows, [plan(3, 1.0, 2.0, 7.0)]);
        assert_eq!(found.gone, 2);
    }

    #[test]
    fn plans_of_a_statement_add_up() {
        let mut other = plan(1, 1.0, 50.0, 1.0);
        other.planid = Some(7);
        let sums = by_statement(&[plan(1, 4.0, 2.0, 1.0), other]);
        assert_eq!(sums.len(), 1);
        assert_eq!(
            (sums[0].0.calls, sums[0].0.time, sums[0].0.planid, sums[0].1),
            (5.0, 52.0, Some(7), 2)
        );
    }
}
