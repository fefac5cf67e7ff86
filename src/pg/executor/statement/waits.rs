//! The waits of a statement: in its nodes, in those of its parallel workers, and outside of them. While it
//! runs, [`crate::pg::hot::waits`] charges them.

use super::ending::Ending;
use super::state::Statement;
use crate::pg::executor::response;
use crate::pg::hot::waits;
use crate::pg::plan::tree;
use crate::pg::results::Collector;
use crate::pg::server::{self, switch};
use crate::pg::waits::lasting;
use crate::session;
use rowsource_core::model::NodeStats;
use rowsource_core::results::Nodes;
use rowsource_core::waits::plan::{EventWaits, RunWaits};
use smallvec::SmallVec;

/// A Gather or Gather Merge of a statement.
struct Gather {
    /// Its index.
    node: usize,
    /// The node above it may have stopped reading before its last row.
    may_be_unfinished: bool,
}

impl Statement {
    /// Takes what the process has waited since it began with this statement: while it was parsed, planned and
    /// started.
    #[cold]
    #[inline(never)]
    pub(super) fn take_planning_waits(&self) {
        // SAFETY: the statement is set up, and this is the only reference to its waits.
        unsafe { self.frame.waits().merge(&waits::take_outside()) };
    }
}

impl<'s> Ending<'s> {
    /// Returns the waits of the execution that has ended, and adds those of the nodes to their statistics.
    /// Returns `None` if there are none.
    pub(super) fn take_waits(self, stats: &mut [NodeStats]) -> Option<&'s RunWaits> {
        // SAFETY: the statement is set up. It does not run while the reference is used.
        let waits = unsafe { self.statement().frame.waits() };
        let channel = self.channel.get();
        if let Some(channel) = &channel {
            channel.each_wait(|waits_of_workers| self.add_waits_of_workers(waits, waits_of_workers));
        }
        if waits.is_empty() {
            return None;
        }
        waits.renumber(lasting::lasting);
        let gathers = self.gathers();
        if !gathers.is_empty() {
            self.move_to_gathers(waits, &gathers);
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
}

impl Statement {
    /// Adds what workers waited in a node, which is identified by its plan node id, or outside of their
    /// nodes.
    fn add_waits_of_workers(&self, waits: &mut RunWaits, of_workers: EventWaits) {
        if of_workers.node == EventWaits::OUTSIDE && of_workers.event != 0 {
            self.frame.add_of_workers(waits, of_workers, false);
            return;
        }
        let is_folded = of_workers.node & EventWaits::FOLDED != 0;
        let id = (of_workers.node & !EventWaits::FOLDED) as i32;
        match self.nodes.iter().position(|node| node.plan_node_id() == id) {
            Some(node) if of_workers.event != 0 => {
                let node = node as u32;
                let of_workers = EventWaits { node, ..of_workers };
                self.frame.add_of_workers(waits, of_workers, is_folded);
            }
            _ => waits.add_other(&of_workers),
        }
    }

    /// Returns the Gathers of the plan.
    fn gathers(&self) -> SmallVec<[Gather; 2]> {
        let timed = self.is_wrapped().then_some(self.timed);
        // SAFETY: the plan states are live while a statement can be reached.
        let collector = unsafe { Collector::new(&self.nodes, &self.channel, false, timed) };
        let nodes = self.nodes.iter().enumerate();
        let found = nodes.filter(|(_, node)| tree::is_gather(node.kind()));
        found
            .map(|(node, _)| Gather {
                node,
                may_be_unfinished: collector.sample(node).may_be_unfinished(),
            })
            .collect()
    }

    /// Charges a Gather with the waits for its workers. PostgreSQL may wait for them after the Gather's last
    /// call: in a node above that has read enough rows, or outside of all nodes. If several Gathers were
    /// stopped there, nothing tells for which of them it waited, and the wait stays where it was.
    fn move_to_gathers(&self, waits: &mut RunWaits, gathers: &[Gather]) {
        let gather_of = |waits: &EventWaits| {
            let is_moved = waits::FOR_WORKERS.contains(&waits.event)
                && !gathers.iter().any(|gather| Some(gather.node) == waits.node());
            if !is_moved {
                return None;
            }
            if let [only] = gathers {
                return Some(only.node);
            }
            let is_below =
                |gather: &&Gather| waits.node().is_none_or(|node| self.is_below(gather.node, node));
            let mut stopped = gathers
                .iter()
                .filter(|gather| gather.may_be_unfinished)
                .filter(is_below);
            stopped
                .next()
                .filter(|_| stopped.next().is_none())
                .map(|gather| gather.node)
        };
        for moved in waits.events() {
            let Some(gather) = gather_of(&moved) else { continue };
            if let Some(from) = moved.node().filter(|from| *from < self.nodes.count()) {
                let from = self.nodes.get(from);
                from.set_waited_ns(from.waited_ns().saturating_sub(moved.ns));
            }
            let gather = self.nodes.get(gather);
            gather.set_waited_ns(gather.waited_ns() + moved.ns);
        }
        waits.move_nodes(|waits| gather_of(waits).map_or(waits.node, |gather| gather as u32));
    }

    /// Returns whether a node is below another one.
    fn is_below(&self, node: usize, above: usize) -> bool {
        let parent = |node: &usize| usize::try_from(self.nodes.get(*node).parent()).ok();
        std::iter::successors(parent(&node), parent).any(|node| node == above)
    }
}

/// Charges what the process waited since the end of a statement to that statement, if its transaction ends
/// with it.
#[inline(always)]
pub fn at_end_of_transaction(is_committed: bool) {
    if waits::waited_outside() {
        end_transaction(is_committed);
    }
}

#[cold]
#[inline(never)]
fn end_transaction(is_committed: bool) {
    let mut waits = waits::take_outside();
    waits.renumber(lasting::lasting);
    if is_committed && switch::is_on() && !server::is_parallel_worker() {
        server::attempt("record the waits of a transaction's end", || {
            let is_utility = response::committed() == response::Committed::Utility;
            session::add_late_waits(server::message_time(), &waits, is_utility);
        });
    }
}
