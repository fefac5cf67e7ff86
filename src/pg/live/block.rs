//! A block: shared memory for a statement, of one of a few sizes. A statement that fits into none of them is
//! in private memory.
//!
//! The nodes lie behind its header, and the description of the statement's plan at its end. `core::blocks`
//! has the protocol by which blocks pass from one session to another.

use super::header::Header;
use crate::pg::compat::MIN_PAGE;
use crate::pg::hot::node::Node;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::store::{LINE, LiveMemory};
use rowsource_core::blocks::BlockId;
use rowsource_core::progress::Furthest;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The longest description that is published.
const MAX_DESCRIPTION: usize = 16 << 10;

/// The beginning of a block. Zero bytes are a block that no statement has used.
#[repr(C, align(64))]
pub struct Block {
    pub header: Header,
    /// The bytes of the description; 0 if there is none.
    description: AtomicU32,
    /// How far readers have seen its statement.
    pub furthest: Furthest,
}

const _: () = assert!(align_of::<Block>() == LINE && size_of::<Block>().is_multiple_of(align_of::<Node>()));
const _: () = assert!(BEFORE_FIRST >= LINE && BEFORE_FIRST.is_multiple_of(LINE));

/// What a statement needs of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub nodes: usize,
    /// The bytes of its description.
    pub description: usize,
}

impl Need {
    /// Returns what so many nodes need.
    pub fn of_nodes(nodes: usize) -> Need {
        Need {
            nodes,
            description: 0,
        }
    }

    /// Returns the need with a description, of which a short form is published if it is too long.
    pub fn with_description(self, size: Option<usize>, outline: impl FnOnce() -> Option<usize>) -> Need {
        let size = size
            .filter(|size| *size <= MAX_DESCRIPTION)
            .or_else(outline)
            .filter(|size| *size <= MAX_DESCRIPTION);
        Need {
            description: size.unwrap_or(0),
            ..self
        }
    }

    /// Returns the need with so short a description that it has little more than the names of the nodes.
    pub fn with_names(self) -> Need {
        const NAMES: usize = 100;
        Need {
            description: self.description.min(NAMES * self.nodes),
            ..self
        }
    }

    fn bytes(self) -> usize {
        self.nodes * size_of::<Node>() + self.description
    }

    /// Returns the kind of the smallest block for it.
    pub fn kind(self) -> Option<usize> {
        (0..BlockId::KINDS).find(|kind| self.fits(*kind))
    }

    /// Returns whether a block of this kind has room for it.
    pub fn fits(self, kind: usize) -> bool {
        self.bytes() <= room(kind)
    }
}

/// The kind of the block that each session has in its first part, and what lies before that block in the same
/// pages.
pub const FIRST: usize = 1;
pub const BEFORE_FIRST: usize = 512;

/// Returns the size of the blocks of a kind: about 4 kB, 8 kB and so on up to 512 kB. Small ones leave room
/// for the line that the allocator adds, so that they take no more than their pages.
pub const fn size(kind: usize) -> usize {
    match kind {
        0 => MIN_PAGE - LINE,
        FIRST => 2 * MIN_PAGE - BEFORE_FIRST,
        _ => MIN_PAGE << kind,
    }
}

/// Returns the bytes for nodes and a description in a block of this kind.
pub const fn room(kind: usize) -> usize {
    size(kind) - size_of::<Block>()
}

impl Block {
    /// Returns a block, as this process sees it. Returns `None` if it cannot be mapped.
    ///
    /// # Safety
    /// A slot must have had the block. The caller must be outside of any FFI boundary, and hold no lock.
    pub unsafe fn get(memory: &LiveMemory, block: BlockId) -> Option<&'static Block> {
        // SAFETY: blocks are never freed, and all fields are atomics. `contained` catches errors.
        unsafe { contained(&mut Unlocked::promised(), |_| Block::at(memory, block)) }.ok()
    }

    /// Returns a block, as this process sees it.
    ///
    /// # Safety
    /// A slot must have had the block. The caller must be outside of any FFI boundary. Raises if it cannot be
    /// mapped.
    pub unsafe fn at(memory: &LiveMemory, block: BlockId) -> &'static Block {
        // SAFETY: blocks are never freed, and all fields are atomics. The caller promises the rest.
        unsafe { &*memory.at(block.address()).cast::<Block>() }
    }

    /// Returns the address of the nodes. Each for which there is room is initialised.
    pub fn nodes(&self) -> *mut Node {
        // SAFETY: they follow the header.
        unsafe { std::ptr::from_ref(self).add(1).cast::<Node>().cast_mut() }
    }

    /// Returns the end of the block, which is of this kind.
    fn end(&self, kind: usize) -> *mut u8 {
        // SAFETY: a block has this room behind its header.
        unsafe { self.nodes().cast::<u8>().add(room(kind)) }
    }

    /// Returns where the description is, and its bytes. Only the session that holds the block changes them.
    pub fn description(&self, kind: usize) -> (*const u8, usize) {
        let size = (self.description.load(Relaxed) as usize).min(room(kind));
        // SAFETY: the description ends where the block ends, and begins behind its header.
        (unsafe { self.end(kind).sub(size) }, size)
    }

    /// Says that there is no description.
    ///
    /// # Safety
    /// The same as for [`Block::describe`].
    pub unsafe fn describe_nothing(&self) {
        self.description.store(0, Relaxed);
    }

    /// Has a description of so many bytes written. Returns what `write` returns: whether it has. If not,
    /// there is none.
    ///
    /// # Safety
    /// This process must hold the block, which is of this kind. No statement may be live in it. Its nodes
    /// must leave this room.
    pub unsafe fn describe(&self, kind: usize, size: usize, write: impl FnOnce(&mut [u8]) -> bool) -> bool {
        // SAFETY: the caller promises what the function requires.
        unsafe { self.describe_nothing() };
        // SAFETY: only this process writes there, by the caller's promise. Readers use a copy only if the
        // statement was live, so that the description did not change meanwhile.
        let is_written = write(unsafe { std::slice::from_raw_parts_mut(self.end(kind).sub(size), size) });
        if is_written {
            self.description.store(size as u32, Relaxed);
        }
        is_written
    }
}
