//! Tells how large a table is, and what a change of a table would run.

use crate::pg::border::guarded;
use crate::pg::compat;
use crate::pg::handles::{Handle, RelationRef};
use pgrx::pg_sys;

/// The size of a table whose rows lie in blocks.
#[derive(Clone, Copy)]
pub struct HeapSize {
    /// The number of its file.
    pub file: u32,
    pub blocks: u32,
    /// The most rows that a block can have.
    pub max_rows_per_block: u32,
    /// How many rows a block had when the table was analysed; `None` if it never was.
    pub rows_per_block: Option<f64>,
}

/// The bytes of a row in its block, besides its data: the header without a bitmap of nulls, and the pointer
/// to the row.
const HEADER: u32 = 24;
const POINTER: u32 = 4;
/// The bytes of a block's own header.
const BLOCK_HEADER: u32 = 24;

/// Returns the size of a table of this database. Returns `None` if there is no such table, if its rows do not
/// lie in blocks, or if somebody waits to change it: this never waits.
///
/// # Errors
/// Raises PostgreSQL's errors. Only SQL functions may call this.
pub fn heap_size(oid: u32) -> Option<HeapSize> {
    let (oid, lock) = (pg_sys::Oid::from(oid), pg_sys::AccessShareLock as i32);
    // SAFETY: SQL functions may lock and open relations. The relation is open and locked while it is read.
    unsafe {
        if !pg_sys::ConditionalLockRelationOid(oid, lock) {
            return None;
        }
        let relation = pg_sys::try_relation_open(oid, pg_sys::NoLock as i32);
        if relation.is_null() {
            pg_sys::UnlockRelationOid(oid, lock);
            return None;
        }
        let class = (*relation).rd_rel;
        let size = ((*class).relam == pg_sys::HEAP_TABLE_AM_OID).then(|| {
            let (rows, blocks) = (f64::from((*class).reltuples), (*class).relpages);
            HeapSize {
                file: (*class).relfilenode.to_u32(),
                blocks: pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM),
                max_rows_per_block: ((pg_sys::BLCKSZ - BLOCK_HEADER) / least_row_size(Handle::new(relation)))
                    .max(1),
                rows_per_block: (blocks > 0 && rows >= 0.0).then(|| rows / f64::from(blocks)),
            }
        });
        pg_sys::relation_close(relation, lock);
        size
    }
}

/// Locks a table of an extension as a statement does that writes to it, so that nobody makes a trigger for it
/// or a foreign key to it until the transaction ends. Returns the one that somebody has made before, if there
/// is one. Who has the privilege TRIGGER or REFERENCES can do that; then what he made would run with the
/// rights of who writes.
///
/// # Errors
/// Raises PostgreSQL's errors. Only SQL functions may call this.
pub fn lock_for_writing(oid: u32) -> Option<String> {
    let oid = pg_sys::Oid::from(oid);
    // SAFETY: SQL functions may lock and open relations. The relation is open and locked while it is read, so
    // its triggers are live, and their number is right.
    unsafe {
        let relation = pg_sys::table_open(oid, pg_sys::RowExclusiveLock as i32);
        let triggers = (*relation).trigdesc;
        let triggers = (!triggers.is_null()).then(|| Handle::new(triggers).triggers());
        let extension = pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, oid);
        let foreign = triggers.unwrap_or_default().iter().find_map(|trigger| {
            let (catalog, object) = match trigger.tgisinternal {
                // It belongs to a foreign key, to or from this table.
                true if pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, trigger.tgconstrrelid)
                    == extension =>
                {
                    return None;
                }
                true => (pg_sys::ConstraintRelationId, trigger.tgconstraint),
                false => (pg_sys::TriggerRelationId, trigger.tgoid),
            };
            super::access::owned(pg_sys::getObjectDescription(
                &guarded::object(catalog, object),
                false,
            ))
        });
        pg_sys::table_close(relation, pg_sys::NoLock as i32);
        foreign
    }
}

/// Returns the bytes that a row of a table takes in its block at least.
fn least_row_size(relation: RelationRef) -> u32 {
    /// pg_attribute's mark of a generated column that is not stored.
    const VIRTUAL: u8 = b'v';
    let data: u32 = (0..relation.columns())
        .filter(|at| compat::has_no_nulls(relation, *at))
        .filter_map(|at| compat::column(relation, at))
        // A column that was added with a default takes no bytes in the rows before that.
        .filter(|column| !column.atthasmissing && !column.attisdropped)
        .filter(|column| column.attgenerated as u8 != VIRTUAL)
        .map(|column| u32::try_from(column.attlen).unwrap_or(1))
        .sum();
    (HEADER + data).next_multiple_of(pg_sys::MAXIMUM_ALIGNOF) + POINTER
}

/// Returns whether a relation is temporary. May raise.
pub fn is_temporary_relation(oid: pg_sys::Oid) -> bool {
    guarded::get_rel_persistence(oid) as u8 == pg_sys::RELPERSISTENCE_TEMP
}
