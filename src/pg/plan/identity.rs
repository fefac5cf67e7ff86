//! Computes the number that sessions know a plan by. It depends on the plan's nodes, on their relations and
//! indexes, and on how they are joined and in which order. It does not depend on literals, costs or text. It
//! is stable across executions and restarts of one server.
//!
//! Each execution computes it, so relations and indexes are told apart by their OIDs. The planid that views
//! show is made of names (`describe/planid.rs`), once for each of these numbers. Temporary relations get new
//! OIDs each time they are made, so they are told apart by their names and columns here too. That takes
//! longer, so it is done only in sessions that have temporary tables.

use super::pruned::pruned_inputs;
use super::temporary;
use super::tree::Found;
use crate::pg::handles::{Handle, PlanRef, PlanStateRef, RelationRef};
use pgrx::pg_sys::{self, EState, NodeTag};
use std::ffi::CStr;

/// Returns the number of a walked plan, in a session that has temporary tables or not.
#[inline(always)]
pub fn by_oids(found: &[Found], has_temporary_tables: bool) -> i64 {
    if has_temporary_tables {
        own_id_with_temporary_tables(found)
    } else {
        own_id::<false>(found)
    }
}

/// Computes pg_rowsource's number of a plan in a session that has temporary tables.
#[cold]
#[inline(never)]
fn own_id_with_temporary_tables(found: &[Found]) -> i64 {
    own_id::<true>(found)
}

/// Computes pg_rowsource's number of a plan. If `TEMPORARY`, plans of temporary tables are told apart by the
/// tables' names and columns.
#[inline(always)]
fn own_id<const TEMPORARY: bool>(found: &[Found]) -> i64 {
    let mut hash = 0;
    let mut add = |number| hash = mixed(hash, number);
    for place in found.iter().filter(|place| !place.hidden) {
        let plan = place.plan_state.plan();
        let flags = i64::from(place.by_expression) + 2 * i64::from(plan.parallel_aware);
        add(plan.tag() as i64 + (flags << 16) + (i64::from(place.depth) << 32));
        let state = place.plan_state;
        details(plan, state.estate(), Some(state), &ByOids::<TEMPORARY>, &mut add);
    }
    // Copies differences in the high bits to the low bits.
    (hash ^ (hash >> 32)).wrapping_mul(MULTIPLIER) as i64
}

/// The bits of the golden ratio, as an odd number.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number into a hash.
///
/// It is fast, not strong, because it only has to tell the plans of one statement apart. No library is used,
/// because equally fast libraries do not promise that their results never change.
#[inline(always)]
pub(super) fn mixed(hash: u64, number: i64) -> u64 {
    (hash ^ number as u64).wrapping_mul(MULTIPLIER).rotate_left(29)
}

/// How the relations and indexes of nodes are told apart.
pub(super) trait Numbers {
    /// Returns a number for what a node scans.
    fn scanned(&self, plan: PlanRef, estate: Handle<EState>) -> i64;

    /// Returns a number for the index that a node scans, which has this OID.
    fn index(
        &self,
        plan: PlanRef,
        estate: Handle<EState>,
        state: Option<PlanStateRef>,
        oid: pg_sys::Oid,
    ) -> i64;

    /// Returns a number for the inputs of an Append or a MergeAppend that were pruned when the statement
    /// started; 0 if there are none.
    fn pruned(&self, state: Option<PlanStateRef>) -> i64;

    /// Returns a number for the relation at a range table index.
    fn relation(&self, index: pg_sys::Index, estate: Handle<EState>) -> i64;
}

/// By their OIDs. If `TEMPORARY`, those of temporary relations are their names and columns.
struct ByOids<const TEMPORARY: bool>;

impl<const TEMPORARY: bool> Numbers for ByOids<TEMPORARY> {
    #[inline(always)]
    fn scanned(&self, plan: PlanRef, estate: Handle<EState>) -> i64 {
        scanned::<TEMPORARY>(plan, estate)
    }

    #[inline(always)]
    fn index(
        &self,
        _plan: PlanRef,
        _estate: Handle<EState>,
        state: Option<PlanStateRef>,
        oid: pg_sys::Oid,
    ) -> i64 {
        object::<TEMPORARY>(oid, || state?.index())
    }

    /// A generic plan and one whose partitions the planner has pruned may have the same states. Their
    /// partitions may be read in other ways, which the costs tell.
    #[inline(always)]
    fn pruned(&self, state: Option<PlanStateRef>) -> i64 {
        let pruned = state.map_or(0, pruned_inputs) as i64;
        let cost = state.map_or(0.0, |state| state.plan().total_cost);
        if pruned == 0 {
            0
        } else {
            pruned ^ cost.to_bits() as i64
        }
    }

    #[inline(always)]
    fn relation(&self, index: pg_sys::Index, estate: Handle<EState>) -> i64 {
        relation::<TEMPORARY>(index, estate)
    }
}

