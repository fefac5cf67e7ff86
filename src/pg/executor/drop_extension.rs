//! DROP EXTENSION pg_rowsource deletes the history, because its tables belong to the extension. A warning says so.

use crate::pg::compat::RELATION_NAME_CACHE;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, NodeTag};
use pgrx::{PgList, PgLogLevel, PgSqlErrorCode};
use std::ffi::CStr;

const EXTENSION: &CStr = c"pg_rowsource";
const SNAPSHOTS: &CStr = c"rowsource_snapshots";
/// More snapshots are not counted: these are those of three months, with one each quarter of an hour.
const MAX_COUNTED: usize = 10_000;

/// Shows the warning if a statement drops the extension of this database, and the history has snapshots.
///
/// # Safety
/// `utility` must point to a live DropStmt. The caller must have an active snapshot.
#[cold]
#[inline(never)]
pub unsafe fn warn(utility: *mut pg_sys::Node) {
    // SAFETY: the statement is live by the caller's promise.
    unsafe {
        let statement = &*utility.cast::<pg_sys::DropStmt>();
        if statement.removeType != pg_sys::ObjectType::OBJECT_EXTENSION || !is_named(statement.objects) {
            return;
        }
        let snapshots = snapshots_table().map_or(0, |table| count(table));
        if snapshots == 0 {
            return;
        }
        let number = match snapshots {
            1 => "1 snapshot".to_owned(),
            MAX_COUNTED => format!("{MAX_COUNTED} snapshots or more"),
            _ => format!("{snapshots} snapshots"),
        };
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            format!("dropping pg_rowsource also deletes its history ({number})"),
            "pg_rowsource",
        )
        .set_hint("To keep it, copy its tables first: rowsource_snapshots, rowsource_snapshot_plans, rowsource_snapshot_descriptions, rowsource_snapshot_tempfile_io, rowsource_snapshot_waits and rowsource_snapshot_ash. For example: CREATE TABLE kept_plans AS TABLE rowsource_snapshot_plans.")
        .report(PgLogLevel::WARNING);
    }
}

/// Returns whether the list of names contains the extension.
///
/// # Safety
/// `names` must be the list of a DropStmt for extensions.
unsafe fn is_named(names: *mut pg_sys::List) -> bool {
    // SAFETY: the parser makes a list of strings for these statements. Each is a node with a tag and a terminated text.
    unsafe {
        PgList::<pg_sys::Node>::from_pg(names).iter_ptr().any(|name| {
            (*name).type_ == NodeTag::T_String
                && CStr::from_ptr((*name.cast::<pg_sys::String>()).sval) == EXTENSION
        })
    }
}

/// Returns the table of snapshots that belongs to the extension, in whatever schema it is.
///
/// # Safety
/// The caller must be in a transaction.
unsafe fn snapshots_table() -> Option<pg_sys::Oid> {
    // SAFETY: the list of the cache has as many members as it says, and is released after its last use. Each is a row of
    // pg_class.
    unsafe {
        let extension = pg_sys::get_extension_oid(EXTENSION.as_ptr(), true);
        if extension == pg_sys::InvalidOid {
            return None;
        }
        let name = pg_sys::Datum::from(SNAPSHOTS.as_ptr());
        let none = pg_sys::Datum::from(0);
        let list = pg_sys::SearchSysCacheList(RELATION_NAME_CACHE, 1, name, none, none);
        let members = (*list).members.as_slice((*list).n_members as usize);
        let tables = members.iter().map(|member| {
            let row = pg_sys::GETSTRUCT(&raw mut (**member).tuple).cast::<pg_sys::FormData_pg_class>();
            (*row).oid
        });
        let of_extension = |table: &pg_sys::Oid| {
            pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, *table) == extension
        };
        let found = tables.clone().find(of_extension);
        pg_sys::ReleaseCatCacheList(list);
        found
    }
}

/// Counts the rows of a table, up to a limit. Returns 0 if another session is changing the table.
///
/// # Safety
/// The caller must have an active snapshot.
unsafe fn count(table: pg_sys::Oid) -> usize {
    const LOCK: i32 = pg_sys::AccessShareLock as i32;
    // SAFETY: the relation is opened with a lock, and closed after the scan has ended. An error ends both.
    unsafe {
        if !pg_sys::ConditionalLockRelationOid(table, LOCK) {
            return 0;
        }
        let relation = pg_sys::table_open(table, pg_sys::NoLock as i32);
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::InvalidOid,
            false,
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        let mut rows = 0;
        while rows < MAX_COUNTED && !pg_sys::systable_getnext(scan).is_null() {
            rows += 1;
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, LOCK);
        rows
    }
}
