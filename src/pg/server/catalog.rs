//! Reads the rows of a system catalog.

use crate::pg::border::unguarded;
use pgrx::pg_sys::{self, Datum, Oid};

/// The type of a catalog's rows, as far as their columns have a fixed place.
///
/// # Safety
/// The rows of `CATALOG` must begin with this type. `INDEX` must be an index of it, whose columns are OIDs or
/// integers.
pub unsafe trait Row {
    const CATALOG: Oid;
    const INDEX: u32;
}

// SAFETY: these are PostgreSQL's.
unsafe impl Row for pg_sys::FormData_pg_authid {
    const CATALOG: Oid = pg_sys::AuthIdRelationId;
    const INDEX: u32 = pg_sys::AuthIdOidIndexId;
}
// SAFETY: these are PostgreSQL's.
unsafe impl Row for pg_sys::FormData_pg_database {
    const CATALOG: Oid = pg_sys::DatabaseRelationId;
    const INDEX: u32 = pg_sys::DatabaseOidIndexId;
}
// SAFETY: these are PostgreSQL's.
unsafe impl Row for pg_sys::FormData_pg_depend {
    const CATALOG: Oid = pg_sys::DependRelationId;
    const INDEX: u32 = pg_sys::DependReferenceIndexId;
}
// SAFETY: these are PostgreSQL's.
unsafe impl Row for pg_sys::FormData_pg_proc {
    const CATALOG: Oid = pg_sys::ProcedureRelationId;
    const INDEX: u32 = pg_sys::ProcedureOidIndexId;
}
// SAFETY: these are PostgreSQL's.
unsafe impl Row for pg_sys::FormData_pg_trigger {
    const CATALOG: Oid = pg_sys::TriggerRelationId;
    const INDEX: u32 = pg_sys::TriggerOidIndexId;
}

/// Shows `visit` the rows whose columns with these numbers have these values, until it returns something.
/// Without columns, reads the whole catalog and no index: a process that is connected to no database may have
/// none. May raise.
pub fn find<R: Row, T>(columns: &[(u32, Oid)], mut visit: impl FnMut(&R) -> Option<T>) -> Option<T> {
    let mut keys = [pg_sys::ScanKeyData::default(); 2];
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: a transaction is in progress. If a column is not in the index, PostgreSQL raises an error. A
    // row stays until the next is read. The scan ends before the catalog is closed, or with the transaction.
    unsafe {
        assert!(
            unguarded::IsTransactionState(),
            "catalogs are read in a transaction"
        );
        for (key, (column, value)) in keys.iter_mut().zip(columns) {
            let equal = pg_sys::BTEqualStrategyNumber as u16;
            let function = Oid::from(pg_sys::F_OIDEQ);
            pg_sys::ScanKeyInit(key, *column as i16, equal, function, Datum::from(*value));
        }
        let catalog = pg_sys::table_open(R::CATALOG, lock);
        let scan = pg_sys::systable_beginscan(
            catalog,
            Oid::from(R::INDEX),
            !columns.is_empty(),
            std::ptr::null_mut(),
            columns.len().min(keys.len()) as i32,
            keys.as_mut_ptr(),
        );
        let mut found = None;
        while found.is_none() {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            found = visit(&*pg_sys::GETSTRUCT(tuple).cast());
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, lock);
        found
    }
}
