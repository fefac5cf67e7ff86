//! The columns of the table: their contents, and when they are shown.

use super::format::Format;
use super::numbers::{bytes, cost, count, kilobytes, relative_error, time};
use super::table::{Align, Column};
use super::text::{on_one_line, shortened};
use crate::model::{Buffers, NodeStats, Time, Wal};
use crate::plan::PlanNode;

/// The maximal indentation. It is limited because all lines are as wide as the widest one.
const MAX_INDENT: usize = 200;
/// Longer names are cut. An identifier has at most 63 bytes, but a foreign join names all its relations.
const MAX_NAME: usize = 64;

/// Wide enough for most operations, so that the tables of simple statements look alike.
const OPERATION_WIDTH: usize = 20;

struct Row<'a> {
    node: &'a PlanNode,
    stats: Option<&'a NodeStats>,
}

impl Row<'_> {
    /// Returns the node's time. A node that never started has none, like one that was not measured.
    fn time(&self) -> Option<Time> {
        let started = self.stats.filter(|stats| stats.starts.get() != Some(0));
        started?.time.get()
    }

    fn blocks(&self, of: fn(&Buffers) -> i64) -> String {
        let buffers = self.stats.and_then(|stats| stats.buffers.get());
        buffers
            .map(|buffers| count(of(&buffers) as f64))
            .unwrap_or_default()
    }

    /// Returns the time of I/O; empty if there was none, or if it was not timed.
    fn io_time(&self, of: fn(&Buffers) -> f64) -> String {
        let buffers = self.stats.and_then(|stats| stats.buffers.get());
        buffers
            .map(|buffers| of(&buffers))
            .filter(|ms| *ms > 0.0)
            .map(time)
            .unwrap_or_default()
    }

    fn wal(&self, written: fn(&Wal) -> String) -> String {
        let wal = self.stats.and_then(|stats| stats.wal.get());
        wal.as_ref().map(written).unwrap_or_default()
    }

    fn size(&self, kb: fn(&NodeStats) -> Option<u64>) -> String {
        self.stats.and_then(kb).map(kilobytes).unwrap_or_default()
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
        let name = self.node.object_name.as_deref().unwrap_or_default();
        shortened(&on_one_line(name), MAX_NAME)
    }
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
    /// A column that contains only zeros is left out like an empty one, because most plans read, spill and log nothing.
    hides_zeros: bool,
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
        is_selected: |_| true,
        cell,
    }
}

/// All columns, in the order of DBMS_XPLAN. Columns that Oracle does not have are next to related ones.
static SPECS: [Spec; 22] = [
    number("Id", |_| true, |row| row.node.id.to_string()),
    text("Operation", OPERATION_WIDTH, |row| row.operation()),
    text("Name", 0, |row| row.name()),
    number(
        "Starts",
        |_| true,
        |row| {
            row.stats
                .and_then(|stats| stats.starts.get())
                .map(|starts| count(starts as f64))
                .unwrap_or_default()
        },
    ),
    number("E-Rows", |format| format.rows, |row| count(row.node.plan_rows)),
    number(
        "E-Bytes",
        |format| format.bytes,
        |row| bytes(row.node.plan_rows * row.node.plan_width),
    ),
    number("Cost", |format| format.cost, |row| cost(row.node.total_cost)),
    number(
        "A-Rows",
        |_| true,
        |row| {
            row.stats
                .map(|stats| count(stats.rows as f64))
                .unwrap_or_default()
        },
    ),
    Spec {
        align: Align::Centre,
        ..number(
            "A-Time",
            |format| format.time,
            |row| row.time().map(|t| time(t.total_ms)).unwrap_or_default(),
        )
    },
    number(
        "+/-",
        |format| format.time,
        |row| {
            row.time()
                .map(|time| relative_error(time.error_ms, time.total_ms))
                .unwrap_or_default()
        },
    ),
    number("Buffers", |format| format.buffers, |row| row.blocks(gets)),
    nonzero("Reads", |format| format.io, |row| row.blocks(reads)),
    nonzero("Writes", |format| format.io, |row| row.blocks(writes)),
    nonzero(
        "Temp-R",
        |format| format.io,
        |row| row.blocks(|buffers| buffers.temp_read),
    ),
    nonzero(
        "Temp-W",
        |format| format.io,
        |row| row.blocks(|buffers| buffers.temp_written),
    ),
    Spec {
        align: Align::Centre,
        ..number(
            "Temp-R-Time",
            |format| format.io && format.time,
            |row| row.io_time(|buffers| buffers.temp_read_ms),
        )
    },
    Spec {
        align: Align::Centre,
        ..number(
            "Temp-W-Time",
            |format| format.io && format.time,
            |row| row.io_time(|buffers| buffers.temp_write_ms),
        )
    },
    nonzero(
        "WAL-Recs",
        |format| format.wal,
        |row| row.wal(|wal| count(wal.records as f64)),
    ),
    nonzero(
        "WAL-FPI",
        |format| format.wal,
        |row| row.wal(|wal| count(wal.fpi as f64)),
    ),
    nonzero(
        "WAL-Bytes",
        |format| format.wal,
        |row| row.wal(|wal| bytes(wal.bytes as f64)),
    ),
    nonzero(
        "Used-Mem",
        |format| format.memory,
        |row| row.size(|stats| stats.facts.memory_kb.get()),
    ),
    nonzero(
        "Used-Tmp",
        |format| format.memory,
        |row| row.size(|stats| stats.facts.disk_kb.get()),
    ),
];

/// Returns the columns that `format` selects and that are not empty.
pub(super) fn filled(nodes: &[PlanNode], stats: &[NodeStats], format: &Format) -> Vec<Column> {
    let stats = stats.iter().map(Some).chain(std::iter::repeat(None));
    let rows: Vec<Row> = nodes
        .iter()
        .zip(stats)
        .map(|(node, stats)| Row { node, stats })
        .collect();
    let is_selected = SPECS.iter().filter(|spec| (spec.is_selected)(format));
    is_selected
        .filter_map(|spec| {
            let cells: Vec<String> = rows.iter().map(spec.cell).collect();
            let nothing = |cell: &String| cell.is_empty() || spec.hides_zeros && cell == "0";
            (!cells.iter().all(nothing)).then(|| Column::new(spec.heading, spec.align, spec.width, cells))
        })
        .collect()
}
