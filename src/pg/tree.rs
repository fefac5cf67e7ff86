//! Walks plan state trees in EXPLAIN's order: InitPlans, outer, inner, members, subplans.
//!
//! Core's planstate_tree_walker visits the same nodes, but does not say how a child hangs on its parent, and that
//! decides whether its time and buffers lie inside its parent's.

use pgrx::pg_sys::{self, List, NodeTag, PlanState};
use rowsource_core::reconcile::Edge;
use smallvec::SmallVec;

/// One node of the tree, with its place in it.
pub struct Found {
    pub plan_state: *mut PlanState,
    /// Index of the parent in the walk; -1 at the root.
    pub parent: i32,
    pub depth: u16,
    pub edge: Edge,
    /// Run by an expression that asks for it (InitPlan, CTE, subplan), not by its parent as an input.
    pub by_expression: bool,
    pub under_gather: bool,
    pub hidden: bool,
}

pub unsafe fn tag<T>(node: *const T) -> NodeTag {
    // SAFETY: every PostgreSQL node begins with its tag.
    unsafe { *node.cast::<NodeTag>() }
}

/// Whether a node runs its children in parallel workers.
pub unsafe fn is_gather(ps: *const PlanState) -> bool {
    // SAFETY: a plan state.
    let kind = unsafe { tag(ps) };
    matches!(kind, NodeTag::T_GatherState | NodeTag::T_GatherMergeState)
}

/// The pointers in a List.
pub unsafe fn list<T>(list: *const List) -> impl Iterator<Item = *mut T> {
    // SAFETY: a List's elements are `length` cells; a null List is empty.
    unsafe {
        let length = if list.is_null() {
            0
        } else {
            (*list).length as usize
        };
        (0..length).map(move |i| (*(*list).elements.add(i)).ptr_value.cast())
    }
}

/// All nodes in pre-order, each once even where several expressions share a subplan.
///
/// # Safety
/// `root` must be an initialised plan state tree.
pub unsafe fn walk(root: *mut PlanState) -> SmallVec<[Found; 4]> {
    let mut found = SmallVec::new();
    let place = Found {
        plan_state: root,
        parent: -1,
        depth: 0,
        edge: Edge::Sequential,
        by_expression: false,
        under_gather: false,
        hidden: false,
    };
    if !root.is_null() {
        // SAFETY: the caller's promise.
        unsafe { visit(place, &mut found) };
    }
    found
}

#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe fn visit(mut place: Found, found: &mut SmallVec<[Found; 4]>) {
    let ps = place.plan_state;
    // SAFETY: `ps` is a valid plan state, and so are all that it points to; casts follow the node's tag.
    unsafe {
        let kind = tag(ps);
        let gather = is_gather(ps);
        place.hidden = kind == NodeTag::T_GatherState
            && place.parent < 0
            && (*(*ps).plan.cast::<pg_sys::Gather>()).invisible;
        let child = Found {
            plan_state: std::ptr::null_mut(),
            parent: found.len() as i32,
            depth: place.depth + 1,
            edge: Edge::Sequential,
            by_expression: false,
            under_gather: place.under_gather || gather,
            hidden: false,
        };
        let under_gather = place.under_gather;
        found.push(place);
        for sub in list::<pg_sys::SubPlanState>((*ps).initPlan) {
            let plan_state = (*sub).planstate;
            let outside = !plan_state.is_null() && tag(plan_state) == NodeTag::T_ModifyTableState;
            let edge = if outside { Edge::Outside } else { Edge::Nested };
            // InitPlans of a Gather are run by the leader alone.
            visit_subplan(
                Found {
                    plan_state,
                    edge,
                    by_expression: true,
                    under_gather,
                    ..child
                },
                found,
            );
        }
        for plan_state in [(*ps).lefttree, (*ps).righttree] {
            if !plan_state.is_null() {
                visit(Found { plan_state, ..child }, found);
            }
        }
        for plan_state in members(ps, kind) {
            visit(Found { plan_state, ..child }, found);
        }
        for sub in list::<pg_sys::SubPlanState>((*ps).subPlan) {
            visit_subplan(
                Found {
                    plan_state: (*sub).planstate,
                    by_expression: true,
                    ..child
                },
                found,
            );
        }
    }
}

/// Several expressions may share one subplan; EXPLAIN shows it once.
unsafe fn visit_subplan(place: Found, found: &mut SmallVec<[Found; 4]>) {
    if !place.plan_state.is_null() && !found.iter().any(|seen| seen.plan_state == place.plan_state) {
        // SAFETY: as `visit`.
        unsafe { visit(place, found) }
    }
}

unsafe fn members(ps: *mut PlanState, kind: NodeTag) -> Vec<*mut PlanState> {
    // SAFETY: casts follow the tag; arrays have the length beside them.
    unsafe {
        let array =
            |plans: *mut *mut PlanState, n: i32| (0..n.max(0) as usize).map(|i| *plans.add(i)).collect();
        match kind {
            NodeTag::T_AppendState => {
                let append = ps.cast::<pg_sys::AppendState>();
                array((*append).appendplans, (*append).as_nplans)
            }
            NodeTag::T_MergeAppendState => {
                let append = ps.cast::<pg_sys::MergeAppendState>();
                array((*append).mergeplans, (*append).ms_nplans)
            }
            NodeTag::T_BitmapAndState => {
                let and = ps.cast::<pg_sys::BitmapAndState>();
                array((*and).bitmapplans, (*and).nplans)
            }
            NodeTag::T_BitmapOrState => {
                let or = ps.cast::<pg_sys::BitmapOrState>();
                array((*or).bitmapplans, (*or).nplans)
            }
            NodeTag::T_SubqueryScanState => vec![(*ps.cast::<pg_sys::SubqueryScanState>()).subplan],
            NodeTag::T_CustomScanState => list((*ps.cast::<pg_sys::CustomScanState>()).custom_ps).collect(),
            _ => Vec::new(),
        }
    }
}
