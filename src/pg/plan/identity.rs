//! Computes the number that sessions know a plan by. It depends on the plan's nodes, on their relations and
//! indexes, and on how they are joined and in which order. It does not depend on literals, costs or text. It
//! is stable across executions and restarts of one server.
//!
//! Each execution computes it, so relations and indexes are told apart by their OIDs. The planid that views
//! show is made of names (`describe/planid.rs`), once for each of these numbers. Temporary relations get new
//! OIDs each time they are made, so they are told apart by their names and columns here too. That takes
//! longer, so it is done only in sessions that have temporary tables.

use super::temporary;
use super::tree::{Found, tag};
use pgrx::pg_sys::{self, NodeTag};

/// Returns the number of a walked plan, in a session that has temporary tables or not.
///
/// # Safety
/// `found` must come from a live plan state tree.
#[inline(always)]
pub unsafe fn by_oids(found: &[Found], has_temporary_tables: bool) -> i64 {
    // SAFETY: `found` comes from a live plan state tree, by the caller's promise.
    unsafe {
        if has_temporary_tables {
            own_id_with_temporary_tables(found)
        } else {
            own_id::<false>(found)
        }
    }
}

/// Computes pg_rowsource's number of a plan in a session that has temporary tables.
///
/// # Safety
/// `found` must be the nodes of a live, initialised plan state tree.
#[cold]
#[inline(never)]
unsafe fn own_id_with_temporary_tables(found: &[Found]) -> i64 {
    // SAFETY: the caller promises what the function requires.
    unsafe { own_id::<true>(found) }
}

