//! The clock that calls of the replaced functions are timed with.

use crate::pg::border::backend_local::BackendLocal;
use rowsource_core::clock::{self, Source};
use std::cell::Cell;

/// Whether the clock is the time stamp counter.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static TSC: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// The length of its tick, in parts of a nanosecond. To multiply whole numbers takes fewer instructions than
/// to convert them.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static PARTS_PER_TICK: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));
/// How many parts a nanosecond has, as a power of two.
const PARTS: u32 = 32;

/// Chooses the clock. It stays the same as long as the process lives, and its children inherit it.
pub fn choose() {
    TSC.set(clock::auto() == Source::Tsc);
    PARTS_PER_TICK.set((clock::auto().scale().ns_per_tick() * f64::from(PARTS).exp2()).round() as u64);
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
        ((u128::from(ticks) * u128::from(PARTS_PER_TICK.get())) >> PARTS) as u64
    } else {
        ticks
    }
}
