//! Computes the planid that views show: from the names and definitions of what a plan uses, so that the same
//! plan has the same planid on each server, and after its tables or indexes were dropped and made again.
//!
//! An index counts as what it indexes ([`super::definition`]), not as its name. Costs, estimates, conditions
//! and the number of workers do not count. It is computed when a plan is described: it reads catalogs, but
//! takes no lock on a relation, needs no search path, and calls nothing of others.

use super::definition;
use super::named::operation;
use super::relations;
use crate::pg::plan::tree::{Found, list, tag};
use pgrx::pg_sys::{self, NodeTag, Oid, Plan, QueryDesc};
use rowsource_core::definition::Object;
use rowsource_core::stable_hash::StableHasher;
use std::ffi::{CStr, c_char};

/// More columns of a temporary table than these do not count.
const MAX_COLUMNS: pg_sys::AttrNumber = 32;

/// Returns the planid of a plan.
///
/// # Safety
/// * `query` must be started, and `found` must be the nodes of its plan.
/// * The caller must be in a memory context of its own. Raises if a catalog cannot be read.
pub unsafe fn planid(query: *mut QueryDesc, found: &[Found]) -> i64 {
    // SAFETY: the query is started by the caller's promise, so its plan and its state are live, and so are
    // those of its nodes.
    unsafe {
        let _unquoted = Unquoted::set();
        let mut number = Number {
            hash: StableHasher::new(),
            entries: Entries::of((*query).plannedstmt),
            estate: (*query).estate,
            schema: None,
        };
        for place in found.iter().filter(|place| !place.hidden) {
            let plan = (*place.plan_state).plan;
            number.hash.text(operation(plan).as_bytes());
            number.hash.number(u32::from(place.depth));
            number
                .hash
                .byte(u8::from(place.by_expression) + 2 * u8::from((*plan).async_capable));
            number.add(place.plan_state);
        }
        number.hash.finish()
    }
}

/// While this lives, PostgreSQL quotes only the names that need it, whatever `quote_all_identifiers` says.
struct Unquoted(bool);

impl Unquoted {
    /// Begins that.
    fn set() -> Unquoted {
        // SAFETY: this is the variable of a setting, a global of a plain type, which only this thread uses.
        unsafe {
            let before = pg_sys::quote_all_identifiers;
            pg_sys::quote_all_identifiers = false;
            Unquoted(before)
        }
    }
}

impl Drop for Unquoted {
    fn drop(&mut self) {
        // SAFETY: as in `set`.
        unsafe { pg_sys::quote_all_identifiers = self.0 };
    }
}

/// The range table of a plan.
struct Entries {
    entries: Vec<*mut pg_sys::RangeTblEntry>,
    /// For each entry the number of the one that the statement names: of a partition, that of its table.
    roots: Vec<u32>,
}

impl Entries {
    /// Reads it.
    ///
    /// # Safety
    /// `statement` must be live while the result is used.
    unsafe fn of(statement: *const pg_sys::PlannedStmt) -> Entries {
        // SAFETY: the statement is live by the caller's promise, and so are the members of its lists.
        unsafe {
            let entries: Vec<_> = list::<pg_sys::RangeTblEntry>((*statement).rtable).collect();
            let mut roots: Vec<u32> = (0..=entries.len() as u32).collect();
            // A table comes before its partitions.
            for child in list::<pg_sys::AppendRelInfo>((*statement).appendRelations) {
                let root = roots.get((*child).parent_relid as usize).copied();
                if let (Some(root), Some(place)) = (root, roots.get_mut((*child).child_relid as usize)) {
                    *place = root;
                }
            }
            Entries { entries, roots }
        }
    }

    /// Returns the number of the entry that the statement names; 0 if there is none.
    fn root(&self, number: u32) -> u32 {
        self.roots.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the entry with this number; numbers count from 1.
    fn get(&self, number: u32) -> Option<*mut pg_sys::RangeTblEntry> {
        self.entries.get((number as usize).wrapping_sub(1)).copied()
    }
}

/// A planid in the making.
struct Number {
    hash: StableHasher,
    entries: Entries,
    estate: *mut pg_sys::EState,
    /// The name of the schema that was needed last.
    schema: Option<(Oid, String)>,
}

impl Number {
    /// Adds the name of an object, if there is one with this OID.
    fn object(&mut self, object: Object, oid: Oid) {
        let name = definition::name(object, oid);
        self.hash.text(name.as_deref().unwrap_or_default().as_bytes());
    }

