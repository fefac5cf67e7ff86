//! The functions that replace `pread` and similar ones in every process of the server.
//!
//! They are plain frames: they call no PostgreSQL function, do not allocate or panic, and keep the system call's errno. A
//! request that is not to a temporary file is passed to the original function after one branch (if timing is off) or a few
//! (the wait event tells the kind of request).
//!
//! Each system call counts as one request. A read at the end of a file and an interrupted read count as requests of zero
//! bytes.

use super::counters;
use super::got::{self, Memory};
use crate::guc;
use crate::pg::compat;
use crate::pg::server::backend_local::BackendLocal;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use pgrx::pg_sys;
use pgrx::pg_sys::WaitEventIO as Event;
use rowsource_core::clock::{self, Source};
use rowsource_core::tempfile::{FileType, Kind, Operation, Size};
use std::cell::Cell;
use std::ffi::CStr;

/// The functions to replace, by the names that servers import them under. `close` is among them because it invalidates what
/// is known of a descriptor.
const NAMES: [&CStr; 9] = [
    c"pread",
    c"pread64",
    c"pwrite",
    c"pwrite64",
    c"preadv",
    c"preadv64",
    c"pwritev",
    c"pwritev64",
    c"close",
];
const CLOSE: usize = 8;

/// The addresses of the original functions, by the index of their name.
static ORIGINALS: BackendLocal<[Cell<usize>; NAMES.len()]> =
    BackendLocal::new([const { Cell::new(0) }; NAMES.len()]);

/// Whether the clock is the time stamp counter, and the length of its tick.
static TSC: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
static NS_PER_TICK: BackendLocal<Cell<f64>> = BackendLocal::new(Cell::new(1.0));

/// Whether times are also added to core's counters: see [`per_node`].
static PER_NODE: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// The type of each descriptor's file, if known. Servers have at most some thousands of descriptors. For higher ones than
/// these nothing is stored.
static DESCRIPTORS: BackendLocal<[Cell<u8>; 1 << 16]> =
    BackendLocal::new([const { Cell::new(UNKNOWN) }; 1 << 16]);
const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const TEMP_TABLE: u8 = 2;
/// Whether `close` is replaced too. Only then types of descriptors may be stored.
static IS_CLOSE_REPLACED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

type Plain = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type Vectored = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;

/// Returns the address of the function that replaces the one with this name.
fn replacement(name: usize) -> usize {
    match name {
        0 => plain::<0> as *const () as usize,
        1 => plain::<1> as *const () as usize,
        2 => plain::<2> as *const () as usize,
        3 => plain::<3> as *const () as usize,
        4 => vectored::<4> as *const () as usize,
        5 => vectored::<5> as *const () as usize,
        6 => vectored::<6> as *const () as usize,
        7 => vectored::<7> as *const () as usize,
        _ => close as *const () as usize,
    }
}

const fn operation(name: usize) -> Operation {
    match name {
        0 | 1 | 4 | 5 => Operation::Read,
        _ => Operation::Write,
    }
}

/// Installs all functions in the server's import table, or none of them. Does nothing if they were installed before: if
/// another library had replaced them since, the two would call each other endlessly.
pub fn install() -> Result<(), String> {
    static INSTALLED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
    if INSTALLED.get() {
        return Ok(());
    }
    let slots = got::find(&NAMES)?;
    let imported = |name: usize| slots.iter().any(|slot| slot.name == name);
    if !(imported(0) || imported(1)) || !(imported(2) || imported(3)) {
        return Err("the server does not import pread and pwrite".into());
    }
    let memory = Memory::read()?;
    let mut originals = [0; NAMES.len()];
    for slot in &slots {
        let original = slot.function(NAMES[slot.name], &memory)?;
        if ![0, original].contains(&originals[slot.name]) {
            return Err(format!("{:?} is imported from two places", NAMES[slot.name]));
        }
        originals[slot.name] = original;
    }
    for (cell, original) in ORIGINALS.iter().zip(originals) {
        cell.set(original);
    }
    IS_CLOSE_REPLACED.set(imported(CLOSE));
    TSC.set(clock::auto() == Source::Tsc);
    NS_PER_TICK.set(clock::auto().scale().ns_per_tick());
    for (done, slot) in slots.iter().enumerate() {
        if let Err(reason) = slot.replace(replacement(slot.name), &memory) {
            for slot in &slots[..=done] {
                let _ = slot.replace(originals[slot.name], &memory);
            }
            return Err(reason);
        }
    }
    INSTALLED.set(true);
    Ok(())
}

