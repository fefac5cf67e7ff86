//! Walks plan state trees in EXPLAIN's order: InitPlans, outer, inner, members, subplans.
//!
//! Core's planstate_tree_walker visits the same nodes, but does not tell how a child is linked to its parent.
//! This link decides whether the parent's time and buffers include the child's.

use crate::pg::border::unguarded;
use crate::pg::handles::{Handle, PlanStateRef};
use pgrx::pg_sys::{self, List, NodeTag, SubPlanState};
use rowsource_core::plan::Costs;
use rowsource_core::reconcile::Edge;
use smallvec::SmallVec;

pub use crate::pg::handles::tag;

/// A node of the tree and its place in it.
#[derive(Clone, Copy)]
pub struct Found<'q> {
    pub plan_state: PlanStateRef<'q>,
    /// Index of the parent in the walk; -1 at the root.
    pub parent: i32,
    pub depth: u16,
    pub edge: Edge,
    /// An expression runs it (InitPlan, CTE, subplan), not its parent as an input.
    pub by_expression: bool,
    pub under_gather: bool,
    pub hidden: bool,
}

/// Returns what the planner expects of a node.
pub fn costs(ps: PlanStateRef) -> Costs {
    let plan = ps.plan();
    Costs {
        startup_cost: plan.startup_cost,
        total_cost: plan.total_cost,
        plan_rows: plan.plan_rows,
        plan_width: f64::from(plan.plan_width),
    }
}

/// Returns whether a node returns rows. The executor counts none for nodes that combine bitmaps.
pub fn returns_rows(ps: PlanStateRef) -> bool {
    !matches!(ps.tag(), NodeTag::T_BitmapAndState | NodeTag::T_BitmapOrState)
}

/// Returns whether a node of this type runs its children in parallel workers.
#[inline(always)]
pub fn is_gather(kind: NodeTag) -> bool {
    matches!(kind, NodeTag::T_GatherState | NodeTag::T_GatherMergeState)
}

/// Returns how many workers the planner wants for a Gather; 0 for all other nodes.
pub fn planned_workers(ps: PlanStateRef) -> usize {
    let workers = match ps.tag() {
        NodeTag::T_GatherState => ps.plan().cast::<pg_sys::Gather>().num_workers,
        NodeTag::T_GatherMergeState => ps.plan().cast::<pg_sys::GatherMerge>().num_workers,
        _ => 0,
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
pub type Nodes<'q> = SmallVec<[Found<'q>; 4]>;

/// The state of a walk.
struct Walk<'a, 'q> {
    found: &'a mut Nodes<'q>,
    /// A bit per plan id, set if that subplan was visited. Several expressions may share a subplan.
    subplans: SmallVec<[u64; 1]>,
    /// The tree is so deep that the stack is nearly used up, or so large that there is not enough memory for
    /// it.
    given_up: bool,
}

/// Adds all nodes to `found`, which must be empty. They are in pre-order, each once, even if several
/// expressions share a subplan. Adds no nodes if the tree is too deep for the stack, or if there is no
/// memory.
#[inline(always)]
pub fn walk<'q>(root: PlanStateRef<'q>, found: &mut Nodes<'q>) {
    let place = Found {
        plan_state: root,
        parent: -1,
        depth: 0,
        edge: Edge::Sequential,
        by_expression: false,
        under_gather: false,
        hidden: false,
    };
    if is_simple_leaf(root) {
        push(place, found);
    } else {
        walk_inputs(place, found);
    }
}

/// Walks a tree whose root has inputs.
#[inline(never)]
fn walk_inputs<'q>(root: Found<'q>, found: &mut Nodes<'q>) {
    let mut walk = Walk {
        found,
        subplans: SmallVec::new(),
        given_up: false,
    };
    visit_with_inputs(root, &mut walk);
    if walk.given_up {
        walk.found.clear();
    }
}

/// Adds a node, and all nodes below it. Most short plans are a scan, or a few scans below a join: these need
/// no walk.
#[inline(always)]
fn visit<'q>(place: Found<'q>, walk: &mut Walk<'_, 'q>) {
    if walk.given_up || !is_simple_leaf(place.plan_state) || !push(place, walk.found) {
        visit_with_inputs(place, walk);
    }
}

