//! The figures of one plan node, as they are kept, summed and displayed.

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, SubAssign};

/// A figure that may not have been measured. It is zero then, so that sums need not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
pub struct Measured<T> {
    known: bool,
    value: T,
}

impl<T: Copy> Measured<T> {
    /// The figure; `None` where it was not measured.
    #[inline(always)]
    pub fn get(&self) -> Option<T> {
        self.known.then_some(self.value)
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.known.then_some(&mut self.value)
    }
}

impl<T> From<T> for Measured<T> {
    #[inline(always)]
    fn from(value: T) -> Self {
        Measured { known: true, value }
    }
}

impl<T: Default> From<Option<T>> for Measured<T> {
    #[inline(always)]
    fn from(value: Option<T>) -> Self {
        Measured {
            known: value.is_some(),
            value: value.unwrap_or_default(),
        }
    }
}

impl<T: AddAssign> AddAssign for Measured<T> {
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        self.known |= add.known;
        self.value += add.value;
    }
}

impl Measured<u64> {
    /// Keeps the larger of two.
    #[inline(always)]
    fn raise_to(&mut self, other: Self) {
        self.known |= other.known;
        self.value = self.value.max(other.value);
    }
}

/// Blocks touched, inclusive of the node's children. Counts are blocks of the server's block size.
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
    /// Milliseconds reading temporary-table blocks (PostgreSQL 17 and newer; before that they are in `shared_read_ms`).
    pub local_read_ms: f64,
    /// Milliseconds writing temporary-table blocks (PostgreSQL 17 and newer).
    pub local_write_ms: f64,
    /// Milliseconds reading work-file blocks; zero unless `track_io_timing`.
    pub temp_read_ms: f64,
    /// Milliseconds writing work-file blocks; zero unless `track_io_timing`.
    pub temp_write_ms: f64,
}

/// WAL generated, inclusive of the node's children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wal {
    /// Records.
    pub records: i64,
    /// Full page images.
    pub fpi: i64,
    /// Bytes.
    pub bytes: u64,
}

/// The time of a node, where it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Milliseconds in the node and all below it.
    pub total_ms: f64,
    /// Milliseconds until the first row of each start, summed over the starts.
    pub startup_ms: f64,
    /// Milliseconds in the node alone.
    pub self_ms: f64,
    /// One standard error of `total_ms`, in milliseconds; zero where every call was timed.
    pub error_ms: f64,
}

/// Everything known of one plan node after one execution, or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Starts (EXPLAIN's loops, summed over parallel processes); not where only rows were counted.
    pub starts: Measured<u64>,
    /// Rows returned over all starts.
    pub rows: u64,
    /// Time; not where the node was not timed.
    pub time: Measured<Time>,
    /// Blocks; not where only rows were counted.
    pub buffers: Measured<Buffers>,
    /// WAL; not where only rows were counted.
    pub wal: Measured<Wal>,
    /// Calls whose time was taken.
    pub timed_calls: u64,
    /// Clock readings made for this node.
    pub timer_calls: u64,
    /// Clock readings smaller than the one before them.
    pub clock_backsteps: u64,
    /// Peak working memory in kB, where PostgreSQL knows it (sort, hash, aggregate, memoize).
    pub memory_kb: Measured<u64>,
    /// Peak disk space of the work area in kB, where PostgreSQL knows it.
    pub disk_kb: Measured<u64>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ran to its end, or its cursor was closed.
    #[default]
    Completed,
    /// An error ended it; the figures are those reached by then.
    Failed,
    /// A cancel request or a timeout ended it; the figures are those reached by then.
    Cancelled,
}

/// The spread of a plan's execution times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Executions.
    pub calls: u64,
    /// Their sum.
    pub total_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Their mean.
    pub mean_ms: f64,
    /// Sum of squared differences from the mean (Welford's algorithm).
    square_ms: f64,
}

impl Times {
    /// Adds one execution.
    pub fn add(&mut self, ms: f64) {
        self.min_ms = if self.calls == 0 { ms } else { self.min_ms.min(ms) };
        self.max_ms = self.max_ms.max(ms);
        self.calls += 1;
        self.total_ms += ms;
        let difference = ms - self.mean_ms;
        self.mean_ms += difference / self.calls as f64;
        self.square_ms += difference * (ms - self.mean_ms);
    }

