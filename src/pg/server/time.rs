//! Returns times of day, in microseconds since 2000-01-01 UTC.

use crate::pg::border::{backend_local::BackendLocal, unguarded};
use rowsource_core::clock::Source;
use std::cell::Cell;
use std::ffi::CStr;

/// Returns the current time.
pub fn now() -> i64 {
    unguarded::GetCurrentTimestamp()
}

/// Returns when the server began to process the client's current message.
pub fn message_time() -> i64 {
    unguarded::GetCurrentStatementStartTimestamp()
}

/// The seconds between 1970 and 2000.
const EPOCH: i64 = 10_957 * 86_400;

/// Returns the time of day that is given in seconds since 1970.
pub fn from_unix(seconds: i64) -> i64 {
    seconds.saturating_sub(EPOCH).saturating_mul(1_000_000)
}

/// Returns the current time in microseconds since 1970.
pub fn now_unix() -> i64 {
    now().saturating_add(EPOCH * 1_000_000)
}

/// Returns a time of day as text, in the session's time zone.
pub fn shown_time(at: i64) -> String {
    // SAFETY: the function accepts any number. It returns a C string in a buffer of its own.
    let text = unsafe { CStr::from_ptr(pgrx::pg_sys::timestamptz_to_str(at)) };
    text.to_string_lossy().into_owned()
}

/// Returns the current time, as [`now`] does. It asks the system at most ten times a second, and computes the
/// time from a clock in between.
#[inline(always)]
pub fn time_of_day(source: Source, ns_per_tick: f64) -> i64 {
    let reading = source.read();
    if let Some(asked) = ASKED.get()
        && asked.source == source
    {
        // If the clock stepped back, this is very large.
        let ticks = reading.wrapping_sub(asked.reading);
        if ticks < asked.max_ticks {
            return asked.at + (ticks.wrapping_mul(asked.us_per_tick) >> 32) as i64;
        }
    }
    ask(source, reading, ns_per_tick)
}

/// When the system was asked for the time.
#[derive(Clone, Copy)]
struct Asked {
    source: Source,
    /// The clock's reading then.
    reading: u64,
    /// What the system said.
    at: i64,
    /// After this many ticks it is asked again.
    max_ticks: u64,
    /// Microseconds per tick, times 2^32.
    us_per_tick: u64,
}

#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static ASKED: BackendLocal<Cell<Option<Asked>>> = BackendLocal::new(Cell::new(None));

/// Asks the system for the time. The clock `source`, whose tick takes `ns_per_tick`, was just read.
#[cold]
#[inline(never)]
fn ask(source: Source, reading: u64, ns_per_tick: f64) -> i64 {
    const MAX_AGE_NS: f64 = 1e8;
    let at = now();
    ASKED.set(Some(Asked {
        source,
        reading,
        at,
        max_ticks: (MAX_AGE_NS / ns_per_tick) as u64,
        us_per_tick: (ns_per_tick / 1e3 * (1_u64 << 32) as f64) as u64,
    }));
    at
}
