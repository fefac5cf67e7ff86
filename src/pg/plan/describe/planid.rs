//! Computes the planid that views show: from the names and definitions of what a plan uses, so that the same
//! plan has the same planid on each server, and after its tables or indexes were dropped and made again.
//!
//! An index counts as what it indexes ([`definition`]), not as its name. Costs, estimates, conditions
//! and the number of workers do not count. It is computed when a plan is described: it reads catalogs, but
//! takes no lock on a relation, needs no search path, and calls nothing of others.

use super::named::operation;
use crate::pg::handles::{Handle, PlanRef, PlanStateRef, StartedQuery};
use crate::pg::plan::by_tables::{Ranks, Roots};
use crate::pg::plan::definition;
use crate::pg::plan::fold::{Shown, made_append};
use crate::pg::plan::identity::custom_name;
use crate::pg::plan::pruned;
use crate::pg::server;
use pgrx::pg_sys::{self, EState, NodeTag, Oid, Plan, RangeTblEntry};
use rowsource_core::definition::Object;
use rowsource_core::stable_hash::StableHasher;
use std::ffi::CStr;

/// More columns of a temporary table than these do not count.
const MAX_COLUMNS: pg_sys::AttrNumber = 32;

/// Returns the planid of a plan. The caller should be in a memory context of its own. Raises if a catalog
/// cannot be read.
pub fn planid<'q>(query: StartedQuery<'q>, shown: &'q Shown) -> i64 {
    let _unquoted = server::Unquoted::set();
    let not_folded = match shown.roots() {
        Some(_) => None,
        None => Roots::of(query.plan()),
    };
    let mut number = Number {
        hash: StableHasher::new(),
        ranks: Ranks::of(query.plan(), shown.roots().or(not_folded.as_ref())),
        estate: query.estate(),
        schema: None,
        tables: shown.roots(),
    };
    let mut places = shown.in_order_of_fold().filter(|place| !place.hidden);
    let Some(fold) = shown.fold else {
        for place in places {
            let plan = place.plan_state.plan();
            let flags = u8::from(place.by_expression) + 2 * u8::from(plan.async_capable);
            number.place(operation(plan).as_bytes(), u32::from(place.depth), flags);
            number.add(place.plan_state);
        }
        return number.hash.finish();
    };
    for node in fold.nodes() {
        let place = if node.is_made() { None } else { places.next() };
        let plan = place.map(|place| place.plan_state.plan());
        let operation = plan.map_or_else(|| made_append(node).to_owned(), operation);
        let is_async = plan.is_some_and(|plan| plan.async_capable);
        let flags = u8::from(node.by_expression) + 2 * u8::from(is_async);
        number.place(operation.as_bytes(), node.depth, flags);
        if let Some(place) = place {
            number.add(place.plan_state);
        }
    }
    number.hash.finish()
}

/// A planid in the making.
struct Number<'q> {
    hash: StableHasher,
    ranks: Ranks,
    estate: Handle<'q, EState>,
    /// The name of the schema that was needed last.
    schema: Option<(Oid, String)>,
    /// The tables that are named instead of their partitions, if the plan was folded.
    tables: Option<&'q Roots>,
}

impl<'q> Number<'q> {
    /// Adds what a node is called, and its place.
    fn place(&mut self, operation: &[u8], depth: u32, flags: u8) {
        self.hash.text(operation);
        self.hash.number(depth);
        self.hash.byte(flags);
    }

    /// Adds the place of an entry of the range table, or of its table, among what the statement scans.
    fn rank(&mut self, number: u32) {
        self.hash.number(self.ranks.rank(self.tables, number));
    }

    /// Adds the name of an object, if there is one with this OID.
    fn object(&mut self, object: Object, oid: Oid) {
        let name = definition::name(object, oid);
        self.hash.text(name.as_deref().unwrap_or_default().as_bytes());
    }

