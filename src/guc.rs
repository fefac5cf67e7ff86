//! All settings: their names, their meanings, and the functions that return their values.
//!
//! To add a setting, add a static, a function that returns its value, and a call in [`init`].

mod kept;
mod snapshots;

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use crate::pg::server::setting::{self, About, Origin, Refusal, Word, Words, value};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PgLogLevel, PgSqlErrorCode, PostgresGucEnum};
use rowsource_core::clock::Source;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::ops::RangeInclusive;

pub use kept::{executions_size, keep_parameters};
pub use snapshots::{
    history_exclude, history_origin, log_regressions, snapshot_database, snapshot_interval_us,
    snapshot_max_mb,
};

/// Which statements are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum StatisticsLevel {
    #[name = c"basic"]
    Basic,
    #[name = c"typical"]
    Typical,
    #[name = c"all"]
    All,
}

/// Whether nested statements are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
enum Track {
    #[name = c"top"]
    Top,
    #[name = c"all"]
    All,
    #[name = c"nested"]
    Nested,
}

/// The clock that calls are timed with; `None` is `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockChoice(Option<Source>);

impl Words for ClockChoice {
    const WORDS: &'static [&'static CStr] = &{
        let mut words = [c"auto"; Source::ALL.len() + 1];
        let mut place = 0;
        while place < Source::ALL.len() {
            words[place + 1] = Source::ALL[place].c_name();
            place += 1;
        }
        words
    };

    fn from_place(place: usize) -> Self {
        ClockChoice(
            place
                .checked_sub(1)
                .and_then(|place| Source::ALL.get(place).copied()),
        )
    }

    fn place(self) -> usize {
        Source::ALL
            .iter()
            .position(|&source| Some(source) == self.0)
            .map_or(0, |place| place + 1)
    }
}

/// What the session's SQL trace contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Trace {
    #[name = c"off"]
    Off,
    #[name = c"statements"]
    Statements,
    #[name = c"on"]
    Waits,
    #[name = c"binds"]
    Binds,
    #[name = c"all"]
    All,
}

impl Trace {
    /// Returns whether each wait is listed.
    pub fn lists_waits(self) -> bool {
        matches!(self, Trace::Waits | Trace::All)
    }

    /// Returns whether the values of parameters are listed.
    pub fn lists_binds(self) -> bool {
        matches!(self, Trace::Binds | Trace::All)
    }

    /// Returns the word for these.
    pub fn word(waits: bool, binds: bool) -> &'static CStr {
        match (waits, binds) {
            (false, false) => c"statements",
            (true, false) => c"on",
            (false, true) => c"binds",
            (true, true) => c"all",
        }
    }
}

/// Read through [`crate::pg::server::switch`].
static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
/// What is called when the server's or the session's switch is assigned.
static ENABLED_SET: BackendLocal<Cell<EnabledSet>> = BackendLocal::new(Cell::new(None));
type EnabledSet = Option<fn(bool)>;
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static STATISTICS_LEVEL: GucSetting<StatisticsLevel> =
    GucSetting::<StatisticsLevel>::new(StatisticsLevel::Typical);
/// What [`statistics_level`] returns: the setting, or `basic` if the session's breaker has tripped.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static LEVEL: BackendLocal<Cell<StatisticsLevel>> = BackendLocal::new(Cell::new(StatisticsLevel::Typical));
static IS_STOPPED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// The unit is a percent of the executor's time.
static MAX_OVERHEAD: GucSetting<i32> = GucSetting::<i32>::new(10);
/// What is called when that setting is assigned.
static MAX_OVERHEAD_SET: BackendLocal<Cell<MaxOverheadSet>> = BackendLocal::new(Cell::new(None));
type MaxOverheadSet = Option<fn(i32)>;
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static SAMPFREQ: GucSetting<i32> = GucSetting::<i32>::new(128);
/// Whether `sampfreq` was set: in the configuration file, for a database or role, or in the session.
static SAMPFREQ_EXPLICIT: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static CLOCK_SOURCE: GucSetting<Word<ClockChoice>> =
    GucSetting::<Word<ClockChoice>>::new(Word(ClockChoice(None)));
