//! Provides memory for the nodes of a statement: a block that others see, or private memory if there is none.

use super::block::Need;
use super::header::{Header, Setup};
use super::own::{self, OwnBlock, OwnCut};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::node::Node;
use rowsource_core::model::LazyDescription;
use rowsource_core::zeroed::ZeroedMemory;
use std::rc::Rc;

/// Memory for the nodes of a statement. Each is initialised: its bytes are zero, or what an earlier statement
/// left.
///
/// The kind is a byte of its own. Hidden in the capacity of the private memory, it costs each statement ten
/// instructions.
#[derive(Default)]
#[repr(u8)]
pub enum NodeMemory {
    #[default]
    Empty,
    Shared(OwnBlock),
    Private(Private),
}

/// Private memory, and what others see of its statement.
pub struct Private {
    nodes: ZeroedMemory<Node>,
    cut: Option<OwnCut>,
}

/// The header of all statements of a session that has no area. Nobody reads it.
static NOBODYS: BackendLocal<Header> = BackendLocal::new(Header::new());

impl NodeMemory {
    /// Returns the address of initialised nodes for a statement, and whether they are new, so that their
    /// bytes are zero. Returns `None` if there is no memory. The address is valid until the next call, and
    /// until this is dropped.
    pub fn get(&mut self, need: Need) -> Option<(*mut Node, bool)> {
        if let NodeMemory::Shared(block) = self
            && block.fits(need)
        {
            return Some((block.nodes(), false));
        }
        // This gives a block that is too small back.
        let mut private = match std::mem::take(self) {
            NodeMemory::Private(memory) => memory,
            NodeMemory::Shared(_) | NodeMemory::Empty => Private {
                nodes: ZeroedMemory::new(),
                cut: None,
            },
        };
        if let Some((block, is_new)) = own::take_block(need) {
            let nodes = block.nodes();
            *self = NodeMemory::Shared(block);
            return Some((nodes, is_new));
        }
        let got = private.nodes.get(need.nodes)?;
        private.cut = private.cut.or_else(own::take_cut);
        *self = NodeMemory::Private(private);
        Some(got)
    }

    /// Returns for how many nodes there is memory.
    pub fn capacity(&self) -> usize {
        match self {
            NodeMemory::Empty => 0,
            NodeMemory::Shared(block) => block.room(),
            NodeMemory::Private(private) => private.nodes.capacity(),
        }
    }

    /// Returns whether others see the nodes of the statement.
    pub fn is_shared(&self) -> bool {
        matches!(self, NodeMemory::Shared(_))
    }

    /// Returns whether others see it, and it has room for a statement.
    pub fn is_shared_with_room(&self, need: Need) -> bool {
        matches!(self, NodeMemory::Shared(block) if block.fits(need))
    }

    /// Takes the memory again after [`NodeMemory::give_back`]. Returns false if its statement must be set up
    /// anew, because another session has its block, because there may be a block for it now, or because
    /// another statement has been shown in its place.
    #[inline(always)]
    pub fn hold(&self) -> bool {
        match self {
            NodeMemory::Shared(block) => block.hold(),
            NodeMemory::Private(private) => private.hold(),
            NodeMemory::Empty => !own::may_have_block(),
        }
    }

    /// Gives the memory back until its statement runs again.
    #[inline(always)]
    pub fn give_back(&self) {
        match self {
            NodeMemory::Shared(block) => block.give_back(),
            NodeMemory::Private(Private { cut: Some(cut), .. }) => cut.give_back(),
            NodeMemory::Private(_) | NodeMemory::Empty => {}
        }
    }

    /// Returns the header of the statement. It is valid as long as the process runs.
    pub fn header(&self) -> &'static Header {
        match self {
            NodeMemory::Shared(block) => block.header(),
            NodeMemory::Private(Private { cut: Some(cut), .. }) => cut.header(),
            NodeMemory::Private(_) | NodeMemory::Empty => own::private_header().unwrap_or(NOBODYS.inner()),
        }
    }

    /// Says that the statement is never published. Its nodes may lie where the description of another one
    /// was.
    ///
    /// # Safety
    /// The statement must not be live.
    pub unsafe fn hide(&self) {
        if let NodeMemory::Shared(block) = self {
            // SAFETY: this process holds the block, and the statement is not live, by the caller's promise.
            unsafe { block.describe_nothing() }
        }
    }

    /// Publishes how the statement is measured, and the description of its plan.
    ///
    /// # Safety
    /// The statement must not be live.
    pub unsafe fn publish(&self, setup: Setup, description: Option<&Rc<LazyDescription>>) {
        // SAFETY: this process holds the block or the cut, and the statement is not live, by the caller's
        // promise.
        unsafe {
            match self {
                NodeMemory::Shared(block) => {
                    block.header().set_up(setup);
                    match description {
                        Some(description) => block.describe(setup.count, description),
                        None => block.describe_nothing(),
                    }
                }
                NodeMemory::Private(Private { cut: Some(cut), .. }) => {
                    cut.publish(setup, description.map_or("", |description| description.text()));
                }
                NodeMemory::Private(_) | NodeMemory::Empty => {}
            }
        }
    }
}

impl Private {
    /// Takes the memory again, as [`NodeMemory::hold`] does.
    #[cold]
    fn hold(&self) -> bool {
        !own::may_have_block()
            && match &self.cut {
                Some(cut) => cut.hold(),
                None => !own::may_have_cut(),
            }
    }
}
