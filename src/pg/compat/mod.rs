//! Handles every difference between PostgreSQL's major versions, in functions with one signature for all
//! versions.
//!
//! * `activity` finds the entries of pg_stat_activity, and sets handlers of signals;
//! * `counters` finds the process's counters of buffers and WAL;
//! * `instrumentation` reads and writes core's counters and times of a node;
//! * `node_facts` finds facts of nodes that some majors keep elsewhere;
//! * `globals` declares variables that some majors lack;
//! * `plan_origin` tells generic and custom plans of the plan cache apart;
//! * `shared_memory` creates areas, tables and locks that all sessions share;
//! * `temp_tables` returns how temporary tables are read, and which process owns them;
//! * `explain_hooks` removes the hooks with which other extensions add to EXPLAIN;
//! * `jumble` reads what the parser knows of a statement's constants;
//! * `executor_run`, `planner`, `explain_option` and `expression` wrap functions that have another name or
//!   signature in some major.
//!
//! The build script sets `pg_ge_NN` where the major is at least NN. The newest branch comes first and names
//! the first major that needs it; the older one is `not(pg_ge_NN)`. So a new major uses the newest branch
//! everywhere.

mod activity;
mod counters;
pub mod executor_run;
pub mod explain_hooks;
pub mod explain_option;
pub mod expression;
mod globals;
mod instrumentation;
pub mod jumble;
mod node_facts;
mod plan_advice;
mod plan_origin;
pub mod planner;
mod shared_memory;
mod temp_tables;

pub use activity::{Entries, Entry, client_address, handle_signal, session_start};
pub use counters::{
    MIN_PAGE, add_buffers_since, add_wal_since, buffer_usage, buffers_now, page, pages_of_counters, wal_now,
    wal_usage,
};
pub use instrumentation::{
    NodeInstrumentation, abort_io, add_io_time, alloc_trigger_instrumentation, buffers,
    common_instrumentation, core_interrupted_ns, core_interrupted_usage, core_startup_ns, core_total_ns,
    instr_time_ns, is_called_by_core, is_timing, jit_deform_ns, measure_usage, reset_instrumentation,
    set_buffers, set_core_totals, set_wal, temp_ns, trigger_calls, uncount, wal, worker_parts,
};
pub use node_facts::{
    COUNT_SCAN_IO, IndexSearches, STORAGE, count_index_searches, disabled_nodes, foreign_entries,
    heap_blocks, index_searches, is_group, replaced_entries, returned_entry, scan_io, storage,
    worker_heap_blocks, worker_scan_io,
};
pub use plan_advice::{HAS_PLAN_ADVICE, plan_advice};
pub use plan_origin::{note_parameters, plan_origin};
pub use shared_memory::{
    HAS_REGISTRY, dsa_create, dshash_find_or_insert, dshash_parameters, named_dsm_segment, new_tranche,
    register_tranche,
};
pub use temp_tables::{number_of_session, pid_of_session, pid_of_temp_tables, temp_tables_bypass_syscalls};

use crate::pg::handles::RelationRef;
use pgrx::pg_sys;

/// The number of `STATEMENT_TIMEOUT` in `timeout.h`.
pub const STATEMENT_TIMEOUT: i32 = 3;

/// The flag of a background worker which PostgreSQL ends if its database is dropped, altered or copied.
/// Before 19, these commands wait for it.
#[cfg(pg_ge_19)]
pub const INTERRUPTIBLE: u32 = pg_sys::BGWORKER_INTERRUPTIBLE;
#[cfg(not(pg_ge_19))]
pub const INTERRUPTIBLE: u32 = 0;

/// The major version for which this library is built.
pub const MAJOR_VERSION: u32 = pg_sys::PG_MAJORVERSION_NUM;

/// Allocates memory for a setting's extra data, which PostgreSQL frees. Returns null if there is no memory.
pub fn guc_malloc(size: usize) -> *mut std::ffi::c_void {
    #[cfg(not(pg_ge_16))]
    use libc::malloc;
    #[cfg(pg_ge_16)]
    use pg_sys::guc_malloc as malloc;
    // SAFETY: at LOG the function raises no error, and accepts any size. PostgreSQL frees the memory with its
    // counterpart, `guc_free` or `free`.
    unsafe {
        malloc(
            #[cfg(pg_ge_16)]
            (pg_sys::LOG as i32),
            size,
        )
    }
}

