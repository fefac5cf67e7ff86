//! A statement that ends.

use super::state::Statement;
use crate::pg::handles::{Handle, PlanStateRef, QueryRef};
use crate::pg::hot::wrapper::Timed;
use crate::pg::results::{Collector, parts};
use pgrx::pg_sys::EState;
use std::ops::Deref;

/// A statement that has ended, or whose process or transaction ends. It does not run any more, and what is
/// computed of it may read all of it.
#[derive(Clone, Copy)]
pub struct Ending<'s> {
    statement: &'s Statement,
    core_alive: bool,
}

/// The same, whose memory contexts are live. The compiler knows that.
#[derive(Clone, Copy)]
pub struct Alive<'s>(&'s Statement);

impl<'s> Alive<'s> {
    /// Returns it as any such statement.
    #[inline(always)]
    pub const fn ending(self) -> Ending<'s> {
        Ending {
            statement: self.0,
            core_alive: true,
        }
    }
}

impl Deref for Ending<'_> {
    type Target = Statement;

    #[inline(always)]
    fn deref(&self) -> &Statement {
        self.statement
    }
}

impl<'s> Ending<'s> {
    /// Describes such a statement.
    ///
    /// # Safety
    /// * While the result is used, nothing runs the statement, and nothing else reads its waits.
    /// * If `core_alive`, its memory contexts are live meanwhile, and with them the query.
    #[inline(always)]
    pub const unsafe fn new(statement: &'s Statement, core_alive: bool) -> Ending<'s> {
        Ending {
            statement,
            core_alive,
        }
    }

    /// Returns whether the statement's memory contexts are live.
    #[inline(always)]
    pub const fn core_alive(self) -> bool {
        self.core_alive
    }

    /// Returns the same, if the memory contexts are live.
    #[inline(always)]
    pub fn alive(self) -> Option<Alive<'s>> {
        self.core_alive.then_some(Alive(self.statement))
    }

    /// Returns the statement.
    #[inline(always)]
    pub const fn statement(self) -> &'s Statement {
        self.statement
    }

    /// Returns its query, if that is live.
    #[inline(always)]
    pub fn query(self) -> Option<QueryRef<'s>> {
        // SAFETY: with `core_alive` all of it is live, and it does not run.
        self.core_alive
            .then(|| unsafe { Handle::new(self.statement.query) })
    }

    /// Returns the executor's state of its query, if all of that is live.
    #[inline(always)]
    pub fn estate(self) -> Option<Handle<'s, EState>> {
        let query = self.query()?.started()?;
        Some(query.estate())
    }

    /// Returns the states of the nodes that are shown, if all of them is live.
    pub fn shown(self) -> Option<impl Iterator<Item = PlanStateRef<'s>>> {
        let shown = self.statement.nodes.iter().filter(|node| !node.hidden());
        // SAFETY: with `core_alive` all of them is live, and none runs.
        self.core_alive
            .then(|| shown.map(|node| unsafe { Handle::new(node.plan_state()) }))
    }

    /// Returns what collects what its nodes counted. `timed` says which of their calls the wrappers timed;
    /// `None` if they were not installed.
    #[inline(always)]
    pub fn collector(self, timed: Option<Timed>) -> Collector<'s> {
        let statement = self.statement;
        // SAFETY: the plan states are live until the query's context takes the statement back. With
        // `core_alive` so are the memory contexts.
        unsafe { Collector::new(&statement.nodes, &statement.channel, self.core_alive, timed) }
    }

    /// Adds what workers did, and PostgreSQL has not collected, to what core counted.
    pub fn collect_parts(self) {
        if let Some(channel) = self.channel.get() {
            // SAFETY: the plan states are live, as for `collector`, and none runs.
            unsafe { parts::collect(&channel, &self.nodes, self.core_alive) }
        }
    }
}