    /// Adds what distinguishes a node from others of its kind.
    ///
    /// # Safety
    /// `state` must point to an initialised plan state of the query, whose plan is live.
    unsafe fn add(&mut self, state: *mut pg_sys::PlanState) {
        // SAFETY: the plan state and its plan are live by the caller's promise, and each cast follows the
        // plan's tag.
        unsafe {
            let plan = (*state).plan;
            match tag(plan) {
                NodeTag::T_SeqScan
                | NodeTag::T_SampleScan
                | NodeTag::T_TidScan
                | NodeTag::T_TidRangeScan
                | NodeTag::T_BitmapHeapScan
                | NodeTag::T_ValuesScan
                | NodeTag::T_CteScan => self.scanned(plan),
                NodeTag::T_ForeignScan => {
                    self.scanned(plan);
                    self.hash.number((*plan.cast::<pg_sys::ForeignScan>()).operation);
                }
                NodeTag::T_CustomScan => {
                    self.scanned(plan);
                    let methods = (*plan.cast::<pg_sys::CustomScan>()).methods;
                    if let Some(methods) = methods.as_ref() {
                        self.hash.text(CStr::from_ptr(methods.CustomName).to_bytes());
                    }
                }
                NodeTag::T_FunctionScan => {
                    self.scanned(plan);
                    let functions = (*plan.cast::<pg_sys::FunctionScan>()).functions;
                    for function in list::<pg_sys::RangeTblFunction>(functions) {
                        let call = (*function).funcexpr.cast::<pg_sys::FuncExpr>();
                        if !call.is_null() && tag(call) == NodeTag::T_FuncExpr {
                            self.object(Object::Function, (*call).funcid);
                        }
                    }
                }
                NodeTag::T_IndexScan => {
                    self.scanned(plan);
                    let scan = &*plan.cast::<pg_sys::IndexScan>();
                    self.index(state, scan.indexid);
                    self.hash.number(scan.indexorderdir as u32);
                }
                NodeTag::T_IndexOnlyScan => {
                    self.scanned(plan);
                    let scan = &*plan.cast::<pg_sys::IndexOnlyScan>();
                    self.index(state, scan.indexid);
                    self.hash.number(scan.indexorderdir as u32);
                }
                NodeTag::T_BitmapIndexScan => {
                    self.index(state, (*plan.cast::<pg_sys::BitmapIndexScan>()).indexid);
                }
                NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                    let join = &*plan.cast::<pg_sys::Join>();
                    self.hash.number(join.jointype);
                    self.hash.byte(u8::from(join.inner_unique));
                }
                NodeTag::T_Agg => {
                    let agg = &*plan.cast::<pg_sys::Agg>();
                    self.hash.number(agg.aggsplit);
                    // More grouping sets are in a chain.
                    for agg in std::iter::once(plan).chain(list::<Plan>(agg.chain)) {
                        let agg = &*agg.cast::<pg_sys::Agg>();
                        self.hash.number(agg.aggstrategy);
                        self.columns_below(plan, agg.numCols, agg.grpColIdx);
                        for set in list::<pg_sys::List>(agg.groupingSets) {
                            // The list of the columns of `()` is null.
                            self.hash.number(set.as_ref().map_or(0, |set| set.length as u32));
                        }
                    }
                }
                NodeTag::T_Group => {
                    let group = &*plan.cast::<pg_sys::Group>();
                    self.columns_below(plan, group.numCols, group.grpColIdx);
                }
                NodeTag::T_Unique => {
                    let unique = &*plan.cast::<pg_sys::Unique>();
                    self.columns_below(plan, unique.numCols, unique.uniqColIdx);
                }
                NodeTag::T_WindowAgg => {
                    let window = &*plan.cast::<pg_sys::WindowAgg>();
                    self.columns_below(plan, window.partNumCols, window.partColIdx);
                    self.columns_below(plan, window.ordNumCols, window.ordColIdx);
                }
                NodeTag::T_SetOp => {
                    let set = &*plan.cast::<pg_sys::SetOp>();
                    self.hash.number(set.cmd);
                    self.hash.number(set.strategy);
                }
                NodeTag::T_Sort => self.sort(&*plan.cast::<pg_sys::Sort>()),
                NodeTag::T_IncrementalSort => {
                    let sort = &*plan.cast::<pg_sys::IncrementalSort>();
                    self.hash.number(sort.nPresortedCols as u32);
                    self.sort(&sort.sort);
                }
                NodeTag::T_ModifyTable => {
                    self.entry((*plan.cast::<pg_sys::ModifyTable>()).nominalRelation);
                }
                _ => {}
            }
        }
    }

