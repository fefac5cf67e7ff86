//! Copies of the chains of bytes in a plan's entry.

use super::{Entry, Memory};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::store::access::Store;
use crate::pg::store::blocks;
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use rowsource_core::model::PlanKey;

/// Returns the chain that `choose` selects with its size, and a copy of its bytes. Returns `None` if the plan
/// has no entry, or there is no memory. Raises nothing.
pub(super) fn read(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
    choose: impl FnOnce(&Memory) -> (pg_sys::dsa_pointer, u32),
) -> Option<(pg_sys::dsa_pointer, Vec<u8>)> {
    let key: *const PlanKey = key;
    let mut bytes: Vec<u8> = Vec::new();
    // SAFETY: the partition lock keeps the entry and its chain until it is released. `contained` catches
    // errors, and then releases the lock.
    let chain = unsafe {
        contained(unlocked, |_| {
            let entry: *mut Entry = pg_sys::dshash_find(store.table(), key.cast(), false).cast();
            if entry.is_null() {
                return None;
            }
            let (chain, size) = choose(&(*entry).memory);
            let has_room = bytes.try_reserve_exact(size as usize).is_ok();
            if has_room {
                pg_guard_ffi_boundary(|| {
                    blocks::each(store.plans(), chain, |_, part: &mut [u8]| {
                        bytes.extend_from_slice(part)
                    });
                });
            }
            pg_sys::dshash_release_lock(store.table(), entry.cast());
            has_room.then_some(chain)
        })
    };
    Some((chain.ok().flatten()?, bytes))
}
