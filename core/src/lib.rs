//! The pure part of pg_rowsource: everything that needs no PostgreSQL server. The extension crate calls it;
//! plain `cargo test` tests it.
//!
//! * `model` holds the types that all others speak of: plans, executions, nodes and their statistics;
//! * `clock` reads and calibrates clocks; `sampler` decides which calls are timed and estimates the rest;
//! * `wrapper` measures the call of a node; `phase` says what may happen to a statement when;
//! * `results` computes a statement's statistics from samples of its nodes; `reconcile` makes estimated times
//!   agree;
//! * `histogram` counts times in powers of two; `tempfile` counts requests to temporary files;
//! * `waits` counts waits; `ash` keeps samples of what sessions do;
//! * `sql_trace` writes and reads the trace of a session, and makes a report of it;
//! * `logical_io` sums up the times of gets of blocks;
//! * `beat` is the protocol by which the worker tells sessions that time has passed;
//! * `blocks` is the protocol of the shared memory in which sessions measure their statements;
//! * `gate` says who counts what a parallel worker did;
//! * `breaker` says when a session stops measuring, because that costs too much;
//! * `planids` tells sessions the planids of plans that others have described; `definition` names what an
//!   index's expressions use;
//! * `pending` is the protocol of the sessions' buffers in shared memory; `eviction` chooses the plans that
//!   go;
//! * `flips` detects that a query changed its plan; `regressions` says what has become slower,
//!   and `compare` why;
//! * `stable_hash` makes numbers that never change;
//! * `zeroed` is memory that is zeroed once and then reused;
//! * `details` names what PostgreSQL knows of a node and of a statement;
//! * `plan` reads EXPLAIN's output; `hint` finds the hint in a statement's text, `normalise` replaces its
//!   constants;
//! * `lists` divides what plans did by node, relation or wait;
//! * `progress` estimates how far a statement is;
//! * `advice` says what could be done better;
//! * `report` prints tables; `export` writes plans in the formats of other tools.

pub mod advice;
pub mod ash;
pub mod beat;
pub mod blocks;
pub mod breaker;
pub mod call_trace;
pub mod clock;
pub mod compare;
pub mod definition;
pub mod details;
pub mod eviction;
pub mod explain_text;
pub mod export;
pub mod flips;
mod float;
pub mod gate;
pub mod hint;
pub mod histogram;
pub mod lists;
pub mod logical_io;
pub mod model;
pub mod normalise;
mod page;
pub mod pending;
pub mod phase;
pub mod plan;
pub mod planids;
#[cfg(test)]
mod processor_time;
pub mod progress;
pub mod reconcile;
pub mod regressions;
pub mod report;
pub mod results;
mod room;
pub mod sampler;
pub mod sql_trace;
pub mod stable_hash;
pub mod tempfile;
pub mod waits;
pub mod wrapper;
pub mod zeroed;
