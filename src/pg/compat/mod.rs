//! Handles every difference between PostgreSQL's major versions, in functions with one signature for all versions.
//!
//! * `counters` finds the process's counters of buffers and WAL;
//! * `instrumentation` reads and writes core's counters and times of a node;
//! * `shared_memory` creates areas, tables and locks that all sessions share;
//! * `temp_tables` returns how temporary tables are read, and which process owns them;
//! * `executor_run`, `planner`, `explain_option` and `expression` wrap functions that have another name or signature in some
//!   major.
//!
//! The build script sets `pg_ge_NN` where the major is at least NN. The newest branch comes first and names the first major
//! that needs it; the older one is `not(pg_ge_NN)`. So a new major uses the newest branch everywhere.

mod counters;
pub mod executor_run;
pub mod explain_option;
pub mod expression;
mod instrumentation;
pub mod planner;
mod shared_memory;
mod temp_tables;

pub use counters::{buffer_usage, wal_usage};
pub use instrumentation::{
    NodeInstrumentation, abort_io, add_io_time, buffers, common_instrumentation, core_interrupted_ns,
    core_interrupted_usage, core_startup_ns, core_total_ns, set_buffers, set_core_totals, set_wal, temp_ns,
    wal,
};
pub use shared_memory::{
    HAS_REGISTRY, dsa_create, dshash_find_or_insert, dshash_parameters, named_dsm_segment, new_tranche,
    register_tranche,
};
pub use temp_tables::{pid_of_temp_tables, temp_tables_bypass_syscalls};

use pgrx::pg_sys;

/// The major version for which this library is built.
pub const MAJOR_VERSION: u32 = pg_sys::PG_MAJORVERSION_NUM;

/// Allocates memory for a setting's extra data, which PostgreSQL frees. Returns null if there is no memory.
pub fn guc_malloc(size: usize) -> *mut std::ffi::c_void {
    // SAFETY: at LOG the function raises no error. PostgreSQL frees the memory with `guc_free`, its counterpart.
    #[cfg(pg_ge_16)]
    unsafe {
        pg_sys::guc_malloc(pg_sys::LOG as i32, size)
    }
    // SAFETY: `malloc` accepts any size. PostgreSQL frees the memory with `free`, its counterpart.
    #[cfg(not(pg_ge_16))]
    unsafe {
        libc::malloc(size)
    }
}

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

/// Returns the planid that core or another extension set; 0 if none did.
#[cfg(pg_ge_18)]
pub fn plan_id(statement: &pg_sys::PlannedStmt) -> i64 {
    statement.planId
}
#[cfg(not(pg_ge_18))]
pub fn plan_id(_statement: &pg_sys::PlannedStmt) -> i64 {
    0
}

/// Returns whether the setting `timing_clock_source` chooses the system's clock.
#[cfg(pg_ge_19)]
pub fn system_clock_wanted() -> bool {
    // SAFETY: this is the variable of a setting, a global of a plain type, which only this thread writes.
    let chosen = unsafe { pg_sys::timing_clock_source };
    chosen == pg_sys::TimingClockSourceType::TIMING_CLOCK_SOURCE_SYSTEM as i32
}
#[cfg(not(pg_ge_19))]
pub fn system_clock_wanted() -> bool {
    false
}

/// A number that makes `RegisterTimeout` use any free timeout of extensions.
///
/// For every number from timeout.h's `USER_TIMEOUT` on, it takes the first free one. `USER_TIMEOUT` itself is 12 or 13 so
/// far, and the last number is ten more. So this number is valid in every major.
pub const USER_TIMEOUT: i32 = 20;
