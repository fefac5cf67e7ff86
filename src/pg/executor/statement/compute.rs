//! Computes the statistics of a statement that has ended, or takes its counts.

use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::hot::wrapper::Timed;
use crate::pg::results::{self, Collector};
use rowsource_core::model::Outcome;
use rowsource_core::results::{
    Counts, Scratch, StatementSample, Uncounted, assemble_directly, may_be_direct,
};

impl Statement {
    /// Takes what the nodes counted, if that is all that there is to record of them. Returns false if their statistics must be
    /// computed.
    #[inline(always)]
    pub(super) fn count(&self, core_alive: bool, counts: &mut Counts) -> bool {
        let Some(shape) = self.shape.get() else {
            return false;
        };
        // SAFETY: the plan states are live until the query's context is freed, and this runs before. The statement is not running.
        if !core_alive || !self.is_complete() || unsafe { self.has_outside() } {
            return false;
        }
        // SAFETY: as above, and the memory contexts are live.
        let collector = unsafe { Collector::new(&self.nodes, &self.channel, core_alive, Some(self.timed)) };
        let counted = counts.take(&collector, &shape, self.elapsed_ns.get() / 1e6);
        if counted == Err(Uncounted::Always) {
            self.shape.set(None);
        }
        counted.is_ok()
    }

    /// Returns whether it has completed, and its caller has read its last row.
    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        self.is_read_to_end.get() && self.outcome.get() == Outcome::Completed
    }

    /// Computes the statistics node by node, if that is possible. `IS_TIMED` says whether calls were timed.
    #[inline(always)]
    fn compute_directly<const IS_TIMED: bool>(&self, core_alive: bool, scratch: &mut Scratch) -> bool {
        let (config, elapsed_ns) = (&self.config, self.elapsed_ns.get());
        let timed = if IS_TIMED { Timed::Sampled } else { Timed::Never };
        // SAFETY: the plan states are live until the query's context is freed, and this runs before. With `core_alive` the
        // memory contexts are live.
        let collector = unsafe { Collector::new(&self.nodes, &self.channel, core_alive, Some(timed)) };
        assemble_directly::<_, IS_TIMED>(&collector, config, self.tick_ns, elapsed_ns, &mut scratch.stats)
    }

    /// Computes the statistics, no matter whether the wrappers or core measured. Returns false if there is no memory.
    #[inline(never)]
    pub(super) fn compute(&self, core_alive: bool, scratch: &mut Scratch) -> bool {
        if may_be_direct(
            self.mode,
            self.core_contributes,
            self.only_by_core,
            self.nodes.count(),
        ) {
            let is_computed = match (self.level, self.timed) {
                (InstrumentationLevel::Timed, Timed::Sampled) => {
                    self.compute_directly::<true>(core_alive, scratch)
                }
                (InstrumentationLevel::Buffers, Timed::Never) => {
                    self.compute_directly::<false>(core_alive, scratch)
                }
                _ => false,
            };
            if is_computed {
                return true;
            }
        }
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
}
