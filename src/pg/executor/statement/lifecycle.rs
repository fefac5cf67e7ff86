//! Enters and leaves the runs of a statement, and records it.

use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::executor::planning;
use crate::pg::hot::timing;
use crate::pg::hot::usage::{self, Usage};
use crate::pg::hot::wrapper::Timed;
use crate::pg::results::{self, Collector, parallel};
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::{server, tempfile};
use crate::session;
use rowsource_core::clock;
use rowsource_core::histogram::Histogram;
use rowsource_core::model::{NodeStats, Outcome, Run};
use rowsource_core::phase::{Event, Phase};
use rowsource_core::results::{Scratch, StatementSample, assemble_exact, may_be_exact};
use smallvec::SmallVec;
use std::cell::Cell;

/// The innermost running statement. Each running statement knows the next outer one.
static RUNNING: BackendLocal<Cell<*const Statement>> = BackendLocal::new(Cell::new(std::ptr::null()));

/// Prevents the running statements from becoming the last statement, because one of them displays the last statement.
pub fn exclude_running_from_last() {
    let mut running = RUNNING.get();
    // SAFETY: `leave` or `on_context_reset` removes a statement from this list before its memory is freed.
    while let Some(statement) = unsafe { running.as_ref() } {
        statement.excluded_from_last.set(true);
        running = statement.replaced.statement.get();
    }
}

/// Returns whether a measured statement is running. A new one is then nested in it.
fn any_running() -> bool {
    !RUNNING.get().is_null()
}

impl Statement {
    /// Enters a run: activates the statement's clock and accounts. Does nothing and returns false if it is already running.
    ///
    /// # Safety
    /// * The statement's query must be started, and its plan states live.
    /// * If this returns true, [`Statement::leave`] must be called when the run ends, also after an error, before the query
    ///   ends.
    #[inline(always)]
    pub unsafe fn enter(&self) -> bool {
        let first = self.life.phase() == Phase::SetUp;
        if !self.life.advance(Event::Enter) {
            return false;
        }
        let replaced = &self.replaced;
        replaced.statement.set(RUNNING.get());
        RUNNING.set(self);
        if self.is_wrapped() {
            // SAFETY: the query is started and its plan states are live, by the caller's promise. The plan has not started
            // workers yet in this run.
            unsafe {
                if first {
                    self.install();
                }
                if let Some(mut channel) = self.channel.take() {
                    // If this fails, only the workers' sampling counts are missing.
                    let _ = server::caught(|| channel.announce(self.channel_slots()));
                    self.channel.set(Some(channel));
                }
            }
        }
        // SAFETY: the outside account lives as long as the statement. `leave` and `on_context_reset` switch to another
        // account before the statement is dropped.
        let account = unsafe { usage::switch(self.outside.get()) };
        replaced.account.set(account);
        replaced.last_charged.set(None);
        if !usage::is_outside(account) {
            replaced.last_charged.set(Some(usage::last_charged()));
        }
        let per_node = self.is_wrapped() && self.level != InstrumentationLevel::Rows;
        replaced
            .tempfile_times
            .set(tempfile::interpose::per_node(per_node));
        if self.is_timed() {
            replaced
                .timing
                .set(timing::enter(self.clock, self.tick_ns, &self.config));
            replaced.start.set(timing::last());
        } else {
            replaced.start.set(self.clock.read());
        }
        true
    }

    /// Returns how many slots a channel to the workers needs: one for each plan node id, from 0 on.
    fn channel_slots(&self) -> usize {
        let ids = self.plan_node_ids().map(|id| usize::try_from(id).unwrap_or(0));
        ids.max().map_or(0, |last| last + 1)
    }

