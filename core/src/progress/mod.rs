//! Estimates how far a statement is, from what its nodes have done so far.
//!
//! The work of a statement is the sum of its nodes' work: what they scan, the rows that they take from their
//! inputs, and the rows that they return. Each has a weight (`kind`). Bounds follow from what is certain: how
//! large the tables are, how many rows an operation can return at most, and which nodes have read all of
//! their input (`bounds`). The estimate lies between them. It starts from the planner's rows, which are
//! corrected as rows arrive (`estimate`), and takes the measured times for weights.
//!
//! After König, Ding, Chaudhuri, Narasayya, "A Statistical Approach Towards Robust Progress Estimation" (VLDB
//! 2011), and Lee et al., "Operator and Query Progress Estimation in Microsoft SQL Server Live Query
//! Statistics" (SIGMOD 2016).

mod bounds;
mod estimate;
mod furthest;
mod kind;
mod plan;
#[cfg(test)]
mod tests;
mod work;

pub use furthest::Furthest;
pub use plan::{Node, Table};
pub use work::Basis;

use bounds::Bounds;
use plan::Plan;

/// How far a statement is, in percent of its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// It is at least so far. It becomes smaller only if a table grows.
    pub low: f64,
    /// It is about so far.
    pub done: f64,
    /// It is at most so far.
    pub high: f64,
    /// What `done` rests on.
    pub basis: Basis,
}

impl Progress {
    /// Returns the progress with at least `done` done.
    pub fn at_least(self, done: f64) -> Progress {
        let done = self.done.max(done);
        Progress {
            done,
            high: self.high.max(done),
            ..self
        }
    }
}

/// The most that a statement has done while it runs, in percent.
const MOST: f64 = 99.99;

/// Estimates how far a statement is. Its nodes must be in EXPLAIN's order. Returns `None` if nothing can be
/// said.
pub fn progress(nodes: &[Node], workers: usize, is_outline: bool) -> Option<Progress> {
    let plan = Plan::new(nodes, workers, is_outline)?;
    let bounds = Bounds::of(&plan);
    let (low, high) = work::bounds(&plan, &bounds);
    let estimates = estimate::of(&plan, &bounds);
    let (done, basis) = work::estimate(&plan, &bounds, &estimates)?;
    // Bounds that are no numbers say nothing.
    let percent = |part: f64, or: f64| {
        if part.is_nan() {
            or
        } else {
            (part * 100.0).clamp(0.0, 100.0)
        }
    };
    let low = percent(low, 0.0);
    let high = percent(high, 100.0).max(low);
    Some(Progress {
        low,
        // It still runs.
        done: (done * 100.0).min(MOST).clamp(low, high),
        high,
        basis,
    })
}
