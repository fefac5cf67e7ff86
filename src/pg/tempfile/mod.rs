//! Requests to temporary files: their kind, how many there are, how large they are and how long each one takes.
//!
//! PostgreSQL calls `pread` and similar functions through its import table. `got` finds those entries of the main program,
//! and `interpose` replaces them with its own functions. The postmaster does this once, and its children inherit it.
//! These functions add to `counters`, which lie in shared memory. If an entry is not as expected, nothing is replaced.
//! Then `fallback` fills the same counters from core's own: they count blocks, and have no longest request and no
//! histogram.
//!
//! A session that loads the library later replaces nothing. It would write to the table of a running process, and gain
//! only figures of that one session, which core's counters contain too. It shows core's counters.

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

/// Starts to count. To be called once, from `_PG_init`.
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

/// Sets up the counters, from the hook in which shared memory is set up. Adds what the last run of the server saved.
pub fn set_up() {
    if counters::set_up() {
        file::load();
    }
}