/// Computes pg_rowsource's number of a plan. If `TEMPORARY`, plans of temporary tables are told apart by the
/// tables' names and columns.
///
/// # Safety
/// `found` must be the nodes of a live, initialised plan state tree.
#[inline(always)]
unsafe fn own_id<const TEMPORARY: bool>(found: &[Found]) -> i64 {
    let mut hash = 0;
    let mut add = |number| hash = mixed(hash, number);
    for place in found.iter().filter(|place| !place.hidden) {
        // SAFETY: the plan states are live by the caller's promise, and so each has a plan and an executor
        // state.
        unsafe {
            let plan = (*place.plan_state).plan;
            let flags = i64::from(place.by_expression) + 2 * i64::from((*plan).parallel_aware);
            add(tag(plan) as i64 + (flags << 16) + (i64::from(place.depth) << 32));
            details::<TEMPORARY>(place.plan_state, &mut add);
        }
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
fn mixed(hash: u64, number: i64) -> u64 {
    (hash ^ number as u64).wrapping_mul(MULTIPLIER).rotate_left(29)
}

/// Passes to `add` the values that distinguish a node from others of its kind.
///
/// # Safety
/// `state` must point to a live, initialised plan state. Its plan node's tag tells the type of both.
#[inline(always)]
unsafe fn details<const TEMPORARY: bool>(state: *mut pg_sys::PlanState, add: &mut impl FnMut(i64)) {
    // SAFETY: the plan state is live by the caller's promise, and so are its plan node and its executor
    // state. They are of the type that the plan node's tag says.
    unsafe {
        let (plan, estate) = ((*state).plan, (*state).state);
        match tag(plan) {
            NodeTag::T_SeqScan
            | NodeTag::T_SampleScan
            | NodeTag::T_TidScan
            | NodeTag::T_TidRangeScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_ForeignScan
            | NodeTag::T_CustomScan
            | NodeTag::T_FunctionScan
            | NodeTag::T_ValuesScan
            | NodeTag::T_CteScan => {
                add(scanned::<TEMPORARY>(plan, estate));
            }
            NodeTag::T_IndexScan => {
                let scan = plan.cast::<pg_sys::IndexScan>();
                add(scanned::<TEMPORARY>(plan, estate));
                let opened = || (*state.cast::<pg_sys::IndexScanState>()).iss_RelationDesc;
                let index = object::<TEMPORARY>((*scan).indexid, opened);
                add(index.wrapping_add(((*scan).indexorderdir as i64) << 32));
            }
            NodeTag::T_IndexOnlyScan => {
                let scan = plan.cast::<pg_sys::IndexOnlyScan>();
                add(scanned::<TEMPORARY>(plan, estate));
                let opened = || (*state.cast::<pg_sys::IndexOnlyScanState>()).ioss_RelationDesc;
                let index = object::<TEMPORARY>((*scan).indexid, opened);
                add(index.wrapping_add(((*scan).indexorderdir as i64) << 32));
            }
            NodeTag::T_BitmapIndexScan => {
                let opened = || (*state.cast::<pg_sys::BitmapIndexScanState>()).biss_RelationDesc;
                let index = (*plan.cast::<pg_sys::BitmapIndexScan>()).indexid;
                add(object::<TEMPORARY>(index, opened));
            }
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                let join = plan.cast::<pg_sys::Join>();
                add((*join).jointype as i64);
                add(i64::from((*join).inner_unique));
            }
            NodeTag::T_Agg => {
                let agg = plan.cast::<pg_sys::Agg>();
                add((*agg).aggstrategy as i64);
                add((*agg).aggsplit as i64);
                add(i64::from((*agg).numCols));
            }
            NodeTag::T_SetOp => {
                let set = plan.cast::<pg_sys::SetOp>();
                add((*set).cmd as i64);
                add((*set).strategy as i64);
            }
            NodeTag::T_Sort | NodeTag::T_IncrementalSort => {
                let sort = plan.cast::<pg_sys::Sort>();
                for column in 0..(*sort).numCols.max(0) as usize {
                    add(i64::from(*(*sort).sortColIdx.add(column)));
                }
            }
            NodeTag::T_ModifyTable => {
                let modify = plan.cast::<pg_sys::ModifyTable>();
                add((*modify).operation as i64);
                add(relation::<TEMPORARY>((*modify).nominalRelation, estate));
            }
            NodeTag::T_Gather => add(i64::from((*plan.cast::<pg_sys::Gather>()).num_workers)),
            NodeTag::T_GatherMerge => add(i64::from((*plan.cast::<pg_sys::GatherMerge>()).num_workers)),
            _ => {}
        }
    }
}

/// Returns a number for the relation that a node scans, and for its place in the range table, which tells the
/// two scans apart if a table is joined with itself.
///
/// # Safety
/// `plan` must point to a live scan's plan node, and `estate` to the executor state of its query.
unsafe fn scanned<const TEMPORARY: bool>(plan: *mut pg_sys::Plan, estate: *mut pg_sys::EState) -> i64 {
    // SAFETY: a scan's plan node, which the caller promises, begins with `Scan`.
    unsafe {
        let index = (*plan.cast::<pg_sys::Scan>()).scanrelid;
        relation::<TEMPORARY>(index, estate).wrapping_add(i64::from(index) << 32)
    }
}

/// Returns the OID of a relation or an index. If it is temporary, returns a number for its name and columns.
///
/// # Safety
/// `opened` must return a live relation, or null.
#[inline(always)]
unsafe fn object<const TEMPORARY: bool>(
    oid: pg_sys::Oid,
    opened: impl FnOnce() -> *mut pg_sys::RelationData,
) -> i64 {
    // SAFETY: the relation is null or live, by the caller's promise.
    let temporary = TEMPORARY
        .then(|| unsafe { temporary::number(opened()) })
        .flatten();
    temporary.unwrap_or_else(|| i64::from(oid.to_u32()))
}

/// Returns what [`object`] returns for the relation at a range table index. For an entry that is not a
/// relation, returns a number for its kind.
///
/// # Safety
/// `estate` must point to a live executor state.
unsafe fn relation<const TEMPORARY: bool>(index: pg_sys::Index, estate: *mut pg_sys::EState) -> i64 {
    // SAFETY: the executor state is live by the caller's promise, and so is its range table, a list of
    // entries. Indexes count from 1. 0 means a join that a remote server executes. The check of `at` rejects
    // it. The executor's array of relations is as long as the range table, and has null for relations that
    // are not open.
    unsafe {
        let table = (*estate).es_range_table;
        let at = (index as usize).wrapping_sub(1);
        let known = !table.is_null() && at < (*table).length as usize;
        let entry = known.then(|| {
            (*(*table).elements.add(at))
                .ptr_value
                .cast::<pg_sys::RangeTblEntry>()
        });
        match entry {
            None => -1,
            Some(entry) if (*entry).relid != pg_sys::InvalidOid => {
                object::<TEMPORARY>((*entry).relid, || *(*estate).es_relations.add(at))
            }
            Some(entry) => -2 - (*entry).rtekind as i64,
        }
    }
}
