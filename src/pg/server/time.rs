//! Returns times of day, in microseconds since 2000-01-01 UTC.

use super::backend_local::BackendLocal;
use rowsource_core::clock::Source;
use std::cell::Cell;
use std::ffi::CStr;

/// Returns the current time.
pub fn now() -> i64 {
    // SAFETY: the function has no preconditions.
    unsafe { super::unguarded::GetCurrentTimestamp() }
}

/// Returns when the server began to process the client's current message.
pub fn message_time() -> i64 {
    // SAFETY: the function has no preconditions.
    unsafe { super::unguarded::GetCurrentStatementStartTimestamp() }
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

/// Returns the current time, as [`now`] does. It asks the system at most ten times a second, and computes the time from a
/// clock in between.
pub fn time_of_day(source: Source, ns_per_tick: f64) -> i64 {
    const MAX_AGE_US: f64 = 1e5;
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static ASKED: BackendLocal<Cell<Option<(Source, u64, i64)>>> = BackendLocal::new(Cell::new(None));
    let reading = source.read();
    if let Some((clock, then, at)) = ASKED.get()
        && clock == source
    {
        let since = reading.wrapping_sub(then) as i64 as f64 * ns_per_tick / 1e3;
        if (0.0..MAX_AGE_US).contains(&since) {
            return at + since as i64;
        }
    }
    let now = now();
    ASKED.set(Some((source, reading, now)));
    now
}