static TRACK: GucSetting<Track> = GucSetting::<Track>::new(Track::Top);
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static EXPLAIN: GucSetting<bool> = GucSetting::<bool>::new(false);
static MAX_PLANS: GucSetting<i32> = GucSetting::<i32>::new(5000);
/// The unit is a kilobyte.
static MAX_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(60 * 1024);
static SAVE: GucSetting<bool> = GucSetting::<bool>::new(true);
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static TEMPFILE_TIMING: GucSetting<bool> = GucSetting::<bool>::new(true);
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static WAIT_TIMING: GucSetting<bool> = GucSetting::<bool>::new(true);
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static KEEP_CONSTANTS: GucSetting<bool> = GucSetting::<bool>::new(false);
static EXPLAIN_CALLBACKS: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c"postgres_fdw"));
static HISTORY_FREQUENCY: GucSetting<i32> = GucSetting::<i32>::new(100);
/// The unit is a kilobyte.
static HISTORY_SIZE: GucSetting<i32> = GucSetting::<i32>::new(16 * 1024);
static TRACE: GucSetting<Trace> = GucSetting::<Trace>::new(Trace::Off);
/// What is called when the setting of the trace changes.
static TRACE_SET: BackendLocal<Cell<TraceSet>> = BackendLocal::new(Cell::new(None));
type TraceSet = Option<fn(Trace)>;
const TRACE_NAME: &CStr = c"pg_rowsource.trace";
/// The unit is a kilobyte.
static TRACE_MAX_FILE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(100 * 1024);
/// The unit is a kilobyte.
static TRACE_MAX_TOTAL_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
/// The handle of the memory that a leader shares with its workers, as signed bits; 0 if there is none.
static WORKER_CHANNEL: GucSetting<i32> = GucSetting::<i32>::new(0);
const WORKER_CHANNEL_NAME: &CStr = c"pg_rowsource.worker_channel";

/// The allowed values of `sampfreq`.
pub const SAMPFREQS: RangeInclusive<i32> = 0..=1_000_000;
/// The value of `sampfreq` that counts rows only, as in Oracle.
pub const ROWS_ONLY: i32 = 3;