/// Adds a node if no memory is needed for that. Returns whether it did.
#[inline(always)]
fn push<'q>(place: Found<'q>, found: &mut Nodes<'q>) -> bool {
    let length = found.len();
    let has_room = length < found.inline_size();
    if has_room {
        // SAFETY: there is room for so many, and the node is written before it counts.
        unsafe {
            found.as_mut_ptr().add(length).write(place);
            found.set_len(length + 1);
        }
    }
    has_room
}

/// Returns whether a plan state is one of the frequent scans, and has nothing below it.
#[inline(always)]
fn is_simple_leaf(ps: PlanStateRef) -> bool {
    matches!(
        ps.tag(),
        NodeTag::T_SeqScanState
            | NodeTag::T_IndexScanState
            | NodeTag::T_IndexOnlyScanState
            | NodeTag::T_ResultState
    ) && ps.initPlan.is_null()
        && ps.subPlan.is_null()
        && ps.lefttree.is_null()
        && ps.righttree.is_null()
}

/// The stack is checked at every this many levels.
const LEVELS_PER_CHECK: u16 = 64;

/// Adds a node, and all nodes below it.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
fn visit_with_inputs<'q>(mut place: Found<'q>, walk: &mut Walk<'_, 'q>) {
    let ps = place.plan_state;
    // A user's statement determines how deep its plan is. Core has already walked it, but needs less stack
    // per level.
    if place.depth % LEVELS_PER_CHECK == LEVELS_PER_CHECK - 1 && unguarded::stack_is_too_deep() {
        walk.given_up = true;
    }
    if walk.given_up {
        return;
    }
    let kind = ps.tag();
    place.hidden =
        kind == NodeTag::T_GatherState && place.parent < 0 && ps.plan().cast::<pg_sys::Gather>().invisible;
    let child = Found {
        plan_state: ps,
        parent: walk.found.len() as i32,
        depth: place.depth + 1,
        edge: Edge::Sequential,
        by_expression: false,
        under_gather: place.under_gather || is_gather(kind),
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
    for sub in ps.init_plans().iter() {
        visit_init_plan(sub, init_plan, walk);
    }
    let inputs = [ps.follow(|ps| &ps.lefttree), ps.follow(|ps| &ps.righttree)];
    for plan_state in inputs.into_iter().flatten() {
        visit(Found { plan_state, ..child }, walk);
    }
    for &plan_state in ps.members() {
        visit_with_inputs(Found { plan_state, ..child }, walk);
    }
    if kind == NodeTag::T_CustomScanState {
        let scan = ps.cast::<pg_sys::CustomScanState>();
        for plan_state in scan.list(|scan| &scan.custom_ps).iter() {
            visit_with_inputs(Found { plan_state, ..child }, walk);
        }
    }
    for sub in ps.subplans().iter() {
        let place = Found {
            by_expression: true,
            ..child
        };
        visit_subplan(sub, place, walk);
    }
}

/// Visits an InitPlan. That of a modifying CTE runs outside of its parent.
#[inline]
fn visit_init_plan<'q>(sub: Handle<'q, SubPlanState>, place: Found<'q>, walk: &mut Walk<'_, 'q>) {
    let outside = sub
        .root()
        .is_some_and(|root| root.tag() == NodeTag::T_ModifyTableState);
    let edge = if outside { Edge::Outside } else { Edge::Nested };
    visit_subplan(sub, Found { edge, ..place }, walk);
}

/// Visits the root of a subplan unless it was visited before. EXPLAIN shows it only once too.
fn visit_subplan<'q>(sub: Handle<'q, SubPlanState>, place: Found<'q>, walk: &mut Walk<'_, 'q>) {
    let Some(plan_state) = sub.root() else {
        return;
    };
    // Plan ids count from 1.
    let id = sub.expression().plan_id.max(0) as usize;
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
        visit_with_inputs(Found { plan_state, ..place }, walk);
    }
}
