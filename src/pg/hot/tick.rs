//! The tick: core's timeout facility reads the clock while a sampled statement runs. [`Tick`] decides when.
//!
//! A tick takes about 4 us on the machine of the benchmarks.

use super::timing;
use crate::pg::compat;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::unguarded;
use pgrx::pg_sys;
use rowsource_core::sampler::Tick;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static TICK: BackendLocal<Tick> = BackendLocal::new(Tick::new());
/// The timeout's number, once it is registered.
static TIMEOUT: AtomicI32 = AtomicI32::new(0);

/// Runs in a signal handler: reads the clock, and sets the next timeout or sleeps. Core's own periodic timeouts are
/// set again at this point too.
///
/// # Safety
/// To be called by PostgreSQL's timeout handler only, for the timeout that is registered here.
unsafe extern "C-unwind" fn ticked() {
    let is_idle = timing::last() == timing::ticked();
    timing::tick();
    // SAFETY: the wait event is this process's own. While a handler runs, the signal is blocked and the list of timeouts is
    // consistent. The timeout is registered, or this would not be called.
    unsafe {
        let is_waiting = pg_sys::my_wait_event_info.read_volatile() != 0;
        if let Some(period_ms) = TICK.on_timeout(is_idle, is_waiting) {
            unguarded::enable_timeout_after(TIMEOUT.load(Relaxed), period_ms);
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

/// Arms the tick, slows it down, or wakes it up.
///
/// # Safety
/// [`prepare`] must have been called in this backend.
pub unsafe fn want() {
    if let Some(period_ms) = TICK.want() {
        timing::note_period(f64::from(period_ms) * 1e6);
    }
    wake();
}

/// Sets the timeout again if the tick sleeps: its last reading was noticed.
#[inline(always)]
pub fn wake() {
    if TICK.is_asleep() {
        // SAFETY: the tick sleeps only once it is armed, and so registered.
        unsafe { set() }
    }
}

/// Wakes the tick up and sets the timeout.
///
/// # Safety
/// The timeout must be registered.
#[cold]
unsafe fn set() {
    let period_ms = TICK.wake();
    // SAFETY: the timeout is registered by the caller's promise. The timeout functions do not raise.
    unsafe { unguarded::enable_timeout_after(TIMEOUT.load(Relaxed), period_ms) }
}

/// Stops the tick; called whenever the outermost measured statement is left, by any way.
pub fn disarm() {
    if TICK.disarm() {
        // SAFETY: the tick is armed only once it is registered. The timeout functions do not raise.
        unsafe { unguarded::disable_timeout(TIMEOUT.load(Relaxed), false) };
        timing::note_period(0.0);
    }
}