    /// Adds executions counted apart (the parallel form of Welford's algorithm, by Chan and others).
    pub fn merge(&mut self, other: &Times) {
        if self.calls == 0 {
            *self = *other;
            return;
        }
        if other.calls == 0 {
            return;
        }
        let (ours, theirs) = (self.calls as f64, other.calls as f64);
        let difference = other.mean_ms - self.mean_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
        self.calls += other.calls;
        self.total_ms += other.total_ms;
        self.mean_ms += difference * theirs / (ours + theirs);
        self.square_ms += other.square_ms + difference * difference * ours * theirs / (ours + theirs);
    }

    /// The population's standard deviation, as in pg_stat_statements.
    pub fn stddev_ms(&self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        (self.square_ms / self.calls as f64).sqrt()
    }
}

macro_rules! add_assign_fields {
    ($type:ty, $($field:ident),+) => {
        impl AddAssign for $type {
            #[inline(always)]
            fn add_assign(&mut self, add: Self) {
                $(self.$field += add.$field;)+
            }
        }
        impl SubAssign for $type {
            fn sub_assign(&mut self, sub: Self) {
                $(self.$field -= sub.$field;)+
            }
        }
    };
}

add_assign_fields!(
    Buffers,
    shared_hit,
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
);
add_assign_fields!(Wal, records, fpi, bytes);

impl AddAssign for Time {
    /// Standard errors of independent executions add as squares.
    #[inline(always)]
    fn add_assign(&mut self, add: Self) {
        self.total_ms += add.total_ms;
        self.startup_ms += add.startup_ms;
        self.self_ms += add.self_ms;
        self.error_ms = (self.error_ms * self.error_ms + add.error_ms * add.error_ms).sqrt();
    }
}

impl NodeFigures {
    /// Adds what an input used to what the node used by itself.
    pub fn use_also(&mut self, input: &NodeFigures) {
        self.buffers += input.buffers;
        self.wal += input.wal;
    }

    /// Adds one execution to a total; memory and disk keep the largest value seen.
    #[inline(always)]
    pub fn add(&mut self, execution: &NodeFigures) {
        self.starts += execution.starts;
        self.rows += execution.rows;
        self.time += execution.time;
        self.buffers += execution.buffers;
        self.wal += execution.wal;
        self.timed_calls += execution.timed_calls;
        self.timer_calls += execution.timer_calls;
        self.clock_backsteps += execution.clock_backsteps;
        self.memory_kb.raise_to(execution.memory_kb);
        self.disk_kb.raise_to(execution.disk_kb);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_times() {
        let mut times = Times::default();
        assert_eq!(times.stddev_ms(), 0.0);
        for ms in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            times.add(ms);
        }
        assert_eq!((times.calls, times.total_ms), (8, 40.0));
        assert_eq!((times.min_ms, times.max_ms, times.mean_ms), (2.0, 9.0, 5.0));
        assert!((times.stddev_ms() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn spread_of_times_counted_apart() {
        let all = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let of = |part: &[f64]| {
            let mut times = Times::default();
            part.iter().for_each(|ms| times.add(*ms));
            times
        };
        for at in 0..=all.len() {
            let mut merged = of(&all[..at]);
            merged.merge(&of(&all[at..]));
            assert_eq!((merged.calls, merged.total_ms), (8, 40.0));
            assert_eq!((merged.min_ms, merged.max_ms), (2.0, 9.0));
            assert!((merged.mean_ms - 5.0).abs() < 1e-12, "{at}");
            assert!((merged.stddev_ms() - 2.0).abs() < 1e-12, "{at}");
        }
    }

    #[test]
    fn totals_add_up_and_keep_the_peak() {
        let execution = NodeFigures {
            starts: 2.into(),
            rows: 10,
            time: Time {
                total_ms: 3.0,
                error_ms: 3.0,
                ..Time::default()
            }
            .into(),
            memory_kb: 64.into(),
            ..NodeFigures::default()
        };
        let mut total = NodeFigures::default();
        total.add(&execution);
        total.add(&NodeFigures {
            memory_kb: 32.into(),
            time: Time {
                total_ms: 4.0,
                error_ms: 4.0,
                ..Time::default()
            }
            .into(),
            ..execution
        });
        assert_eq!(
            (total.starts.get(), total.rows, total.memory_kb.get()),
            (Some(4), 20, Some(64))
        );
        let time = total.time.get().expect("timed");
        assert_eq!((time.total_ms, time.error_ms), (7.0, 5.0));
        assert_eq!((total.buffers.get(), total.disk_kb.get()), (None, None));
    }
}
