//! Computes the statistics of a statement's nodes from what was measured while it ran.
//!
//! This code is pure. The extension passes a [`NodeSample`] for each node, and a [`CoreSample`] if PostgreSQL
//! measured too.
//!
//! Of most short statements, only [`Counts`] are taken. The statistics are computed from the sums of many
//! executions ([`PlanSum`]).
//!
//! If no estimate must be changed to fit the others, [`assemble_directly`] computes the statistics.
//!
//! [`assemble`] computes them in all other cases:
//!
//! 1. Each node's time is estimated, and what core timed is added.
//! 2. The estimates are made consistent ([`crate::reconcile`]).
//! 3. Buffers and WAL are summed up from the leaves to the root.
//! 4. Buffers and WAL that core counted in its own calls are added.
//!
//! If parallel processes share the rows of a node, [`scale_shared_estimates`] makes the planner's estimate
//! comparable.

mod assemble;
mod counts;
mod direct;
mod extras;
mod node;
mod node_counts;
mod plan_sum;
mod sample;
mod shape;
mod shared_rows;

pub use assemble::{Scratch, Totals, assemble};
pub use counts::Counts;
pub use direct::{assemble_directly, may_be_direct};
pub use node::add_to_parents;
pub use node_counts::Uncounted;
pub use plan_sum::PlanSum;
pub use sample::{
    Caller, Calls, CoreSample, EarlierCaller, Mode, NodeSample, Nodes, Place, SimpleSample, StatementSample,
    TimedCalls, Used, WorkerReport,
};
pub use shape::Shape;
pub use shared_rows::{Share, Sharing, parallel_divisor, scale_shared_estimates};

#[cfg(test)]
mod tests;
