//! Shows a statement to other sessions while it runs.

use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::live::Setup;
use rowsource_core::model::PlanKey;
use rowsource_core::phase::Phase;

impl Statement {
    /// Publishes how the statement is measured, under a key: that of its plan, or of the part of it that a
    /// parallel worker runs.
    pub(super) fn publish(&self, key: PlanKey) {
        let setup = Setup {
            key,
            tick_ns: self.tick_ns,
            config: self.config,
            first: self.nodes.as_ptr().addr(),
            count: self.nodes.count(),
            outside: self.outside.get().addr(),
            clock: self.clock as u8,
            timed: self.timed as u8,
            has_usage: u8::from(self.level != InstrumentationLevel::Rows),
            core_contributes: u8::from(self.core_contributes),
            sampfreq: self.sampfreq,
        };
        let description = self.target.as_ref().map(|target| &target.description);
        assert!(
            self.life.phase() == Phase::SetUp,
            "a statement is published before it runs"
        );
        // SAFETY: the statement has not run, so it is not live.
        unsafe { self.nodes.memory().publish(setup, description) };
    }
}
