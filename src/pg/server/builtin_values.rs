//! Values of PostgreSQL's own types: their bytes, and what these mean. To get the bytes needs no function
//! of the type and no catalog, so it is possible in a transaction that has failed.

use super::encoding::from_database;
use super::setting;
use crate::pg::border::guarded::Named;
use pgrx::pg_sys::{self, Datum, Oid, ParamExternData};
use rowsource_core::model::parameters::Bytes;
use std::ffi::CStr;

/// How PostgreSQL has the values of a type in memory.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// In the Datum.
    ByValue,
    /// At an address, with this number of bytes.
    Fixed(usize),
    /// At an address, with a header. The beginning of such a text or bytea is a value too.
    Text,
    /// The same of another type of variable length.
    Variable,
}

/// Returns the form of a type. Returns `None` if it is not one of those whose OIDs, sizes and output
/// functions are the same in each database.
fn form(type_id: Oid) -> Option<Form> {
    use pg_sys::*;
    Some(match type_id {
        BOOLOID | CHAROID | INT2OID | INT4OID | INT8OID | FLOAT4OID | FLOAT8OID | OIDOID | REGCLASSOID
        | REGTYPEOID | XIDOID | XID8OID | PG_LSNOID | DATEOID | TIMEOID | TIMESTAMPOID | TIMESTAMPTZOID => {
            Form::ByValue
        }
        TIMETZOID => Form::Fixed(12),
        INTERVALOID | UUIDOID => Form::Fixed(16),
        NAMEOID => Form::Fixed(NAMEDATALEN as usize),
        TEXTOID | VARCHAROID | BPCHAROID | BYTEAOID | JSONOID => Form::Text,
        NUMERICOID | JSONBOID | XMLOID | INETOID | CIDROID | BITOID | VARBITOID | TSVECTOROID
        | TSQUERYOID | INT4RANGEOID | INT8RANGEOID | NUMRANGEOID | DATERANGEOID | TSRANGEOID
        | TSTZRANGEOID | BOOLARRAYOID | CHARARRAYOID | INT2ARRAYOID | INT4ARRAYOID | INT8ARRAYOID
        | FLOAT4ARRAYOID | FLOAT8ARRAYOID | NUMERICARRAYOID | OIDARRAYOID | NAMEARRAYOID | TEXTARRAYOID
        | VARCHARARRAYOID | BPCHARARRAYOID | BYTEAARRAYOID | JSONARRAYOID | JSONBARRAYOID | UUIDARRAYOID
        | DATEARRAYOID | TIMEARRAYOID | TIMETZARRAYOID | TIMESTAMPARRAYOID | TIMESTAMPTZARRAYOID
        | INTERVALARRAYOID | INETARRAYOID | CIDRARRAYOID => Form::Variable,
        _ => return None,
    })
}

/// Returns whether values of a type are kept.
pub fn is_builtin(type_id: u32) -> bool {
    form(Oid::from(type_id)).is_some()
}

/// Returns the bytes of a parameter's value. Returns `None` if its type has no [`Form`], or if the value is
/// compressed or stored elsewhere: nothing is read from a table, and nothing is allocated.
///
/// # Safety
/// The parameter must be live.
pub unsafe fn bytes(parameter: &ParamExternData) -> Option<Bytes<'_>> {
    if parameter.isnull {
        return Some(Bytes::Null);
    }
    let form = form(parameter.ptype)?;
    let datum = &parameter.value;
    // SAFETY: a live parameter's value has the form of its type: it is the Datum itself, or an address of
    // so many bytes, or that of a varlena, which tells its size.
    unsafe {
        let at = |address: *mut u8, size| std::slice::from_raw_parts(address, size);
        Some(match form {
            Form::ByValue => Bytes::Other(at(
                std::ptr::from_ref(datum).cast_mut().cast(),
                size_of::<Datum>(),
            )),
            Form::Fixed(size) => Bytes::Other(at(datum.cast_mut_ptr(), size)),
            Form::Text | Form::Variable => {
                let varlena = datum.cast_mut_ptr::<pg_sys::varlena>();
                if pgrx::varlena::varatt_is_1b_e(varlena) || pgrx::varlena::varatt_is_4b_c(varlena) {
                    return None;
                }
                let bytes = pgrx::varlena::varlena_to_byte_slice(varlena);
                match form {
                    Form::Text => Bytes::Text(bytes),
                    _ => Bytes::Other(bytes),
                }
            }
        })
    }
}

/// Returns what the output function of a type prints for such bytes, in a form that reads back under all
/// settings. Returns `None` if they are not of that type.
///
/// # Errors
/// Raises the errors of the output function.
pub fn printed(type_id: u32, bytes: &[u8]) -> Option<String> {
    const SETTINGS: [(&CStr, &CStr); 4] = [
        (c"DateStyle", c"ISO"),
        (c"IntervalStyle", c"postgres"),
        (c"extra_float_digits", c"1"),
        (c"bytea_output", c"hex"),
    ];
    let type_id = Oid::from(type_id);
    let form = form(type_id)?;
    // SAFETY: the bytes were those of a value of this type in this server, and have a new header. An output
    // function returns a C string in the current memory context.
    setting::with(&SETTINGS, || unsafe {
        let datum = match form {
            Form::ByValue => Datum::from(u64::from_ne_bytes(bytes.try_into().ok()?)),
            Form::Fixed(size) if bytes.len() != size => return None,
            Form::Fixed(size) => {
                let copy: *mut u8 = pg_sys::palloc(size).cast();
                copy.copy_from_nonoverlapping(bytes.as_ptr(), size);
                Datum::from(copy)
            }
            Form::Text | Form::Variable => {
                Datum::from(pgrx::varlena::rust_byte_slice_to_bytea(bytes).into_pg())
            }
        };
        let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
        pg_sys::getTypeOutputInfo(type_id, &raw mut output, &raw mut is_varlena);
        let text = CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, datum));
        Some(from_database(text.to_bytes()))
    })
}

/// Returns the name of a type, with its schema if it needs that. Must be called in the type's database.
pub fn type_name(type_id: u32) -> String {
    super::access::name_of(Named::Type(type_id.into())).unwrap_or_default()
}
