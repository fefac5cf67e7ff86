//! Allocates the nodes of a statement.

pub use crate::pg::hot::node::Node;
use rowsource_core::histogram::Histogram;
use std::alloc::{Layout, alloc_zeroed};

impl Node {
    /// Resets the first `count` nodes of a vector's memory to their initial state, and returns them. Allocates if the
    /// memory is too small. Returns `None` if there is none.
    ///
    /// The vector must have no memory, or memory that this function allocated and zeroed.
    pub fn fresh(place: &mut Vec<Node>, count: usize) -> Option<*mut Node> {
        const FIXED: usize = std::mem::offset_of!(Node, histogram) + size_of::<Histogram>();
        place.clear();
        if place.capacity() < count {
            *place = Node::zeroed(count)?;
            return Some(place.as_mut_ptr());
        }
        let nodes = place.as_mut_ptr();
        for i in 0..count {
            // SAFETY: the memory has room for `count` nodes. Zero bytes are a valid value for all fields that are cleared.
            unsafe {
                let node = nodes.add(i);
                Node::reset_for_reexecution(node);
                node.cast::<u8>()
                    .add(FIXED)
                    .write_bytes(0, size_of::<Node>() - FIXED);
            }
        }
        Some(nodes)
    }

    /// Allocates zeroed memory for `count` nodes. Returns `None` if there is none.
    ///
    /// A histogram reads its counts before it first uses them. They are many, so no execution clears them. They are only
    /// initialised here.
    fn zeroed(count: usize) -> Option<Vec<Node>> {
        let layout = Layout::array::<Node>(count).ok()?;
        // SAFETY: the layout is not empty, because `fresh` asks only for a `count` above the capacity. The memory was
        // allocated by the allocator of `Vec`, with the layout of a `Vec` of this capacity.
        unsafe {
            let nodes = alloc_zeroed(layout).cast::<Node>();
            (!nodes.is_null()).then(|| Vec::from_raw_parts(nodes, 0, count))
        }
    }
}
