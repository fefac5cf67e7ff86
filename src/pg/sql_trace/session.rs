//! The trace file of this session.
//!
//! A file that has reached its maximal size ends, and another one continues it. The session keeps its last
//! two files, so that a trace that nobody stops does not fill the disk.

use super::files::{Listed, Name};
use super::used::{self, Used};
use super::{cursors, events, header, level, nested, total};
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server::{self, switch};
use libc::c_int;
use pgrx::pg_sys;
use rowsource_core::sql_trace::writer::Buffer;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

/// The bytes of the buffer. A statement's text fits in, even if each of its characters needs a backslash.
const BUFFER: usize = 64 << 10;
/// The room that a line may take.
pub const LONGEST_LINE: usize = 34 << 10;
/// How many bytes a session may write before it looks again how many all files have, if there is room for a
/// multiple.
const MIN_ALLOWED: u64 = 8 << 20;
/// A file needs room for more than its first line.
const MIN_ROOM: u64 = 8 << 10;
/// How long a session waits before it tries again to write, in microseconds.
const RETRY_US: u64 = 1_000_000;
const OVER_LIMIT: &str = "all files together have reached pg_rowsource.trace_max_total_size";
const FILE_FULL: &str = "a statement filled the file up to pg_rowsource.trace_max_file_size";

struct Session {
    /// Whether the callbacks are registered.
    has_callbacks: Cell<bool>,
    /// The number of the last file.
    part: Cell<u32>,
    /// How many bytes of the file are counted among those of all files.
    counted: Cell<u64>,
    /// How many bytes the file may have because of the limit of all files.
    allowed: Cell<u64>,
    /// When the file could not be opened or written.
    failed_at: Cell<u64>,
    /// Why the file cannot be written.
    is_over_limit: Cell<bool>,
    /// Whether the server's log has the reason.
    is_logged: Cell<bool>,
    /// Lines lost in all.
    lost: Cell<u64>,
}

static SESSION: BackendLocal<Session> = BackendLocal::new(Session {
    has_callbacks: Cell::new(false),
    part: Cell::new(0),
    counted: Cell::new(0),
    allowed: Cell::new(0),
    failed_at: Cell::new(0),
    is_over_limit: Cell::new(false),
    is_logged: Cell::new(false),
    lost: Cell::new(0),
});

/// Opens the session's file, if it is not open. Returns whether it is open. Raises nothing.
pub fn ready() -> bool {
    if hot::is_open() {
        return true;
    }
    let is_due =
        SESSION.failed_at.get() == 0 || hot::now_us().saturating_sub(SESSION.failed_at.get()) >= RETRY_US;
    is_due && may_be_traced() && server::attempt("open the trace file", open).unwrap_or(false)
}

/// Returns whether this process runs the statements of a client.
pub fn may_be_traced() -> bool {
    let is_client = GLOBALS.MyBackendType.get() == pg_sys::BackendType::B_BACKEND;
    is_client && server::is_under_postmaster() && !server::is_parallel_worker() && !server::is_exiting()
}

fn open() -> bool {
    SESSION.failed_at.set(0);
    // What may raise comes before the file is there.
    if !SESSION.has_callbacks.get() {
        // The first one raises before it registers, and the others ignore a session without a file.
        server::at_transaction_end(at_end_of_transaction);
        SESSION.has_callbacks.set(true);
        server::before_leaving_memory(before_unmapping);
        server::at_exit(at_exit);
    }
    let (names, who) = (events::names(), header::who());
    total::attach();
    let Some(room) = total::room(MIN_ROOM) else {
        fail(OVER_LIMIT);
        return false;
    };
    let Some(buffer) = Buffer::with_room(BUFFER) else {
        fail("out of memory");
        return false;
    };
    let Some(file) = create() else {
        return false;
    };
    // SAFETY: the function only counts.
    unsafe { pg_sys::ReserveExternalFD() };
    hot::open(file, buffer, names);
    header::keep_who(who);
    SESSION.counted.set(0);
    set_room(room);
    used::set_last(None);
    cursors::forget();
    header::write(SESSION.part.get());
    flush(false);
    hot::is_open()
}

/// Creates the next file, and removes the one before the last. Returns its descriptor.
fn create() -> Option<c_int> {
    let part = SESSION.part.get() + 1;
    match Name::mine(part).create() {
        Ok(file) => {
            SESSION.part.set(part);
            total::add_file();
            if part > 2
                && let Some(old) = Name::mine(part - 2).listed()
            {
                total::remove(&old);
            }
            Some(file.into_raw_fd())
        }
        Err(error) => {
            fail(&error.to_string());
            None
        }
    }
}

/// Notes that there is no file. The server's log says why, once.
fn fail(reason: &str) {
    SESSION.failed_at.set(hot::now_us().max(1));
    log(reason);
}