    /// Adds what distinguishes a node from others of its kind.
    fn add(&mut self, state: PlanStateRef<'q>) {
        let plan = state.plan();
        match plan.tag() {
            NodeTag::T_SeqScan
            | NodeTag::T_SampleScan
            | NodeTag::T_TidScan
            | NodeTag::T_TidRangeScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_ValuesScan
            | NodeTag::T_CteScan => self.scanned(plan),
            NodeTag::T_ForeignScan => {
                self.scanned(plan);
                self.hash.number(plan.cast::<pg_sys::ForeignScan>().operation);
            }
            NodeTag::T_CustomScan => {
                self.scanned(plan);
                self.hash.text(custom_name(plan).to_bytes());
            }
            NodeTag::T_FunctionScan => {
                self.scanned(plan);
                let scan = plan.cast::<pg_sys::FunctionScan>();
                for function in scan
                    .list::<pg_sys::RangeTblFunction>(|scan| &scan.functions)
                    .iter()
                {
                    let call = function.follow(|function| &function.funcexpr);
                    if let Some(call) = call.and_then(|call| call.downcast::<pg_sys::FuncExpr>()) {
                        self.object(Object::Function, call.funcid);
                    }
                }
            }
            NodeTag::T_IndexScan => {
                self.scanned(plan);
                let scan = plan.cast::<pg_sys::IndexScan>();
                self.index(state, scan.indexid);
                self.hash.number(scan.indexorderdir as u32);
            }
            NodeTag::T_IndexOnlyScan => {
                self.scanned(plan);
                let scan = plan.cast::<pg_sys::IndexOnlyScan>();
                self.index(state, scan.indexid);
                self.hash.number(scan.indexorderdir as u32);
            }
            NodeTag::T_BitmapIndexScan => {
                self.index(state, plan.cast::<pg_sys::BitmapIndexScan>().indexid);
            }
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                let join = plan.cast::<pg_sys::Join>();
                self.hash.number(join.jointype);
                self.hash.byte(u8::from(join.inner_unique));
            }
            NodeTag::T_Agg => {
                let first = plan.cast::<pg_sys::Agg>();
                self.hash.number(first.aggsplit);
                // More grouping sets are in a chain.
                let chain = first.list::<pg_sys::Agg>(|agg| &agg.chain);
                for agg in std::iter::once(first).chain(chain.iter()) {
                    self.hash.number(agg.aggstrategy);
                    self.columns_below(plan, agg.part(|agg| &agg.plan).grouping_columns()[0]);
                    for set in agg.lengths(|agg| &agg.groupingSets) {
                        self.hash.number(set as u32);
                    }
                }
            }
            NodeTag::T_Group | NodeTag::T_Unique => {
                let [columns, _] = plan.grouping_columns();
                self.columns_below(plan, columns);
            }
            NodeTag::T_WindowAgg => {
                let columns = plan.grouping_columns();
                columns
                    .iter()
                    .for_each(|columns| self.columns_below(plan, columns));
            }
            NodeTag::T_SetOp => {
                let set = plan.cast::<pg_sys::SetOp>();
                self.hash.number(set.cmd);
                self.hash.number(set.strategy);
            }
            NodeTag::T_Sort => self.sort(plan),
            NodeTag::T_IncrementalSort => {
                let sort = plan.cast::<pg_sys::IncrementalSort>();
                self.hash.number(sort.nPresortedCols as u32);
                self.sort(plan);
            }
            NodeTag::T_ModifyTable => self.entry(plan.cast::<pg_sys::ModifyTable>().nominalRelation),
            _ => {}
        }
    }

    /// Adds the keys of a sort.
    fn sort(&mut self, plan: PlanRef<'q>) {
        let keys = plan.cast::<pg_sys::Sort>().keys();
        for (at, column) in keys.columns.iter().enumerate() {
            self.column(Some(plan), *column);
            self.object(Object::Operator, keys.operators[at]);
            self.object(Object::Collation, keys.collations[at]);
            self.hash.byte(u8::from(keys.nulls_first[at]));
        }
    }

    /// Adds the columns of the rows below a node by which it groups.
    fn columns_below(&mut self, plan: PlanRef<'q>, columns: &[pg_sys::AttrNumber]) {
        self.hash.number(columns.len() as u32);
        for column in columns {
            self.column(plan.follow(|plan| &plan.lefttree), *column);
        }
    }

    /// Adds what a column of a node's rows is: the column of a table, if it comes from there as it is, or the
    /// kind and type of an expression.
    fn column(&mut self, mut below: Option<PlanRef<'q>>, mut number: pg_sys::AttrNumber) {
        // Each step goes down.
        while let Some(plan) = below {
            let columns = plan.list::<pg_sys::TargetEntry>(|plan| &plan.targetlist);
            let at = usize::try_from(number - 1).ok();
            let Some(entry) = at.and_then(|at| columns.get(at)) else {
                return self.hash.number(number as u32);
            };
            let Some(expression) = entry.follow(|entry| &entry.expr) else {
                return;
            };
            let Some(var) = expression.downcast::<pg_sys::Var>() else {
                self.hash.text(format!("{:?}", expression.tag()).as_bytes());
                // SAFETY: the function accepts each expression.
                let kind = unsafe { pg_sys::exprType(expression.node().as_ptr()) };
                return self.object(Object::Type, kind);
            };
            below = match var.varno {
                pg_sys::OUTER_VAR => match plan.tag() {
                    NodeTag::T_Append => {
                        let append = plan.cast::<pg_sys::Append>();
                        append.list::<Plan>(|append| &append.appendplans).get(0)
                    }
                    NodeTag::T_MergeAppend => {
                        let append = plan.cast::<pg_sys::MergeAppend>();
                        append.list::<Plan>(|append| &append.mergeplans).get(0)
                    }
                    _ => plan.follow(|plan| &plan.lefttree),
                },
                pg_sys::INNER_VAR => plan.follow(|plan| &plan.righttree),
                named if named > 0 => return self.named_column(named as u32, var.varattno),
                _ => return self.hash.number(var.varattno as u32),
            };
            number = var.varattno;
        }
    }

    /// Adds a column of an entry of the range table.
    fn named_column(&mut self, number: u32, column: pg_sys::AttrNumber) {
        self.rank(number);
        let Some(entry) = self.estate.entry(number) else {
            return;
        };
        if entry.relid != pg_sys::InvalidOid {
            if let Some((name, _)) = definition::column(entry.relid, column) {
                self.hash.text(name.to_bytes());
            }
        } else if let Some(name) = column_of(entry, column) {
            self.hash.text(name.to_bytes());
        }
    }

    /// Adds what a node scans.
    fn scanned(&mut self, plan: PlanRef<'q>) {
        let number = plan.cast::<pg_sys::Scan>().scanrelid;
        // If a table is joined with itself, this tells the two scans apart.
        self.rank(number);
        let table = self.tables.map(|tables| tables.root(number));
        self.entry(table.unwrap_or(number));
    }

    /// Adds the relation of an entry of the range table, or what the entry is.
    fn entry(&mut self, number: u32) {
        let Some(entry) = self.estate.entry(number) else {
            return self.hash.text(b"");
        };
        let oid = entry.relid;
        if oid == pg_sys::InvalidOid {
            return self.hash.number(entry.rtekind);
        }
        let open = self.estate.relations().get(number as usize - 1).copied();
        if let Some(relation) = open.flatten() {
            let schema = relation.class().relnamespace;
            self.relation(oid, relation.name().to_bytes(), schema, relation.is_temporary());
        } else if let Some((name, schema)) = server::name_and_schema(oid.to_u32()) {
            let name = server::to_database(&name);
            self.relation(oid, &name, schema.into(), server::is_temporary_relation(oid));
        }
    }

    /// Adds the name of a relation and its schema. A temporary one also has its columns, because sessions
    /// give the same name to different tables. The table that a REFRESH fills has the name of its view.
    fn relation(&mut self, oid: Oid, name: &[u8], schema: Oid, is_temporary: bool) {
        let refreshed = name
            .strip_prefix(b"pg_temp_")
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .and_then(|rest| rest.split('_').next()?.parse::<u32>().ok());
        if let Some(view) = refreshed.and_then(server::relation_alone) {
            self.hash.text(b"refreshed");
            return self.hash.text(&server::to_database(&view));
        }
        if is_temporary {
            self.hash.text(b"pg_temp");
            self.hash.text(name);
            return self.columns(oid);
        }
        if self.schema.as_ref().is_none_or(|(known, _)| *known != schema) {
            let name = server::schema_name(schema.to_u32());
            self.schema = Some((schema, name.unwrap_or_default()));
        }
        if let Some((_, schema)) = &self.schema {
            self.hash.text(schema.as_bytes());
        }
        self.hash.text(name);
    }

    /// Adds the columns of a temporary table.
    fn columns(&mut self, table: Oid) {
        for column in 1..=MAX_COLUMNS {
            let Some((name, kind)) = definition::column(table, column) else {
                break;
            };
            self.hash.text(name.to_bytes());
            self.object(Object::Type, kind);
        }
    }

    /// Adds the definition of the index that a node scans.
    fn index(&mut self, state: PlanStateRef, oid: Oid) {
        match state.index() {
            Some(index) => definition::add(index, &mut self.hash),
            None => {
                pruned::with_relation(oid, |index| definition::add(index, &mut self.hash));
            }
        }
    }
}

/// Returns the name of a column of an entry of the range table that is no relation.
fn column_of<'q>(entry: Handle<'q, RangeTblEntry>, column: pg_sys::AttrNumber) -> Option<&'q CStr> {
    let names = entry.follow(|entry| &entry.eref)?;
    let names = names.list::<pg_sys::String>(|names| &names.colnames);
    let name = names.get(usize::try_from(column - 1).ok()?)?;
    name.string(|name| &name.sval)
}
