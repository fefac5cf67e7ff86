//! Computes the statistics of a statement that has ended.

use super::ending::Ending;
use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::hot::wrapper::Timed;
use crate::pg::results;
use rowsource_core::model::Outcome;
use rowsource_core::results::{Scratch, StatementSample, assemble_directly, may_be_direct};

impl Statement {
    /// Returns whether it has completed, and its caller has read its last row.
    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        self.is_read_to_end.get() && self.outcome.get() == Outcome::Completed
    }
}

impl Ending<'_> {
    /// Computes the statistics node by node, if that is possible. `IS_TIMED` says whether calls were timed.
    #[inline(always)]
    fn compute_directly<const IS_TIMED: bool>(self, scratch: &mut Scratch) -> bool {
        let (config, elapsed_ns) = (&self.config, self.elapsed_ns.get());
        let timed = if IS_TIMED { Timed::Sampled } else { Timed::Never };
        assemble_directly::<_, IS_TIMED>(
            &self.collector(Some(timed)),
            config,
            self.tick_ns,
            elapsed_ns,
            &mut scratch.stats,
            &mut scratch.called,
        )
    }

    /// Computes the statistics, no matter whether the wrappers or core measured. Returns false if there is no
    /// memory.
    #[inline(never)]
    pub(super) fn compute(self, scratch: &mut Scratch) -> bool {
        if may_be_direct(
            self.mode,
            self.core_contributes,
            self.only_by_core,
            self.nodes.count(),
        ) {
            let is_computed = match (self.level, self.timed) {
                (InstrumentationLevel::Timed, Timed::Sampled) => self.compute_directly::<true>(scratch),
                (InstrumentationLevel::Buffers, Timed::Never) => self.compute_directly::<false>(scratch),
                _ => false,
            };
            if is_computed {
                return true;
            }
        }
        let timed = self.is_wrapped().then_some(self.timed);
        let sample = StatementSample {
            mode: self.mode,
            has_usage: self.level != InstrumentationLevel::Rows,
            is_timed: self.level == InstrumentationLevel::Timed,
            core_contributes: self.core_contributes,
            tick_ns: self.tick_ns,
            config: &self.config,
            elapsed_ns: self.elapsed_ns.get(),
        };
        results::compute(&self.collector(timed), &sample, scratch)
    }
}
