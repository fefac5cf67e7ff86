//! What the parser knows of a statement's constants: from 18 on, it knows lists and parameters too.

use crate::pg::handles::Handle;
use pgrx::pg_sys;
use rowsource_core::normalise::Found;

/// Whether the parser's jumble of a CALL has the places of the constants among its arguments. 16 jumbles CALL
/// without them.
pub const KNOWS_CONSTANTS_OF_CALL: bool = cfg!(pg_ge_17);

/// Returns the constants that the parser found in the part of a text that begins at `base` and has `length`
/// bytes, in ascending order, and the highest number of a parameter. Returns `None` if there is no memory.
pub fn constants(
    jumble: Handle<pg_sys::JumbleState>,
    base: usize,
    length: usize,
) -> Option<(Vec<Found>, u32)> {
    let mut found: Vec<Found> = Vec::new();
    for at in 0..usize::try_from(jumble.clocations_count).unwrap_or(0) {
        // SAFETY: a jumble has as many constants as it says.
        let constant = unsafe { &*jumble.clocations.add(at) };
        let start = usize::try_from(constant.location)
            .ok()
            .and_then(|at| at.checked_sub(base));
        let Some(start) = start.filter(|&start| start < length && is_replaced(&jumble, constant)) else {
            continue;
        };
        found.try_reserve(1).ok()?;
        found.push(Found {
            start,
            list: list_length(constant),
        });
    }
    found.sort_unstable();
    found.dedup_by_key(|constant| constant.start);
    Some((found, u32::try_from(jumble.highest_extern_param_id).unwrap_or(0)))
}

/// Returns whether pg_stat_statements replaces what was found: a parameter gets another number only if there
/// are lists.
#[cfg(pg_ge_18)]
fn is_replaced(jumble: &pg_sys::JumbleState, constant: &pg_sys::LocationLen) -> bool {
    !constant.extern_param || jumble.has_squashed_lists
}
#[cfg(not(pg_ge_18))]
fn is_replaced(_jumble: &pg_sys::JumbleState, _constant: &pg_sys::LocationLen) -> bool {
    true
}

/// Returns the length of a list of constants.
#[cfg(pg_ge_18)]
fn list_length(constant: &pg_sys::LocationLen) -> Option<usize> {
    let length = usize::try_from(constant.length).unwrap_or(0);
    constant.squashed.then_some(length)
}
#[cfg(not(pg_ge_18))]
fn list_length(_constant: &pg_sys::LocationLen) -> Option<usize> {
    None
}

/// Computes the queryid of a query as the parser does. The query gets it. May raise.
pub fn jumble(query: &mut pg_sys::Query) -> *mut pg_sys::JumbleState {
    // SAFETY: the query is live. The text is read for utility statements only.
    unsafe {
        pg_sys::JumbleQuery(
            query,
            #[cfg(not(pg_ge_16))]
            c"".as_ptr(),
        )
    }
}

/// The type of the jumble that the parser's hook gets.
#[cfg(pg_ge_19)]
pub type ParsedJumble = *const pg_sys::JumbleState;
#[cfg(not(pg_ge_19))]
pub type ParsedJumble = *mut pg_sys::JumbleState;

/// Returns whether a backslash escapes in plain strings.
#[cfg(pg_ge_19)]
pub fn backslashes_escape() -> bool {
    false
}
#[cfg(not(pg_ge_19))]
pub fn backslashes_escape() -> bool {
    !super::globals::GLOBALS.standard_conforming_strings.get()
}
