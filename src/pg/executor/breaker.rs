//! The breaker of this session ([`rowsource_core::breaker`]): ends measuring if it costs too much, or if the
//! library fails. From then on, the session measures as with `statistics_level` basic, until `max_overhead`
//! gets another value.
//!
//! It sees the executions when they pass to the store, about once a second, so statements pay nothing for it.

use super::response;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::timing;
use crate::pg::server::{self, memory};
use crate::pg::store::{self, Listener, SharedStops};
use rowsource_core::breaker::{Breaker, Cause, Work};
use rowsource_core::model::{Batch, PlanKey};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

static BREAKER: BackendLocal<Cell<Breaker>> = BackendLocal::new(Cell::new(Breaker::new()));
/// What passes to the store now.
static PASSING: BackendLocal<Cell<Work>> = BackendLocal::new(Cell::new(Work::NONE));
/// The last time that this session stopped measuring.
static LAST: BackendLocal<Cell<Option<Stop>>> = BackendLocal::new(Cell::new(None));
/// The callback at the end of the process is registered.
static IS_REGISTERED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// That a session stopped measuring.
#[derive(Clone, Copy)]
struct Stop {
    cause: Cause,
    at: i64,
    /// The limit then, in percent.
    limit: i32,
    /// When it went on, if it has.
    until: Option<i64>,
}

impl Stop {
    fn is_over(&self) -> bool {
        self.until.is_some()
    }

    /// Returns why, as the end of a sentence.
    fn reason(&self) -> String {
        reason(self.cause, self.limit)
    }
}

fn reason(cause: Cause, limit: i32) -> String {
    match cause {
        Cause::Cost(share) => format!(
            "measuring took {:.1} % of the executor's time for a minute, and pg_rowsource.max_overhead is {limit}",
            share * 100.0
        ),
        Cause::Errors => "pg_rowsource failed twice".to_owned(),
    }
}

/// What a user can do.
pub const HOW_TO_GO_ON: &str = "Set pg_rowsource.max_overhead to another value, or begin another session. A larger pg_rowsource.sampfreq and a cheaper pg_rowsource.clock_source cost less.";

/// Begins to watch. Only `_PG_init` may call this.
pub fn init() {
    store::set_listener(Listener {
        passed,
        end,
        leave: response::record_commit,
    });
    server::on_fault(failed);
}

fn passed(key: &PlanKey, batch: &Batch) {
    let mut all = PASSING.get();
    all.add(&Work::of(batch, key.toplevel(), &timing::costs()));
    PASSING.set(all);
}

fn end(at: i64) {
    let work = PASSING.replace(Work::NONE);
    let mut breaker = BREAKER.get();
    let cause = breaker.add(&work, at, f64::from(guc::max_overhead()) / 100.0);
    BREAKER.set(breaker);
    if let Some(cause) = cause {
        stop(cause);
    }
}

fn failed() {
    let mut breaker = BREAKER.get();
    let cause = breaker.note_fault(server::now());
    BREAKER.set(breaker);
    if let Some(cause) = cause {
        stop(cause);
    }
}

/// Stops measuring, and says so in the log, unless the session has stopped.
#[cold]
#[inline(never)]
fn stop(cause: Cause) {
    if LAST.get().is_some_and(|last| !last.is_over()) {
        return;
    }
    let stop = Stop {
        cause,
        at: server::now(),
        limit: guc::max_overhead(),
        until: None,
    };
    LAST.set(Some(stop));
    guc::set_stopped(true);
    if let Some(stops) = store::shared_stops() {
        stops.add(&stop);
        if !IS_REGISTERED.replace(true) {
            server::before_leaving_memory(at_exit);
        }
    }
    if memory::has_headroom(0) {
        server::log_alone(&format!(
            "pg_rowsource: this session measures no more statements, because {}",
            stop.reason()
        ));
    }
}

/// Goes on if the session has stopped at another limit, in percent.
pub fn set_limit(limit: i32) {
    if let Some(last) = LAST.get()
        && !last.is_over()
        && last.limit != limit
    {
        LAST.set(Some(Stop {
            until: Some(server::now()),
            ..last
        }));
        BREAKER.set(Breaker::new());
        guc::set_stopped(false);
        leave();
    }
}

/// Counts this session no more.
fn leave() {
    if let Some(stops) = store::shared_stops() {
        stops.sessions.fetch_sub(1, Relaxed);
    }
}

/// Notes that the process ends.
fn at_exit(_code: i32) {
    if LAST.get().is_some_and(|last| !last.is_over()) {
        leave();
    }
}

/// Returns why a statement was not measured whose message began at this time, as the end of a sentence.
/// `None` if the session had not stopped then.
pub fn reason_at(message: i64) -> Option<String> {
    let last = LAST.get()?;
    // The message in which it stopped began before.
    let was_stopped = last.until.is_none_or(|until| message < until);
    (message >= last.at && was_stopped).then(|| last.reason())
}

/// Returns whether this session has stopped.
pub fn has_stopped() -> bool {
    LAST.get().is_some_and(|last| !last.is_over())
}

impl SharedStops {
    fn add(&self, stop: &Stop) {
        let cost = match stop.cause {
            Cause::Cost(share) => (share * 1000.0) as u32,
            Cause::Errors => 0,
        };
        self.last_pid.store(server::pid() as u32, Relaxed);
        self.last_cost
            .store(cost.max(u32::from(stop.cause != Cause::Errors)), Relaxed);
        self.last_at.store(stop.at, Relaxed);
        self.sessions.fetch_add(1, Relaxed);
    }

    /// Returns how many sessions measure no more, and which was the last one since the server started, with
    /// its reason.
    pub fn shown(&self) -> (u32, Option<String>) {
        let at = self.last_at.load(Relaxed);
        let why = || match self.last_cost.load(Relaxed) {
            0 => "pg_rowsource failed twice".to_owned(),
            cost => format!(
                "measuring took {:.1} % of the executor's time for a minute",
                f64::from(cost) / 10.0
            ),
        };
        let last = (at != 0).then(|| {
            format!(
                "process {} at {}: {}",
                self.last_pid.load(Relaxed),
                server::shown_time(at),
                why()
            )
        });
        (self.sessions.load(Relaxed), last)
    }
}
