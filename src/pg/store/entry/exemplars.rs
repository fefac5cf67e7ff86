//! The executions that are kept whole, in a plan's entry. All of a plan are one chain of bytes, which is
//! replaced as a whole.

use super::{Entry, Memory, chains};
use crate::pg::server::contained::{self, Unlocked, contained};
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
/// the plan has no entry. Raises nothing.
pub(in crate::pg::store) fn slowest_ms(store: &Store, unlocked: &mut Unlocked, key: &PlanKey) -> Option<f64> {
    let key: *const PlanKey = key;
    // SAFETY: the partition lock keeps the entry until it is released, and nobody changes the time while it
    // is held. `contained` catches errors.
    let found = unsafe {
        contained(unlocked, |_| {
            let entry: *mut Entry = pg_sys::dshash_find(store.table(), key.cast(), false).cast();
            if entry.is_null() {
                return None;
            }
            let ms = (*entry).memory.slowest_ms;
            pg_sys::dshash_release_lock(store.table(), entry.cast());
            Some(ms)
        })
    };
    found.ok().flatten()
}

/// Returns a copy of a plan's executions. Returns `None` if the plan has no entry, or there is no memory.
/// Raises nothing.
pub(in crate::pg::store) fn read(store: &Store, unlocked: &mut Unlocked, key: &PlanKey) -> Option<Current> {
    let of_exemplars = |memory: &Memory| (memory.exemplars, memory.exemplars_size);
    let (chain, bytes) = chains::read(store, unlocked, key, of_exemplars)?;
    Some(Current {
        chain,
        exemplars: Exemplars::from_bytes(&bytes).ok()?,
    })
}

/// Replaces a plan's executions, unless another process has replaced them since they were read, or there is
/// no memory. It evicts no plan. Returns whether they were replaced. Raises nothing.
pub(in crate::pg::store) fn replace(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
    new: &Current,
) -> bool {
    let Ok(bytes) = new.exemplars.to_bytes() else {
        return false;
    };
    let key: *const PlanKey = key;
    let control = store.control();
    store.apply_limit();
    let made = match blocks::make(store, unlocked, &bytes) {
        Ok(made) => made,
        Err(NoMemory::Limit) => return false,
        Err(NoMemory::System(message)) => {
            control.note_exhausted(&message);
            return false;
        }
    };
    let mut unused = made;
    // SAFETY: the new chain is unknown to others until the entry has it. With the partition lock held
    // exclusively, nobody uses the entry or its old chain, and nobody finds the old chain afterwards. After
    // an error, the lock is released.
    unsafe {
        contained::attempt(unlocked, "keep an execution", |_| {
            let entry: *mut Entry = pg_sys::dshash_find(store.table(), key.cast(), true).cast();
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
            pg_sys::dshash_release_lock(store.table(), entry.cast());
        });
        blocks::free(store, unlocked, unused);
        unused != made
    }
}
