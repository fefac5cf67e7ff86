//! Identifies statements on temporary tables by what stays the same when the tables are made again: by the
//! names and columns of the tables, and by the statement's text.
//!
//! Otherwise each CREATE TEMPORARY TABLE would make new plans, because a new table has a new OID, and before
//! PostgreSQL 18 also new queryids.

use crate::pg::compat;
use crate::pg::server::backend_local::BackendLocal;
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
///
/// # Safety
/// `relation` must be null, or point to a live relation.
pub unsafe fn number(relation: *const pg_sys::RelationData) -> Option<i64> {
    // SAFETY: the relation is live by the caller's promise, and so are its row of pg_class and its row type.
    unsafe {
        let relation = relation.as_ref()?;
        let class = &*relation.rd_rel;
        if class.relpersistence as u8 != pg_sys::RELPERSISTENCE_TEMP {
            return None;
        }
        let mut hasher = StableHasher::new();
        hasher.bytes(*b"pg_temp");
        hasher.bytes(name(&class.relname));
        let columns = (*relation.rd_att).natts.max(0) as usize;
        hasher.number(columns as u32);
        for column in 0..columns.min(MAX_COLUMNS) {
            let attribute = &*compat::attribute(relation.rd_att, column);
            // REFRESH CONCURRENTLY makes a column of the row type of another temporary table. Values of row
            // types are aligned to doubles.
            if attribute.attlen == -1 && attribute.attalign == b'd' as std::ffi::c_char {
                hasher.bytes(name(&attribute.attname));
            } else {
                hasher.number(attribute.atttypid.to_u32());
            }
            hasher.number(attribute.atttypmod as u32);
        }
        Some(hasher.finish())
    }
}

/// Returns the bytes of a name.
fn name(name: &pg_sys::NameData) -> impl Iterator<Item = u8> {
    let bytes = name.data.iter().map(|character| *character as u8);
    bytes.take_while(|byte| *byte != 0)
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
///
/// # Safety
/// `estate` must be the live executor state of the statement.
#[cold]
#[inline(never)]
pub unsafe fn query_id<'a>(
    estate: *const pg_sys::EState,
    by_core: i64,
    text: impl FnOnce() -> Option<Cow<'a, [u8]>>,
) -> i64 {
    // SAFETY: the executor state is live by the caller's promise.
    let replace = compat::QUERY_IDS_CONTAIN_OIDS && by_core != 0 && unsafe { uses_temporary_tables(estate) };
    if !replace {
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
///
/// # Safety
/// `estate` must point to a live executor state.
unsafe fn uses_temporary_tables(estate: *const pg_sys::EState) -> bool {
    // SAFETY: the executor state is live by the caller's promise. Its array of relations has this size. It
    // has null for relations that are not open.
    unsafe {
        if (*estate).es_relations.is_null() {
            return false;
        }
        let relations =
            std::slice::from_raw_parts((*estate).es_relations, (*estate).es_range_table_size as usize);
        let is_temporary =
            |class: &pg_sys::FormData_pg_class| class.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
        let open = relations.iter().filter_map(|relation| relation.as_ref());
        open.into_iter().any(|relation| is_temporary(&*relation.rd_rel))
    }
}
