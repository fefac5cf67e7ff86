//! The pure part of pg_rowsource: everything that needs no PostgreSQL server. The extension crate calls it; plain `cargo
//! test` tests it.
//!
//! * `model` holds the types that all others speak of: plans, executions, nodes and their statistics;
//! * `clock` reads and calibrates clocks; `sampler` decides which calls are timed and estimates the rest;
//! * `wrapper` measures the call of a node; `phase` says what may happen to a statement when;
//! * `results` computes a statement's statistics from samples of its nodes; `reconcile` makes estimated times agree;
//! * `histogram` counts times in powers of two; `tempfile` counts requests to temporary files;
//! * `logical_io` sums up the times of gets of blocks;
//! * `pending` is the protocol of the sessions' buffers in shared memory; `eviction` chooses the plans that go;
//! * `zeroed` is memory that is zeroed once and then reused;
//! * `plan` reads EXPLAIN's output; `hint` finds the hint in a statement's text; `report` prints tables; `export` writes plans
//!   in the formats of other tools.

pub mod clock;
pub mod eviction;
pub mod export;
mod float;
pub mod hint;
pub mod histogram;
pub mod logical_io;
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
pub mod zeroed;
