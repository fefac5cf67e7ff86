//! A set of rows as a function's result, for row types wider than pgrx's tuples.
//!
//! Each row goes into PostgreSQL's tuplestore as soon as it is made: that keeps `work_mem` of them in memory, and the rest
//! in a file.

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
    // SAFETY: the bytes are as many as said, and PostgreSQL copies them.
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

/// The rows that a set-returning function returns.
pub struct Rows {
    result: *mut pg_sys::ReturnSetInfo,
    columns: usize,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// What is allocated for a row is freed with it.
    row_context: pg_sys::MemoryContext,
}

impl Rows {
    /// Begins the result of a call in progress. From here on memory is allocated for the row that is being made.
    ///
    /// # Safety
    /// `fcinfo` is the call in progress.
    unsafe fn begin(fcinfo: pg_sys::FunctionCallInfo, flags: u32) -> Self {
        // SAFETY: InitMaterializedSRF checks the caller and sets up the tuplestore and its descriptor. The context is a
        // child of the caller's, and goes with it at the latest.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, flags);
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let row_context = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"pg_rowsource row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            pg_sys::MemoryContextSwitchTo(row_context);
            Rows {
                result,
                columns: (*(*result).setDesc).natts as usize,
                values: Vec::new(),
                nulls: Vec::new(),
                row_context,
            }
        }
    }

    /// Adds a row. May be cancelled.
    pub fn add(&mut self, row: impl IntoIterator<Item = Value>) {
        self.values.clear();
        self.nulls.clear();
        for value in row {
            self.nulls.push(value.is_none());
            self.values.push(value.unwrap_or(pg_sys::Datum::from(0)));
        }
        let (row, columns) = (self.values.len(), self.columns);
        if row != columns {
            pgrx::error!("pg_rowsource returns {row} columns where {columns} are declared");
        }
        // SAFETY: as many values as the tuplestore has columns; it copies them.
        unsafe {
            pg_sys::tuplestore_putvalues(
                (*self.result).setResult,
                (*self.result).setDesc,
                self.values.as_mut_ptr(),
                self.nulls.as_mut_ptr(),
            );
            pg_sys::MemoryContextReset(self.row_context);
        }
        server::check_for_interrupts();
    }

    /// Adds a row of a set of texts.
    pub fn add_line(&mut self, line: &str) {
        self.add([text(line)]);
    }
}

/// Returns the rows that `make` adds as the result of a set-returning function.
///
/// # Safety
/// `fcinfo` is the call in progress.
pub unsafe fn materialize(
    fcinfo: pg_sys::FunctionCallInfo,
    flags: u32,
    make: impl FnOnce(&mut Rows),
) -> pg_sys::Datum {
    // SAFETY: the caller's promise; the context is the one that was current before.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let mut rows = Rows::begin(fcinfo, flags);
        make(&mut rows);
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::MemoryContextDelete(rows.row_context);
    }
    pg_sys::Datum::from(0)
}

/// Returns an argument of type text, in UTF-8. One of more than `longest` bytes is an error: it is not even copied.
///
/// # Safety
/// `fcinfo` is the call in progress, and its argument `n` a text.
unsafe fn text_argument(fcinfo: pg_sys::FunctionCallInfo, n: usize, longest: usize) -> Option<String> {
    // SAFETY: the caller's promise; the text is copied.
    unsafe {
        let datum: pg_sys::Datum = pgrx::pg_getarg_datum(fcinfo, n)?;
        if pg_sys::toast_raw_datum_size(datum) - pg_sys::VARHDRSZ > longest {
            crate::functions::fail(
                pgrx::PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "argument is too long",
                &format!("It may have {longest} bytes."),
            );
        }
        let cstring = pg_sys::text_to_cstring(datum.cast_mut_ptr());
        Some(server::from_database(
            std::ffi::CStr::from_ptr(cstring).to_bytes(),
        ))
    }
}

/// Bytes of a display format: several times all words that there are.
const LONGEST_FORMAT: usize = 1_000;
/// Bytes of what the SQL of a report hands on.
const LONGEST_REPORT: usize = 64 << 10;

/// The result is a set of rows, described by the function's declaration.
const ROWS: u32 = 0;
/// The result is a set of plain values: MAT_SRF_USE_EXPECTED_DESC.
const SCALARS: u32 = 1;

/// Exports a set-returning function under a C name; `$rows` adds its rows, from the call in progress.
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
        /// # Safety
        /// To be called by PostgreSQL only, with the call in progress of the SQL function of this name.
        #[allow(
            clippy::missing_safety_doc,
            reason = "of the function that the guard makes inside"
        )]
        #[pgrx::pg_guard]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: PostgreSQL passes the call in progress.
            unsafe { materialize(fcinfo, $flags, |rows| ($rows)(fcinfo, rows)) }
        }
    };
}

set_returning!(
    pg_stat_rowsource_0_1,
    pg_finfo_pg_stat_rowsource_0_1,
    ROWS,
    |_, rows| { crate::functions::views::node_rows(rows) }
);
set_returning!(
    pg_stat_rowsource_histogram_0_1,
    pg_finfo_pg_stat_rowsource_histogram_0_1,
    ROWS,
    |_, rows| crate::functions::views::histogram_rows(rows)
);
set_returning!(
    pg_stat_rowsource_plans_0_1,
    pg_finfo_pg_stat_rowsource_plans_0_1,
    ROWS,
    |_, rows| crate::functions::views::plan_rows(rows)
);
set_returning!(
    pg_stat_tempfile_io_0_1,
    pg_finfo_pg_stat_tempfile_io_0_1,
    ROWS,
    |_, rows| crate::functions::tempfile::io_rows(rows)
);
set_returning!(
    pg_stat_tempfile_io_histogram_0_1,
    pg_finfo_pg_stat_tempfile_io_histogram_0_1,
    ROWS,
    |_, rows| crate::functions::tempfile::histogram_rows(rows)
);
set_returning!(
    rowsource_temp_files_0_1,
    pg_finfo_rowsource_temp_files_0_1,
    ROWS,
    |_, rows| crate::functions::temp_usage::file_rows(rows)
);
set_returning!(
    rowsource_iostat_lines_0_1,
    pg_finfo_rowsource_iostat_lines_0_1,
    SCALARS,
    |fcinfo, rows| {
        let filetypes = text_argument(fcinfo, 7, LONGEST_REPORT);
        crate::functions::history::iostat_lines(
            rows,
            [pg_getarg(fcinfo, 0), pg_getarg(fcinfo, 1)],
            [pg_getarg(fcinfo, 2), pg_getarg(fcinfo, 3)],
            [
                text_argument(fcinfo, 4, LONGEST_REPORT),
                text_argument(fcinfo, 5, LONGEST_REPORT),
            ],
            pg_getarg(fcinfo, 6),
            filetypes.as_deref(),
        )
    }
);
set_returning!(
    rowsource_display_0_1,
    pg_finfo_rowsource_display_0_1,
    SCALARS,
    |fcinfo, rows| {
        let format = text_argument(fcinfo, 2, LONGEST_FORMAT);
        crate::functions::display::lines(
            rows,
            pg_getarg(fcinfo, 0),
            pg_getarg(fcinfo, 1),
            format.as_deref(),
        )
    }
);
