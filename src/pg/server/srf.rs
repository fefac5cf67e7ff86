//! Exports SQL functions, reads their arguments and returns their rows.
//!
//! Each row is put into PostgreSQL's tuplestore at once. The tuplestore keeps up to `work_mem` of rows in
//! memory, and writes more to a file.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::guarded;
use crate::pg::server::moment::{self, interval_us};
use crate::pg::server::{self, builtin_values, memory};
use pgrx::{FromDatum, IntoDatum, pg_sys};
use std::cell::Cell;
use std::ffi::CStr;

/// The set-returning function that was called last.
static CALLED: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));

/// Returns the schema of the extension whose set-returning function runs.
pub fn schema() -> Option<String> {
    server::schema_name(guarded::get_func_namespace(CALLED.get().into()).to_u32())
}

/// Returns whether the current user may execute a function without arguments of that extension.
pub fn may_execute(function: &str) -> bool {
    let Some(schema) = schema() else { return false };
    let function = format!("{}.{function}()", server::quoted_identifier(&schema));
    // SAFETY: the function takes two texts.
    let may = unsafe {
        pgrx::direct_function_call(
            pg_sys::has_function_privilege_name,
            &[text(&function), text("EXECUTE")],
        )
    };
    may == Some(true)
}

/// One column's value; `None` is NULL.
pub type Value = Option<pg_sys::Datum>;

/// Returns a column's value.
pub fn value<T: IntoDatum>(value: T) -> Value {
    value.into_datum()
}

/// Returns a text in the database's encoding.
pub fn text(text: &str) -> Value {
    let bytes = server::to_database(text);
    // SAFETY: the pointer and the length are those of a slice, which PostgreSQL copies.
    let varlena = unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32) };
    Some(pg_sys::Datum::from(varlena))
}

/// Returns an array of texts.
pub fn texts(texts: &[String]) -> Value {
    let mut texts: Vec<pg_sys::Datum> = texts.iter().filter_map(|it| text(it)).collect();
    // SAFETY: the elements are texts, of which these are the length, the way they are passed, and the
    // alignment. They are copied.
    let array = unsafe {
        pg_sys::construct_array(
            texts.as_mut_ptr(),
            texts.len() as i32,
            pg_sys::TEXTOID,
            -1,
            false,
            pg_sys::TYPALIGN_INT as std::ffi::c_char,
        )
    };
    Some(pg_sys::Datum::from(array))
}

/// Returns the name of an object.
pub fn name(name: &str) -> Value {
    let name = std::ffi::CString::new(&*server::to_database(name)).ok()?;
    // SAFETY: `namein` reads a C string in the database's encoding, and copies it.
    unsafe {
        pgrx::direct_function_call_as_datum(pg_sys::namein, &[Some(pg_sys::Datum::from(name.as_ptr()))])
    }
}

/// Returns bytes.
pub fn bytes(bytes: &[u8]) -> Value {
    value(bytes)
}

/// Returns a jsonb object.
pub fn json(object: &serde_json::Map<String, serde_json::Value>) -> Value {
    let text = serde_json::to_string(object).ok()?;
    let text = std::ffi::CString::new(&*server::to_database(&text)).ok()?;
    // SAFETY: `jsonb_in` reads a text in the database's encoding that ends with a zero byte, and copies it.
    unsafe {
        let argument = Some(pg_sys::Datum::from(text.as_ptr()));
        pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[argument])
    }
}

/// Returns an OID.
pub fn oid(number: u32) -> Value {
    pg_sys::Oid::from(number).into_datum()
}

/// Returns a timestamp, which as a Datum is its microseconds since 2000-01-01 UTC.
pub fn timestamp(microseconds: i64) -> Value {
    value(microseconds)
}

/// Returns an address or a network, which must be valid.
pub fn inet(text: &str) -> Value {
    pgrx::Inet(text.to_owned()).into_datum()
}

/// The rows that a set-returning function returns.
pub struct Rows {
    result: *mut pg_sys::ReturnSetInfo,
    columns: usize,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// The memory of the current row. It is reset after the row is stored.
    row_context: pg_sys::MemoryContext,
}

