//! The memory in which sessions measure their statements, so that others see them (`pg::live`). It is a part
//! of the area of the sessions' buffers.

use super::access;
use super::attach::registered_name;
use super::control::{self, Control, SharedHistory, SharedLive, SharedSnapshots, SharedStops, SharedTrace};
use super::reserve::zeroed;
use super::room;
use super::targets::SharedTargets;
use crate::pg::compat;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::memory;
use pgrx::pg_sys;
use rowsource_core::blocks::{Charge, Room};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The memory, for a process that has attached to it.
#[derive(Clone, Copy)]
pub struct LiveMemory {
    shared: &'static SharedLive,
    area: *mut pg_sys::dsa_area,
}

/// Returns the memory, if this process has attached to it.
pub fn live_memory() -> Option<LiveMemory> {
    let (control, area) = match access::store() {
        Some(store) => (store.control(), store.pending()),
        None => (control::known()?, access::area_alone()?),
    };
    Some(LiveMemory {
        shared: &control.live,
        area,
    })
}

/// Attaches a parallel worker, or the background worker, to this memory alone. Does nothing if the store is
/// not made yet, or if there is no memory.
#[cold]
#[inline(never)]
pub fn attach_worker() {
    let is_useless = access::area_alone().is_some() || access::is_attached() || !control::may_exist();
    // Without memory, an error of PostgreSQL ends with a PANIC, because it cannot be copied.
    if is_useless || !memory::has_headroom(0) {
        return;
    }
    // SAFETY: a statement is being set up, so the process holds no lock, and is outside of any boundary.
    // `contained` catches errors. PostgreSQL's own data about the mapped memory goes to `TopMemoryContext`,
    // so it stays valid as long as the mapping.
    let area = unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let area = contained(&mut Unlocked::promised(), |_| {
            let control = control::find_or_make(&registered_name());
            control.made.load(Acquire).then(|| {
                let area = pg_sys::dsa_attach(control.pending_area.load(Relaxed));
                pg_sys::dsa_pin_mapping(area);
                area
            })
        });
        pg_sys::MemoryContextSwitchTo(context);
        area
    };
    access::set_area_alone(area.ok().flatten());
}

/// Returns what processes know of the active session history. Returns `None` if the library was not
/// preloaded, and the server has no registry of shared memory.
pub fn shared_history() -> Option<&'static SharedHistory> {
    Some(&control()?.history)
}

/// Returns what processes know of the snapshots that the server takes; `None` as for [`shared_history`].
pub fn shared_snapshots() -> Option<&'static SharedSnapshots> {
    Some(&control()?.snapshots)
}

/// Returns what processes know of all trace files; `None` as for [`shared_history`].
pub fn shared_trace() -> Option<&'static SharedTrace> {
    Some(&control()?.trace)
}

/// Returns what processes know of the sessions that measure no more; `None` as for [`shared_history`].
pub fn shared_stops() -> Option<&'static SharedStops> {
    Some(&control()?.stops)
}

/// Returns the targets of the SQL trace; `None` as for [`shared_history`].
pub fn shared_targets() -> Option<&'static SharedTargets> {
    Some(&control()?.targets)
}

fn control() -> Option<&'static Control> {
    if !control::may_exist() {
        return None;
    }
    // SAFETY: callers hold no lock, and are outside of any boundary. `contained` catches errors. PostgreSQL's
    // own data about the mapped memory goes to `TopMemoryContext`. The control block stays mapped until the
    // process ends.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let control = contained(&mut Unlocked::promised(), |_| {
            control::find_or_make(&registered_name())
        });
        pg_sys::MemoryContextSwitchTo(context);
        control.ok()
    }
}

/// The bytes of a cache line.
pub const LINE: usize = 64;
/// PostgreSQL gives larger pieces of memory pages of their own.
const MAX_PART_OF_PAGE: usize = 8192;

impl LiveMemory {
    /// Returns the address of the area that a session has listed last, or 0.
    pub fn newest(&self) -> &'static AtomicU64 {
        &self.shared.newest
    }

    /// Takes the first part of a session's memory: one of those that are reserved, or a new one if all are
    /// taken. Its bytes are zero, and it begins at a page. Returns its address in the store and in this
    /// process; `None` if there is no memory. It is never freed. Raises if memory cannot be mapped.
    pub fn first_part(&self) -> Option<(u64, *mut u8)> {
        let (shared, size) = (self.shared, room::first_part() as u64);
        let reserved = shared.reserved.load(Relaxed);
        let is_left = shared.taken.load(Relaxed) < reserved;
        let index = if is_left {
            shared.taken.fetch_add(1, Relaxed)
        } else {
            reserved
        };
        let address = match index < reserved {
            true => shared.first_parts.load(Relaxed) + index * size,
            false => self.allocate(Room::OTHER, size as usize)?,
        };
        // SAFETY: the memory was allocated, and is as large as a part.
        unsafe {
            let place = self.at(address).addr();
            let skipped = place.next_multiple_of(compat::page()) - place;
            let address = address + skipped as u64;
            Some((address, self.at(address)))
        }
    }

    /// Allocates bytes, which are zero, in cache lines of their own. They count for a share of the sessions'
    /// memory. Returns their address in the store; `None` if the limit is reached, or there is no memory.
    /// They are never freed. Raises if memory cannot be mapped.
    pub fn allocate(&self, share: usize, bytes: usize) -> Option<u64> {
        // A small piece begins anywhere in a line. Another session may have the rest of that line.
        let is_small = bytes <= MAX_PART_OF_PAGE - LINE;
        let bytes = if is_small {
            bytes.next_multiple_of(LINE) + LINE
        } else {
            bytes
        };
        let limit = (room::limit() / room::LIVE_PART) as u64;
        let charge = self.shared.room.charge(share, bytes as u64, limit)?;
        // SAFETY: this process has attached to the area.
        let address = unsafe { zeroed(self.area, bytes) };
        if address == 0 {
            return None;
        }
        Charge::keep(charge);
        Some(address.next_multiple_of(LINE as u64))
    }

    /// Returns the address in this process of memory that was allocated.
    ///
    /// # Safety
    /// `address` must come from [`LiveMemory::allocate`] or [`LiveMemory::first_part`] in any process. Raises
    /// if memory cannot be mapped.
    pub unsafe fn at(&self, address: u64) -> *mut u8 {
        // SAFETY: the caller promises that the address is valid. Memory is never freed.
        unsafe { pg_sys::dsa_get_address(self.area, address).cast() }
    }
}
