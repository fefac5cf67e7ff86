//! Resets the nodes of a statement.

pub use crate::pg::hot::node::Node;
use crate::pg::live::memory::NodeMemory;
use rowsource_core::histogram::Histogram;

impl Node {
    /// Returns the first `count` nodes of the memory in their initial state. Allocates if the memory is too small. Returns
    /// `None` if there is none.
    ///
    /// The counts of histograms are many, so no execution clears them. They are initialised when the memory is allocated.
    pub fn fresh(memory: &mut NodeMemory, count: usize) -> Option<*mut Node> {
        const FIXED: usize = std::mem::offset_of!(Node, histogram) + size_of::<Histogram>();
        let (nodes, is_new) = memory.get(count)?;
        if is_new {
            return Some(nodes);
        }
        for i in 0..count {
            // SAFETY: the memory has `count` initialised nodes. Zero bytes are a valid value for all fields that are cleared.
            unsafe {
                let node = nodes.add(i);
                Node::reset(node);
                node.cast::<u8>()
                    .add(FIXED)
                    .write_bytes(0, size_of::<Node>() - FIXED);
            }
        }
        Some(nodes)
    }
}
