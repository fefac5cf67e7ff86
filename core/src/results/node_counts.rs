//! What one node counted.

use super::sample::{Nodes, TimedCalls};
use super::shape::Shape;
use crate::model::facts::{SIMPLE_SUMS, SimpleFacts};
use crate::model::{Estimate, NodeKind};

/// Why an execution has no counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// It may have done more than to hit and change shared buffers, or the clock went back.
    Now,
    /// No execution of the plan has counts.
    Always,
}

/// The ticks of a node whose time must be estimated, or taken from core.
pub(super) const UNKNOWN_TICKS: f64 = -1.0;

/// What one node counted, in one execution or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct NodeCounts {
    pub(super) starts: u64,
    pub(super) rows: u64,
    pub(super) timed_calls: u64,
    pub(super) ticks: f64,
    pub(super) startup_ticks: f64,
    pub(super) shared_hit: i64,
    /// The sums of its facts.
    pub(super) sums: [u64; SIMPLE_SUMS],
    /// The estimate of an execution. It is not summed up: nobody reads that of sums.
    pub(super) estimate: Estimate,
    pub(super) kind: NodeKind,
}

impl NodeCounts {
    /// Takes those of a node, as far as they are no extras. Returns whether it may have extras. If there are
    /// none, the value is not valid.
    #[inline(always)]
    pub(super) fn take<N: Nodes>(&mut self, nodes: &N, i: usize, shape: &Shape) -> Result<bool, Uncounted> {
        let Some(sample) = nodes.simple(i) else {
            return self.take_by_core(nodes, i, shape);
        };
        let mut has_extras = sample.has_changes;
        let (ticks, startup_ticks, timed_calls) = match sample.timed {
            TimedCalls::All(time) if shape.is_timed() => time,
            TimedCalls::None if !shape.is_timed() => (0.0, 0.0, 0),
            TimedCalls::Some if shape.is_timed() => {
                has_extras = true;
                (UNKNOWN_TICKS, 0.0, 0)
            }
            _ => return Err(Uncounted::Always),
        };
        let Some(SimpleFacts { kind, sums }) = nodes.simple_facts(i) else {
            return Err(Uncounted::Always);
        };
        // Nothing is written before, so that what both of them read is read once.
        (self.ticks, self.startup_ticks, self.timed_calls) = (ticks, startup_ticks, timed_calls);
        (self.kind, self.sums) = (kind, sums);
        (self.starts, self.rows) = (sample.starts, sample.rows);
        (self.shared_hit, self.estimate) = (sample.shared_hit, sample.estimate);
        Ok(has_extras)
    }

    /// Takes those of a node that is not simple, if that is because only core measures it.
    #[inline(never)]
    fn take_by_core<N: Nodes>(&mut self, nodes: &N, i: usize, shape: &Shape) -> Result<bool, Uncounted> {
        let sample = nodes.sample(i);
        if !shape.is_by_core(i) || !sample.is_instrumented {
            return Err(Uncounted::Now);
        }
        let Some(SimpleFacts { kind, sums }) = nodes.simple_facts(i) else {
            return Err(Uncounted::Always);
        };
        *self = NodeCounts {
            starts: sample.starts(None) as i64 as u64,
            rows: sample.rows(None),
            sums,
            kind,
            ticks: UNKNOWN_TICKS,
            estimate: sample.estimate,
            ..NodeCounts::default()
        };
        Ok(true)
    }

    /// Returns the counts of an Append whose only child has these: it takes nothing itself. What only core
    /// measures is not added to it, so it has that already.
    pub(super) fn appended(self, is_by_core: bool) -> NodeCounts {
        NodeCounts {
            timed_calls: 0,
            shared_hit: if is_by_core { self.shared_hit } else { 0 },
            sums: Default::default(),
            kind: NodeKind::Append,
            ..self
        }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, node: &NodeCounts) {
        self.starts += node.starts;
        self.rows += node.rows;
        self.timed_calls += node.timed_calls;
        self.ticks += node.ticks;
        self.startup_ticks += node.startup_ticks;
        self.shared_hit += node.shared_hit;
        for (sum, count) in self.sums.iter_mut().zip(node.sums) {
            *sum += count;
        }
        if node.kind != NodeKind::Other {
            self.kind = node.kind;
        }
    }
}
