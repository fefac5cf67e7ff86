//! The store that all sessions share. It exists with `shared_preload_libraries`. From PostgreSQL 17 on, it
//! also exists without that, for all sessions that load the library.
//!
//! A small control block lies in main shared memory. If the server did not preload the library, the control
//! block lies in a segment of PostgreSQL's registry (`GetNamedDSMSegment`) instead. A store in the registry
//! is not saved, because nobody looks at the control file when the server starts. The plans lie in dynamic
//! shared memory, in an area that `pg_rowsource.max_memory` limits. The buffers of the sessions lie in
//! another area, see [`pending`]. The first backend that needs the areas makes both.
//!
//! The modules; each uses only those after it:
//! - [`startup`]: requests main shared memory, in the postmaster;
//! - [`worker`]: what the background worker does for the store;
//! - [`read`]: lists, copies and resets plans; [`judging`]: looks for regressions;
//! - [`attach`]: makes the store, or attaches to it;
//! - [`saving`]: saves the plans when the server stops;
//! - [`registered`]: keeps which database has registered for snapshots;
//! - [`live`]: the memory in which sessions measure their statements;
//! - [`record`]: adds an execution, and makes room for a new plan;
//! - [`observe`]: notes the second plan of a query, whose changes are detected from then on;
//! - [`exemplars`]: the executions that are kept whole; [`executions`]: the ring of executions;
//! - [`pending`]: the sessions' buffers; [`file`]: the plans in a file; [`evict`]: the eviction of plans;
//! - [`listing`]: lists what the store has; [`entry`]: the plans in their table;
//! - [`reserve`]: the first parts of the sessions' memory; [`room`]: how much memory there may be;
//! - [`access`], [`control`], [`blocks`]: a backend's pointers to the store, the control block, the memory of
//!   a plan;
//! - [`evicted`]: what the control block knows of evicted plans; [`flips`]: the changes of plans;
//!   [`targets`]: the targets of the SQL trace; [`presence`]: the processes that may change the plans.
//!
//! The locks, in the order in which they are taken:
//! 1. a slot of a session's buffer (`pending`): to add an execution of a short plan, or to flush the slot;
//! 2. the control lock, exclusive: to evict plans, to insert a new one, or to use the sums of what was
//!    evicted;
//! 3. a partition lock of the table (dshash): shared to find a plan, exclusive to insert or delete one;
//! 4. a plan's own lock: exclusive to add to it, shared to copy it;
//! 5. the lock of the changes of plans, exclusive: to add executions of a query with several plans, and to
//!    read the changes and the regressions;
//! 6. the lock of the trace's targets, alone: shared to see which mean a session, exclusive to change them;
//! 7. the lock of the ring of executions, alone.
//!
//! So the update of a known plan takes no exclusive lock that other plans share, and usually none that other
//! sessions share. Code that holds one of these locks calls neither PostgreSQL's executor nor its catalogs.
//!
//! If there is no memory, a new plan evicts others. If that does not help, its executions are counted as
//! refused. The executions of evicted plans and refused executions are summed up per database.

mod access;
mod attach;
mod blocks;
mod control;
mod entry;
mod evict;
mod evicted;
mod executions;
mod exemplars;
mod file;
mod flips;
mod judging;
mod listing;
mod live;
mod observe;
mod pending;
mod presence;
mod read;
mod record;
mod references;
mod registered;
mod reserve;
mod room;
mod saving;
mod slot_wait;
mod startup;
mod targets;
mod worker;

pub use attach::attach;
pub use control::{SharedHistory, SharedSnapshots, SharedStops, SharedTrace, may_exist};
pub use executions::each_execution;
pub use exemplars::{Gone, LiveStatement};
pub use judging::{Judged, dismiss, flips, judge, regressions};
pub use live::{
    LINE, LiveMemory, attach_worker, live_memory, shared_history, shared_snapshots, shared_stops,
    shared_targets, shared_trace,
};
pub use pending::{PlanRef, PlanSlot};
pub use read::{
    Info, current_plan, description, description_or_before, info, keys, note_planid, others, plan, planid,
    reset, sums,
};
pub use record::{
    Listener, add_late, keep_late, may_keep_late, record, record_counts, record_explained, set_listener, tell,
};
pub use references::{forget_references, note_reference};
pub use registered::keep_registration;
pub use saving::save_at_stop;
pub use startup::init;
pub use targets::SharedTargets;
pub use worker::{worker_arrives, worker_leaves};
