//! Finds out which requests are to temporary files, and counts them. The functions that replace system calls
//! call this.
//!
//! All of it is plain frames: it calls no PostgreSQL function, does not allocate or panic, and keeps errno.

use super::counters;
use super::sessions;
use super::source;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::{GLOBALS, wait_event};
use crate::pg::border::posix;
use crate::pg::compat;
use crate::pg::server::switch;
use libc::{c_int, c_void, size_t, ssize_t};
use pgrx::pg_sys;
use pgrx::pg_sys::WaitEventIO as Event;
use rowsource_core::tempfile::{FileType, Kind, Operation, Size};
use std::cell::Cell;

/// Whether times are also added to core's counters: see [`per_node`].
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PER_NODE: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// The type of each descriptor's file, if known. Servers have at most some thousands of descriptors. For
/// higher ones than these nothing is stored. `close` is replaced too, and forgets the type.
static DESCRIPTORS: BackendLocal<[Cell<u8>; 1 << 16]> =
    BackendLocal::new([const { Cell::new(UNKNOWN) }; 1 << 16]);
const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const TEMP_TABLE: u8 = 2;

/// Switches on or off that the times of requests are added to core's own counters. Returns the previous
/// value.
///
/// It is on while a statement is measured and core does not time I/O itself. So the times are charged to
/// nodes in the same way as blocks: by the extension's accounts, by core for Hash and bitmap nodes, and by
/// parallel workers.
pub fn per_node(on: bool) -> bool {
    PER_NODE.replace(on)
}

/// Forgets the type of a descriptor's file, because the descriptor is about to be closed.
#[inline(always)]
pub fn forget(descriptor: c_int) {
    if let Some(what) = DESCRIPTORS.get(descriptor as usize) {
        what.set(UNKNOWN);
    }
}

/// Forgets the types of all descriptors' files, because some may have been closed.
pub fn forget_all() {
    DESCRIPTORS.iter().for_each(|what| what.set(UNKNOWN));
}

/// Returns whether a few comparisons prove that a request is not to a temporary file.
#[inline(always)]
pub fn is_passed_on(descriptor: c_int, buffer: *mut c_void) -> bool {
    if !guc::tempfile_timing() || !switch::is_on() {
        return true;
    }
    let event = wait_event();
    if event == Event::WAIT_EVENT_BUFFILE_READ || event == Event::WAIT_EVENT_BUFFILE_WRITE {
        return !source::are_requests_counted();
    }
    !is_data_file(event) || is_shared(buffer) || known(descriptor) == OTHER || !source::are_requests_counted()
}

#[inline(always)]
fn is_data_file(event: u32) -> bool {
    event == Event::WAIT_EVENT_DATA_FILE_READ
        || event == Event::WAIT_EVENT_DATA_FILE_WRITE
        || event == Event::WAIT_EVENT_DATA_FILE_EXTEND
}

/// Returns whether a block is in shared buffers. Then it does not belong to a temporary table.
#[inline(always)]
fn is_shared(buffer: *mut c_void) -> bool {
    let offset = buffer.addr().wrapping_sub(GLOBALS.BufferBlocks.get().addr());
    offset < GLOBALS.NBuffers.get() as usize * pg_sys::BLCKSZ as usize
}

/// Returns the type of a descriptor's file, if known.
#[inline(always)]
fn known(descriptor: c_int) -> u8 {
    match DESCRIPTORS.get(descriptor as usize) {
        Some(what) => what.get(),
        None => UNKNOWN,
    }
}

/// Returns the type of a file, or `None` if it is not temporary. A block outside shared buffers may also
/// belong to an index that is being built, or to a table that is being copied or extended. Only the file's
/// name distinguishes them.
#[inline(always)]
pub fn filetype(descriptor: c_int) -> Option<FileType> {
    if !is_data_file(wait_event()) {
        return Some(FileType::WorkFile);
    }
    let mut what = known(descriptor);
    if what == UNKNOWN {
        what = look_up(descriptor);
    }
    (what == TEMP_TABLE && !compat::temp_tables_bypass_syscalls()).then_some(FileType::TempTable)
}

/// Returns the type of a file by its name, which the kernel returns. Names of temporary tables begin with a
/// `t`, names of other relations with a digit.
#[cold]
#[inline(never)]
fn look_up(descriptor: c_int) -> u8 {
    let mut first = 0;
    for &byte in posix::path_of(descriptor, &mut [0; 4096]).iter().rev() {
        if byte == b'/' {
            break;
        }
        first = byte;
    }
    let what = if first == b't' { TEMP_TABLE } else { OTHER };
    if let Some(stored) = DESCRIPTORS.get(descriptor as usize) {
        stored.set(what);
    }
    what
}

/// A request to a temporary file that is being made.
pub struct Request {
    kind: Kind,
    counters: Option<&'static rowsource_core::tempfile::counters::Cell>,
}

/// Begins to count a request of a number of bytes.
#[inline(always)]
pub fn begin(filetype: FileType, operation: Operation, bytes: size_t) -> Request {
    let kind = Kind {
        filetype,
        operation,
        size: Size::of(bytes, pg_sys::BLCKSZ as usize),
    };
    Request {
        kind,
        counters: counters::mine(kind),
    }
}

impl Request {
    /// Counts the request, which has returned this result and taken this long.
    #[inline(always)]
    pub fn end(self, result: ssize_t, ns: u64) {
        // SAFETY: the pointer to the counters is null or valid as long as the process lives. PostgreSQL's own
        // counters are there, and only this thread writes them.
        unsafe {
            if let Some(counters) = self.counters {
                counters.add(if result > 0 { result as u64 } else { 0 }, ns);
            }
            sessions::add(ns);
            if PER_NODE.get() && !GLOBALS.track_io_timing.get() {
                let Kind {
                    filetype, operation, ..
                } = self.kind;
                compat::add_io_time(compat::buffer_usage(), filetype, operation, ns);
            }
        }
    }
}