/// Defines all settings. `enabled_set` is called when the switch is assigned, `max_overhead_set` when the
/// limit of the breaker is, and `trace_set` when the session's trace is set, also when a rollback undoes the
/// setting. Only `_PG_init` may call this, and only once.
pub fn init(enabled_set: fn(bool), max_overhead_set: fn(i32), trace_set: fn(Trace)) {
    ENABLED_SET.set(Some(enabled_set));
    setting::define_assigned_bool(
        &ENABLED,
        About {
            name: c"pg_rowsource.enabled",
            summary: c"Turns pg_rowsource on or off in all sessions. Set it with ALTER SYSTEM.",
            details: c"When off, nothing is measured, counted, sampled or written within a second, also in sessions that run a statement. What was recorded stays.",
            context: GucContext::Sighup,
            flags: GucFlags::default(),
        },
        |is_on| {
            if let Some(set) = ENABLED_SET.get() {
                set(is_on);
            }
        },
    );
    setting::define_assigned_enum(
        &STATISTICS_LEVEL,
        About {
            name: c"pg_rowsource.statistics_level",
            summary: c"Selects which statements are measured.",
            details: c"basic: only statements with a hint or a trace. typical: all statements, at pg_rowsource.sampfreq. all: all statements, with every call timed unless pg_rowsource.sampfreq was set explicitly.",
            context: GucContext::Userset,
            flags: GucFlags::default(),
        },
        |_, _| Ok(()),
        |level, _| set_level(level),
    );
    MAX_OVERHEAD_SET.set(Some(max_overhead_set));
    setting::define_assigned_int(
        &MAX_OVERHEAD,
        About {
            name: c"pg_rowsource.max_overhead",
            summary: c"Sets which part of the executor's time measuring may take in a session, in percent.",
            details: c"A session in which it takes more for a minute measures as with statistics_level basic from then on. 100 is no limit.",
            context: GucContext::Userset,
            flags: GucFlags::default(),
        },
        1..=100,
        |_, _| Ok(()),
        |percent, _| {
            if let Some(set) = MAX_OVERHEAD_SET.get() {
                set(percent);
            }
        },
    );
    setting::define_assigned_int(
        &SAMPFREQ,
        About {
            name: c"pg_rowsource.sampfreq",
            summary: c"Sets how often calls of plan nodes are timed: one call in this many, on average.",
            details: c"0: no timing; rows, starts and buffers only. 1: every call. 3: row counts only, as in Oracle; no starts, no buffers, no time.",
            context: GucContext::Userset,
            // EXPLAIN (SETTINGS) shows it, because EXPLAIN's times depend on it.
            flags: GucFlags::EXPLAIN,
        },
        SAMPFREQS,
        check_sampfreq,
        |_, origin| SAMPFREQ_EXPLICIT.set(origin.is_explicit()),
    );
    setting::define_checked_enum(
        &CLOCK_SOURCE,
        About {
            name: c"pg_rowsource.clock_source",
            summary: c"Selects the clock that calls are timed with.",
            details: c"auto: tsc if the CPU's counter is invariant and the kernel trusts it, else system. See rowsource_clocks().",
            context: GucContext::Userset,
            flags: GucFlags::default(),
        },
        check_clock_source,
    );
    GucRegistry::define_enum_guc(
        c"pg_rowsource.track",
        c"Selects whether statements inside functions, triggers and procedures are measured.",
        c"top: only statements that clients send. nested, or 'all': nested ones too.",
        &TRACK,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.explain",
        c"Makes EXPLAIN (ANALYZE) and auto_explain take node times from the sampler.",
        c"When off, they time every call themselves, and pg_rowsource shows their times. When on, EXPLAIN shows no times if sampfreq is 0 or 3.",
        &EXPLAIN,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.max_plans",
        c"Sets the number of plans whose statistics are kept.",
        c"New plans replace those that cost least.",
        &MAX_PLANS,
        100,
        1_000_000,
        // After the server has started, PostgreSQL allows no new setting of the context `Postmaster`. The
        // setting is read-only then.
        if server::preloading() {
            GucContext::Postmaster
        } else {
            GucContext::Internal
        },
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.max_memory",
        c"Sets the shared memory that the statistics of plans may take. Set it with ALTER SYSTEM.",
        c"New plans replace those that cost least.",
        &MAX_MEMORY,
        2 * 1024,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.save",
        c"Keeps the statistics across a clean restart. Set it with ALTER SYSTEM.",
        c"Needs pg_rowsource in shared_preload_libraries.",
        &SAVE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.tempfile_timing",
        c"Counts and times each request to temporary files.",
        c"Needs pg_rowsource in shared_preload_libraries. When off, pg_stat_rowsource_tempfile_io is not updated.",
        &TEMPFILE_TIMING,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.wait_timing",
        c"Counts and times each wait.",
        c"When off, the waits of the session are not added to pg_stat_rowsource_system_waits and pg_stat_rowsource_session_waits.",
        &WAIT_TIMING,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_rowsource.keep_constants",
        c"Keeps the constants in the texts of statements and in the conditions of plans.",
        c"When off, a symbol like $1 replaces each constant, as in pg_stat_statements.",
        &KEEP_CONSTANTS,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"pg_rowsource.explain_callbacks",
        c"Lists the libraries whose functions for EXPLAIN may be called when a plan is described.",
        c"The functions of other libraries run only if a user asks for EXPLAIN. They may do anything, and descriptions are made inside of users' statements.",
        &EXPLAIN_CALLBACKS,
        GucContext::Suset,
        GucFlags::default(),
    );
    kept::define();
    snapshots::define();
    GucRegistry::define_int_guc(
        c"pg_rowsource.history_frequency",
        c"Sets how many times a second the running sessions are sampled for rowsource_ash. Set it with ALTER SYSTEM.",
        c"0 samples none.",
        &HISTORY_FREQUENCY,
        0,
        1000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.history_size",
        c"Sets the shared memory for the samples of rowsource_ash.",
        c"A sample takes 64 bytes. Of older ones fewer are kept.",
        &HISTORY_SIZE,
        128,
        1024 * 1024,
        // The memory is part of the server's main shared memory. A library that is loaded later takes it when
        // sampling starts.
        if server::preloading() {
            GucContext::Postmaster
        } else {
            GucContext::Sighup
        },
        GucFlags::UNIT_KB,
    );
    TRACE_SET.set(Some(trace_set));
    setting::define_assigned_enum(
        &TRACE,
        About {
            name: TRACE_NAME,
            summary: c"Writes the SQL trace of the session to a file in pgsql_tmp_rowsource_trace in the data directory.",
            details: c"off: no trace. statements: statements and their plans. on: also each wait. binds: statements and the values of their parameters. all: everything.",
            context: GucContext::Suset,
            flags: GucFlags::default(),
        },
        |_, _| Ok(()),
        |trace, _| {
            if let Some(set) = TRACE_SET.get() {
                set(trace);
            }
        },
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.trace_max_file_size",
        c"Sets the maximum size of a trace file.",
        c"Then another file continues it. Each session keeps its last two files.",
        &TRACE_MAX_FILE_SIZE,
        64,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"pg_rowsource.trace_max_total_size",
        c"Sets the maximum size of all trace files. Set it with ALTER SYSTEM.",
        c"The oldest files of sessions that have ended are deleted. If that does not suffice, tracing stops. There are at most 1000 files of sessions that have ended.",
        &TRACE_MAX_TOTAL_SIZE,
        64,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    setting::define_checked_int(
        &WORKER_CHANNEL,
        About {
            name: WORKER_CHANNEL_NAME,
            summary: c"Internal: how parallel workers find their leader's memory.",
            details: c"",
            context: GucContext::Userset,
            flags: GucFlags::NO_SHOW_ALL | GucFlags::DISALLOW_IN_FILE | GucFlags::NO_RESET_ALL,
        },
        i32::MIN..=i32::MAX,
        check_worker_channel,
    );
    setting::reserve_prefix(c"pg_rowsource");
}

/// Whether this session has shown the notice about the value 3.
static ROWS_ONLY_NOTICED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Accepts all values. Shows a notice when a session sets 3 for the first time: this value does not time one
/// call in three, but counts only rows. Parallel workers take over their leader's settings, and show none.
fn check_sampfreq(sampfreq: i32, origin: Origin) -> Result<(), Refusal> {
    let is_set_here = origin.is_session() && !server::is_parallel_worker();
    if sampfreq == ROWS_ONLY && is_set_here && !ROWS_ONLY_NOTICED.replace(true) {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            "pg_rowsource.sampfreq 3 counts rows only: no starts, no buffers, no time",
            "pg_rowsource",
        )
        .set_detail(
            "This is Oracle's special value. Use 2 or 4 to time calls, or 0 for starts and buffers without time.",
        )
        .report(PgLogLevel::NOTICE);
    }
    Ok(())
}

