//! Walks plan state trees in EXPLAIN's order: InitPlans, outer, inner, members, subplans.
//!
//! Core's planstate_tree_walker visits the same nodes, but does not tell how a child is linked to its parent.
//! This link decides whether the parent's time and buffers include the child's.

use crate::pg::server::unguarded;
use pgrx::pg_sys::{self, List, NodeTag, PlanState};
use rowsource_core::plan::Costs;
use rowsource_core::reconcile::Edge;
use smallvec::SmallVec;

/// A node of the tree and its place in it.
#[derive(Clone, Copy)]
pub struct Found {
    pub plan_state: *mut PlanState,
    /// Index of the parent in the walk; -1 at the root.
    pub parent: i32,
    pub depth: u16,
    pub edge: Edge,
    /// An expression runs it (InitPlan, CTE, subplan), not its parent as an input.
    pub by_expression: bool,
    pub under_gather: bool,
    pub hidden: bool,
}

/// Returns the type of a node.
///
/// # Safety
/// `node` must point to a live PostgreSQL node, which begins with its tag.
pub unsafe fn tag<T>(node: *const T) -> NodeTag {
    // SAFETY: the node is live by the caller's promise, and every PostgreSQL node begins with its tag.
    unsafe { *node.cast::<NodeTag>() }
}

/// Returns the id of a node's plan.
///
/// # Safety
/// `ps` must point to an initialised plan state.
#[inline(always)]
pub unsafe fn plan_node_id(ps: *const PlanState) -> i32 {
    // SAFETY: an initialised plan state has its plan.
    unsafe { (*(*ps).plan).plan_node_id }
}

/// Returns how many rows per start the planner expects of a node.
///
/// # Safety
/// `ps` must point to an initialised plan state.
#[inline(always)]
pub unsafe fn plan_rows(ps: *const PlanState) -> f64 {
    // SAFETY: an initialised plan state has its plan.
    unsafe { (*(*ps).plan).plan_rows }
}

/// Returns the planner's estimate of what a node costs, with all nodes below it.
///
/// # Safety
/// `ps` must point to an initialised plan state.
pub unsafe fn total_cost(ps: *const PlanState) -> f64 {
    // SAFETY: an initialised plan state has its plan.
    unsafe { (*(*ps).plan).total_cost }
}

/// Returns what the planner expects of a node.
///
/// # Safety
/// `ps` must point to an initialised plan state.
pub unsafe fn costs(ps: *const PlanState) -> Costs {
    // SAFETY: an initialised plan state has its plan.
    let plan = unsafe { &*(*ps).plan };
    Costs {
        startup_cost: plan.startup_cost,
        total_cost: plan.total_cost,
        plan_rows: plan.plan_rows,
        plan_width: f64::from(plan.plan_width),
    }
}

/// Returns whether a node returns rows. The executor counts none for nodes that combine bitmaps.
///
/// # Safety
/// `ps` must point to an initialised plan state.
pub unsafe fn returns_rows(ps: *const PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and begins with its tag.
    let kind = unsafe { tag(ps) };
    !matches!(kind, NodeTag::T_BitmapAndState | NodeTag::T_BitmapOrState)
}

/// Returns whether a node runs its children in parallel workers.
///
/// # Safety
/// `ps` must point to an initialised plan state.
pub unsafe fn is_gather(ps: *const PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and begins with its tag.
    let kind = unsafe { tag(ps) };
    matches!(kind, NodeTag::T_GatherState | NodeTag::T_GatherMergeState)
}

/// Returns how many workers the planner wants for a Gather; 0 for all other nodes.
///
/// # Safety
/// `ps` must point to an initialised plan state, whose plan must be live.
pub unsafe fn planned_workers(ps: *const PlanState) -> usize {
    // SAFETY: the plan state and its plan are live by the caller's promise, and each cast follows the tag.
    let workers = unsafe {
        match tag(ps) {
            NodeTag::T_GatherState => (*(*ps).plan.cast::<pg_sys::Gather>()).num_workers,
            NodeTag::T_GatherMergeState => (*(*ps).plan.cast::<pg_sys::GatherMerge>()).num_workers,
            _ => 0,
        }
    };
    usize::try_from(workers).unwrap_or(0)
}

/// Returns the pointers in a List.
///
/// # Safety
/// `list` must be null or a List of pointers, which is neither changed nor freed while the iterator is used.
pub unsafe fn list<T>(list: *const List) -> impl Iterator<Item = *mut T> {
    // SAFETY: the list is not changed or freed meanwhile, by the caller's promise. It has `length` elements.
    unsafe {
        let length = if list.is_null() {
            0
        } else {
            (*list).length as usize
        };
        (0..length).map(move |i| (*(*list).elements.add(i)).ptr_value.cast())
    }
}

/// The nodes of a tree. Those of short plans need no memory of their own.
pub type Nodes = SmallVec<[Found; 4]>;

/// The state of a walk.
struct Walk<'a> {
    found: &'a mut Nodes,
    /// A bit per plan id, set if that subplan was visited. Several expressions may share a subplan.
    subplans: SmallVec<[u64; 1]>,
    /// The tree is so deep that the stack is nearly used up, or so large that there is not enough memory for
    /// it.
    given_up: bool,
}

