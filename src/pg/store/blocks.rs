//! The memory of a plan in the store: chains of small blocks.
//!
//! A plan's statistics can take a megabyte, but no block is larger than 8 kB. Blocks have few sizes, so each
//! plan can reuse the free blocks of any other plan. With large objects of many sizes, fragmentation would
//! waste the memory: PostgreSQL's allocator returns a segment to the system only when the segment is empty.

use super::access::Store;
use crate::pg::border::unguarded;
use crate::pg::server::contained::{self, Unlocked, contained};
use pgrx::pg_sys;
use rowsource_core::model::NodeTotals;
use rowsource_core::model::partitions::ListedPartition;

/// The largest object that PostgreSQL's allocator takes from a pool.
const BLOCK: usize = 8192;
const HEADER: usize = size_of::<Header>();

/// The beginning of a block; its values follow.
#[repr(C)]
struct Header {
    /// The next block of the chain; 0 in the last block.
    next: pg_sys::dsa_pointer,
    /// The number of values in this block.
    count: usize,
}

const _: () = assert!(HEADER.is_multiple_of(align_of::<NodeTotals>()));

/// A type of values that blocks may hold.
pub(super) trait Stored: Copy {
    /// The number of values in a full block.
    const MAX_VALUES: usize = (BLOCK - HEADER) / size_of::<Self>();
}

impl Stored for NodeTotals {}

impl Stored for ListedPartition {}

impl Stored for u8 {}

/// Makes a chain that holds `values`, and returns its first block.
///
/// # Errors
/// Returns an error if the store's limit is reached, or the system has no memory.
pub(super) fn make<T: Stored>(
    store: &Store,
    unlocked: &mut Unlocked,
    values: &[T],
) -> Result<pg_sys::dsa_pointer, NoMemory> {
    let area = store.plans();
    let mut first: pg_sys::dsa_pointer = 0;
    // From the last block to the first, so that each can point to the next.
    for values in values.chunks(T::MAX_VALUES).rev() {
        let size = HEADER + size_of_val(values);
        let flags = pg_sys::DSA_ALLOC_NO_OOM as i32;
        // SAFETY: the area is attached. A new block has `size` bytes, room for the header and the values, and
        // nobody else knows it yet. `contained` catches errors. Then the blocks made so far are freed, and
        // nobody else knows them.
        unsafe {
            let made = contained(unlocked, |_| {
                let made = pg_sys::dsa_allocate_extended(area, size, flags);
                (made, pg_sys::dsa_get_address(area, made))
            });
            let (made, block) = match made {
                Ok((made, block)) if made != 0 => (made, block.cast::<Header>()),
                Ok(_) => {
                    free(store, unlocked, first);
                    return Err(NoMemory::Limit);
                }
                Err(message) => {
                    free(store, unlocked, first);
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
    /// The system has no more shared memory; with the error message.
    System(String),
}

/// Frees a chain. The rest of the chain is lost if a block cannot be mapped.
///
/// # Safety
/// `first` must be 0 or the first block of a chain of the store, and nobody else may know the chain any more.
pub(super) unsafe fn free(store: &Store, unlocked: &mut Unlocked, first: pg_sys::dsa_pointer) {
    if first != 0 {
        // SAFETY: the caller ensures that nobody else knows the chain.
        contained::attempt(unlocked, "free memory", |_| unsafe {
            free_raising(store.plans(), first);
        });
    }
}

/// Frees a chain as [`free`] does. Raises if a block cannot be mapped.
///
/// # Safety
/// `first` must be 0 or the first block of a chain in `area`, and nobody else may know the chain any more.
pub(super) unsafe fn free_raising(area: *mut pg_sys::dsa_area, first: pg_sys::dsa_pointer) {
    let mut at = first;
    while at != 0 {
        // SAFETY: the caller ensures that this is a chain and that nobody else knows it. So each block is
        // valid until it is freed here, after its `next` was read.
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
/// * The caller must be inside an FFI boundary: this raises if a block cannot be mapped.
/// * During the call, the chain must not be freed, and nobody but `visit` may change its values.
#[inline(always)]
#[allow(
    ffi_unwind_calls,
    reason = "the caller is inside of a boundary, and the frames up to it are plain"
)]
pub(super) unsafe fn each<T: Stored>(
    area: *mut pg_sys::dsa_area,
    first: pg_sys::dsa_pointer,
    mut visit: impl FnMut(usize, &mut [T]),
) {
    let (mut at, mut index) = (first, 0);
    while at != 0 {
        // SAFETY: the caller ensures that the chain stays and that nobody else changes its values. `make`
        // wrote `count` values of this type behind the header.
        unsafe {
            let block: *mut Header = unguarded::dsa_get_address(area, at).cast();
            let count = (*block).count;
            visit(index, std::slice::from_raw_parts_mut(block.add(1).cast(), count));
            index += count;
            at = (*block).next;
        }
    }
}

/// Maps a chain's blocks, so that later visits raise nothing.
///
/// # Safety
/// * The caller must be inside an FFI boundary: this raises if a block cannot be mapped.
/// * During the call, the chain must not be freed.
#[inline(always)]
pub(super) unsafe fn map<T: Stored>(area: *mut pg_sys::dsa_area, first: pg_sys::dsa_pointer) {
    // SAFETY: the caller ensures that the chain stays, and the closure reads and writes no values.
    unsafe { each::<T>(area, first, |_, _| ()) }
}
