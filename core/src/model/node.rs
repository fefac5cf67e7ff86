//! The statistics of one plan node.

use super::estimates::{Estimate, Estimates};
use super::facts::NodeFacts;
use super::histogram::HistogramTotals;
use super::measured::Measured;
use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, SubAssign};

/// The blocks that a node and its children used. Counts are blocks of the server's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Buffers {
    /// Shared blocks found in shared buffers.
    pub shared_hit: i64,
    /// Shared blocks read.
    pub shared_read: i64,
    /// Shared blocks dirtied.
    pub shared_dirtied: i64,
    /// Shared blocks written by this backend.
    pub shared_written: i64,
    /// Blocks of temporary tables found in local buffers.
    pub local_hit: i64,
    /// Blocks of temporary tables read.
    pub local_read: i64,
    /// Blocks of temporary tables dirtied.
    pub local_dirtied: i64,
    /// Blocks of temporary tables written.
    pub local_written: i64,
    /// Work-file blocks read (sorts, hashes, materialised results).
    pub temp_read: i64,
    /// Work-file blocks written.
    pub temp_written: i64,
    /// Milliseconds reading data-file blocks; zero unless `track_io_timing`.
    pub shared_read_ms: f64,
    /// Milliseconds writing data-file blocks; zero unless `track_io_timing`.
    pub shared_write_ms: f64,
    /// Milliseconds reading temporary-table blocks (PostgreSQL 17 and newer; older versions add them to
    /// `shared_read_ms`).
    pub local_read_ms: f64,
    /// Milliseconds writing temporary-table blocks (PostgreSQL 17 and newer).
    pub local_write_ms: f64,
    /// Milliseconds reading work-file blocks; zero unless `track_io_timing`.
    pub temp_read_ms: f64,
    /// Milliseconds writing work-file blocks; zero unless `track_io_timing`.
    pub temp_write_ms: f64,
}

impl Buffers {
    /// Returns the blocks that were got from the buffers, those that were read for it included. Work files
    /// have no buffers.
    pub fn gets(&self) -> i64 {
        self.shared_hit + self.shared_read + self.local_hit + self.local_read
    }
}

/// The WAL that a node and its children generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wal {
    /// The number of records.
    pub records: i64,
    /// The number of full page images.
    pub fpi: i64,
    /// The number of bytes.
    pub bytes: u64,
    /// The part of them that is full page images. PostgreSQL counts it from 19 on.
    pub fpi_bytes: u64,
    /// How often the WAL buffers were full. PostgreSQL counts it from 18 on.
    pub buffers_full: i64,
}

/// The requests that a node made itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnIo {
    /// Blocks of tables, indexes and temporary tables found in buffers.
    pub hit: i64,
    /// Blocks of tables, indexes and temporary tables read.
    pub read: i64,
    /// Milliseconds reading them.
    pub read_ms: f64,
    /// Work-file blocks read.
    pub temp_read: i64,
    /// Work-file blocks written.
    pub temp_written: i64,
    /// Milliseconds reading and writing work-file blocks.
    pub temp_ms: f64,
}

/// What the InitPlans, CTEs and subplans used that a node called. The node's blocks and WAL include it, as in
/// EXPLAIN. But each of them is shown below one node only, and another one may have called it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Their requests.
    pub io: OwnIo,
    /// Their WAL.
    pub wal: Wal,
}

/// The number of words in [`Called::to_words`].
pub const CALLED_WORDS: usize = 11;

const NS_PER_MS: f64 = 1e6;

impl Called {
    /// Returns the part of blocks and WAL that is kept.
    pub fn of(buffers: &Buffers, wal: &Wal) -> Self {
        Called {
            io: OwnIo::of(buffers),
            wal: *wal,
        }
    }

    /// Returns it as numbers that can be added by themselves. Times are nanoseconds.
    pub fn to_words(&self) -> [u64; CALLED_WORDS] {
        let Called { io, wal } = self;
        [
            io.hit as u64,
            io.read as u64,
            (io.read_ms * NS_PER_MS).round() as u64,
            io.temp_read as u64,
            io.temp_written as u64,
            (io.temp_ms * NS_PER_MS).round() as u64,
            wal.records as u64,
            wal.fpi as u64,
            wal.bytes,
            wal.fpi_bytes,
            wal.buffers_full as u64,
        ]
    }

    /// Returns what [`Called::to_words`] has made numbers of.
    pub fn from_words(words: [u64; CALLED_WORDS]) -> Self {
        Called {
            io: OwnIo {
                hit: words[0] as i64,
                read: words[1] as i64,
                read_ms: words[2] as f64 / NS_PER_MS,
                temp_read: words[3] as i64,
                temp_written: words[4] as i64,
                temp_ms: words[5] as f64 / NS_PER_MS,
            },
            wal: Wal {
                records: words[6] as i64,
                fpi: words[7] as i64,
                bytes: words[8],
                fpi_bytes: words[9],
                buffers_full: words[10] as i64,
            },
        }
    }
}

