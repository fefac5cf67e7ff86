//! A slow tick that reads the clock while a sampled statement runs, so that no call longer than a tick can hide.
//!
//! It uses core's timeout facility (about 4 us a tick on the machine of design.md), is armed only when a node's
//! gaps grow beyond 1 (short statements never pay for it), and slows down with the statement's age.

use super::{compat, raw, timing};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Milliseconds between ticks at first, and after how many ticks it doubles: 1 ms for the first 20 ms, 2 ms for the
/// first second, then 4 ms.
const PERIODS: [(u32, i32); 3] = [(20, 1), (500, 2), (u32::MAX, 4)];

/// Ticks since armed.
static TICKS: AtomicU32 = AtomicU32::new(0);
static mut TIMEOUT: Option<i32> = None;
/// The period in force, as an index; `None` while not armed.
static mut ARMED: Option<usize> = None;

/// Runs in a signal handler: reads the clock, and nothing else.
unsafe extern "C-unwind" fn ticked() {
    TICKS.store(TICKS.load(Relaxed).wrapping_add(1), Relaxed);
    // SAFETY: READ is always a valid function, and all clocks are async-signal-safe.
    let now = unsafe { timing::READ() };
    timing::LAST.store(now, Relaxed);
    timing::TICKED.store(now, Relaxed);
}

/// Registers the timeout with this backend, once.
///
/// # Safety
/// Main thread, in a backend whose timeouts are initialised.
pub unsafe fn prepare() {
    // SAFETY: RegisterTimeout takes the first free user id when given the first.
    unsafe {
        if { TIMEOUT }.is_none() {
            TIMEOUT = Some(raw::RegisterTimeout(compat::USER_TIMEOUT, ticked));
        }
    }
}

/// Arms the tick, or slows it down. Called from the hot path's cold side: no guard, no panic.
///
/// # Safety
/// Main thread, inside a measured statement.
pub unsafe fn wanted() {
    // SAFETY: plain statics of this thread; the timeout functions do not raise.
    unsafe {
        let Some(timeout) = TIMEOUT else { return };
        let next = match ARMED {
            None => {
                TICKS.store(0, Relaxed);
                0
            }
            Some(at)
                if PERIODS
                    .get(at)
                    .is_some_and(|(until, _)| TICKS.load(Relaxed) >= *until) =>
            {
                raw::disable_timeout(timeout, false);
                at + 1
            }
            Some(_) => return,
        };
        let Some(&(_, period)) = PERIODS.get(next) else {
            return;
        };
        raw::enable_timeout_every(
            timeout,
            raw::GetCurrentTimestamp() + i64::from(period) * 1000,
            period,
        );
        ARMED = Some(next);
        timing::PROOFS.period = f64::from(period) * 1e6 / timing::NS_PER_TICK;
    }
}

/// Stops the tick; called whenever the outermost measured statement is left, by any way.
///
/// # Safety
/// Main thread.
pub unsafe fn disarm() {
    // SAFETY: as above.
    unsafe {
        if let (Some(timeout), Some(_)) = (TIMEOUT, ARMED) {
            raw::disable_timeout(timeout, false);
            ARMED = None;
            timing::PROOFS.period = 0.0;
        }
    }
}
