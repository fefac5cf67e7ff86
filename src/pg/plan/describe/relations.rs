//! Adds the schemas of the nodes' tables to a description. The executor has opened the tables, so the catalog
//! is read once per schema, not per table: a plan may scan 10,000 partitions of one schema.

use super::named::text;
use crate::pg::compat;
use crate::pg::plan::tree::{Found, tag};
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::{Unlocked, contained};
use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, NodeTag, Oid, PlanState};
use rowsource_core::plan::{Extent, ObjectKind, PlanNode};
use rustc_hash::FxHasher;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::hash::Hasher;

/// The most indexes that are kept as gone.
const MAX_GONE: usize = 8;

/// Adds the schemas, and the tables of index scans that have none yet. A temporary table gets no schema,
/// because each session has another one. Neither does a system catalog, which is found without it.
///
/// # Safety
/// `found` must be the initialised nodes of a started query, which keeps its relations open. The nodes that
/// are not hidden must be in the order of `nodes`.
pub unsafe fn add(found: &[Found], nodes: &mut [PlanNode]) {
    let mut last: Option<(Oid, Option<Box<str>>)> = None;
    let shown = found.iter().filter(|place| !place.hidden);
    for (place, node) in shown.zip(nodes) {
        // SAFETY: the plan state is initialised and its relation is open, by the caller's promise.
        unsafe {
            let relation = table(place.plan_state);
            if relation.is_null() {
                continue;
            }
            let class = (*relation).rd_rel;
            if is_index_scan(place.plan_state) && node.table.is_none() {
                let name = &raw const (*class).relname.data;
                node.table = Some(text(CStr::from_ptr(name.cast::<c_char>())).into());
            }
            let schema = (*class).relnamespace;
            let is_temporary = (*class).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
            if is_temporary || schema.to_u32() == pg_sys::PG_CATALOG_NAMESPACE {
                continue;
            }
            if last.as_ref().is_none_or(|(known, _)| *known != schema) {
                last = Some((schema, server::schema_name(schema.to_u32()).map(Into::into)));
            }
            node.schema = last.as_ref().and_then(|(_, name)| name.clone());
        }
    }
}

/// Returns the indexes of another plan of the query that are gone, as `schema.index`: at most [`MAX_GONE`].
/// Those of temporary tables and system catalogs do not count.
pub fn gone_indexes(nodes: &[PlanNode]) -> Vec<String> {
    let mut gone = Vec::new();
    for node in nodes.iter().filter(|node| node.object_kind == ObjectKind::Index) {
        // Who reads a bitmap has the schema.
        let mut reader = Some(node);
        while let Some(below) = reader.filter(|node| {
            node.schema.is_none()
                && node.operation.starts_with("Bitmap")
                && !node.operation.ends_with("Heap Scan")
        }) {
            reader = below.parent.and_then(|parent| nodes.get(parent));
        }
        let schema = reader.and_then(|reader| reader.schema.as_deref());
        if let Some((schema, index)) = schema.zip(node.object_name.as_deref())
            && !has_relation(schema, index)
        {
            let name = [schema, index].map(server::quoted_identifier).join(".");
            if !gone.contains(&name) {
                gone.push(name);
            }
            if gone.len() == MAX_GONE {
                break;
            }
        }
    }
    gone
}

/// Returns whether there is a relation with this name.
fn has_relation(schema: &str, name: &str) -> bool {
    let names = [schema, name].map(|name| CString::new(server::to_database(name)));
    let [Ok(schema), Ok(name)] = names else {
        return false;
    };
    // SAFETY: the functions take C strings in the database's encoding. They may raise, which the caller of
    // `gone_indexes` contains.
    unsafe {
        let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        schema != Oid::INVALID && pg_sys::get_relname_relid(name.as_ptr(), schema) != Oid::INVALID
    }
}

