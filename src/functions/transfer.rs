//! Baselines, and the history of other servers: what the functions in SQL check.

use super::origin;
use crate::guc;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::fail;
use crate::pg::server::srf::Rows;
use pgrx::PgSqlErrorCode;
use serde_json::Value;

/// The format of exported lines.
const FORMAT: i64 = 1;
/// What they may be rows of.
const TABLES: [&str; 7] = [
    "rowsource_baselines",
    "rowsource_snapshots",
    "rowsource_snapshot_tempfile_io",
    "rowsource_snapshot_waits",
    "rowsource_snapshot_plans",
    "rowsource_snapshot_descriptions",
    "rowsource_snapshot_ash",
];
/// The maximum length of names, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Fails if an interval cannot get a name, of which `exists` says whether there is such a baseline. Of the
/// snapshots that baselines would keep, `bytes` is what they take, and `snapshots` are those of this one.
pub fn check_new_baseline(name: Option<&str>, exists: bool, bytes: i64, snapshots: i64) {
    origin::must_be_this("a baseline is");
    let (code, message, hint) = match name {
        None | Some("") => (
            PgSqlErrorCode::ERRCODE_INVALID_NAME,
            "a baseline needs a name".to_owned(),
            "Write it as the first argument.",
        ),
        Some(name) if name.len() > MAX_NAME_BYTES => (
            PgSqlErrorCode::ERRCODE_NAME_TOO_LONG,
            format!("the name has {} bytes", name.len()),
            "It may have 200 bytes.",
        ),
        Some(name) if exists => (
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("there is a baseline \"{name}\" already"),
            "Take another name, or drop it with rowsource_baseline_drop(). The table rowsource_baselines lists them.",
        ),
        Some(_) if snapshots == 0 => (
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no snapshot is of this interval".to_owned(),
            "The table rowsource_snapshots lists the snapshots.",
        ),
        // A third is for those that are no baselines, a third for deleted rows.
        Some(_) if guc::snapshot_max_mb() > 0 && bytes / 1024 / 1024 * 3 > guc::snapshot_max_mb().into() => (
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "baselines would take more than a third of pg_rowsource.snapshot_max_size".to_owned(),
            "Choose a shorter interval, drop another baseline, or raise the limit.",
        ),
        Some(_) => return,
    };
    fail(code, &message, hint)
}

/// Fails if what was imported takes a third of what snapshots may take: these have the other two thirds.
pub fn check_import(bytes: i64) {
    let limit = i64::from(guc::snapshot_max_mb());
    if limit > 0 && bytes / 1024 / 1024 * 3 >= limit {
        fail(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "the history of other servers would take more than a third of pg_rowsource.snapshot_max_size",
            "Delete what is not needed from rowsource_imported, and then VACUUM FULL it, or raise the limit.",
        )
    }
}

/// Fails unless there is a baseline of this name.
pub fn check_baseline(name: Option<&str>, exists: bool) {
    if !exists {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            &format!("there is no baseline \"{}\"", name.unwrap_or("NULL")),
            "The table rowsource_baselines lists them.",
        )
    }
}

/// A line that was exported. Its row is read by PostgreSQL, for which numbers stay what they are.
pub struct Line {
    origin: String,
    table: String,
    snapshot: Option<i64>,
}

/// Adds the row of `rowsource_imported_line()`. Fails if a line is none that was exported.
pub fn imported_row(rows: &mut Rows, line: &str) {
    match parsed(line) {
        Ok(line) => imported_columns().add(rows, &line),
        Err(why) => fail(
            PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION,
            &why,
            "Import the lines that \\copy (SELECT rowsource_export()) TO has written, each as one row, with \\copy ... FROM.",
        ),
    }
}

/// Returns what a line says, or what is wrong with it.
fn parsed(line: &str) -> Result<Line, String> {
    let beginning: String = line.chars().take(40).collect();
    let json: Value = serde_json::from_str(line)
        .map_err(|error| format!("the line that begins with \"{beginning}\" is no exported line: {error}"))?;
    let number = json["line"]
        .as_i64()
        .ok_or_else(|| format!("the line that begins with \"{beginning}\" is no exported line"))?;
    match json["rowsource_export"].as_i64() {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(format!(
                "line {number} has the format {other}, and this version of pg_rowsource reads {FORMAT}"
            ));
        }
        None => return Err(format!("line {number} has no format")),
    }
    let text = |key: &str, max: usize| {
        let text = json[key]
            .as_str()
            .filter(|text| !text.is_empty() && text.len() <= max);
        text.map(str::to_owned)
            .ok_or_else(|| format!("line {number} has no {key}"))
    };
    let (origin, table) = (text("origin", MAX_NAME_BYTES)?, text("table", MAX_NAME_BYTES)?);
    if !TABLES.contains(&table.as_str()) {
        return Err(format!(
            "line {number} is a row of \"{table}\", which is no table of the history"
        ));
    }
    let snapshot = json["snap_id"].as_i64();
    match json["row"].is_object() {
        true => Ok(Line {
            origin,
            table,
            snapshot,
        }),
        false => Err(format!("line {number} has no row")),
    }
}

/// The columns of `rowsource_imported_line()`.
pub fn imported_columns() -> Columns<Line> {
    columns! { |row: &Line|
        /// The server that it is of
        origin: text = &row.origin;
        /// The table that it is of
        table_name: text = &row.table;
        /// The number of its snapshot there
        snap_id: bigint = row.snapshot;
    }
}
