//! Adds up the work of all nodes.

use super::bounds::{Bounds, Range, product};
use super::estimate::Estimate;
use super::kind::Kind;
use super::plan::Plan;

/// What the estimate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Mostly on rows and blocks that were counted, and on sizes of tables.
    Rows,
    /// Mostly on the planner's estimates.
    Planner,
}

impl Basis {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Rows => "rows",
            Basis::Planner => "planner",
        }
    }
}

/// A part of a node's work.
struct Part {
    /// The node.
    of: usize,
    /// The rows of which node, and whether they are scanned.
    rows: usize,
    is_scan: bool,
    /// Nanoseconds per row or block, about.
    weight: f64,
}

impl Part {
    fn range<'a>(&self, bounds: &'a Bounds) -> &'a Range {
        let ranges = if self.is_scan { &bounds.scans } else { &bounds.rows };
        &ranges[self.rows]
    }
}

/// Returns the parts of the work of all nodes.
fn parts(plan: &Plan) -> Vec<Part> {
    /// For a table of which no number of rows is known.
    const ROWS_PER_BLOCK: f64 = 100.0;
    let mut parts = Vec::with_capacity(3 * plan.nodes.len());
    for (i, node) in plan.nodes.iter().enumerate() {
        let kind = plan.kinds[i];
        let rows = |rows, weight| Part {
            of: i,
            rows,
            is_scan: false,
            weight,
        };
        parts.push(rows(i, kind.output_weight()));
        for input in plan.inputs(i) {
            let is_inner = plan.inner(i) == Some(input);
            parts.push(rows(input, kind.input_weight(is_inner)));
        }
        if kind.scans_table() {
            let table = node.table.filter(|_| matches!(kind, Kind::SeqScan { .. }));
            let rows = table.map_or(1.0, |table| table.rows_per_block.unwrap_or(ROWS_PER_BLOCK));
            parts.push(Part {
                of: i,
                rows: i,
                is_scan: true,
                weight: kind.scan_weight() * rows.max(1.0),
            });
        }
    }
    parts
}

/// Returns the least and the largest part of the work that can be done.
pub(super) fn bounds(plan: &Plan, bounds: &Bounds) -> (f64, f64) {
    let (mut low, mut most_left, mut high, mut least_left) = (0.0, 0.0, 0.0, 0.0);
    for part in parts(plan) {
        let range = part.range(bounds);
        // A part without weight may have rows without a limit.
        low += product(part.weight, range.seen_low);
        most_left += product(part.weight, (range.total_high - range.seen_low).max(0.0));
        high += product(part.weight, range.seen_high);
        least_left += product(part.weight, (range.total_low - range.seen_high).max(0.0));
    }
    // What workers did is not known between their end and that of the Gather.
    let is_counted = (0..plan.nodes.len()).all(|i| !plan.is_parallel[i] || bounds.is_complete[i]);
    let part = |done: f64, left: f64| if done > 0.0 { done / (done + left) } else { 0.0 };
    let high = if is_counted && least_left > 0.0 && high.is_finite() {
        part(high, least_left)
    } else {
        1.0
    };
    (part(low, most_left), high)
}

/// Returns the part of the work that is estimated to be done, and what that rests on. Returns `None` if no
/// work is known.
pub(super) fn estimate(plan: &Plan, bounds: &Bounds, estimates: &[Estimate]) -> Option<(f64, Basis)> {
    let count = plan.nodes.len();
    // The work of each node in weights: done, in all, and how much of what is left does not rest on the
    // planner.
    let mut work = vec![[0.0; 3]; count];
    for part in parts(plan) {
        let estimate = &estimates[part.rows];
        let (seen, total) = if part.is_scan {
            (estimate.scan_seen, estimate.scan_total)
        } else {
            (bounds.rows[part.rows].seen_low, estimate.rows)
        };
        let total = total.max(seen);
        let sums = &mut work[part.of];
        sums[0] += product(part.weight, seen);
        sums[1] += product(part.weight, total);
        sums[2] += product(part.weight, (total - seen) * estimate.support);
    }
    // A node's time per weight; where it is not measured, the mean of the others. The leader of a Gather only
    // waits.
    let measured = |i: usize| {
        let is_waiting = plan.kinds[i] == Kind::Gather;
        // A row for which the node waits says nothing about the others.
        let waiting = if plan.kinds[i].is_blocking() {
            0.0
        } else {
            plan.nodes[i].waiting_ms
        };
        let ms = plan.nodes[i].self_ms.map(|ms| ms - waiting);
        ms.filter(|ms| *ms > 0.0 && work[i][0] > 0.0 && !is_waiting)
    };
    let sums = (0..count).fold([0.0, 0.0], |sums, i| match measured(i) {
        Some(ms) => [sums[0] + ms, sums[1] + work[i][0]],
        None => sums,
    });
    let mean = if sums[1] > 0.0 { sums[0] / sums[1] } else { 1.0 };
    let mut all = [0.0; 3];
    for (i, work) in work.iter().enumerate() {
        // So much work counts as measured with the mean, because the first rows are not typical.
        const PRIOR: f64 = 100_000.0;
        let speed = match measured(i) {
            Some(ms) => (ms + mean * PRIOR) / (work[0] + PRIOR),
            None => mean,
        };
        for (sum, work) in all.iter_mut().zip(work) {
            *sum += speed * work;
        }
    }
    let [done, total, supported] = all;
    let basis = if supported * 2.0 >= total - done {
        Basis::Rows
    } else {
        Basis::Planner
    };
    (total > 0.0 && total.is_finite()).then(|| (done / total, basis))
}
