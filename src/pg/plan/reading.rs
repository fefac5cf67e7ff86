//! Tells how far the nodes of a plan read each other, so that `rowsource_core::plan::may_stop_early` can
//! decide whose rows say something about the planner's estimates.

use super::tree::{Found, list, tag};
use pgrx::pg_sys::{self, JoinType, NodeTag, PlanState, SubLinkType};
use rowsource_core::plan::{Link, Read, may_stop_early};
use rustc_hash::FxHashMap;

/// Returns for each node whether it may be stopped before its last row.
///
/// # Safety
/// `found` must be the nodes of an initialised plan.
pub unsafe fn stopped_early(found: &[Found]) -> Vec<(bool, bool)> {
    // SAFETY: the nodes are initialised by the caller's promise.
    unsafe {
        let subplans = subplans(found);
        let mut links: Vec<Link> = found.iter().map(|node| link(node, found, &subplans)).collect();
        let may_stop = may_stop_early(&links);
        if let Some(root) = links.first_mut() {
            root.read = Read::MayStop;
        }
        may_stop.into_iter().zip(may_stop_early(&links)).collect()
    }
}

/// Returns how far each InitPlan and subplan is read, by the address of its root.
///
/// # Safety
/// `found` must be the nodes of an initialised plan.
unsafe fn subplans(found: &[Found]) -> FxHashMap<usize, Read> {
    let mut subplans = FxHashMap::default();
    for node in found {
        let ps = node.plan_state;
        // SAFETY: the nodes and their lists are initialised by the caller's promise.
        unsafe {
            for sub in list::<pg_sys::SubPlanState>((*ps).initPlan) {
                subplans.insert((*sub).planstate as usize, read_of_init_plan(sub));
            }
            for sub in list::<pg_sys::SubPlanState>((*ps).subPlan) {
                let read = read_of_subplan(sub);
                subplans.entry((*sub).planstate as usize).or_insert(read);
            }
        }
    }
    subplans
}

/// Returns how far an InitPlan is read.
///
/// # Safety
/// `sub` must point to an initialised subplan state.
unsafe fn read_of_init_plan(sub: *const pg_sys::SubPlanState) -> Read {
    // SAFETY: the state is initialised by the caller's promise, so it has its expression.
    unsafe {
        let subplan = &*(*sub).subplan;
        match subplan.subLinkType {
            SubLinkType::EXISTS_SUBLINK => Read::MayStop,
            SubLinkType::CTE_SUBLINK => {
                let root = (*sub).planstate;
                // The executor completes a modifying CTE at the end.
                let modifies = !root.is_null() && tag(root) == NodeTag::T_ModifyTableState;
                if modifies {
                    Read::ToEnd
                } else {
                    Read::LikeScansOf(subplan.plan_id)
                }
            }
            _ => Read::ToEnd,
        }
    }
}

/// Returns how far a subplan is read each time.
///
/// # Safety
/// `sub` must point to an initialised subplan state.
unsafe fn read_of_subplan(sub: *const pg_sys::SubPlanState) -> Read {
    // SAFETY: the state is initialised by the caller's promise, so it has its expression.
    let subplan = unsafe { &*(*sub).subplan };
    match subplan.subLinkType {
        SubLinkType::ANY_SUBLINK if subplan.useHashTable => Read::ToEnd,
        SubLinkType::EXISTS_SUBLINK | SubLinkType::ANY_SUBLINK | SubLinkType::ALL_SUBLINK => Read::MayStop,
        _ => Read::ToEnd,
    }
}

/// Returns how a node is connected with the others.
///
/// # Safety
/// `node` must be one of `found`, which must be the nodes of an initialised plan.
unsafe fn link(node: &Found, found: &[Found], subplans: &FxHashMap<usize, Read>) -> Link {
    let ps = node.plan_state;
    let parent = usize::try_from(node.parent).ok();
    // SAFETY: the nodes are initialised by the caller's promise. Each cast follows a tag.
    unsafe {
        let read = match parent.and_then(|parent| found.get(parent)) {
            None => Read::LikeParent,
            Some(_) if node.by_expression => subplans.get(&(ps as usize)).copied().unwrap_or(Read::MayStop),
            Some(parent) => read_by(parent.plan_state, ps),
        };
        let scans =
            (tag(ps) == NodeTag::T_CteScanState).then(|| (*(*ps).plan.cast::<pg_sys::CteScan>()).ctePlanId);
        Link { parent, read, scans }
    }
}

/// Returns how far a node reads one of its inputs.
///
/// # Safety
/// `reader` must point to an initialised plan state, and `input` to an input of it.
unsafe fn read_by(reader: *mut PlanState, input: *mut PlanState) -> Read {
    // SAFETY: the plan state is initialised by the caller's promise, so it has its plan. Each cast follows
    // the tag.
    unsafe {
        let plan = (*reader).plan;
        let is_inner = (*reader).righttree == input;
        match tag(reader) {
            NodeTag::T_LimitState => Read::MayStop,
            NodeTag::T_SortState
            | NodeTag::T_HashState
            | NodeTag::T_ModifyTableState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_BitmapAndState
            | NodeTag::T_BitmapOrState => Read::ToEnd,
            NodeTag::T_AggState => match (*plan.cast::<pg_sys::Agg>()).aggstrategy {
                pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_HASHED => Read::ToEnd,
                _ => Read::LikeParent,
            },
            NodeTag::T_SetOpState => match (*plan.cast::<pg_sys::SetOp>()).strategy {
                pg_sys::SetOpStrategy::SETOP_HASHED => Read::ToEnd,
                // From 18 on it has two inputs, and stops when the outer one ends.
                _ if is_inner => Read::MayStop,
                _ => Read::LikeParent,
            },
            NodeTag::T_WindowAggState if !(*plan.cast::<pg_sys::WindowAgg>()).runCondition.is_null() => {
                Read::MayStop
            }
            // The hash table is built from all rows.
            NodeTag::T_HashJoinState if is_inner => Read::ToEnd,
            NodeTag::T_NestLoopState if is_inner && needs_one_match(plan.cast()) => Read::MayStop,
            // The inner side may also return rows again, for outer rows with equal keys.
            NodeTag::T_MergeJoinState if is_inner || !keeps_outer_rows(plan.cast()) => Read::MayStop,
            _ => Read::LikeParent,
        }
    }
}

/// Returns whether a join reads no further than to the first match of an outer row.
///
/// # Safety
/// `join` must point to the plan of a join.
unsafe fn needs_one_match(join: *const pg_sys::Join) -> bool {
    // SAFETY: the join is live by the caller's promise.
    let join = unsafe { &*join };
    join.inner_unique || matches!(join.jointype, JoinType::JOIN_SEMI | JoinType::JOIN_ANTI)
}

/// Returns whether a join also returns outer rows without a match, so that it reads all of them.
///
/// # Safety
/// `join` must point to the plan of a join.
unsafe fn keeps_outer_rows(join: *const pg_sys::Join) -> bool {
    // SAFETY: the join is live by the caller's promise.
    let kind = unsafe { (*join).jointype };
    matches!(
        kind,
        JoinType::JOIN_LEFT | JoinType::JOIN_ANTI | JoinType::JOIN_FULL
    )
}
