//! Charges what InitPlans and subplans use to the nodes that call them. EXPLAIN shows each of them below one
//! node, but another one may call it: a CTE is called by its scans, and an InitPlan by the first node that
//! needs its result.
//!
//! Each node's account has only what it used itself. What a subplan used is added to further sums in the node
//! that called it. Which part of the subplan's time that was is known from its timer: it is looked at
//! whenever another node calls.

use super::node::{Account, Node};
use super::{usage, waits};
use crate::pg::compat;

/// Notes that another node calls a subplan than before.
///
/// # Safety
/// The node must be the root of a subplan that is called now, of the statement that runs, and `caller` the
/// running account.
#[cold]
#[inline(never)]
pub unsafe fn note_caller(node: *mut Node, caller: Account) {
    // SAFETY: the nodes of a running statement are live, by the caller's promise, and this makes no reference
    // to one. Each `ran_in` is null or one of them.
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
                    break;
                }
            }
            (*node).called.ticks = ticks;
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
