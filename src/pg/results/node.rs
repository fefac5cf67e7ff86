//! Resets the nodes of a statement.

pub use crate::pg::hot::node::Node;
use crate::pg::live::Need;
use crate::pg::live::memory::NodeMemory;

impl Node {
    /// Returns the first nodes of the memory in their initial state, as many as are needed. Allocates if the
    /// memory is too small. Returns `None` if there is none.
    ///
    /// The counts of histograms are many, so no execution clears them. They are initialised when the memory
    /// is allocated.
    pub fn fresh(memory: &mut NodeMemory, need: Need) -> Option<*mut Node> {
        let (nodes, is_new) = memory.get(need)?;
        if is_new {
            return Some(nodes);
        }
        for i in 0..need.nodes {
            // SAFETY: the memory has so many initialised nodes. It is borrowed mutably, and the statement
            // that used it before has given it back, so no reference to a node is alive.
            unsafe { Node::reset(nodes.add(i)) }
        }
        Some(nodes)
    }
}
