//! The buffer and the file of the session's SQL trace, and the lines of its waits.
//!
//! A wait's line is written into the buffer when the wait has ended, inside a system call of the server: so
//! this allocates nothing and raises nothing. If the buffer is nearly full, it is written to the file at
//! once, unless the process is in a critical section or holds a lock. If the file would exceed its limit, the
//! lines are lost instead. All other lines are written between the phases of statements (`pg::sql_trace`).

use super::wait_object;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::posix;
use libc::c_int;
use pgrx::pg_sys;
use rowsource_core::clock::system;
use rowsource_core::sql_trace::writer::Buffer;
use rowsource_core::waits::{CLASS, Event};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

/// The name of an event.
pub struct Name {
    pub event: Event,
    pub text: [u8; Name::LENGTH],
    pub length: usize,
}

impl Name {
    pub const LENGTH: usize = 72;
}

/// The file.
struct State {
    /// The file's descriptor; -1 if there is none.
    file: Cell<c_int>,
    /// Whether a line is being written. A signal's handler may wait meanwhile.
    is_busy: Cell<bool>,
    /// How many calls of statements are in progress.
    depth: Cell<u64>,
    /// The cursor of the innermost call, or the last one.
    cursor: Cell<u64>,
    /// The bytes in the file.
    written: Cell<u64>,
    /// How many bytes the file may have while a statement runs.
    limit: Cell<u64>,
    /// Whether lines were lost because of the limit.
    is_limited: Cell<bool>,
    /// How often that happened.
    losses: Cell<u64>,
    /// Why the file cannot be written; 0 if it can.
    failure: Cell<c_int>,
    /// Whether a wait was listed since this was last asked.
    has_waited: Cell<bool>,
    /// When the last wait for the client ended that was listed.
    client_until: Cell<u64>,
    /// Whether somebody has emptied the file since this was last asked.
    is_emptied: Cell<bool>,
    buffer: UnsafeCell<Buffer>,
    /// The names of events, in their order.
    names: UnsafeCell<Vec<Name>>,
}

static STATE: BackendLocal<State> = BackendLocal::new(State {
    file: Cell::new(-1),
    is_busy: Cell::new(false),
    depth: Cell::new(0),
    cursor: Cell::new(0),
    written: Cell::new(0),
    limit: Cell::new(0),
    is_limited: Cell::new(false),
    losses: Cell::new(0),
    failure: Cell::new(0),
    has_waited: Cell::new(false),
    client_until: Cell::new(0),
    is_emptied: Cell::new(false),
    buffer: UnsafeCell::new(Buffer::none()),
    names: UnsafeCell::new(Vec::new()),
});

/// Returns whether there is a file.
#[inline(always)]
pub fn is_open() -> bool {
    STATE.file.get() >= 0
}

/// Returns whether waits are listed.
#[inline(always)]
pub fn lists_waits() -> bool {
    wait_object::is_wanted()
}

/// Lists waits from now on, or no longer.
pub fn list_waits(on: bool) {
    wait_object::want(on);
}

/// Begins with a file. Its names must be in the order of their events. It frees what was there before, so it
/// is a part of its caller, which is no plain frame.
#[inline(always)]
pub fn open(file: c_int, buffer: Buffer, names: Vec<Name>) {
    STATE.written.set(0);
    STATE.limit.set(0);
    STATE.is_limited.set(false);
    STATE.failure.set(0);
    replace(buffer, names);
    STATE.file.set(file);
}

/// Replaces the buffer and the names.
#[inline(always)]
fn replace(buffer: Buffer, names: Vec<Name>) {
    STATE.is_busy.set(true);
    // SAFETY: no line is being written, so no reference to these is in use, and while the mark is set none is
    // made.
    unsafe {
        *STATE.buffer.get() = buffer;
        *STATE.names.get() = names;
    }
    STATE.is_busy.set(false);
}

/// Goes on with another file. Returns the one before.
pub fn replace_file(file: c_int) -> c_int {
    STATE.written.set(0);
    STATE.failure.set(0);
    STATE.file.replace(file)
}

