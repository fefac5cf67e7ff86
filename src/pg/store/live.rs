//! The memory in which sessions measure their statements, so that others see them (`pg::live`). It is a part of the area of the
//! sessions' buffers.

use super::access;
use super::attach::registered_name;
use super::control::{self, Control, SharedHistory, SharedTrace};
use super::room;
use super::targets::SharedTargets;
use crate::pg::server::contained::contained;
use pgrx::pg_sys;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The memory, for a process that has attached to it.
#[derive(Clone, Copy)]
pub struct LiveMemory {
    /// The address of the area that a session has made last, or 0. Each address is one in `area`.
    pub newest: &'static AtomicU64,
    /// The bytes of all sessions' areas and blocks.
    used: &'static AtomicU64,
    area: *mut pg_sys::dsa_area,
}

/// Returns the memory, if this process has attached to it.
pub fn live_memory() -> Option<LiveMemory> {
    let (control, area) = match access::store() {
        Some(store) => (store.control, store.pending),
        None => (control::known(), access::area_alone()?),
    };
    // SAFETY: the control block stays mapped until the process ends.
    let control = unsafe { &*control };
    Some(LiveMemory {
        newest: &control.live,
        used: &control.live_bytes,
        area,
    })
}

/// Attaches a parallel worker, or the background worker, to this memory alone. Does nothing if the store is
/// not made yet, or if there is no memory.
#[cold]
#[inline(never)]
pub fn attach_worker() {
    if access::area_alone().is_some() || access::is_attached() || !control::may_exist() {
        return;
    }
    // SAFETY: a statement is being set up, so the process holds no lock, and is outside of any boundary. `contained` catches errors.
    // PostgreSQL's own data about the mapped memory goes to `TopMemoryContext`, so it stays valid as long as the mapping.
    let area = unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let area = contained(|| {
            let control: *mut Control = control::find_or_make(&registered_name());
            (*control).made.load(Acquire).then(|| {
                let area = pg_sys::dsa_attach((*control).pending_area);
                pg_sys::dsa_pin_mapping(area);
                area
            })
        });
        pg_sys::MemoryContextSwitchTo(context);
        area
    };
    access::set_area_alone(area.ok().flatten());
}

/// Returns what processes know of the active session history. Returns `None` if the library was not preloaded, and the server has no
/// registry of shared memory.
pub fn shared_history() -> Option<&'static SharedHistory> {
    Some(&control()?.history)
}

/// Returns what processes know of all trace files; `None` as for [`shared_history`].
pub fn shared_trace() -> Option<&'static SharedTrace> {
    Some(&control()?.trace)
}

/// Returns the targets of the SQL trace; `None` as for [`shared_history`].
pub fn shared_targets() -> Option<&'static SharedTargets> {
    Some(&control()?.targets)
}

fn control() -> Option<&'static Control> {
    if !control::may_exist() {
        return None;
    }
    // SAFETY: callers hold no lock, and are outside of any boundary. `contained` catches errors. PostgreSQL's own data about the
    // mapped memory goes to `TopMemoryContext`. The control block stays mapped until the process ends.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let control = contained(|| control::find_or_make(&registered_name()));
        pg_sys::MemoryContextSwitchTo(context);
        control.ok()?.as_ref()
    }
}

/// Bytes that are counted as used, until this is dropped: also if an error ends the allocation.
struct Charge {
    used: &'static AtomicU64,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// The bytes of a cache line.
const LINE: usize = 64;
/// PostgreSQL gives larger pieces of memory pages of their own.
pub const MAX_PART_OF_PAGE: usize = 8192;

impl LiveMemory {
    /// Allocates bytes, which are zero, in cache lines of their own. Returns their address in the store and in this process; `None`
    /// if the limit is reached, or there is no memory. They are never freed.
    ///
    /// # Safety
    /// The caller must be in `contained`, outside of any FFI boundary, and hold no lock. Raises if memory cannot be mapped.
    pub unsafe fn allocate(&self, bytes: usize) -> Option<(u64, *mut u8)> {
        // A small piece begins anywhere in a line. Another session may have the rest of that line.
        let bytes = match bytes {
            0..=MAX_PART_OF_PAGE => bytes.next_multiple_of(LINE) + LINE,
            _ => bytes,
        };
        let limit = (room::limit() / room::LIVE_PART) as u64;
        let charge = Charge {
            used: self.used,
            bytes: bytes as u64,
        };
        if self.used.fetch_add(charge.bytes, Relaxed) + charge.bytes > limit {
            return None;
        }
        let flags = (pg_sys::DSA_ALLOC_NO_OOM | pg_sys::DSA_ALLOC_ZERO) as i32;
        // SAFETY: this process has attached to the area, and the caller promises the rest. The process's memory context of the
        // mappings lives as long as it.
        let made = unsafe {
            let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            let made = pg_sys::dsa_allocate_extended(self.area, bytes, flags);
            pg_sys::MemoryContextSwitchTo(context);
            made
        };
        if made == 0 {
            return None;
        }
        std::mem::forget(charge);
        // SAFETY: the caller promises what the function requires.
        let place = unsafe { self.at(made) };
        let skipped = place.align_offset(LINE);
        // SAFETY: a line more than needed was allocated, unless the piece begins at a page.
        Some((made + skipped as u64, unsafe { place.add(skipped) }))
    }

    /// Returns the address in this process of memory that was allocated.
    ///
    /// # Safety
    /// * `address` must come from [`LiveMemory::allocate`] in any process.
    /// * The caller must be outside of any FFI boundary. Raises if memory cannot be mapped.
    pub unsafe fn at(&self, address: u64) -> *mut u8 {
        // SAFETY: the caller promises that the address is valid. Memory is never freed.
        unsafe { pg_sys::dsa_get_address(self.area, address).cast() }
    }
}