    /// Adds the keys of a sort.
    ///
    /// # Safety
    /// The sort must be of the query's live plan.
    unsafe fn sort(&mut self, sort: &pg_sys::Sort) {
        // SAFETY: a sort's arrays have so many members, and its plan is live by the caller's promise.
        unsafe {
            let plan = (&raw const sort.plan).cast_mut();
            for key in 0..sort.numCols.max(0) as usize {
                self.column(plan, *sort.sortColIdx.add(key));
                self.object(Object::Operator, *sort.sortOperators.add(key));
                self.object(Object::Collation, *sort.collations.add(key));
                self.hash.byte(u8::from(*sort.nullsFirst.add(key)));
            }
        }
    }

    /// Adds the columns of the rows below a node by which it groups.
    ///
    /// # Safety
    /// `plan` must point to a live node of the query's plan, and `columns` to so many numbers.
    unsafe fn columns_below(&mut self, plan: *mut Plan, count: i32, columns: *const pg_sys::AttrNumber) {
        self.hash.number(count as u32);
        for at in 0..count.max(0) as usize {
            // SAFETY: the caller promises that there are so many, and that the node is live.
            unsafe { self.column((*plan).lefttree, *columns.add(at)) };
        }
    }

    /// Adds what a column of a node's rows is: the column of a table, if it comes from there as it is, or the
    /// kind and type of an expression.
    ///
    /// # Safety
    /// `plan` must point to a live node of the query's plan.
    unsafe fn column(&mut self, mut plan: *mut Plan, mut number: pg_sys::AttrNumber) {
        // SAFETY: the node is live by the caller's promise, and so are the nodes below it and their lists.
        // Each step goes down.
        unsafe {
            while let Some(plan_ref) = plan.as_ref() {
                let entry = usize::try_from(number - 1)
                    .ok()
                    .and_then(|at| list::<pg_sys::TargetEntry>(plan_ref.targetlist).nth(at));
                let Some(expression) = entry.map(|entry| (*entry).expr) else {
                    return self.hash.number(number as u32);
                };
                if expression.is_null() || tag(expression) != NodeTag::T_Var {
                    if !expression.is_null() {
                        self.hash.text(format!("{:?}", tag(expression)).as_bytes());
                        self.object(Object::Type, pg_sys::exprType(expression.cast()));
                    }
                    return;
                }
                let var = &*expression.cast::<pg_sys::Var>();
                let below = match var.varno {
                    pg_sys::OUTER_VAR => match tag(plan) {
                        NodeTag::T_Append => first((*plan.cast::<pg_sys::Append>()).appendplans),
                        NodeTag::T_MergeAppend => first((*plan.cast::<pg_sys::MergeAppend>()).mergeplans),
                        _ => plan_ref.lefttree,
                    },
                    pg_sys::INNER_VAR => plan_ref.righttree,
                    named => {
                        if named > 0 {
                            self.named_column(named as u32, var.varattno);
                        } else {
                            self.hash.number(var.varattno as u32);
                        }
                        return;
                    }
                };
                (plan, number) = (below, var.varattno);
            }
        }
    }

    /// Adds a column of an entry of the range table.
    ///
    /// # Safety
    /// The query's plan must be live.
    unsafe fn named_column(&mut self, number: u32, column: pg_sys::AttrNumber) {
        // SAFETY: the entry is live by the caller's promise, and its names are strings.
        unsafe {
            self.hash.number(self.entries.root(number));
            let Some(entry) = self.entries.get(number) else {
                return;
            };
            let name: *const c_char = if (*entry).relid != pg_sys::InvalidOid {
                pg_sys::get_attname((*entry).relid, column, true)
            } else {
                usize::try_from(column - 1)
                    .ok()
                    .and_then(|at| list::<pg_sys::String>((*(*entry).eref).colnames).nth(at))
                    .map_or(std::ptr::null(), |name| (*name).sval)
            };
            if !name.is_null() {
                self.hash.text(CStr::from_ptr(name).to_bytes());
            }
        }
    }

    /// Adds what a node scans.
    ///
    /// # Safety
    /// `plan` must point to a live scan of the query's plan.
    unsafe fn scanned(&mut self, plan: *mut Plan) {
        // SAFETY: a scan's plan node, which the caller promises, begins with `Scan`.
        unsafe {
            let number = (*plan.cast::<pg_sys::Scan>()).scanrelid;
            // If a table is joined with itself, this tells the two scans apart.
            self.hash.number(self.entries.root(number));
            self.entry(number);
        }
    }

