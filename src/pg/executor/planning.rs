//! Times the planner. A statement's next execution takes what was planned for it since the last one, and records it with its
//! plan. What is planned and never executed is dropped.

use super::nesting;
use crate::guc::{self, StatisticsLevel};
use crate::instrumentation::auto_clock;
use crate::pg::compat;
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use pgrx::pg_sys;
use rowsource_core::clock::Source;
use rowsource_core::model::Planning;
use std::cell::Cell;

static PREV_PLANNER: BackendLocal<Cell<pg_sys::planner_hook_type>> = BackendLocal::new(Cell::new(None));

/// What the planner did for a statement. Times are ticks of the clock.
#[derive(Clone, Copy)]
struct Planned {
    /// 0 if the place is free.
    queryid: i64,
    plans: u64,
    total: u64,
    min: u64,
    max: u64,
}

const FREE: Planned = Planned {
    queryid: 0,
    plans: 0,
    total: 0,
    min: u64::MAX,
    max: 0,
};

/// The statements that were planned and not executed yet. Most are executed at once, so there are few.
static PLANNED: BackendLocal<[Cell<Planned>; 8]> = BackendLocal::new([const { Cell::new(FREE) }; 8]);
/// Whether one of them is in use.
static ANY: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// The place that the next statement takes if all are in use.
static NEXT: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));
/// The clock, and the milliseconds of its tick.
static CLOCK: BackendLocal<Cell<Option<(Source, f64)>>> = BackendLocal::new(Cell::new(None));

/// Sets the hook.
pub fn init() {
    // SAFETY: _PG_init runs once, before the hook can be called.
    unsafe {
        PREV_PLANNER.set(pg_sys::planner_hook);
        pg_sys::planner_hook = Some(planner_hook);
    }
}

compat::planner::planner_hook!(planner_hook, plan, PREV_PLANNER);

/// Plans a statement with `planner`, and times that if the statement would be measured.
///
/// # Safety
/// * `query` must point to a live query.
/// * The frames of the caller and of `planner` must be plain, because an error crosses them.
#[inline(always)]
unsafe fn plan(
    query: *const pg_sys::Query,
    planner: impl FnOnce() -> *mut pg_sys::PlannedStmt,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the query is live by the caller's promise. The planner frees or changes it, so its identifier is read before.
    let queryid = compat::parsed_query_id(unsafe { &*query });
    if queryid == 0 || !is_timed() {
        return planner();
    }
    let clock = match CLOCK.get() {
        Some((clock, _)) => clock,
        None => choose_clock(),
    };
    let start = clock.read();
    let planned = planner();
    note(queryid, clock.read().saturating_sub(start));
    planned
}

/// Chooses the clock at the first planning of the process.
#[cold]
fn choose_clock() -> Source {
    let clock = auto_clock();
    CLOCK.set(Some((clock, clock.scale().ns_per_tick() / 1e6)));
    clock
}

/// Returns whether the planning of statements at this nesting level is timed.
#[inline(always)]
fn is_timed() -> bool {
    guc::statistics_level() != StatisticsLevel::Basic
        && (nesting::depth() == 0 || guc::track_all())
        && !server::is_parallel_worker()
}

/// Adds a planning to those of its statement.
#[inline(always)]
fn note(queryid: i64, ticks: u64) {
    let place = place(queryid);
    let before = place.get();
    place.set(Planned {
        queryid,
        plans: before.plans + 1,
        total: before.total.wrapping_add(ticks),
        min: before.min.min(ticks),
        max: before.max.max(ticks),
    });
    ANY.set(true);
}

/// Returns the place of a statement: its own, a free one, or that of another statement, which is dropped.
#[inline(always)]
fn place(queryid: i64) -> &'static Cell<Planned> {
    let first = &PLANNED.inner()[0];
    if !ANY.get() || first.get().queryid == queryid {
        return first;
    }
    other_place(queryid)
}

#[inline(never)]
fn other_place(queryid: i64) -> &'static Cell<Planned> {
    let places = PLANNED.inner();
    let with = |wanted: i64| places.iter().find(|place| place.get().queryid == wanted);
    with(queryid).or_else(|| with(0)).unwrap_or_else(|| {
        let place = &places[NEXT.get() % places.len()];
        NEXT.set(NEXT.get().wrapping_add(1));
        place.set(FREE);
        place
    })
}

/// Returns what was planned for a statement since this was last called for it.
#[inline(always)]
pub fn take(queryid: i64) -> Planning {
    if !ANY.get() {
        return Planning::default();
    }
    take_planned(queryid)
}

#[inline(never)]
fn take_planned(queryid: i64) -> Planning {
    let places = PLANNED.inner();
    let Some(place) = places.iter().find(|place| place.get().queryid == queryid) else {
        return Planning::default();
    };
    let planned = place.replace(FREE);
    ANY.set(places.iter().any(|place| place.get().queryid != 0));
    let ms_per_tick = CLOCK.get().map_or(0.0, |(_, ms_per_tick)| ms_per_tick);
    Planning {
        plans: planned.plans,
        total_ms: planned.total as i64 as f64 * ms_per_tick,
        min_ms: planned.min as i64 as f64 * ms_per_tick,
        max_ms: planned.max as i64 as f64 * ms_per_tick,
    }
}
