//! What each process of a parallel plan did.

use super::facts::NodeFacts;
use super::node::NodeStats;
use super::statement_facts::Jit;

/// What one parallel worker did of one node.
#[derive(Clone, Copy)]
pub struct WorkerPart {
    /// The number of the worker, from 0 on.
    pub worker: u32,
    /// What it did. Of the facts, only those that EXPLAIN shows of each worker.
    pub stats: NodeStats,
    /// What it compiled, if this is the topmost node that it ran.
    pub jit: Option<Jit>,
}

impl WorkerPart {
    /// Returns whether EXPLAIN shows it: the worker ran the node, or compiled for it, or there is a fact of
    /// it.
    pub fn is_shown(&self) -> bool {
        self.stats.starts.get_or_zero() > 0 || self.jit.is_some() || self.stats.facts.is_known()
    }
}

/// What the processes of a parallel plan did of one node.
#[derive(Clone, Copy)]
struct NodeParts {
    node: usize,
    /// What the leader did, as far as EXPLAIN shows it without the workers.
    leader: NodeFacts,
    /// Where the workers' parts begin.
    first: usize,
}

/// What each process of a parallel plan did, for the nodes that workers may have run. Its size is bounded.
#[derive(Clone, Default)]
pub struct Workers {
    /// In the order of the nodes.
    nodes: Vec<NodeParts>,
    parts: Vec<WorkerPart>,
}

impl Workers {
    /// The maximum number of nodes and of workers' parts, together. Of larger plans nothing is kept.
    pub const MAX: usize = 2_000;

    /// Adds a node, after all that were added before. The workers' parts follow. Returns false if there is no
    /// room.
    pub fn add_node(&mut self, node: usize, leader: NodeFacts) -> bool {
        let first = self.parts.len();
        let has_room = self.has_room() && self.nodes.try_reserve(1).is_ok();
        if has_room {
            self.nodes.push(NodeParts { node, leader, first });
        }
        has_room
    }

    /// Adds a worker's part of the node that was added last. Returns false if there is no room.
    pub fn add_part(&mut self, part: WorkerPart) -> bool {
        let has_room = self.has_room() && self.parts.try_reserve(1).is_ok();
        if has_room {
            self.parts.push(part);
        }
        has_room
    }

    fn has_room(&self) -> bool {
        self.nodes.len() + self.parts.len() < Self::MAX
    }

    /// Returns whether workers ran no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns what the leader did of a node, and the parts of the workers. Returns `None` if no workers may
    /// have run it.
    pub fn of(&self, node: usize) -> Option<(&NodeFacts, &[WorkerPart])> {
        let at = self.nodes.binary_search_by_key(&node, |parts| parts.node).ok()?;
        let parts = &self.nodes[at];
        let end = self.nodes.get(at + 1).map_or(self.parts.len(), |next| next.first);
        Some((
            &parts.leader,
            self.parts.get(parts.first..end).unwrap_or_default(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(worker: u32) -> WorkerPart {
        WorkerPart {
            worker,
            stats: NodeStats::default(),
            jit: None,
        }
    }

    #[test]
    fn parts_are_found_by_node() {
        let mut workers = Workers::default();
        assert!(workers.is_empty());
        for (node, parts) in [(2, 2), (3, 0), (7, 1)] {
            assert!(workers.add_node(node, NodeFacts::default()));
            (0..parts).for_each(|worker| assert!(workers.add_part(part(worker))));
        }
        let found = |node| {
            let (_, parts) = workers.of(node)?;
            Some(parts.iter().map(|part| part.worker).collect::<Vec<_>>())
        };
        assert_eq!(found(2), Some(vec![0, 1]));
        assert_eq!(found(3), Some(vec![]));
        assert_eq!(found(7), Some(vec![0]));
        assert_eq!(found(4), None);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut workers = Workers::default();
        assert!(workers.add_node(0, NodeFacts::default()));
        let added = (0..).take_while(|worker| workers.add_part(part(*worker))).count();
        assert_eq!(added, Workers::MAX - 1);
        assert!(!workers.add_node(1, NodeFacts::default()));
    }
}
