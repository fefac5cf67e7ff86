//! Functions of PostgreSQL that take any arguments. pgrx's guard makes panics of the errors that they raise.

use pgrx::pg_sys::{self, Oid};
use std::ffi::{CStr, CString, c_char};

/// Defines functions that call those of the same name.
macro_rules! guarded {
    ($($(#[$doc:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            $(#[$doc])*
            #[allow(non_snake_case, reason = "PostgreSQL's names")]
            pub fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: it takes any arguments.
                unsafe { pg_sys::$name($($argument),*) }
            }
        )*
    };
}

guarded! {
    pub fn EnableQueryId();
    pub fn get_func_namespace(function: Oid) -> Oid;
    pub fn get_rel_namespace(relation: Oid) -> Oid;
    /// Returns a character of pg_class.relpersistence; 0 if there is no such relation.
    pub fn get_rel_persistence(relation: Oid) -> c_char;
    pub fn has_privs_of_role(member: Oid, role: Oid) -> bool;
}

/// What has a name in a catalog.
pub enum Named {
    Constraint(Oid),
    Database(Oid),
    Relation(Oid),
    Role(Oid),
    Schema(Oid),
    /// The name of a trigger and of its table.
    Trigger(Oid),
    /// A type, with its schema if it needs that. Each OID has a name.
    Type(Oid),
}

/// Returns a name, in the database's encoding; `None` if there is no such object any more.
pub fn name_of(what: Named) -> Option<CString> {
    // SAFETY: the functions accept any number. They return null or a C string, which the current memory
    // context frees.
    unsafe {
        let name = match what {
            Named::Constraint(oid) => pg_sys::get_constraint_name(oid),
            Named::Database(oid) => pg_sys::get_database_name(oid),
            Named::Relation(oid) => pg_sys::get_rel_name(oid),
            Named::Role(oid) => pg_sys::GetUserNameFromId(oid, true),
            Named::Schema(oid) => pg_sys::get_namespace_name(oid),
            Named::Trigger(oid) => pg_sys::getObjectIdentity(&object(pg_sys::TriggerRelationId, oid), true),
            Named::Type(oid) => pg_sys::format_type_be(oid),
        };
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}

/// Returns the address of an object in a catalog.
pub fn object(catalog: Oid, oid: Oid) -> pg_sys::ObjectAddress {
    pg_sys::ObjectAddress {
        classId: catalog,
        objectId: oid,
        objectSubId: 0,
    }
}

/// Returns the OID of an extension; `InvalidOid` if there is none of this name.
pub fn get_extension_oid(name: &CStr) -> Oid {
    // SAFETY: the name is a C string.
    unsafe { pg_sys::get_extension_oid(name.as_ptr(), true) }
}
