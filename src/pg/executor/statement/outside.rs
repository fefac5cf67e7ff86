//! What a statement did outside of its nodes: rows that it changed without returning them, and the blocks and
//! the WAL of triggers, of the output of rows, and of nested statements that are not measured. And what it
//! waited for.

use super::facts;
use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::compat;
use crate::pg::hot::usage::Usage;
use pgrx::pg_sys::PlanState;
use rowsource_core::model::{NodeStats, Outside};
use rowsource_core::results::Mode;

impl Statement {
    /// Takes what the statement did outside of its nodes, and its waits, unless both are nothing: `to` is
    /// `None`, and then stays so. Adds the waits of the nodes to their statistics. `core_alive` says that the
    /// statement's memory contexts are live.
    ///
    /// # Safety
    /// * The plan states must be live, and the statement must not be running.
    /// * The statement must not run before the result is dropped.
    #[inline(always)]
    pub(super) unsafe fn take_outside<'a>(
        &'a self,
        stats: &mut [NodeStats],
        core_alive: bool,
        to: &mut Option<Outside<'a>>,
    ) {
        // SAFETY: the caller's promises are the same.
        unsafe {
            if self.has_outside() {
                self.take_charged(stats, core_alive, to);
            }
        }
    }

    fn root(&self) -> Option<*mut PlanState> {
        self.nodes.iter().next().map(|root| root.plan_state())
    }

    /// Returns how many rows the statement changed without returning them.
    ///
    /// # Safety
    /// The plan states must be live.
    #[inline(always)]
    pub(super) unsafe fn changed_rows(&self, returned: u64) -> u64 {
        // SAFETY: the plan states are live, by the caller's promise. Their executor state lives as long.
        unsafe {
            match self.root() {
                Some(root) if self.changes_rows => (*(*root).state).es_processed.saturating_sub(returned),
                _ => 0,
            }
        }
    }

    /// Returns whether the statement may have done something outside of its nodes besides changing rows, or
    /// waited.
    ///
    /// # Safety
    /// The plan states must be live, and the statement must not be running.
    #[inline(always)]
    pub(super) unsafe fn has_outside(&self) -> bool {
        let Some(root) = self.root() else {
            return false;
        };
        // SAFETY: nothing charges the account, and the plan states are live, by the caller's promise. Their
        // executor state lives as long.
        unsafe {
            let estate = (*root).state;
            (*self.outside.get()).is_charged
                || self.may_fire_triggers.get()
                || !(*estate).es_jit.is_null()
                || self.core_contributes && self.channel.get().is_some()
        }
    }

    /// Takes what the statement did outside of its nodes and its waits, and clears the account: the statement
    /// may be reused.
    ///
    /// # Safety
    /// The same as for [`Statement::take_outside`].
    #[cold]
    #[inline(never)]
    unsafe fn take_charged<'a>(
        &'a self,
        stats: &mut [NodeStats],
        core_alive: bool,
        to: &mut Option<Outside<'a>>,
    ) {
        let Some(root) = self.root() else {
            return;
        };
        // It is filled in where it stays, because it is large.
        let Outside { sums, waits, .. } = to.get_or_insert_default();
        // SAFETY: the statement is not running, and does not run before the result is dropped, by the
        // caller's promise.
        *waits = unsafe { self.take_waits(stats) };
        // SAFETY: nothing charges the account, and the plan states are live, by the caller's promise. The
        // execution state lives as long as they do.
        let usage = unsafe {
            if core_alive {
                facts::read((*root).state, &mut sums.facts);
            }
            std::mem::replace(&mut *self.outside.get(), Usage::zero())
        };
        // If core measured, nothing is charged to the nodes, so the account has everything. If core
        // contributes more than what it measures of nodes that only it calls, the account also has what
        // parallel workers used: core adds that to the leader's counters when they end, outside of all nodes.
        let is_outside_only = self.mode != Mode::CoreOnly
            && (!self.core_contributes || self.only_by_core)
            && self.level != InstrumentationLevel::Rows;
        if is_outside_only {
            sums.buffers = compat::buffers(&usage.buffers).into();
            sums.wal = compat::wal(&usage.wal).into();
        }
    }
}
