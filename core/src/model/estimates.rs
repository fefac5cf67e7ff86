//! The planner's estimates of a node's rows, compared with the actual rows execution by execution.
//!
//! Only executions that say something about an estimate are compared. An execution says nothing if it did not
//! complete, if the node never started, or if a node above may have stopped reading before the node's last
//! row.

use crate::float::{at_least, at_most};
use serde::{Deserialize, Serialize};

/// The most rows that are kept. The planner's largest estimate is 1e100, which is too large for single
/// precision.
const MAX_ROWS: f64 = 1e30;

/// The estimate of one execution. Single precision is enough for an estimate, and keeps a node's statistics
/// small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The rows per start that the planner expected, as EXPLAIN shows them.
    pub plan_rows: f32,
    /// The estimate is multiplied by this before it is compared with the rows of a start. It is 1 for most
    /// nodes. It is another number if `plan_rows` is for one of several processes that share the rows. It is
    /// 0 if the execution says nothing about the estimate.
    scale: f32,
}

impl Estimate {
    /// Returns an estimate that is compared with the actual rows, or not, as `is_judged` says.
    #[inline(always)]
    pub fn new(plan_rows: f64, is_judged: bool) -> Self {
        Estimate {
            plan_rows: at_most(plan_rows, MAX_ROWS) as f32,
            scale: f32::from(u8::from(is_judged)),
        }
    }

    /// Returns the estimate of another execution of the same plan.
    #[inline(always)]
    pub fn with_plan_rows(self, plan_rows: f64) -> Self {
        Estimate {
            plan_rows: at_most(plan_rows, MAX_ROWS) as f32,
            ..self
        }
    }

    /// Returns whether the execution says something about the estimate.
    pub(super) fn is_judged(&self) -> bool {
        self.scale > 0.0
    }

    /// Notes that the execution says nothing about the estimate.
    pub fn dismiss(&mut self) {
        self.scale = 0.0;
    }

    /// Notes how many rows the planner expected in this number of starts. It changes nothing if the execution
    /// says nothing about the estimate.
    pub fn set_expected_rows(&mut self, rows: f64, starts: u64) {
        let unscaled = f64::from(self.plan_rows) * starts as f64;
        if self.scale > 0.0 && unscaled > 0.0 {
            self.scale = (rows / unscaled) as f32;
        }
    }

    /// Returns the rows that the planner expected of all starts; 0 if the execution says nothing about the
    /// estimate.
    #[inline(always)]
    pub(super) fn expected_rows(&self, starts: u64) -> f64 {
        f64::from(self.plan_rows * self.scale) * starts as i64 as f64
    }
}

/// The estimates of the executions that say something about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// The sum of the rows that the planner expected over all starts.
    pub expected_rows: f64,
    /// The sum of the actual rows.
    pub actual_rows: u64,
    /// The sum of the starts.
    pub starts: u64,
    /// The number of executions.
    pub executions: u64,
    /// The largest number of times that an execution had more rows than expected. It is 0 or 1 if none had.
    largest_underestimate: f32,
    /// The largest number of times that an execution had fewer rows than expected. It is 0 or 1 if none had.
    largest_overestimate: f32,
}

impl Estimates {
    /// Adds an execution, if it says something. A node of which the planner expects no rows at all has none:
    /// it changes a table, or its condition is false.
    #[inline(always)]
    pub fn add(&mut self, estimate: &Estimate, starts: u64, rows: u64) {
        let expected = estimate.expected_rows(starts);
        if expected == 0.0 {
            return;
        }
        self.expected_rows += expected;
        self.actual_rows += rows;
        self.starts += starts;
        self.executions += 1;
        let actual = rows as i64 as f64;
        if expected != actual {
            self.note_difference(expected, actual, f64::from(estimate.scale) * starts as i64 as f64);
        }
    }

    /// Keeps the largest factors. The planner never expects less than one row per start, so fewer count as
    /// one (`clamp_row_est` in costsize.c). `least`: one row per start.
    #[inline(never)]
    fn note_difference(&mut self, expected: f64, actual: f64, least: f64) {
        let ratio = at_least(actual, least) / at_least(expected, least);
        let under = at_most(ratio, MAX_ROWS) as f32;
        let over = at_most(1.0 / ratio, MAX_ROWS) as f32;
        self.largest_underestimate = self.largest_underestimate.max(under);
        self.largest_overestimate = self.largest_overestimate.max(over);
    }

    /// Adds executions that were counted separately.
    pub fn merge(&mut self, other: &Estimates) {
        self.expected_rows += other.expected_rows;
        self.actual_rows += other.actual_rows;
        self.starts += other.starts;
        self.executions += other.executions;
        self.largest_underestimate = self.largest_underestimate.max(other.largest_underestimate);
        self.largest_overestimate = self.largest_overestimate.max(other.largest_overestimate);
    }

    /// Returns how many times more rows than expected an execution had at most; 1 if none had more. Returns
    /// `None` if no execution says something.
    pub fn max_underestimate(&self) -> Option<f64> {
        self.judged(f64::from(self.largest_underestimate.max(1.0)))
    }

    /// Returns how many times fewer rows than expected an execution had at most; 1 if none had fewer. Returns
    /// `None` if no execution says something.
    pub fn max_overestimate(&self) -> Option<f64> {
        self.judged(f64::from(self.largest_overestimate.max(1.0)))
    }

    /// Returns the mean estimate of a start. Returns `None` if no execution says something.
    pub fn rows_per_start(&self) -> Option<f64> {
        self.judged(self.expected_rows / self.starts as f64)
    }

    fn judged(&self, value: f64) -> Option<f64> {
        (self.starts > 0).then_some(value)
    }
}

