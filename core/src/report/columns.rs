//! The columns of the table: their contents, and when they are shown.

use super::format::{Format, Part};
use super::header::Header;
use super::numbers::{self, bytes, cost, count, kilobytes, relative_error};
use super::table::{Align, Column};
use super::text::{on_one_line, shortened};
use crate::model::facts::{PARTITIONS_PLANNED, PARTITIONS_RUN};
use crate::model::{Buffers, NodeKind, NodeStats, Time, Wal};
use crate::plan::PlanNode;

/// The maximal indentation. It is limited because all lines are as wide as the widest one.
const MAX_INDENT: usize = 200;
/// Longer names are cut. An identifier has at most 63 bytes, but a foreign join names all its relations.
const MAX_NAME: usize = 64;

/// The headings of the columns that are made narrower if the table is too wide.
pub(super) const OPERATION: &str = "Operation";
pub(super) const NAME: &str = "Name";

/// A column of times of requests is left out if none of them is this part of the statement's time.
const MIN_SHARE: f64 = 0.01;

/// Wide enough for the times of most statements, so that tables look alike.
const TIME_WIDTH: usize = 9;
/// Wide enough for most operations, so that the tables of simple statements look alike.
const OPERATION_WIDTH: usize = 20;

/// Returns a number as it is shown; nothing if it is not known.
fn known(number: f64, shown: fn(f64) -> String) -> String {
    if number.is_nan() {
        String::new()
    } else {
        shown(number)
    }
}

struct Row<'a> {
    node: &'a PlanNode,
    stats: Option<&'a NodeStats>,
    /// The schemas that are not shown.
    search_path: &'a [String],
    is_compact: bool,
    /// The decimals of times in this table.
    decimals: usize,
    /// The operation runs now.
    is_running: bool,
}

impl Row<'_> {
    /// Returns the node's time. A node that never started has none, like one that was not measured.
    fn time(&self) -> Option<Time> {
        let started = self.stats.filter(|stats| stats.starts.get() != Some(0));
        started?.time.get()
    }

    /// Returns the estimate of the executions that are shown. If it is not known, returns that of the
    /// description.
    fn plan_rows(&self) -> f64 {
        let shown = self.stats.map(|stats| f64::from(stats.estimate.plan_rows));
        shown.filter(|rows| *rows > 0.0).unwrap_or(self.node.plan_rows)
    }

    fn blocks(&self, of: fn(&Buffers) -> i64) -> String {
        let buffers = self.stats.and_then(|stats| stats.buffers.get());
        buffers
            .map(|buffers| count(of(&buffers) as f64))
            .unwrap_or_default()
    }

    /// Returns the milliseconds that requests to work files took; `None` if there were none, or if they were
    /// not timed.
    fn temp_ms(&self) -> Option<f64> {
        let buffers = self.stats.and_then(|stats| stats.buffers.get())?;
        Some(buffers.temp_read_ms + buffers.temp_write_ms).filter(|ms| *ms > 0.0)
    }

    /// Returns the milliseconds that the node itself waited; `None` if it did not.
    fn wait_ms(&self) -> Option<f64> {
        self.stats.map(|stats| stats.wait_ms).filter(|ms| *ms > 0.0)
    }

    fn time_text(&self, ms: Option<f64>) -> String {
        ms.map(|ms| numbers::time(ms, self.decimals)).unwrap_or_default()
    }

    fn wal(&self, written: fn(&Wal) -> String) -> String {
        let wal = self.stats.and_then(|stats| stats.wal.get());
        wal.as_ref().map(written).unwrap_or_default()
    }

    fn size(&self, kb: fn(&NodeStats) -> Option<u32>) -> String {
        self.stats
            .and_then(kb)
            .map(|kb| kilobytes(kb.into()))
            .unwrap_or_default()
    }

    /// Returns how many partitions of those that the plan has ran; nothing if the nodes stand for none.
    fn partitions(&self) -> String {
        let sums = self.stats.map(|stats| &stats.facts);
        let sums = sums.filter(|facts| facts.kind == NodeKind::Append && facts.sums[PARTITIONS_PLANNED] > 0);
        sums.map_or_else(String::new, |facts| {
            let [run, planned] =
                [PARTITIONS_RUN, PARTITIONS_PLANNED].map(|slot| count(facts.sums[slot] as f64));
            format!("{run} of {planned}")
        })
    }

    fn operation(&self) -> String {
        let indent = " ".repeat(self.node.depth.min(MAX_INDENT));
        let operation = on_one_line(&self.node.operation);
        match &self.node.subplan_name {
            None => format!("{indent}{operation}"),
            Some(subplan) => format!("{indent}{}: {operation}", on_one_line(subplan)),
        }
    }

    fn name(&self) -> String {
        if self.is_compact {
            return shortened(&on_one_line(own_name(self.node)), MAX_NAME);
        }
        shortened(&full_name(self.node, self.search_path), MAX_NAME)
    }
}