/// Passes to `add` the values that distinguish a node from others of its kind.
#[inline(always)]
pub(super) fn details(
    plan: PlanRef,
    estate: Handle<EState>,
    state: Option<PlanStateRef>,
    numbers: &impl Numbers,
    add: &mut impl FnMut(i64),
) {
    match plan.tag() {
        NodeTag::T_SeqScan
        | NodeTag::T_SampleScan
        | NodeTag::T_TidScan
        | NodeTag::T_TidRangeScan
        | NodeTag::T_BitmapHeapScan
        | NodeTag::T_FunctionScan
        | NodeTag::T_ValuesScan
        | NodeTag::T_CteScan => {
            add(numbers.scanned(plan, estate));
        }
        NodeTag::T_ForeignScan => {
            add(numbers.scanned(plan, estate));
            let operation = plan.cast::<pg_sys::ForeignScan>().operation as i64;
            add(operation + (i64::from(plan.async_capable) << 8));
        }
        NodeTag::T_CustomScan => {
            add(numbers.scanned(plan, estate));
            let name = custom_name(plan).to_bytes();
            add(name.iter().fold(0, |hash, byte| mixed(hash, i64::from(*byte))) as i64);
        }
        NodeTag::T_IndexScan => {
            let scan = plan.cast::<pg_sys::IndexScan>();
            add(numbers.scanned(plan, estate));
            let index = numbers.index(plan, estate, state, scan.indexid);
            add(index.wrapping_add((scan.indexorderdir as i64) << 32));
        }
        NodeTag::T_IndexOnlyScan => {
            let scan = plan.cast::<pg_sys::IndexOnlyScan>();
            add(numbers.scanned(plan, estate));
            let index = numbers.index(plan, estate, state, scan.indexid);
            add(index.wrapping_add((scan.indexorderdir as i64) << 32));
        }
        NodeTag::T_BitmapIndexScan => {
            let scan = plan.cast::<pg_sys::BitmapIndexScan>();
            add(numbers.index(plan, estate, state, scan.indexid));
        }
        NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
            let join = plan.cast::<pg_sys::Join>();
            add(join.jointype as i64);
            add(i64::from(join.inner_unique));
        }
        NodeTag::T_Agg => {
            let agg = plan.cast::<pg_sys::Agg>();
            add(agg.aggstrategy as i64);
            add(agg.aggsplit as i64);
            add(i64::from(agg.numCols));
        }
        NodeTag::T_SetOp => {
            let set = plan.cast::<pg_sys::SetOp>();
            add(set.cmd as i64);
            add(set.strategy as i64);
        }
        NodeTag::T_Sort | NodeTag::T_IncrementalSort => {
            let keys = plan.cast::<pg_sys::Sort>().keys();
            keys.columns.iter().for_each(|column| add(i64::from(*column)));
        }
        NodeTag::T_ModifyTable => {
            let modify = plan.cast::<pg_sys::ModifyTable>();
            add(modify.operation as i64);
            add(numbers.relation(modify.nominalRelation, estate));
        }
        NodeTag::T_Append | NodeTag::T_MergeAppend => match numbers.pruned(state) {
            0 => {}
            pruned => add(pruned),
        },
        NodeTag::T_Gather => add(i64::from(plan.cast::<pg_sys::Gather>().num_workers)),
        NodeTag::T_GatherMerge => add(i64::from(plan.cast::<pg_sys::GatherMerge>().num_workers)),
        _ => {}
    }
}

/// Returns the name of a custom scan.
pub(super) fn custom_name(plan: PlanRef<'_>) -> &CStr {
    let methods = plan.cast::<pg_sys::CustomScan>().methods;
    // SAFETY: a custom scan has functions and a name, which belong to its library.
    unsafe { CStr::from_ptr((*methods).CustomName) }
}

/// Returns a number for the relation that a node scans, and for its place in the range table, which tells the
/// two scans apart if a table is joined with itself.
#[inline(always)]
fn scanned<const TEMPORARY: bool>(plan: PlanRef, estate: Handle<EState>) -> i64 {
    let index = plan.cast::<pg_sys::Scan>().scanrelid;
    relation::<TEMPORARY>(index, estate).wrapping_add(i64::from(index) << 32)
}

/// Returns the OID of a relation or an index. If it is temporary, returns a number for its name and columns.
#[inline(always)]
fn object<'q, const TEMPORARY: bool>(
    oid: pg_sys::Oid,
    opened: impl FnOnce() -> Option<RelationRef<'q>>,
) -> i64 {
    let temporary = TEMPORARY.then(|| opened().and_then(temporary::number)).flatten();
    temporary.unwrap_or_else(|| i64::from(oid.to_u32()))
}

/// Returns what [`object`] returns for the relation at a range table index. For an entry that is not a
/// relation, returns a number for its kind.
fn relation<const TEMPORARY: bool>(index: pg_sys::Index, estate: Handle<EState>) -> i64 {
    // 0 means a join that a remote server executes: there is no entry for it.
    match estate.entry(index) {
        None => -1,
        Some(entry) if entry.relid != pg_sys::InvalidOid => {
            let opened = || estate.relations().get(index as usize - 1).copied().flatten();
            object::<TEMPORARY>(entry.relid, opened)
        }
        Some(entry) => -2 - entry.rtekind as i64,
    }
}
