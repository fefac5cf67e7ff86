//! Index-only scans that visit the table all the same.

use super::subject::{Found, Subject};
use crate::model::NodeStats;

/// The share of the rows for which the table was visited. Unmeasured.
const FETCHES: f64 = 0.4;

/// Returns for how many of its entries an index-only scan visited the table, and how many there were.
fn visits(stats: &NodeStats) -> Option<[u64; 2]> {
    let fetches = stats.facts.heap_fetches()?;
    let removed: u64 = stats.facts.sums[..2].iter().sum();
    // A fetch of a row that is not visible is not of a row that is returned.
    Some([fetches, (stats.rows + removed).max(fetches)])
}

fn share(stats: &NodeStats) -> Option<f64> {
    let [fetches, entries] = visits(stats)?;
    Some(fetches as f64 / (entries as f64).max(1.0))
}

/// An index-only scan that visits the table for 40 % of its rows.
pub(super) fn heap_fetches(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let stats = subject.stats(node);
    let of_all = share(stats)?;
    if of_all < FETCHES || share(subject.last(node))? < FETCHES {
        return None;
    }
    let table = subject.table(node)?;
    let [fetches, entries] = visits(stats)?;
    // A table with partitions takes no such setting.
    let setting = if subject.is_of_partitions(node) {
        "set autovacuum_vacuum_scale_factor = 0.02 for each of its partitions".to_owned()
    } else {
        format!("ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02)")
    };
    Some(Found {
        figures: format!(
            "it visited the table for {fetches} of {entries} entries of the index ({:.0} %)",
            100.0 * of_all
        ),
        saves_ms: subject.self_ms(node) * of_all,
        try_sql: format!("VACUUM {table}; -- if that does not last: {setting}"),
        index: None,
    })
}
