//! Puts the wrappers into a statement's plan states, and back where core has put its own.

use super::{Statement, of};
use crate::guc::Detail;
use crate::pg::hot::wrapper::{self, Accounting};
use crate::pg::node::Node;
use crate::pg::{harvest, side_effects, tree};
use pgrx::pg_sys;

impl Statement {
    /// Tells each node its caller's account: that of the next node above which the wrapper sees (core calls Hash and
    /// the like by other ways).
    ///
    /// # Safety
    /// * The statement's nodes must be live, and nobody may hold a reference to one.
    /// * The accounts are good as long as the statement stays where it is.
    pub(super) unsafe fn name_callers(&self) {
        let outside = self.outside.get();
        // SAFETY: the statement's own nodes; a parent precedes its children.
        unsafe {
            for i in 0..self.count {
                let node = self.nodes.add(i);
                (*node).caller = match usize::try_from((*node).parent) {
                    Err(_) => outside,
                    Ok(p) if (*self.nodes.add(p)).by_core => (*self.nodes.add(p)).caller,
                    Ok(p) => &raw mut (*self.nodes.add(p)).usage,
                };
            }
        }
    }

    /// Pairs each plain aggregate over a scan with that scan.
    ///
    /// # Safety
    /// The statement's nodes and their plan states must be live, and nobody may hold a reference to a node.
    pub(super) unsafe fn pair_fused_scans(&self) {
        if self.detail == Detail::Rows {
            return;
        }
        // SAFETY: the statement's own nodes; an outer child directly follows a parent without InitPlans.
        unsafe {
            for i in 1..self.count {
                let (parent, node) = (self.nodes.add(i - 1), self.nodes.add(i));
                if (*node).parent == i as i32 - 1
                    && !(*parent).by_expression
                    && side_effects::is_plain_aggregate_over_scan((*parent).plan_state, (*node).plan_state)
                {
                    (*parent).fused_scan = node;
                    (*node).is_fused_scan = true;
                }
            }
        }
    }

    /// Returns how buffers are accounted for a node.
    ///
    /// # Safety
    /// `i` must be one of the statement's nodes, which must be live.
    pub(super) unsafe fn accounting(&self, i: usize) -> Accounting {
        // SAFETY: `i` is one of the nodes, which are live, by the caller's promise.
        unsafe {
            let node = self.nodes.add(i);
            if self.detail == Detail::Rows {
                Accounting::None
            } else if (*node).by_expression {
                Accounting::SubplanRoot
            } else if !(*node).fused_scan.is_null() {
                Accounting::FusedAggregate
            } else if (*node).is_fused_scan {
                Accounting::FusedScan
            } else {
                Accounting::Switch
            }
        }
    }

    /// Puts the wrappers in place. At the first run, not at the start: Parallel Hash resets `ExecProcNode` in a
    /// worker between the two.
    ///
    /// # Safety
    /// The statement's nodes and their plan states must be live, and nobody may hold a reference to one.
    pub(super) unsafe fn install(&self) {
        if self.installed.replace(true) {
            return;
        }
        // SAFETY: indexes are below the number of nodes, which are live with their plan states by the caller's
        // promise.
        unsafe {
            for i in 0..self.count {
                let node = self.nodes.add(i);
                if !(*node).by_core && (*node).method.is_some() {
                    let first = if tree::is_gather((*node).plan_state) {
                        gather_first_call
                    } else {
                        wrapper::first_call
                    };
                    (*node).installed = Some(first);
                    (*(*node).plan_state).ExecProcNode = (*node).installed;
                }
            }
        }
    }

    /// Parallel Hash also resets it in the leader, inside the Gather's first call. Remembers what was used below while
    /// core measured such nodes, for core's figures include it, and puts their wrappers back. To be called once that
    /// call is over: it has returned, or an error has ended it.
    ///
    /// # Safety
    /// The statement's nodes must be live, and so must their plan states if core has put something in place of a
    /// wrapper. Nobody may hold a reference to one.
    pub(super) unsafe fn note_unwrapped(&self) {
        if !self.wrapped || !self.installed.get() {
            return;
        }
        // SAFETY: indexes are below the number of nodes, which are live with their plan states by the caller's
        // promise.
        unsafe {
            if !(0..self.count).any(|i| is_unwrapped(self.nodes.add(i))) {
                return;
            }
            let used = harvest::used_below(self.nodes, self.count);
            for i in 0..self.count {
                let node = self.nodes.add(i);
                if is_unwrapped(node) {
                    (*(*node).plan_state).ExecProcNode = (*node).method;
                    // Without memory for the sums these blocks count twice.
                    if let Some(used) = &used {
                        ((*node).below_unwrapped, (*node).wal_below_unwrapped) = used[i];
                    }
                }
            }
        }
    }
}

/// Whether core has put its own in place of a node's wrapper. Addresses that we put there are known; core's own are not.
///
/// # Safety
/// `node` must be live, and so must its plan state.
unsafe fn is_unwrapped(node: *mut Node) -> bool {
    let address = |method: pg_sys::ExecProcNodeMtd| method.map_or(0, |m| m as usize);
    // SAFETY: node and plan state are live by the caller's promise.
    unsafe {
        let present = address((*(*node).plan_state).ExecProcNode);
        (*node).under_gather
            && !(*node).by_core
            && (*node).method.is_some()
            && present != address((*node).method)
            && present != address((*node).installed)
    }
}

/// The wrapper of a Gather's first call.
///
/// # Safety
/// * To be called by the executor only, for a plan state that [`Statement::install`] put this into.
/// * An error crosses this frame.
unsafe extern "C-unwind" fn gather_first_call(ps: *mut pg_sys::PlanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor for a node of an open statement, which is looked for only after the call.
    unsafe {
        let slot = wrapper::first_call(ps);
        if let Some(statement) = of((*ps).state) {
            statement.note_unwrapped();
        }
        slot
    }
}
