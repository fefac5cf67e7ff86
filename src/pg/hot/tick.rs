//! The tick: a timeout of PostgreSQL that reads the clock while a sampled statement runs. [`Tick`] decides when.
//!
//! A tick takes about 4 us of a processor, and 20 us of a virtual one.

use super::timing;
use crate::pg::compat;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::unguarded;
use pgrx::pg_sys;
use rowsource_core::sampler::Tick;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static TICK: BackendLocal<Tick> = BackendLocal::new(Tick::new());
/// The timeout's number, once it is registered.
static TIMEOUT: AtomicI32 = AtomicI32::new(0);

/// Runs in a signal handler: reads the clock, and sets the next timeout or sleeps. Core also sets its periodic timeouts
/// again in the handler.
///
/// # Safety
/// Only PostgreSQL's timeout handler may call this, for the timeout that [`prepare`] registered.
unsafe extern "C-unwind" fn ticked() {
    let is_idle = timing::last() == timing::ticked();
    timing::tick();
    // SAFETY: the wait event is this process's own. While a handler runs, the signal is blocked and the list of timeouts is
    // consistent. The timeout is registered, because only then this is called.
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
/// The timeouts of this backend must be initialised.
pub unsafe fn prepare() {
    if TIMEOUT.load(Relaxed) == 0 {
        // SAFETY: the timeouts are initialised by the caller's promise. RegisterTimeout accepts any user id and takes the
        // first free one.
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
    timing::calibrate();
    wake();
}

/// Wakes the tick up if it sleeps. The hot path calls this when the tick's last reading was used.
#[inline(always)]
pub fn wake() {
    if TICK.is_asleep() {
        // SAFETY: only an armed tick sleeps, and it is armed only after it is registered.
        unsafe { set() }
    }
}

/// Ends the tick's sleep and sets the timeout.
///
/// # Safety
/// The timeout must be registered.
#[cold]
unsafe fn set() {
    let period_ms = TICK.wake();
    // SAFETY: the timeout is registered by the caller's promise. The timeout functions do not raise.
    unsafe { unguarded::enable_timeout_after(TIMEOUT.load(Relaxed), period_ms) }
}

/// Stops the tick. This is called whenever the outermost statement is left, also after an error.
#[inline(always)]
pub fn disarm() {
    if TICK.disarm() {
        clear();
    }
}

/// Clears the timeout of the tick that was armed.
#[cold]
#[inline(never)]
fn clear() {
    // SAFETY: the tick is armed only after it is registered. The timeout functions do not raise.
    unsafe { unguarded::disable_timeout(TIMEOUT.load(Relaxed), false) };
    timing::note_period(0.0);
}
