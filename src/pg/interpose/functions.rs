//! The functions that replace `pread` and similar ones in every process of the server.
//!
//! They are plain frames: they call no PostgreSQL function, do not allocate or panic, and keep the system
//! call's errno. A request without a wait event, and one that nobody counts, is passed to the original
//! function after a few branches.
//!
//! Each system call counts as one request, and as one wait. A read at the end of a file and an interrupted
//! read count as requests of zero bytes.

use super::clock::{now, ns_since};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::switch;
use crate::pg::tempfile::requests;
use crate::pg::waits::counting;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rowsource_core::tempfile::{FileType, Operation};
use rowsource_core::waits::Event;
use std::cell::Cell;
use std::ffi::CStr;

/// The functions to replace, by the names that servers import them under. `close` is among them because it
/// invalidates what is known of a descriptor.
pub const NAMES: [&CStr; 9] = [
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
/// The index of `close`.
const CLOSE: usize = 8;

/// The addresses of the original functions, by the index of their name; 0 if the server does not import it.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
pub static ORIGINALS: BackendLocal<[Cell<usize>; NAMES.len()]> =
    BackendLocal::new([const { Cell::new(0) }; NAMES.len()]);

type Plain = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type Vectored = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;

/// Returns the address of the function that replaces the one with this name.
pub fn replacement(name: usize) -> usize {
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

/// Replaces `pread` and `pwrite`, which have the same ABI.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after its original
/// was stored.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn plain<const NAME: usize>(
    descriptor: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: only `table` puts this function into the server's table, and stores the original of the same
    // name and type before. Arguments are passed on unchanged.
    unsafe {
        let original: Plain = std::mem::transmute(ORIGINALS[NAME].get());
        if counting::event() == 0 || !counting::is_on() && requests::is_passed_on(descriptor, buffer) {
            return original(descriptor, buffer, bytes, offset);
        }
        timed_plain(descriptor, buffer, bytes, offset, NAME)
    }
}

/// Replaces `preadv` and `pwritev`.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after its original
/// was stored.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn vectored<const NAME: usize>(
    descriptor: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: only `table` puts this function into the server's table, and stores the original of the same
    // name and type before. The first part is read only if there is one. Arguments are passed on unchanged.
    unsafe {
        let original: Vectored = std::mem::transmute(ORIGINALS[NAME].get());
        if count <= 0
            || counting::event() == 0
            || !counting::is_on() && requests::is_passed_on(descriptor, (*parts).iov_base)
        {
            return original(descriptor, parts, count, offset);
        }
        timed_vectored(descriptor, parts, count, offset, NAME)
    }
}

/// Replaces `close`. After it, the descriptor may belong to another file.
///
/// # Safety
/// Only a caller of the replaced function may call this, with that function's arguments, after its original
/// was stored.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe extern "C-unwind" fn close(descriptor: c_int) -> c_int {
    // SAFETY: only `table` puts this function into the server's table, and stores the original `close`
    // before.
    unsafe {
        requests::forget(descriptor);
        counting::forget(descriptor);
        let original: Close = std::mem::transmute(ORIGINALS[CLOSE].get());
        original(descriptor)
    }
}

/// Makes a request that counts as a wait, or that may be to a temporary file.
///
/// # Safety
/// * `name` must be the index of a function of this type in [`NAMES`], whose original is stored.
/// * The other arguments must be those of that function.
#[inline(never)]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe fn timed_plain(
    descriptor: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    offset: off_t,
    name: usize,
) -> ssize_t {
    // SAFETY: by the caller's promise `name` is an index of `ORIGINALS`, where a function of this type is
    // stored, and the arguments are valid for it.
    unsafe {
        let original: Plain = std::mem::transmute(ORIGINALS.get_unchecked(name).get());
        let filetype = filetype(descriptor, buffer);
        let note = |event| counting::note_request(event, descriptor, Some(offset as u64), || bytes as u64);
        timed(filetype, operation(name), bytes, note, || {
            original(descriptor, buffer, bytes, offset)
        })
    }
}

/// Makes a request that counts as a wait, or that may be to a temporary file.
///
/// # Safety
/// * `name` must be the index of a function of this type in [`NAMES`], whose original is stored.
/// * The other arguments must be those of that function, with at least one part.
#[inline(never)]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
unsafe fn timed_vectored(
    descriptor: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    name: usize,
) -> ssize_t {
    // SAFETY: by the caller's promise `name` is an index of `ORIGINALS`, where a function of this type is
    // stored, and the arguments are valid for it: there are `count` parts, and at least one.
    unsafe {
        let original: Vectored = std::mem::transmute(ORIGINALS.get_unchecked(name).get());
        let filetype = filetype(descriptor, (*parts).iov_base);
        let size = || {
            let mut bytes: size_t = 0;
            for part in 0..count as usize {
                bytes = bytes.wrapping_add((*parts.add(part)).iov_len);
            }
            bytes
        };
        let bytes = if filetype.is_some() { size() } else { 0 };
        let note = |event| {
            counting::note_request(event, descriptor, Some(offset as u64), || size() as u64);
        };
        timed(filetype, operation(name), bytes, note, || {
            original(descriptor, parts, count, offset)
        })
    }
}

/// Returns the type of the temporary file that a request is to, if it is to one.
#[inline(always)]
fn filetype(descriptor: c_int, buffer: *mut c_void) -> Option<FileType> {
    if requests::is_passed_on(descriptor, buffer) {
        return None;
    }
    requests::filetype(descriptor)
}

/// Makes a request, and counts it and the wait. `note` is called if it is a wait. Nothing after the request
/// changes errno.
#[inline(always)]
fn timed(
    filetype: Option<FileType>,
    operation: Operation,
    bytes: size_t,
    note: impl FnOnce(Event),
    request: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let counted = filetype.map(|filetype| requests::begin(filetype, operation, bytes));
    let event = counting::counted_event();
    if counted.is_none() && event == 0 {
        return request();
    }
    // This comes before the request: else the arguments would be kept until its end.
    if event != 0 {
        note(event);
    }
    let start = now();
    let result = request();
    let ns = ns_since(start);
    if !switch::is_on() {
        return result;
    }
    if let Some(counted) = counted {
        counted.end(result, ns);
    }
    if event != 0 {
        counting::count(event, ns);
    }
    result
}
