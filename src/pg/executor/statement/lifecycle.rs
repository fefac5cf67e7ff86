//! Enters and leaves the runs of a statement.

use super::ending::Ending;
use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::executor::{nesting, outermost_planner, unmeasured};
use crate::pg::handles::Handle;
use crate::pg::hot::timing;
use crate::pg::hot::usage::{self, Usage};
use crate::pg::hot::waits::{self, Frame};
use crate::pg::hot::wrapper::Timed;
use crate::pg::{live, server, tempfile};
use pgrx::pg_sys;
use rowsource_core::clock;
use rowsource_core::model::Outcome;
use rowsource_core::phase::{Event, Phase};
use std::cell::Cell;

/// A utility statement whose queries count as nested in it.
#[derive(Clone, Copy)]
pub struct RunningUtility {
    queryid: i64,
    /// The innermost running statement when it began.
    statement: *const Frame,
    /// Whether it runs while a query is planned.
    in_planner: bool,
}

/// The innermost running utility statement.
static UTILITY: BackendLocal<Cell<RunningUtility>> = BackendLocal::new(Cell::new(RunningUtility {
    queryid: 0,
    statement: std::ptr::null(),
    in_planner: false,
}));

/// Notes that a utility statement with this queryid begins. Returns the outer one.
pub fn enter_utility(queryid: i64) -> RunningUtility {
    let outer = UTILITY.get();
    UTILITY.set(RunningUtility {
        queryid,
        statement: waits::running(),
        in_planner: outer.in_planner,
    });
    outer
}

/// Notes that the planner begins with a query, which calls what the planner runs. Without a queryid, that is
/// who called the planner. Returns the outer utility statement.
#[inline(always)]
pub fn enter_planner(queryid: i64) -> RunningUtility {
    let outer = UTILITY.get();
    let planned = match queryid {
        0 => outer,
        _ => RunningUtility {
            queryid,
            statement: waits::running(),
            in_planner: true,
        },
    };
    UTILITY.set(RunningUtility {
        in_planner: true,
        ..planned
    });
    outer
}

/// Returns whether a query is being planned.
pub(super) fn in_planner() -> bool {
    outermost_planner::is_running() || UTILITY.get().in_planner
}

/// Returns whether a utility statement with a queryid runs.
#[inline(always)]
pub fn in_utility() -> bool {
    UTILITY.get().queryid != 0
}

/// Notes that the utility statement has ended. `outer` is what [`enter_utility`] returned.
pub fn leave_utility(outer: RunningUtility) {
    UTILITY.set(outer);
}

/// How many nested statements this session has recorded.
static NESTED: BackendLocal<Cell<u64>> = BackendLocal::new(Cell::new(0));

/// Returns how many nested statements this session has recorded.
pub fn nested_recorded() -> u64 {
    NESTED.get()
}

/// Counts a nested statement that is recorded now. Returns the queryid of the statement that called it: the
/// innermost that is running, a measured statement or a utility. Returns 0 if there is none.
#[cold]
#[inline(never)]
pub fn caller() -> i64 {
    NESTED.set(NESTED.get() + 1);
    let (running, utility) = (waits::running(), UTILITY.get());
    if utility.queryid != 0 && utility.statement == running {
        return utility.queryid;
    }
    // SAFETY: `leave` or `on_context_reset` removes a statement from this list before its memory is freed.
    let Some(statement) = (unsafe { Statement::of_frame(running) }) else {
        return outermost_planner::queryid();
    };
    let target = statement.target.as_ref();
    target.map_or(0, |target| target.plan.key.queryid)
}

/// Prevents the running statements from becoming the last statement, because one of them displays the last
/// statement.
pub fn exclude_running_from_last() {
    unmeasured::displaying();
    let mut running = waits::running();
    // SAFETY: `leave` or `on_context_reset` removes a statement from this list before its memory is freed.
    while let Some(statement) = unsafe { Statement::of_frame(running) } {
        statement.excluded_from_last.set(true);
        running = statement.frame.outer.get();
    }
}

/// Returns whether a measured statement is running. A new one is then nested in it.
pub(super) fn any_running() -> bool {
    !waits::running().is_null()
}

