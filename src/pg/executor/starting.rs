//! Decides whether a query is measured when it starts, and sets it up for that once it is started.

use super::listener::{Call, Started};
use super::{hinted, nesting, own, statement, traced};
use crate::guc;
use crate::instrumentation::InstrumentationPlan;
use crate::pg::hot::trace;
use crate::pg::server;
use crate::pg::server::contained::Raised;
use crate::pg::server::pg_try::is_request;
use pgrx::pg_sys::panic::{CaughtError, pgrx_extern_c_guard};
use pgrx::pg_sys::{self, QueryDesc};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What was decided for a query.
#[derive(Clone, Copy)]
pub struct Decided {
    /// How it is measured; `None` if it is not.
    setting: Option<InstrumentationPlan>,
    /// What others had requested from core.
    requested_by_others: i32,
    /// What is added to that.
    added_by_us: i32,
    /// Whether no other statement runs it.
    toplevel: bool,
    /// Whether a client sent it.
    is_sent: bool,
}

/// Decides how a query is measured that is about to start, and requests from core what that needs.
#[inline(always)]
pub fn decide(call: &Call) -> Decided {
    let toplevel = call.is_toplevel();
    let is_sent = toplevel && server::portal_or_background();
    let setting = setting(call, is_sent);
    // SAFETY: the query is valid, as `Call` promises.
    let options = unsafe { &mut (*call.query).instrument_options };
    let requested_by_others = *options & !statement::INSTRUMENT_ROWSOURCE;
    // If others have core measure, the extension adds its bits to theirs. Otherwise core need not allocate
    // its instrumentation, because the extension has its own.
    let added_by_us = match setting {
        Some(_) if requested_by_others != 0 => statement::INSTRUMENT_ROWSOURCE | statement::INSTRUMENT_ROWS,
        _ => 0,
    };
    *options |= added_by_us;
    Decided {
        setting,
        requested_by_others,
        added_by_us,
        toplevel,
        is_sent,
    }
}

/// Returns how to measure a query, or `None` if it is not measured. `is_sent` says that a client sent it.
#[inline(always)]
fn setting(call: &Call, is_sent: bool) -> Option<InstrumentationPlan> {
    if call.only_explains() {
        return None;
    }
    let query = call.query();
    if server::is_parallel_worker() {
        let asked = query.instrument_options & statement::INSTRUMENT_ROWSOURCE != 0;
        return (asked && nesting::depth() == 0).then(InstrumentationPlan::as_leader);
    }
    let is_nested_wanted = || guc::track_all() || call.is_traced && traced::is_written(query);
    if !is_sent && (!is_nested_wanted() || own::script_runs(call.frames) || trace::is_of(query.sourceText)) {
        return None;
    }
    if call.is_traced {
        return InstrumentationPlan::from_settings(|| traced::is_written(query) || hinted::is_hinted(query));
    }
    InstrumentationPlan::from_settings(|| hinted::is_hinted(query))
}

/// Sets up a started query as it was decided. If that fails, the query runs unmeasured.
///
/// # Safety
/// The query must be started, and the caller must hold no lightweight lock.
#[inline(always)]
pub unsafe fn set_up(call: &Call, decided: Decided) -> Started {
    let Decided {
        setting: Some(setting),
        requested_by_others,
        added_by_us,
        toplevel,
        is_sent,
    } = decided
    else {
        return Started::Unmeasured;
    };
    let query = call.query;
    // SAFETY: the query is started by the caller's promise. The context is a global of a plain type.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        let held = server::HeldInterrupts::now();
        let attached = catch_unwind(AssertUnwindSafe(move || {
            call.query().started().is_some_and(|query| {
                statement::attach(
                    query,
                    &setting,
                    requested_by_others,
                    added_by_us,
                    toplevel,
                    is_sent,
                )
            })
        }));
        match attached {
            Ok(true) => return Started::Measured,
            Ok(false) => withdraw_request((*query).estate),
            Err(error) => {
                pg_sys::CurrentMemoryContext = memory;
                not_attached(query, error, &held);
            }
        }
        Started::NotAttached
    }
}

/// Withdraws the request that parallel workers measure: nothing would read their reports.
///
/// # Safety
/// `estate` must be null or live.
#[cold]
unsafe fn withdraw_request(estate: *mut pg_sys::EState) {
    // SAFETY: it is null or live by the caller's promise, and nobody holds a reference to it.
    if let Some(estate) = unsafe { estate.as_mut() } {
        estate.es_instrument &= !statement::INSTRUMENT_ROWSOURCE;
    }
}

/// Handles a statement that could not be set up. It runs unmeasured. A cancel or shutdown request that
/// arrived meanwhile is raised again, and so is an error after which the transaction cannot go on.
///
/// # Safety
/// * `query` must be started.
/// * The caller's frame must be plain, because an error may cross it. The caller must hold no lightweight
///   lock.
#[cold]
unsafe fn not_attached(query: *mut QueryDesc, error: Box<dyn Any + Send>, held: &server::HeldInterrupts) {
    let must_be_raised = error.downcast_ref::<CaughtError>().is_some_and(is_request);
    // SAFETY: the caller's frame is plain. The panic has a copy of the error. PostgreSQL's own record of it
    // must be removed unless it is raised again. The caller holds no lightweight lock, so all locks that are
    // still held belong to the failed set-up.
    unsafe {
        let error = match Raised::of(error) {
            Ok(raised) => return pgrx_extern_c_guard::<_, ()>(|| raised.raise()),
            Err(error) if must_be_raised => return pgrx_extern_c_guard::<_, ()>(|| resume_unwind(error)),
            Err(error) => error,
        };
        pg_sys::FlushErrorState();
        pg_sys::LWLockReleaseAll();
        held.restore();
        server::note_panic(&*error);
        withdraw_request((*query).estate);
        server::note_error("measure a statement", &*error);
    }
}
