//! The description in a plan's entry.

use super::chains;
use crate::pg::store::access::Store;
use rowsource_core::model::{LazyDescription, PlanKey};

/// Returns a copy of a plan's description. Returns `None` if the plan has no entry, or there is no memory.
///
/// # Safety
/// The caller must be outside of any FFI boundary, and hold no lock. Raises nothing.
pub(in crate::pg::store) unsafe fn read(store: &Store, key: &PlanKey) -> Option<LazyDescription> {
    // SAFETY: the caller's promise is the same.
    let (_, bytes) =
        unsafe { chains::read(store, key, |memory| (memory.description, memory.description_size))? };
    LazyDescription::from_stored(bytes)
}
