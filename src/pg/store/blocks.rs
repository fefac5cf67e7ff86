//! The memory of a plan in the store: chains of small blocks.
//!
//! A plan's statistics can take a megabyte, but no block is larger than 8 kB. PostgreSQL's allocator gives a segment
//! back to the system only when its small objects have gone, and free blocks of a few sizes serve any other plan; of
//! large objects of many sizes the memory would be lost to fragmentation.

use crate::pg::server::contained::contained;
use crate::pg::server::unguarded;
use pgrx::pg_sys;
use rowsource_core::model::NodeTotals;

/// The largest object that PostgreSQL's allocator takes from a pool.
const BLOCK: usize = 8192;
const HEADER: usize = size_of::<Header>();
/// Nodes in a full block.
const NODES: usize = (BLOCK - HEADER) / size_of::<NodeTotals>();
/// Bytes in a full block.
const BYTES: usize = BLOCK - HEADER;

/// What a block begins with; its values follow.
#[repr(C)]
struct Header {
    /// The next block of the chain; 0 at the last.
    next: pg_sys::dsa_pointer,
    /// Values in this block.
    count: usize,
}

const _: () = assert!(HEADER.is_multiple_of(align_of::<NodeTotals>()));

/// What a block may hold.
pub(super) trait Stored: Copy {
    /// Values in a full block.
    const MOST: usize;
}

impl Stored for NodeTotals {
    const MOST: usize = NODES;
}

impl Stored for u8 {
    const MOST: usize = BYTES;
}

/// Makes a chain that holds `values`, and returns its first block; an error without memory: of the store, or of the system.
///
/// # Safety
/// Holding no lock.
pub(super) unsafe fn make<T: Stored>(
    area: *mut pg_sys::dsa_area,
    values: &[T],
) -> Result<pg_sys::dsa_pointer, NoMemory> {
    let mut first: pg_sys::dsa_pointer = 0;
    // From the last block to the first, so that each can point to the next.
    for values in values.chunks(T::MOST).rev() {
        let size = HEADER + size_of_val(values);
        let flags = pg_sys::DSA_ALLOC_NO_OOM as i32;
        // SAFETY: plain calls; a new block is as large as asked for, and nobody else knows it yet. An error leaves the
        // blocks made so far to be freed here.
        unsafe {
            let made = contained(|| {
                let made = pg_sys::dsa_allocate_extended(area, size, flags);
                (made, pg_sys::dsa_get_address(area, made))
            });
            let (made, block) = match made {
                Ok((made, block)) if made != 0 => (made, block.cast::<Header>()),
                Ok(_) => {
                    free(area, first);
                    return Err(NoMemory::Limit);
                }
                Err(message) => {
                    free(area, first);
                    return Err(NoMemory::System(message));
                }
            };
            block.write(Header {
                next: first,
                count: values.len(),
            });
            block
                .add(1)
                .cast::<T>()
                .copy_from_nonoverlapping(values.as_ptr(), values.len());
            first = made;
        }
    }
    Ok(first)
}

/// Why a chain could not be made.
pub(super) enum NoMemory {
    /// The store's own limit is reached.
    Limit,
    /// The system has no more shared memory; with what it said.
    System(String),
}

/// Gives a chain back. What cannot be mapped in is lost.
///
/// # Safety
/// Main thread, holding no lock but those that `contained` may release. Nobody else may know the chain any more.
pub(super) unsafe fn free(area: *mut pg_sys::dsa_area, first: pg_sys::dsa_pointer) {
    if first != 0 {
        // SAFETY: the caller's promise.
        let _ = contained(|| unsafe { free_raising(area, first) });
    }
}

/// The same where errors are the caller's.
///
/// # Safety
/// Nobody else may know the chain any more.
pub(super) unsafe fn free_raising(area: *mut pg_sys::dsa_area, first: pg_sys::dsa_pointer) {
    let mut at = first;
    while at != 0 {
        // SAFETY: nobody else knows the chain, by the caller's promise, so its blocks are whole and used by nobody.
        unsafe {
            let next = (*pg_sys::dsa_get_address(area, at).cast::<Header>()).next;
            pg_sys::dsa_free(area, at);
            at = next;
        }
    }
}

/// Visits the values of a chain block by block, with the index of each block's first value.
///
/// # Safety
/// Inside a boundary: a block may have to be mapped in, which may raise. The chain must stay, and its values must not be
/// changed meanwhile, but by `visit`.
#[inline(always)]
pub(super) unsafe fn each<T: Stored>(
    area: *mut pg_sys::dsa_area,
    first: pg_sys::dsa_pointer,
    mut visit: impl FnMut(usize, &mut [T]),
) {
    let (mut at, mut index) = (first, 0);
    while at != 0 {
        // SAFETY: the caller's promise; a block holds as many values as its header says.
        unsafe {
            let block: *mut Header = unguarded::dsa_get_address(area, at).cast();
            let count = (*block).count;
            visit(index, std::slice::from_raw_parts_mut(block.add(1).cast(), count));
            index += count;
            at = (*block).next;
        }
    }
}

/// Maps a chain's blocks in, so that nothing is raised when they are visited.
///
/// # Safety
/// Inside a boundary: a block may have to be mapped in, which may raise. The chain must stay meanwhile.
#[inline(always)]
pub(super) unsafe fn map<T: Stored>(area: *mut pg_sys::dsa_area, first: pg_sys::dsa_pointer) {
    // SAFETY: the chain stays, and its values are not looked at.
    unsafe { each::<T>(area, first, |_, _| ()) }
}
