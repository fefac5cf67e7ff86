//! Derives from the settings how a statement is measured.

use crate::guc::{self, ROWS_ONLY, StatisticsLevel};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use rowsource_core::clock::{self, Source};
use std::cell::Cell;

/// How much of a statement is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstrumentationLevel {
    /// Rows only.
    Rows,
    /// Rows, starts, buffers and WAL.
    Buffers,
    /// Rows, starts, buffers, WAL, and the time of sampled calls.
    Timed,
}

impl InstrumentationLevel {
    fn of(sampfreq: i32) -> Self {
        match sampfreq {
            0 => InstrumentationLevel::Buffers,
            ROWS_ONLY => InstrumentationLevel::Rows,
            _ => InstrumentationLevel::Timed,
        }
    }
}

/// How a statement is measured. This is decided once, when the statement starts.
#[derive(Clone, Copy, Debug)]
pub struct InstrumentationPlan {
    /// How much is measured.
    pub level: InstrumentationLevel,
    /// On average, one call in this many is timed.
    pub sampfreq: i32,
    /// The clock that times the calls.
    pub clock: Source,
    /// Core's EXPLAIN and auto_explain take their times from the sampler.
    pub explain: bool,
}

impl InstrumentationPlan {
    /// Returns the plan that the settings require. Returns `None` if the statement must not be measured.
    /// Calls `hinted` only if the result depends on it.
    pub fn from_settings(hinted: impl FnOnce() -> bool) -> Option<Self> {
        let sampfreq = match guc::statistics_level() {
            StatisticsLevel::Basic if hinted() => guc::sampfreq(),
            StatisticsLevel::Basic => return None,
            StatisticsLevel::Typical => guc::sampfreq(),
            StatisticsLevel::All if guc::is_sampfreq_explicit() => guc::sampfreq(),
            StatisticsLevel::All => 1,
        };
        Some(Self::with_sampfreq(sampfreq))
    }

    /// Returns the plan of a parallel worker whose leader measures. A worker has its leader's settings, so it
    /// is the leader's plan.
    pub fn as_leader() -> Self {
        Self::from_settings(|| true).unwrap_or_else(|| Self::with_sampfreq(guc::sampfreq()))
    }

    /// Returns the plan for a sampling frequency.
    pub fn with_sampfreq(sampfreq: i32) -> Self {
        InstrumentationPlan {
            level: InstrumentationLevel::of(sampfreq),
            sampfreq,
            clock: guc::clock_source().unwrap_or_else(auto_clock),
            explain: guc::explain(),
        }
    }
}

/// Returns whether calls are timed at this sampling frequency.
pub fn is_timed(sampfreq: i32) -> bool {
    InstrumentationLevel::of(sampfreq) == InstrumentationLevel::Timed
}

/// Returns the clock that `auto` means. It is the system's clock if the server's `timing_clock_source`
/// requires that.
pub fn auto_clock() -> Source {
    /// The result of `clock::auto`, which does not change.
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static AUTO: BackendLocal<Cell<Option<Source>>> = BackendLocal::new(Cell::new(None));
    if compat::system_clock_wanted() {
        return Source::System;
    }
    AUTO.get().unwrap_or_else(|| {
        let source = clock::auto();
        AUTO.set(Some(source));
        source
    })
}
