//! Allocates the nodes of a statement.

pub use crate::pg::hot::node::Node;
use rowsource_core::histogram::Histogram;
use std::alloc::{Layout, alloc_zeroed};

impl Node {
    /// Returns `count` nodes at the beginning of a place that is kept for them, as if new; `None` without memory.
    ///
    /// The place is empty, or made by this function: all its memory was zeroed when it was allocated.
    pub fn fresh(place: &mut Vec<Node>, count: usize) -> Option<*mut Node> {
        const FIXED: usize = std::mem::offset_of!(Node, histogram) + size_of::<Histogram>();
        place.clear();
        if place.capacity() < count {
            *place = Node::zeroed(count)?;
            return Some(place.as_mut_ptr());
        }
        let nodes = place.as_mut_ptr();
        for i in 0..count {
            // SAFETY: the place has room for `count` nodes. Zero bytes are a valid value for all fields that are cleared.
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

    /// Allocates a place for `count` nodes, all of its bytes zero; `None` without memory.
    ///
    /// A histogram's counts are read before their first use, and no execution clears them, for they are many: only
    /// here they get their first value.
    fn zeroed(count: usize) -> Option<Vec<Node>> {
        let layout = Layout::array::<Node>(count).ok()?;
        // SAFETY: `count` is larger than some capacity, so the layout is not empty. The memory was allocated by the
        // allocator of `Vec`, with the layout of a `Vec` of this capacity.
        unsafe {
            let nodes = alloc_zeroed(layout).cast::<Node>();
            (!nodes.is_null()).then(|| Vec::from_raw_parts(nodes, 0, count))
        }
    }
}
