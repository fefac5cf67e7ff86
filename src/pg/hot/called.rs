//! Charges what InitPlans and subplans use to the nodes that call them. EXPLAIN shows each of them below one node, but another one may call
//! it: a CTE is called by its scans, and an InitPlan by the first node that needs its result.
//!
//! Each node's account has only what it used itself. What a subplan used is added to the sums here of the node that called it. Which part of
//! the subplan's time that was is known from its timer: it is looked at whenever another node calls.

use super::node::{Account, Node};
use super::{usage, waits};
use crate::pg::compat;
use pgrx::pg_sys::{BufferUsage, WalUsage};

/// How many subplans are noted that ran in a node before another one called them. The time of others counts for their last caller.
pub const EARLIER: usize = 2;

/// What the InitPlans and subplans used that a node called. Zero bytes are nothing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Called {
    pub buffers: BufferUsage,
    pub wal: WalUsage,
    /// Those that another node called later.
    pub earlier: [Earlier; EARLIER],
    /// If the node is the root of a subplan: the ticks of its calls by earlier callers.
    pub ticks: f64,
}

/// The calls of a subplan by a node that does not call it any more.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Earlier {
    /// The index of the subplan's root among the nodes; 0 if there is none.
    pub subplan: usize,
    pub ticks: f64,
}

impl Called {
    /// Clears the sums.
    ///
    /// # Safety
    /// They must be live, and no reference to them may exist.
    #[cold]
    #[inline(never)]
    pub unsafe fn clear(called: *mut Called) {
        // SAFETY: the sums are live by the caller's promise. Zero bytes are a valid value for all fields.
        unsafe { called.write_bytes(0, 1) }
    }
}

/// Notes that another node calls a subplan than before.
///
/// # Safety
/// The node must be the root of a subplan that is called now, of the statement that runs, and `caller` the running account.
#[cold]
#[inline(never)]
pub unsafe fn note_caller(node: *mut Node, caller: Account) {
    // SAFETY: the nodes of a running statement are live, by the caller's promise, and this makes no reference to one. Each `ran_in` is null
    // or one of them.
    unsafe {
        let ticks = match (*node).every_call.calls {
            0 => (*node).timer.ticks_so_far(),
            _ => (*node).every_call.ticks as i64 as f64,
        };
        let more = ticks - (*node).called.ticks;
        let frame = waits::running().as_ref();
        if let Some(frame) = frame.filter(|_| more > 0.0 && !(*node).ran_in.is_null()) {
            let earlier = (*node).ran_in;
            let subplan = frame.index_of(node);
            for place in &mut (*earlier).called.earlier {
                if place.subplan == subplan || place.subplan == 0 {
                    place.subplan = subplan;
                    place.ticks += more;
                    (*node).called.ticks = ticks;
                    break;
                }
            }
            // So both are cleared.
            (*earlier).usage.used.has_more = true;
            (*node).usage.used.has_more = true;
        }
        (*node).caller = caller;
        (*node).ran_in = frame.map_or(std::ptr::null_mut(), |frame| frame.node_of(caller.usage()));
    }
}

/// Charges the caller of a subplan with what was charged to all nodes since the subplan's root was called.
///
/// # Safety
/// The node must be that root, whose caller's account is live. No reference to a node may exist.
pub unsafe fn charge_caller(node: *mut Node) {
    // SAFETY: the node and its caller are live by the caller's promise, and this reference ends here.
    unsafe {
        let core = compat::common_instrumentation(&mut (*node).instr);
        let (buffers, wal) = (&raw const core.bufusage_start, &raw const core.walusage_start);
        let ran_in = (*node).ran_in;
        if ran_in.is_null() {
            usage::add_since((*node).caller.usage(), buffers, wal);
        } else {
            (*ran_in).usage.used.has_more = true;
            let called = &raw mut (*ran_in).called;
            usage::accumulate_since(&raw mut (*called).buffers, &raw mut (*called).wal, buffers, wal);
        }
    }
}
