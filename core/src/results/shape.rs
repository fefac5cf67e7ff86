//! How the nodes of a plan hang together, as far as its executions can be summed up as counts.

use super::node::NS_PER_MS;
use super::sample::Place;
use crate::reconcile::Edge;

/// Statements with more nodes take so long that to sum them up as counts would save nothing.
pub const MAX_NODES: usize = 8;

/// How the nodes of a plan hang together, and the clock that timed them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Shape {
    /// Milliseconds per tick of the clock; 0 if no call is timed.
    pub(super) tick_ms: f64,
    /// A byte for each node, the lowest for the root: the index of the parent plus one, or 0. The highest bit
    /// says that only core measures the node. So two numbers are enough to compare shapes.
    nodes: u64,
}

/// The highest bit of a node's byte.
const BY_CORE: u64 = 0x80;

impl Shape {
    /// Returns the shape of a plan, from the places of its nodes and whether only core measures them. A tick
    /// has `tick_ns` nanoseconds; 0 means that no call is timed. Returns `None` if executions of the plan
    /// cannot be summed up as counts: it has too many nodes, or one that is no input of its parent, or that
    /// runs inside a sibling's time.
    pub fn new(nodes: impl ExactSizeIterator<Item = (Place, bool)>, tick_ns: f64) -> Option<Shape> {
        let mut shape = Shape {
            tick_ms: tick_ns / NS_PER_MS,
            ..Shape::default()
        };
        if nodes.len() > MAX_NODES {
            return None;
        }
        for (i, (place, is_by_core)) in nodes.enumerate() {
            let is_input = place.parent.is_none() || place.edge == Edge::Sequential;
            if place.hidden || place.by_expression || !is_input {
                return None;
            }
            let parent = place.parent.map_or(0, |parent| parent as u64 + 1);
            let by_core = if is_by_core { BY_CORE } else { 0 };
            shape.nodes |= (parent | by_core) << (8 * i);
        }
        Some(shape)
    }

    /// Returns the shape of the plan with other nodes: of each the index of its parent, and whether only core
    /// measures it.
    pub(super) fn with_nodes(self, nodes: impl Iterator<Item = (Option<u32>, bool)>) -> Shape {
        let bytes = nodes.enumerate().map(|(i, (parent, is_by_core))| {
            let parent = parent.map_or(0, |parent| u64::from(parent) + 1);
            (parent | if is_by_core { BY_CORE } else { 0 }) << (8 * i)
        });
        Shape {
            nodes: bytes.sum(),
            ..self
        }
    }

    #[inline(always)]
    pub(super) fn is_timed(&self) -> bool {
        self.tick_ms != 0.0
    }

    /// Returns the nanoseconds per tick, if calls are timed.
    pub(super) fn tick_ns(&self) -> Option<f64> {
        self.is_timed().then_some(self.tick_ms * NS_PER_MS)
    }

    fn of_node(&self, i: usize) -> u64 {
        self.nodes >> (8 * i) & 0xff
    }

    pub(super) fn parent(&self, i: usize) -> Option<usize> {
        let parent = (self.of_node(i) & !BY_CORE).checked_sub(1)?;
        Some(parent as usize)
    }

    /// Returns whether only core measures a node.
    pub(super) fn is_by_core(&self, i: usize) -> bool {
        self.of_node(i) & BY_CORE != 0
    }
}
