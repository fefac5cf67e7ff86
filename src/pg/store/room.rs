//! How much shared memory the store may take: what the setting says, but not more than a part of what there
//! is.

use crate::guc;
use crate::pg::border::globals::GLOBALS;
use crate::pg::compat::{self, MIN_PAGE};
use pgrx::pg_sys;
use std::ffi::CStr;

/// Where the C library keeps POSIX shared memory. Containers often have 64 MB there, which parallel queries
/// need.
const FOLDER: &CStr = c"/dev/shm";
/// The store and its sessions together take one part in this many of it.
const PART: u64 = 4;
/// The sessions' buffers can take up to one part in this many of `pg_rowsource.max_memory`, in addition to
/// it. Sessions without a buffer add each execution to the store at once.
pub(super) const PENDING_PART: usize = 4;
/// So can the statements that run, beyond the first part of each session. Further statements are measured in
/// private memory.
pub(super) const LIVE_PART: usize = 4;
/// The first parts are reserved before anything else, so that each session can show what it runs. They take
/// at most this part of what the store and its sessions may take together: three quarters.
const RESERVED_PART: (u64, u64) = (3, 4);

/// Returns the limit of the plans in bytes, as of now: the folder may get another size while the server runs.
pub(super) fn limit() -> usize {
    let (setting, folder) = (guc::max_memory(), folder_part());
    folder.map_or(setting, |bytes| {
        let reserved = (parts_within(folder) * first_part()) as u64;
        setting.min(of_plans(bytes.saturating_sub(reserved)))
    })
}

/// Returns the size of the first part of a session's memory: pages for its hot state and PostgreSQL's
/// counters, 8 kB for a small statement, and 4 kB for what is shown of statements in private memory.
/// PostgreSQL places it at a multiple of 4 kB, which is not always a page.
pub(super) fn first_part() -> usize {
    let page = compat::page();
    page + compat::pages_of_counters().1 + 3 * MIN_PAGE + (page - MIN_PAGE)
}

/// Returns for how many sessions the first part is reserved: for all that the server may have, if there is
/// room.
pub(super) fn reserved_parts() -> usize {
    parts_within(folder_part())
}

/// Returns how many sessions and other processes the server may have.
pub(super) fn wanted_parts() -> usize {
    usize::try_from(GLOBALS.MaxBackends.get()).unwrap_or(0)
}

/// Returns that number if the store and its sessions may take that much together.
fn parts_within(bytes: Option<u64>) -> usize {
    /// PostgreSQL's allocator gives no piece of more than 1 GB.
    const MAX: u64 = 512 << 20;
    let room = bytes.map_or(MAX, |bytes| bytes / RESERVED_PART.1 * RESERVED_PART.0);
    wanted_parts().min(room.min(MAX) as usize / first_part())
}

/// Returns how many bytes the area of the sessions' buffers and statements may take if plans may take so
/// many: with the pages in which PostgreSQL keeps account of the first parts.
pub(super) fn of_sessions(limit: usize) -> usize {
    let reserved = reserved_parts() * first_part();
    limit / PENDING_PART + limit / LIVE_PART + reserved + reserved / 256 + 16 * MIN_PAGE
}

/// Returns what is left for plans of so many bytes for all: the sessions' buffers and statements have limits
/// that are parts of theirs.
fn of_plans(bytes: u64) -> usize {
    let (pending, live) = (PENDING_PART as u64, LIVE_PART as u64);
    (bytes / (pending * live + pending + live) * pending * live) as usize
}

/// Returns how much the store and its sessions may take together. Returns `None` if the folder does not limit
/// that.
fn folder_part() -> Option<u64> {
    folder_bytes().map(|bytes| bytes / PART)
}

/// Returns the size of the file system that has dynamic shared memory. Returns `None` if that is elsewhere,
/// or not limited in this way.
fn folder_bytes() -> Option<u64> {
    // SAFETY: `statvfs` is plain data, for which zero is valid, and the function writes to it only.
    unsafe {
        if GLOBALS.dynamic_shared_memory_type.get() != pg_sys::DSM_IMPL_POSIX as i32
            || GLOBALS.min_dynamic_shared_memory.get() > 0
        {
            return None;
        }
        let mut found: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(FOLDER.as_ptr(), &mut found) == 0 && found.f_blocks > 0;
        is_known.then(|| found.f_blocks.saturating_mul(found.f_frsize))
    }
}
