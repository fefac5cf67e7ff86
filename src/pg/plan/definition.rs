//! What an index indexes, as a part of a planid: its table's columns or expressions, its access method,
//! operator classes and their parameters, collations, order, uniqueness, INCLUDE and predicate. Its name, and
//! how it is stored, do not count.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::handles::{RelationRef, name as name_of};
use crate::pg::{compat, server};
use pgrx::pg_sys::{self, Oid};
use rowsource_core::definition::{self, Names, Object};
use rowsource_core::stable_hash::StableHasher;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

/// Adds the definition of an index. The caller should be in a memory context of its own. Raises if a catalog
/// cannot be read.
pub fn add(index: RelationRef, hash: &mut StableHasher) {
    if index.rd_index.is_null() {
        return;
    }
    // SAFETY: an open index has its rows of pg_class and pg_index, and arrays with a member for each key. The
    // text of an attribute is copied into the current memory context.
    unsafe {
        let row = &*index.rd_index;
        let table = Table(row.indrelid);
        let method = pg_sys::get_am_name(index.class().relam);
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
                let options = pg_sys::get_attoptions(row.indexrelid, column as i16 + 1);
                if !options.is_null() {
                    let options = pg_sys::OidOutputFunctionCall(pg_sys::F_ARRAY_OUT.into(), options);
                    hash.text(CStr::from_ptr(options).to_bytes());
                }
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

/// Returns a number for what an index indexes. It is the same for indexes that are alike, on each server and
/// major. It reads a catalog only if an index is no B-tree, has expressions or a predicate, or uses
/// operators, types or collations that are not built in. May raise.
pub fn number(index: RelationRef, table: RelationRef) -> i64 {
    let mut hash = StableHasher::new();
    // SAFETY: an open index has its rows of pg_class and pg_index, and arrays with a member for each key.
    unsafe {
        let row = &*index.rd_index;
        let columns = std::slice::from_raw_parts(row.indkey.values.as_ptr(), row.indnatts.max(0) as usize);
        let predicate = pg_sys::Anum_pg_index_indpred as i32;
        let is_built_in = |oid: Oid| oid.to_u32() < pg_sys::FirstGenbkiObjectId;
        let is_plain = index.class().relam == pg_sys::BTREE_AM_OID
            && !columns.contains(&0)
            && (0..row.indnkeyatts.max(0) as usize).all(|at| {
                is_built_in(*index.rd_opfamily.add(at))
                    && is_built_in(*index.rd_opcintype.add(at))
                    && is_built_in(*index.rd_indcollation.add(at))
            })
            && pg_sys::heap_attisnull(index.rd_indextuple, predicate, std::ptr::null_mut());
        if !is_plain {
            add(index, &mut hash);
            return hash.finish();
        }
        hash.byte(u8::from(row.indisunique));
        hash.number(row.indnkeyatts as u32);
        for (at, column) in columns.iter().enumerate() {
            let column = usize::try_from(column - 1).ok();
            if let Some(column) = column.and_then(|column| compat::column(table, column)) {
                hash.text(name_of(&column.attname).to_bytes());
            }
            if at < row.indnkeyatts as usize {
                hash.number((*index.rd_opfamily.add(at)).to_u32());
                hash.number((*index.rd_opcintype.add(at)).to_u32());
                hash.number((*index.rd_indcollation.add(at)).to_u32());
                hash.number(*index.rd_indoption.add(at) as u32);
            }
        }
    }
    hash.finish()
}

/// The numbers of indexes, by their OIDs. Each set of partitions that a prepared statement leaves is folded
/// with all that it prunes, so the same indexes come again and again.
struct Known {
    /// How many changes of catalogs the session had heard of.
    changes: u64,
    numbers: FxHashMap<Oid, i64>,
}

/// The most indexes whose numbers are kept: about 400 kB.
const MAX_KNOWN: usize = 8_192;

static KNOWN: BackendLocal<RefCell<Known>> = BackendLocal::new(RefCell::new(Known {
    changes: 0,
    numbers: HashMap::with_hasher(FxBuildHasher),
}));

/// Returns the [`number`] of an index: that which is kept, or the one that `find` finds. May raise.
pub fn known_number(index: Oid, find: impl FnOnce() -> Option<i64>) -> Option<i64> {
    // A transaction does not hear of its own changes.
    if server::has_transaction_id() {
        return find();
    }
    let changes = server::catalog_changes();
    let mut known = KNOWN.borrow_mut();
    if known.changes != changes {
        known.numbers.clear();
        known.changes = changes;
    }
    if let Some(number) = known.numbers.get(&index) {
        return Some(*number);
    }
    drop(known);
    let number = find()?;
    let mut known = KNOWN.borrow_mut();
    // Finding it may have opened relations, and so heard of changes.
    let is_of_today = known.changes == server::catalog_changes();
    if is_of_today && known.numbers.len() < MAX_KNOWN && known.numbers.try_reserve(1).is_ok() {
        known.numbers.insert(index, number);
    }
    Some(number)
}

/// Returns the name and the type of a column of a table. Returns `None` if there is none with this number.
/// May raise.
pub fn column(table: Oid, number: i16) -> Option<(CString, Oid)> {
    // SAFETY: the functions accept any number. A name is null or a C string in the current memory context.
    unsafe {
        let name = pg_sys::get_attname(table, number, true);
        (!name.is_null()).then(|| {
            let name = CStr::from_ptr(name).to_owned();
            (name, pg_sys::get_atttype(table, number))
        })
    }
}

/// Adds a text, or that there is none.
fn text(text: Option<&str>, hash: &mut StableHasher) {
    hash.text(text.unwrap_or_default().as_bytes());
}

/// Returns the name of an object, with its schema and the types of its arguments. Returns `None` if there is
/// none with this OID.
pub fn name(object: Object, oid: Oid) -> Option<String> {
    let class = match object {
        Object::Operator => pg_sys::OperatorRelationId,
        Object::Function => pg_sys::ProcedureRelationId,
        Object::Type => pg_sys::TypeRelationId,
        Object::Collation => pg_sys::CollationRelationId,
        Object::Column => return None,
    };
    identity(class, oid)
}

/// Returns PostgreSQL's name of an object of a class that has names, which does not depend on the search
/// path. May raise.
fn identity(class: Oid, oid: Oid) -> Option<String> {
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
        column(self.0, number).map(|(name, _)| name.to_string_lossy().into_owned())
    }
}

impl Names for Table {
    fn name(&self, object: Object, number: u32) -> Option<String> {
        match object {
            Object::Column => self.column(i16::try_from(number).ok()?),
            _ => name(object, Oid::from(number)),
        }
    }

    fn constant(&self, type_oid: u32, bytes: &[u8], hash: &mut StableHasher) {
        let own = Oid::from(type_oid);
        // SAFETY: the functions accept any type.
        let (element, is_row, is_enum) = unsafe {
            let element = pg_sys::get_element_type(own);
            let value = if element == pg_sys::InvalidOid {
                own
            } else {
                element
            };
            (element, pg_sys::type_is_rowtype(own), pg_sys::type_is_enum(value))
        };
        let values = match element {
            pg_sys::InvalidOid => Values::of(own, is_enum, 0),
            element => Values::of(element, is_enum, elements_at(bytes)),
        };
        for (i, part) in bytes.chunks(4).enumerate() {
            let oid = part.try_into().map_or(0, u32::from_le_bytes);
            // Arrays, ranges and rows begin with the OID of a type, whose name is known.
            let is_known =
                i < 4 && oid >= pg_sys::FirstNormalObjectId && [own, element].contains(&oid.into());
            if oid != 0 && values.are_oids && 4 * i >= values.begin_at {
                if values.are_labels {
                    hash.text(label(oid).to_bytes());
                }
            } else if !(is_known || is_row && i == TYPMOD_OF_ROW) {
                hash.bytes(part.iter().copied());
            }
        }
    }
}

/// Where a row has a number that differs each time, in words.
const TYPMOD_OF_ROW: usize = 1;

/// What the bytes of a constant are.
struct Values {
    /// They are the OIDs of objects, or of labels of an enum.
    are_oids: bool,
    are_labels: bool,
    /// Where the values begin.
    begin_at: usize,
}

impl Values {
    /// Returns what values of a type are.
    fn of(type_oid: Oid, are_labels: bool, begin_at: usize) -> Values {
        Values {
            are_oids: are_labels || is_alias_of_oid(type_oid),
            are_labels,
            begin_at,
        }
    }
}

/// Returns where the elements of an array begin, which is stored with these bytes.
fn elements_at(bytes: &[u8]) -> usize {
    let word = |at: usize| {
        let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word) as usize)
    };
    match word(8) {
        // There are no NULLs: the elements follow the sizes and the bounds of the dimensions.
        0 => 16 + 8 * word(4),
        at => at,
    }
}

/// Returns the label of an enum with this OID.
fn label(oid: u32) -> &'static CStr {
    // SAFETY: the function of the cast is PostgreSQL's own. It returns a C string in the current memory
    // context, or raises.
    unsafe {
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(
            pg_sys::F_ENUM_OUT.into(),
            pg_sys::Datum::from(oid),
        ))
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