impl Statement {
    /// Enters a run: activates the statement's clock and accounts. Does nothing and returns false if it is
    /// already running.
    ///
    /// # Safety
    /// * The statement's query must be started, and its plan states live.
    /// * If this returns true, [`Statement::leave`] must be called when the run ends, also after an error,
    ///   before the query ends.
    #[inline(always)]
    pub unsafe fn enter(&self) -> bool {
        let first = self.life.phase() == Phase::SetUp;
        if !self.life.advance(Event::Enter) {
            return false;
        }
        let replaced = &self.replaced;
        if self.is_wrapped() {
            // SAFETY: the query is started and its plan states are live, by the caller's promise. The plan
            // has not started workers yet in this run.
            unsafe {
                if first {
                    self.install();
                }
                if self.has_channel() {
                    self.announce();
                }
            }
        }
        // SAFETY: the outside account lives as long as the statement. `leave` and `on_context_reset` switch
        // to another account before the statement is dropped.
        let account = unsafe { usage::switch(self.outside.get()) };
        self.frame.outer_account.set(account);
        self.frame.outer.set(waits::running());
        // SAFETY: the frame lives as long as the statement. `leave` and `on_context_reset` set another one
        // before the statement is dropped.
        unsafe { waits::set_running(&raw const self.frame) };
        replaced.last_charged.set(None);
        if !usage::is_outside(account) {
            replaced.last_charged.set(Some(usage::last_charged()));
        }
        let per_node = self.is_wrapped() && self.level != InstrumentationLevel::Rows;
        replaced
            .tempfile_times
            .set(tempfile::requests::per_node(per_node));
        if self.is_timed() {
            // Few statements are nested. For all others, only the tag of the `Option` is written.
            match timing::enter(self.clock, self.tick_ns, &self.config) {
                None => replaced.timing.set(None),
                outer => replaced.timing.set(outer),
            }
            replaced.start.set(timing::last());
            if self.may_need_beats {
                live::may_need_beats();
            }
        } else {
            replaced.start.set(self.clock.read());
        }
        if self.is_wrapped() {
            // SAFETY: the outer statement still runs.
            let depth = unsafe { Statement::of_frame(self.frame.outer.get()) }
                .map_or(0, |outer| outer.nodes.header().depth_inside());
            let header = self.nodes.header();
            let is_for_client = nesting::depth() == 1;
            header.enter(first, replaced.start.get(), account.addr(), depth, is_for_client);
        }
        true
    }

    /// Leaves a run.
    ///
    /// # Safety
    /// This must be called once for each [`Statement::enter`] that returned true, after all runs inside this
    /// one have ended. The account that was running before must still be live.
    #[inline(always)]
    pub unsafe fn leave(&self) {
        let replaced = &self.replaced;
        self.life.advance(Event::Leave);
        // SAFETY: the outer statement still runs, because a run ends after all runs inside it.
        unsafe { waits::set_running(self.frame.outer.get()) };
        self.add_elapsed();
        self.nodes.header().leave(self.elapsed_ns.get());
        if self.has_channel() {
            self.withdraw();
        }
        tempfile::requests::per_node(replaced.tempfile_times.get());
        let account = self.frame.outer_account.get();
        // SAFETY: the account that was running before is live by the caller's promise. Only `enter` writes
        // the counters of the last charge, and `usage` does not call back here.
        unsafe {
            usage::switch(account);
            if let Some(last_charged) = &*replaced.last_charged.as_ptr() {
                usage::add_since(account, &last_charged.buffers, &last_charged.wal);
            }
        }
        // It may leave a mark, so it comes after the charge.
        if self.is_timed() {
            // SAFETY: only `enter` writes it, and `timing` does not call back here.
            timing::leave(unsafe { (*replaced.timing.as_ptr()).as_ref() });
        }
    }

    /// Adds the time since the current run began.
    #[inline(always)]
    fn add_elapsed(&self) {
        let end = self.clock.read();
        let elapsed =
            clock::elapsed(self.replaced.start.get(), end).unwrap_or(0) as i64 as f64 * self.tick_ns;
        self.elapsed_ns.set(self.elapsed_ns.get() + elapsed);
    }

    /// Notes how far a run has read the query: up to `count` rows, or to the end if `count` is 0.
    #[inline(always)]
    pub fn note_read(&self, direction: pg_sys::ScanDirection::Type, count: u64) {
        if count == 0 && direction == pg_sys::ScanDirection::ForwardScanDirection {
            self.is_read_to_end.set(true);
        } else {
            self.note_partly_read(direction, count);
        }
    }