/// Adds all nodes to `found`, which must be empty. They are in pre-order, each once, even if several
/// expressions share a subplan. Adds no nodes if the tree is too deep for the stack, or if there is no
/// memory.
///
/// # Safety
/// `root` must be null or an initialised plan state tree.
#[inline(always)]
pub unsafe fn walk(root: *mut PlanState, found: &mut Nodes) {
    let place = Found {
        plan_state: root,
        parent: -1,
        depth: 0,
        edge: Edge::Sequential,
        by_expression: false,
        under_gather: false,
        hidden: false,
    };
    if root.is_null() {
        return;
    }
    // SAFETY: `root` is an initialised plan state tree, by the caller's promise.
    unsafe {
        if is_simple_leaf(root) {
            push_inline(place, found);
        } else {
            walk_inputs(place, found);
        }
    }
}

/// Walks a tree whose root has inputs.
///
/// # Safety
/// `root` must have an initialised plan state tree.
#[inline(never)]
unsafe fn walk_inputs(root: Found, found: &mut Nodes) {
    let mut walk = Walk {
        found,
        subplans: SmallVec::new(),
        given_up: false,
    };
    // SAFETY: the caller promises the same.
    unsafe { visit_with_inputs(root, &mut walk) };
    if walk.given_up {
        walk.found.clear();
    }
}

/// Adds a node, and all nodes below it. Most short plans are a scan, or a few scans below a join: these need
/// no walk.
///
/// # Safety
/// `place` must have an initialised plan state tree.
#[inline(always)]
unsafe fn visit(place: Found, walk: &mut Walk<'_>) {
    // SAFETY: the plan state is initialised by the caller's promise.
    let is_leaf = unsafe { is_simple_leaf(place.plan_state) };
    if is_leaf && walk.found.len() < walk.found.inline_size() && !walk.given_up {
        // SAFETY: there is room for one more.
        unsafe { push_inline(place, walk.found) };
    } else {
        // SAFETY: the caller promises the same.
        unsafe { visit_with_inputs(place, walk) };
    }
}

/// Returns whether a plan state is an Append some of whose scans run asynchronously.
///
/// # Safety
/// The plan state must be initialised.
pub unsafe fn runs_asynchronous_scans(plan_state: *mut PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise, and the cast follows its tag.
    unsafe {
        (*plan_state).type_ == NodeTag::T_AppendState
            && (*plan_state.cast::<pg_sys::AppendState>()).as_nasyncplans > 0
    }
}

/// Adds a node without asking whether there is room for it.
///
/// # Safety
/// There must be room for one more node.
#[inline(always)]
unsafe fn push_inline(place: Found, found: &mut Nodes) {
    let length = found.len();
    // SAFETY: there is room by the caller's promise, and the node is written before it counts.
    unsafe {
        found.as_mut_ptr().add(length).write(place);
        found.set_len(length + 1);
    }
}

/// Returns whether a plan state is one of the frequent scans, and has nothing below it.
///
/// # Safety
/// `ps` must point to an initialised plan state.
#[inline(always)]
unsafe fn is_simple_leaf(ps: *const PlanState) -> bool {
    // SAFETY: the plan state is initialised by the caller's promise.
    unsafe {
        matches!(
            tag(ps),
            NodeTag::T_SeqScanState
                | NodeTag::T_IndexScanState
                | NodeTag::T_IndexOnlyScanState
                | NodeTag::T_ResultState
        ) && (*ps).initPlan.is_null()
            && (*ps).subPlan.is_null()
            && (*ps).lefttree.is_null()
            && (*ps).righttree.is_null()
    }
}

/// The stack is checked at every this many levels.
const LEVELS_PER_CHECK: u16 = 64;

