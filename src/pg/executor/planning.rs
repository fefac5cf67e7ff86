//! Times the planner, and counts the blocks that it uses. A statement's next execution takes what was planned
//! for it since the last one, and records it with its plan. What is planned and never executed is dropped.

use super::listener::Listen;
use super::{inner_query, nesting, outermost_planner, parsed, response, statement, traced, unnamed};
use crate::guc::{self, StatisticsLevel};
use crate::instrumentation::auto_clock;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::handles::{NewPlan, ToPlan};
use crate::pg::hot::usage::Usage;
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, switch};
use crate::pg::sql_trace::level;
use pgrx::pg_sys;
use rowsource_core::clock::Source;
use rowsource_core::model::{Buffers, Planning};
use std::cell::Cell;

pub struct Listener;

impl Listen for Listener {
    fn init() {
        // SAFETY: _PG_init runs once, before the hook can be called.
        unsafe {
            PREV_PLANNER.set(pg_sys::planner_hook);
            pg_sys::planner_hook = Some(planner_hook);
        }
    }

    fn begins_while_off() {
        forget();
    }
}

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
    /// The last time.
    last: u64,
    /// Whether [`USED`] has blocks of it.
    has_used: bool,
    /// Whether the last planning used blocks.
    last_used: bool,
}

const FREE: Planned = Planned {
    queryid: 0,
    plans: 0,
    total: 0,
    min: u64::MAX,
    max: 0,
    last: 0,
    has_used: false,
    last_used: false,
};

/// Blocks that were used to plan a statement.
#[derive(Clone, Copy)]
struct Used {
    all: pg_sys::BufferUsage,
    /// Those of the last planning that used any.
    last: pg_sys::BufferUsage,
}

const NONE_USED: Used = Used {
    all: Usage::zero().buffers,
    last: Usage::zero().buffers,
};

/// The statements that were planned and not executed yet. Most are executed at once, so there are few.
static PLANNED: BackendLocal<[Cell<Planned>; 8]> = BackendLocal::new([const { Cell::new(FREE) }; 8]);
/// The blocks that were used to plan each of them.
static USED: BackendLocal<[Cell<Used>; 8]> = BackendLocal::new([const { Cell::new(NONE_USED) }; 8]);
/// Whether one of them is in use.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static ANY: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// The place that the next statement takes if all are in use.
static NEXT: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));
/// The clock, and the milliseconds of its tick.
static CLOCK: BackendLocal<Cell<Option<(Source, f64)>>> = BackendLocal::new(Cell::new(None));

compat::planner::planner_hook!(planner_hook, plan, PREV_PLANNER);

/// Plans a statement with `planner`, and times that if the statement would be measured.
#[inline(always)]
fn plan<'t>(query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    parsed::plans(query.source());
    if switch::passes_on() {
        return switch::pass_on(move || planner(query));
    }
    inner_query::plan(query, |query| {
        if level::is_on() {
            return traced::plan(query, |query| plan_named(query, planner));
        }
        plan_timed(query, planner)
    })
}

/// Does that for the SQL trace, which names each statement, also one that the settings do not measure.
fn plan_named<'t>(query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    if compat::parsed_query_id(&query.query()) == 0 {
        return unnamed::plan(query, |query, queryid| nested(query, queryid, planner));
    }
    plan_timed(query, planner)
}

/// Does that without a line in the SQL trace.
#[inline(always)]
fn plan_timed<'t>(query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    let queryid = compat::parsed_query_id(&query.query());
    if !is_timed() {
        // With these settings, nothing is measured that is nested in something else.
        return match nesting::depth() {
            0 => nested(query, queryid, planner),
            _ => planner(query),
        };
    }
    if queryid == 0 {
        return unnamed::plan(query, |query, queryid| nested(query, queryid, planner));
    }
    let clock = match CLOCK.get() {
        Some((clock, _)) => clock,
        None => choose_clock(),
    };
    let before = compat::buffers_now();
    let start = clock.read();
    let planned = nested(query, queryid, planner);
    let place = note(queryid, clock.read().saturating_sub(start));
    if blocks(&before) != blocks(&compat::buffers_now()) {
        add_blocks(place, &before);
    }
    planned
}

/// Runs the planner one nesting level deeper, because it may run functions: what these start is nested in the
/// query that is planned. `queryid` is that of the query; 0 if it has none.
#[inline(always)]
fn nested<'t>(query: ToPlan<'t>, queryid: i64, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    if nesting::depth() > 0 || statement::in_utility() {
        return nested_in_statement(query, queryid, planner);
    }
    outermost_planner::enter(queryid);
    let planned = planner(query);
    outermost_planner::leave();
    planned
}

/// Does that inside of another statement, a procedure or a DO block.
fn nested_in_statement<'t>(
    query: ToPlan<'t>,
    queryid: i64,
    planner: impl FnOnce(ToPlan<'t>) -> NewPlan,
) -> NewPlan {
    let planned = Cell::new(None);
    nesting::enter();
    let outer = statement::enter_planner(queryid);
    let leave = || {
        statement::leave_utility(outer);
        nesting::leave();
    };
    pg_try(query.frames, || planned.set(Some(planner(query))), leave, |_| ());
    leave();
    planned.into_inner().expect("the planner has returned a plan")
}

