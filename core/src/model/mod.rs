//! What is measured and kept: plans, their executions, their nodes. All else in the crate and the extension speaks of
//! these types.

mod batch;
mod execution;
mod key;
mod node;
mod plan;

pub use batch::{Batch, ExecutionStats};
pub use execution::{ClockName, Outcome, Run, Times};
pub use key::{PlanId, PlanKey};
pub use node::{Buffers, Measured, NodeStats, NodeTotals, Time, Wal};
pub use plan::{Plan, PlanDescription, PlanStats};
