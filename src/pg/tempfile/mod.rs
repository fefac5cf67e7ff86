//! Requests to temporary files: which they are, how many, how large, how long - each by itself.
//!
//! PostgreSQL calls `pread` and its like through its import table. [`slots`] finds those entries of the main program
//! and puts the functions of [`calls`] there: once, in the postmaster, whose children inherit them. [`counters`] are
//! what those functions add to, in shared memory. Where the entries are not as expected nothing is touched, and
//! [`fallback`] fills the same counters from core's own instead: blocks, without a longest request or a histogram.
//!
//! A session that loads the library later does not intercept: a running process's table would be written to for figures
//! of that session alone, which core's counters give as well. Those are what it shows.

#[cfg(target_os = "linux")]
pub mod calls;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
pub mod calls;
pub mod counters;
pub mod fallback;
pub mod file;
#[cfg(target_os = "linux")]
mod slots;

use super::backend_local::BackendLocal;
use super::{compat, server};
use rowsource_core::tempfile::FileType;
use std::cell::Cell;

/// Where the counters of a file type come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Source {
    /// Each request, as it was made.
    Request,
    /// Core's counters of blocks, and its times where `track_io_timing` is on.
    Counter,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Request => "request",
            Source::Counter => "counter",
        }
    }
}

/// Set once, in the postmaster, and inherited.
static INTERCEPTED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

pub fn source(filetype: FileType) -> Source {
    let passes_by = filetype == FileType::TempTable && compat::temp_tables_pass_by();
    if INTERCEPTED.get() && !passes_by {
        Source::Request
    } else {
        Source::Counter
    }
}

/// Called once from `_PG_init`.
pub fn init() {
    if server::preloading() {
        match calls::install() {
            Ok(()) => INTERCEPTED.set(true),
            Err(reason) => pgrx::log!(
                "pg_rowsource does not time requests to temporary files: {reason}; pg_stat_tempfile_io shows core's counters"
            ),
        }
    }
    fallback::init();
}
