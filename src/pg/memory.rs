//! Rust's allocator, with a reserve: what Rust allocates must not abort the process.
//!
//! Rust aborts when an allocation fails, and an aborted backend makes PostgreSQL restart the whole server. So:
//!
//! * Memory whose size depends on data is PostgreSQL's, or is asked for with `try_reserve`.
//! * What remains is small and bounded: descriptions, rows, error messages. When the system has no memory for it, it
//!   comes from a reserve of this process, a static that the kernel backs with memory only when it is used.
//! * Who is about to allocate asks first: [`is_short`] at the start of a statement (it then runs unmeasured), and
//!   [`ensure`] for each plan of a view (the view then fails with PostgreSQL's own "out of memory").
//!
//! The reserve is larger than what can be allocated between two such questions.

use super::one_thread::OneThread;
use linked_list_allocator::Heap;
use pgrx::PgSqlErrorCode;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;

/// Bytes of the reserve.
const RESERVE: usize = 1 << 20;
/// Larger allocations are never made from the reserve: they are fallible ones.
const LARGEST: usize = RESERVE / 4;
/// What [`is_short`] tries to get from the system.
const PROBE: usize = 64 << 10;

#[repr(C, align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: only `HEAP` touches it, which only the process's one thread touches.
unsafe impl Sync for Reserve {}

static MEMORY: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));
static HEAP: OneThread<RefCell<Heap>> = OneThread::new(RefCell::new(Heap::empty()));
/// Bytes of the reserve in use.
static USED: OneThread<Cell<usize>> = OneThread::new(Cell::new(0));

#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

struct WithReserve;

// SAFETY: every block comes from the system's allocator or from the reserve, and goes back to where it came from.
unsafe impl GlobalAlloc for WithReserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            from_reserve(layout)
        } else {
            block
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; a block of the reserve is as large as asked for.
        unsafe {
            let block = System.alloc_zeroed(layout);
            if !block.is_null() {
                return block;
            }
            let block = from_reserve(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: the block is of one of the two, and of this layout.
        unsafe {
            if is_of_reserve(block) {
                to_reserve(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as `dealloc`; the new size is valid for the layout's alignment by the caller's promise.
        unsafe {
            if !is_of_reserve(block) {
                let moved = System.realloc(block, layout, size);
                if !moved.is_null() {
                    return moved;
                }
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[inline]
fn is_of_reserve(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(&raw const MEMORY as usize) < RESERVE
}

/// Allocates from the reserve; null where it is used up, or for a large block.
#[cold]
#[inline(never)]
fn from_reserve(layout: Layout) -> *mut u8 {
    if layout.size() > LARGEST {
        return std::ptr::null_mut();
    }
    let Ok(mut heap) = HEAP.try_borrow_mut() else {
        return std::ptr::null_mut();
    };
    if heap.size() == 0 {
        // SAFETY: the static is this heap's alone, from here on for good.
        unsafe { heap.init(MEMORY.0.get().cast(), RESERVE) };
    }
    heap.allocate_first_fit(layout)
        .map(|block| {
            USED.set(heap.used());
            block.as_ptr()
        })
        .unwrap_or(std::ptr::null_mut())
}

/// Gives a block of the reserve back.
///
/// # Safety
/// The block must have come from [`from_reserve`] with this layout.
#[cold]
#[inline(never)]
unsafe fn to_reserve(block: *mut u8, layout: Layout) {
    if let (Ok(mut heap), Some(block)) = (HEAP.try_borrow_mut(), NonNull::new(block)) {
        // SAFETY: the caller's promise.
        unsafe { heap.deallocate(block, layout) };
        USED.set(heap.used());
    }
}

/// Returns whether this process is short of memory: the system refused some, and still would. Costs one comparison
/// as long as it never did.
#[inline(always)]
pub fn is_short() -> bool {
    USED.get() > 0 && is_still_short()
}

#[cold]
#[inline(never)]
fn is_still_short() -> bool {
    let mut probe: Vec<u8> = Vec::new();
    // Larger than what the reserve would give: so the system itself answers.
    USED.get() > RESERVE / 2 || probe.try_reserve_exact(LARGEST + PROBE).is_err()
}

/// Returns whether this process can map so many bytes.
pub fn can_map(bytes: usize) -> bool {
    // SAFETY: a new mapping that nobody uses, given back at once.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let probe = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0);
        probe != libc::MAP_FAILED && libc::munmap(probe, bytes) == 0
    }
}

/// Raises PostgreSQL's "out of memory" if this process is short of memory.
pub fn ensure() {
    if is_short() {
        out_of_memory();
    }
}

/// Raises PostgreSQL's "out of memory".
#[cold]
pub fn out_of_memory() -> ! {
    pgrx::ereport!(
        pgrx::PgLogLevel::ERROR,
        PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
        "out of memory",
        "pg_rowsource could not get memory for its result."
    );
    unreachable!("an ERROR does not return")
}

/// Returns an empty vector with room for `count` values; raises "out of memory" where there is none.
pub fn with_room<T>(count: usize) -> Vec<T> {
    let mut values = Vec::new();
    if values.try_reserve_exact(count).is_err() {
        out_of_memory();
    }
    values
}
