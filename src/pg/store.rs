//! The store that all sessions share: with `shared_preload_libraries`, and from PostgreSQL 17 on without it too, for
//! all sessions that load the library.
//!
//! A small control block lies in main shared memory. Where the server did not preload the library, it lies in a segment of
//! PostgreSQL's registry (`GetNamedDSMSegment`) instead; such a store is not saved, for the postmaster does not know the
//! library. The plans lie in dynamic shared memory (one area, limited by `pg_rowsource.max_memory`), and so do the buffers of
//! the sessions (another area, see [`pending`]). The first backend that needs them makes both.
//!
//! The modules, each of which uses only those after it:
//! - [`startup`]: asks for main shared memory, in the postmaster;
//! - [`saving`]: saves the plans when the server stops;
//! - [`read`]: lists, copies and resets plans;
//! - [`attach`]: makes the store, or attaches to it;
//! - [`record`]: adds an execution, and makes room for a new plan;
//! - [`pending`]: the sessions' buffers; [`file`]: the plans in a file; [`evict`]: which plans go;
//! - [`entry`]: the plans in their table;
//! - [`access`], [`control`], [`blocks`]: what a backend knows of the store, its control block, the memory of a plan.
//!
//! Locks, and the order in which they are taken:
//! 1. a slot of a session's buffer (`pending`): to add an execution of a short plan, or to flush the slot;
//! 2. the control lock, exclusive: to evict, to insert a new plan;
//! 3. a partition lock of the table (dshash): shared to find a plan, exclusive to insert or delete one;
//! 4. a plan's own lock: exclusive to add to it, shared to copy it.
//!
//! So the update of a known plan takes no exclusive lock that other plans share, and mostly none that other sessions
//! share. Nothing is called into PostgreSQL's executor or catalogs while any of them is held.
//!
//! When there is no memory, a new plan evicts others. When that does not help, its executions are counted as refused.

mod access;
mod attach;
mod blocks;
mod control;
mod entry;
mod evict;
mod file;
mod pending;
mod read;
mod record;
mod saving;
mod startup;

pub use attach::attach;
pub use pending::{PlanRef, PlanSlot};
pub use read::{current_plan, info, keys, plan, reset};
pub use record::record;
pub use startup::init;
