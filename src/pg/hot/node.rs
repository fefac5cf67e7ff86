//! The state of one measured plan node. It begins with core's instrumentation struct, so
//! `PlanState.instrument` can point to it. EXPLAIN, the filter counts and the reports of parallel workers use
//! that struct as usual.

use super::account::{Called, Usage};
use crate::pg::compat::{self, IndexSearches, NodeInstrumentation};
use pgrx::pg_sys;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::Estimate;
use rowsource_core::reconcile::Edge;
use rowsource_core::sampler::{EarlierCalls, EveryCall, NodeTimer};
use rowsource_core::zeroed::Zeroable;

/// Lives as long as its statement. For each execution, the fields up to the timer are zeroed and the
/// histogram is cleared. The fields between the timer and the histogram are the same for all executions of a
/// plan, are not read before they are written, or are about earlier executions.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Node {
    /// Must be first. The wrapper of the root of an InitPlan or subplan keeps the counters at entry in it,
    /// where core would keep those of its own calls: core makes none while the wrapper's call lasts.
    pub instr: NodeInstrumentation,
    /// What the node itself used.
    pub usage: Usage,
    pub every_call: EveryCall,
    /// The nanoseconds that the node itself waited.
    pub waited_ns: u64,
    /// An error ended the statement inside a call of this node, this many ticks after the call began.
    pub interrupted: Option<u64>,
    /// Core counts the searches of an index here, if it has no other place.
    pub index_searches: IndexSearches,
    /// Rows counted by the wrapper. Rows of core's own calls are counted in `instr`.
    pub rows: u64,
    /// What its last call returned. It is only kept if the caller reads each start to its end, or if the call
    /// was finished out of line.
    pub last: *mut pg_sys::TupleTableSlot,
    /// The last clock reading when the call in progress began.
    pub before: u64,
    /// Its gaps are cleared only if there were any, so it comes last of what is cleared.
    pub timer: NodeTimer,
    /// What earlier executions tell about its calls.
    pub earlier: EarlierCalls,
    pub plan_state: *mut pg_sys::PlanState,
    /// The account of its caller. For the root of an InitPlan or subplan, that is the node that makes the
    /// current call. For all other nodes, it is the parent.
    pub caller: Account,
    /// For the root of an InitPlan or subplan, the node that made its last call: that with the caller's
    /// account, or the one that core called on its behalf. Null if the caller is no node.
    pub ran_in: *mut Node,
    /// What the InitPlans and subplans used that it called. It is cleared only if something was charged to
    /// its account.
    pub called: Called,
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
    /// The index of the last node below it that core calls on its behalf, and that uses its account; 0 if
    /// there is none.
    pub last_by_core: u32,
    /// If this is such a node, the index of the one before it; 0 if there is none.
    pub previous_by_core: u32,
    pub depth: u16,
    pub edge: Edge,
    /// It is a scan whose parent is a fused aggregate.
    pub is_fused_scan: bool,
    /// Its caller reads each start to its end, and its wrapper counts calls instead of rows.
    pub counts_calls: bool,
    /// Its wrapper does not set `before` at each call: the last reading before its call is that of
    /// `timing::last_before_mark`.
    pub notes_no_reading: bool,
    /// Core does not call it by ExecProcNode, and measures it itself.
    pub by_core: bool,
    /// An expression runs it (InitPlan, CTE, subplan), not its parent as an input.
    pub by_expression: bool,
    /// It is under a Gather: other processes run it too.
    pub under_gather: bool,
    /// It is an input of a node of another extension, which may run it without calling its wrapper.
    pub by_others: bool,
    /// EXPLAIN does not show it (a Gather that only debug_parallel_query added).
    pub hidden: bool,
    /// How long the timed calls took. It is large, so it comes last.
    pub histogram: Histogram,
}

// SAFETY: the fields are numbers, flags, pointers, optional functions, addresses of accounts, structs of
// numbers, and `Edge`, whose first variant is zero.
unsafe impl Zeroable for Node {}

const _: () = assert!(Edge::Sequential as u8 == 0);

/// The address of an account, minus the offset of the account in a node. So that of a node's account is the
/// node's address, which the hot path has at hand.
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
    /// Brings a node that another statement used into its initial state.
    ///
    /// # Safety
    /// * `node` must point into memory that [`Node::fresh`] made. The counts of its histogram are not
    ///   cleared, so they must be initialised.
    /// * No reference to the node may be alive.
    pub unsafe fn reset(node: *mut Node) {
        // SAFETY: the pointer is valid and no reference exists, by the caller's promise. Zero bytes are a
        // valid value for all fields that are cleared.
        unsafe {
            node.cast::<u8>()
                .write_bytes(0, std::mem::offset_of!(Node, histogram));
            (*node).histogram.clear();
        }
    }

    /// Clears what an execution counted, before the next one of the same statement, and starts its timer. If
    /// `times_first_calls`, that times all of the first calls, no matter what is known of them.
    ///
    /// # Safety
    /// The same as for [`Node::reset`]. Before the first execution, the node was in its initial state.
    #[inline(always)]
    pub unsafe fn reset_for_reexecution(node: *mut Node, times_first_calls: bool) {
        const FROM: usize = std::mem::offset_of!(Node, every_call);
        const TO: usize = std::mem::offset_of!(Node, timer) + std::mem::offset_of!(NodeTimer, gaps);
        // SAFETY: the pointer is valid and no reference exists, by the caller's promise. Zero bytes are a
        // valid value for all fields that are cleared. The instrumentation and the account are cleared by
        // themselves, and `every_call` follows them. The gaps are zero if the timer has chosen none.
        unsafe {
            let had_gaps = (*node).earlier.are_known() || (*node).timer.may_have_gaps();
            if had_gaps {
                (*node).earlier.note(&mut (*node).timer);
            }
            compat::reset_instrumentation(&raw mut (*node).instr);
            if (*node).usage.clear() {
                (*node).called.clear();
            }
            node.cast::<u8>().add(FROM).write_bytes(0, TO - FROM);
            (*node).histogram.clear();
            (*node).timer.start();
            if had_gaps && !times_first_calls {
                (*node).earlier.start(&mut (*node).timer);
            }
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
// `reset` clears all fields before the histogram.
const _: () = assert!(std::mem::offset_of!(Node, histogram) + size_of::<Histogram>() == size_of::<Node>());
const _: () = assert!(std::mem::offset_of!(Node, usage) == size_of::<NodeInstrumentation>());
const _: () =
    assert!(std::mem::offset_of!(Node, every_call) == size_of::<NodeInstrumentation>() + size_of::<Usage>());