/// Returns a number that changes with what a description shows and neither the text nor the plan's identity
/// tells: the names of tables, columns, indexes and their schemas, and whether a node is disabled. Returns
/// `None` if it shows numbers of the planner's.
///
/// # Safety
/// The same as for [`add`].
pub unsafe fn names(found: &[Found]) -> Option<u64> {
    let mut hasher = FxHasher::default();
    for place in found {
        // SAFETY: the plan state is initialised and its relations are open, by the caller's promise.
        unsafe {
            let ps = place.plan_state;
            if tag(ps) == NodeTag::T_MemoizeState {
                return None;
            }
            hasher.write_i32(compat::disabled_nodes((*ps).plan));
            for relation in [table(ps), index(ps)] {
                if let Some(relation) = relation.as_ref() {
                    add_names(relation, &mut hasher);
                }
            }
        }
    }
    Some(hasher.finish())
}

/// Adds the names of a relation, of its schema and of its first columns.
///
/// # Safety
/// `relation` must be open.
unsafe fn add_names(relation: &pg_sys::RelationData, hasher: &mut FxHasher) {
    // SAFETY: the relation is open by the caller's promise, so it has its entry. A name is a C string.
    unsafe {
        let class = &*relation.rd_rel;
        hasher.write_u32(class.relnamespace.to_u32());
        hasher.write(CStr::from_ptr(class.relname.data.as_ptr()).to_bytes_with_nul());
        hasher.write_u64(columns(relation));
    }
}

/// Which columns a relation has, as far as the session can tell without looking at them.
#[derive(Clone, Copy, PartialEq)]
struct Columns {
    relation: u32,
    /// How many changes of catalogs the session had heard of.
    heard: u64,
}

/// The number of relations whose columns are remembered. A relation has one place only.
const PLACES: usize = 64;

/// Columns that the session has looked at, and the number of their names.
type Known = Option<(Columns, u64)>;

static KNOWN: BackendLocal<[Cell<Known>; PLACES]> = BackendLocal::new([const { Cell::new(None) }; PLACES]);

/// Returns a number that changes with the names of the relation's first columns.
///
/// # Safety
/// `relation` must be open.
unsafe fn columns(relation: &pg_sys::RelationData) -> u64 {
    // It hears of its own transaction's changes only when that is committed.
    if server::has_transaction_id() {
        // SAFETY: the caller promises the same.
        return unsafe { read_columns(relation) };
    }
    let columns = Columns {
        relation: relation.rd_id.to_u32(),
        heard: server::catalog_changes(),
    };
    let place = &KNOWN.inner()[columns.relation as usize % PLACES];
    if let Some((known, names)) = place.get()
        && known == columns
    {
        return names;
    }
    // SAFETY: the caller promises the same.
    let names = unsafe { read_columns(relation) };
    place.set(Some((columns, names)));
    names
}

/// Reads the names of the relation's first columns.
///
/// # Safety
/// `relation` must be open.
#[cold]
#[inline(never)]
unsafe fn read_columns(relation: &pg_sys::RelationData) -> u64 {
    const MAX_COLUMNS: usize = 100;
    let mut hasher = FxHasher::default();
    // SAFETY: the relation is open by the caller's promise, so it has its descriptor. A name is a C string.
    unsafe {
        let columns = PgTupleDesc::from_pg_unchecked(relation.rd_att);
        for column in columns.iter().take(MAX_COLUMNS) {
            hasher.write(CStr::from_ptr(column.attname.data.as_ptr()).to_bytes_with_nul());
        }
    }
    hasher.finish()
}

