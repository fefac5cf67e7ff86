//! Rust's allocator: a heap of its own, with a reserve.
//!
//! A heap of its own, because what Rust keeps for long (descriptions, a session's last statement) would otherwise lie
//! among the memory of PostgreSQL's statements, above blocks that are free again: the C library gives memory back from
//! the top of its heap only, so a few bytes of ours could pin hundreds of megabytes.
//!
//! A reserve, because Rust aborts the process when an allocation fails, and an aborted backend makes PostgreSQL restart
//! the whole server. So:
//!
//! * Memory whose size depends on data is PostgreSQL's, or is asked for with `try_reserve`.
//! * What remains is small and bounded: descriptions, rows, error messages. When the system has no memory for it, it
//!   comes from a reserve of this process, a static that the kernel backs with memory only when it is used.
//! * Who is about to allocate asks first: [`is_short`] at the start of a statement and [`has_headroom`] before a plan is
//!   described (the statement then runs unmeasured), [`ensure_headroom`] before a plan is displayed, and [`ensure`] for
//!   each plan of a view (these fail with PostgreSQL's own "out of memory").
//!
//! The reserve is larger than what can be allocated between two such questions.

use super::backend_local::BackendLocal;
use dlmalloc::{Allocator, Dlmalloc};
use pgrx::PgSqlErrorCode;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};

/// Bytes of the reserve.
const RESERVE: usize = 1 << 20;
/// Larger requests are never served from the reserve: they are fallible ones.
const LARGEST: usize = RESERVE / 2;
const PAGE: usize = 4096;

/// The first reserve. Its neighbours are pages that nobody gets, so that the heap never joins it to a mapping that happens
/// to lie beside it.
#[repr(C, align(4096))]
struct Reserve {
    _before: [u8; PAGE],
    memory: UnsafeCell<[u8; RESERVE]>,
    _after: [u8; PAGE],
}

// SAFETY: only the heap touches it, which only the process's one thread touches.
unsafe impl Sync for Reserve {}

static FIRST: Reserve = Reserve {
    _before: [0; PAGE],
    memory: UnsafeCell::new([0; RESERVE]),
    _after: [0; PAGE],
};
/// The reserve: the first, or later one that was mapped when there was memory again. Null where the heap has it.
static RESERVED: BackendLocal<Cell<*mut u8>> = BackendLocal::new(Cell::new(FIRST.memory.get().cast()));

static HEAP: BackendLocal<UnsafeCell<Dlmalloc<System>>> =
    BackendLocal::new(UnsafeCell::new(Dlmalloc::new_with_allocator(System)));

#[global_allocator]
static ALLOCATOR: Heap = Heap;

struct Heap;

// SAFETY: the heap keeps the contract. One thread uses it, and it does not call back; signal handlers do not allocate.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: only this thread uses the heap, and it does not call back.
        unsafe { (*HEAP.get()).malloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: only this thread uses the heap, and it does not call back.
        unsafe { (*HEAP.get()).calloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block of this heap with its layout. Only this thread uses the heap.
        unsafe { (*HEAP.get()).free(block, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives a block of this heap with its layout. Only this thread uses the heap.
        unsafe { (*HEAP.get()).realloc(block, layout.size(), layout.align(), size) }
    }
}

/// Where the heap's memory comes from: anonymous mappings, and the reserve when there are no more.
struct System;

// SAFETY: what is handed out is mapped memory that nobody else has, all zeros.
unsafe impl Allocator for System {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        match map(size) {
            Some(region) => (region, size, 0),
            // Null once it is gone.
            None if size <= LARGEST => (RESERVED.replace(std::ptr::null_mut()), RESERVE, 0),
            None => (std::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, region: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: a mapping of the heap's, of this size.
        match unsafe { libc::mremap(region.cast(), old, new, flags) } {
            libc::MAP_FAILED => std::ptr::null_mut(),
            region => region.cast(),
        }
    }

    fn free_part(&self, region: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the end of a mapping of the heap's, which it uses no more.
        !is_first(region) && unsafe { libc::munmap(region.add(new).cast(), old - new) == 0 }
    }

    fn free(&self, region: *mut u8, size: usize) -> bool {
        // A static stays; the heap goes on using it.
        // SAFETY: a mapping of the heap's, which it uses no more.
        !is_first(region) && unsafe { libc::munmap(region.cast(), size) == 0 }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

fn map(size: usize) -> Option<*mut u8> {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping, at an address that the kernel chooses.
    let region = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    (region != libc::MAP_FAILED).then(|| region.cast())
}

fn is_first(region: *mut u8) -> bool {
    (region as usize).wrapping_sub(FIRST.memory.get() as usize) < RESERVE
}

/// Returns whether this process can map so many bytes.
pub fn can_map(bytes: usize) -> bool {
    // SAFETY: the mapping was made just now, and nobody uses it.
    map(bytes).is_some_and(|region| unsafe { libc::munmap(region.cast(), bytes) == 0 })
}

/// Returns whether this process is short of memory: the heap has the reserve, and the system gives no new one. Costs one
/// comparison as long as there is a reserve.
#[inline(always)]
pub fn is_short() -> bool {
    RESERVED.get().is_null() && !is_reserved_again()
}

#[cold]
#[inline(never)]
fn is_reserved_again() -> bool {
    RESERVED.set(map(RESERVE).unwrap_or(std::ptr::null_mut()));
    !RESERVED.get().is_null()
}

/// Returns whether there is memory for work on so many nodes of a plan, of the extension and of what it calls.
pub fn has_headroom(nodes: usize) -> bool {
    const HEADROOM: usize = 16 << 20;
    const A_NODE: usize = 8 << 10;
    !is_short() && can_map(HEADROOM + nodes * A_NODE)
}

/// Raises PostgreSQL's "out of memory" if there is no memory to show so many nodes of a plan.
pub fn ensure_headroom(nodes: usize) {
    if !has_headroom(nodes) {
        out_of_memory();
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