/// Adds a node, and all nodes below it.
///
/// # Safety
/// `place` must have an initialised plan state tree.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe fn visit_with_inputs(mut place: Found, walk: &mut Walk<'_>) {
    let ps = place.plan_state;
    // A user's statement determines how deep its plan is. Core has already walked it, but needs less stack
    // per level.
    // SAFETY: the function has no preconditions, and raises nothing.
    if place.depth % LEVELS_PER_CHECK == LEVELS_PER_CHECK - 1 && unsafe { unguarded::stack_is_too_deep() } {
        walk.given_up = true;
    }
    if walk.given_up {
        return;
    }
    // SAFETY: `ps` is initialised by the caller's promise.
    let (kind, gather) = unsafe { (tag(ps), is_gather(ps)) };
    // SAFETY: the plan of a Gather's state is a Gather.
    place.hidden = kind == NodeTag::T_GatherState
        && place.parent < 0
        && unsafe { (*(*ps).plan.cast::<pg_sys::Gather>()).invisible };
    let child = Found {
        plan_state: std::ptr::null_mut(),
        parent: walk.found.len() as i32,
        depth: place.depth + 1,
        edge: Edge::Sequential,
        by_expression: false,
        under_gather: place.under_gather || gather,
        hidden: false,
    };
    // Only the leader runs the InitPlans of a Gather.
    let init_plan = Found {
        by_expression: true,
        under_gather: place.under_gather,
        ..child
    };
    if walk.found.try_reserve(1).is_err() {
        walk.given_up = true;
        return;
    }
    walk.found.push(place);
    // SAFETY: all nodes below `ps` are initialised by the caller's promise, and its lists do not change
    // meanwhile.
    unsafe {
        for sub in list::<pg_sys::SubPlanState>((*ps).initPlan) {
            visit_init_plan(sub, init_plan, walk);
        }
        for plan_state in [(*ps).lefttree, (*ps).righttree] {
            if !plan_state.is_null() {
                visit(Found { plan_state, ..child }, walk);
            }
        }
    }
    // SAFETY: `ps` is initialised, and of this kind. The array has `count` members, which are initialised.
    unsafe {
        let (members, count) = members(ps, kind);
        for i in 0..count {
            let plan_state = *members.add(i);
            visit_with_inputs(Found { plan_state, ..child }, walk);
        }
    }
    if kind == NodeTag::T_CustomScanState {
        // SAFETY: the tag says that this is a custom scan. The inputs in its list are initialised.
        unsafe {
            for plan_state in list((*ps.cast::<pg_sys::CustomScanState>()).custom_ps) {
                visit_with_inputs(Found { plan_state, ..child }, walk);
            }
        }
    }
    // SAFETY: the subplans of an initialised plan state are initialised.
    unsafe {
        for sub in list::<pg_sys::SubPlanState>((*ps).subPlan) {
            let place = Found {
                plan_state: (*sub).planstate,
                by_expression: true,
                ..child
            };
            visit_subplan(sub, place, walk);
        }
    }
}

/// Visits an InitPlan. That of a modifying CTE runs outside of its parent.
///
/// # Safety
/// `sub` must point to an initialised subplan state.
#[inline]
unsafe fn visit_init_plan(sub: *mut pg_sys::SubPlanState, place: Found, walk: &mut Walk<'_>) {
    // SAFETY: the subplan's state is initialised by the caller's promise, so its plan state is initialised or
    // null.
    unsafe {
        let plan_state = (*sub).planstate;
        let outside = !plan_state.is_null() && tag(plan_state) == NodeTag::T_ModifyTableState;
        let edge = if outside { Edge::Outside } else { Edge::Nested };
        visit_subplan(
            sub,
            Found {
                plan_state,
                edge,
                ..place
            },
            walk,
        );
    }
}

/// Visits a subplan unless it was visited before. EXPLAIN shows it only once too.
///
/// # Safety
/// `sub` must point to an initialised subplan state, and `place` must have its plan state or null.
unsafe fn visit_subplan(sub: *mut pg_sys::SubPlanState, place: Found, walk: &mut Walk<'_>) {
    if place.plan_state.is_null() {
        return;
    }
    // SAFETY: the subplan's state is initialised by the caller's promise, so it has its expression. Plan ids
    // count from 1.
    let id = unsafe { (*(*sub).subplan).plan_id }.max(0) as usize;
    let (word, bit) = (id / 64, 1 << (id % 64));
    if word >= walk.subplans.len() {
        let more = word + 1 - walk.subplans.len();
        if walk.subplans.try_reserve(more).is_err() {
            walk.given_up = true;
            return;
        }
        walk.subplans.resize(word + 1, 0);
    }
    if walk.subplans[word] & bit == 0 {
        walk.subplans[word] |= bit;
        // SAFETY: the subplan's plan state tree is initialised by the caller's promise.
        unsafe { visit_with_inputs(place, walk) }
    }
}

/// Returns the inputs of a node that has them in an array: the address of the first, and their number.
///
/// # Safety
/// `ps` must point to an initialised plan state of this `kind`.
unsafe fn members(ps: *mut PlanState, kind: NodeTag) -> (*mut *mut PlanState, usize) {
    // SAFETY: the plan state is initialised and of this kind, by the caller's promise. The count field of
    // each array is its length.
    unsafe {
        let (members, count) = match kind {
            NodeTag::T_AppendState => {
                let append = ps.cast::<pg_sys::AppendState>();
                ((*append).appendplans, (*append).as_nplans)
            }
            NodeTag::T_MergeAppendState => {
                let append = ps.cast::<pg_sys::MergeAppendState>();
                ((*append).mergeplans, (*append).ms_nplans)
            }
            NodeTag::T_BitmapAndState => {
                let and = ps.cast::<pg_sys::BitmapAndState>();
                ((*and).bitmapplans, (*and).nplans)
            }
            NodeTag::T_BitmapOrState => {
                let or = ps.cast::<pg_sys::BitmapOrState>();
                ((*or).bitmapplans, (*or).nplans)
            }
            NodeTag::T_SubqueryScanState => (&raw mut (*ps.cast::<pg_sys::SubqueryScanState>()).subplan, 1),
            _ => (std::ptr::null_mut(), 0),
        };
        (members, count.max(0) as usize)
    }
}
