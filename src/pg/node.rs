//! The state of one measured plan node. It begins with core's own instrumentation struct, so that
//! `PlanState.instrument` is both: EXPLAIN, the filter counts and the way back from parallel workers keep working.

use super::compat::NodeInstrumentation;
use super::usage::Usage;
use pgrx::pg_sys;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Wal};
use rowsource_core::reconcile::Edge;
use rowsource_core::sampler::NodeTimer;
use std::alloc::{Layout, alloc_zeroed};

/// A node whose every call is timed needs no sampler.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EveryCall {
    pub calls: u64,
    pub ticks: u64,
    pub startup_ticks: u64,
    pub clock_backsteps: u64,
}

/// Lives as long as its statement. What comes before the histogram is zeroed for each execution, and the histogram
/// forgotten; what comes after it is the same for all executions of a plan, or means nothing until it is written.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Node {
    /// Must be first.
    pub instr: NodeInstrumentation,
    /// Rows counted by the wrapper; core's own calls count in `instr`.
    pub rows: u64,
    /// The last clock reading when the call in progress began.
    pub before: u64,
    pub timer: NodeTimer,
    pub every: EveryCall,
    /// What the node used by itself, and what the InitPlans and subplans it asked for used.
    pub usage: Usage,
    /// An error ended the statement inside a call of this node, this many ticks after the call began.
    pub interrupted: Option<u64>,
    /// How long the timed calls took.
    pub histogram: Histogram,
    /// The counters at entry, kept by the wrapper of InitPlan and subplan roots.
    pub entry: Usage,
    /// Used below it while core, not the wrapper, measured it: already in `instr`.
    pub below_unwrapped: Buffers,
    pub wal_below_unwrapped: Wal,
    pub plan_state: *mut pg_sys::PlanState,
    /// The account of its caller: its parent's, or for the root of an InitPlan or subplan that of whichever node asked
    /// for the call in progress.
    pub caller: *mut Usage,
    /// The scan that this aggregate drains; null for all other nodes.
    pub drained: *mut Node,
    /// The wrapper chosen for this node, installed once its first call has checked the stack.
    pub method: pg_sys::ExecProcNodeMtd,
    /// What was put into `ExecProcNode` until that first call.
    pub installed: pg_sys::ExecProcNodeMtd,
    /// The planner's number for the node; the plan itself may be gone when a lost statement is closed.
    pub plan_node_id: i32,
    /// Index of the parent in the statement's nodes; -1 at the root.
    pub parent: i32,
    pub depth: u16,
    pub edge: Edge,
    /// A scan that its parent drains.
    pub is_drained: bool,
    /// Core calls it by other ways than ExecProcNode and measures it by itself.
    pub by_core: bool,
    /// Run by an expression (InitPlan, CTE, subplan), not by its parent as an input.
    pub by_expression: bool,
    /// Under a Gather: other processes run it too.
    pub under_gather: bool,
    /// Not shown by EXPLAIN (a Gather that only debug_parallel_query put there).
    pub hidden: bool,
}

impl Node {
    /// Returns `count` nodes at the beginning of a place that is kept for them, as if new; `None` without memory.
    ///
    /// The place is empty, or made by this function: all its memory was zeroed when it was allocated.
    pub fn fresh(place: &mut Vec<Node>, count: usize) -> Option<*mut Node> {
        const FIXED: usize = std::mem::offset_of!(Node, histogram) + size_of::<Histogram>();
        place.clear();
        if place.capacity() < count {
            *place = Node::zeroed(count)?;
            return Some(place.as_mut_ptr());
        }
        let nodes = place.as_mut_ptr();
        for i in 0..count {
            // SAFETY: the place has room for `count` nodes. Zero bytes are a valid value for all fields that are cleared.
            unsafe {
                let node = nodes.add(i);
                Node::renew(node);
                node.cast::<u8>()
                    .add(FIXED)
                    .write_bytes(0, size_of::<Node>() - FIXED);
            }
        }
        Some(nodes)
    }

    /// Allocates a place for `count` nodes, all of its bytes zero; `None` without memory.
    ///
    /// A histogram's counts are read before their first use, and no execution clears them, for they are many: only
    /// here they get their first value.
    fn zeroed(count: usize) -> Option<Vec<Node>> {
        let layout = Layout::array::<Node>(count).ok()?;
        // SAFETY: `count` is larger than some capacity, so the layout is not empty. The memory was allocated by the
        // allocator of `Vec`, with the layout of a `Vec` of this capacity.
        unsafe {
            let nodes = alloc_zeroed(layout).cast::<Node>();
            (!nodes.is_null()).then(|| Vec::from_raw_parts(nodes, 0, count))
        }
    }

    /// Forgets what an execution counted.
    ///
    /// # Safety
    /// * `node` must point into a place that [`Node::fresh`] made: the counts of its histogram stay as they are, and must
    ///   have been written before.
    /// * No reference to the node may be alive.
    pub unsafe fn renew(node: *mut Node) {
        // SAFETY: the caller points to memory of a node. Zero bytes are a valid value for all fields that are cleared.
        unsafe {
            node.cast::<u8>()
                .write_bytes(0, std::mem::offset_of!(Node, histogram));
            (*node).histogram.clear();
        }
    }

    /// The node behind a plan state that carries one.
    ///
    /// # Safety
    /// `plan_state` must belong to a statement that [`super::statement`] has set up.
    #[inline(always)]
    pub unsafe fn of(plan_state: *mut pg_sys::PlanState) -> *mut Node {
        // SAFETY: the caller's promise; `instr` is the first field.
        unsafe { (*plan_state).instrument.cast() }
    }
}

const _: () = assert!(std::mem::offset_of!(Node, instr) == 0);
