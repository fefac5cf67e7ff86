//! The counters of buffers and WAL that PostgreSQL keeps for the process. All code of the extension finds
//! them here.
//!
//! Their fields are read here, in `instrumentation`, in `hot::usage`, which compares them in place at each
//! call of a node, and in the fallback for temporary files.

use pgrx::pg_sys;

/// The size of the smallest page of any system.
pub const MIN_PAGE: usize = 4096;

/// Returns the size of the system's pages: 4 kB, or on some processors 16 or 64 kB.
pub fn page() -> usize {
    // SAFETY: the function has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
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
