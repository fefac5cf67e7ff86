//! What an index indexes, as a part of a planid: its table's columns or expressions, its access method, operator classes, collations, order,
//! uniqueness, INCLUDE and predicate. Its name, and how it is stored, do not count.

use crate::pg::compat;
use pgrx::pg_sys::{self, Oid, RelationData};
use rowsource_core::definition::{self, Names, Object};
use rowsource_core::stable_hash::StableHasher;
use std::ffi::CStr;

/// Adds the definition of an index.
///
/// # Safety
/// * The index must be open.
/// * The caller must be in a memory context of its own. Raises if a catalog cannot be read.
pub unsafe fn add(index: &RelationData, hash: &mut StableHasher) {
    // SAFETY: an open index has its rows of pg_class and pg_index, and arrays with a member for each key. The text of an attribute is
    // copied into the current memory context.
    unsafe {
        let row = &*index.rd_index;
        let table = Table(row.indrelid);
        let method = pg_sys::get_am_name((*index.rd_rel).relam);
        if !method.is_null() {
            hash.bytes(CStr::from_ptr(method).to_bytes().iter().copied());
        }
        hash.byte(u8::from(row.indisunique));
        hash.number(row.indnkeyatts as u32);
        for column in 0..row.indnatts.max(0) as usize {
            let number = *row.indkey.values.as_ptr().add(column);
            text(table.column(number).as_deref(), hash);
            if column < row.indnkeyatts as usize {
                let class = pg_sys::get_index_column_opclass(row.indexrelid, column as i32 + 1);
                text(identity(pg_sys::OperatorClassRelationId, class).as_deref(), hash);
                let collation = *index.rd_indcollation.add(column);
                text(name(Object::Collation, collation).as_deref(), hash);
                hash.number(*index.rd_indoption.add(column) as u32);
            }
        }
        for column in [pg_sys::Anum_pg_index_indexprs, pg_sys::Anum_pg_index_indpred] {
            let mut is_null = false;
            let nodes = pg_sys::SysCacheGetAttr(
                compat::INDEX_CACHE,
                index.rd_indextuple,
                column as pg_sys::AttrNumber,
                &mut is_null,
            );
            hash.byte(u8::from(is_null));
            if !is_null {
                let nodes = CStr::from_ptr(pg_sys::text_to_cstring(nodes.cast_mut_ptr()));
                definition::hash(&nodes.to_string_lossy(), &table, hash);
            }
        }
    }
}

/// Adds a text, or that there is none.
fn text(text: Option<&str>, hash: &mut StableHasher) {
    hash.text(text.unwrap_or_default().as_bytes());
}

/// Returns the name of an object, with its schema and the types of its arguments. Returns `None` if there is none with this OID.
pub fn name(object: Object, oid: Oid) -> Option<String> {
    let class = match object {
        Object::Operator => pg_sys::OperatorRelationId,
        Object::Function => pg_sys::ProcedureRelationId,
        Object::Type => pg_sys::TypeRelationId,
        Object::Collation => pg_sys::CollationRelationId,
        Object::Column => return None,
    };
    // SAFETY: the classes are those of objects that have names.
    unsafe { identity(class, oid) }
}

/// Returns PostgreSQL's name of an object, which does not depend on the search path.
///
/// # Safety
/// May raise.
unsafe fn identity(class: Oid, oid: Oid) -> Option<String> {
    if oid == pg_sys::InvalidOid {
        return None;
    }
    let address = pg_sys::ObjectAddress {
        classId: class,
        objectId: oid,
        objectSubId: 0,
    };
    // SAFETY: the result is null or a C string in the current memory context.
    unsafe {
        let name = pg_sys::getObjectIdentity(&address, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// The table of an index.
struct Table(Oid);

impl Table {
    /// Returns the name of a column. Returns `None` for an expression, whose number is 0.
    fn column(&self, number: i16) -> Option<String> {
        // SAFETY: the function accepts any number, and returns null or a C string in the current memory context.
        unsafe {
            let name = pg_sys::get_attname(self.0, number, true);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }
}

impl Names for Table {
    fn name(&self, object: Object, number: u32) -> Option<String> {
        match object {
            Object::Column => self.column(i16::try_from(number).ok()?),
            _ => name(object, Oid::from(number)),
        }
    }

    fn constant(&self, type_oid: u32, bytes: &[u8]) -> Option<String> {
        let oid = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let type_oid = Oid::from(type_oid);
        // SAFETY: the functions accept any type. A value of an enum is the OID of its label; the function of the cast is PostgreSQL's own,
        // and returns a C string in the current memory context.
        unsafe {
            if pg_sys::type_is_enum(type_oid) {
                let label =
                    pg_sys::OidOutputFunctionCall(pg_sys::F_ENUM_OUT.into(), pg_sys::Datum::from(oid));
                return Some(CStr::from_ptr(label).to_string_lossy().into_owned());
            }
            // What such a constant names has another OID elsewhere.
            is_alias_of_oid(type_oid).then(String::new)
        }
    }
}

/// Returns whether a type's values are the OIDs of objects: regclass, for example.
fn is_alias_of_oid(type_oid: Oid) -> bool {
    [
        pg_sys::REGPROCOID,
        pg_sys::REGPROCEDUREOID,
        pg_sys::REGOPEROID,
        pg_sys::REGOPERATOROID,
        pg_sys::REGCLASSOID,
        pg_sys::REGCOLLATIONOID,
        pg_sys::REGTYPEOID,
        pg_sys::REGROLEOID,
        pg_sys::REGNAMESPACEOID,
        pg_sys::REGCONFIGOID,
        pg_sys::REGDICTIONARYOID,
    ]
    .contains(&type_oid)
}