fn own_name(node: &PlanNode) -> &str {
    node.object_name.as_deref().unwrap_or_default()
}

/// Returns the name of the object that a node works on: a table, or an index and its table. The table's
/// schema is left out if it is one of `search_path`.
pub(super) fn full_name(node: &PlanNode, search_path: &[String]) -> String {
    let own = own_name(node);
    let schema = node
        .schema
        .iter()
        .filter(|schema| !search_path.iter().any(|shown| **shown == ***schema));
    let table: String = schema
        .flat_map(|schema| [schema, "."])
        .chain([node.table.as_deref().unwrap_or(own)])
        .collect();
    on_one_line(&match node.table {
        Some(_) => format!("{own} on {table}"),
        None => table,
    })
}

fn reads(buffers: &Buffers) -> i64 {
    buffers.shared_read.saturating_add(buffers.local_read)
}

fn writes(buffers: &Buffers) -> i64 {
    buffers.shared_written.saturating_add(buffers.local_written)
}

/// Returns what Oracle calls consistent gets: hits and reads.
fn gets(buffers: &Buffers) -> i64 {
    buffers
        .shared_hit
        .saturating_add(buffers.local_hit)
        .saturating_add(reads(buffers))
}

struct Spec {
    heading: &'static str,
    align: Align,
    width: usize,
    /// A column that contains only zeros is left out like an empty one, because most plans read, spill and
    /// log nothing.
    hides_zeros: bool,
    /// The milliseconds in the cell. The column is left out if they are a small part of the statement's time.
    part_of_time: Option<fn(&Row) -> Option<f64>>,
    is_selected: fn(&Format) -> bool,
    cell: fn(&Row) -> String,
}

/// Returns a column of numbers.
const fn number(heading: &'static str, is_selected: fn(&Format) -> bool, cell: fn(&Row) -> String) -> Spec {
    Spec {
        heading,
        align: Align::Right,
        width: 0,
        hides_zeros: false,
        part_of_time: None,
        is_selected,
        cell,
    }
}

/// Returns a column of numbers that is left out if all of them are zero.
const fn nonzero(heading: &'static str, is_selected: fn(&Format) -> bool, cell: fn(&Row) -> String) -> Spec {
    Spec {
        hides_zeros: true,
        ..number(heading, is_selected, cell)
    }
}

const fn text(heading: &'static str, width: usize, cell: fn(&Row) -> String) -> Spec {
    Spec {
        heading,
        align: Align::Left,
        width,
        hides_zeros: false,
        part_of_time: None,
        is_selected: |_| true,
        cell,
    }
}

