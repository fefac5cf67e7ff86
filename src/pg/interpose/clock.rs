//! The clock that calls of the replaced functions are timed with.

use crate::pg::server::backend_local::BackendLocal;
use rowsource_core::clock::{self, Source};
use std::cell::Cell;

/// Whether the clock is the time stamp counter, and the length of its tick.
static TSC: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
static NS_PER_TICK: BackendLocal<Cell<f64>> = BackendLocal::new(Cell::new(1.0));

/// Chooses the clock. It stays the same as long as the process lives, and its children inherit it.
pub fn choose() {
    TSC.set(clock::auto() == Source::Tsc);
    NS_PER_TICK.set(clock::auto().scale().ns_per_tick());
}

/// Reads the clock, in ticks.
#[inline(always)]
pub fn now() -> u64 {
    if TSC.get() {
        clock::tsc::read()
    } else {
        clock::system::monotonic()
    }
}

/// Returns the nanoseconds since an earlier reading.
#[inline(always)]
pub fn ns_since(start: u64) -> u64 {
    let ticks = now().saturating_sub(start);
    if TSC.get() {
        (ticks as f64 * NS_PER_TICK.get()) as u64
    } else {
        ticks
    }
}
