//! How long it takes to get a block: of a relation (`rowsource_logical_io()`), or inside the nodes of plans
//! (`pg_stat_rowsource_logical_io`).

use super::stored::{self, Key, Stored};
use super::wait_names;
use super::words::choose;
use crate::guc;
use crate::instrumentation::auto_clock;
use crate::pg::buffers::{Fork, Get};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, fail};
use crate::pg::waits::refused;
use pgrx::{PgSqlErrorCode, pg_sys};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rowsource_core::clock::measure_costs;
use rowsource_core::details;
use rowsource_core::histogram::HitTime;
use rowsource_core::logical_io::{Bucket, Gets, Summary};
use rowsource_core::model::{Plan, own_io};
use rowsource_core::plan::PlanNode;
use rowsource_core::waits::plan::EventWaits;
use std::fmt::Write;
use std::rc::Rc;

/// The order in which blocks are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// From the first to the last, and then again from the first.
    Sequential,
    /// Each one chosen independently.
    Random,
}

const PATTERNS: [(&str, Pattern); 2] = [("sequential", Pattern::Sequential), ("random", Pattern::Random)];

/// The number of gets between two checks whether the user cancelled.
const CHUNK: usize = 64;

/// Gets blocks of a relation, and adds a row for each bucket of times. `blocks` is the number of gets: by
/// default as many as the fork has blocks. `seed` makes a random pattern repeatable.
pub fn rows(
    rows: &mut Rows,
    relation: pg_sys::Oid,
    fork: Option<&str>,
    blocks: Option<i64>,
    pattern: Option<&str>,
    seed: Option<i64>,
) {
    let pattern = choose("pattern", pattern, &PATTERNS);
    if blocks.is_some_and(|blocks| blocks < 1) {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the number of blocks must be positive",
            "Leave it out to read as many blocks as the relation has.",
        )
    }
    let fork = Fork::open(relation, fork.unwrap_or("main"), pattern == Pattern::Sequential);
    if fork.blocks == 0 {
        return;
    }
    let wanted = blocks.map_or(u64::from(fork.blocks), i64::unsigned_abs);
    let clock = guc::clock_source().unwrap_or_else(auto_clock);
    let (read_clock, scale) = (clock.read_fn(), clock.scale());
    let empty_ns = scale.nanoseconds(measure_costs(clock).empty_interval_ticks);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.map_or_else(read_clock, i64::cast_unsigned));
    let mut number = |i: u64| match pattern {
        Pattern::Sequential => (i % u64::from(fork.blocks)) as u32,
        // The high half of the product is below the number of blocks.
        Pattern::Random => (((random.next_u64() >> 32) * u64::from(fork.blocks)) >> 32) as u32,
    };
    let mut gets = Gets::default();
    let mut done = 0;
    while done < wanted {
        server::check_for_interrupts();
        let count = (wanted - done).min(CHUNK as u64) as usize;
        let (mut chunk, mut results) = ([0; CHUNK], [Get::default(); CHUNK]);
        chunk[..count]
            .iter_mut()
            .zip(done..)
            .for_each(|(block, i)| *block = number(i));
        fork.get(&chunk[..count], read_clock, &mut results[..count]);
        for get in &results[..count] {
            let ns = get.ticks.map_or(0.0, |ticks| scale.nanoseconds(ticks));
            gets.add(ns - empty_ns, get.read);
        }
        done += count as u64;
    }
    add_buckets(rows, &gets, empty_ns);
}

/// Adds the buckets. Each row also has the summaries of all gets.
fn add_buckets(rows: &mut Rows, gets: &Gets, empty_ns: f64) {
    let (hits, reads) = (gets.hits(), gets.reads());
    let columns = bucket_columns();
    for bucket in gets.buckets() {
        let row = BucketRow {
            bucket,
            hits,
            reads,
            empty_ns,
        };
        columns.add(rows, &row);
    }
}

