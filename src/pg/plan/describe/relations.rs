//! Adds the schemas of the nodes' tables to a description. The executor has opened the tables, so the catalog
//! is read once per schema, not per table: a plan may scan 10,000 partitions of one schema.

use super::named::text;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::handles::{PlanRef, PlanStateRef, RelationRef, name};
use crate::pg::plan::aliases;
use crate::pg::plan::entries::{scanned_entry, scanned_index};
use crate::pg::plan::fold::Shown;
use crate::pg::plan::pruned;
use crate::pg::plan::tree::Found;
use crate::pg::server;
use crate::pg::server::contained::{Unlocked, contained};
use pgrx::pg_sys::{self, Index, NodeTag, Oid};
use rowsource_core::plan::{Attribute, Extent, ObjectKind, PlanNode, Rename, Renames};
use rustc_hash::FxHasher;
use std::cell::Cell;
use std::ffi::CString;
use std::hash::Hasher;

/// The most indexes that are kept as gone.
const MAX_GONE: usize = 8;

/// Adds the schemas, and the tables of index scans that have none yet. A temporary table gets no schema,
/// because each session has another one. Neither does a system catalog, which is found without it.
///
/// The nodes that are not hidden must be in the order of `nodes`. It reads catalogs, and may raise.
pub fn add(found: &[Found], nodes: &mut [PlanNode]) {
    let mut last: Option<(Oid, Option<Box<str>>)> = None;
    let shown = found.iter().filter(|place| !place.hidden);
    for (place, node) in shown.zip(nodes) {
        let Some(relation) = place.plan_state.table() else {
            continue;
        };
        if is_index_scan(place.plan_state) && node.table.is_none() {
            node.table = Some(text(relation.name()).into());
        }
        let schema = relation.class().relnamespace;
        if relation.is_temporary() || schema.to_u32() == pg_sys::PG_CATALOG_NAMESPACE {
            continue;
        }
        if last.as_ref().is_none_or(|(known, _)| *known != schema) {
            last = Some((schema, server::schema_name(schema.to_u32()).map(Into::into)));
        }
        node.schema = last.as_ref().and_then(|(_, name)| name.clone());
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
pub fn names(shown: &Shown) -> Option<u64> {
    let mut hasher = FxHasher::default();
    let roots = shown.roots();
    for ps in shown.in_order_of_fold().map(|place| place.plan_state) {
        if ps.tag() == NodeTag::T_MemoizeState {
            return None;
        }
        let is_append = matches!(ps.tag(), NodeTag::T_AppendState | NodeTag::T_MergeAppendState);
        if shown.fold.is_none() || !is_append {
            hasher.write_i32(own_disabled_nodes(ps.plan()));
        }
        let table = roots.and_then(|roots| roots.entry_of_table(ps));
        if let Some(table) = table.and_then(|table| ps.estate().entry(table)) {
            // Which partition it is does not count. All have the columns of their table.
            let oid = table.relid;
            // SAFETY: the statement is described in ExecutorStart, which holds no lock.
            let named = unsafe {
                contained(&mut Unlocked::promised(), |_| {
                    (
                        server::relation_name(oid.to_u32()),
                        pruned::with_relation(oid, columns),
                    )
                })
            };
            let (name, columns) = named.unwrap_or_default();
            hasher.write(name.unwrap_or_default().as_bytes());
            hasher.write_u64(columns.unwrap_or_default());
            continue;
        }
        for relation in [ps.table(), ps.index()].into_iter().flatten() {
            hasher.write_u32(relation.class().relnamespace.to_u32());
            hasher.write(relation.name().to_bytes_with_nul());
            hasher.write_u64(columns(relation));
        }
    }
    Some(hasher.finish())
}

/// Returns how many nodes of a plan the planner was told not to use, but for those below.
fn own_disabled_nodes(plan: PlanRef) -> i32 {
    match compat::disabled_nodes(&plan) {
        0 => 0,
        all => pruned::inputs(plan)
            .iter()
            .fold(all, |own, input| own.wrapping_sub(compat::disabled_nodes(input))),
    }
}

/// Gives the nodes that stand for partitions the name of the table, and of its index. May raise.
pub fn name_tables(shown: &Shown, nodes: &mut [PlanNode]) {
    let Some(roots) = shown.roots() else {
        return;
    };
    for node in nodes.iter_mut() {
        // Which partitions are changed is another question at each execution.
        let is_target = |it: Attribute| matches!(it, Attribute::TargetTable | Attribute::TargetAlias);
        node.attributes.retain(|(attribute, _)| !is_target(*attribute));
    }
    let Some(estate) = shown.found().first().map(|root| root.plan_state.estate()) else {
        return;
    };
    // EXPLAIN adds numbers to the aliases of partitions, and counts them for those of other tables.
    let used = aliases::used(estate, shown.found());
    let printed = aliases::numbers(estate, &used);
    let folded = aliases::numbers(estate, &roots.of_used(used.iter().copied()));
    let alias_of = |entry: Index| {
        let root = roots.root(entry);
        aliases::alias(
            estate,
            root,
            folded.get(root as usize).copied().unwrap_or_default(),
        )
    };
    let mut renames = Renames::default();
    for entry in (1..used.len()).filter(|entry| used[*entry]) {
        let from = aliases::alias(estate, entry as Index, printed[entry]);
        let to = alias_of(entry as Index);
        renames.add(Rename::new(&from, &to, server::quoted_identifier));
    }
    if renames.are_needed() {
        nodes
            .iter_mut()
            .for_each(|node| node.rename_prefixes(|alias| renames.of(alias)));
    }
    let places = shown.found().iter().filter(|place| !place.hidden);
    for (place, node) in places.zip(nodes) {
        let state = place.plan_state;
        let scanned = scanned_entry(state.plan()).filter(|entry| *entry != 0);
        let Some(entry) = scanned.or_else(|| aliases::scanned_entry(state.plan())) else {
            continue;
        };
        let table = roots.entry_of_table(state);
        let Some(table) = table.and_then(|table| estate.entry(table)) else {
            // Another table, whose alias may have a number because partitions have the same.
            if let Some(name) = node.alias_or_name().map(str::to_owned) {
                let alias = alias_of(entry);
                let is_renamed =
                    name != alias && name == aliases::alias(estate, entry, printed[entry as usize]);
                if is_renamed {
                    node.alias = None;
                    node.alias = (node.alias_or_name() != Some(&alias)).then(|| alias.into());
                }
            }
            continue;
        };
        let alias = alias_of(entry);
        let (name, schema) = server::name_and_schema(table.relid.to_u32()).unzip();
        node.alias = (name.as_ref() != Some(&alias) && node.alias_or_name().is_some()).then(|| alias.into());
        let has_schema = node.schema.is_some()
            || place.plan_state.table().is_none()
                && state.plan().tag() != NodeTag::T_BitmapIndexScan
                && !server::is_temporary_relation(table.relid);
        match scanned_index(state.plan()) {
            None => node.object_name = name,
            Some(index) => {
                let top = server::topmost_relation(index.to_u32());
                node.object_name = server::relation_alone(top).or(node.object_name.take());
                if node.table.is_some() {
                    node.table = name.map(Into::into);
                }
            }
        }
        if has_schema {
            node.schema = schema.and_then(server::schema_name).map(Into::into);
        }
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
fn columns(relation: RelationRef) -> u64 {
    // It hears of its own transaction's changes only when that is committed.
    if server::has_transaction_id() {
        return read_columns(relation);
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
    let names = read_columns(relation);
    place.set(Some((columns, names)));
    names
}

/// Reads the names of the relation's first columns.
#[cold]
#[inline(never)]
fn read_columns(relation: RelationRef) -> u64 {
    const MAX_COLUMNS: usize = 100;
    let mut hasher = FxHasher::default();
    for column in (0..MAX_COLUMNS).map_while(|at| compat::column(relation, at)) {
        hasher.write(name(&column.attname).to_bytes_with_nul());
    }
    hasher.finish()
}

/// Returns what bounds the nodes that are not hidden. Those of a folded plan have no bounds.
pub fn extents(shown: &Shown) -> Vec<Extent> {
    if shown.fold.is_some() {
        return Vec::new();
    }
    let places = shown.found().iter().filter(|place| !place.hidden);
    places.map(|place| extent(place.plan_state)).collect()
}

/// Returns what bounds a node.
fn extent(ps: PlanStateRef) -> Extent {
    match ps.tag() {
        NodeTag::T_ModifyTableState => Extent::Unknown,
        NodeTag::T_LimitState => {
            let limit = ps.plan().cast::<pg_sys::Limit>();
            let count = limit.follow(|limit| &limit.limitCount);
            let constant = count.and_then(|count| count.downcast::<pg_sys::Const>());
            let is_constant = constant.is_some_and(|constant| !constant.constisnull)
                && limit.limitOffset.is_null()
                && limit.limitOption == pg_sys::LimitOption::LIMIT_OPTION_COUNT;
            if is_constant {
                Extent::ConstantLimit
            } else {
                Extent::Unknown
            }
        }
        _ => {
            let Some(relation) = ps.table() else {
                return Extent::Unknown;
            };
            let class = relation.class();
            let is_heap = class.relam == pg_sys::HEAP_TABLE_AM_OID;
            match is_heap.then(|| blocks(relation)).flatten() {
                Some(blocks) => Extent::Table {
                    oid: relation.rd_id.to_u32(),
                    file: class.relfilenode.to_u32(),
                    blocks,
                },
                None => Extent::Unknown,
            }
        }
    }
}

/// Returns how many blocks a table has at least, or `None` if its file cannot be read.
///
/// The planner has just asked for it. Asking again would open the file of each partition: a session has fewer
/// files open than a statement may have partitions.
fn blocks(relation: RelationRef) -> Option<u32> {
    relation.known_blocks().or_else(|| {
        // The executor is about to read it. If that fails, it fails there.
        // SAFETY: the relation is open. The statement is described in ExecutorStart, which holds no lock.
        let blocks = unsafe {
            contained(&mut Unlocked::promised(), |_| {
                let main = pg_sys::ForkNumber::MAIN_FORKNUM;
                pg_sys::RelationGetNumberOfBlocksInFork(relation.as_ptr(), main)
            })
        };
        blocks.ok()
    })
}

/// Returns whether a node scans a table by an index.
fn is_index_scan(ps: PlanStateRef) -> bool {
    matches!(
        ps.tag(),
        NodeTag::T_IndexScanState | NodeTag::T_IndexOnlyScanState
    )
}
