//! The state of one measured plan node. It begins with core's instrumentation struct, so `PlanState.instrument` can point
//! to it. EXPLAIN, the filter counts and the reports of parallel workers use that struct as usual.

use super::account::Usage;
use crate::pg::compat::{self, IndexSearches, NodeInstrumentation};
use pgrx::pg_sys;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::Estimate;
use rowsource_core::reconcile::Edge;
use rowsource_core::sampler::{EveryCall, NodeTimer};
use rowsource_core::zeroed::Zeroable;

/// Lives as long as its statement. For each execution, the fields before the histogram are zeroed and the histogram is
/// cleared. The fields after it are the same for all executions of a plan, or are not read before they are written.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Node {
    /// Must be first. The wrapper of the root of an InitPlan or subplan keeps the counters at entry in it, where core would keep
    /// those of its own calls: core makes none while the wrapper's call lasts.
    pub instr: NodeInstrumentation,
    /// Rows counted by the wrapper. Rows of core's own calls are counted in `instr`.
    pub rows: u64,
    /// What its last call returned. It is only kept if the caller reads each start to its end, or if the call was finished out
    /// of line.
    pub last: *mut pg_sys::TupleTableSlot,
    /// The last clock reading when the call in progress began.
    pub before: u64,
    pub timer: NodeTimer,
    pub every_call: EveryCall,
    /// What the node itself used, plus what the InitPlans and subplans that it called used.
    pub usage: Usage,
    /// The nanoseconds that the node itself waited.
    pub waited_ns: u64,
    /// An error ended the statement inside a call of this node, this many ticks after the call began.
    pub interrupted: Option<u64>,
    /// Core counts the searches of an index here, if it has no other place.
    pub index_searches: IndexSearches,
    /// How long the timed calls took.
    pub histogram: Histogram,
    pub plan_state: *mut pg_sys::PlanState,
    /// The account of its caller. For the root of an InitPlan or subplan, that is the node that makes the current call. For
    /// all other nodes, it is the parent.
    pub caller: Account,
    /// The scan below this fused aggregate; null for all other nodes.
    pub fused_scan: *mut Node,
    /// The wrapper of this node. It is installed after the first call has checked the stack.
    pub method: pg_sys::ExecProcNodeMtd,
    /// The function that was put into `ExecProcNode` until that first call.
    pub installed: pg_sys::ExecProcNodeMtd,
    /// The plan node id. It is copied because the plan may already be freed when the statement is closed.
    pub plan_node_id: i32,
    /// The planner's estimate of its rows. It is copied for the same reason.
    pub estimate: Estimate,
    /// Index of the parent in the statement's nodes; -1 at the root.
    pub parent: i32,
    /// The index of the last node below it that core calls on its behalf, and that uses its account; 0 if there is none.
    pub last_by_core: u32,
    /// If this is such a node, the index of the one before it; 0 if there is none.
    pub previous_by_core: u32,
    pub depth: u16,
    pub edge: Edge,
    /// It is a scan whose parent is a fused aggregate.
    pub is_fused_scan: bool,
    /// Its caller reads each start to its end, and its wrapper counts calls instead of rows.
    pub counts_calls: bool,
    /// Its wrapper does not set `before` at each call: the last reading before its call is that of `timing::last_before_mark`.
    pub notes_no_reading: bool,
    /// Core does not call it by ExecProcNode, and measures it itself.
    pub by_core: bool,
    /// An expression runs it (InitPlan, CTE, subplan), not its parent as an input.
    pub by_expression: bool,
    /// It is under a Gather: other processes run it too.
    pub under_gather: bool,
    /// EXPLAIN does not show it (a Gather that only debug_parallel_query added).
    pub hidden: bool,
}

// SAFETY: the fields are numbers, flags, pointers, optional functions, addresses of accounts, an estimate of two numbers, and `Edge`, whose first variant is zero.
unsafe impl Zeroable for Node {}

const _: () = assert!(Edge::Sequential as u8 == 0);

/// The address of an account, minus the offset of the account in a node. So that of a node's account is the node's address,
/// which the hot path has at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Account(*mut Usage);

impl Account {
    const OFFSET: usize = std::mem::offset_of!(Node, usage);

    /// Returns the address for an account.
    #[inline(always)]
    pub const fn of(usage: *mut Usage) -> Account {
        Account(usage.wrapping_byte_sub(Self::OFFSET))
    }

    /// Returns the account.
    #[inline(always)]
    pub const fn usage(self) -> *mut Usage {
        self.0.wrapping_byte_add(Self::OFFSET)
    }
}

impl Node {
    /// Clears what executions counted.
    ///
    /// # Safety
    /// * `node` must point into memory that [`Node::fresh`] made. The counts of its histogram are not cleared, so they must
    ///   be initialised.
    /// * No reference to the node may be alive.
    pub unsafe fn reset(node: *mut Node) {
        // SAFETY: the pointer is valid and no reference exists, by the caller's promise. Zero bytes are a valid value for
        // all fields that are cleared.
        unsafe {
            node.cast::<u8>()
                .write_bytes(0, std::mem::offset_of!(Node, histogram));
            (*node).histogram.clear();
        }
    }

    /// Clears what an execution counted, before the next one of the same statement.
    ///
    /// # Safety
    /// The same as for [`Node::reset`]. Before the first execution, the node was in its initial state.
    #[inline(always)]
    pub unsafe fn reset_for_reexecution(node: *mut Node) {
        const FROM: usize = std::mem::offset_of!(Node, rows);
        // SAFETY: as above. `rows` follows the instrumentation.
        unsafe {
            compat::reset_instrumentation(&raw mut (*node).instr);
            node.cast::<u8>()
                .add(FROM)
                .write_bytes(0, std::mem::offset_of!(Node, histogram) - FROM);
            (*node).histogram.clear();
        }
    }

    /// Returns the node of a measured plan state.
    ///
    /// # Safety
    /// `plan_state` must belong to a statement that is set up, whose wrappers are installed.
    #[inline(always)]
    pub unsafe fn of(plan_state: *mut pg_sys::PlanState) -> *mut Node {
        // SAFETY: set-up made `instrument` point to the node's `instr`, which is its first field.
        unsafe { (*plan_state).instrument.cast() }
    }
}

const _: () = assert!(std::mem::offset_of!(Node, instr) == 0);
const _: () = assert!(std::mem::offset_of!(Node, rows) == size_of::<NodeInstrumentation>());
