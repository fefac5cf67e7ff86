//! The state of one measured plan node. It begins with core's own instrumentation struct, so that
//! `PlanState.instrument` is both: EXPLAIN, the filter counts and the way back from parallel workers keep working.

use super::state::Usage;
use crate::pg::compat::NodeInstrumentation;
use pgrx::pg_sys;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{Buffers, Wal};
use rowsource_core::reconcile::Edge;
use rowsource_core::sampler::{EveryCall, NodeTimer};

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
    pub last_charged_at_entry: Usage,
    /// Used below it while core, not the wrapper, measured it: already in `instr`.
    pub below_unwrapped: Buffers,
    pub wal_below_unwrapped: Wal,
    pub plan_state: *mut pg_sys::PlanState,
    /// The account of its caller: its parent's, or for the root of an InitPlan or subplan that of whichever node asked
    /// for the call in progress.
    pub caller: *mut Usage,
    /// The scan below this fused aggregate; null for all other nodes.
    pub fused_scan: *mut Node,
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
    /// A scan whose parent is a fused aggregate.
    pub is_fused_scan: bool,
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
    /// Forgets what an execution counted.
    ///
    /// # Safety
    /// * `node` must point into a place that [`Node::fresh`] made: the counts of its histogram stay as they are, and must
    ///   have been written before.
    /// * No reference to the node may be alive.
    pub unsafe fn reset_for_reexecution(node: *mut Node) {
        // SAFETY: the caller points to memory of a node. Zero bytes are a valid value for all fields that are cleared.
        unsafe {
            node.cast::<u8>()
                .write_bytes(0, std::mem::offset_of!(Node, histogram));
            (*node).histogram.clear();
        }
    }

    /// Returns the node behind a plan state that carries one.
    ///
    /// # Safety
    /// `plan_state` must belong to a statement that [`crate::pg::statement`] has set up.
    #[inline(always)]
    pub unsafe fn of(plan_state: *mut pg_sys::PlanState) -> *mut Node {
        // SAFETY: the caller's promise; `instr` is the first field.
        unsafe { (*plan_state).instrument.cast() }
    }
}

const _: () = assert!(std::mem::offset_of!(Node, instr) == 0);
