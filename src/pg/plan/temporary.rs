//! Identifies statements on temporary tables by what stays the same when the tables are made again: by the
//! names and columns of the tables, and by the statement's text.
//!
//! Otherwise each CREATE TEMPORARY TABLE would make new plans, because a new table has a new OID, and before
//! PostgreSQL 18 also new queryids.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::handles::{Handle, RelationRef, name};
use pgrx::pg_sys;
use rowsource_core::normalise::{Text, fingerprint};
use rowsource_core::stable_hash::StableHasher;
use std::borrow::Cow;
use std::cell::Cell;

/// More columns than these are only counted, so that the work is bounded.
const MAX_COLUMNS: usize = 32;

/// Returns whether this session has, or had, temporary tables.
#[inline(always)]
pub fn session_has_tables() -> bool {
    // SAFETY: the pointer is null, or points to the process's entry in shared memory, which stays until the
    // process ends.
    unsafe { pg_sys::MyProc.as_ref() }.is_some_and(|process| process.tempNamespaceId != pg_sys::InvalidOid)
}

/// Returns a number for the name and the columns of a temporary relation or index. Returns `None` for others.
pub fn number(relation: RelationRef) -> Option<i64> {
    if !relation.is_temporary() {
        return None;
    }
    let mut hasher = StableHasher::new();
    hasher.bytes(*b"pg_temp");
    hasher.bytes(relation.name().to_bytes().iter().copied());
    hasher.number(relation.columns() as u32);
    for column in (0..relation.columns().min(MAX_COLUMNS)).filter_map(|at| compat::column(relation, at)) {
        // REFRESH CONCURRENTLY makes a column of the row type of another temporary table. Values of row types
        // are aligned to doubles.
        if column.attlen == -1 && column.attalign == b'd' as std::ffi::c_char {
            hasher.bytes(name(&column.attname).to_bytes().iter().copied());
        } else {
            hasher.number(column.atttypid.to_u32());
        }
        hasher.number(column.atttypmod as u32);
    }
    Some(hasher.finish())
}

/// PostgreSQL's queryid of a statement on temporary tables, and the one that replaces it.
#[derive(Clone, Copy)]
struct Replaced {
    by_core: i64,
    ours: i64,
}

/// The number of queryids that a session remembers, so that it reads the text of a statement once.
const REMEMBERED: usize = 64;

static REPLACED: BackendLocal<[Cell<Replaced>; REMEMBERED]> =
    BackendLocal::new([const { Cell::new(Replaced { by_core: 0, ours: 0 }) }; REMEMBERED]);

/// Returns the queryid of a statement, in a session that has temporary tables. For a statement on such
/// tables, it is made from the statement's text, if there is one, unless PostgreSQL's own queryid `by_core`
/// does not depend on the tables' OIDs.
#[cold]
#[inline(never)]
pub fn query_id<'a>(
    estate: Handle<pg_sys::EState>,
    by_core: i64,
    text: impl FnOnce() -> Option<Cow<'a, [u8]>>,
) -> i64 {
    if !compat::QUERY_IDS_CONTAIN_OIDS || by_core == 0 || !uses_temporary_tables(estate) {
        return by_core;
    }
    let place = &REPLACED.inner()[by_core as usize % REMEMBERED];
    if place.get().by_core != by_core {
        let Some(bytes) = text() else { return by_core };
        let text = Text {
            bytes: &bytes,
            backslashes: compat::jumble::backslashes_escape(),
        };
        place.set(Replaced {
            by_core,
            ours: fingerprint(text),
        });
    }
    place.get().ours
}

/// Returns whether a statement has opened a temporary table.
fn uses_temporary_tables(estate: Handle<pg_sys::EState>) -> bool {
    let mut open = estate.relations().iter().flatten();
    open.any(|relation| relation.is_temporary())
}