    /// Notes how far a run has read the query if it has read a cursor, or if its caller needed only some
    /// rows. The end is seen only if there were fewer rows than the caller asked for.
    #[cold]
    #[inline(never)]
    fn note_partly_read(&self, direction: pg_sys::ScanDirection::Type, count: u64) {
        match direction {
            pg_sys::ScanDirection::ForwardScanDirection => {
                let has_ended = self.estate().is_some_and(|estate| estate.es_processed < count);
                self.is_read_to_end.set(has_ended);
                if nesting::depth() == 1 && !self.excluded_from_last.get() {
                    // SAFETY: a run of the query has just ended, so it is live.
                    unmeasured::cursor_read(unsafe { Handle::new(self.query) });
                }
            }
            // A run in no direction reads nothing.
            pg_sys::ScanDirection::NoMovementScanDirection => (),
            // Some rows may be counted again, in this run or later.
            _ => {
                for node in self.nodes.iter() {
                    let mut estimate = node.estimate();
                    estimate.dismiss();
                    node.set_estimate(estimate);
                }
                self.reusable.set(false);
            }
        }
    }

    /// Notes that an error ends the run: the nodes whose calls it interrupts, and how long ago those calls
    /// began. The innermost is the node whose account is running. Each node knows its caller's account. The
    /// outcome is a failure, until more is known.
    pub fn interrupt(&self) {
        self.outcome.set(Outcome::Failed);
        if !self.is_wrapped() {
            return;
        }
        let now = self.clock.read();
        let mut account = usage::current();
        if self.owns(account) {
            // SAFETY: the account belongs to this statement, so it is live. No reference to it exists.
            unsafe { usage::charge_if_moved(account) };
        }
        while let Some(node) = self.nodes.of_account(account) {
            if node.interrupted().is_some() {
                break;
            }
            let before = if node.notes_no_reading() {
                timing::last_before_mark()
            } else {
                node.before()
            };
            account = node.caller();
            // Core has replaced this wrapper before its first call, and knows itself when the call began.
            if before == 0 && self.timed != Timed::Never {
                continue;
            }
            node.set_interrupted(Some(now.saturating_sub(before)));
            if node.by_expression() && self.level != InstrumentationLevel::Rows {
                node.charge_caller();
            }
        }
    }

    /// Returns whether an account belongs to this statement.
    fn owns(&self, account: *mut Usage) -> bool {
        std::ptr::eq(account, self.outside.get()) || self.nodes.of_account(account).is_some()
    }

    /// Closes it. It is not used any more.
    pub fn close(&self) {
        self.life.advance(Event::Close);
    }

    /// Returns whether it has run and is not recorded yet.
    pub fn is_unrecorded(&self) -> bool {
        matches!(self.life.phase(), Phase::Suspended | Phase::Running)
    }

    /// Closes it because its memory is about to be freed. If it never reached ExecutorEnd, its statistics so
    /// far are recorded. This uses only the extension's own memory and the plan states, because other memory
    /// of core may already be freed.
    ///
    /// If it was running, its session has ended, and it counts as cancelled. A client's cursor that a
    /// rollback closes has not failed itself. A nested statement that never ended counts as failed.
    ///
    /// No error may be raised while a memory context is reset. If the extension fails, this returns false,
    /// and the statement must not be reused.
    #[inline(always)]
    pub(super) fn on_context_reset(&self) -> bool {
        let current = usage::current();
        if (self.is_unrecorded() || !usage::is_outside(current))
            && server::attempt("record a statement", || self.end_outside_hooks(current)).is_none()
        {
            return false;
        }
        self.close();
        true
    }

    /// Does all of this but closing it. This is needed only if it has run and is not recorded, or if another
    /// account than the outside one is running: `current`.
    #[cold]
    #[inline(never)]
    fn end_outside_hooks(&self, current: *mut Usage) {
        if self.stop_outside_hooks(current) {
            // SAFETY: it does not run any more.
            unsafe { Ending::new(self, false) }.record();
        }
    }

    /// Notes that it does not run any more. Returns whether it has run and is not recorded.
    pub(super) fn stop_outside_hooks(&self, current: *mut Usage) -> bool {
        if self.life.phase() == Phase::Running {
            self.interrupt();
            self.outcome.set(Outcome::Cancelled);
            self.add_elapsed();
        }
        if !usage::is_outside(current) && self.owns(current) {
            // SAFETY: the running account belongs to this statement, whose memory is still live.
            unsafe { usage::switch_outside() };
        }
        let was_running = self.life.advance(Event::Leave);
        if was_running {
            // Memory is freed during a run only if the session ends, and then for all runs.
            // SAFETY: null is always allowed.
            unsafe { waits::set_running(std::ptr::null()) };
        }
        let is_unrecorded = self.is_unrecorded();
        if is_unrecorded && !was_running && !self.is_toplevel() && self.outcome.get() == Outcome::Completed {
            self.outcome.set(Outcome::Failed);
        }
        is_unrecorded
    }
}