/// The gets of a relation's blocks that took about the same time, and all of them.
pub struct BucketRow {
    bucket: Bucket,
    hits: Option<Summary>,
    reads: Option<Summary>,
    empty_ns: f64,
}

/// The columns of `rowsource_logical_io()`.
pub fn bucket_columns() -> Columns<BucketRow> {
    columns! { |row: &BucketRow|
        /// The lower bound of the bucket, in microseconds
        from_us: float8 = row.bucket.from_us;
        /// The upper bound, in microseconds; NULL if it has none
        to_us: float8 = row.bucket.to_us;
        /// Gets that found the block in a buffer
        hits: bigint = row.bucket.hits;
        /// Gets that had to read the block
        reads: bigint = row.bucket.reads;
        /// Microseconds of the shortest of all hits, without what reading the clock took
        hit_min_us: float8 = row.hits.map(|of| of.min_us);
        /// Microseconds of a hit on average
        hit_mean_us: float8 = row.hits.map(|of| of.mean_us);
        /// Microseconds that half of the hits took at most
        hit_p50_us: float8 = row.hits.map(|of| of.p50_us);
        /// Microseconds that 99 % of the hits took at most
        hit_p99_us: float8 = row.hits.map(|of| of.p99_us);
        /// Microseconds of the longest hit
        hit_max_us: float8 = row.hits.map(|of| of.max_us);
        /// Microseconds of the shortest of all reads, without what reading the clock took
        read_min_us: float8 = row.reads.map(|of| of.min_us);
        /// Microseconds of a read on average
        read_mean_us: float8 = row.reads.map(|of| of.mean_us);
        /// Microseconds that half of the reads took at most
        read_p50_us: float8 = row.reads.map(|of| of.p50_us);
        /// Microseconds that 99 % of the reads took at most
        read_p99_us: float8 = row.reads.map(|of| of.p99_us);
        /// Microseconds of the longest read
        read_max_us: float8 = row.reads.map(|of| of.max_us);
        /// Microseconds that reading the clock took
        timer_us: float8 = row.empty_ns / 1e3;
    }
}

/// The gets of a node in all executions of its plan.
pub struct NodeGets {
    /// The blocks found in buffers, and those that were read.
    blocks: Option<(i64, i64)>,
    hit: Option<HitTime>,
    /// The waits for reads.
    reads: EventWaits,
}

/// Returns the gets of each node of a plan.
pub fn node_gets(plan: &Plan) -> Vec<NodeGets> {
    let nodes = &plan.description.nodes;
    let io = own_io(nodes, &plan.nodes);
    let mut gets: Vec<NodeGets> = (0..nodes.len())
        .map(|i| NodeGets {
            blocks: io.get(i).copied().flatten().map(|own| (own.hit, own.read)),
            hit: plan.nodes.get(i).and_then(|totals| totals.histogram.hits.time()),
            reads: EventWaits::default(),
        })
        .collect();
    for (i, node) in nodes.iter().enumerate() {
        // A call of a node with inputs contains theirs.
        if let Some(above) = node.parent.and_then(|parent| gets.get_mut(parent))
            && !node.operation.starts_with("Bitmap")
        {
            above.hit = None;
        }
        // Calls that remove many rows get more blocks and take longer, but not because of the blocks.
        let total = plan.nodes.get(i).map(|totals| &totals.total);
        let removes_most = total.is_some_and(|total| {
            details::rows_removed(node, &total.facts).is_some_and(|removed| removed > total.rows)
        });
        if removes_most && let Some(gets) = gets.get_mut(i) {
            gets.hit = None;
        }
    }
    for (node, waits) in wait_names::reads(&plan.statistics.waits) {
        if let Some(gets) = gets.get_mut(node) {
            gets.reads = waits;
        }
    }
    gets
}

impl NodeGets {
    /// Returns the mean nanoseconds of a read.
    fn read_ns(&self) -> Option<f64> {
        (self.reads.waits > 0).then(|| self.reads.ns as f64 / self.reads.waits as f64)
    }