/// Ends with the file, and frees the buffer. Returns the file's descriptor.
pub fn close() -> c_int {
    wait_object::want(false);
    replace(Buffer::none(), Vec::new());
    STATE.depth.set(0);
    STATE.file.replace(-1)
}

/// Returns how many calls are in progress.
pub fn depth() -> u64 {
    STATE.depth.get()
}

/// Returns the cursor of the innermost call, or the last one.
pub fn cursor() -> u64 {
    STATE.cursor.get()
}

/// Notes how many calls are in progress, and the cursor of the innermost one.
pub fn set_call(depth: u64, cursor: u64) {
    STATE.depth.set(depth);
    STATE.cursor.set(cursor);
}

/// Returns the bytes in the file.
pub fn written() -> u64 {
    STATE.written.get()
}

/// Notes how many bytes the file may have while a statement runs.
pub fn set_limit(bytes: u64) {
    STATE.limit.set(bytes);
}

/// Returns whether lines were lost because of the limit.
pub fn is_limited() -> bool {
    STATE.is_limited.get()
}

/// Returns how often lines were lost because of the limit.
pub fn losses() -> u64 {
    STATE.losses.get()
}

/// Returns whether lines were lost because of the limit since this was last called.
pub fn take_limited() -> bool {
    STATE.is_limited.replace(false)
}

/// Returns the number of the error for which the file cannot be written; 0 if it can.
pub fn failure() -> c_int {
    STATE.failure.get()
}

/// Notes that the file cannot be written.
pub fn fail(errno: c_int) {
    STATE.failure.set(errno);
}

/// Notes that the file may be writable again.
pub fn retry() {
    STATE.failure.set(0);
}

/// Returns whether a wait was listed since this was last called.
#[inline(always)]
pub fn take_waited() -> bool {
    STATE.has_waited.replace(false)
}

/// Returns whether somebody has emptied the file since this was last called: what it described is lost.
pub fn take_emptied() -> bool {
    STATE.is_emptied.replace(false)
}

/// Returns when the last wait for the client ended that was listed.
#[inline(always)]
pub fn client_until() -> u64 {
    STATE.client_until.get()
}

/// Returns the time by the clock of the file, in microseconds.
#[inline(always)]
pub fn now_us() -> u64 {
    system::monotonic() / 1_000
}

/// Runs `write` with the buffer. Returns `None` if a line is being written.
#[inline(always)]
pub fn with_buffer<T>(write: impl FnOnce(&mut Buffer) -> T) -> Option<T> {
    with_names(|buffer, _| write(buffer))
}

/// Does the same with the names of the events.
#[inline(always)]
fn with_names<T>(write: impl FnOnce(&mut Buffer, &[Name]) -> T) -> Option<T> {
    if STATE.is_busy.replace(true) {
        return None;
    }
    // SAFETY: the mark was not set, so no other reference to these is in use, and none is made meanwhile.
    let result = unsafe { write(&mut *STATE.buffer.get(), &*STATE.names.get()) };
    STATE.is_busy.set(false);
    Some(result)
}

/// Returns how many bytes of lines are in the buffer; 0 if a line is being written.
pub fn buffered() -> u64 {
    with_buffer(|buffer| buffer.lines().len() as u64).unwrap_or(0)
}

/// Adds the line of a wait that ended now. `node` is the number of the node that waited, and the OID of its
/// relation.
#[inline(never)]
pub fn wait(event: Event, ns: u64, is_rest: bool, node: Option<(usize, Option<u32>)>) {
    STATE.has_waited.set(true);
    let now_ns = system::monotonic();
    let now = now_ns / 1_000;
    if event & CLASS == pg_sys::PG_WAIT_CLIENT {
        STATE.client_until.set(now);
    }
    let is_full = with_names(|buffer, names| {
        let line = buffer
            .line(b"WAIT", STATE.cursor.get())
            .number(b"dep", STATE.depth.get())
            // Both stamps are cut to microseconds, as those of calls are.
            .number(b"ela", now.saturating_sub(now_ns.saturating_sub(ns) / 1_000))
            .known(b"node", node.map(|(node, _)| node as u64))
            .known(b"obj", node.and_then(|(_, relation)| relation).map(u64::from));
        let line = if is_rest { line.number(b"rest", 1) } else { line };
        let line = wait_object::add(line, event).number(b"tim", now);
        match names
            .binary_search_by_key(&event, |name| name.event)
            .ok()
            .and_then(|at| names.get(at))
        {
            Some(name) => line
                .text(b"nam", name.text.get(..name.length).unwrap_or_default())
                .end(),
            None => line
                .number(b"event", u64::from(event))
                .text(b"nam", b"other")
                .end(),
        };
        buffer.room() < buffer.size() / 4
    });
    if is_full == Some(true) && may_write(event) {
        flush_within_limit();
    }
}

