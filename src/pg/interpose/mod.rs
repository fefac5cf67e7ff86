//! Replaces functions of the C library in every process of the server.
//!
//! PostgreSQL calls the C library through its import table. `got` finds the entries of the main program,
//! `table` writes the addresses of other functions there: those of `functions` for requests to files at an
//! offset, and of `waiting` for all other calls that may wait. The postmaster does this once, and its
//! children inherit it. A session that loads the library by itself does it for itself. If an entry is not as
//! expected, nothing is replaced.
//!
//! A process whose setting `pg_rowsource.enabled` is off has the original functions in its table.
//!
//! This room owns the table. Its functions tell `tempfile` of each request, and `waits` of each wait.

#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod functions;
#[cfg(target_os = "linux")]
mod got;
#[cfg(target_os = "linux")]
mod table;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod table;
#[cfg(target_os = "linux")]
mod waiting;

pub use table::{install, set_enabled};
