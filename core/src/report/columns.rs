//! The columns of the table: what each shows of a node, and when it is shown.

use super::format::Format;
use super::numbers::{bytes, cost, count, kilobytes, relative_error, time};
use super::table::{Align, Column};
use super::text::{on_one_line, shortened};
use crate::model::{Buffers, NodeStats, Time, Wal};
use crate::plan::PlanNode;

/// Deeper nodes are indented no more than this, because all lines are as wide as the widest one.
const DEEPEST: usize = 200;
/// Longer names are cut. An identifier has at most 63 bytes, but a foreign join names all its relations.
const LONGEST_NAME: usize = 64;

/// Wide enough for most operations, so that the tables of simple statements look alike.
const OPERATION_WIDTH: usize = 20;

struct Row<'a> {
    node: &'a PlanNode,
    figures: Option<&'a NodeStats>,
}

impl Row<'_> {
    /// Returns the node's time. A node that never started has none, like one that was not measured.
    fn time(&self) -> Option<Time> {
        let started = self.figures.filter(|figures| figures.starts.get() != Some(0));
        started?.time.get()
    }

    fn blocks(&self, of: fn(&Buffers) -> i64) -> String {
        let buffers = self.figures.and_then(|figures| figures.buffers.get());
        buffers
            .map(|buffers| count(of(&buffers) as f64))
            .unwrap_or_default()
    }

    /// Returns milliseconds of I/O; `None` if there was no I/O, or nobody timed it.
    fn io_time(&self, of: fn(&Buffers) -> f64) -> String {
        let buffers = self.figures.and_then(|figures| figures.buffers.get());
        buffers
            .map(|buffers| of(&buffers))
            .filter(|ms| *ms > 0.0)
            .map(time)
            .unwrap_or_default()
    }

    fn wal(&self, written: fn(&Wal) -> String) -> String {
        let wal = self.figures.and_then(|figures| figures.wal.get());
        wal.as_ref().map(written).unwrap_or_default()
    }

    fn size(&self, kb: fn(&NodeStats) -> Option<u64>) -> String {
        self.figures.and_then(kb).map(kilobytes).unwrap_or_default()
    }

    fn operation(&self) -> String {
        let indent = " ".repeat(self.node.depth.min(DEEPEST));
        let operation = on_one_line(&self.node.operation);
        match &self.node.subplan_name {
            None => format!("{indent}{operation}"),
            Some(subplan) => format!("{indent}{}: {operation}", on_one_line(subplan)),
        }
    }

    fn name(&self) -> String {
        let name = self.node.object_name.as_deref().unwrap_or_default();
        shortened(&on_one_line(name), LONGEST_NAME)
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
    /// A column that contains only zeros is left out like an empty one: most plans read, spill and log nothing.
    zeros_are_nothing: bool,
    asked_for: fn(&Format) -> bool,
    cell: fn(&Row) -> String,
}

/// A column of numbers.
const fn number(heading: &'static str, asked_for: fn(&Format) -> bool, cell: fn(&Row) -> String) -> Spec {
    Spec {
        heading,
        align: Align::Right,
        width: 0,
        zeros_are_nothing: false,
        asked_for,
        cell,
    }
}

/// A column of numbers that is left out if all of them are zero.
const fn nonzero(heading: &'static str, asked_for: fn(&Format) -> bool, cell: fn(&Row) -> String) -> Spec {
    Spec {
        zeros_are_nothing: true,
        ..number(heading, asked_for, cell)
    }
}

const fn text(heading: &'static str, width: usize, cell: fn(&Row) -> String) -> Spec {
    Spec {
        heading,
        align: Align::Left,
        width,
        zeros_are_nothing: false,
        asked_for: |_| true,
        cell,
    }
}

/// All columns, in the order of DBMS_XPLAN. Columns that Oracle does not have stand beside related ones.
static SPECS: [Spec; 22] = [
    number("Id", |_| true, |row| row.node.id.to_string()),
    text("Operation", OPERATION_WIDTH, |row| row.operation()),
    text("Name", 0, |row| row.name()),
    number(
        "Starts",
        |_| true,
        |row| {
            row.figures
                .and_then(|figures| figures.starts.get())
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
            row.figures
                .map(|figures| count(figures.rows as f64))
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
        |row| row.size(|figures| figures.memory_kb.get()),
    ),
    nonzero(
        "Used-Tmp",
        |format| format.memory,
        |row| row.size(|figures| figures.disk_kb.get()),
    ),
];

/// Returns the columns that `format` asks for and that contain anything.
pub(super) fn filled(nodes: &[PlanNode], figures: &[NodeStats], format: &Format) -> Vec<Column> {
    let figures = figures.iter().map(Some).chain(std::iter::repeat(None));
    let rows: Vec<Row> = nodes
        .iter()
        .zip(figures)
        .map(|(node, figures)| Row { node, figures })
        .collect();
    let asked_for = SPECS.iter().filter(|spec| (spec.asked_for)(format));
    asked_for
        .filter_map(|spec| {
            let cells: Vec<String> = rows.iter().map(spec.cell).collect();
            let nothing = |cell: &String| cell.is_empty() || spec.zeros_are_nothing && cell == "0";
            (!cells.iter().all(nothing)).then(|| Column::new(spec.heading, spec.align, spec.width, cells))
        })
        .collect()
}
