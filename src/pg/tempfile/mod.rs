//! Measures requests to temporary files: their kind, number, size and time.
//!
//! PostgreSQL calls `pread` and similar functions through its import table. `got` finds those entries of the main program,
//! and `interpose` replaces them with its own functions. The postmaster does this once, and its children inherit it. These
//! functions add to `counters`, which are in shared memory. If an entry is not as expected, nothing is replaced. Then
//! `fallback` fills the same counters from core's own. These count blocks, and have no longest request and no histogram.
//!
//! A session that loads the library later replaces nothing, and shows core's counters. Otherwise it would write to the
//! table of a running process, only to count the requests of that one session.

pub mod counters;
pub mod fallback;
pub mod file;
#[cfg(target_os = "linux")]
mod got;
#[cfg(target_os = "linux")]
pub mod interpose;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
pub mod interpose;
pub mod source;

use crate::pg::server;

/// Starts to count. Only `_PG_init` may call this, once.
pub fn init() {
    if server::preloading() {
        match interpose::install() {
            Ok(()) => source::note_interposed(),
            Err(reason) => pgrx::log!(
                "pg_rowsource does not time requests to temporary files: {reason}; pg_stat_tempfile_io shows core's counters"
            ),
        }
    }
    fallback::init();
}

/// Sets up the counters, and adds those that the last run of the server saved. Only the hook that sets up shared memory may
/// call this.
pub fn set_up() {
    if counters::set_up() {
        file::load();
    }
}