    /// Leaves a run.
    ///
    /// # Safety
    /// This must be called once for each [`Statement::enter`] that returned true, after all runs inside this one have
    /// ended. The account that was running before must still be live.
    #[inline(always)]
    pub unsafe fn leave(&self) {
        let replaced = &self.replaced;
        self.life.advance(Event::Leave);
        RUNNING.set(replaced.statement.get());
        let end = self.clock.read();
        let elapsed = clock::elapsed(replaced.start.get(), end).unwrap_or(0) as i64 as f64 * self.tick_ns;
        self.elapsed_ns.set(self.elapsed_ns.get() + elapsed);
        if self.is_timed() {
            // SAFETY: only `enter` writes it, and `timing` does not call back here.
            timing::leave(unsafe { (*replaced.timing.as_ptr()).as_ref() });
        }
        tempfile::interpose::per_node(replaced.tempfile_times.get());
        let account = replaced.account.get();
        // SAFETY: the account that was running before is live by the caller's promise. Only `enter` writes the counters of
        // the last charge, and `usage` does not call back here.
        unsafe {
            usage::switch(account);
            if let Some(last_charged) = &*replaced.last_charged.as_ptr() {
                usage::add_since(account, last_charged);
            }
        }
    }

    /// Notes that an error ends the run: the outcome, the nodes whose calls it interrupts, and how long ago those calls
    /// began. The innermost is the node whose account is running. Each node knows its caller's account.
    pub fn interrupt(&self, outcome: Outcome) {
        self.outcome.set(outcome);
        if !self.is_wrapped() {
            return;
        }
        let now = self.clock.read();
        let mut account = usage::current();
        while let Some(node) = self.nodes.of_account(account) {
            if node.interrupted().is_some() {
                break;
            }
            node.set_interrupted(Some(now.saturating_sub(node.before())));
            account = node.caller();
        }
    }

    /// Returns whether an account belongs to this statement.
    fn owns(&self, account: *mut Usage) -> bool {
        std::ptr::eq(account, self.outside.get()) || self.nodes.of_account(account).is_some()
    }