/// All columns, in the order of DBMS_XPLAN. Columns that Oracle does not have are next to related ones.
static SPECS: [Spec; 23] = [
    number(
        "Id",
        |_| true,
        |row| {
            let mark = if row.is_running { "*" } else { "" };
            format!("{mark}{}", row.node.id)
        },
    ),
    text(OPERATION, OPERATION_WIDTH, |row| row.operation()),
    text(NAME, 0, |row| row.name()),
    number(
        "Starts",
        |format| format.has(Part::Actual),
        |row| {
            row.stats
                .and_then(|stats| stats.starts.get())
                .map(|starts| count(starts as f64))
                .unwrap_or_default()
        },
    ),
    number("Parts", |format| format.has(Part::Actual), |row| row.partitions()),
    number(
        "E-Rows",
        |format| format.has(Part::Rows),
        |row| count(row.plan_rows()),
    ),
    number(
        "E-Bytes",
        |format| format.has(Part::Bytes),
        |row| known(row.plan_rows() * row.node.plan_width, bytes),
    ),
    number(
        "Cost",
        |format| format.has(Part::Cost),
        |row| known(row.node.total_cost, cost),
    ),
    number(
        "A-Rows",
        |format| format.has(Part::Actual),
        |row| {
            row.stats
                .map(|stats| count(stats.rows as f64))
                .unwrap_or_default()
        },
    ),
    Spec {
        width: TIME_WIDTH,
        ..number(
            "A-Time ms",
            |format| format.has(Part::Time),
            |row| row.time_text(row.time().map(|time| time.total_ms)),
        )
    },
    number(
        "+/-",
        |format| format.has(Part::Time) && !format.has(Part::Compact),
        |row| {
            row.time()
                .map(|time| relative_error(time.error_ms, time.total_ms))
                .unwrap_or_default()
        },
    ),
    number(
        "W-Time ms",
        |format| format.has(Part::Waits),
        |row| row.time_text(row.wait_ms()),
    ),
    number(
        "Buffers",
        |format| format.has(Part::Buffers),
        |row| row.blocks(gets),
    ),
    nonzero("Reads", |format| format.has(Part::Io), |row| row.blocks(reads)),
    nonzero("Writes", |format| format.has(Part::Io), |row| row.blocks(writes)),
    nonzero(
        "Temp-R",
        |format| format.has(Part::Io),
        |row| row.blocks(|buffers| buffers.temp_read),
    ),
    nonzero(
        "Temp-W",
        |format| format.has(Part::Io),
        |row| row.blocks(|buffers| buffers.temp_written),
    ),
    Spec {
        part_of_time: Some(|row| row.temp_ms()),
        ..number(
            "Temp ms",
            |format| format.has(Part::Io) && format.has(Part::Time),
            |row| row.time_text(row.temp_ms()),
        )
    },
    nonzero(
        "WAL-Recs",
        |format| format.has(Part::Wal),
        |row| row.wal(|wal| count(wal.records as f64)),
    ),
    nonzero(
        "WAL-FPI",
        |format| format.has(Part::Wal),
        |row| row.wal(|wal| count(wal.fpi as f64)),
    ),
    nonzero(
        "WAL-Bytes",
        |format| format.has(Part::Wal),
        |row| row.wal(|wal| bytes(wal.bytes as f64)),
    ),
    nonzero(
        "Used-Mem",
        |format| format.has(Part::Memory),
        |row| row.size(|stats| stats.facts.memory_kb.get()),
    ),
    nonzero(
        "Used-Tmp",
        |format| format.has(Part::Memory),
        |row| row.size(|stats| stats.facts.disk_kb.get()),
    ),
];

/// Returns the columns that `format` selects and that are not empty.
pub(super) fn selected(
    nodes: &[PlanNode],
    stats: &[NodeStats],
    format: &Format,
    header: &Header,
) -> Vec<Column> {
    let running = header.now.as_ref().and_then(|now| now.node);
    let longest = longest_ms(stats);
    let decimals = numbers::decimals(longest.unwrap_or_default());
    let stats = stats.iter().map(Some).chain(std::iter::repeat(None));
    let rows: Vec<Row> = nodes
        .iter()
        .zip(stats)
        .map(|(node, stats)| Row {
            node,
            stats,
            search_path: &header.search_path,
            is_running: running == Some(node.id),
            is_compact: format.has(Part::Compact),
            decimals,
        })
        .collect();
    let is_small = |spec: &Spec| {
        let least = longest.map(|ms| ms * MIN_SHARE);
        least
            .zip(spec.part_of_time)
            .is_some_and(|(least, ms)| !rows.iter().any(|row| ms(row).is_some_and(|ms| ms >= least)))
    };
    let specs = SPECS
        .iter()
        .filter(|spec| (spec.is_selected)(format) && !is_small(spec));
    specs
        .filter_map(|spec| {
            let cells: Vec<String> = rows.iter().map(spec.cell).collect();
            let nothing = |cell: &String| cell.is_empty() || spec.hides_zeros && cell == "0";
            let heading = match spec.heading.strip_prefix("E-") {
                // As in DBMS_XPLAN: estimates are only named so if the table also has statistics.
                Some(estimate) if !format.has(Part::Actual) => estimate,
                _ => spec.heading,
            };
            (!cells.iter().all(nothing)).then(|| Column::new(heading, spec.align, spec.width, cells))
        })
        .collect()
}

/// Returns the longest time of a node in milliseconds, which is usually the root's; `None` if no node was
/// timed.
fn longest_ms(stats: &[NodeStats]) -> Option<f64> {
    let times = stats.iter().filter_map(|stats| stats.time.get());
    times
        .map(|time| time.total_ms)
        .filter(|ms| ms.is_finite())
        .reduce(f64::max)
}