/// Switches on or off that the times of requests are added to core's own counters. Returns the previous value.
///
/// It is on while a statement is measured and core does not time I/O itself. So the times are charged to nodes in the same
/// way as blocks: by the extension's accounts, by core for Hash and bitmap nodes, and by parallel workers.
pub fn per_node(on: bool) -> bool {
    PER_NODE.replace(on)
}

/// Replaces `pread` and `pwrite`, which have the same ABI.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after [`install`] has stored the
/// original.
unsafe extern "C-unwind" fn plain<const NAME: usize>(
    descriptor: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: only `install` puts this function into the server's table, and stores the original of the same name and type
    // before. Arguments are passed on unchanged.
    unsafe {
        let original: Plain = std::mem::transmute(ORIGINALS[NAME].get());
        if is_passed_on(descriptor, buffer) {
            return original(descriptor, buffer, bytes, offset);
        }
        timed_plain(descriptor, buffer, bytes, offset, NAME)
    }
}

/// Replaces `preadv` and `pwritev`.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after [`install`] has stored the
/// original.
unsafe extern "C-unwind" fn vectored<const NAME: usize>(
    descriptor: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: only `install` puts this function into the server's table, and stores the original of the same name and type
    // before. The first part is read only if there is one. Arguments are passed on unchanged.
    unsafe {
        let original: Vectored = std::mem::transmute(ORIGINALS[NAME].get());
        if count <= 0 || is_passed_on(descriptor, (*parts).iov_base) {
            return original(descriptor, parts, count, offset);
        }
        timed_vectored(descriptor, parts, count, offset, NAME)
    }
}

/// Replaces `close`. After it, the descriptor may belong to another file.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after [`install`] has stored the
/// original.
unsafe extern "C-unwind" fn close(descriptor: c_int) -> c_int {
    // SAFETY: only `install` puts this function into the server's table, and stores the original `close` before.
    unsafe {
        if (descriptor as usize) < 1 << 16 {
            DESCRIPTORS[descriptor as usize].set(UNKNOWN);
        }
        let original: Close = std::mem::transmute(ORIGINALS[CLOSE].get());
        original(descriptor)
    }
}

/// Returns whether a few comparisons prove that a request is not to a temporary file.
#[inline(always)]
fn is_passed_on(descriptor: c_int, buffer: *mut c_void) -> bool {
    // SAFETY: PostgreSQL keeps the address of this process's wait event valid at all times.
    unsafe {
        if !guc::tempfile_timing() {
            return true;
        }
        let event = *pg_sys::my_wait_event_info;
        if event == Event::WAIT_EVENT_BUFFILE_READ || event == Event::WAIT_EVENT_BUFFILE_WRITE {
            return false;
        }
        !is_data_file(event) || is_shared(buffer) || known(descriptor) == OTHER
    }
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
    // SAFETY: these are two globals that are set when the process starts. The address is only compared.
    unsafe {
        let offset = (buffer as usize).wrapping_sub(pg_sys::BufferBlocks as usize);
        offset < pg_sys::NBuffers as usize * pg_sys::BLCKSZ as usize
    }
}

/// Returns the type of a descriptor's file, if known.
#[inline(always)]
fn known(descriptor: c_int) -> u8 {
    match DESCRIPTORS.get(descriptor as usize) {
        Some(what) => what.get(),
        None => UNKNOWN,
    }
}

/// Returns the type of a file, or `None` if it is not temporary. A block outside shared buffers may also belong to an index
/// that is being built, or to a table that is being copied or extended. Only the file's name distinguishes them.
#[inline(always)]
fn filetype(descriptor: c_int) -> Option<FileType> {
    // SAFETY: PostgreSQL keeps the address of this process's wait event valid at all times.
    unsafe {
        if !is_data_file(*pg_sys::my_wait_event_info) {
            return Some(FileType::WorkFile);
        }
        let mut what = known(descriptor);
        if what == UNKNOWN {
            what = look_up(descriptor);
        }
        (what == TEMP_TABLE && !compat::temp_tables_bypass_syscalls()).then_some(FileType::TempTable)
    }
}