    /// Records the statement, unless that was done before: computes the statistics, exports them to core's struct, and has
    /// the session store them. `core_alive` says that the statement's memory contexts are live.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub fn record(&self, core_alive: bool) {
        let has_run = self.life.phase() != Phase::SetUp;
        if !self.life.advance(Event::Record) {
            return;
        }
        if !core_alive {
            // An abort has unmapped the workers' memory, so it must not be read.
            self.channel.set(None);
        }
        if self.core_contributes && has_run {
            // SAFETY: the plan states are live until the query's context is freed, and this runs before.
            unsafe { self.note_unwrapped() };
        }
        results::with_scratch(|scratch| {
            let mut histograms = SmallVec::new();
            // SAFETY: the phase is `Recorded` now, so no run is on the stack, and none begins. So nothing writes to the
            // histograms, and this happens once.
            let is_known = self.compute(core_alive, scratch)
                && unsafe { results::histograms(&self.nodes, &self.channel, &mut histograms) };
            // If there is no memory for its statistics, the statement is not recorded.
            if is_known {
                self.store(core_alive, &mut scratch.stats, &histograms);
            }
        });
        if let (Outcome::Completed, Some(channel)) = (self.outcome.get(), self.channel.take()) {
            channel.close();
        }
    }

    /// Computes the statistics. Returns false if there is no memory.
    #[inline(always)]
    fn compute(&self, core_alive: bool, scratch: &mut Scratch) -> bool {
        let may_be_exact = self.timed == Timed::Sampled
            && may_be_exact(self.mode, self.core_contributes, self.nodes.count());
        if may_be_exact {
            let (config, elapsed_ns) = (&self.config, self.elapsed_ns.get());
            // SAFETY: the plan states are live until the query's context is freed, and this runs before. With `core_alive`
            // the memory contexts are live.
            let collector =
                unsafe { Collector::new(&self.nodes, &self.channel, core_alive, Some(Timed::Sampled)) };
            if assemble_exact(&collector, config, self.tick_ns, elapsed_ns, &mut scratch.stats) {
                return true;
            }
        }
        self.compute_any(core_alive, scratch)
    }

    /// Computes the statistics, no matter whether the wrappers or core measured. Returns false if there is no memory.
    #[inline(never)]
    fn compute_any(&self, core_alive: bool, scratch: &mut Scratch) -> bool {
        let timed = self.is_wrapped().then_some(self.timed);
        // SAFETY: the plan states are live until the query's context is freed, and this runs before. With `core_alive` the
        // memory contexts are live.
        let collector = unsafe { Collector::new(&self.nodes, &self.channel, core_alive, timed) };
        let sample = StatementSample {
            mode: self.mode,
            has_usage: self.level != InstrumentationLevel::Rows,
            is_timed: self.level == InstrumentationLevel::Timed,
            core_contributes: self.core_contributes,
            tick_ns: self.tick_ns,
            config: &self.config,
            elapsed_ns: self.elapsed_ns.get(),
        };
        results::compute(&collector, &sample, scratch)
    }

    /// Has the session store the statistics. A parallel worker reports them to its leader instead.
    #[inline(always)]
    fn store(&self, core_alive: bool, stats: &mut Vec<NodeStats>, histograms: &[&Histogram]) {
        let Some(target) = &self.target else {
            // SAFETY: only a parallel worker's statement has no target.
            return unsafe { parallel::report(stats, histograms, self.plan_node_ids()) };
        };
        session::record(&mut session::Execution {
            plan: &target.plan,
            description: &target.description,
            older_literals: target.older_literals,
            stats,
            histograms,
            run: Run {
                outcome: self.outcome.get(),
                sampfreq: if self.is_wrapped() { self.sampfreq } else { 1 },
                clock: self.is_wrapped().then_some(self.clock),
                elapsed_ms: self.elapsed_ns.get() / 1e6,
                planning: planning::take(target.plan.key.queryid),
                at: server::time_of_day(self.clock, self.tick_ns),
            },
            last: core_alive && !self.excluded_from_last.get() && self.becomes_last(),
        });
    }

    /// Returns whether it becomes the last statement. A statement that a client sent always does. A statement inside a
    /// procedure or DO block does if the client's message had no top-level statement.
    fn becomes_last(&self) -> bool {
        static LAST_MESSAGE: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));
        let message = server::message_time();
        let toplevel = self.is_toplevel();
        if toplevel {
            LAST_MESSAGE.set(message);
        }
        toplevel || (!any_running() && LAST_MESSAGE.get() != message)
    }

    /// Closes it. It is not used any more.
    pub fn close(&self) {
        self.life.advance(Event::Close);
    }

    /// Returns whether it has run and is not recorded yet.
    pub fn is_unrecorded(&self) -> bool {
        matches!(self.life.phase(), Phase::Suspended | Phase::Running)
    }

    /// Closes it because its memory is about to be freed. If it never reached ExecutorEnd, its statistics so far are
    /// recorded. This uses only the extension's own memory and the plan states, because other memory of core may already be
    /// freed.
    ///
    /// If it was running, its session has ended, and it counts as cancelled. A client's cursor that a rollback closes has
    /// not failed itself. A nested statement that never ended counts as failed.
    pub(super) fn on_context_reset(&self) {
        let current = usage::current();
        if !usage::is_outside(current) && self.owns(current) {
            // SAFETY: the running account belongs to this statement, whose memory is still live.
            unsafe { usage::switch_outside() };
        }
        let was_running = self.life.advance(Event::Leave);
        if was_running {
            // Memory is freed during a run only if the session ends, and then for all runs.
            RUNNING.set(std::ptr::null());
        }
        if self.is_unrecorded() {
            if was_running {
                self.outcome.set(Outcome::Cancelled);
            } else if !self.is_toplevel() && self.outcome.get() == Outcome::Completed {
                self.outcome.set(Outcome::Failed);
            }
            self.record(false);
        }
        self.close();
    }
}
