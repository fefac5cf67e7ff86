//! Joins that were chosen because of a wrong estimate.

use super::subject::{Found, Subject};
use crate::plan::Relationship;

/// The inner side of a nested loop is started this often in an execution, after an estimate that is this many
/// times too low. Both unmeasured.
const INNER_STARTS: f64 = 1_000.0;
const OFF: f64 = 10.0;
/// An estimate that is off by fewer rows a start than this changes no plan. Unmeasured.
const ROWS_OFF: f64 = 1_000.0;
/// A Memoize that finds a smaller share of its lookups than this, of at least so many. Unmeasured.
const HITS: f64 = 0.1;
const LOOKUPS: f64 = 1_000.0;
/// Extended statistics have at most so many columns. Source: STATS_MAX_DIMENSIONS.
const MOST_COLUMNS: usize = 8;
/// The most bytes of the columns in a name, which has 63 at most.
const MOST_NAME: usize = 58;

/// A nested loop whose inner side is started 1,000 times in an execution, after an estimate 10 times too low.
pub(super) fn nested_loop(subject: &Subject<'_>, node: usize) -> Option<Found> {
    if !subject.nodes[node].operation.starts_with("Nested Loop") {
        return None;
    }
    let outer = subject.child(node, Relationship::Outer)?;
    let inner = subject.child(node, Relationship::Inner)?;
    let starts = subject.starts(inner) / subject.executions().max(1.0);
    let off = subject.underestimate(outer)?;
    if starts < INNER_STARTS || off < OFF {
        return None;
    }
    Some(Found {
        figures: format!(
            "its inner side was started {starts:.0} times an execution; {off:.0} times fewer rows were expected of node {outer}"
        ),
        saves_ms: subject.total_ms(inner),
        try_sql: analyze(subject, outer)?,
        index: None,
    })
}

/// Returns what makes the estimate of a node better: the statistics of the tables in it.
fn analyze(subject: &Subject<'_>, node: usize) -> Option<String> {
    let is_below = |i: usize| i == node || subject.above(i).any(|above| above == node);
    let scans =
        (node..subject.nodes.len()).filter(|i| is_below(*i) && !subject.nodes[*i].predicates.is_empty());
    // The scan that is off the most is where it begins.
    let mut worst: Option<(usize, f64)> = None;
    for scan in scans.filter(|i| subject.table(*i).is_some() && *i < subject.plan.nodes.len()) {
        let off = subject.underestimate(scan).unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let off = off.max(1.0 / off);
        if worst.is_none_or(|(_, most)| off > most) {
            worst = Some((scan, off));
        }
    }
    let scan = worst?.0;
    let table = subject.table(scan)?;
    let mut columns = super::index::filter_columns(subject, scan);
    columns.truncate(MOST_COLUMNS);
    let quote = subject.server.quote;
    let quoted: Vec<String> = columns.iter().map(|column| quote(column)).collect();
    let described = &subject.nodes[scan];
    Some(match (quoted.len(), &described.schema) {
        (0 | 1, _) | (_, None) => format!("ANALYZE {table}"),
        (_, Some(schema)) => format!(
            "ANALYZE {table}; -- if that does not help: CREATE STATISTICS {}.{} ON {} FROM {table}; ANALYZE {table}",
            quote(schema),
            quote(&statistics_name(&columns)),
            quoted.join(", ")
        ),
    })
}

/// Returns a name for statistics of columns together: before 16 they must have one.
fn statistics_name(columns: &[String]) -> String {
    let mut name = columns.join("_");
    let most = (0..=MOST_NAME.min(name.len())).rev();
    name.truncate(
        most.into_iter()
            .find(|at| name.is_char_boundary(*at))
            .unwrap_or(0),
    );
    name + "_stat"
}

/// A scan whose estimate is 10 times off, below a join or sort that took more than the scan.
pub(super) fn estimate(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let described = &subject.nodes[node];
    if described.predicates.is_empty() || !described.operation.contains("Scan") {
        return None;
    }
    subject.table(node)?;
    let estimates = &subject.totals(node).estimates;
    let starts = estimates.starts.max(1) as f64;
    let off = subject.underestimate(node)?;
    let [expected, actual] = [
        estimates.expected_rows / starts,
        estimates.actual_rows as f64 / starts,
    ];
    let is_off = off >= OFF || off <= 1.0 / OFF;
    if !is_off || (expected - actual).abs() < ROWS_OFF {
        return None;
    }
    // The join decides by the estimate. What it does beside this scan could be done otherwise.
    let is_decided = |above: &usize| {
        let operation = subject.nodes[*above].operation.as_str();
        operation.contains("Join") || operation.starts_with("Nested Loop")
    };
    let join = subject.above(node).find(is_decided)?;
    let is_low_loop = subject.nodes[join].operation.starts_with("Nested Loop") && off >= OFF;
    let inner = subject.child(join, Relationship::Inner)?;
    let has_spilled = super::memory::has_spilled(subject, join) || super::memory::has_spilled(subject, inner);
    // Otherwise the plan is likely the same with a right estimate. A nested loop has a rule of its own.
    if is_low_loop || !has_spilled {
        return None;
    }
    Some(Found {
        figures: format!(
            "{expected:.0} rows a start were expected, and {actual:.0} came; node {join} decides by that"
        ),
        saves_ms: subject.total_ms(join) - subject.total_ms(node),
        try_sql: analyze(subject, node)?,
        index: None,
    })
}

/// A Memoize that finds less than 10 % of what it looks up.
pub(super) fn memoize(subject: &Subject<'_>, node: usize) -> Option<Found> {
    if subject.nodes[node].operation != "Memoize" {
        return None;
    }
    let [hits, misses, evictions, overflows] = {
        let sums = subject.stats(node).facts.sums;
        [0, 1, 2, 3].map(|i| sums[i] as f64)
    };
    let lookups = hits + misses;
    if lookups < LOOKUPS || hits >= HITS * lookups {
        return None;
    }
    Some(Found {
        figures: format!(
            "{hits:.0} of {lookups:.0} lookups found something, {evictions:.0} entries were evicted, {overflows:.0} did not fit"
        ),
        saves_ms: subject.self_ms(node),
        try_sql: "SET enable_memoize = off".to_owned(),
        index: None,
    })
}
