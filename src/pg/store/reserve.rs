//! The first parts of the sessions' memory for statements that run. They are reserved before plans get any
//! memory.

use super::control::SharedLive;
use super::room;
use crate::pg::server;
use crate::pg::server::contained::{Unlocked, contained};
use pgrx::pg_sys;
use std::sync::atomic::Ordering::Relaxed;

/// Reserves the first part of each session in a new area of memory. If the system has no room for it,
/// sessions allocate theirs.
///
/// # Safety
/// `area` must be the area of the sessions' buffers, which no other process uses yet.
pub(super) unsafe fn make(shared: &SharedLive, area: *mut pg_sys::dsa_area, unlocked: &mut Unlocked) {
    let (parts, wanted) = (room::reserved_parts(), room::wanted_parts());
    // SAFETY: this process has attached to the area, by the caller's promise.
    let address = contained(unlocked, |_| unsafe { zeroed(area, parts * room::first_part()) });
    let address = address.unwrap_or(0);
    let reserved = if address == 0 { 0 } else { parts };
    if reserved < wanted {
        server::log_alone(&format!(
            "pg_rowsource has room to show what {reserved} sessions run, of {wanted} that the server may have; to show all, enlarge /dev/shm"
        ));
    }
    if address != 0 {
        shared.first_parts.store(address, Relaxed);
        shared.reserved.store(reserved as u64, Relaxed);
    }
}

/// Allocates bytes, which are zero. Returns 0 if there is no memory. May raise.
///
/// # Safety
/// This process must have attached to the area.
pub(super) unsafe fn zeroed(area: *mut pg_sys::dsa_area, bytes: usize) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
    // SAFETY: this process has attached, by the caller's promise. The memory context of the mappings lives as
    // long as it.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let address = pg_sys::dsa_allocate_extended(area, bytes, flags);
        pg_sys::MemoryContextSwitchTo(context);
        address
    }
}