/// Refuses a clock that cannot be used on this machine, with the reason.
fn check_clock_source(chosen: Word<ClockChoice>, _: Origin) -> Result<(), Refusal> {
    let Word(ClockChoice(Some(source))) = chosen else {
        return Ok(());
    };
    source.usable().map_err(|reason| {
        let usable = Source::ALL.into_iter().filter(|source| source.usable().is_ok());
        let names = usable.map(Source::name).collect::<Vec<_>>().join(", ");
        Refusal {
            message: format!(
                "clock source \"{}\" cannot be used on this machine",
                source.name()
            ),
            detail_and_hint: Some((reason.to_string(), format!("Use \"auto\" or one of: {names}."))),
        }
    })
}

/// Refuses all values except the default and those that [`announce_worker_channel`] sets. PostgreSQL passes a
/// leader's settings to its parallel workers, with their origins.
fn check_worker_channel(channel: i32, origin: Origin) -> Result<(), Refusal> {
    if channel == 0 && origin.is_default() || origin.is_override() {
        return Ok(());
    }
    Err(Refusal {
        message: "pg_rowsource.worker_channel is set by pg_rowsource itself".to_owned(),
        detail_and_hint: None,
    })
}

/// Returns which statements are measured.
pub fn statistics_level() -> StatisticsLevel {
    LEVEL.get()
}