impl AddAssign for Called {
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        // Most nodes call none.
        if !add.is_none() {
            self.add(&add);
        }
    }
}

impl Called {
    /// Returns whether it is nothing. Times are zero if blocks are.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        let Called { io, wal } = self;
        io.hit | io.read | io.temp_read | io.temp_written | wal.records == 0
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, add: &Called) {
        self.io.hit += add.io.hit;
        self.io.read += add.io.read;
        self.io.read_ms += add.io.read_ms;
        self.io.temp_read += add.io.temp_read;
        self.io.temp_written += add.io.temp_written;
        self.io.temp_ms += add.io.temp_ms;
        self.wal += add.wal;
    }
}

impl OwnIo {
    pub(super) fn of(buffers: &Buffers) -> Self {
        OwnIo {
            hit: buffers.shared_hit + buffers.local_hit,
            read: buffers.shared_read + buffers.local_read,
            read_ms: buffers.shared_read_ms + buffers.local_read_ms,
            temp_read: buffers.temp_read,
            temp_written: buffers.temp_written,
            temp_ms: buffers.temp_read_ms + buffers.temp_write_ms,
        }
    }

    /// Returns the figures, in the order of the fields.
    pub(super) fn to_array(self) -> [f64; 6] {
        [
            self.hit as f64,
            self.read as f64,
            self.read_ms,
            self.temp_read as f64,
            self.temp_written as f64,
            self.temp_ms,
        ]
    }

    /// Returns what [`OwnIo::to_array`] has made an array of.
    pub(super) fn from_array(figures: [f64; 6]) -> Self {
        let [hit, read, read_ms, temp_read, temp_written, temp_ms] = figures;
        OwnIo {
            hit: hit as i64,
            read: read as i64,
            read_ms,
            temp_read: temp_read as i64,
            temp_written: temp_written as i64,
            temp_ms,
        }
    }
}

/// The time of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Milliseconds in the node and all below it.
    pub total_ms: f64,
    /// Milliseconds until the first row of each start, summed over the starts.
    pub startup_ms: f64,
    /// Milliseconds in the node alone.
    pub self_ms: f64,
    /// One standard error of `total_ms`, in milliseconds. Zero if every call was timed.
    pub error_ms: f64,
}

/// The statistics of one plan node, of one execution or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStats {
    /// Starts (EXPLAIN's loops, summed over parallel processes). Unknown if only rows were counted.
    pub starts: Measured<u64>,
    /// Rows returned over all starts.
    pub rows: u64,
    /// Time. Unknown if the node was not timed.
    pub time: Measured<Time>,
    /// Blocks. Unknown if only rows were counted.
    pub buffers: Measured<Buffers>,
    /// WAL. Unknown if only rows were counted.
    pub wal: Measured<Wal>,
    /// The number of timed calls.
    pub timed_calls: u64,
    /// Clock readings made for this node.
    pub timer_calls: u64,
    /// Clock readings smaller than the one before them.
    pub clock_backsteps: u64,
    /// Milliseconds that the node itself waited, in all processes.
    pub wait_ms: f64,
    /// What PostgreSQL knows of the node.
    pub facts: NodeFacts,
    /// How many rows the planner expected in one execution. Those of several are summed up in
    /// [`NodeTotals::estimates`].
    pub estimate: Estimate,
}

/// A number that is zero if all of its bits are.
trait Bits {
    fn bits(self) -> u64;
}

impl Bits for i64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self as u64
    }
}

impl Bits for u64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }
}

impl Bits for f64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Sums up all fields. Those of `rare` are added only if one of them is not zero: to find that out costs
/// less.
macro_rules! add_assign_fields {
    ($type:ty, usual: [$($usual:ident),*], rare: [$($rare:ident),+]) => {
        impl AddAssign for $type {
            #[inline(always)]
            fn add_assign(&mut self, add: Self) {
                $(self.$usual += add.$usual;)*
                if 0 $(| add.$rare.bits())+ != 0 {
                    $(self.$rare += add.$rare;)+
                }
            }
        }
        impl SubAssign for $type {
            fn sub_assign(&mut self, sub: Self) {
                $(self.$usual -= sub.$usual;)*
                $(self.$rare -= sub.$rare;)+
            }
        }
        impl $type {
            /// Raises each figure to that of `least` if it is below.
            fn raise_to(&mut self, least: &Self) {
                $(self.$usual = self.$usual.max(least.$usual);)*
                $(self.$rare = self.$rare.max(least.$rare);)+
            }
        }
    };
}

add_assign_fields!(
    Buffers,
    usual: [shared_hit],
    rare: [
        shared_read,
        shared_dirtied,
        shared_written,
        local_hit,
        local_read,
        local_dirtied,
        local_written,
        temp_read,
        temp_written,
        shared_read_ms,
        shared_write_ms,
        local_read_ms,
        local_write_ms,
        temp_read_ms,
        temp_write_ms
    ]
);
add_assign_fields!(Wal, usual: [], rare: [records, fpi, bytes, fpi_bytes, buffers_full]);