fn log(reason: &str) {
    if !SESSION.is_logged.replace(true) {
        server::log_alone(&format!(
            "pg_rowsource cannot write the trace file of process {}: {reason}",
            server::pid()
        ));
    }
}

/// Writes the buffer to the file. While a statement runs, the file stays within its limit, and what does not
/// fit is lost. If `has_ended`, a statement of the client has ended: then its last lines may exceed that
/// limit, and if the file is full, it ends and another one begins. Must not be called during a wait, nor
/// after an error before the transaction is rolled back.
pub fn flush(has_ended: bool) {
    if write(has_ended) && has_ended {
        begin_next_if_full();
    }
}

/// Writes the buffer to the file, which exceeds its limit only if that is allowed. Returns whether the file
/// could be written.
fn write(may_exceed: bool) -> bool {
    if hot::failure() != 0 {
        retry();
    }
    let end = hot::written().saturating_add(hot::buffered());
    if hot::failure() == 0 {
        check_room();
    }
    if may_exceed && end <= SESSION.allowed.get() {
        hot::flush();
    } else {
        hot::flush_within_limit();
    }
    if hot::failure() != 0 {
        note_failure();
        return false;
    }
    if hot::take_emptied() {
        SESSION.counted.set(SESSION.counted.get().min(hot::written()));
        cursors::forget();
        header::write(SESSION.part.get());
    }
    true
}

/// Ends a file that is full, and begins another one, after a statement of the client.
fn begin_next_if_full() {
    let is_limited = hot::is_limited();
    let most = guc::trace_max_file_size();
    if hot::written() >= most {
        hot::note_size();
        SESSION.counted.set(SESSION.counted.get().min(hot::written()));
    }
    if hot::written() >= most || is_limited && SESSION.allowed.get() >= most {
        rotate();
    } else if is_limited {
        note_lost();
    }
}

/// Notes how many more bytes all files may have. That is looked at again when a call ends, but not when a
/// wait does: so sessions with many waits in a call may write more together until then.
fn set_room(room: u64) {
    let (written, most) = (hot::written(), MIN_ALLOWED.max(room / 8));
    SESSION.allowed.set(written.saturating_add(room.min(most)));
    hot::set_limit(SESSION.allowed.get().min(guc::trace_max_file_size()));
}

/// Counts what was written since this was last called among the bytes of all files.
fn count() {
    let written = hot::written();
    total::add_bytes(written.saturating_sub(SESSION.counted.replace(written)));
}

/// Looks how many bytes all files have. Stops writing if they would exceed their limit.
fn check_room() {
    count();
    match total::room(hot::buffered()) {
        Some(room) => set_room(room),
        None => {
            SESSION.is_over_limit.set(true);
            hot::fail(libc::EDQUOT);
            note_failure();
        }
    }
}

/// Notes that the file could not be written.
fn note_failure() {
    if SESSION.failed_at.get() == 0 {
        SESSION.failed_at.set(hot::now_us().max(1));
        log(&reason());
    }
}

/// Returns why the file cannot be written.
fn reason() -> String {
    if SESSION.is_over_limit.get() {
        return OVER_LIMIT.to_owned();
    }
    std::io::Error::from_raw_os_error(hot::failure()).to_string()
}

/// Tries to write again, if the last failure is some time ago. If that succeeds, a line says what was lost.
fn retry() {
    let now = hot::now_us();
    if now.saturating_sub(SESSION.failed_at.get()) < RETRY_US {
        return;
    }
    SESSION.failed_at.set(now.max(1));
    if SESSION.is_over_limit.get() {
        count();
        match total::room(MIN_ROOM) {
            Some(room) => set_room(room),
            None => return,
        }
    }
    let reason = reason();
    // The lines since the failure are lost, because this one must come before them.
    hot::with_buffer(|buffer| {
        buffer.lose();
        let lost = buffer.lost();
        buffer
            .line(b"LOST", 0)
            .number(b"lines", lost)
            .text(b"reason", reason.as_bytes())
            .end()
    });
    hot::retry();
    hot::flush();
    if hot::failure() == 0 {
        SESSION.failed_at.set(0);
        SESSION.is_over_limit.set(false);
        // Their descriptions may be among the lost lines.
        cursors::forget();
        // The line itself was written.
        let lost = hot::with_buffer(Buffer::take_lost).unwrap_or(0);
        SESSION.lost.set(SESSION.lost.get().saturating_add(lost));
    } else {
        // The line that could not be written is not one of those that were lost.
        hot::with_buffer(|buffer| {
            let lost = buffer.take_lost();
            (1..lost).for_each(|_| buffer.lose_line());
        });
    }
}