/// The event of a process that waits until another one has read a block for it.
#[cfg(pg_ge_18)]
pub const WAIT_FOR_IO_WORKER: Option<u32> = Some(pg_sys::WaitEventIO::WAIT_EVENT_AIO_IO_COMPLETION);
#[cfg(not(pg_ge_18))]
pub const WAIT_FOR_IO_WORKER: Option<u32> = None;

/// Returns a statement's queryid.
#[cfg(pg_ge_18)]
pub fn query_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.queryId
}
#[cfg(not(pg_ge_18))]
pub fn query_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.queryId as i64
}

/// Returns the queryid of a query that is not planned yet.
#[cfg(pg_ge_18)]
pub fn parsed_query_id(query: &pg_sys::Query) -> i64 {
    query.queryId
}
#[cfg(not(pg_ge_18))]
pub fn parsed_query_id(query: &pg_sys::Query) -> i64 {
    query.queryId as i64
}

/// Sets the queryid of a query that is not planned yet to 0.
pub fn clear_query_id(query: &mut pg_sys::Query) {
    query.queryId = 0;
}

/// The number of PostgreSQL's cache of functions.
#[cfg(pg_ge_19)]
pub const FUNCTION_CACHE: i32 = pg_sys::SysCacheIdentifier::PROCOID;
#[cfg(not(pg_ge_19))]
pub const FUNCTION_CACHE: i32 = pg_sys::SysCacheIdentifier::PROCOID as i32;

/// The number of PostgreSQL's cache of indexes.
#[cfg(pg_ge_19)]
pub const INDEX_CACHE: i32 = pg_sys::SysCacheIdentifier::INDEXRELID;
#[cfg(not(pg_ge_19))]
pub const INDEX_CACHE: i32 = pg_sys::SysCacheIdentifier::INDEXRELID as i32;

/// Whether a statement's queryid depends on the OIDs of its tables. From 18 on, it depends on their names.
pub const QUERY_IDS_CONTAIN_OIDS: bool = cfg!(not(pg_ge_18));

/// Returns the planid that core or another extension set; 0 if none did.
#[cfg(pg_ge_18)]
pub fn plan_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.planId
}
#[cfg(not(pg_ge_18))]
pub fn plan_id(_statement: &pg_sys::PlannedStmt) -> i64 {
    0
}

/// Returns a column of a relation, from 0 on.
pub fn column(relation: RelationRef<'_>, at: usize) -> Option<&pg_sys::FormData_pg_attribute> {
    // SAFETY: the relation is open, so it has its row type, which has this column. From 18 on, the columns
    // lie behind an array with as many short forms of them, by PostgreSQL's definition of the type.
    (at < relation.columns()).then(|| unsafe {
        let row_type = relation.rd_att;
        #[cfg(pg_ge_18)]
        let first = (*row_type).compact_attrs.as_ptr().add(relation.columns());
        #[cfg(not(pg_ge_18))]
        let first = (*row_type).attrs.as_ptr();
        &*first.cast::<pg_sys::FormData_pg_attribute>().add(at)
    })
}

/// Returns whether all rows of a table have a value in a column. From 18 on, a column that is NOT NULL may
/// have nulls in old rows: until its constraint is validated.
#[cfg(pg_ge_18)]
pub fn has_no_nulls(relation: RelationRef, at: usize) -> bool {
    // SAFETY: the relation is open, so it has its row type, which has this column.
    at < relation.columns()
        && unsafe { (*(*relation.rd_att).compact_attrs.as_ptr().add(at)).attnullability } as u8
            == pg_sys::ATTNULLABLE_VALID
}
/// Returns whether all rows of a table have a value in a column.
#[cfg(not(pg_ge_18))]
pub fn has_no_nulls(relation: RelationRef, at: usize) -> bool {
    column(relation, at).is_some_and(|column| column.attnotnull)
}

/// Returns whether the setting `timing_clock_source` chooses the system's clock.
#[cfg(pg_ge_19)]
pub fn system_clock_wanted() -> bool {
    globals::GLOBALS.timing_clock_source.get()
        == pg_sys::TimingClockSourceType::TIMING_CLOCK_SOURCE_SYSTEM as i32
}
#[cfg(not(pg_ge_19))]
pub fn system_clock_wanted() -> bool {
    false
}
