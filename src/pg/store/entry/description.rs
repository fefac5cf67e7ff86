//! The description in a plan's entry.

use super::chains;
use crate::pg::server::contained::Unlocked;
use crate::pg::store::access::Store;
use rowsource_core::model::{LazyDescription, PlanKey};

/// Returns a copy of a plan's description. Returns `None` if the plan has no entry, or there is no memory.
/// Raises nothing.
pub(in crate::pg::store) fn read(
    store: &Store,
    unlocked: &mut Unlocked,
    key: &PlanKey,
) -> Option<LazyDescription> {
    let of_description = |memory: &super::Memory| (memory.description, memory.description_size);
    let (_, bytes) = chains::read(store, unlocked, key, of_description)?;
    LazyDescription::from_stored(bytes)
}