/// Returns the type of a file by its name, which the kernel returns. Names of temporary tables begin with a `t`, names of
/// other relations with a digit.
#[cold]
#[inline(never)]
fn look_up(descriptor: c_int) -> u8 {
    // SAFETY: the buffers are on the stack and have the lengths that are passed. errno's address is always valid.
    unsafe {
        let errno = *libc::__errno_location();
        let mut link = [0; 32];
        libc::snprintf(
            link.as_mut_ptr(),
            link.len(),
            c"/proc/self/fd/%d".as_ptr(),
            descriptor,
        );
        let mut name = [0u8; 4096];
        let length = libc::readlink(link.as_ptr(), name.as_mut_ptr().cast(), name.len());
        *libc::__errno_location() = errno;
        let mut first = 0;
        for &byte in name.iter().take(usize::try_from(length).unwrap_or(0)).rev() {
            if byte == b'/' {
                break;
            }
            first = byte;
        }
        let what = if first == b't' { TEMP_TABLE } else { OTHER };
        if IS_CLOSE_REPLACED.get() && (descriptor as usize) < 1 << 16 {
            DESCRIPTORS[descriptor as usize].set(what);
        }
        what
    }
}

/// Makes a request that may be to a temporary file.
///
/// # Safety
/// * `name` must be the index of a function of this type in [`NAMES`], whose original is stored.
/// * The other arguments must be those of that function.
#[inline(never)]
unsafe fn timed_plain(
    descriptor: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    offset: off_t,
    name: usize,
) -> ssize_t {
    // SAFETY: by the caller's promise `name` is an index of `ORIGINALS`, where a function of this type is stored, and the
    // arguments are valid for it.
    unsafe {
        let original: Plain = std::mem::transmute(ORIGINALS.get_unchecked(name).get());
        match filetype(descriptor) {
            None => original(descriptor, buffer, bytes, offset),
            Some(filetype) => timed(filetype, operation(name), bytes, || {
                original(descriptor, buffer, bytes, offset)
            }),
        }
    }
}

/// Makes a request that may be to a temporary file.
///
/// # Safety
/// * `name` must be the index of a function of this type in [`NAMES`], whose original is stored.
/// * The other arguments must be those of that function.
#[inline(never)]
unsafe fn timed_vectored(
    descriptor: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    name: usize,
) -> ssize_t {
    // SAFETY: by the caller's promise `name` is an index of `ORIGINALS`, where a function of this type is stored, and the
    // arguments are valid for it: there are `count` parts.
    unsafe {
        let original: Vectored = std::mem::transmute(ORIGINALS.get_unchecked(name).get());
        match filetype(descriptor) {
            None => original(descriptor, parts, count, offset),
            Some(filetype) => {
                let mut bytes: size_t = 0;
                for part in 0..count as usize {
                    bytes = bytes.wrapping_add((*parts.add(part)).iov_len);
                }
                timed(filetype, operation(name), bytes, || {
                    original(descriptor, parts, count, offset)
                })
            }
        }
    }
}

/// Makes a request and counts it. Nothing after the request changes errno.
#[inline(always)]
fn timed(
    filetype: FileType,
    operation: Operation,
    bytes: size_t,
    request: impl FnOnce() -> ssize_t,
) -> ssize_t {
    // SAFETY: these are PostgreSQL's own globals, which only this thread writes. The pointer to the counters is null or
    // valid as long as the process lives.
    unsafe {
        let kind = Kind {
            filetype,
            operation,
            size: Size::of(bytes, pg_sys::BLCKSZ as usize),
        };
        let requests = counters::mine(kind);
        let start = now();
        let result = request();
        let ticks = now().saturating_sub(start);
        let ns = if TSC.get() {
            (ticks as f64 * NS_PER_TICK.get()) as u64
        } else {
            ticks
        };
        if !requests.is_null() {
            (*requests).add(if result > 0 { result as u64 } else { 0 }, ns);
        }
        if PER_NODE.get() && !pg_sys::track_io_timing {
            compat::add_io_time(&raw mut pg_sys::pgBufferUsage, filetype, operation, ns);
        }
        result
    }
}

/// Reads the clock, in ticks.
#[inline(always)]
fn now() -> u64 {
    if TSC.get() {
        clock::tsc::read()
    } else {
        clock::system::monotonic()
    }
}