/// Returns the index that a node scans; null if there is none.
///
/// # Safety
/// `ps` must point to an initialised plan state of a started query.
pub(super) unsafe fn index(ps: *mut PlanState) -> pg_sys::Relation {
    // SAFETY: the plan state is of the type that its tag says, by the caller's promise.
    unsafe {
        match tag(ps) {
            NodeTag::T_IndexScanState => (*ps.cast::<pg_sys::IndexScanState>()).iss_RelationDesc,
            NodeTag::T_IndexOnlyScanState => (*ps.cast::<pg_sys::IndexOnlyScanState>()).ioss_RelationDesc,
            NodeTag::T_BitmapIndexScanState => (*ps.cast::<pg_sys::BitmapIndexScanState>()).biss_RelationDesc,
            _ => std::ptr::null_mut(),
        }
    }
}

/// Returns what bounds the nodes that are not hidden.
///
/// # Safety
/// The same as for [`add`].
pub unsafe fn extents(found: &[Found]) -> Vec<Extent> {
    let shown = found.iter().filter(|place| !place.hidden);
    // SAFETY: the plan states are initialised, by the caller's promise.
    shown.map(|place| unsafe { extent(place.plan_state) }).collect()
}

/// Returns what bounds a node.
///
/// # Safety
/// `ps` must point to an initialised plan state of a started query.
unsafe fn extent(ps: *mut PlanState) -> Extent {
    // SAFETY: the plan state is of the type that its tag says, and has its plan. An expression begins with
    // its tag.
    unsafe {
        match tag(ps) {
            NodeTag::T_ModifyTableState => Extent::Unknown,
            NodeTag::T_LimitState => {
                let limit = &*(*ps).plan.cast::<pg_sys::Limit>();
                let count = limit.limitCount.cast::<pg_sys::Const>();
                let is_constant = !count.is_null()
                    && tag(count) == NodeTag::T_Const
                    && !(*count).constisnull
                    && limit.limitOffset.is_null()
                    && limit.limitOption == pg_sys::LimitOption::LIMIT_OPTION_COUNT;
                if is_constant {
                    Extent::ConstantLimit
                } else {
                    Extent::Unknown
                }
            }
            _ => {
                let relation = table(ps);
                if relation.is_null() {
                    return Extent::Unknown;
                }
                let class = &*(*relation).rd_rel;
                let is_heap = class.relam == pg_sys::HEAP_TABLE_AM_OID;
                // The executor is about to read it. If that fails, it fails there.
                let blocks = is_heap.then(|| {
                    contained(Unlocked::promised(), || {
                        pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM)
                    })
                });
                match blocks {
                    Some(Ok(blocks)) => Extent::Table {
                        oid: (*relation).rd_id.to_u32(),
                        file: class.relfilenode.to_u32(),
                        blocks,
                    },
                    _ => Extent::Unknown,
                }
            }
        }
    }
}

/// Returns whether a node scans a table by an index.
///
/// # Safety
/// `ps` must point to an initialised plan state.
unsafe fn is_index_scan(ps: *mut PlanState) -> bool {
    // SAFETY: the plan state begins with its tag.
    let kind = unsafe { tag(ps) };
    matches!(kind, NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState)
}

/// Returns the table that a node scans or changes; null if there is none.
///
/// # Safety
/// `ps` must point to an initialised plan state of a started query.
unsafe fn table(ps: *mut PlanState) -> pg_sys::Relation {
    // SAFETY: the plan state is of the type that its tag says, by the caller's promise.
    unsafe {
        match tag(ps) {
            NodeTag::T_IndexScanState
            | NodeTag::T_IndexOnlyScanState
            | NodeTag::T_SeqScanState
            | NodeTag::T_SampleScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_TidRangeScanState
            | NodeTag::T_ForeignScanState
            | NodeTag::T_CustomScanState => (*ps.cast::<pg_sys::ScanState>()).ss_currentRelation,
            NodeTag::T_ModifyTableState => {
                let root = (*ps.cast::<pg_sys::ModifyTableState>()).rootResultRelInfo;
                if root.is_null() {
                    return std::ptr::null_mut();
                }
                (*root).ri_RelationDesc
            }
            _ => std::ptr::null_mut(),
        }
    }
}
