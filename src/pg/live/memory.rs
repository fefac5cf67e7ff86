//! Provides memory for the nodes of a statement: in the session's shared area, or in private memory if there is no room.

use super::area::{self, OwnBlock};
use super::header::{Header, Setup};
use crate::pg::hot::node::Node;
use crate::pg::server::backend_local::BackendLocal;
use rowsource_core::model::LazyDescription;
use rowsource_core::zeroed::ZeroedMemory;
use std::rc::Rc;

/// Memory for the nodes of a statement. Each is initialised: its bytes are zero, or what an earlier statement left.
#[derive(Default)]
pub enum NodeMemory {
    #[default]
    Empty,
    Shared(OwnBlock),
    Private(ZeroedMemory<Node>),
}

/// The header of all statements in private memory of a session that has no area. Nobody reads it.
static NOBODYS: BackendLocal<Header> = BackendLocal::new(Header::new());

impl NodeMemory {
    /// Returns the address of `count` initialised nodes, and whether they are new, so that their bytes are zero. Returns `None` if
    /// there is no memory. The address is valid until the next call, and until this is dropped.
    pub fn get(&mut self, count: usize) -> Option<(*mut Node, bool)> {
        if self.capacity() >= count {
            match self {
                NodeMemory::Shared(block) => return Some((block.nodes(), false)),
                NodeMemory::Private(memory) => return memory.get(count),
                NodeMemory::Empty => {}
            }
        }
        *self = NodeMemory::Empty;
        if let Some((block, is_new)) = area::take_block(count) {
            let nodes = block.nodes();
            *self = NodeMemory::Shared(block);
            return Some((nodes, is_new));
        }
        let mut memory = ZeroedMemory::new();
        let got = memory.get(count)?;
        *self = NodeMemory::Private(memory);
        Some(got)
    }

    /// Returns for how many nodes there is memory.
    pub fn capacity(&self) -> usize {
        match self {
            NodeMemory::Empty => 0,
            NodeMemory::Shared(block) => block.room(),
            NodeMemory::Private(memory) => memory.capacity(),
        }
    }

    /// Returns the header of the statement. It is valid as long as the process runs.
    pub fn header(&self) -> &'static Header {
        match self {
            NodeMemory::Shared(block) => block.header(),
            NodeMemory::Private(_) | NodeMemory::Empty => area::private_header().unwrap_or(NOBODYS.inner()),
        }
    }

    /// Publishes how the statement is measured, and the description of its plan.
    ///
    /// # Safety
    /// The statement must not be live.
    pub unsafe fn publish(&self, setup: Setup, description: Option<&Rc<LazyDescription>>) {
        if let NodeMemory::Shared(block) = self {
            // SAFETY: this process owns the header, and the statement is not live, by the caller's promise.
            unsafe { block.header().set_up(setup) };
            if let Some(description) = description {
                block.describe(description);
            }
        }
    }
}
