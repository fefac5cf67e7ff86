//! The data model: plans, their executions and their nodes. The rest of the crate and the extension use these types.

mod batch;
mod execution;
mod facts;
mod format;
mod key;
mod measured;
mod node;
mod plan;

pub use batch::{Batch, ExecutionStats};
pub use execution::{Outcome, Planning, Run, Times, clock_name};
pub use facts::NodeFacts;
pub use format::FILE_FORMAT;
pub use key::{PlanId, PlanKey};
pub use measured::Measured;
pub use node::{Buffers, NodeStats, NodeTotals, Time, Wal};
pub use plan::{MAX_NODES, Plan, PlanDescription, PlanStats};
