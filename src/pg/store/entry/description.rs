//! The description in a plan's entry.

use super::Entry;
use crate::pg::server::contained::contained;
use crate::pg::store::access::Store;
use crate::pg::store::blocks;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::model::{PlanDescription, PlanKey};

/// Returns a copy of a plan's description. Returns `None` if the plan has no entry, or there is no memory.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises nothing.
pub(in crate::pg::store) unsafe fn read(store: &Store, key: &PlanKey) -> Option<PlanDescription> {
    let key: *const PlanKey = key;
    let mut bytes: Vec<u8> = Vec::new();
    // SAFETY: the partition lock keeps the entry and its chain until it is released. `contained` catches errors, and then
    // releases the lock.
    let is_read = contained(|| unsafe {
        let entry: *mut Entry = pg_sys::dshash_find(store.table, key.cast_mut().cast(), false).cast();
        if entry.is_null() {
            return false;
        }
        let memory = (*entry).memory;
        let has_room = bytes.try_reserve_exact(memory.description_size as usize).is_ok();
        if has_room {
            pg_guard_ffi_boundary(|| {
                blocks::each(store.plans, memory.description, |_, part: &mut [u8]| {
                    bytes.extend_from_slice(part);
                });
            });
        }
        pg_sys::dshash_release_lock(store.table, entry.cast());
        has_room
    });
    if is_read != Ok(true) {
        return None;
    }
    postcard::from_bytes(&bytes).ok()
}