impl Rows {
    /// Begins the result of a call. Makes the memory context of the current row the current one.
    ///
    /// # Safety
    /// `fcinfo` must be the current call.
    unsafe fn begin(fcinfo: pg_sys::FunctionCallInfo, flags: u32) -> Self {
        // SAFETY: InitMaterializedSRF checks the caller and sets up the tuplestore and its descriptor. The
        // context is a child of the current one, so it is freed with it at the latest.
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
        // SAFETY: there are as many values as the tuplestore has columns, and it copies them.
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

/// The current call of a function, and how many of its arguments were read.
pub struct Call(pg_sys::FunctionCallInfo, Cell<usize>);

/// What a set-returning function returns.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Rows with the columns that the function declares.
    Rows,
    /// Plain values.
    Values,
}

impl Call {
    /// Returns the call that PostgreSQL passes to a function.
    ///
    /// # Safety
    /// `fcinfo` must be the current call. Its arguments must have the types that the function reads.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        Call(fcinfo, Cell::new(0))
    }

    /// Returns the place of the argument that is read next.
    pub(super) fn next(&self) -> usize {
        self.1.replace(self.1.get() + 1)
    }

    /// Returns an argument of this type; `None` is NULL.
    fn get<T: FromDatum>(&self, n: usize) -> Option<T> {
        // SAFETY: the call is in progress, and its argument has this type, by the promise of `new`.
        unsafe { pgrx::pg_getarg(self.0, n) }
    }

    /// Returns an argument of a type of variable length. It lives until a row is added. Raises an error if it
    /// has more than `max` bytes, without copying it.
    fn variable(&self, n: usize, max: usize) -> Option<&[u8]> {
        // SAFETY: the call is in progress, and its argument has a variable length, by the promise of `new`.
        // Its size is in its header. The current memory context is reset when a row is added.
        unsafe {
            let datum: pg_sys::Datum = pgrx::pg_getarg_datum(self.0, n)?;
            if pg_sys::toast_raw_datum_size(datum) - pg_sys::VARHDRSZ > max {
                too_long("argument", max, "bytes");
            }
            let varlena = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
            Some(pgrx::varlena_to_byte_slice(varlena))
        }
    }

    /// Returns an argument that is passed by value; `None` is NULL.
    pub fn argument<T: ByValue>(&self, n: usize) -> Option<T> {
        self.get(n)
    }

    /// Returns an argument of type text, in UTF-8. Raises an error if it has more than `max` bytes, without
    /// copying it.
    pub fn text(&self, n: usize, max: usize) -> Option<String> {
        self.variable(n, max).map(server::from_database)
    }

    /// Returns an argument of type text, in the database's encoding. It lives until a row is added.
    pub fn database_text(&self, n: usize) -> Option<&CStr> {
        // SAFETY: the call is in progress, and its argument is a text, by the promise of `new`.
        unsafe {
            let datum: pg_sys::Datum = pgrx::pg_getarg_datum(self.0, n)?;
            Some(CStr::from_ptr(pg_sys::text_to_cstring(datum.cast_mut_ptr())))
        }
    }

    /// Returns an argument of type inet, as PostgreSQL prints it.
    pub fn inet(&self, n: usize) -> Option<String> {
        self.get(n).map(|inet: pgrx::Inet| inet.0)
    }

    /// Returns an argument of type interval, in microseconds. A month has 30 days.
    pub fn interval(&self, n: usize) -> Option<i64> {
        // SAFETY: the call is in progress, and its argument is an interval, by the promise of `new`.
        unsafe {
            let datum: pg_sys::Datum = pgrx::pg_getarg_datum(self.0, n)?;
            Some(interval_us(&*datum.cast_mut_ptr()))
        }
    }

