//! A set of rows as a function's result, for row types wider than pgrx's tuples.

use pgrx::{IntoDatum, pg_sys};

/// One column's value; `None` is NULL.
pub type Value = Option<pg_sys::Datum>;

pub fn value<T: IntoDatum>(value: T) -> Value {
    value.into_datum()
}

pub fn oid(number: u32) -> Value {
    pg_sys::Oid::from(number).into_datum()
}

/// Returns `rows` as the result of a set-returning function declared with as many columns.
///
/// # Safety
/// `fcinfo` is the call in progress.
pub unsafe fn materialize(fcinfo: pg_sys::FunctionCallInfo, rows: Vec<Vec<Value>>) -> pg_sys::Datum {
    // SAFETY: InitMaterializedSRF checks the caller and sets up the tuplestore and its descriptor.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let columns = (*(*result).setDesc).natts as usize;
        for row in rows {
            if row.len() != columns {
                pgrx::error!(
                    "pg_rowsource returns {} columns where {columns} are declared",
                    row.len()
                );
            }
            let mut nulls: Vec<bool> = row.iter().map(Option::is_none).collect();
            let mut values: Vec<pg_sys::Datum> = row
                .into_iter()
                .map(|v| v.unwrap_or(pg_sys::Datum::from(0)))
                .collect();
            pg_sys::tuplestore_putvalues(
                (*result).setResult,
                (*result).setDesc,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }
    pg_sys::Datum::from(0)
}

/// Exports a set-returning function that takes no arguments under a C name.
macro_rules! set_returning {
    ($name:ident, $info:ident, $rows:expr) => {
        #[unsafe(no_mangle)]
        #[doc(hidden)]
        pub extern "C" fn $info() -> &'static pg_sys::Pg_finfo_record {
            const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
            &V1
        }

        #[unsafe(no_mangle)]
        #[doc(hidden)]
        #[pgrx::pg_guard]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: PostgreSQL passes the call in progress.
            unsafe { materialize(fcinfo, $rows()) }
        }
    };
}

set_returning!(
    pg_stat_rowsource_0_1,
    pg_finfo_pg_stat_rowsource_0_1,
    crate::functions::views::node_rows
);
set_returning!(
    pg_stat_rowsource_histogram_0_1,
    pg_finfo_pg_stat_rowsource_histogram_0_1,
    crate::functions::views::histogram_rows
);
set_returning!(
    pg_stat_rowsource_plans_0_1,
    pg_finfo_pg_stat_rowsource_plans_0_1,
    crate::functions::views::plan_rows
);
