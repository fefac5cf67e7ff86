//! Reads moments that users write as text.

use super::contained::{Unlocked, contained};
use super::{fail, from_database, now, to_database};
use pgrx::{PgSqlErrorCode, direct_function_call_as_datum, pg_sys};
use std::ffi::{CStr, CString};

/// Returns the moment that a text means, in microseconds since 2000-01-01 UTC: a timestamp, a time of today,
/// or an interval ago. Raises an error if it is none of these. The session's time zone counts.
pub fn moment(text: &str) -> i64 {
    let timestamp = |text: &str| Some(read(pg_sys::timestamptz_in, text)?.value() as i64);
    let moment = if is_time_of_day(text) {
        timestamp(&format!("today {text}"))
    } else {
        timestamp(text).or_else(|| {
            let interval = read(pg_sys::interval_in, text)?;
            // SAFETY: the function returns an interval.
            Some(ago(interval_us(unsafe { &*interval.cast_mut_ptr() })))
        })
    };
    moment.unwrap_or_else(|| fail_no_moment(&format!("\"{text}\"")))
}

/// Raises the error that something is no moment.
pub fn fail_no_moment(what: &str) -> ! {
    let zone = time_zone();
    fail(
        PgSqlErrorCode::ERRCODE_INVALID_DATETIME_FORMAT,
        &format!("{what} is no moment"),
        &format!(
            "Write a timestamp like '2026-11-28 14:05', a time of today like '14:05', or an interval ago like '5 min'. Times are in the time zone {zone}."
        ),
    )
}

/// Returns the moment that is `us` microseconds ago. '5 min' and '5 min ago' are the same.
pub fn ago(us: i64) -> i64 {
    now().saturating_sub(us.saturating_abs())
}

/// Returns the name of the session's time zone.
pub fn time_zone() -> String {
    // SAFETY: each session has a time zone, whose name is a C string.
    let zone = unsafe { CStr::from_ptr(pg_sys::pg_get_timezone_name(pg_sys::session_timezone)) };
    from_database(zone.to_bytes())
}

/// Returns whether a text begins like 14:05. PostgreSQL would read it as an interval.
fn is_time_of_day(text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit();
    let text = text.trim_start();
    text.starts_with(digits) && text.trim_start_matches(digits).starts_with(':')
}

/// Returns what an input function of PostgreSQL makes of a text; `None` if it raises an error.
fn read(input: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum, text: &str) -> Option<pg_sys::Datum> {
    let text = CString::new(&*to_database(text)).ok()?;
    let no_type = pg_sys::Datum::from(pg_sys::InvalidOid);
    let arguments = [
        pg_sys::Datum::from(text.as_ptr()),
        no_type,
        pg_sys::Datum::from(-1_i32),
    ]
    .map(Some);
    // SAFETY: the input functions of these types read a C string, an OID that they ignore, and a modifier.
    unsafe {
        contained(&mut Unlocked::promised(), |_| {
            direct_function_call_as_datum(input, &arguments)
        })
    }
    .ok()?
}

/// Returns the length of an interval in microseconds. A month has 30 days.
pub fn interval_us(interval: &pg_sys::Interval) -> i64 {
    let days = i128::from(interval.month) * 30 + i128::from(interval.day);
    let us = i128::from(interval.time) + days * 86_400_000_000;
    us.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
