//! The figures of one plan node, as they are kept, summed and displayed.

/// Blocks touched, inclusive of the node's children. Counts are blocks of the server's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wal {
    /// Records.
    pub records: i64,
    /// Full page images.
    pub fpi: i64,
    /// Bytes.
    pub bytes: u64,
}

/// The time of a node, where it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFigures {
    /// Starts (EXPLAIN's loops, summed over parallel processes); `None` where only rows were counted.
    pub starts: Option<u64>,
    /// Rows returned over all starts.
    pub rows: u64,
    /// Time; `None` where the node was not timed (never zero for that reason).
    pub time: Option<Time>,
    /// Blocks; `None` where only rows were counted.
    pub buffers: Option<Buffers>,
    /// WAL; `None` where only rows were counted.
    pub wal: Option<Wal>,
    /// Calls whose time was taken.
    pub timed_calls: u64,
    /// Clock readings made for this node.
    pub timer_calls: u64,
    /// Clock readings smaller than the one before them.
    pub clock_backsteps: u64,
    /// Peak working memory in kB, where PostgreSQL knows it (sort, hash, aggregate, memoize).
    pub memory_kb: Option<u64>,
    /// Peak disk space of the work area in kB, where PostgreSQL knows it.
    pub disk_kb: Option<u64>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end, or its cursor was closed.
    #[default]
    Completed,
    /// An error ended it; the figures are those reached by then.
    Failed,
    /// A cancel request or a timeout ended it; the figures are those reached by then.
    Cancelled,
}

fn add_option<T: std::ops::AddAssign + Copy>(sum: &mut Option<T>, add: Option<T>) {
    match (sum.as_mut(), add) {
        (Some(sum), Some(add)) => *sum += add,
        (None, Some(_)) => *sum = add,
        _ => {}
    }
}

macro_rules! add_assign_fields {
    ($type:ty, $($field:ident),+) => {
        impl std::ops::AddAssign for $type {
            fn add_assign(&mut self, add: Self) {
                $(self.$field += add.$field;)+
            }
        }
        impl std::ops::SubAssign for $type {
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

impl std::ops::AddAssign for Time {
    /// Standard errors of independent executions add as squares.
    fn add_assign(&mut self, add: Self) {
        self.total_ms += add.total_ms;
        self.startup_ms += add.startup_ms;
        self.self_ms += add.self_ms;
        self.error_ms = self.error_ms.hypot(add.error_ms);
    }
}

impl NodeFigures {
    /// Adds one execution to a total; memory and disk keep the largest value seen.
    pub fn add(&mut self, execution: &NodeFigures) {
        add_option(&mut self.starts, execution.starts);
        self.rows += execution.rows;
        add_option(&mut self.time, execution.time);
        add_option(&mut self.buffers, execution.buffers);
        add_option(&mut self.wal, execution.wal);
        self.timed_calls += execution.timed_calls;
        self.timer_calls += execution.timer_calls;
        self.clock_backsteps += execution.clock_backsteps;
        self.memory_kb = self.memory_kb.max(execution.memory_kb);
        self.disk_kb = self.disk_kb.max(execution.disk_kb);
    }
}
