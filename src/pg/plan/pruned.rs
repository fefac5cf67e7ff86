//! Partitions that were pruned when a statement started have plans, but no states. The folded plan has what
//! only they do, and EXPLAIN describes states. So such a node gets a state that nothing runs.

use crate::pg::handles::{Handle, ListOf, PlanRef, PlanStateRef, RelationRef};
use pgrx::pg_sys::{self, EState, NodeTag, Plan, PlanState, SubPlan};
use smallvec::SmallVec;

/// The bytes of a state that nothing runs. EXPLAIN looks at fields of it that are zero.
const ROOM: usize = 4096;
const _: () = assert!(size_of::<pg_sys::AggState>() <= ROOM && size_of::<pg_sys::HashJoinState>() <= ROOM);

/// Returns how many inputs of an Append or a MergeAppend were pruned when the statement started.
#[inline(always)]
pub fn pruned_inputs(append: PlanStateRef) -> usize {
    members(append.plan())
        .len()
        .saturating_sub(append.members().len())
}

/// Returns the plans of these inputs.
pub fn pruned_plans<'q>(append: PlanStateRef<'q>) -> impl Iterator<Item = PlanRef<'q>> {
    // The states have the order of their plans.
    let mut left = append.members().iter().map(|state| state.plan()).peekable();
    let plans = members(append.plan());
    plans.iter().filter(move |plan| left.next_if_eq(plan).is_none())
}

