//! The hooks behind the settings: what PostgreSQL calls to check and assign them.

use super::backend_local::BackendLocal;
use super::compat;
use pgrx::guc::{GucCheckError, GucValue};
use pgrx::{GucSetting, PgSqlErrorCode, pg_guard, pg_sys};
use rowsource_core::clock::Source;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A setting's value, as PostgreSQL last assigned it, without pgrx's guard.
#[inline(always)]
pub fn value<T: GucValue>(setting: &GucSetting<T>) -> T {
    // SAFETY: the setting's own static, written by this thread only.
    unsafe { T::from_raw(setting.as_ptr().read()) }
}

/// Whether `sampfreq` was set anywhere: configuration file, database, role or session.
static SAMPFREQ_EXPLICIT: AtomicBool = AtomicBool::new(false);

pub fn sampfreq_explicit() -> bool {
    SAMPFREQ_EXPLICIT.load(Relaxed)
}

/// Remembers where the value came from; 3 is announced, since it means less, not more, than 4.
///
/// # Safety
/// To be called by PostgreSQL only, as the check hook of this setting.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
pub unsafe extern "C-unwind" fn check_sampfreq(
    new: *mut c_int,
    extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes valid pointers, and frees `extra`.
    unsafe {
        let explicit: *mut bool = compat::guc_malloc(size_of::<bool>()).cast();
        if explicit.is_null() {
            return false;
        }
        *explicit = source > pg_sys::GucSource::PGC_S_DYNAMIC_DEFAULT;
        *extra = explicit.cast();
        if *new == 3 && source == pg_sys::GucSource::PGC_S_SESSION {
            pgrx::ereport!(
                pgrx::PgLogLevel::NOTICE,
                PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
                "pg_rowsource.sampfreq 3 counts rows only: no starts, no buffers, no time",
                "This is Oracle's special value; use 2 or 4 to time calls, 0 for starts and buffers without time."
            );
        }
        true
    }
}

/// Notes whether the value that is put in force was set anywhere.
///
/// # Safety
/// To be called by PostgreSQL only, as the assign hook of the setting whose check hook is [`check_sampfreq`].
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
pub unsafe extern "C-unwind" fn assign_sampfreq(_new: c_int, extra: *mut c_void) {
    // SAFETY: what check_sampfreq left, or nothing for the boot value.
    let explicit = unsafe { !extra.is_null() && *extra.cast::<bool>() };
    SAMPFREQ_EXPLICIT.store(explicit, Relaxed);
}

/// Refuses a clock that this machine lacks, with the reason.
///
/// # Safety
/// To be called by PostgreSQL only, as the check hook of this setting.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
pub unsafe extern "C-unwind" fn check_clock_source(
    new: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes the address of the new value to a check hook.
    let chosen = unsafe { crate::guc::ClockSource::from_number(*new) };
    let Some(Err(reason)) = chosen.source().map(Source::usable) else {
        return true;
    };
    let usable: Vec<_> = Source::ALL
        .iter()
        .filter(|s| s.usable().is_ok())
        .map(|s| s.name())
        .collect();
    // SAFETY: PostgreSQL calls this as a check hook, which may leave a message for its error.
    unsafe {
        GucCheckError::new(format!(
            "clock source \"{}\" cannot be used on this machine",
            chosen.name()
        ))
        .with_detail(reason.to_string())
        .with_hint(format!("Use \"auto\" or one of: {}.", usable.join(", ")))
        .apply();
    }
    false
}

/// The handle of the leader's channel, as an integer setting's bits; 0: none.
static CHANNEL: BackendLocal<Cell<c_int>> = BackendLocal::new(Cell::new(0));

/// Refuses all values but the default and those that the extension itself sets: as an override, which users have no
/// way to do. A parallel worker takes its leader's settings over with where they came from.
///
/// # Safety
/// To be called by PostgreSQL only, as the check hook of this setting.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
#[pg_guard]
unsafe extern "C-unwind" fn check_channel(
    new: *mut c_int,
    _extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes the address of the new value to a check hook.
    let is_default = unsafe { *new == 0 } && source == pg_sys::GucSource::PGC_S_DEFAULT;
    let allowed = is_default || source == pg_sys::GucSource::PGC_S_OVERRIDE;
    if !allowed {
        // SAFETY: PostgreSQL calls this as a check hook, which may leave a message for its error.
        unsafe {
            GucCheckError::new("pg_rowsource.worker_channel is set by pg_rowsource itself").apply();
        }
    }
    allowed
}

/// Defines the setting by which workers find their leader's channel. To be called once, from `_PG_init`.
pub fn define_channel() {
    // SAFETY: the strings and the variable are static, and the hook is of the type that is called. PostgreSQL refuses to
    // define a setting twice.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            c"pg_rowsource.worker_channel".as_ptr(),
            c"Internal: how parallel workers find their leader's memory.".as_ptr(),
            std::ptr::null(),
            CHANNEL.as_ptr(),
            0,
            c_int::MIN,
            c_int::MAX,
            pg_sys::GucContext::PGC_USERSET,
            (pg_sys::GUC_NO_SHOW_ALL
                | pg_sys::GUC_NOT_IN_SAMPLE
                | pg_sys::GUC_DISALLOW_IN_FILE
                | pg_sys::GUC_NO_RESET_ALL) as c_int,
            Some(check_channel),
            None,
            None,
        );
    }
}

/// Hands the channel to the workers that will be started from here on.
pub fn announce_channel(handle: pg_sys::dsm_handle) {
    let value = std::ffi::CString::new((handle as i32).to_string()).unwrap_or_default();
    // SAFETY: a defined setting and a valid number; an override is not transactional.
    unsafe {
        pg_sys::SetConfigOption(
            c"pg_rowsource.worker_channel".as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

pub fn channel() -> pg_sys::dsm_handle {
    CHANNEL.get() as pg_sys::dsm_handle
}