    /// Adds the relation of an entry of the range table, or what the entry is.
    ///
    /// # Safety
    /// The query's plan and state must be live.
    unsafe fn entry(&mut self, number: u32) {
        // SAFETY: the entry is live by the caller's promise. The executor's array of relations is as long as
        // the range table, and has null for relations that are not open.
        unsafe {
            let Some(entry) = self.entries.get(number) else {
                return self.hash.text(b"");
            };
            let oid = (*entry).relid;
            if oid == pg_sys::InvalidOid {
                return self.hash.number((*entry).rtekind);
            }
            let open = (*self.estate).es_relations;
            let open = if open.is_null() {
                std::ptr::null_mut()
            } else {
                *open.add(number as usize - 1)
            };
            if let Some(class) = open.as_ref().map(|relation| &*relation.rd_rel) {
                let name = CStr::from_ptr(class.relname.data.as_ptr()).to_bytes();
                let is_temporary = class.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
                self.relation(oid, name, class.relnamespace, is_temporary);
            } else {
                let name = pg_sys::get_rel_name(oid);
                if !name.is_null() {
                    let is_temporary = pg_sys::get_rel_persistence(oid) as u8 == pg_sys::RELPERSISTENCE_TEMP;
                    let schema = pg_sys::get_rel_namespace(oid);
                    self.relation(oid, CStr::from_ptr(name).to_bytes(), schema, is_temporary);
                }
            }
        }
    }

    /// Adds the name of a relation and its schema. A temporary one also has its columns, because sessions
    /// give the same name to different tables. The table that a REFRESH fills has the name of its view.
    ///
    /// # Safety
    /// May raise.
    unsafe fn relation(&mut self, oid: Oid, name: &[u8], schema: Oid, is_temporary: bool) {
        let refreshed = name
            .strip_prefix(b"pg_temp_")
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .and_then(|rest| rest.split('_').next()?.parse::<u32>().ok());
        // SAFETY: the functions accept any number, and return null or C strings in the current memory
        // context.
        unsafe {
            if let Some(view) = refreshed {
                let view = pg_sys::get_rel_name(Oid::from(view));
                if !view.is_null() {
                    self.hash.text(b"refreshed");
                    return self.hash.text(CStr::from_ptr(view).to_bytes());
                }
            }
            if is_temporary {
                self.hash.text(b"pg_temp");
                self.hash.text(name);
                return self.columns(oid);
            }
            if self.schema.as_ref().is_none_or(|(known, _)| *known != schema) {
                let name = crate::pg::server::schema_name(schema.to_u32());
                self.schema = Some((schema, name.unwrap_or_default()));
            }
            if let Some((_, schema)) = &self.schema {
                self.hash.text(schema.as_bytes());
            }
            self.hash.text(name);
        }
    }

    /// Adds the columns of a temporary table.
    ///
    /// # Safety
    /// May raise.
    unsafe fn columns(&mut self, table: Oid) {
        // SAFETY: the functions accept any number. A name is null or a C string.
        unsafe {
            for column in 1..=MAX_COLUMNS {
                let name = pg_sys::get_attname(table, column, true);
                if name.is_null() {
                    break;
                }
                self.hash.text(CStr::from_ptr(name).to_bytes());
                self.object(Object::Type, pg_sys::get_atttype(table, column));
            }
        }
    }

    /// Adds the definition of the index that a node scans.
    ///
    /// # Safety
    /// `state` must point to an initialised plan state of the query.
    unsafe fn index(&mut self, state: *mut pg_sys::PlanState, oid: Oid) {
        // SAFETY: the plan state is initialised by the caller's promise, so its index is open, or null. A
        // name is null or a C string.
        unsafe {
            match relations::index(state).as_ref() {
                Some(index) => definition::add(index, &mut self.hash),
                None => {
                    let name = pg_sys::get_rel_name(oid);
                    if !name.is_null() {
                        self.hash.text(CStr::from_ptr(name).to_bytes());
                    }
                }
            }
        }
    }
}

/// Returns the first node of a list of plans; null if there is none.
///
/// # Safety
/// The list must be live, or null.
unsafe fn first(plans: *const pg_sys::List) -> *mut Plan {
    // SAFETY: the caller promises the same.
    unsafe { list::<Plan>(plans) }
        .next()
        .unwrap_or(std::ptr::null_mut())
}
