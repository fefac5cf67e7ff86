//! What PostgreSQL knows of a statement as a whole: its triggers, and what it compiled.

use super::measured::Measured;
use super::node::{Buffers, Called, Wal};
use crate::waits::plan::RunWaits;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// How many triggers are kept by themselves.
const TRIGGERS: usize = 8;

/// A trigger's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggerSum {
    /// Identifies the trigger in its database; 0 is none, or several.
    pub oid: u32,
    /// The number of its calls.
    pub calls: u64,
    /// How long they took, in milliseconds.
    pub ms: f64,
}

impl TriggerSum {
    fn add_calls(&mut self, other: &TriggerSum) {
        self.calls += other.calls;
        self.ms += other.ms;
    }
}

/// What just-in-time compilation did, in all processes. Times are milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Jit {
    /// The number of compiled functions.
    pub functions: u64,
    /// Bits of what was compiled and how: the lowest is for the first of [`JIT_OPTIONS`].
    pub options: u8,
    /// Time of code generation.
    pub generation_ms: f64,
    /// The part of it that was for reading the columns of rows. PostgreSQL times it from 17 on.
    pub deform_ms: f64,
    /// Time of inlining.
    pub inlining_ms: f64,
    /// Time of optimization.
    pub optimization_ms: f64,
    /// Time of emission.
    pub emission_ms: f64,
}

/// What compilation did, under EXPLAIN's keys.
pub const JIT_OPTIONS: [&str; 4] = ["Inlining", "Optimization", "Expressions", "Deforming"];

impl Jit {
    /// Returns what was compiled and how.
    pub fn options(&self) -> [(&'static str, bool); JIT_OPTIONS.len()] {
        std::array::from_fn(|bit| (JIT_OPTIONS[bit], self.options >> bit & 1 == 1))
    }

    /// Returns the time of all that.
    pub fn total_ms(&self) -> f64 {
        self.generation_ms + self.inlining_ms + self.optimization_ms + self.emission_ms
    }
}

impl AddAssign for Jit {
    fn add_assign(&mut self, add: Self) {
        self.functions += add.functions;
        self.options |= add.options;
        self.generation_ms += add.generation_ms;
        self.deform_ms += add.deform_ms;
        self.inlining_ms += add.inlining_ms;
        self.optimization_ms += add.optimization_ms;
        self.emission_ms += add.emission_ms;
    }
}

/// The facts of a statement, of one execution or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatementFacts {
    /// What was compiled.
    pub jit: Jit,
    /// The blocks that planning used.
    pub planning: Buffers,
    /// The triggers that took the longest. Those without calls are free places.
    triggers: [TriggerSum; TRIGGERS],
    /// All other triggers.
    other: TriggerSum,
}

impl StatementFacts {
    /// Returns whether there are none: nothing was compiled, no trigger called, and planning used no blocks.
    pub fn is_none(&self) -> bool {
        !self.has_rare() && self.planning == Buffers::default()
    }

    /// Returns whether something was compiled, or a trigger called. Of all places for triggers, the first is
    /// used first.
    #[inline(always)]
    fn has_rare(&self) -> bool {
        self.jit.functions != 0 || self.triggers[0].calls != 0
    }

    /// Adds what was compiled, and the triggers.
    #[cold]
    #[inline(never)]
    fn add_rare(&mut self, add: &StatementFacts) {
        self.jit += add.jit;
        for trigger in &add.triggers {
            self.add_trigger(*trigger);
        }
        self.other.add_calls(&add.other);
    }

    /// Adds the calls of a trigger. If there is no place for it, the one that took the shortest joins the
    /// others.
    pub fn add_trigger(&mut self, mut trigger: TriggerSum) {
        if trigger.calls == 0 {
            return;
        }
        let place = self
            .triggers
            .iter_mut()
            .find(|kept| kept.calls == 0 || kept.oid == trigger.oid);
        if let Some(kept) = place {
            kept.oid = trigger.oid;
            kept.add_calls(&trigger);
            return;
        }
        let shortest = self.triggers.iter_mut().min_by(|a, b| a.ms.total_cmp(&b.ms));
        if let Some(shortest) = shortest.filter(|shortest| shortest.ms < trigger.ms) {
            std::mem::swap(shortest, &mut trigger);
        }
        self.other.add_calls(&trigger);
    }

    /// Returns the triggers that were called. The last one may be the sum of others, whose `oid` is 0.
    pub fn triggers(&self) -> impl Iterator<Item = &TriggerSum> {
        let all = self.triggers.iter().chain(std::iter::once(&self.other));
        all.filter(|trigger| trigger.calls > 0)
    }
}

impl AddAssign<&StatementFacts> for StatementFacts {
    #[inline(always)]
    fn add_assign(&mut self, add: &StatementFacts) {
        self.planning += add.planning;
        // Most have neither.
        if add.has_rare() {
            self.add_rare(add);
        }
    }
}

/// The rows, the blocks and the WAL of a statement, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatementSums {
    /// Rows.
    pub rows: u64,
    /// Blocks. Unknown if only rows were counted.
    pub buffers: Measured<Buffers>,
    /// WAL. Unknown if only rows were counted.
    pub wal: Measured<Wal>,
    /// Triggers, and what was compiled.
    pub facts: StatementFacts,
}

impl AddAssign<&StatementSums> for StatementSums {
    fn add_assign(&mut self, add: &StatementSums) {
        self.rows += add.rows;
        self.buffers += add.buffers;
        self.wal += add.wal;
        self.facts += &add.facts;
    }
}

/// What an execution did outside of its nodes, what it waited for, and what only few nodes have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside<'a> {
    /// What triggers and the output of rows used, and what PostgreSQL knows of it.
    pub sums: StatementSums,
    /// Its waits, in its nodes and outside of them; `None` if there were none.
    pub waits: Option<&'a RunWaits>,
    /// What InitPlans, CTEs and subplans used that its nodes called, with the indices of these nodes.
    pub called: &'a [(usize, Called)],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(oid: u32, calls: u64, ms: f64) -> TriggerSum {
        TriggerSum { oid, calls, ms }
    }

    #[test]
    fn the_triggers_that_take_longest_are_kept() {
        let mut facts = StatementFacts::default();
        facts.add_trigger(trigger(7, 0, 0.0));
        assert_eq!(facts.triggers().count(), 0, "it was not called");
        for oid in 1..=10 {
            facts.add_trigger(trigger(oid, 2, f64::from(oid)));
        }
        facts.add_trigger(trigger(9, 1, 0.5));
        let mut found: Vec<TriggerSum> = facts.triggers().copied().collect();
        assert_eq!(found.pop(), Some(trigger(0, 4, 3.0)), "the two shortest");
        found.sort_by_key(|trigger| trigger.oid);
        assert_eq!(found.len(), 8);
        assert_eq!((found[0], found[6]), (trigger(3, 2, 3.0), trigger(9, 3, 9.5)));
        let mut twice = facts;
        twice += &facts;
        let sum = |facts: &StatementFacts| {
            facts
                .triggers()
                .fold((0, 0.0), |sum, t| (sum.0 + t.calls, sum.1 + t.ms))
        };
        assert_eq!(sum(&facts), (21, 55.5));
        assert_eq!(sum(&twice), (42, 111.0));
        assert_eq!(twice.triggers().count(), 9);
    }
}