    /// Returns the moment that an argument of any type means. Raises an error if it means none.
    pub fn moment(&self, n: usize) -> Option<i64> {
        // SAFETY: the call is in progress by the promise of `new`. What follows reads a value of the type
        // that it has.
        unsafe {
            let datum: pg_sys::Datum = pgrx::pg_getarg_datum(self.0, n)?;
            let of = pg_sys::get_fn_expr_argtype((*self.0).flinfo, n as i32);
            match of {
                pg_sys::TIMESTAMPTZOID => Some(datum.value() as i64),
                pg_sys::INTERVALOID => self.interval(n).map(moment::ago),
                // Such a value has a short text.
                _ if pg_sys::get_typlen(of) > 0 => {
                    let (mut output, mut is_long) = (pg_sys::InvalidOid, false);
                    pg_sys::getTypeOutputInfo(of, &mut output, &mut is_long);
                    let text = CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, datum));
                    Some(moment::moment(&server::from_database(text.to_bytes())))
                }
                _ => moment::fail_no_moment(&builtin_values::type_name(of.to_u32())),
            }
        }
    }

    /// Returns an argument of type bytea. Raises an error if it has more than `max` bytes, without copying
    /// it.
    pub fn bytes(&self, n: usize, max: usize) -> Option<Vec<u8>> {
        let bytes = self.variable(n, max)?;
        let mut copy = memory::with_room(bytes.len());
        copy.extend_from_slice(bytes);
        Some(copy)
    }

    /// Returns an argument of an array type; empty for NULL. Raises an error if it has more than `max`
    /// elements.
    pub fn array<T>(&self, n: usize, max: usize) -> Vec<Option<T>>
    where
        T: ByValue + for<'a> pgrx::datum::UnboxDatum<As<'a> = T> + 'static,
    {
        let Some(array) = self.get::<pgrx::Array<T>>(n) else {
            return Vec::new();
        };
        if array.len() > max {
            too_long("array", max, "elements");
        }
        array.iter().collect()
    }

    /// Returns the rows that `make` adds as the function's result.
    pub fn returns(&self, shape: Shape, make: impl FnOnce(&Call, &mut Rows)) -> pg_sys::Datum {
        let flags = match shape {
            Shape::Rows => 0,
            Shape::Values => pg_sys::MAT_SRF_USE_EXPECTED_DESC,
        };
        // SAFETY: the call is in progress by the promise of `new`. The context is the one that was current
        // before.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            CALLED.set((*(*self.0).flinfo).fn_oid.to_u32());
            let mut rows = Rows::begin(self.0, flags);
            make(self, &mut rows);
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::MemoryContextDelete(rows.row_context);
        }
        pg_sys::Datum::from(0)
    }
}

/// Raises the error that something has more than `max` parts.
fn too_long(what: &str, max: usize, parts: &str) -> ! {
    server::fail(
        pgrx::PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        &format!("{what} is too long"),
        &format!("It may have {max} {parts}."),
    )
}

/// A type that is passed by value, and for which every bit pattern is valid.
pub trait ByValue: FromDatum {}
impl ByValue for bool {}
impl ByValue for i32 {}
impl ByValue for i64 {}
impl ByValue for f64 {}
impl ByValue for pg_sys::Oid {}

/// Exports a function under a C name. `$body` gets the [`Call`] and returns the result.
macro_rules! export {
    ($symbol:expr, $body:expr) => {
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", $symbol))]
            extern "C" fn info() -> &'static pgrx::pg_sys::Pg_finfo_record {
                const V1: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
                &V1
            }

            /// # Safety
            /// Only PostgreSQL may call this, with the current call of the SQL function of this name.
            #[unsafe(export_name = $symbol)]
            unsafe extern "C-unwind" fn call(fcinfo: pgrx::pg_sys::FunctionCallInfo) -> pgrx::pg_sys::Datum {
                // SAFETY: PostgreSQL passes the current call, with arguments of the types that the SQL
                // function declares. The guard turns panics into PostgreSQL's errors.
                unsafe {
                    let call = $crate::pg::server::srf::Call::new(fcinfo);
                    pgrx::pg_sys::panic::pgrx_extern_c_guard(|| ($body)(&call))
                }
            }
        };
    };
}
pub(crate) use export;
