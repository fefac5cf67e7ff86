//! Rust's allocator: a separate heap with a reserve.
//!
//! The heap is separate because the C library returns memory to the system only from the top of its own heap.
//! Data that Rust keeps for a long time (descriptions, a session's last statement) would lie there above the
//! freed memory of PostgreSQL's statements, and a few bytes could keep hundreds of megabytes from being
//! returned.
//!
//! The reserve exists because Rust aborts the process when an allocation fails. PostgreSQL restarts the whole
//! server when a backend aborts. Therefore:
//!
//! * Memory whose size depends on data belongs to PostgreSQL or is allocated with `try_reserve`.
//! * All other allocations are small and bounded: descriptions, rows, error messages. When the system has no
//!   memory for them, they come from the reserve. It is a static, which the kernel backs with memory only
//!   when it is used.
//! * Code checks for memory before it allocates. If [`is_short`] at the start of a statement or
//!   [`has_headroom`] before the description of a plan finds none, the statement runs unmeasured.
//!   [`ensure_headroom`] before the display of a plan and [`ensure`] for each plan of a view raise
//!   PostgreSQL's "out of memory".
//!
//! The reserve is larger than everything that is allocated between two of these checks.

use crate::pg::border::backend_local::BackendLocal;
use dlmalloc::{Allocator, Dlmalloc};
use pgrx::PgSqlErrorCode;
use rowsource_core::clock::system;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};

/// The size of the reserve in bytes.
const RESERVE: usize = 1 << 20;
/// Larger requests are not served from the reserve, because their callers can handle a failure.
const MAX_FROM_RESERVE: usize = RESERVE / 2;
const PAGE: usize = 4096;

/// The first reserve. An unused page on each side prevents the heap from merging it with an adjacent mapping.
#[repr(C, align(4096))]
struct Reserve {
    _before: [u8; PAGE],
    memory: UnsafeCell<[u8; RESERVE]>,
    _after: [u8; PAGE],
}

// SAFETY: only the heap accesses the reserve, and only the process's one thread uses the heap.
unsafe impl Sync for Reserve {}

static FIRST: Reserve = Reserve {
    _before: [0; PAGE],
    memory: UnsafeCell::new([0; RESERVE]),
    _after: [0; PAGE],
};
/// The reserve: the static one, or a mapping that replaced it after memory became available again. Null while
/// the heap uses it.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RESERVED: BackendLocal<Cell<*mut u8>> = BackendLocal::new(Cell::new(FIRST.memory.get().cast()));

static HEAP: BackendLocal<UnsafeCell<Dlmalloc<System>>> =
    BackendLocal::new(UnsafeCell::new(Dlmalloc::new_with_allocator(System)));

#[global_allocator]
static ALLOCATOR: Heap = Heap;

struct Heap;

// SAFETY: dlmalloc fulfils the contract of an allocator. One thread uses the heap, the heap does not call
// itself through [`System`], and signal handlers do not allocate.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: only this thread uses the heap, and the heap does not call itself.
        unsafe { (*HEAP.get()).malloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: only this thread uses the heap, and the heap does not call itself.
        unsafe { (*HEAP.get()).calloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller frees a block of this heap with its layout. Only this thread uses the heap.
        unsafe { (*HEAP.get()).free(block, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller resizes a block of this heap with its layout. Only this thread uses the heap.
        unsafe { (*HEAP.get()).realloc(block, layout.size(), layout.align(), size) }
    }
}

/// The source of the heap's memory: anonymous mappings, and the reserve if the system gives no mapping.
struct System;

// SAFETY: every region is mapped memory that contains zeros and that nothing else uses.
unsafe impl Allocator for System {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        match map(size) {
            Some(region) => (region, size, 0),
            // This is null if the heap already has the reserve.
            None if size <= MAX_FROM_RESERVE => (RESERVED.replace(std::ptr::null_mut()), RESERVE, 0),
            None => (std::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, region: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: the region is a mapping of the heap with this size.
        match unsafe { libc::mremap(region.cast(), old, new, flags) } {
            libc::MAP_FAILED => std::ptr::null_mut(),
            region => region.cast(),
        }
    }

    fn free_part(&self, region: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the part is the end of a mapping of the heap, which no longer uses it.
        !is_first(region) && unsafe { libc::munmap(region.add(new).cast(), old - new) == 0 }
    }

    fn free(&self, region: *mut u8, size: usize) -> bool {
        // The static reserve cannot be unmapped: the heap keeps it.
        // SAFETY: the region is a mapping of the heap, which no longer uses it.
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

/// Maps memory. Returns `None` if the system gives none.
fn map(size: usize) -> Option<*mut u8> {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: the kernel chooses the address of a new anonymous mapping, so it replaces no other memory.
    let region = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    (region != libc::MAP_FAILED).then(|| region.cast())
}

/// Returns whether the region lies in the static reserve.
fn is_first(region: *mut u8) -> bool {
    (region as usize).wrapping_sub(FIRST.memory.get() as usize) < RESERVE
}

/// Returns whether this process can map this many bytes.
pub fn can_map(bytes: usize) -> bool {
    // SAFETY: the mapping is new, and nothing uses it.
    map(bytes).is_some_and(|region| unsafe { libc::munmap(region.cast(), bytes) == 0 })
}

/// Returns whether this process is short of memory: the heap uses the reserve, and the system gives no new
/// one. Costs one comparison while the reserve is unused.
#[inline(always)]
pub fn is_short() -> bool {
    RESERVED.get().is_null() && !replace_reserve()
}

/// Maps a new reserve. Returns whether the system gave one.
#[cold]
#[inline(never)]
fn replace_reserve() -> bool {
    RESERVED.set(map(RESERVE).unwrap_or(std::ptr::null_mut()));
    !RESERVED.get().is_null()
}

/// How much memory the process could map last, and until when that counts, in nanoseconds of the monotonic
/// clock.
static FOUND: BackendLocal<Cell<(usize, u64)>> = BackendLocal::new(Cell::new((0, 0)));

/// Returns whether there is memory to describe this many nodes of a plan, including memory for PostgreSQL's
/// functions. If there is, that counts for 10 ms: to map memory takes longer than to describe a short plan.
/// If memory has become short meanwhile, PostgreSQL's functions raise an error, and the heap has its reserve.
pub fn has_headroom(nodes: usize) -> bool {
    const COUNTS_NS: u64 = 10_000_000;
    if is_short() {
        return false;
    }
    let needed = headroom(nodes);
    let now = system::monotonic();
    let (found, until) = FOUND.get();
    if needed <= found && now < until {
        return true;
    }
    let is_found = can_map(needed);
    let found = if is_found { needed } else { 0 };
    FOUND.set((found, now.saturating_add(COUNTS_NS)));
    is_found
}

/// Returns the bytes that it takes to process this many nodes of a plan.
fn headroom(nodes: usize) -> usize {
    const HEADROOM: usize = 16 << 20;
    const PER_NODE: usize = 8 << 10;
    HEADROOM + nodes * PER_NODE
}

/// Raises PostgreSQL's "out of memory" if there is no memory to show this many nodes of a plan.
pub fn ensure_headroom(nodes: usize) {
    if is_short() || !can_map(headroom(nodes)) {
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

/// Returns an empty vector with capacity for `count` values. Raises "out of memory" if there is no memory.
pub fn with_room<T>(count: usize) -> Vec<T> {
    let mut values = Vec::new();
    if values.try_reserve_exact(count).is_err() {
        out_of_memory();
    }
    values
}
