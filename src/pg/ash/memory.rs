//! Where the ring of samples lies.
//!
//! If the server preloads the library, the ring lies in main shared memory, and not in dynamic memory, of
//! which a container has often little. Else the worker makes a dynamic segment, which stays until the server
//! stops. After a crash, PostgreSQL makes all shared memory again: then the ring is empty. After a clean
//! stop, the worker reads what was in it (`file`).

use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::contained::{Unlocked, contained};
use crate::pg::server::{self, MainMemory, SettingUp};
use crate::pg::store;
use pgrx::pg_sys;
use rowsource_core::ash::{Header, RECORD_BYTES, Record, Ring};
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering::{Acquire, Release};

const NAME: &CStr = c"pg_rowsource active session history";
/// A ring in a dynamic segment takes at most so many bytes. If there is no room, it takes half of that, and
/// so on.
const MAX_DYNAMIC: usize = 4 << 20;
const MIN_DYNAMIC: usize = 256 << 10;

static RING: BackendLocal<Cell<Option<Ring<'static>>>> = BackendLocal::new(Cell::new(None));
/// Whether it is in main shared memory.
static IS_MAIN: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Requests main shared memory for the ring. Only `_PG_init` may call this, while the server preloads the
/// library.
pub(super) fn init() {
    server::use_main_memory(MainMemory {
        size: guc::history_size,
        set_up,
    });
}

/// Finds or creates the ring.
fn set_up(shared: &SettingUp) {
    let size = guc::history_size();
    let (place, is_new) = shared.find_or_make(NAME, size);
    // SAFETY: the memory has this size, is aligned to cache lines, and stays mapped.
    unsafe {
        if is_new {
            empty(place.cast(), size);
        }
        RING.set(ring_at(place.cast(), size));
    }
    IS_MAIN.set(true);
}

/// Returns whether the ring is in main shared memory: then the server starts the worker.
pub fn is_main() -> bool {
    IS_MAIN.get()
}

/// Makes new memory an empty ring. Records are read only after they have been written, so their memory stays
/// untouched until then.
///
/// # Safety
/// The memory must be mapped, have this size, and belong to this process alone.
unsafe fn empty(place: *mut c_void, bytes: usize) {
    // SAFETY: the caller promises that there are so many bytes.
    unsafe { place.cast::<u8>().write_bytes(0, bytes.min(size_of::<Header>())) }
}

/// Returns the ring in memory of this size.
///
/// # Safety
/// The memory must be aligned to words, made by [`empty`], and stay mapped as long as the process runs.
unsafe fn ring_at(place: *mut c_void, bytes: usize) -> Option<Ring<'static>> {
    let count = bytes.checked_sub(size_of::<Header>())? / RECORD_BYTES;
    // SAFETY: there is room for the header and for so many records behind it, which consist of atomics. The
    // caller promises the rest.
    unsafe {
        let records = place.cast::<Header>().add(1).cast::<Record>();
        let records = std::slice::from_raw_parts(records.cast_const(), count);
        Ring::new(&*place.cast::<Header>(), records)
    }
}

/// Returns the ring; `None` if no process has made it.
pub fn ring() -> Option<Ring<'static>> {
    if RING.get().is_none() && !is_main() {
        let segment = store::shared_history()?.segment.load(Acquire);
        if segment != 0 {
            // SAFETY: callers hold no lock, and are outside of any boundary. `contained` catches errors.
            RING.set(
                unsafe { contained(&mut Unlocked::promised(), |_| attached(segment)) }
                    .ok()
                    .flatten(),
            );
        }
    }
    RING.get()
}

/// Attaches to a segment with a ring. It stays mapped until the process ends. Raises if memory cannot be
/// mapped.
///
/// # Safety
/// If there is a segment with this handle, it must have a ring.
unsafe fn attached(handle: pg_sys::dsm_handle) -> Option<Ring<'static>> {
    // SAFETY: the handle is that of a pinned segment, or the function returns null. PostgreSQL's own data
    // about it goes to `TopMemoryContext`. The mapping is pinned.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let segment = pg_sys::dsm_attach(handle);
        pg_sys::MemoryContextSwitchTo(context);
        if segment.is_null() {
            return None;
        }
        pg_sys::dsm_pin_mapping(segment);
        ring_at(
            pg_sys::dsm_segment_address(segment),
            pg_sys::dsm_segment_map_length(segment),
        )
    }
}

/// Returns the ring. Makes it if the library was not preloaded and no process has made it. Returns `None` if
/// there is no memory. Only the worker may call this.
pub fn ring_or_new() -> Option<Ring<'static>> {
    if let Some(ring) = ring() {
        return Some(ring);
    }
    let history = store::shared_history()?;
    let mut bytes = guc::history_size().min(MAX_DYNAMIC);
    while bytes >= MIN_DYNAMIC.min(guc::history_size()) {
        // SAFETY: the worker holds no lock, and is outside of any boundary. `contained` catches errors.
        match unsafe { contained(&mut Unlocked::promised(), |_| made(bytes)) } {
            Ok((ring, handle)) => {
                history.segment.store(handle, Release);
                RING.set(ring);
                return ring;
            }
            Err(message) => server::log_alone(&format!(
                "pg_rowsource got no {bytes} bytes of shared memory for the active session history: {message}"
            )),
        }
        bytes /= 2;
    }
    None
}

/// Makes a segment with an empty ring, which stays until the server stops.
///
/// # Safety
/// The caller must be in `contained`, and outside of any FFI boundary. Raises if there is no memory.
unsafe fn made(bytes: usize) -> (Option<Ring<'static>>, pg_sys::dsm_handle) {
    // SAFETY: the function creates a segment of this size or raises. PostgreSQL's own data about it goes to
    // `TopMemoryContext`. Both the segment and its mapping are pinned, and nobody else knows it before it is
    // filled.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let segment = pg_sys::dsm_create(bytes, 0);
        pg_sys::MemoryContextSwitchTo(context);
        let place = pg_sys::dsm_segment_address(segment);
        empty(place, bytes);
        pg_sys::dsm_pin_segment(segment);
        pg_sys::dsm_pin_mapping(segment);
        (ring_at(place, bytes), pg_sys::dsm_segment_handle(segment))
    }
}