/// What the planner expected of several nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct EstimateSum {
    first: Estimate,
    nodes: u64,
    starts: u64,
    /// The rows of a start of each node.
    rows: f64,
    /// The rows of all starts.
    all_rows: f64,
    /// The rows of all starts that are compared with the actual rows.
    expected: f64,
    /// At least one node that ran says nothing about its estimate.
    is_unjudged: bool,
}

impl EstimateSum {
    /// Adds what was expected of a node, which was started this often.
    pub fn add(&mut self, estimate: &Estimate, starts: u64) {
        let rows = f64::from(estimate.plan_rows);
        if self.nodes == 0 {
            self.first = *estimate;
        }
        self.nodes += 1;
        self.starts += starts;
        self.rows += rows;
        self.all_rows += rows * starts as f64;
        self.expected += estimate.expected_rows(starts);
        self.is_unjudged |= starts > 0 && !estimate.is_judged();
    }

    /// Returns the mean, which has the same sum.
    pub fn estimate(&self) -> Estimate {
        if self.nodes <= 1 {
            return self.first;
        }
        let mean = match self.starts {
            0 => self.rows / self.nodes as f64,
            starts => self.all_rows / starts as f64,
        };
        let mut estimate = Estimate::new(mean, !self.is_unjudged && self.starts > 0);
        estimate.set_expected_rows(self.expected, self.starts);
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(executions: &[(f64, u64, u64)]) -> Estimates {
        let mut sum = Estimates::default();
        for (plan_rows, starts, rows) in executions {
            sum.add(&Estimate::new(*plan_rows, true), *starts, *rows);
        }
        sum
    }

    #[test]
    fn estimates_are_compared_execution_by_execution() {
        let right = added(&[(10.0, 1, 10), (200_000.0, 1, 200_000)]);
        assert_eq!(
            (right.max_underestimate(), right.max_overestimate()),
            (Some(1.0), Some(1.0))
        );
        assert_eq!(
            (right.expected_rows, right.actual_rows, right.executions),
            (200_010.0, 200_010, 2)
        );
        assert_eq!(right.rows_per_start(), Some(100_005.0));
        let wrong = added(&[(10.0, 2, 200), (100.0, 1, 4), (100.0, 1, 0)]);
        assert_eq!(
            (wrong.max_underestimate(), wrong.max_overestimate()),
            (Some(10.0), Some(100.0))
        );
        assert_eq!((wrong.starts, wrong.rows_per_start()), (4, Some(55.0)));
    }

    #[test]
    fn fewer_rows_than_one_per_start_count_as_one() {
        let factors = |plan_rows, starts, rows| {
            let sum = added(&[(plan_rows, starts, rows)]);
            (sum.max_underestimate(), sum.max_overestimate())
        };
        // The planner cannot expect less than one row per start.
        assert_eq!(factors(1.0, 1_000, 10), (Some(1.0), Some(1.0)));
        assert_eq!(factors(1.0, 1_000, 0), (Some(1.0), Some(1.0)));
        assert_eq!(factors(5.0, 1_000, 0), (Some(1.0), Some(5.0)));
        assert_eq!(factors(5.0, 1_000, 500), (Some(1.0), Some(5.0)));
        assert_eq!(factors(1.0, 1_000, 3_000), (Some(3.0), Some(1.0)));
        assert_eq!(factors(100.0, 1, 0), (Some(1.0), Some(100.0)));
        // One row of a process is 2.4 rows of three processes.
        let mut estimate = Estimate::new(1.0, true);
        estimate.set_expected_rows(2.4, 3);
        let mut sum = Estimates::default();
        sum.add(&estimate, 3, 0);
        assert!(sum.max_overestimate() < Some(1.0001), "{sum:?}");
    }

    #[test]
    fn executions_that_say_nothing_are_ignored() {
        let mut sum = added(&[(10.0, 0, 0)]);
        sum.add(&Estimate::new(10.0, false), 1, 1_000);
        let mut dismissed = Estimate::new(10.0, true);
        dismissed.dismiss();
        dismissed.set_expected_rows(10.0, 1);
        sum.add(&dismissed, 1, 1_000);
        assert_eq!(sum, Estimates::default());
        assert_eq!((sum.max_underestimate(), sum.rows_per_start()), (None, None));
    }

    #[test]
    fn an_estimate_per_process_is_scaled() {
        // Three processes share 240 rows, of which the planner expected 100 per process.
        let mut estimate = Estimate::new(100.0, true);
        estimate.set_expected_rows(240.0, 3);
        let mut sum = Estimates::default();
        sum.add(&estimate, 3, 240);
        assert!((sum.expected_rows - 240.0).abs() < 1e-3, "{sum:?}");
        assert!(sum.max_underestimate() < Some(1.0001));
        assert_eq!(estimate.plan_rows, 100.0);
    }

    #[test]
    fn sums_are_merged() {
        let executions = [(10.0, 1, 100), (7.0, 3, 21), (1e9, 1, 1), (1.0, 1, 0)];
        for at in 0..=executions.len() {
            let (first, rest) = executions.split_at(at);
            let mut merged = added(first);
            merged.merge(&added(rest));
            assert_eq!(merged, added(&executions));
        }
    }

    /// The planner's largest estimate is 1e100.
    #[test]
    fn extreme_values_stay_finite() {
        let sum = added(&[
            (1e100, u64::MAX >> 1, 1),
            (0.0, 1, u64::MAX >> 1),
            (f64::NAN, 1, 1),
        ]);
        assert_eq!(sum.executions, 2);
        let factors = [
            sum.max_underestimate(),
            sum.max_overestimate(),
            sum.rows_per_start(),
        ];
        assert!(
            factors.iter().flatten().all(|factor| factor.is_finite()),
            "{factors:?}"
        );
    }
}
