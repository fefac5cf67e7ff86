//! The hot path: the code that runs once per call of a plan node, and the state that it uses.
//!
//! An error may leave any function of this folder by a longjmp. So all of them are plain frames: no guard, no
//! guarded function of PostgreSQL, no destructor, no allocation, no panic. A test checks all functions of
//! this folder in the built library, and all functions that they call (`tests/src/plain_frames.rs`).
//!
//! * `wrapper` stands in for a node's method and measures the call; its logic is `rowsource_core::wrapper`;
//! * `account` is what is charged to a node; `node` is what it writes of each node, `state` what it writes of
//!   the process;
//! * `usage` charges buffers and WAL to nodes, `called` what subplans used to the nodes that call them,
//!   `timing` holds the clock in force;
//! * `waits` charges waits to nodes;
//! * `trace` lists the calls of the one statement that `rowsource_call_trace()` runs;
//! * `sql_trace` writes the lines of waits into the session's SQL trace;
//! * `wait_object` says what a wait in that trace was for;
//! * `beats` makes the heart tell the session that time has passed, so that no long call is missed.

pub mod account;
pub mod beats;
pub mod called;
pub mod node;
pub mod sql_trace;
pub mod state;
pub mod timing;
pub mod trace;
pub mod usage;
pub mod wait_object;
pub mod waits;
pub mod wrapper;