fn set_level(level: StatisticsLevel) {
    LEVEL.set(match IS_STOPPED.get() {
        true => StatisticsLevel::Basic,
        false => level,
    });
}

/// Makes the statistics level of the session `basic` as long as the breaker has tripped, whatever the setting
/// says.
pub fn set_stopped(is_stopped: bool) {
    IS_STOPPED.set(is_stopped);
    set_level(value(&STATISTICS_LEVEL));
}

/// Returns which part of the executor's time measuring may take, in percent.
pub fn max_overhead() -> i32 {
    value(&MAX_OVERHEAD)
}

/// Returns the sampling frequency: on average, one call in this many is timed.
pub fn sampfreq() -> i32 {
    value(&SAMPFREQ)
}

/// Returns whether `sampfreq` was set explicitly.
pub fn is_sampfreq_explicit() -> bool {
    SAMPFREQ_EXPLICIT.get()
}

/// Returns the clock that calls are timed with; `None` is `auto`.
pub fn clock_source() -> Option<Source> {
    value(&CLOCK_SOURCE).0.0
}

/// Returns whether EXPLAIN takes its times from the sampler.
pub fn explain() -> bool {
    value(&EXPLAIN)
}

/// Returns whether statements inside functions, triggers and procedures are measured too.
pub fn track_all() -> bool {
    value(&TRACK) != Track::Top
}

/// Returns the maximum number of stored plans.
pub fn max_plans() -> usize {
    usize::try_from(value(&MAX_PLANS)).unwrap_or(1)
}

/// Returns the maximum number of bytes of shared memory for plans.
pub fn max_memory() -> usize {
    usize::try_from(value(&MAX_MEMORY)).unwrap_or(0) * 1024
}

/// Returns whether requests to temporary files are counted and timed. This runs for every request to any
/// file, so it makes no guarded call.
#[inline(always)]
pub fn tempfile_timing() -> bool {
    value(&TEMPFILE_TIMING)
}

/// Returns whether waits are counted and timed. This runs for every wait, so it makes no guarded call.
#[inline(always)]
pub fn wait_timing() -> bool {
    value(&WAIT_TIMING)
}

/// Returns whether texts and conditions are stored with their constants.
#[inline(always)]
pub fn keep_constants() -> bool {
    value(&KEEP_CONSTANTS)
}

/// Returns whether a description may call the functions for EXPLAIN of a library with this name.
pub fn is_explain_callback_allowed(library: &[u8]) -> bool {
    setting::list_has(&EXPLAIN_CALLBACKS, library)
}

/// Returns how many times a second the running sessions are sampled; `None` if they are not.
pub fn history_frequency() -> Option<u32> {
    let frequency = value(&HISTORY_FREQUENCY);
    (frequency > 0).then_some(frequency as u32)
}

/// Returns the bytes of shared memory for the samples.
pub fn history_size() -> usize {
    usize::try_from(value(&HISTORY_SIZE)).unwrap_or(0) * 1024
}

/// Returns whether the statistics survive a clean restart.
pub fn save() -> bool {
    value(&SAVE)
}

/// Begins or ends the session's trace, as SET does. The caller must have checked that the user may do that.
pub fn set_trace(word: &CStr) {
    setting::set_in_session(TRACE_NAME, word);
}

/// Returns the maximum number of bytes of a trace file.
pub fn trace_max_file_size() -> u64 {
    u64::try_from(value(&TRACE_MAX_FILE_SIZE)).unwrap_or(0) * 1024
}

/// Returns the maximum number of bytes of all trace files.
pub fn trace_max_total_size() -> u64 {
    u64::try_from(value(&TRACE_MAX_TOTAL_SIZE)).unwrap_or(0) * 1024
}

/// Sets the handle of the memory that parallel workers attach to when they start.
pub fn announce_worker_channel(handle: u32) {
    setting::override_int(WORKER_CHANNEL_NAME, &WORKER_CHANNEL, handle as i32);
}

/// Returns the handle of the memory that this process's leader shares; 0 if there is none.
pub fn worker_channel() -> u32 {
    value(&WORKER_CHANNEL) as u32
}