    /// Returns what is known of the times, as a line.
    pub fn line(&self) -> Option<String> {
        let mut line = String::new();
        if let Some(hit) = &self.hit {
            let _ = write!(
                line,
                "one hit: {:.3} us (+/- {:.3})",
                hit.ns / 1e3,
                hit.error_ns / 1e3
            );
        }
        if let Some(ns) = self.read_ns() {
            let separator = if line.is_empty() { "" } else { ", " };
            let (waits, max_us) = (self.reads.waits, self.reads.max_ns as f64 / 1e3);
            let _ = write!(
                line,
                "{separator}one read: {:.3} us (mean of {waits}, the longest {max_us:.3} us)",
                ns / 1e3
            );
        }
        (!line.is_empty()).then_some(line)
    }
}

/// Adds the rows of `pg_stat_rowsource_logical_io`: one per node that got blocks.
pub fn node_rows(rows: &mut Rows) {
    let clock = auto_clock();
    let timer_us = clock
        .scale()
        .nanoseconds(measure_costs(clock).empty_interval_ticks)
        / 1e3;
    let columns = node_columns();
    stored::each(|stored| {
        for (node, gets) in node_gets(&stored.plan).into_iter().enumerate() {
            if gets.blocks.is_some_and(|(hits, read)| hits + read > 0) {
                let (key, stored) = (stored.key(), stored.clone());
                columns.add(
                    rows,
                    &NodeRow {
                        key,
                        stored,
                        node,
                        gets,
                        timer_us,
                    },
                );
            }
        }
    });
}

/// The gets of a node of a stored plan.
pub struct NodeRow {
    key: Key,
    stored: Rc<Stored>,
    node: usize,
    gets: NodeGets,
    timer_us: f64,
}

impl NodeRow {
    fn described(&self) -> &PlanNode {
        &self.stored.plan.description.nodes[self.node]
    }

    fn read_us(&self) -> Option<f64> {
        self.gets.read_ns().map(|ns| ns / 1e3)
    }
}

/// The columns of `pg_stat_rowsource_logical_io()`.
pub fn node_columns() -> Columns<NodeRow> {
    let columns = columns! { |row: &NodeRow|
        /// The number of the node, from 0 at the root, in the order of EXPLAIN
        node_id: int = row.node;
        /// What the node does, as EXPLAIN calls it
        operation: text = row.stored.operation(row.described());
        /// The index, table, function or other object that the node works on
        object_name: text = row.stored.object_name(row.described());
        /// Blocks that the node itself found in buffers
        hits: bigint = row.gets.blocks.map(|(hits, _)| hits);
        /// Microseconds by which a sampled call is longer for each block that it finds in a buffer: the get,
        /// and what the node does once per block. NULL where that cannot be told: few sampled calls got no
        /// block or got one, the node has inputs, its filter removes most rows, or the error is larger than
        /// the time
        hit_us: float8 = row.gets.hit.as_ref().map(|hit| hit.ns / 1e3);
        /// One standard error of hit_us, in microseconds
        hit_error_us: float8 = row.gets.hit.as_ref().map(|hit| hit.error_ns / 1e3);
        /// Blocks that the node itself read
        self_blks_read: bigint = row.gets.blocks.map(|(_, read)| read);
        /// The waits for these reads. From 17 on, a read may be of several blocks. From 18 on, another
        /// process may read ahead, so that there is nothing to wait for. NULL if waits are not counted
        reads: bigint = refused().is_none().then_some(row.gets.reads.waits);
        /// Microseconds of such a wait on average
        read_us: float8 = row.read_us();
        /// Microseconds that reading the clock adds to each wait at most
        read_error_us: float8 = row.read_us().map(|_| row.timer_us);
        /// Microseconds of the longest wait
        read_max_us: float8 = row.read_us().map(|_| row.gets.reads.max_ns as f64 / 1e3);
    };
    Columns::new()
        .with(stored::key_columns(), |row: &NodeRow| &row.key)
        .and(columns)
}