/// Returns the inputs of a node that has them in a List.
#[inline(always)]
fn members(plan: PlanRef<'_>) -> ListOf<'_, Plan> {
    match plan.tag() {
        NodeTag::T_Append => plan.cast::<pg_sys::Append>().list(|append| &append.appendplans),
        NodeTag::T_MergeAppend => plan
            .cast::<pg_sys::MergeAppend>()
            .list(|append| &append.mergeplans),
        NodeTag::T_BitmapAnd => plan.cast::<pg_sys::BitmapAnd>().list(|and| &and.bitmapplans),
        NodeTag::T_BitmapOr => plan.cast::<pg_sys::BitmapOr>().list(|or| &or.bitmapplans),
        _ => ListOf::empty(),
    }
}

/// Returns the plan whose columns EXPLAIN prints for those of an Append or a MergeAppend.
pub fn first_input(plan: PlanRef<'_>) -> Option<PlanRef<'_>> {
    match plan.tag() {
        NodeTag::T_Append | NodeTag::T_MergeAppend => members(plan).get(0),
        _ => None,
    }
}

/// Returns the inputs of a node.
pub fn inputs(plan: PlanRef<'_>) -> SmallVec<[PlanRef<'_>; 2]> {
    let pair = [
        plan.follow(|plan| &plan.lefttree),
        plan.follow(|plan| &plan.righttree),
    ];
    let scanned = plan.downcast::<pg_sys::SubqueryScan>();
    let scanned = scanned.and_then(|scan| scan.follow(|scan| &scan.subplan));
    let first = pair.into_iter().chain([scanned]).flatten();
    first.chain(members(plan).iter()).collect()
}

/// Returns whether a node of this kind can get a state that nothing runs.
pub fn can_stand_in(plan: PlanRef) -> bool {
    state_of(plan.tag()).is_some()
}

/// Returns the kind of state that a kind of node has. Returns `None` for those that are not below partitions.
fn state_of(kind: NodeTag) -> Option<NodeTag> {
    Some(match kind {
        NodeTag::T_SeqScan => NodeTag::T_SeqScanState,
        NodeTag::T_SampleScan => NodeTag::T_SampleScanState,
        NodeTag::T_IndexScan => NodeTag::T_IndexScanState,
        NodeTag::T_IndexOnlyScan => NodeTag::T_IndexOnlyScanState,
        NodeTag::T_BitmapIndexScan => NodeTag::T_BitmapIndexScanState,
        NodeTag::T_BitmapHeapScan => NodeTag::T_BitmapHeapScanState,
        NodeTag::T_BitmapAnd => NodeTag::T_BitmapAndState,
        NodeTag::T_BitmapOr => NodeTag::T_BitmapOrState,
        NodeTag::T_TidScan => NodeTag::T_TidScanState,
        NodeTag::T_TidRangeScan => NodeTag::T_TidRangeScanState,
        NodeTag::T_SubqueryScan => NodeTag::T_SubqueryScanState,
        NodeTag::T_ForeignScan => NodeTag::T_ForeignScanState,
        NodeTag::T_Append => NodeTag::T_AppendState,
        NodeTag::T_MergeAppend => NodeTag::T_MergeAppendState,
        NodeTag::T_NestLoop => NodeTag::T_NestLoopState,
        NodeTag::T_MergeJoin => NodeTag::T_MergeJoinState,
        NodeTag::T_HashJoin => NodeTag::T_HashJoinState,
        NodeTag::T_Hash => NodeTag::T_HashState,
        NodeTag::T_Material => NodeTag::T_MaterialState,
        NodeTag::T_Memoize => NodeTag::T_MemoizeState,
        NodeTag::T_Sort => NodeTag::T_SortState,
        NodeTag::T_IncrementalSort => NodeTag::T_IncrementalSortState,
        NodeTag::T_Agg => NodeTag::T_AggState,
        NodeTag::T_Group => NodeTag::T_GroupState,
        NodeTag::T_Unique => NodeTag::T_UniqueState,
        NodeTag::T_Limit => NodeTag::T_LimitState,
        NodeTag::T_Result => NodeTag::T_ResultState,
        NodeTag::T_ProjectSet => NodeTag::T_ProjectSetState,
        _ => return None,
    })
}

/// Makes a state of a node that has these inputs and calls these subplans. It is as live as the query.
/// Returns `None` if [`can_stand_in`] does. Raises "out of memory".
pub fn stand_in<'q>(
    plan: PlanRef<'q>,
    estate: Handle<'q, EState>,
    inputs: &[PlanStateRef<'q>],
    subplans: &[Handle<'q, SubPlan>],
) -> Option<PlanStateRef<'q>> {
    let kind = state_of(plan.tag())?;
    // SAFETY: the memory lives as long as the query, and has room for a state of each of these kinds, of
    // which zero bytes are a valid one. Nobody else knows it yet.
    unsafe {
        let alloc = |bytes: usize| pg_sys::MemoryContextAllocZero(estate.es_query_cxt, bytes);
        let state = alloc(ROOM).cast::<PlanState>();
        (*state).type_ = kind;
        (*state).plan = plan.as_ptr();
        (*state).state = estate.as_ptr();
        let array = alloc(size_of_val(inputs).max(1)).cast::<*mut PlanState>();
        for (at, input) in inputs.iter().enumerate() {
            array.add(at).write(input.as_ptr());
        }
        let count = inputs.len() as i32;
        let first = inputs
            .first()
            .map_or(std::ptr::null_mut(), |first| first.as_ptr());
        match kind {
            NodeTag::T_AppendState => {
                let append = state.cast::<pg_sys::AppendState>();
                ((*append).appendplans, (*append).as_nplans) = (array, count);
            }
            NodeTag::T_MergeAppendState => {
                let append = state.cast::<pg_sys::MergeAppendState>();
                ((*append).mergeplans, (*append).ms_nplans) = (array, count);
            }
            NodeTag::T_BitmapAndState => {
                let and = state.cast::<pg_sys::BitmapAndState>();
                ((*and).bitmapplans, (*and).nplans) = (array, count);
            }
            NodeTag::T_BitmapOrState => {
                let or = state.cast::<pg_sys::BitmapOrState>();
                ((*or).bitmapplans, (*or).nplans) = (array, count);
            }
            NodeTag::T_SubqueryScanState => (*state.cast::<pg_sys::SubqueryScanState>()).subplan = first,
            _ => {
                (*state).lefttree = first;
                (*state).righttree = inputs.get(1).map_or(std::ptr::null_mut(), |input| input.as_ptr());
            }
        }
        if kind == NodeTag::T_ForeignScanState {
            let functions = alloc(size_of::<pg_sys::FdwRoutine>()).cast::<pg_sys::FdwRoutine>();
            (*functions).type_ = NodeTag::T_FdwRoutine;
            (*state.cast::<pg_sys::ForeignScanState>()).fdwroutine = functions;
        }
        let before = pg_sys::MemoryContextSwitchTo(estate.es_query_cxt);
        for subplan in subplans {
            // EXPLAIN prints each subplan that it finds.
            let Some(root) = subplan_state(estate, subplan.plan_id) else {
                continue;
            };
            let called = alloc(size_of::<pg_sys::SubPlanState>()).cast::<pg_sys::SubPlanState>();
            (*called).type_ = NodeTag::T_SubPlanState;
            (*called).subplan = subplan.as_ptr();
            (*called).planstate = root.as_ptr();
            (*state).subPlan = pg_sys::lappend((*state).subPlan, called.cast());
        }
        pg_sys::MemoryContextSwitchTo(before);
        Some(Handle::new(state))
    }
}

/// Returns the state of a subplan's root. Subplans count from 1.
pub fn subplan_state(estate: Handle<EState>, number: i32) -> Option<PlanStateRef> {
    let states = estate.list::<PlanState>(|estate| &estate.es_subplanstates);
    states.get(usize::try_from(number - 1).ok()?)
}

/// Passes a relation to `read`, without locking it. Returns `None` if there is none. Raises PostgreSQL's
/// errors. The caller must run in `contained`, which closes the relation after an error.
pub fn with_relation<T>(oid: pg_sys::Oid, read: impl FnOnce(RelationRef) -> T) -> Option<T> {
    // SAFETY: the function takes any number. What it returns is null, or a relation that is live until it is
    // closed.
    unsafe {
        let relation = pg_sys::RelationIdGetRelation(oid);
        if relation.is_null() {
            return None;
        }
        let result = read(Handle::new(relation));
        pg_sys::RelationClose(relation);
        Some(result)
    }
}