/// Writes a line that says how many lines did not fit into the buffer or the file.
fn note_lost() {
    let reason = match (hot::take_limited(), SESSION.allowed.get()) {
        (false, _) => "the buffer was full",
        (true, allowed) if allowed >= guc::trace_max_file_size() => FILE_FULL,
        (true, _) => OVER_LIMIT,
    };
    let lost = hot::with_buffer(Buffer::take_lost).unwrap_or(0);
    if lost > 0 {
        SESSION.lost.set(SESSION.lost.get().saturating_add(lost));
        hot::with_buffer(|buffer| {
            buffer
                .line(b"LOST", 0)
                .number(b"lines", lost)
                .text(b"reason", reason.as_bytes())
                .end()
        });
    }
}

/// Ends the file, and begins another one.
fn rotate() {
    end_line();
    hot::flush();
    count();
    let Some(file) = create() else {
        // The session goes on with the file that it has, without writing.
        hot::fail(libc::EDQUOT);
        SESSION.is_over_limit.set(true);
        return;
    };
    close_file(hot::replace_file(file));
    SESSION.counted.set(0);
    cursors::forget();
    // The last cursor is not in this file.
    hot::set_call(hot::depth(), 0);
    header::write(SESSION.part.get());
    check_room();
}

fn end_line() {
    if hot::failure() == 0 {
        note_lost();
    }
    let now = hot::now_us();
    hot::with_buffer(|buffer| buffer.line(b"END", 0).number(b"tim", now).end());
}

fn close_file(file: c_int) {
    if file >= 0 {
        // SAFETY: the descriptor belongs to the trace, which does not use it any more.
        drop(unsafe { File::from_raw_fd(file) });
    }
}

/// Ends the trace.
pub fn close() {
    if !hot::is_open() {
        return;
    }
    if hot::failure() != 0 {
        SESSION.failed_at.set(0);
        retry();
    }
    if switch::is_on() {
        end_line();
    }
    hot::flush();
    count();
    close_file(hot::close());
    SESSION.failed_at.set(0);
    SESSION.is_over_limit.set(false);
    SESSION.is_logged.set(false);
    // SAFETY: the function only counts.
    unsafe { pg_sys::ReleaseExternalFD() };
}

/// Notes that nothing is to be written for a while. The file stays open.
pub fn pause() {
    if !hot::is_open() {
        return;
    }
    let depth = hot::depth();
    flush(depth == 0);
    if depth == 0 {
        // The end of a transaction that was not traced is not the last statement's.
        hot::set_call(0, 0);
    }
}

/// Returns whether there is a file.
pub fn is_open() -> bool {
    hot::is_open()
}

/// Returns the name of the session's last file.
pub fn current() -> Name {
    Name::mine(SESSION.part.get())
}

/// Returns the session's files. Does not list the folder.
pub fn own_files() -> impl Iterator<Item = Listed> {
    // It has removed all but the last two.
    let part = SESSION.part.get();
    let parts = part.saturating_sub(1).max(1)..=part;
    parts.filter_map(|part| Name::mine(part).listed())
}

/// Writes what is in the buffer, so that the file can be read. Then the file may exceed its limit, but only
/// once in a statement: a statement may read it in a loop.
pub fn flush_if_open() {
    if hot::is_open() {
        let is_full = hot::written() > guc::trace_max_file_size();
        write(!is_full);
    }
}

/// Returns how many lines of this session were lost.
pub fn lost() -> u64 {
    let in_buffer = hot::with_buffer(|buffer| buffer.lost()).unwrap_or(0);
    SESSION.lost.get().saturating_add(in_buffer)
}

/// Counts what was written, before shared memory is unmapped. The last lines are written after that, and are
/// counted when the folder is listed.
fn before_unmapping(_code: i32) {
    if hot::is_open() {
        count();
    }
    total::detach();
}

/// Ends the trace when the process exits.
fn at_exit(_code: i32) {
    server::attempt("end the trace file", close);
}

/// Writes that a transaction has ended.
fn at_end_of_transaction(event: pg_sys::XactEvent::Type) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    // If only single statements are written, so are the ends of their transactions.
    let is_selective = level::is_selective();
    if is_selective && hot::cursor() == 0 {
        return;
    }
    if !hot::is_open() || ![XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE].contains(&event) {
        return;
    }
    if !switch::is_on() {
        nested::end_all();
        return used::set_last(None);
    }
    let has_id = server::has_transaction_id();
    let now = Used::now();
    let is_in_call = hot::depth() > 0;
    let before = if is_in_call || is_selective {
        None
    } else {
        now.before(now.message_came())
    };
    hot::with_buffer(|buffer| {
        let line = buffer
            .line(b"XCTEND", hot::cursor())
            .number(b"rlbk", u64::from(event == XACT_EVENT_ABORT))
            .number(b"rd_only", u64::from(!has_id));
        now.add_to(line, before.as_ref())
            .nonzero(b"dep", hot::depth())
            .number(b"tim", now.at_us)
            .end()
    });
    nested::end_all();
    if is_selective {
        hot::set_call(hot::depth(), 0);
    } else if !is_in_call {
        used::set_last(Some(now));
    }
}