/// Returns the sum of the blocks in these counters. Planning writes no work files.
#[inline(always)]
fn blocks(counters: &pg_sys::BufferUsage) -> i64 {
    let shared = counters.shared_blks_hit + counters.shared_blks_read;
    shared + counters.local_blks_hit + counters.local_blks_read
}

/// Adds what was used since the counters had these values to what was planned at a place.
#[cold]
#[inline(never)]
fn add_blocks(place: usize, before: &pg_sys::BufferUsage) {
    let planned = &PLANNED.inner()[place];
    let kept = &USED.inner()[place];
    let mut used = if planned.get().has_used {
        kept.get()
    } else {
        NONE_USED
    };
    used.last = NONE_USED.last;
    compat::add_buffers_since(&mut used.all, before);
    compat::add_buffers_since(&mut used.last, before);
    kept.set(used);
    planned.set(Planned {
        has_used: true,
        last_used: true,
        ..planned.get()
    });
}

/// Chooses the clock at the first planning of the process.
#[cold]
fn choose_clock() -> Source {
    let clock = auto_clock();
    let ns_per_tick = clock.scale().ns_per_tick();
    CLOCK.set(Some((clock, ns_per_tick / 1e6)));
    response::set_clock(clock, ns_per_tick);
    clock
}

/// Returns whether the planning of statements at this nesting level is timed.
#[inline(always)]
fn is_timed() -> bool {
    guc::statistics_level() != StatisticsLevel::Basic
        && (nesting::depth() == 0 || guc::track_all())
        && !server::is_parallel_worker()
}

/// Adds a planning to those of its statement. Returns its place.
#[inline(always)]
fn note(queryid: i64, ticks: u64) -> usize {
    let place = place(queryid);
    let planned = &PLANNED.inner()[place];
    let before = planned.get();
    planned.set(Planned {
        queryid,
        plans: before.plans + 1,
        total: before.total.wrapping_add(ticks),
        min: before.min.min(ticks),
        max: before.max.max(ticks),
        last: ticks,
        has_used: before.has_used,
        last_used: false,
    });
    ANY.set(true);
    place
}

/// Returns the place of a statement: its own, a free one, or that of another statement, which is dropped.
#[inline(always)]
fn place(queryid: i64) -> usize {
    if !ANY.get() || PLANNED.inner()[0].get().queryid == queryid {
        return 0;
    }
    other_place(queryid)
}

#[inline(never)]
fn other_place(queryid: i64) -> usize {
    let places = PLANNED.inner();
    let with = |wanted: i64| places.iter().position(|place| place.get().queryid == wanted);
    with(queryid).or_else(|| with(0)).unwrap_or_else(|| {
        let place = NEXT.get() % places.len();
        NEXT.set(NEXT.get().wrapping_add(1));
        places[place].set(FREE);
        place
    })
}

/// Drops what was planned and not executed.
pub fn forget() {
    if ANY.replace(false) {
        PLANNED.iter().for_each(|place| place.set(FREE));
    }
}

/// What was planned for a statement.
pub struct Taken {
    /// How often, and how long that took.
    pub planning: Planning,
    /// The milliseconds of the last planning.
    pub last_ms: f64,
    /// The blocks that were used, unless those are none.
    pub blocks: Option<Blocks>,
}

/// The blocks that were used to plan a statement. Valid until another one is planned.
#[derive(Clone, Copy)]
pub struct Blocks {
    place: usize,
    last_used: bool,
}

impl Blocks {
    /// Returns all.
    #[cold]
    #[inline(never)]
    pub fn all(self) -> Buffers {
        compat::buffers(&self.used().all)
    }

    /// Returns those of the last planning.
    #[cold]
    #[inline(never)]
    pub fn last(self) -> Buffers {
        if self.last_used {
            compat::buffers(&self.used().last)
        } else {
            Buffers::default()
        }
    }

    fn used(self) -> Used {
        USED.inner()[self.place].get()
    }
}

const NOTHING: Taken = Taken {
    planning: Planning::NONE,
    last_ms: 0.0,
    blocks: None,
};

/// Returns what was planned for a statement since this was last called for it.
#[inline(always)]
pub fn take(queryid: i64) -> Taken {
    if !ANY.get() {
        return NOTHING;
    }
    take_planned(queryid)
}

// Inlined, so that what is nothing for most statements is not copied in memory.
#[inline(always)]
fn take_planned(queryid: i64) -> Taken {
    let places = PLANNED.inner();
    let Some(place) = places.iter().position(|place| place.get().queryid == queryid) else {
        return NOTHING;
    };
    let planned = places[place].replace(FREE);
    ANY.set(places.iter().any(|place| place.get().queryid != 0));
    let ms_per_tick = CLOCK.get().map_or(0.0, |(_, ms_per_tick)| ms_per_tick);
    let ms = |ticks: u64| ticks as i64 as f64 * ms_per_tick;
    Taken {
        planning: Planning {
            plans: planned.plans,
            total_ms: ms(planned.total),
            min_ms: ms(planned.min),
            max_ms: ms(planned.max),
        },
        last_ms: ms(planned.last),
        blocks: planned.has_used.then_some(Blocks {
            place,
            last_used: planned.last_used,
        }),
    }
}
