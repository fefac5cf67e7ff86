//! Nodes that had too little memory.

use super::subject::{Found, Subject};
use crate::model::{NodeKind, NodeStats};

/// The share of the pages of a bitmap that are lossy, and of the rows that a recheck removed. Unmeasured.
const LOSSY: f64 = 0.1;
/// Rows take more memory than disk. Unmeasured.
const MEMORY_OF_DISK: f64 = 3.0;
/// No more work_mem than this is advised, in MB: several nodes of several sessions may take it at once.
/// Unmeasured.
const MOST_MB: f64 = 1_024.0;
/// The bytes that a page takes in a bitmap, with room in its hash table. Source: tidbitmap.c.
const BYTES_OF_PAGE: f64 = 100.0;

/// Returns a setting that is a little larger than this number of kB, as SQL. `None` if it is too large: then
/// more memory is no advice.
fn set_work_mem(kb: f64) -> Option<String> {
    let mb = (1.2 * kb / 1024.0).ceil().max(1.0);
    (mb <= MOST_MB).then(|| format!("SET work_mem = '{mb:.0}MB'"))
}

/// Returns whether a node wrote work files because its memory was too small.
fn spills(stats: &NodeStats) -> bool {
    let facts = &stats.facts;
    match facts.kind {
        NodeKind::Sort | NodeKind::IncrementalSort => facts.disk_kb.get().is_some_and(|kb| kb > 0),
        NodeKind::Hash => facts.peaks[2] > 1,
        NodeKind::HashAggregate => facts.peaks[1] > 1 || facts.disk_kb.get().is_some_and(|kb| kb > 0),
        _ => false,
    }
}

/// Returns whether a node wrote work files in all executions together.
pub(super) fn has_spilled(subject: &Subject<'_>, node: usize) -> bool {
    spills(subject.stats(node))
}

/// A sort or hash that wrote work files, and the work_mem that would have held it.
pub(super) fn spill(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let stats = subject.stats(node);
    if !spills(stats) || !spills(subject.last(node)) {
        return None;
    }
    let facts = &stats.facts;
    let disk_kb = f64::from(facts.disk_kb.get().unwrap_or(0));
    let memory_kb = f64::from(facts.memory_kb.get().unwrap_or(0));
    let multiplier = subject.server.hash_mem_multiplier.max(1.0);
    let (needs_kb, how) = match facts.kind {
        NodeKind::Hash => {
            let batches = f64::from(facts.peaks[2]);
            (
                memory_kb * batches / multiplier,
                format!("{batches:.0} batches of {memory_kb:.0} kB"),
            )
        }
        NodeKind::HashAggregate => (
            (memory_kb + MEMORY_OF_DISK * disk_kb) / multiplier,
            format!("{memory_kb:.0} kB of memory and {disk_kb:.0} kB of disk"),
        ),
        _ => (MEMORY_OF_DISK * disk_kb, format!("{disk_kb:.0} kB of disk")),
    };
    // The other side of a hash join is written, too.
    let files = [
        Some(node),
        subject.nodes[node]
            .parent
            .filter(|_| facts.kind == NodeKind::Hash),
    ];
    let nodes = || files.into_iter().flatten();
    let blocks: i64 = nodes()
        .map(|node| subject.io(node).temp_read + subject.io(node).temp_written)
        .sum();
    let waits_ms: f64 = nodes().map(|node| subject.temp_ms[node]).sum();
    let setting = subject.server.work_mem_kb.map_or_else(String::new, |kb| {
        format!("; its user's sessions have a work_mem of {kb:.0} kB")
    });
    Some(Found {
        figures: format!(
            "it took {how}; {blocks} blocks of work files were written and read, with {waits_ms:.1} ms of waits{setting}"
        ),
        saves_ms: nodes().map(|node| subject.self_ms(node)).sum(),
        try_sql: set_work_mem(needs_kb.max(subject.server.work_mem_kb.unwrap_or(0.0)))?,
        index: None,
    })
}

/// A bitmap of which 10 % of the pages are lossy, so that all their rows are checked again.
pub(super) fn lossy_bitmap(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let stats = subject.stats(node);
    let is_lossy = |stats: &NodeStats| {
        let [_, removed, exact, lossy] = [0, 1, 2, 3].map(|i| stats.facts.sums[i] as f64);
        lossy > LOSSY * (exact + lossy) && removed > LOSSY * (stats.rows as f64 + removed)
    };
    if stats.facts.kind != NodeKind::BitmapHeapScan || !is_lossy(stats) || !is_lossy(subject.last(node)) {
        return None;
    }
    let [_, removed, exact, lossy] = [0, 1, 2, 3].map(|i| stats.facts.sums[i] as f64);
    let pages = (exact + lossy) / subject.starts(node).max(1.0);
    let handled = stats.rows as f64 + removed;
    Some(Found {
        figures: format!(
            "{lossy:.0} of {:.0} pages were lossy, and the recheck removed {removed:.0} of {handled:.0} rows",
            exact + lossy
        ),
        saves_ms: subject.self_ms(node) * removed / handled.max(1.0),
        try_sql: set_work_mem(
            (pages * BYTES_OF_PAGE / 1024.0).max(subject.server.work_mem_kb.unwrap_or(0.0)),
        )?,
        index: None,
    })
}
