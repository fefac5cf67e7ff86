//! A set of rows as a function's result, for row types wider than pgrx's tuples.

use super::server;
use pgrx::{IntoDatum, pg_getarg, pg_sys};

/// One column's value; `None` is NULL.
pub type Value = Option<pg_sys::Datum>;

pub fn value<T: IntoDatum>(value: T) -> Value {
    value.into_datum()
}

/// Text, in the database's encoding.
pub fn text(text: &str) -> Value {
    let bytes = server::to_database(text);
    // SAFETY: as long as said; copied.
    let varlena = unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32) };
    Some(pg_sys::Datum::from(varlena))
}

pub fn oid(number: u32) -> Value {
    pg_sys::Oid::from(number).into_datum()
}

/// As a Datum, a timestamp is its microseconds since 2000-01-01 UTC.
pub fn timestamp(microseconds: i64) -> Value {
    value(microseconds)
}

/// Returns `rows` as the result of a set-returning function declared with as many columns.
///
/// # Safety
/// `fcinfo` is the call in progress.
pub unsafe fn materialize(
    fcinfo: pg_sys::FunctionCallInfo,
    rows: Vec<Vec<Value>>,
    flags: u32,
) -> pg_sys::Datum {
    // SAFETY: InitMaterializedSRF checks the caller and sets up the tuplestore and its descriptor.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, flags);
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

/// The result is a set of rows, described by the function's declaration.
const ROWS: u32 = 0;
/// The result is a set of plain values: MAT_SRF_USE_EXPECTED_DESC.
const SCALARS: u32 = 1;

/// Exports a set-returning function under a C name; `rows` makes its rows from the call in progress.
macro_rules! set_returning {
    ($name:ident, $info:ident, $flags:expr, $rows:expr) => {
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
            unsafe { materialize(fcinfo, ($rows)(fcinfo), $flags) }
        }
    };
}

set_returning!(
    pg_stat_rowsource_0_1,
    pg_finfo_pg_stat_rowsource_0_1,
    ROWS,
    |_| { crate::functions::views::node_rows() }
);
set_returning!(
    pg_stat_rowsource_histogram_0_1,
    pg_finfo_pg_stat_rowsource_histogram_0_1,
    ROWS,
    |_| crate::functions::views::histogram_rows()
);
set_returning!(
    pg_stat_rowsource_plans_0_1,
    pg_finfo_pg_stat_rowsource_plans_0_1,
    ROWS,
    |_| crate::functions::views::plan_rows()
);
set_returning!(
    pg_stat_tempfile_io_0_1,
    pg_finfo_pg_stat_tempfile_io_0_1,
    ROWS,
    |_| crate::functions::tempfile::io_rows()
);
set_returning!(
    pg_stat_tempfile_io_histogram_0_1,
    pg_finfo_pg_stat_tempfile_io_histogram_0_1,
    ROWS,
    |_| crate::functions::tempfile::histogram_rows()
);
set_returning!(
    rowsource_temp_files_0_1,
    pg_finfo_rowsource_temp_files_0_1,
    ROWS,
    |_| crate::functions::temp_usage::file_rows()
);
set_returning!(
    rowsource_iostat_lines_0_1,
    pg_finfo_rowsource_iostat_lines_0_1,
    SCALARS,
    |fcinfo| {
        let filetypes: Option<String> = pg_getarg(fcinfo, 7);
        crate::functions::history::iostat_lines(
            [pg_getarg(fcinfo, 0), pg_getarg(fcinfo, 1)],
            [pg_getarg(fcinfo, 2), pg_getarg(fcinfo, 3)],
            [pg_getarg(fcinfo, 4), pg_getarg(fcinfo, 5)],
            pg_getarg(fcinfo, 6),
            filetypes.as_deref(),
        )
    }
);
set_returning!(
    rowsource_display_0_1,
    pg_finfo_rowsource_display_0_1,
    SCALARS,
    |fcinfo| {
        let format: Option<String> = pg_getarg(fcinfo, 2);
        crate::functions::display::lines(pg_getarg(fcinfo, 0), pg_getarg(fcinfo, 1), format.as_deref())
    }
);
