//! The table of a measured plan, in the layout of Oracle's DBMS_XPLAN.

pub mod activity;
mod columns;
pub mod comparison;
pub mod document;
mod format;
mod header;
pub mod iostat;
mod layout;
mod notes;
mod numbers;
mod sections;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod timed_events;

pub use format::{Format, FormatError, Shown, format_words};
pub use header::{Header, NamedPartition, Now};

use crate::model::NodeStats;
use crate::plan::PlanNode;
use format::Part;

/// Returns the lines of the display. `stats[i]` belongs to `nodes[i]`. For a node without statistics, only
/// its estimates are shown. If there are no nodes, the header is all.
///
/// The caller passes the statistics of the last execution or the totals, as [`Format::shown`] says. The
/// header names which.
pub fn display(header: &Header, nodes: &[PlanNode], stats: &[NodeStats], format: &Format) -> Vec<String> {
    let limit = format.width();
    let selected = columns::selected(nodes, stats, format, header);
    let fitted = layout::fitted(selected, limit, format.has(Part::Compact));
    let table = table::lines(&fitted.columns, fitted.padding);
    let table_width = table::width(&fitted.columns, fitted.padding);

    let mut lines = header.lines(limit, table_width, format.has(Part::Actual));
    if nodes.is_empty() {
        return lines;
    }
    lines.extend(table);
    lines.extend(sections::names(
        nodes,
        &header.search_path,
        fitted.name_width(),
        limit,
    ));
    if format.has(Part::Aliases) {
        lines.extend(sections::aliases(nodes, limit));
    }
    if format.has(Part::Keys) {
        lines.extend(sections::keys(nodes, limit));
    }
    if format.has(Part::Predicates) {
        lines.extend(sections::predicates(nodes, header.older_literals, limit));
    }
    if format.has(Part::Partitions) {
        lines.extend(sections::partitions(&header.partitions, limit));
    }
    if format.has(Part::Waits) {
        let missing = header.waits_missing.as_deref();
        lines.extend(sections::waits(&header.waits, missing, limit));
    }
    let notes = notes::notes(header, nodes, stats, format, &fitted.left_out);
    lines.extend(sections::notes(&notes, limit));
    lines
}
