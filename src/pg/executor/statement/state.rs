//! The data of one measured statement.

use crate::instrumentation::InstrumentationLevel;
use crate::pg::executor::response::Begun;
use crate::pg::hot::timing;
use crate::pg::hot::usage::Usage;
use crate::pg::hot::waits::Frame;
use crate::pg::hot::wrapper::Timed;
use crate::pg::results::node_table::NodeTable;
use crate::pg::results::parallel;
use crate::pg::server::switch;
use crate::session::KnownPlan;
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::clock::Source;
use rowsource_core::model::{LazyDescription, Outcome, PlanKey, PlanOrigin};
use rowsource_core::phase::{Event, Phase};
use rowsource_core::results::{Mode, Shape};
use rowsource_core::sampler::Config;
use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;

/// pg_rowsource's bit in `instrument_options`. It tells parallel workers to measure as their leader does.
pub const INSTRUMENT_ROWSOURCE: i32 = 1 << 24;
pub const INSTRUMENT_TIMER: i32 = pg_sys::InstrumentOption::INSTRUMENT_TIMER as i32;
pub const INSTRUMENT_BUFFERS: i32 = pg_sys::InstrumentOption::INSTRUMENT_BUFFERS as i32;
pub const INSTRUMENT_ROWS: i32 = pg_sys::InstrumentOption::INSTRUMENT_ROWS as i32;
pub const INSTRUMENT_WAL: i32 = pg_sys::InstrumentOption::INSTRUMENT_WAL as i32;

/// A measured statement. While it can be reached, the plan states of its query and the executor's state are
/// live: the query's context owns it, and takes it back before it frees them. In the pool it is an `Idle`.
pub struct Statement {
    pub query: *mut QueryDesc,
    /// The reset callback of the statement's query context, which owns the statement.
    pub callback: pg_sys::MemoryContextCallback,
    pub life: Life,
    /// What the switch said when it was set up.
    pub switch: Cell<switch::State>,
    pub mode: Mode,
    pub nodes: NodeTable,
    /// Core measures some of its nodes, or workers report some.
    pub core_contributes: bool,
    /// Core contributes nothing but what it measures of the nodes that only it calls.
    pub only_by_core: bool,
    /// It is an INSERT, UPDATE, DELETE or MERGE, which PostgreSQL counts rows for that the root need not
    /// return.
    pub changes_rows: bool,
    /// The results of the set-up are valid for all executions of the plan.
    pub reusable: Cell<bool>,
    /// It changes tables that have triggers, or partitions, which may have some.
    pub may_fire_triggers: Cell<bool>,
    pub level: InstrumentationLevel,
    pub sampfreq: i32,
    pub clock: Source,
    /// Which calls are timed.
    pub timed: Timed,
    /// The planner expects that not all calls are timed, or much work.
    pub may_need_beats: bool,
    /// Nanoseconds per tick of the clock.
    pub tick_ns: f64,
    pub config: Config,
    /// How its nodes hang together, if its executions may be summed up as counts.
    pub shape: Cell<Option<Shape>>,
    /// The plan that it is recorded under. A parallel worker's statement has none.
    pub target: Option<Target>,
    /// The account of what the statement uses outside its nodes. The hot path charges it through a pointer.
    pub outside: UnsafeCell<Usage>,
    /// What its waits are charged with, and which statement called for its current run.
    pub frame: Frame,
    /// Nanoseconds in ExecutorRun and ExecutorFinish.
    pub elapsed_ns: Cell<f64>,
    /// When it began for its client.
    pub begun: Cell<Begun>,
    /// The values that the current run replaced.
    pub replaced: Replaced,
    /// How it ended. A statement that has not failed is completed.
    pub outcome: Cell<Outcome>,
    /// Its caller has read its last row.
    pub is_read_to_end: Cell<bool>,
    /// Where its plan comes from.
    pub origin: Cell<PlanOrigin>,
    /// EXPLAIN (ANALYZE) runs it.
    pub explained: bool,
    /// Core counts how its scans read ahead.
    pub counts_scan_io: bool,
    /// It called rowsource_display(), and so never becomes "the last statement".
    pub excluded_from_last: Cell<bool>,
    pub channel: Cell<Option<parallel::Channel>>,
}

/// The phase of a statement. Only events change it.
pub struct Life(Cell<Phase>);

impl Life {
    /// Returns the initial phase of a statement.
    pub const fn new() -> Life {
        Life(Cell::new(Phase::SetUp))
    }

    /// Returns the phase.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        self.0.get()
    }

    /// Changes the phase. Returns false and changes nothing if the event is not allowed in this phase.
    #[inline(always)]
    pub fn advance(&self, event: Event) -> bool {
        let next = self.phase().after(event);
        if let Some(next) = next {
            self.0.set(next);
        }
        next.is_some()
    }
}

/// The plan and description under which an execution is recorded.
pub struct Target {
    pub plan: Rc<KnownPlan>,
    /// The key with the number of the plan that is not folded: executions of the same plan have the same
    /// nodes only if this is the same too.
    pub found_as: PlanKey,
    /// The queryid with which it was planned. That of the plan differs if the statement uses temporary
    /// tables.
    pub planned_as: i64,
    pub description: Rc<LazyDescription>,
    /// The description shows literals of an earlier execution.
    pub older_literals: bool,
    /// How many changes of catalogs the session had heard of when the names of the description were last
    /// compared.
    pub compared_at: Cell<u64>,
}

/// The values that a run of a statement replaced. They are restored when the run ends, also after an error.
pub struct Replaced {
    /// The counters when the run began, if a node called for the run: that node is charged with all that the
    /// run uses.
    pub last_charged: Cell<Option<Usage>>,
    pub timing: Cell<Option<timing::Outer>>,
    /// Whether times of temporary files were charged to nodes.
    pub tempfile_times: Cell<bool>,
    /// When the run began.
    pub start: Cell<u64>,
}

impl Replaced {
    /// Returns the value before the first run.
    pub const fn empty() -> Replaced {
        Replaced {
            last_charged: Cell::new(None),
            timing: Cell::new(None),
            tempfile_times: Cell::new(false),
            start: Cell::new(0),
        }
    }
}

impl Statement {
    /// Returns the statement of a frame, unless it is null.
    ///
    /// # Safety
    /// The frame must be null, or that of a live statement.
    pub unsafe fn of_frame(frame: *const Frame) -> Option<&'static Statement> {
        if frame.is_null() {
            return None;
        }
        // SAFETY: the frame is a part of a live statement, by the caller's promise.
        unsafe {
            frame
                .byte_sub(std::mem::offset_of!(Statement, frame))
                .cast::<Statement>()
                .as_ref()
        }
    }

    /// Returns whether the wrappers measure it. Otherwise core measures everything.
    #[inline(always)]
    pub fn is_wrapped(&self) -> bool {
        self.mode != Mode::CoreOnly
    }

    /// Returns whether its wrappers read a clock.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.is_wrapped() && self.level == InstrumentationLevel::Timed
    }

    /// Returns whether a client sent it, not a function.
    pub fn is_toplevel(&self) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.plan.key.toplevel())
    }
}
