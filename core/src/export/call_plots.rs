//! How long the calls of a node took, as text.

use crate::histogram::{Bucket, CallTimes, plot};
use crate::model::HistogramTotals;

/// Returns the plots of a node's calls that read no block, and of those that did, each with a heading. A plot
/// without calls is left out.
pub fn call_plots(histogram: &HistogramTotals) -> impl Iterator<Item = (&'static str, Vec<String>)> {
    let kinds = [
        ("calls that read no block", false),
        ("calls that read blocks", true),
    ];
    kinds
        .into_iter()
        .map(|(heading, reads)| (heading, plot(&buckets(histogram, reads))))
        .filter(|(_, lines)| !lines.is_empty())
}

/// Returns the buckets of the calls that read blocks, or of the others.
fn buckets(histogram: &HistogramTotals, reads: bool) -> Vec<Bucket> {
    let counts = histogram.counts().filter(|(read, _, _)| *read == reads);
    counts
        .map(|(_, bucket, count)| Bucket {
            from_us: CallTimes::bounds_us(bucket).0,
            count,
        })
        .collect()
}
