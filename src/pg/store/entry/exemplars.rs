//! The executions that are kept whole, in a plan's entry. All of a plan are one chain of bytes, which is
//! replaced as a whole.

use super::{Entry, chains};
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::store::access::Store;
use crate::pg::store::blocks::{self, NoMemory};
use pgrx::pg_sys;
use rowsource_core::model::{Exemplars, PlanKey};

/// The executions that an entry has, and the chain in which they lie.
pub(in crate::pg::store) struct Current {
    pub exemplars: Exemplars,
    chain: pg_sys::dsa_pointer,
}

/// Returns the milliseconds that an execution must exceed to be kept as the slowest one. Returns `None` if
/// the plan has no entry.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises nothing.
pub(in crate::pg::store) unsafe fn slowest_ms(store: &Store, key: &PlanKey) -> Option<f64> {
    let key: *const PlanKey = key;
    // SAFETY: the partition lock keeps the entry until it is released, and nobody changes the time while it
    // is held. `contained` catches errors.
    let found = unsafe {
        contained(Unlocked::promised(), || {
            let entry: *mut Entry = pg_sys::dshash_find(store.table, key.cast(), false).cast();
            if entry.is_null() {
                return None;
            }
            let ms = (*entry).memory.slowest_ms;
            pg_sys::dshash_release_lock(store.table, entry.cast());
            Some(ms)
        })
    };
    found.ok().flatten()
}

/// Returns a copy of a plan's executions. Returns `None` if the plan has no entry, or there is no memory.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises nothing.
pub(in crate::pg::store) unsafe fn read(store: &Store, key: &PlanKey) -> Option<Current> {
    // SAFETY: the caller's promise is the same.
    let (chain, bytes) =
        unsafe { chains::read(store, key, |memory| (memory.exemplars, memory.exemplars_size))? };
    Some(Current {
        chain,
        exemplars: Exemplars::from_bytes(&bytes).ok()?,
    })
}

/// Replaces a plan's executions, unless another process has replaced them since they were read, or there is
/// no memory. It evicts no plan. Returns whether they were replaced.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises nothing.
pub(in crate::pg::store) unsafe fn replace(store: &Store, key: &PlanKey, new: &Current) -> bool {
    let Ok(bytes) = new.exemplars.to_bytes() else {
        return false;
    };
    let key: *const PlanKey = key;
    // SAFETY: the caller holds no lock and is outside of any boundary. The new chain is unknown to others
    // until the entry has it. With the partition lock held exclusively, nobody uses the entry or its old
    // chain, and nobody finds the old chain afterwards. `contained` catches errors, and then releases the
    // lock.
    unsafe {
        let control = &*store.control;
        control.apply_limit(store.plans, store.pending);
        let made = match blocks::make(store.plans, &bytes) {
            Ok(made) => made,
            Err(NoMemory::Limit) => return false,
            Err(NoMemory::System(message)) => {
                control.note_exhausted(&message);
                return false;
            }
        };
        let mut unused = made;
        let _ = contained(Unlocked::promised(), || {
            let entry: *mut Entry = pg_sys::dshash_find(store.table, key.cast(), true).cast();
            if entry.is_null() {
                return;
            }
            let memory = &mut (*entry).memory;
            if memory.exemplars == new.chain {
                let before = memory.bytes();
                unused = memory.exemplars;
                memory.exemplars = made;
                memory.exemplars_size = bytes.len() as u32;
                memory.slowest_ms = new.exemplars.slowest_ms();
                control.resize(before, memory.bytes());
            }
            pg_sys::dshash_release_lock(store.table, entry.cast());
        });
        blocks::free(store.plans, unused);
        unused != made
    }
}
