//! The sources of the counters of temporary files.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use rowsource_core::tempfile::FileType;
use std::cell::Cell;

/// The source of the counters of a file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Source {
    /// Each request is counted when it is made.
    Request,
    /// Core's counters of blocks, and its times if `track_io_timing` is on.
    Counter,
}

impl Source {
    /// Returns the word for it in the views.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Request => "request",
            Source::Counter => "counter",
        }
    }
}

/// Whether requests are intercepted. The postmaster sets this once, and its children inherit it.
static INTERPOSED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Notes that the requests of this process and its children are intercepted.
pub fn note_interposed() {
    INTERPOSED.set(true);
}

/// Returns whether requests of this process are counted. A session that loads the library by itself shows
/// core's counters, although its functions are replaced.
#[inline(always)]
pub fn are_requests_counted() -> bool {
    INTERPOSED.get()
}

/// Returns the source of the counters of a file type.
pub fn source(filetype: FileType) -> Source {
    let is_bypassed = filetype == FileType::TempTable && compat::temp_tables_bypass_syscalls();
    if INTERPOSED.get() && !is_bypassed {
        Source::Request
    } else {
        Source::Counter
    }
}
