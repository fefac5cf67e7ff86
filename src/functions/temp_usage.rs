//! Temporary files on disk. PostgreSQL keeps no list of them, but their names show which process made them.
//!
//! Files appear and disappear during the search. A file that cannot be read is not counted.

use crate::pg::compat::{MAJOR_VERSION, pid_of_temp_tables};
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::tempfile::sessions;
use rowsource_core::tempfile::names::{Owner, TempName, parse};
use rowsource_core::tempfile::sessions::StatementTime;
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// The folder of work files within a tablespace.
const WORK_FILES: &str = "pgsql_tmp";

/// Who made files, and of which kind they are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pid: Option<i32>,
    datid: Option<u32>,
    kind: &'static str,
}

/// Their number and their size.
#[derive(Default)]
pub struct Files {
    count: i64,
    bytes: i64,
}

type Usage = BTreeMap<Key, Files>;

/// Adds the rows of `_rowsource_tempfiles()`.
pub fn file_rows(rows: &mut Rows) {
    let mut usage = Usage::new();
    for tablespace in tablespaces() {
        for entry in entries(&tablespace) {
            let name = entry.file_name();
            if name == WORK_FILES {
                work_files(&entry.path(), &mut usage);
            } else if let Some(datid) = name.to_str().and_then(|name| name.parse().ok()) {
                temp_tables(&entry.path(), datid, &mut usage);
            }
        }
    }
    let columns = file_columns();
    for files in usage {
        columns.add(rows, &files);
    }
}

/// The columns of `_rowsource_tempfiles()`.
pub fn file_columns() -> Columns<(Key, Files)> {
    columns! { |row: &(Key, Files)|
        /// The process that made the files; NULL if it is not known
        pid: int = row.0.pid;
        /// The OID of the database of a temporary table
        datid: oid = row.0.datid;
        /// work file, shared file set (of several processes) or temp table
        filetype: text = row.0.kind;
        /// The number of files
        files: bigint = row.1.count;
        /// Their size in bytes
        bytes: bigint = row.1.bytes;
    }
}

/// Adds the rows of `_rowsource_tempfile_times()`: the time that the last statement of each session has
/// waited for temporary files. As in pg_stat_activity, statements of other users are left out unless the user
/// may see them.
pub fn time_rows(rows: &mut Rows) {
    let columns = time_columns();
    for time in sessions::times().filter(|(_, time)| server::may_see(time.userid)) {
        columns.add(rows, &time);
    }
}

/// The columns of `_rowsource_tempfile_times()`.
pub fn time_columns() -> Columns<(i32, StatementTime)> {
    columns! { |row: &(i32, StatementTime)|
        /// The process of the session
        pid: int = row.0;
        /// When its last statement began
        query_start: timestamptz = row.1.statement;
        /// Milliseconds that this has waited for temporary files, in all its processes
        wait_time: float8 = row.1.ns as f64 / 1e6;
    }
}

/// Returns the folders that contain `pgsql_tmp` and the folders of databases: the default one, and this
/// version's folder in each tablespace.
fn tablespaces() -> Vec<PathBuf> {
    let version = format!("PG_{MAJOR_VERSION}_");
    let mut all = vec![PathBuf::from("base")];
    for tablespace in entries(Path::new("pg_tblspc")) {
        let of_version = entries(&tablespace.path())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&version));
        all.extend(of_version.map(|entry| entry.path()));
    }
    all
}

/// Returns the entries of a folder, or none if it does not exist. There can be many, so the user can cancel
/// this.
fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.inspect(|_| server::check_for_interrupts())
}

fn work_files(folder: &Path, usage: &mut Usage) {
    for entry in entries(folder) {
        let Some(TempName {
            owner: Owner::Process(pid),
            is_set,
        }) = entry.file_name().to_str().and_then(parse)
        else {
            continue;
        };
        let mut add = |kind, file: DirEntry| {
            let key = Key {
                pid: Some(pid),
                datid: None,
                kind,
            };
            count(usage, key, &file);
        };
        if is_set {
            entries(&entry.path()).for_each(|file| add("shared file set", file));
        } else {
            add("work file", entry);
        }
    }
}

fn temp_tables(folder: &Path, datid: u32, usage: &mut Usage) {
    for entry in entries(folder) {
        if let Some(TempName {
            owner: Owner::Backend(number),
            ..
        }) = entry.file_name().to_str().and_then(parse)
        {
            let key = Key {
                pid: pid_of_temp_tables(number, datid),
                datid: Some(datid),
                kind: "temp table",
            };
            count(usage, key, &entry);
        }
    }
}

fn count(usage: &mut Usage, key: Key, file: &DirEntry) {
    if let Ok(metadata) = file.metadata() {
        let files = usage.entry(key).or_default();
        files.count += 1;
        files.bytes += metadata.len() as i64;
    }
}
