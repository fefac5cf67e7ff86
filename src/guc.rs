//! The settings, as the rest of the extension reads them.

use crate::pg::backend_local::BackendLocal;
use crate::pg::guc::{self as hooks, value};
use crate::pg::{compat, server};
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use rowsource_core::clock::{self, Source};
use std::cell::Cell;
use std::ops::RangeInclusive;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum StatisticsLevel {
    #[name = c"basic"]
    Basic,
    #[name = c"typical"]
    Typical,
    #[name = c"all"]
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum ClockSource {
    #[name = c"auto"]
    Auto,
    #[name = c"tsc"]
    Tsc,
    #[name = c"system"]
    System,
    #[name = c"coarse"]
    Coarse,
    #[name = c"syscall"]
    Syscall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Track {
    #[name = c"top"]
    Top,
    #[name = c"all"]
    All,
}

impl ClockSource {
    pub fn from_number(number: i32) -> Self {
        use pgrx::guc::GucEnum;
        Self::from_ordinal(number)
    }

    /// The clock chosen; `None` for `auto`.
    pub fn source(self) -> Option<Source> {
        match self {
            ClockSource::Auto => None,
            ClockSource::Tsc => Some(Source::Tsc),
            ClockSource::System => Some(Source::System),
            ClockSource::Coarse => Some(Source::Coarse),
            ClockSource::Syscall => Some(Source::Syscall),
        }
    }

    pub fn name(self) -> &'static str {
        self.source().map_or("auto", Source::name)
    }
}

static STATISTICS_LEVEL: GucSetting<StatisticsLevel> =
    GucSetting::<StatisticsLevel>::new(StatisticsLevel::Typical);
static SAMPFREQ: GucSetting<i32> = GucSetting::<i32>::new(128);
static CLOCK_SOURCE: GucSetting<ClockSource> = GucSetting::<ClockSource>::new(ClockSource::Auto);
static TRACK: GucSetting<Track> = GucSetting::<Track>::new(Track::Top);
static EXPLAIN: GucSetting<bool> = GucSetting::<bool>::new(false);
static MAX_PLANS: GucSetting<i32> = GucSetting::<i32>::new(5000);
/// Kilobytes.
static MAX_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(48 * 1024);
static SAVE: GucSetting<bool> = GucSetting::<bool>::new(true);
static TEMPFILE_TIMING: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Minutes; read by rowsource_snapshot(), in SQL.
static SNAPSHOT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(8 * 24 * 60);

/// `sampfreq` 3 counts rows only, as in Oracle.
const ROWS_ONLY: i32 = 3;

/// The values of `sampfreq`.
pub const SAMPFREQS: RangeInclusive<i32> = 0..=1_000_000;

/// How much of a statement is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Rows,
    Buffers,
    Timed,
}

/// How a statement is measured: decided once, when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    pub detail: Detail,
    pub sampfreq: i32,
    pub clock: Source,
    /// Core's EXPLAIN and auto_explain take their times from the sampler.
    pub explain: bool,
}

/// The level's answer for a statement; `hinted` is asked only where it matters.
pub fn measuring(hinted: impl FnOnce() -> bool) -> Option<Measuring> {
    let sampfreq = match value(&STATISTICS_LEVEL) {
        StatisticsLevel::Basic if hinted() => value(&SAMPFREQ),
        StatisticsLevel::Basic => return None,
        StatisticsLevel::Typical => value(&SAMPFREQ),
        StatisticsLevel::All if hooks::sampfreq_explicit() => value(&SAMPFREQ),
        StatisticsLevel::All => 1,
    };
    Some(with_sampfreq(sampfreq))
}

/// What a parallel worker does when its leader measures: the same.
pub fn measuring_as_leader() -> Measuring {
    measuring(|| true).unwrap_or_else(|| with_sampfreq(value(&SAMPFREQ)))
}

/// Measuring at this frequency.
pub fn with_sampfreq(sampfreq: i32) -> Measuring {
    Measuring {
        detail: detail(sampfreq),
        sampfreq,
        clock: value(&CLOCK_SOURCE).source().unwrap_or_else(auto),
        explain: value(&EXPLAIN),
    }
}

fn detail(sampfreq: i32) -> Detail {
    match sampfreq {
        0 => Detail::Buffers,
        ROWS_ONLY => Detail::Rows,
        _ => Detail::Timed,
    }
}

/// Whether calls are timed at this frequency.
pub fn is_timed(sampfreq: i32) -> bool {
    detail(sampfreq) == Detail::Timed
}

/// The clock that `auto` stands for: the system's where the server's own setting says so (`timing_clock_source`).
pub fn auto() -> Source {
    /// It does not change.
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

/// Whether statements inside functions, triggers and procedures are measured too.
pub fn track_all() -> bool {
    value(&TRACK) == Track::All
}

/// Plans kept at most.
pub fn max_plans() -> usize {
    usize::try_from(value(&MAX_PLANS)).unwrap_or(1)
}

/// Returns the bytes of shared memory that plans may take.
pub fn max_memory() -> usize {
    usize::try_from(value(&MAX_MEMORY)).unwrap_or(0) * 1024
}

/// Whether requests to temporary files are counted and timed. Asked at every request to any file, so without a guard.
#[inline(always)]
pub fn tempfile_timing() -> bool {
    value(&TEMPFILE_TIMING)
}

/// Whether the statistics survive a clean restart.
pub fn save() -> bool {
    value(&SAVE)
}

pub fn init() {
    GucRegistry::define_enum_guc(
        c"pg_rowsource.statistics_level",
        c"Selects which statements are measured.",
        c"basic: only hinted or traced ones. typical: all, at pg_rowsource.sampfreq. all: all, every call timed, unless pg_rowsource.sampfreq was set explicitly.",
        &STATISTICS_LEVEL,
        GucContext::Userset,
        GucFlags::default(),
    );
    // SAFETY (of the hooks, which live in pg/): they are guarded and keep to the hook contract.
    crate::pg::define_hooked_settings(&SAMPFREQ, &CLOCK_SOURCE);
    GucRegistry::define_enum_guc(
        c"pg_rowsource.track",
        c"Selects whether statements inside functions, triggers and procedures are measured.",
        c"top: only statements that clients send. all: nested ones too.",
        &TRACK,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.explain",
        c"Lets EXPLAIN (ANALYZE) and auto_explain take node times from the sampler.",
        c"Off: they time every call themselves, and pg_rowsource shows their figures.",
        &EXPLAIN,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.max_plans",
        c"Sets the number of plans whose statistics are kept.",
        c"The least recently used ones make room for new ones.",
        &MAX_PLANS,
        100,
        1_000_000,
        // A setting of this kind can only be made while the postmaster starts; later it is shown, not set.
        if server::preloading() {
            GucContext::Postmaster
        } else {
            GucContext::Internal
        },
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.max_memory",
        c"Sets the shared memory that the statistics of plans may take.",
        c"The least recently used plans make room for new ones.",
        &MAX_MEMORY,
        2 * 1024,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.save",
        c"Keeps the statistics across a clean restart.",
        c"Needs pg_rowsource in shared_preload_libraries.",
        &SAVE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.tempfile_timing",
        c"Counts and times each request to temporary files.",
        c"Needs pg_rowsource in shared_preload_libraries. Off: pg_stat_tempfile_io stands still.",
        &TEMPFILE_TIMING,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.snapshot_retention",
        c"Sets how long snapshots of the statistics are kept.",
        c"rowsource_snapshot() deletes older ones. 0 keeps all.",
        &SNAPSHOT_RETENTION,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MIN,
    );
}
