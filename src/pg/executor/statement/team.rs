//! A parallel statement and its workers: how they find each other, and what is kept of the workers if it
//! fails.

use super::ending::Ending;
use super::state::Statement;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::handles::Handle;
use crate::pg::hot::waits::Folding;
use crate::pg::hot::{usage, waits};
use crate::pg::plan::tree;
use crate::pg::results::parallel;
use crate::pg::server;
use crate::pg::server::contained::Unlocked;
use pgrx::pg_sys;
use rowsource_core::model::Fold;
use rowsource_core::phase::Phase;
use std::cell::Cell;

impl Statement {
    /// Announces the channel to the workers that the plan will start.
    ///
    /// # Safety
    /// A run must be beginning that has not started workers yet.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn announce(&self) {
        let (Some(mut channel), Some(target)) = (self.channel.get(), &self.target) else {
            return;
        };
        // If this fails, nothing is known of the workers but what core collects.
        // SAFETY: all of the query is live. A run is beginning, so the session holds no lock.
        server::attempt("announce parallel workers", || unsafe {
            let states = self.nodes.iter().map(|node| Handle::new(node.plan_state()));
            let gathers = states.map(tree::planned_workers);
            let (key, workers) = (target.plan.key, gathers.max().unwrap_or(0));
            channel.announce(&mut Unlocked::promised(), key, self.channel_slots(), workers);
        });
        if let Some(unfolding) = target.description.unfolding() {
            self.announce_folding(&channel, &unfolding.fold);
        }
        self.channel.set(Some(channel));
        act_at_exit();
    }

    /// Tells the workers which nodes are one.
    fn announce_folding(&self, channel: &parallel::Channel, fold: &Fold) {
        let mut first: Vec<Option<i32>> = Vec::new();
        if !channel.is_mapped() || first.try_reserve_exact(fold.nodes().len()).is_err() {
            return;
        }
        first.resize(fold.nodes().len(), None);
        for (at, node) in self.nodes.iter().filter(|node| !node.hidden()).enumerate() {
            if let Some(first) = first.get_mut(fold.of(at)) {
                channel.note_folded(node.plan_node_id(), *first.get_or_insert(node.plan_node_id()));
            }
        }
    }

    /// Returns whether it has a channel.
    #[inline(always)]
    pub(super) fn has_channel(&self) -> bool {
        self.channel.get().is_some()
    }

    /// Leaves future workers to the outer statement. It does not raise.
    #[cold]
    #[inline(never)]
    pub(super) fn withdraw(&self) {
        if let Some(channel) = self.channel.get() {
            channel.withdraw();
        }
    }

    /// Returns how many slots a channel to the workers needs: one for each plan node id, from 0 on.
    fn channel_slots(&self) -> usize {
        let ids = self.nodes.iter().map(|node| node.plan_node_id());
        let ids = ids.map(|id| usize::try_from(id).unwrap_or(0));
        ids.max().map_or(0, |last| last + 1)
    }

    /// Begins the part of this process, which is a parallel worker.
    #[cold]
    pub(super) fn join(&self) {
        assert!(self.life.phase() == Phase::SetUp, "a worker joins before it runs");
        // SAFETY: the statement is starting.
        unsafe { parallel::join(&self.nodes, self.nodes.memory().is_shared()) };
        if let Some(numbers) = parallel::folded(&self.nodes) {
            let _ = self.frame.folded.set(Folding::OfLeader(numbers));
        }
        act_at_exit();
    }
}

/// Has the statements that run when this process ends keep what workers did: the process may be ended by a
/// FATAL error, which no hook sees, and PostgreSQL ends the workers of a leader before it frees the leader's
/// statements.
fn act_at_exit() {
    static ACTS: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
    if !ACTS.replace(true) {
        server::before_leaving_memory(before_exit);
    }
}

/// Ends the statement of a worker, and collects what the workers of a leader did. The process must exit, and
/// must not have aborted its transaction.
fn before_exit(_code: i32) {
    let mut running = waits::running();
    if running.is_null() {
        return;
    }
    server::attempt("record a statement", || {
        // SAFETY: PostgreSQL does the same next. The statements are live, because their memory is. `leave` or
        // `on_context_reset` removes a statement from this list before its memory is freed.
        unsafe {
            pg_sys::LWLockReleaseAll();
            while let Some(statement) = Statement::of_frame(running) {
                running = statement.frame.outer.get();
                if !server::is_parallel_worker() {
                    Ending::new(statement, false).collect_parts();
                } else if statement.stop_outside_hooks(usage::current()) {
                    Ending::new(statement, true).record();
                }
            }
        }
    });
}
