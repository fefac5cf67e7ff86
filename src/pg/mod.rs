//! The adapter's border with PostgreSQL: the only folder that may say `unsafe`.
//!
//! * `hooks` decide what is measured and keep nesting; `statement` is the state of one running statement;
//! * `hot` is the hot path: the wrapper, the nodes, the tick, and the process-wide state that they touch, by way of
//!   `usage` and `timing`;
//! * `explain` is the option that EXPLAIN has from 18 on;
//! * `tree` walks plan states, `identity` and `describe` name plans, `node` and `node_table` hold what wrappers count;
//! * `results` collects that at the end and has the core crate compute the statistics;
//! * `protect` is PG_TRY for plain frames;
//! * `tempfile` counts and times requests to temporary files;
//! * `backend_local` is for state that needs no lock;
//! * `compat` holds every difference between PostgreSQL's major versions, `raw` the functions called unguarded.
//!
//! What every measured statement runs through lies side by side, in the section `.text.hot.rowsource`; what few do is
//! kept out of it (`inline(never)`). Where many sessions take turns on a processor, a short statement finds the caches
//! empty, and pays for each page and line of code more than for the instructions in it.

pub mod backend_local;
pub mod compat;
pub mod contained;
pub mod describe;
pub mod explain;
pub mod guc;
pub mod hooks;
pub mod hot;
pub mod identity;
pub mod memory;
pub mod node;
pub mod node_table;
pub mod parallel;
pub mod protect;
pub mod raw;
pub mod results;
pub mod server;
pub mod side_effects;
pub mod srf;
pub mod statement;
pub mod statfile;
pub mod store;
pub mod tempfile;
pub mod timing;
pub mod tree;
pub mod usage;
pub mod workarea;

use crate::guc::{ClockSource, SAMPFREQS};
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

/// Defines the settings whose values are checked by more than their range.
pub fn define_hooked_settings(
    sampfreq: &'static GucSetting<i32>,
    clock_source: &'static GucSetting<ClockSource>,
) {
    // SAFETY: the hooks are guarded, and PostgreSQL calls them with the arguments of their kind.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"pg_rowsource.sampfreq",
            c"Times one call of a plan node in this many, on average.",
            c"0: no timing. 1: every call. 3: row counts only, as in Oracle.",
            sampfreq,
            *SAMPFREQS.start(),
            *SAMPFREQS.end(),
            GucContext::Userset,
            GucFlags::default(),
            Some(guc::check_sampfreq),
            Some(guc::assign_sampfreq),
            None,
        );
        GucRegistry::define_enum_guc_with_hooks(
            c"pg_rowsource.clock_source",
            c"Selects the clock that calls are timed with.",
            c"auto: tsc where the CPU's is invariant and the kernel trusts it, else system. See rowsource_clocks().",
            clock_source,
            GucContext::Userset,
            GucFlags::default(),
            Some(guc::check_clock_source),
            None,
            None,
        );
        guc::define_channel();
    }
}

/// Unknown settings with our prefix are refused from here on.
pub fn reserve_prefix() {
    // SAFETY: a static C string, which PostgreSQL copies.
    unsafe { pgrx::pg_sys::MarkGUCPrefixReserved(c"pg_rowsource".as_ptr()) }
}
