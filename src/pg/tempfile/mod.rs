//! Measures requests to temporary files: their kind, number, size and time.
//!
//! PostgreSQL calls `pread` and similar functions through its import table, where `pg::interpose` replaces
//! them. The replacing functions call `requests`, which finds the requests to temporary files and adds them
//! to `counters`, in shared memory. If nothing was replaced, `fallback` fills the same counters from core's
//! own. These count blocks, and have no longest request and no histogram.
//!
//! A session that loads the library later shows core's counters, so that its counters and those of all others
//! are the same.

pub mod counters;
pub mod fallback;
pub mod file;
pub mod requests;
pub mod sessions;
pub mod source;

use crate::pg::server::{self, SettingUp};

/// Starts to count. `interposed` tells whether the functions of the C library were replaced. Only `_PG_init`
/// may call this, once.
pub fn init(interposed: &Result<(), String>) {
    if server::preloading() {
        match interposed {
            Ok(()) => source::note_interposed(),
            Err(reason) => pgrx::log!(
                "pg_rowsource does not time requests to temporary files: {reason}; pg_stat_rowsource_tempfile_io shows core's counters"
            ),
        }
    }
    fallback::init();
}

/// Sets up the counters, and adds those that the last run of the server saved.
pub fn set_up(shared: &SettingUp) {
    sessions::set_up(shared);
    if counters::set_up(shared) {
        file::load();
    }
}
