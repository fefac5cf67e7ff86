//! The store that all sessions share. It exists with `shared_preload_libraries`. From PostgreSQL 17 on, it also exists without
//! that, for all sessions that load the library.
//!
//! A small control block lies in main shared memory. If the server did not preload the library, the control block lies in a
//! segment of PostgreSQL's registry (`GetNamedDSMSegment`) instead. A store in the registry is not saved, because the
//! postmaster has not loaded the library. The plans lie in dynamic shared memory, in an area that `pg_rowsource.max_memory`
//! limits. The buffers of the sessions lie in another area, see [`pending`]. The first backend that needs the areas makes both.
//!
//! The modules; each uses only those after it:
//! - [`startup`]: requests main shared memory, in the postmaster;
//! - [`saving`]: saves the plans when the server stops;
//! - [`read`]: lists, copies and resets plans;
//! - [`attach`]: makes the store, or attaches to it;
//! - [`record`]: adds an execution, and makes room for a new plan;
//! - [`pending`]: the sessions' buffers; [`file`]: the plans in a file; [`evict`]: the eviction of plans;
//! - [`entry`]: the plans in their table;
//! - [`access`], [`control`], [`blocks`]: a backend's pointers to the store, the control block, the memory of a plan.
//!
//! The locks, in the order in which they are taken:
//! 1. a slot of a session's buffer (`pending`): to add an execution of a short plan, or to flush the slot;
//! 2. the control lock, exclusive: to evict plans, or to insert a new one;
//! 3. a partition lock of the table (dshash): shared to find a plan, exclusive to insert or delete one;
//! 4. a plan's own lock: exclusive to add to it, shared to copy it.
//!
//! So the update of a known plan takes no exclusive lock that other plans share, and usually none that other sessions
//! share. Code that holds one of these locks calls neither PostgreSQL's executor nor its catalogs.
//!
//! If there is no memory, a new plan evicts others. If that does not help, its executions are counted as refused.

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
