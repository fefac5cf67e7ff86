//! The pure part of pg_rowsource: what can be said about clocks, sampling, estimates, plans and
//! their display without a PostgreSQL server. The extension crate feeds it; plain `cargo test` tests it.

pub mod clock;
pub mod eviction;
pub mod hint;
pub mod histogram;
pub mod model;
pub mod pending;
pub mod phase;
pub mod plan;
#[cfg(test)]
mod processor_time;
pub mod reconcile;
pub mod report;
pub mod results;
pub mod sampler;
pub mod tempfile;
pub mod wrapper;
