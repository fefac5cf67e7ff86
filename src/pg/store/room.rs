//! How much shared memory the store may take: what the setting says, but not more than a part of what there is.

use crate::guc;
use pgrx::pg_sys;
use std::ffi::CStr;

/// Where the C library keeps POSIX shared memory. Containers often have 64 MB there, which parallel queries need.
const FOLDER: &CStr = c"/dev/shm";
/// The store and its sessions together take one part in this many of it.
const PART: u64 = 4;
/// The sessions' buffers can take up to one part in this many of `pg_rowsource.max_memory`, in addition to it. Sessions
/// without a buffer add each execution to the store at once.
pub(super) const PENDING_PART: usize = 4;
/// So can the statements that run. Further statements are measured in private memory.
pub(super) const LIVE_PART: usize = 4;

/// Returns the limit of the plans in bytes, as of now: the folder may get another size while the server runs.
pub(super) fn limit() -> usize {
    let setting = guc::max_memory();
    folder_bytes().map_or(setting, |bytes| setting.min(of_plans(bytes / PART)))
}

/// Returns whether the limit is less than the setting says.
pub(super) fn is_narrow() -> bool {
    limit() < guc::max_memory()
}

/// Returns what is left for plans of so many bytes for all: the sessions' buffers and statements have limits that are parts of theirs.
fn of_plans(bytes: u64) -> usize {
    let (pending, live) = (PENDING_PART as u64, LIVE_PART as u64);
    (bytes / (pending * live + pending + live) * pending * live) as usize
}

/// Returns the size of the file system that has dynamic shared memory. Returns `None` if that is elsewhere, or not limited in this way.
fn folder_bytes() -> Option<u64> {
    // SAFETY: these are globals of plain types, which PostgreSQL sets only at server start. `statvfs` is plain data, for which zero is
    // valid, and the function writes to it only.
    unsafe {
        if pg_sys::dynamic_shared_memory_type != pg_sys::DSM_IMPL_POSIX as i32
            || pg_sys::min_dynamic_shared_memory > 0
        {
            return None;
        }
        let mut found: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(FOLDER.as_ptr(), &mut found) == 0 && found.f_blocks > 0;
        is_known.then(|| found.f_blocks.saturating_mul(found.f_frsize))
    }
}
