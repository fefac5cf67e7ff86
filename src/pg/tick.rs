//! A slow tick that reads the clock while a sampled statement runs, so that no call longer than a tick can hide.
//!
//! It uses core's timeout facility (about 4 us a tick on the machine of design.md), is armed only when a node's
//! gaps grow beyond 1 (short statements never pay for it), and slows down with the statement's age.
//!
//! Each timeout fires once, and the tick itself sets the next one. Where nobody has read the clock since the tick
//! before, nothing is called that could be measured: at once in a wait, and otherwise after a while, the tick sets no
//! other and sleeps. A wait so costs two wake-ups. Whoever then notices the tick's reading wakes it up.

use super::backend_local::BackendLocal;
use super::{compat, timing, unguarded};
use pgrx::pg_sys;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};

/// Milliseconds between ticks at first, and after how many ticks it doubles: 1 ms for the first 20 ms, 2 ms for the
/// first second, then 4 ms.
const PERIODS: [(u32, i32); 3] = [(20, 1), (500, 2), (u32::MAX, 4)];
/// Idle ticks until it sleeps: in what PostgreSQL calls a wait, and else. Where a node is seldom called, readings may
/// lie further apart than ticks.
const MOST_IDLE_WAITING: u32 = 1;
const MOST_IDLE: u32 = 100;

/// Ticks since armed.
static TICKS: AtomicU32 = AtomicU32::new(0);
/// Ticks since the clock was last read by anyone else.
static IDLE: AtomicU32 = AtomicU32::new(0);
/// Armed, but no timeout is set.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// Milliseconds to the next tick.
static PERIOD: AtomicI32 = AtomicI32::new(0);
/// The timeout's number, once it is registered.
static TIMEOUT: AtomicI32 = AtomicI32::new(0);
/// The period in force, as an index; `None` while not armed.
static ARMED: BackendLocal<Cell<Option<usize>>> = BackendLocal::new(Cell::new(None));

/// Runs in a signal handler: reads the clock, and sets the next timeout or sleeps. Core's own periodic timeouts are
/// set again at this point too.
///
/// # Safety
/// To be called by PostgreSQL's timeout handler only, for the timeout that is registered here.
unsafe extern "C-unwind" fn ticked() {
    TICKS.store(TICKS.load(Relaxed).wrapping_add(1), Relaxed);
    let is_idle = timing::last() == timing::ticked();
    let idle = if is_idle { IDLE.load(Relaxed) + 1 } else { 0 };
    IDLE.store(idle, Relaxed);
    timing::tick();
    // SAFETY: the wait event is this process's own. While a handler runs, the signal is blocked and the list of timeouts is
    // consistent. The timeout is registered, or this would not be called.
    unsafe {
        let waits = pg_sys::my_wait_event_info.read_volatile() != 0;
        if idle < if waits { MOST_IDLE_WAITING } else { MOST_IDLE } {
            unguarded::enable_timeout_after(TIMEOUT.load(Relaxed), PERIOD.load(Relaxed));
        } else {
            ASLEEP.store(true, Relaxed);
        }
    }
}

/// Registers the timeout with this backend, once.
///
/// # Safety
/// In a backend whose timeouts are initialised.
pub unsafe fn prepare() {
    if TIMEOUT.load(Relaxed) == 0 {
        // SAFETY: RegisterTimeout takes the first free user id when given any of them.
        TIMEOUT.store(
            unsafe { unguarded::RegisterTimeout(compat::USER_TIMEOUT, ticked) },
            Relaxed,
        );
    }
}

/// Arms the tick, slows it down, or wakes it up. Called from the hot path's cold side: no guard, no panic.
///
/// # Safety
/// [`prepare`] must have been called in this backend.
pub unsafe fn wanted() {
    let next = match ARMED.get() {
        None => 0,
        Some(at)
            if PERIODS
                .get(at)
                .is_some_and(|(until, _)| TICKS.load(Relaxed) >= *until) =>
        {
            at + 1
        }
        Some(_) => return wake(),
    };
    let Some(&(_, period)) = PERIODS.get(next) else {
        return;
    };
    PERIOD.store(period, Relaxed);
    timing::note_period(f64::from(period) * 1e6);
    if next == 0 {
        TICKS.store(0, Relaxed);
        ASLEEP.store(true, Relaxed);
    }
    ARMED.set(Some(next));
    wake();
}

/// Sets the timeout again, if the tick sleeps: its last reading was noticed.
#[inline(always)]
pub fn wake() {
    if ASLEEP.load(Relaxed) {
        // SAFETY: it sleeps only once it is armed, and so registered.
        unsafe { set() }
    }
}

/// Sets the timeout, and forgets how long nobody has read the clock.
///
/// # Safety
/// The timeout must be registered.
#[cold]
unsafe fn set() {
    ASLEEP.store(false, Relaxed);
    IDLE.store(0, Relaxed);
    // SAFETY: the timeout is registered by the caller's promise. The timeout functions do not raise.
    unsafe { unguarded::enable_timeout_after(TIMEOUT.load(Relaxed), PERIOD.load(Relaxed)) }
}

/// Stops the tick; called whenever the outermost measured statement is left, by any way.
pub fn disarm() {
    if ARMED.get().is_some() {
        ARMED.set(None);
        // SAFETY: it is armed only once it is registered. The timeout functions do not raise.
        unsafe { unguarded::disable_timeout(TIMEOUT.load(Relaxed), false) };
        ASLEEP.store(false, Relaxed);
        timing::note_period(0.0);
    }
}
