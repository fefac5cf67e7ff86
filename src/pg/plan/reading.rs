//! Tells how far the nodes of a plan read each other, so that `rowsource_core::plan::may_stop_early` can
//! decide whose rows say something about the planner's estimates.

use super::tree::Found;
use crate::pg::handles::{Handle, PlanRef, PlanStateRef};
use pgrx::pg_sys::{self, JoinType, NodeTag, SubLinkType, SubPlanState};
use rowsource_core::plan::{Link, Read, may_stop_early};
use rustc_hash::FxHashMap;

/// Returns for each node whether it may be stopped before its last row.
pub fn stopped_early(found: &[Found]) -> Vec<(bool, bool)> {
    let subplans = subplans(found);
    let mut links: Vec<Link> = found.iter().map(|node| link(node, found, &subplans)).collect();
    let may_stop = may_stop_early(&links);
    if let Some(root) = links.first_mut() {
        root.read = Read::MayStop;
    }
    may_stop.into_iter().zip(may_stop_early(&links)).collect()
}

/// Returns how far each InitPlan and subplan is read, by the address of its root.
fn subplans(found: &[Found]) -> FxHashMap<usize, Read> {
    let mut subplans = FxHashMap::default();
    for node in found {
        for sub in node.plan_state.init_plans().iter() {
            subplans.insert(sub.planstate.addr(), read_of_init_plan(sub));
        }
        for sub in node.plan_state.subplans().iter() {
            let read = read_of_subplan(sub);
            subplans.entry(sub.planstate.addr()).or_insert(read);
        }
    }
    subplans
}

/// Returns how far an InitPlan is read.
fn read_of_init_plan(sub: Handle<SubPlanState>) -> Read {
    let subplan = sub.expression();
    match subplan.subLinkType {
        SubLinkType::EXISTS_SUBLINK => Read::MayStop,
        SubLinkType::CTE_SUBLINK => {
            // The executor completes a modifying CTE at the end.
            let modifies = sub
                .root()
                .is_some_and(|root| root.tag() == NodeTag::T_ModifyTableState);
            if modifies {
                Read::ToEnd
            } else {
                Read::LikeScansOf(subplan.plan_id)
            }
        }
        _ => Read::ToEnd,
    }
}

/// Returns how far a subplan is read each time.
fn read_of_subplan(sub: Handle<SubPlanState>) -> Read {
    let subplan = sub.expression();
    match subplan.subLinkType {
        SubLinkType::ANY_SUBLINK if subplan.useHashTable => Read::ToEnd,
        SubLinkType::EXISTS_SUBLINK | SubLinkType::ANY_SUBLINK | SubLinkType::ALL_SUBLINK => Read::MayStop,
        _ => Read::ToEnd,
    }
}

/// Returns how a node, which is one of `found`, is connected with the others.
fn link(node: &Found, found: &[Found], subplans: &FxHashMap<usize, Read>) -> Link {
    let ps = node.plan_state;
    let parent = usize::try_from(node.parent).ok();
    let read = match parent.and_then(|parent| found.get(parent)) {
        None => Read::LikeParent,
        Some(_) if node.by_expression => {
            let read = subplans.get(&ps.as_ptr().addr());
            read.copied().unwrap_or(Read::MayStop)
        }
        Some(parent) => read_by(parent.plan_state, ps),
    };
    let scan = ps.plan().downcast::<pg_sys::CteScan>();
    let scans = scan.map(|scan| scan.ctePlanId);
    Link { parent, read, scans }
}

/// Returns how far a node reads one of its inputs.
fn read_by(reader: PlanStateRef, input: PlanStateRef) -> Read {
    let plan = reader.plan();
    let is_inner = reader.righttree == input.as_ptr();
    match reader.tag() {
        NodeTag::T_LimitState => Read::MayStop,
        NodeTag::T_SortState
        | NodeTag::T_HashState
        | NodeTag::T_ModifyTableState
        | NodeTag::T_BitmapHeapScanState
        | NodeTag::T_BitmapAndState
        | NodeTag::T_BitmapOrState => Read::ToEnd,
        NodeTag::T_AggState => match plan.cast::<pg_sys::Agg>().aggstrategy {
            pg_sys::AggStrategy::AGG_PLAIN | pg_sys::AggStrategy::AGG_HASHED => Read::ToEnd,
            _ => Read::LikeParent,
        },
        NodeTag::T_SetOpState => match plan.cast::<pg_sys::SetOp>().strategy {
            pg_sys::SetOpStrategy::SETOP_HASHED => Read::ToEnd,
            // From 18 on it has two inputs, and stops when the outer one ends.
            _ if is_inner => Read::MayStop,
            _ => Read::LikeParent,
        },
        NodeTag::T_WindowAggState if !plan.cast::<pg_sys::WindowAgg>().runCondition.is_null() => {
            Read::MayStop
        }
        // The hash table is built from all rows.
        NodeTag::T_HashJoinState if is_inner => Read::ToEnd,
        NodeTag::T_NestLoopState if is_inner && needs_one_match(plan) => Read::MayStop,
        // The inner side may also return rows again, for outer rows with equal keys.
        NodeTag::T_MergeJoinState if is_inner || !keeps_outer_rows(plan) => Read::MayStop,
        _ => Read::LikeParent,
    }
}

/// Returns whether a join reads no further than to the first match of an outer row.
fn needs_one_match(join: PlanRef) -> bool {
    let join = join.cast::<pg_sys::Join>();
    join.inner_unique || matches!(join.jointype, JoinType::JOIN_SEMI | JoinType::JOIN_ANTI)
}

/// Returns whether a join also returns outer rows without a match, so that it reads all of them.
fn keeps_outer_rows(join: PlanRef) -> bool {
    matches!(
        join.cast::<pg_sys::Join>().jointype,
        JoinType::JOIN_LEFT | JoinType::JOIN_ANTI | JoinType::JOIN_FULL
    )
}
