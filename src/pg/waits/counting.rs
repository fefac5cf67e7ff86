//! Counts a wait: the functions that replace those of the C library call this before and after each call.
//!
//! All of it is plain frames: it calls no PostgreSQL function that does more than return a variable, does not
//! allocate or panic, and keeps errno. What a wait has to remember is on the stack until it ends. So if a
//! longjmp leaves a call, nothing remains of it: that wait does not count.
//!
//! One call is one wait, with two exceptions. A call that a signal interrupted and that PostgreSQL repeats
//! belongs to the same wait. So do all calls of one wait for a heavyweight lock, during which PostgreSQL
//! wakes up to look for deadlocks.

use super::slots;
use crate::guc;
use crate::pg::border::{backend_local::BackendLocal, globals::wait_event, unguarded};
use crate::pg::compat;
use crate::pg::hot::{wait_object, waits as charged};
use crate::pg::server::switch;
use pgrx::pg_sys;
use rowsource_core::waits::slot::Counters;
use rowsource_core::waits::{CLASS, Event};
use std::cell::Cell;

pub use crate::pg::hot::wait_object::{forget, forget_all, note_request};

/// A wait that is in progress.
#[derive(Clone, Copy)]
pub struct Wait {
    event: Event,
    /// When the wait for a heavyweight lock began, which identifies it; 0 for all other waits.
    lock: i64,
}

/// A wait that has been counted, but that may go on with the next call.
struct Unfinished {
    event: Cell<Event>,
    lock: Cell<i64>,
    ns: Cell<u64>,
    /// Whether the next call for this event is the rest of this wait.
    goes_on: Cell<bool>,
}

impl Unfinished {
    const fn none() -> Self {
        Unfinished {
            event: Cell::new(0),
            lock: Cell::new(0),
            ns: Cell::new(0),
            goes_on: Cell::new(false),
        }
    }
}

/// The last wait for a heavyweight lock.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static LOCK: BackendLocal<Unfinished> = BackendLocal::new(Unfinished::none());
/// The last other wait.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static LAST: BackendLocal<Unfinished> = BackendLocal::new(Unfinished::none());

/// The event of the last request to a file, and its counters. Most requests are of the same event as the one
/// before. A process keeps its slot as long as it lives.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static RECENT: BackendLocal<Cell<(Event, Option<&Counters>)>> = BackendLocal::new(Cell::new((0, None)));

/// Returns the event that this process waits for; 0 if it waits for none.
#[inline(always)]
pub fn event() -> Event {
    wait_event()
}

/// Returns whether waits are counted.
#[inline(always)]
pub fn is_on() -> bool {
    guc::wait_timing() && switch::is_on()
}

/// Returns the event if waits are counted, otherwise 0.
#[inline(always)]
pub fn counted_event() -> Event {
    if !guc::wait_timing() {
        return 0;
    }
    if !switch::is_on() {
        pause();
        return 0;
    }
    event()
}

/// Notes that waits follow which are not counted: no later one is the rest of one that was.
#[cold]
#[inline(never)]
pub fn pause() {
    LAST.goes_on.set(false);
    LOCK.goes_on.set(false);
}

/// Returns whether an event is of the class IO, but not a wait for another process to read, which sets a
/// latch.
#[inline(always)]
pub fn is_file_io(event: Event) -> bool {
    event & CLASS == pg_sys::PG_WAIT_IO && Some(event) != compat::WAIT_FOR_IO_WORKER
}

/// Begins a wait for an event, which is not 0.
#[inline(always)]
pub fn begin(event: Event) -> Wait {
    let lock = if event & CLASS == pg_sys::PG_WAIT_LOCK {
        wait_object::note_lock();
        lock_wait()
    } else {
        0
    };
    Wait { event, lock }
}

/// Returns when the current wait for a heavyweight lock began, in microseconds; 0 if that is unknown. While
/// it recovers, a server waits for locks in another way.
#[inline(never)]
fn lock_wait() -> i64 {
    const DEADLOCK_TIMEOUT: i32 = 1;
    // SAFETY: the function returns a variable of this process, for a timeout that PostgreSQL itself has
    // registered. The other value is a global of a plain type.
    unsafe {
        if pg_sys::MyBackendType == pg_sys::BackendType::B_STARTUP {
            return 0;
        }
        unguarded::get_timeout_start_time(DEADLOCK_TIMEOUT)
    }
}

/// Counts a wait that has ended after this long. `goes_on`: only a signal ended it, and the next call for
/// this event is the rest of it.
#[inline(never)]
pub fn end(wait: Wait, ns: u64, goes_on: bool) {
    let Wait { event, lock, .. } = wait;
    let Some(slot) = slots::mine().filter(|_| switch::is_on()) else {
        return;
    };
    let last = if lock == 0 { &LAST } else { &LOCK };
    let is_rest = last.goes_on.get() && last.event.get() == event && last.lock.get() == lock;
    let before = is_rest.then(|| last.ns.get());
    slot.counters(event).add(ns, before);
    charged::charge(event, ns, before);
    last.event.set(event);
    last.lock.set(lock);
    last.ns.set(ns.wrapping_add(before.unwrap_or(0)));
    last.goes_on.set(lock != 0 || goes_on && !is_cancelled());
}

/// Returns whether the statement is cancelled as soon as it looks for interrupts. Then its wait does not go
/// on.
fn is_cancelled() -> bool {
    // SAFETY: these are globals of this process, of plain types. Only signal handlers of this thread write
    // the first one meanwhile.
    unsafe {
        (&raw const pg_sys::QueryCancelPending).read_volatile() != 0
            && pg_sys::InterruptHoldoffCount == 0
            && pg_sys::QueryCancelHoldoffCount == 0
    }
}

/// Counts a whole wait that took this long: a request to a file, which no signal interrupts.
#[inline(never)]
pub fn count(event: Event, ns: u64) {
    if let Some(slot) = slots::mine() {
        let (of, recent) = RECENT.get();
        let counters = if of == event
            && let Some(recent) = recent
        {
            recent
        } else {
            let counters = slot.counters(event);
            RECENT.set((event, Some(counters)));
            counters
        };
        counters.add(ns, None);
        charged::charge(event, ns, None);
    }
    LAST.goes_on.set(false);
}

/// Notes that the process has read what woke it up, while it still waits for this event. If its latch is not
/// set, that was an old signal, and the next call for this event is the rest of the wait. A wait for a
/// heavyweight lock goes on in any case.
#[inline(never)]
pub fn woken(event: Event) {
    if LAST.event.get() != event {
        return;
    }
    // SAFETY: this is a global of PostgreSQL, which is null or points to the latch of this process.
    let is_set = unsafe { pg_sys::MyLatch.as_ref() }.is_none_or(|latch| latch.is_set != 0);
    if !is_set {
        LAST.goes_on.set(true);
    }
}
