//! The data model: plans, their executions and their nodes. The rest of the crate and the extension use these
//! types.

pub mod archive;
mod batch;
mod busy;
mod description;
mod durations;
mod estimates;
mod execution;
pub mod executions;
mod exemplar;
pub mod facts;
mod fold;
mod format;
mod histogram;
mod key;
mod lazy_description;
mod measured;
mod named_waits;
mod node;
mod others;
mod own;
mod packed;
pub mod parameters;
pub mod partitions;
mod plan;
mod processes;
#[cfg(test)]
pub(crate) mod sample;
mod statement_facts;
mod unfolding;
mod workers;

pub use batch::Batch;
pub use busy::Busy;
pub use description::{PlanDescription, PlanIds};
pub use durations::Durations;
pub use estimates::{Estimate, EstimateSum, Estimates};
pub use execution::{Late, Outcome, PlanOrigin, Planning, Run, Times, clock_name};
pub use exemplar::{Exemplar, Exemplars, KeepLimit, KeptExecution, MIN_SLOWEST_MS};
pub use facts::{NodeFacts, NodeKind, ScanIo};
pub use fold::{Calls, Fold, FoldedNode, PlanPart};
pub use format::FILE_FORMAT;
pub use histogram::HistogramTotals;
pub use key::PlanKey;
pub use lazy_description::{LazyDescription, MAX_UNDECODED, Published};
pub use measured::Measured;
pub use named_waits::{NamedWaits, WaitsFor};
pub use node::{Buffers, CALLED_WORDS, Called, NodeStats, NodeTotals, OwnIo, Time, Wal};
pub use others::{DatabaseSum, Others, PlanTotals};
pub use own::{own_errors, own_io, own_wal};
pub use packed::PackError;
pub use parameters::{Parameters, Sent};
pub use plan::{ExecutionStats, MAX_NODES, Plan, PlanStats};
pub use processes::processes;
pub use statement_facts::{JIT_OPTIONS, Jit, Outside, StatementFacts, StatementSums, TriggerSum};
pub use unfolding::{ChangedPartition, NameOf, TableNames, UnfoldedNode, Unfolding, numbered};
pub use workers::{WorkerPart, Workers};
