//! `rowsource_logical_io()`: how long it takes to get a block of a relation.

use super::words::choose;
use crate::guc;
use crate::instrumentation::auto_clock;
use crate::pg::buffers::{Fork, Get};
use crate::pg::server::srf::{Rows, Value, value};
use crate::pg::server::{self, fail};
use pgrx::{PgSqlErrorCode, pg_sys};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rowsource_core::clock::measure_costs;
use rowsource_core::logical_io::{Gets, Summary};

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

/// Gets blocks of a relation, and adds a row for each bucket of times. `blocks` is the number of gets: by default as many as the
/// fork has blocks. `seed` makes a random pattern repeatable.
pub fn rows(
    rows: &mut Rows,
    relation: pg_sys::Oid,
    fork: &str,
    blocks: Option<i64>,
    pattern: &str,
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
    let fork = Fork::open(relation, fork, pattern == Pattern::Sequential);
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
    for bucket in gets.buckets() {
        let mut values = vec![
            value(bucket.from_us),
            bucket.to_us.and_then(value),
            value(bucket.hits as i64),
            value(bucket.reads as i64),
        ];
        values.extend(summary(hits.as_ref()));
        values.extend(summary(reads.as_ref()));
        values.push(value(empty_ns / 1e3));
        rows.add(values);
    }
}

fn summary(of: Option<&Summary>) -> [Value; 5] {
    let column = |get: fn(&Summary) -> f64| of.map(get).and_then(value);
    [
        column(|s| s.min_us),
        column(|s| s.mean_us),
        column(|s| s.p50_us),
        column(|s| s.p99_us),
        column(|s| s.max_us),
    ]
}
