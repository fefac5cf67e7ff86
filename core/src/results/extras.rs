//! What the nodes of some executions counted besides what all count: blocks that they changed, WAL, and the
//! errors of estimated times. It is apart, so that executions without it need not add it.

use super::node_counts::{NodeCounts, UNKNOWN_TICKS, Uncounted};
use super::sample::{Calls, CoreSample, Nodes};
use super::shape::{MAX_NODES, Shape};
use crate::model::{Buffers, Wal};
use crate::sampler::{Estimate, NodeTimer};

/// The extras of one node, in one execution or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Extras {
    pub shared_dirtied: i64,
    pub wal: Wal,
    /// The square of the standard error of its time, in ticks.
    pub error_squared: f64,
    /// The timed calls before which the clock was not read.
    pub detected_calls: u64,
}

/// The extras of the nodes of one execution, or of several.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NodeExtras {
    /// Without any, those of the nodes are not valid.
    pub has_any: bool,
    of_nodes: [Extras; MAX_NODES],
}

impl NodeExtras {
    /// Takes those of an execution, and the counts of its nodes that come from an estimate or from core. If
    /// there are none, the values are not valid.
    #[inline(never)]
    pub fn take<N: Nodes>(
        &mut self,
        nodes: &N,
        shape: &Shape,
        counts: &mut [NodeCounts],
    ) -> Result<(), Uncounted> {
        self.has_any = true;
        for (i, (extras, counts)) in self.of_nodes.iter_mut().zip(&mut *counts).enumerate() {
            let (shared_dirtied, wal) = nodes.changes(i);
            *extras = Extras {
                shared_dirtied,
                wal,
                ..Extras::default()
            };
            if counts.ticks == UNKNOWN_TICKS {
                extras.complete(nodes, i, shape, counts)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub fn copy_from(&mut self, other: &NodeExtras, count: usize) {
        self.has_any = other.has_any;
        if other.has_any {
            for (node, other) in self.of_nodes.iter_mut().zip(&other.of_nodes).take(count) {
                *node = *other;
            }
        }
    }

    #[inline(never)]
    pub fn add(&mut self, other: &NodeExtras, count: usize) {
        if !self.has_any {
            self.copy_from(other, count);
        } else if other.has_any {
            for (node, other) in self.of_nodes.iter_mut().zip(&other.of_nodes).take(count) {
                node.add(other);
            }
        }
    }

    /// Adds those of one node.
    pub fn add_one(&mut self, at: usize, other: &Extras) {
        if let Some(node) = self.of_nodes.get_mut(at) {
            node.add(other);
        }
    }

    /// Makes those of a node those of an Append that has only `below` below it.
    pub fn append(&mut self, made: usize, below: usize, is_by_core: bool) {
        let child = self.of(below);
        self.of_nodes[made] = Extras {
            shared_dirtied: if is_by_core { child.shared_dirtied } else { 0 },
            wal: if is_by_core { child.wal } else { Wal::default() },
            detected_calls: 0,
            ..child
        };
    }

    /// Returns those of a node.
    pub fn of(&self, i: usize) -> Extras {
        let extras = self.has_any.then(|| self.of_nodes.get(i).copied());
        extras.flatten().unwrap_or_default()
    }
}

impl Extras {
    #[inline(always)]
    fn add(&mut self, other: &Extras) {
        self.shared_dirtied += other.shared_dirtied;
        self.wal += other.wal;
        self.error_squared += other.error_squared;
        self.detected_calls += other.detected_calls;
    }

    /// Takes what core measured of a node that only it calls, or estimates the time of another one. It
    /// collects the sample again, so that its caller copies only what it uses.
    #[inline(never)]
    fn complete<N: Nodes>(
        &mut self,
        nodes: &N,
        i: usize,
        shape: &Shape,
        counts: &mut NodeCounts,
    ) -> Result<(), Uncounted> {
        if shape.is_by_core(i) {
            return self.take_from_core(&nodes.core(i), shape, counts);
        }
        let sample = nodes.sample(i);
        match &sample.calls {
            // What it takes itself may have to be raised, at the cost of others.
            Calls::Sampled(_) if sample.waited_ns > 0 => Err(Uncounted::Now),
            Calls::Sampled(timer) => self.estimate(timer, sample.starts(None), counts),
            _ => Err(Uncounted::Always),
        }
    }

    fn take_from_core(
        &mut self,
        core: &CoreSample,
        shape: &Shape,
        counts: &mut NodeCounts,
    ) -> Result<(), Uncounted> {
        let buffers = core.buffers.get_or_zero();
        let others = Buffers {
            shared_hit: 0,
            shared_dirtied: 0,
            ..buffers
        };
        if core.is_interrupted || others != Buffers::default() {
            return Err(Uncounted::Now);
        }
        counts.shared_hit = buffers.shared_hit;
        (self.shared_dirtied, self.wal) = (buffers.shared_dirtied, core.wal.get_or_zero());
        (counts.ticks, counts.startup_ticks) = match shape.tick_ns() {
            Some(tick_ns) => (core.total_ns / tick_ns, core.startup_ns / tick_ns),
            None => (0.0, 0.0),
        };
        Ok(())
    }

    fn estimate(&mut self, timer: &NodeTimer, starts: f64, counts: &mut NodeCounts) -> Result<(), Uncounted> {
        if timer.clock_backsteps != 0 {
            return Err(Uncounted::Now);
        }
        let Estimate {
            total,
            startup,
            error,
        } = timer.estimate(starts, None);
        (counts.ticks, counts.startup_ticks) = (total, startup);
        counts.timed_calls = timer.timed_calls;
        self.error_squared = error * error;
        self.detected_calls = 2 * timer.timed_calls - timer.timer_calls();
        Ok(())
    }
}
