//! Index-only scans that visit the table all the same.

use super::subject::{Found, Subject};
use crate::model::NodeStats;

/// The share of the rows for which the table was visited. Unmeasured.
const FETCHES: f64 = 0.4;

/// Returns the share of the rows of an index-only scan for which it visited the table.
fn share(stats: &NodeStats) -> Option<f64> {
    let fetches = stats.facts.heap_fetches()?;
    let removed: u64 = stats.facts.sums[..2].iter().sum();
    // A fetch of a row that is not visible is not of a row that is returned.
    Some(fetches as f64 / ((stats.rows + removed) as f64).max(fetches as f64).max(1.0))
}

/// An index-only scan that visits the table for 40 % of its rows.
pub(super) fn heap_fetches(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let stats = subject.stats(node);
    let of_all = share(stats)?;
    if of_all < FETCHES || share(subject.last(node))? < FETCHES {
        return None;
    }
    let table = subject.table(node)?;
    Some(Found {
        figures: format!(
            "it visited the table for {} of {} rows ({:.0} %)",
            stats.facts.heap_fetches()?,
            stats.rows,
            100.0 * of_all
        ),
        saves_ms: subject.self_ms(node) * of_all,
        try_sql: format!(
            "VACUUM {table}; if that does not last: ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02)"
        ),
        index: None,
    })
}
