//! Tells whether PostgreSQL itself prints the values of a type, and its modifiers, or a function of another
//! extension.

use pgrx::pg_sys::{self, Oid};

/// What PostgreSQL takes for no modifier of a type.
pub const NO_MODIFIER: i32 = -1;

/// Types of types: a domain over an array of ranges, for example. Deeper ones are not looked at.
const MAX_DEPTH: usize = 8;

/// Returns whether only functions of PostgreSQL run when a value of this type is printed. Those of records
/// run the functions of their columns, which are not known here. May raise.
pub fn are_values_printed_by_core(kind: Oid) -> bool {
    let mut kind = kind;
    for _ in 0..MAX_DEPTH {
        if is_of_core(kind) {
            return kind != pg_sys::RECORDOID && kind != pg_sys::RECORDARRAYOID;
        }
        // SAFETY: the functions read the catalog, for any type.
        let parts_of = unsafe {
            match pg_sys::get_typtype(kind) as u8 {
                pg_sys::TYPTYPE_ENUM => return true,
                pg_sys::TYPTYPE_DOMAIN => pg_sys::getBaseType(kind),
                pg_sys::TYPTYPE_RANGE => pg_sys::get_range_subtype(kind),
                pg_sys::TYPTYPE_MULTIRANGE => pg_sys::get_multirange_range(kind),
                pg_sys::TYPTYPE_BASE => pg_sys::get_element_type(kind),
                _ => return false,
            }
        };
        if parts_of == pg_sys::InvalidOid {
            return is_of_core(output_function(kind));
        }
        kind = parts_of;
    }
    false
}

/// Returns whether only PostgreSQL prints a modifier of this type, for example the 10 in `varchar(10)`. May
/// raise.
pub fn are_modifiers_printed_by_core(kind: Oid) -> bool {
    // A type with a function that prints modifiers has one that reads them.
    // SAFETY: the function reads the catalog, for any type.
    is_of_core(kind) || is_of_core(unsafe { pg_sys::get_typmodin(kind) })
}

/// Returns whether an object is PostgreSQL's own, or none.
pub fn is_of_core(object: Oid) -> bool {
    object.to_u32() < pg_sys::FirstGenbkiObjectId
}

/// Returns the function that prints values of a type. May raise.
fn output_function(kind: Oid) -> Oid {
    let (mut function, mut is_varlena) = (pg_sys::InvalidOid, false);
    // SAFETY: the function reads the catalog, and writes to these places.
    unsafe { pg_sys::getTypeOutputInfo(kind, &mut function, &mut is_varlena) };
    function
}
