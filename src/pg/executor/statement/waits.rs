//! The waits of a statement: in its nodes, in those of its parallel workers, and outside of them. While it runs,
//! [`crate::pg::hot::waits`] charges them.

use super::state::Statement;
use crate::pg::hot::waits;
use crate::pg::plan::tree;
use crate::pg::results::node_table::NodeRef;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::{self, switch};
use crate::session;
use pgrx::pg_sys;
use rowsource_core::model::NodeStats;
use rowsource_core::waits::plan::{EventWaits, RunWaits};
use std::cell::Cell;
use std::ffi::c_void;

/// The events of a leader that waits for its workers. PostgreSQL may do that after the Gather's last call.
const FOR_WORKERS: [u32; 3] = [
    pg_sys::WaitEventIPC::WAIT_EVENT_EXECUTE_GATHER,
    pg_sys::WaitEventIPC::WAIT_EVENT_PARALLEL_FINISH,
    pg_sys::WaitEventIPC::WAIT_EVENT_BGWORKER_SHUTDOWN,
];

impl Statement {
    /// Takes what the process has waited since it began with this statement: while it was parsed, planned and started.
    ///
    /// # Safety
    /// The statement must not be running.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn take_planning_waits(&self) {
        // SAFETY: the statement is set up, and this is the only reference to its waits.
        unsafe { self.frame.waits().merge(&waits::take_outside()) };
    }

    /// Returns the waits of the execution that has ended, and adds those of the nodes to their statistics. Returns `None` if there
    /// are none.
    ///
    /// # Safety
    /// * The plan states must be live, and the statement must not be running.
    /// * The statement must not run before the result is dropped.
    pub(super) unsafe fn take_waits(&self, stats: &mut [NodeStats]) -> Option<&RunWaits> {
        // SAFETY: the statement is set up. It does not run while the reference is used, by the caller's promise.
        let waits = unsafe { self.frame.waits() };
        let channel = self.channel.get();
        if let Some(channel) = &channel {
            channel.each_wait(|waits_of_workers| self.add_waits_of_workers(waits, waits_of_workers));
        }
        if waits.is_empty() {
            return None;
        }
        // SAFETY: the plan states are live by the caller's promise.
        let gathers = |node: &NodeRef| unsafe { tree::is_gather(node.plan_state()) };
        let first_gather = self.nodes.iter().position(|node| gathers(&node));
        if let Some(gather) = first_gather {
            self.move_to_gather(waits, gather, |i| {
                i < self.nodes.count() && gathers(&self.nodes.get(i))
            });
        }
        if self.nodes.iter().next().is_some_and(|root| root.hidden()) {
            waits.move_nodes(|waits| match waits.node {
                0 | EventWaits::OUTSIDE => EventWaits::OUTSIDE,
                node => node - 1,
            });
        }
        let shown = self.nodes.iter().filter(|node| !node.hidden());
        for (node, stats) in shown.zip(stats) {
            let by_workers = channel.map_or(0, |channel| channel.waited_ns(node.plan_node_id()));
            stats.wait_ms = (node.waited_ns() + by_workers) as f64 / 1e6;
        }
        Some(waits)
    }

    /// Adds what workers waited in a node, which is identified by its plan node id, or outside of their nodes.
    fn add_waits_of_workers(&self, waits: &mut RunWaits, of_workers: EventWaits) {
        if of_workers.node == EventWaits::OUTSIDE && of_workers.event != 0 {
            waits.add(of_workers);
            return;
        }
        let id = of_workers.node as i32;
        match self.nodes.iter().position(|node| node.plan_node_id() == id) {
            Some(node) if of_workers.event != 0 => {
                waits.add(EventWaits {
                    node: node as u32,
                    ..of_workers
                });
            }
            _ => waits.add_other(&of_workers),
        }
    }

    /// Charges a Gather with the waits for its workers. With several Gathers, those that were charged to no Gather belong to one of
    /// them; then the first one counts.
    fn move_to_gather(&self, waits: &mut RunWaits, first: usize, is_gather: impl Fn(usize) -> bool) {
        let is_moved =
            |waits: &EventWaits| FOR_WORKERS.contains(&waits.event) && !waits.node().is_some_and(&is_gather);
        for moved in waits.events().filter(is_moved) {
            if let Some(from) = moved.node() {
                let from = self.nodes.get(from);
                from.set_waited_ns(from.waited_ns().saturating_sub(moved.ns));
            }
            let gather = self.nodes.get(first);
            gather.set_waited_ns(gather.waited_ns() + moved.ns);
        }
        waits.move_nodes(|waits| if is_moved(waits) { first as u32 } else { waits.node });
    }
}

/// Whether the callback at the end of transactions is registered.
static REGISTERED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Registers the callback at the end of transactions.
pub fn init() {
    if !REGISTERED.replace(true) {
        // SAFETY: the callback has the type that PostgreSQL calls, and needs no argument.
        unsafe { pg_sys::RegisterXactCallback(Some(at_end_of_transaction), std::ptr::null_mut()) };
    }
}

/// Charges what the process waited since the end of a statement to that statement, if its transaction ends with it.
///
/// # Safety
/// Only PostgreSQL may call this, when a transaction ends.
unsafe extern "C-unwind" fn at_end_of_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    if waits::waited_outside() {
        end_transaction(event == pg_sys::XactEvent::XACT_EVENT_COMMIT);
    }
}

#[cold]
#[inline(never)]
fn end_transaction(is_committed: bool) {
    let waits = waits::take_outside();
    if is_committed && switch::is_on() && !server::is_parallel_worker() {
        let _ = server::caught(|| session::add_late_waits(server::message_time(), &waits));
    }
}
