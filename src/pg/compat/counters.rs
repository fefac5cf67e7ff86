//! The counters of buffers and WAL that PostgreSQL keeps for the process. All code of the extension finds them here.
//!
//! Their fields are read here, in `instrumentation`, in `hot::usage`, which compares them in place at each call of a node, and
//! in the fallback for temporary files.

use pgrx::pg_sys;

/// Returns the address of the process's counters of blocks and of I/O times. Only the process's one thread may use them.
#[inline(always)]
pub const fn buffer_usage() -> *mut pg_sys::BufferUsage {
    &raw mut pg_sys::pgBufferUsage
}

/// Returns the address of the process's counters of WAL. Only the process's one thread may use them.
#[inline(always)]
pub const fn wal_usage() -> *const pg_sys::WalUsage {
    &raw const pg_sys::pgWalUsage
}
