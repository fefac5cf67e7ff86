//! The counters of buffers and WAL that PostgreSQL keeps for the process. All code of the extension finds
//! them here.
//!
//! Their fields are read here, in `instrumentation`, in `hot::usage`, which compares them in place at each
//! call of a node, and in the fallback for temporary files.

use crate::pg::border::{posix, unguarded};
use pgrx::pg_sys;

/// The size of the smallest page of any system.
pub const MIN_PAGE: usize = 4096;

/// Returns the size of the system's pages: 4 kB, or on some processors 16 or 64 kB.
pub fn page() -> usize {
    let page = posix::sysconf(libc::_SC_PAGESIZE);
    usize::try_from(page).map_or(MIN_PAGE, |page| page.max(MIN_PAGE))
}

/// Returns the address of the process's counters of blocks and of I/O times. Only the process's one thread
/// may use them.
#[inline(always)]
pub const fn buffer_usage() -> *mut pg_sys::BufferUsage {
    &raw mut pg_sys::pgBufferUsage
}

/// Returns the address of the process's counters of WAL. Only the process's one thread may use them.
#[inline(always)]
pub const fn wal_usage() -> *const pg_sys::WalUsage {
    &raw const pg_sys::pgWalUsage
}

/// Returns the process's counters of blocks and of I/O times as they are now.
#[inline(always)]
pub fn buffers_now() -> pg_sys::BufferUsage {
    // SAFETY: the counters stay as long as the process lives, and only this thread writes them.
    unsafe { buffer_usage().read() }
}

/// Returns the process's counters of WAL as they are now.
#[inline(always)]
pub fn wal_now() -> pg_sys::WalUsage {
    // SAFETY: as above.
    unsafe { wal_usage().read() }
}

/// Adds to `sums` what the process has used since its counters had the values `before`.
pub fn add_buffers_since(sums: &mut pg_sys::BufferUsage, before: &pg_sys::BufferUsage) {
    // SAFETY: the function reads two live structs, and adds to a third one. It raises nothing.
    unsafe { unguarded::BufferUsageAccumDiff(sums, buffer_usage(), before) };
}

/// Does the same for WAL.
pub fn add_wal_since(sums: &mut pg_sys::WalUsage, before: &pg_sys::WalUsage) {
    // SAFETY: as above.
    unsafe { unguarded::WalUsageAccumDiff(sums, wal_usage(), before) };
}

/// Returns the address of the first page with these counters, and the bytes of all pages that have them: 0 if
/// these are many. They are the same in all processes of a server.
pub fn pages_of_counters() -> (usize, usize) {
    const MAX_PAGES: usize = 3;
    let page = page();
    let [buffers, wal] = [buffer_usage().addr(), wal_usage().addr()];
    let first = buffers.min(wal) / page * page;
    let end = (buffers + size_of::<pg_sys::BufferUsage>()).max(wal + size_of::<pg_sys::WalUsage>());
    let bytes = end.next_multiple_of(page) - first;
    (first, if bytes <= MAX_PAGES * page { bytes } else { 0 })
}
