//! What a statement did outside of its nodes: rows that it changed without returning them, and the blocks and
//! the WAL of triggers, of the output of rows, and of nested statements that are not measured. And what it
//! waited for.

use super::ending::Ending;
use super::facts;
use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::compat;
use crate::pg::handles::Bare;
use crate::pg::hot::usage::Usage;
use pgrx::pg_sys::EState;
use rowsource_core::model::{NodeStats, Outside};
use rowsource_core::results::Mode;

impl Statement {
    /// Returns the executor's state of its query.
    #[inline(always)]
    pub(super) fn estate(&self) -> Option<Bare<'_, EState>> {
        let root = self.nodes.iter().next()?;
        // SAFETY: the plan states are live, and their executor state lives as long. No reference to it is in
        // use.
        Some(unsafe { Bare::new(root.state().state) })
    }

    /// Returns how many rows the statement changed without returning them.
    #[inline(always)]
    pub(super) fn changed_rows(&self, returned: u64) -> u64 {
        if !self.changes_rows {
            return 0;
        }
        self.estate()
            .map_or(0, |estate| estate.es_processed.saturating_sub(returned))
    }

    /// Returns whether the statement may have done something outside of its nodes besides changing rows, or
    /// waited.
    #[inline(always)]
    pub(super) fn has_outside(&self) -> bool {
        let Some(estate) = self.estate() else {
            return false;
        };
        // SAFETY: only this thread charges the account, and no reference to it is in use.
        let is_charged = unsafe { (*self.outside.get()).is_charged };
        is_charged
            || self.may_fire_triggers.get()
            || !estate.es_jit.is_null()
            || self.core_contributes && self.channel.get().is_some()
    }
}

impl<'s> Ending<'s> {
    /// Takes what the statement did outside of its nodes, and its waits, unless both are nothing: `to` is
    /// `None`, and then stays so. Adds the waits of the nodes to their statistics.
    #[inline(always)]
    pub(super) fn take_outside(self, stats: &mut [NodeStats], to: &mut Option<Outside<'s>>) {
        if self.has_outside() {
            self.take_charged(stats, to);
        }
    }

    /// Takes what the statement did outside of its nodes and its waits, and clears the account: the statement
    /// may be reused.
    #[cold]
    #[inline(never)]
    fn take_charged(self, stats: &mut [NodeStats], to: &mut Option<Outside<'s>>) {
        // It is filled in where it stays, because it is large.
        let Outside { sums, waits, .. } = to.get_or_insert_default();
        *waits = self.take_waits(stats);
        if let Some(estate) = Ending::estate(self) {
            facts::read(estate, &mut sums.facts);
        }
        // SAFETY: it does not run, so nothing charges the account.
        let usage = unsafe { std::mem::replace(&mut *self.outside.get(), Usage::zero()) };
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