/// Returns whether the process may write to its file now: it is in no critical section, and holds no lock for
/// which others may wait. It holds such a lock when it has extended a table.
#[inline(always)]
fn may_write(event: Event) -> bool {
    event != pg_sys::WaitEventIO::WAIT_EVENT_DATA_FILE_EXTEND
        && GLOBALS.CritSectionCount.get() == 0
        && GLOBALS.InterruptHoldoffCount.get() == 0
}

/// Writes the buffer to the file if the file stays within its limit, and empties it. Else its lines are lost.
/// Keeps errno.
#[inline(never)]
pub fn flush_within_limit() {
    let fits = with_buffer(|buffer| {
        let bytes = STATE.written.get().saturating_add(buffer.lines().len() as u64);
        let fits = bytes <= STATE.limit.get();
        if !fits {
            buffer.lose();
        }
        fits
    });
    match fits {
        Some(true) => flush(),
        Some(false) => {
            STATE.is_limited.set(true);
            STATE.losses.set(STATE.losses.get().wrapping_add(1));
        }
        None => {}
    }
}

/// Writes the buffer to the file, and empties it. If that fails, its lines are lost. Keeps errno.
#[inline(never)]
pub fn flush() {
    let _ = with_buffer(|buffer| {
        let errno = posix::errno();
        if STATE.failure.get() != 0 || !write_all(buffer.lines()) {
            buffer.lose();
        }
        buffer.clear();
        posix::set_errno(errno);
    });
}

/// Returns the bytes that the file has. Somebody may have emptied it.
fn size(file: c_int) -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the function has room for its result, and has written it if it returns 0.
    unsafe { (libc::fstat(file, status.as_mut_ptr()) == 0).then(|| status.assume_init().st_size as u64) }
}

/// Looks how many bytes the file has, because somebody may have emptied it.
pub fn note_size() {
    if let Some(size) = size(STATE.file.get()) {
        STATE.written.set(size);
    }
}

/// Removes this many bytes from the end of the file. If that fails, the reader skips the line that is cut.
fn take_back(file: c_int, bytes: u64) {
    if let Some(size) = size(file).filter(|_| bytes > 0) {
        posix::ftruncate(file, size.saturating_sub(bytes) as libc::off_t);
    }
}

/// Writes whole lines to the file, or nothing.
fn write_all(lines: &[u8]) -> bool {
    let (file, mut rest) = (STATE.file.get(), lines);
    while !rest.is_empty() {
        // SAFETY: the pointer and the length are those of a slice.
        let wrote = unsafe { libc::write(file, rest.as_ptr().cast(), rest.len()) };
        let errno = posix::errno();
        if wrote > 0 {
            rest = rest.get(wrote as usize..).unwrap_or_default();
        } else if wrote == 0 || errno != libc::EINTR {
            STATE.failure.set(if wrote == 0 { libc::ENOSPC } else { errno });
            take_back(file, lines.len().wrapping_sub(rest.len()) as u64);
            return false;
        }
    }
    let written = STATE.written.get().wrapping_add(lines.len() as u64);
    STATE.written.set(written);
    // The file is written at its end, where this is then.
    let end = posix::lseek(file, 0, libc::SEEK_CUR);
    if u64::try_from(end).is_ok_and(|end| end < written) {
        STATE.is_emptied.set(true);
        STATE.written.set(end as u64);
    }
    true
}
