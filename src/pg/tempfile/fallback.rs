//! The fallback if requests cannot be intercepted: core's own counters of blocks.
//!
//! Their increase is added when a transaction commits or aborts, and before the counters are shown. A
//! parallel worker adds nothing, because core passes its counters to its leader.

use super::counters::{self, of_core};
use super::source::{Source, source};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::account::Usage;
use crate::pg::server::switch;
use crate::pg::{compat, server};
use pgrx::pg_sys;
use rowsource_core::tempfile::{FileType, Kind, Operation, Requests, Size};
use std::cell::Cell;
use std::ffi::c_void;

/// Core's counters at the last reading.
static SEEN: BackendLocal<Cell<pg_sys::BufferUsage>> = BackendLocal::new(Cell::new(Usage::zero().buffers));

/// Whether the switch was off at the last reading.
static WAS_OFF: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Starts to add core's counters, unless all requests are intercepted. Only `_PG_init` may call this, once.
pub fn init() {
    if FileType::ALL.map(source) == [Source::Request; 2] {
        return;
    }
    SEEN.set(compat::buffers_now());
    // SAFETY: the callback has the type that PostgreSQL calls, and needs no argument.
    unsafe { pg_sys::RegisterXactCallback(Some(at_end_of_transaction), std::ptr::null_mut()) };
    if !server::preloading() {
        counters::begin_own();
    }
}

/// Adds the counters at the end of a transaction. It is a plain frame, and nothing in it raises.
///
/// # Safety
/// Only PostgreSQL may call this, when a transaction ends.
unsafe extern "C-unwind" fn at_end_of_transaction(_event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    add();
}

/// Adds the increase of core's counters since the last reading. Drops what the session did while the switch
/// was off, and the first transaction after that, of which a part may have been before.
pub fn add() {
    if server::is_parallel_worker() {
        return;
    }
    let now = compat::buffers_now();
    let seen = SEEN.replace(now);
    let is_on = switch::is_on();
    if WAS_OFF.replace(!is_on) || !is_on {
        return;
    }
    for filetype in FileType::ALL
        .into_iter()
        .filter(|&f| source(f) == Source::Counter)
    {
        let (now_ns, seen_ns) = (compat::temp_ns(&now, filetype), compat::temp_ns(&seen, filetype));
        let blocks = |u: &pg_sys::BufferUsage| match filetype {
            FileType::WorkFile => [u.temp_blks_read, u.temp_blks_written],
            FileType::TempTable => [u.local_blks_read, u.local_blks_written],
        };
        let (now_blocks, seen_blocks) = (blocks(&now), blocks(&seen));
        for (i, operation) in [Operation::Read, Operation::Write].into_iter().enumerate() {
            let count = now_blocks[i].saturating_sub(seen_blocks[i]).max(0) as u64;
            if count > 0 {
                let kind = Kind {
                    filetype,
                    operation,
                    size: Size::Small,
                };
                of_core(kind).add_all(&Requests {
                    count,
                    bytes: count * u64::from(pg_sys::BLCKSZ),
                    ns: (now_ns[i] - seen_ns[i]).max(0.0) as u64,
                    ..Requests::default()
                });
            }
        }
    }
}
