//! The option SAMPFREQ of EXPLAIN, from PostgreSQL 18 on, and from 19 on of
//! auto_explain.log_extension_options.
//!
//! EXPLAIN (ANALYZE, SAMPFREQ n) changes settings for this EXPLAIN only. They are changed on a GUC nest
//! level, which ends with the EXPLAIN. So its parallel workers get them too.

use super::listener::{Listen, Utility};
use super::nesting;
use crate::guc::SAMPFREQS;
use crate::instrumentation::{InstrumentationPlan, is_timed};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::server::SourceText;
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, setting};
use pgrx::guc::GucCheckError;
use pgrx::pg_sys::{self, DefElem, ExplainState, NodeTag};
use pgrx::{PgSqlErrorCode, ereport, pg_guard};
use rowsource_core::explain_text;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        if utility.tag == NodeTag::T_ExplainStmt {
            around(utility, || body(utility));
        } else {
            body(utility);
        }
    }
}

/// The EXPLAIN that is running.
static EXPLAINING: BackendLocal<Cell<Option<Explaining>>> = BackendLocal::new(Cell::new(None));

#[derive(Clone, Copy)]
struct Explaining {
    /// The nesting depth of the EXPLAIN itself. Runs at another depth belong to functions that it calls.
    depth: u32,
    sampfreq: Option<c_int>,
    /// Its own text, and its place there.
    source: *const c_char,
    location: c_int,
    length: c_int,
}

/// Returns whether the statement that is starting or ending now is run by an EXPLAIN, not by a function that
/// it calls.
pub fn is_running() -> bool {
    running().is_some()
}

fn running() -> Option<Explaining> {
    EXPLAINING
        .get()
        .filter(|explaining| explaining.depth == nesting::depth())
}

/// Returns the text of the statement inside the EXPLAIN that is running, and where it begins. Returns `None`
/// if none is running, or if its statement is not part of its own text: that of a prepared statement is
/// elsewhere.
pub fn text_inside(source: SourceText<'_>) -> Option<(&[u8], usize)> {
    let source = source.source();
    let explaining = running().filter(|explaining| explaining.source == source)?;
    // SAFETY: the string lives as long as that of the argument, and the EXPLAIN was made from it.
    let text = unsafe { SourceText::new(source, explaining.location, explaining.length) };
    let (text, start) = text.statement();
    let at = explain_text::statement_inside(text)?;
    Some((text.get(at..)?, start + at))
}

/// Runs the utility statement EXPLAIN. After an error the abort of the transaction restores the settings.
fn around(utility: &Utility, body: impl FnOnce()) {
    let plan = utility.plan();
    let outer = EXPLAINING.get();
    let level = setting::Level::open();
    EXPLAINING.set(Some(Explaining {
        depth: nesting::depth(),
        sampfreq: None,
        source: utility.source,
        location: plan.stmt_location,
        length: plan.stmt_len,
    }));
    pg_try(utility.frames, body, || EXPLAINING.set(outer), |_| {});
    level.close(true);
    EXPLAINING.set(outer);
}

/// Registers the option, if EXPLAIN can have options of extensions.
pub fn init() {
    // SAFETY: this runs once, from _PG_init, and the functions have the types that EXPLAIN calls.
    unsafe { compat::explain_option::register(c"sampfreq", apply, check, validate) }
}

/// Reads the option for EXPLAIN. auto_explain calls this too, but only after its statement has run.
///
/// # Safety
/// Only EXPLAIN may call this, with a live option.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function without a doc"
)]
#[pg_guard]
unsafe extern "C-unwind" fn apply(
    _state: *mut ExplainState,
    option: *mut DefElem,
    _parse: *mut pg_sys::ParseState,
) {
    // SAFETY: PostgreSQL passes a live option.
    unsafe {
        let Some(mut explaining) = EXPLAINING.get() else {
            return;
        };
        let sampfreq = pg_sys::defGetInt32(option);
        if !SAMPFREQS.contains(&sampfreq) {
            ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                format!(
                    "value {sampfreq} for EXPLAIN option \"sampfreq\" is outside the valid range ({} .. {})",
                    SAMPFREQS.start(),
                    SAMPFREQS.end()
                )
            );
        }
        explaining.sampfreq = Some(sampfreq);
        EXPLAINING.set(Some(explaining));
    }
}

/// Checks the option after EXPLAIN has read all its options, and changes the settings.
///
/// # Safety
/// `state` must be the live state of the running EXPLAIN.
unsafe fn validate(state: *mut ExplainState) {
    // SAFETY: `state` is live by the caller's promise, and EXPLAIN does not use it during this call.
    unsafe {
        let Some(sampfreq) = EXPLAINING.get().and_then(|explaining| explaining.sampfreq) else {
            return;
        };
        if !(*state).analyze {
            ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "EXPLAIN option \"sampfreq\" requires ANALYZE"
            );
        }
        // If nothing is timed, EXPLAIN must show no times instead of zeros.
        (*state).timing &= is_timed(sampfreq);
        let sampfreq = CString::new(sampfreq.to_string()).unwrap_or_default();
        setting::set_on_level(c"pg_rowsource.sampfreq", &sampfreq);
        setting::set_on_level(c"pg_rowsource.explain", c"on");
        setting::set_on_level(c"pg_rowsource.statistics_level", c"typical");
    }
}

/// Checks a value in auto_explain's setting.
///
/// # Safety
/// Only auto_explain may call this. `value` must be null or a C string.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function without a doc"
)]
#[pg_guard]
unsafe extern "C-unwind" fn check(_option: *const c_char, value: *const c_char, kind: NodeTag) -> bool {
    // SAFETY: PostgreSQL passes a C string or null.
    let value = unsafe { (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy()) };
    let is_valid = kind == NodeTag::T_Integer && value.is_some_and(|value| parse_sampfreq(&value).is_some());
    if !is_valid {
        // SAFETY: PostgreSQL calls this as a check hook, which may leave a message for its error.
        unsafe {
            GucCheckError::new("EXPLAIN option \"sampfreq\" needs an integer from 0 to 1000000").apply();
        }
    }
    is_valid
}

/// Parses a sampling frequency. Returns `None` if it is not valid.
fn parse_sampfreq(value: &str) -> Option<c_int> {
    value.parse().ok().filter(|sampfreq| SAMPFREQS.contains(sampfreq))
}

/// Returns how to measure a statement that core times for auto_explain. A frequency in auto_explain's setting
/// has priority.
#[inline(never)]
pub fn with_auto_explain(setting: &InstrumentationPlan) -> InstrumentationPlan {
    if is_running() || server::is_parallel_worker() {
        return *setting;
    }
    match compat::explain_option::of_auto_explain().and_then(|text| find_sampfreq(&text)) {
        Some(sampfreq) if is_timed(sampfreq) => InstrumentationPlan {
            explain: true,
            ..InstrumentationPlan::with_sampfreq(sampfreq)
        },
        _ => *setting,
    }
}

/// Returns the value of the option in a list like `debug, sampfreq 128`, which auto_explain has checked.
fn find_sampfreq(list: &str) -> Option<c_int> {
    list.split(',').find_map(|option| {
        let mut words = option
            .split(|c: char| c.is_whitespace() || c == '"' || c == '\'')
            .filter(|word| !word.is_empty());
        words
            .next()?
            .eq_ignore_ascii_case("sampfreq")
            .then(|| words.next().and_then(parse_sampfreq))?
    })
}
