//! Scans that read many rows and drop almost all of them: an index could find the rest.

use super::predicate::{self, Column};
use super::subject::{Candidate, Found, Subject};
use crate::model::{NodeKind, facts};

/// The scan drops at least this share of the rows that it reads, and takes this share of its statement. Both
/// unmeasured.
const DROPPED: f64 = 0.9;
const OF_STATEMENT: f64 = 0.1;
/// A table scan that reads fewer blocks a start is no slower than an index. Unmeasured.
const FEWEST_BLOCKS: f64 = 32.0;
/// An index scan drops at least so many rows a start. Unmeasured.
const FEWEST_ROWS: f64 = 100.0;
/// Below a limit, an index scan drops at least so many rows a start. Unmeasured.
const FEWEST_ORDERED: f64 = 10_000.0;
/// An index has at most so many columns.
const COLUMNS: usize = 3;

/// What a scan dropped and returned, in all executions.
struct Dropped {
    dropped: f64,
    returned: f64,
    starts: f64,
}

impl Dropped {
    fn of(subject: &Subject<'_>, node: usize) -> Option<Dropped> {
        let stats = subject.stats(node);
        let dropped = match stats.facts.kind {
            NodeKind::Filter
            | NodeKind::TableScan
            | NodeKind::IndexScan
            | NodeKind::IndexOnlyScan
            | NodeKind::BitmapHeapScan => stats.facts.sums[facts::REMOVED_BY_FILTER],
            _ => 0,
        };
        (dropped > 0).then(|| Dropped {
            dropped: dropped as f64,
            returned: stats.rows as f64,
            starts: subject.starts(node).max(1.0),
        })
    }

    fn share(&self) -> f64 {
        self.dropped / (self.dropped + self.returned)
    }

    fn per_start(&self) -> f64 {
        self.dropped / self.starts
    }

    fn figures(&self, ms: f64, statement_ms: f64) -> String {
        format!(
            "it removed {:.0} of {:.0} rows ({:.1} %) in {:.0} starts, and took {:.1} % of its statement",
            self.dropped,
            self.dropped + self.returned,
            100.0 * self.share(),
            self.starts,
            100.0 * ms / statement_ms.max(f64::MIN_POSITIVE)
        )
    }
}

/// Returns the condition of a node with a label.
fn condition<'a>(subject: &'a Subject<'_>, node: usize, label: &str) -> Option<&'a str> {
    let predicates = subject.nodes[node].predicates.iter();
    let mut found = predicates.filter(|(of, _)| of == label);
    found.next().map(|(_, text)| text.as_str())
}

/// Returns an index on columns of a node's table.
fn candidate(subject: &Subject<'_>, node: usize, columns: &[Column]) -> Option<Candidate> {
    let described = &subject.nodes[node];
    let table = described.table.as_deref().or(described.object_name.as_deref())?;
    if columns.is_empty() {
        return None;
    }
    let columns = &columns[..columns.len().min(COLUMNS)];
    let varchars = columns.iter().filter(|column| column.is_cast);
    Some(Candidate {
        schema: described.schema.as_deref()?.to_owned(),
        table: table.to_owned(),
        varchars: varchars.map(|column| column.name.clone()).collect(),
        columns: columns.iter().map(|column| column.name.clone()).collect(),
        is_equal: columns.iter().all(|column| column.is_equal),
    })
}

/// Returns the SQL that creates an index.
fn create(subject: &Subject<'_>, candidate: &Candidate) -> String {
    let quote = subject.server.quote;
    let columns: Vec<String> = candidate.columns.iter().map(|column| quote(column)).collect();
    format!(
        "CREATE INDEX CONCURRENTLY ON {}.{} ({})",
        quote(&candidate.schema),
        quote(&candidate.table),
        columns.join(", ")
    )
}

/// Returns the columns by which a node finds its rows, and those of its filter: of equality first.
fn columns(subject: &Subject<'_>, node: usize) -> Option<Vec<Column>> {
    let mut columns = Vec::new();
    for label in ["Index Cond", "Recheck Cond", "Filter"] {
        if let Some(condition) = condition(subject, node, label) {
            for column in predicate::columns(condition)? {
                if !columns.iter().any(|known: &Column| known.name == column.name) {
                    columns.push(column);
                }
            }
        }
    }
    columns.sort_by_key(|column| !column.is_equal);
    Some(columns)
}

/// Returns the columns of all conditions of a node, as far as they are known.
pub(super) fn filter_columns(subject: &Subject<'_>, node: usize) -> Vec<String> {
    let columns = columns(subject, node).unwrap_or_default();
    columns.into_iter().map(|column| column.name).collect()
}

/// A scan whose filter removes 90 % of the rows, and that takes 10 % of its statement.
pub(super) fn filter(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let dropped = Dropped::of(subject, node)?;
    let operation = subject.nodes[node].operation.as_str();
    let ms = subject.self_ms(node);
    if dropped.share() < DROPPED || ms < OF_STATEMENT * subject.statement_ms() {
        return None;
    }
    let io = subject.io(node);
    let blocks = (io.hit + io.read) as f64;
    let is_large = if operation.ends_with("Seq Scan") {
        // If each block has a row that is wanted, an index reads all blocks, too.
        blocks / dropped.starts >= FEWEST_BLOCKS && dropped.returned <= blocks
    } else {
        let is_index = operation.contains("Index Scan") || operation.ends_with("Bitmap Heap Scan");
        is_index && !is_ordered_below_limit(subject, node) && dropped.per_start() >= FEWEST_ROWS
    };
    if !is_large {
        return None;
    }
    let candidate = candidate(subject, node, &columns(subject, node)?)?;
    Some(Found {
        figures: dropped.figures(ms, subject.statement_ms()),
        saves_ms: ms * dropped.share(),
        try_sql: create(subject, &candidate),
        index: Some(candidate),
    })
}

/// Returns whether a limit above an index scan needs its order: no sort is between them.
fn is_ordered_below_limit(subject: &Subject<'_>, node: usize) -> bool {
    let is_scan = subject.nodes[node].operation.contains("Index Scan")
        || subject.nodes[node].operation.contains("Index Only Scan");
    let mut above = subject
        .above(node)
        .map(|above| subject.nodes[above].operation.as_str());
    let stops = [
        "Limit",
        "Sort",
        "Incremental Sort",
        "HashAggregate",
        "Hash",
        "Aggregate",
    ];
    is_scan && above.find(|operation| stops.contains(operation)) == Some("Limit")
}

/// An index scan that gives the order below a limit, and removes 10,000 rows a start until it has enough.
pub(super) fn ordered_limit(subject: &Subject<'_>, node: usize) -> Option<Found> {
    let dropped = Dropped::of(subject, node)?;
    if dropped.per_start() < FEWEST_ORDERED || !is_ordered_below_limit(subject, node) {
        return None;
    }
    // An index condition may have nothing to do with the order.
    let columns = predicate::columns(condition(subject, node, "Filter")?)?;
    let candidate = candidate(subject, node, &columns)?;
    let ms = subject.self_ms(node);
    Some(Found {
        figures: dropped.figures(ms, subject.statement_ms()),
        saves_ms: ms * dropped.share(),
        try_sql: format!(
            "{}; -- add the columns of ORDER BY as the last ones",
            create(subject, &candidate)
        ),
        index: Some(candidate),
    })
}