impl AddAssign for Time {
    /// Adds the standard errors as squares, because executions are independent.
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        self.total_ms += add.total_ms;
        self.startup_ms += add.startup_ms;
        self.self_ms += add.self_ms;
        self.error_ms = (self.error_ms * self.error_ms + add.error_ms * add.error_ms).sqrt();
    }
}

impl NodeStats {
    /// Adds the blocks and the WAL of an input to those of the node.
    pub fn use_also(&mut self, input: &NodeStats) {
        self.buffers += input.buffers;
        self.wal += input.wal;
    }

    /// Raises what it used to what its inputs used, if it is less.
    pub fn raise_usage_to(&mut self, inputs: &NodeStats) {
        if let (Some(buffers), Some(least)) = (self.buffers.get_mut(), inputs.buffers.get()) {
            buffers.raise_to(&least);
        }
        if let (Some(wal), Some(least)) = (self.wal.get_mut(), inputs.wal.get()) {
            wal.raise_to(&least);
        }
    }

    /// Adds one execution to a total.
    #[inline(always)]
    pub fn add(&mut self, execution: &NodeStats) {
        self.starts += execution.starts;
        self.rows += execution.rows;
        self.time += execution.time;
        self.buffers += execution.buffers;
        self.wal += execution.wal;
        self.timed_calls += execution.timed_calls;
        self.timer_calls += execution.timer_calls;
        self.clock_backsteps += execution.clock_backsteps;
        self.wait_ms += execution.wait_ms;
        self.facts.add(&execution.facts);
    }
}

/// The statistics of one node over all executions of its plan.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct NodeTotals {
    /// The sum over all executions.
    pub total: NodeStats,
    /// The last execution.
    pub last: NodeStats,
    /// The part of `total`'s blocks and WAL that is of InitPlans, CTEs and subplans that the node called.
    pub called: Called,
    /// The estimates of all executions that say something about them.
    pub estimates: Estimates,
    /// How long the timed calls of all executions took.
    pub histogram: HistogramTotals,
}

impl NodeTotals {
    /// Adds an execution.
    #[inline(always)]
    pub fn add(&mut self, stats: &NodeStats, histogram: &Histogram) {
        // This comes before the copy: else the compiler copies twice.
        self.estimates
            .add(&stats.estimate, stats.starts.get_or_zero(), stats.rows);
        self.total.add(stats);
        self.last = *stats;
        self.histogram.add(histogram);
    }

    /// Adds executions that were counted separately. `newer` means that they include the last execution of
    /// all.
    pub fn merge(&mut self, other: &NodeTotals, newer: bool) {
        self.total.add(&other.total);
        self.called += other.called;
        if newer {
            self.last = other.last;
        }
        self.estimates.merge(&other.estimates);
        self.histogram.merge(&other.histogram);
    }

    /// Returns the sum over all executions, with the mean of their estimates. If no execution says something
    /// about the estimate, it is that of the last one.
    pub fn sum(&self) -> NodeStats {
        let plan_rows = self.estimates.rows_per_start();
        NodeStats {
            estimate: Estimate::new(
                plan_rows.unwrap_or(f64::from(self.last.estimate.plan_rows)),
                plan_rows.is_some(),
            ),
            ..self.total
        }
    }

    /// Deletes the sums of all executions. `last` stays until the next execution.
    pub fn clear(&mut self) {
        self.total = NodeStats::default();
        self.called = Called::default();
        self.estimates = Estimates::default();
        self.histogram.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeKind;

    fn memory(kb: u32) -> NodeFacts {
        NodeFacts {
            kind: NodeKind::Sort,
            memory_kb: kb.into(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn what_was_called_passes_through_words() {
        let words = std::array::from_fn(|i| i as u64 + 1);
        let mut called = Called::from_words(words);
        assert_eq!(called.to_words(), words);
        called += called;
        assert_eq!(called.to_words(), words.map(|word| 2 * word));
    }

    #[test]
    fn totals_add_up_and_keep_the_peak() {
        let execution = NodeStats {
            starts: 2.into(),
            rows: 10,
            time: Time {
                total_ms: 3.0,
                error_ms: 3.0,
                ..Time::default()
            }
            .into(),
            facts: memory(64),
            ..NodeStats::default()
        };
        let mut total = NodeStats::default();
        total.add(&execution);
        total.add(&NodeStats {
            facts: memory(32),
            time: Time {
                total_ms: 4.0,
                error_ms: 4.0,
                ..Time::default()
            }
            .into(),
            ..execution
        });
        assert_eq!(
            (total.starts.get(), total.rows, total.facts.memory_kb.get()),
            (Some(4), 20, Some(64))
        );
        let time = total.time.get().expect("timed");
        assert_eq!((time.total_ms, time.error_ms), (7.0, 5.0));
        assert_eq!((total.buffers.get(), total.facts.disk_kb.get()), (None, None));
    }
}
