//! The SQL trace: `rowsource_trace_start()` and `rowsource_trace_stop()`, the list of its files, and what is
//! made of them.

use super::export::add_document;
use crate::guc::{self, Trace};
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::{self, Rows};
use crate::pg::server::{self, fail, memory, switch};
use crate::pg::sql_trace::files::{self, Listed, Name};
use crate::pg::sql_trace::{level, session};
use pgrx::PgSqlErrorCode;
use rowsource_core::export::Syntax;
use rowsource_core::sql_trace::chrome::Chrome;
use rowsource_core::sql_trace::event::{Event, WaitObject};
use rowsource_core::sql_trace::reader::Reader;
use rowsource_core::sql_trace::report::{Key, Object, Report, parse_sort, sort_words};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// The maximal bytes of a line that is read. Those that are written are shorter.
const MAX_LINE: u64 = 1 << 20;
/// How many lines are read between two checks for interrupts.
const LINES_AT_ONCE: u64 = 1_000;
/// How many bytes are read between them at most, plus a line.
const BYTES_AT_ONCE: usize = 256 << 10;
/// The maximal bytes that a report keeps of the texts, plans and waits of its files.
const MAX_KEPT: usize = 64 << 20;
/// The most files of a report.
const MAX_FILES: usize = 1_000;
/// The maximal bytes of a document: PostgreSQL's values have less than a gigabyte.
const MAX_DOCUMENT: usize = 256 << 20;
/// What is shown instead of the texts of others.
const HIDDEN: &str = "<insufficient privilege>";

/// Begins the trace of this session. Adds a row with the name of its file.
pub fn start(rows: &mut Rows, waits: bool, binds: bool) {
    switch::ensure_on();
    guc::set_trace(Trace::word(waits, binds));
    if !session::ready() {
        fail(
            PgSqlErrorCode::ERRCODE_IO_ERROR,
            "the trace file cannot be written",
            "The server's log has the reason.",
        )
    }
    rows.add_line(&session::current().to_string());
}

/// Ends the trace of this session. Adds a row with the name of its last file; if it has none, a notice says
/// so.
pub fn stop(rows: &mut Rows) {
    let is_traced = level::is_own() && session::is_open();
    guc::set_trace(c"off");
    if is_traced {
        rows.add_line(&session::current().to_string());
    } else {
        server::notify(
            "this session is not traced",
            "rowsource_trace_targets lists the targets, which rowsource_trace_stop(target => n) removes.",
        );
    }
}

/// Returns the files of all sessions.
fn all_files() -> Vec<Listed> {
    let found = files::list(|| {
        server::check_for_interrupts();
        true
    });
    found.unwrap_or_default()
}

/// Returns whether the current user may read the files of all sessions.
fn may_read_all() -> bool {
    srf::may_execute("rowsource_trace_read_all")
}

/// Adds the rows of `rowsource_trace_files`.
pub fn file_rows(rows: &mut Rows) {
    session::flush_if_open();
    let found = match may_read_all() {
        true => all_files(),
        false => session::own_files().collect(),
    };
    let columns = file_columns();
    for file in found {
        columns.add(rows, &file);
    }
}

/// The columns of `rowsource_trace_files()`.
pub fn file_columns() -> Columns<Listed> {
    columns! { |file: &Listed|
        /// The name of the file in the folder pgsql_tmp_rowsource_trace of the data directory
        file: text = file.name.to_string();
        /// The process that wrote it
        pid: int = file.name.pid;
        /// The files of a session are numbered from 1 on
        part: int = file.name.part;
        /// Its size in bytes
        bytes: bigint = file.bytes;
        /// When the process began
        backend_start: timestamptz = server::from_unix(file.name.start);
        /// When it was last written
        modified_at: timestamptz = server::from_unix(file.modified);
        /// Whether this session writes it
        is_own: boolean = file.name.is_mine();
        /// Lines of all files of this session that could not be written; NULL for other sessions
        lost_lines: bigint = file.name.is_mine().then(session::lost);
    }
}

/// Returns the files with these names, separated by commas, or those of the last process with this id, or
/// those of this session.
fn chosen(names: Option<&str>, pid: Option<i32>) -> Vec<Name> {
    session::flush_if_open();
    let found: Vec<Name> = match (names, pid) {
        (Some(names), None) => {
            let names = names.split(',').take(MAX_FILES + 1);
            names.map(|name| parse(name.trim())).collect()
        }
        (Some(_), Some(_)) => fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "both files and a pid are given",
            "Give one of them, or none for this session's files.",
        ),
        (None, pid) if pid.is_none_or(|pid| pid == server::pid()) => {
            session::own_files().map(|file| file.name).collect()
        }
        // Nothing is listed for those who may not read the files.
        (None, Some(_)) if !may_read_all() => Vec::new(),
        (None, pid) => {
            let mut of_pid: Vec<Name> = all_files()
                .into_iter()
                .map(|file| file.name)
                .filter(|name| Some(name.pid) == pid)
                .collect();
            // An earlier process may have had the same id.
            let last = of_pid.last().map(|name| name.start);
            of_pid.retain(|name| Some(name.start) == last);
            of_pid
        }
    };
    if !may_read_all()
        && (pid.is_some_and(|pid| pid != server::pid()) || found.iter().any(|name| !name.is_mine()))
    {
        fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied for the trace files of other sessions",
            "A superuser may allow it: GRANT EXECUTE ON FUNCTION rowsource_trace_read_all() TO a role.",
        )
    }
    if found.len() > MAX_FILES {
        too_much(&format!("a report has at most {MAX_FILES} trace files"));
    }
    if found.is_empty() {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_FILE,
            &match pid {
                Some(pid) => format!("there is no trace file of process {pid}"),
                None => "there is no trace file of this session".to_owned(),
            },
            "Begin a trace with rowsource_trace_start(), or see rowsource_trace_files.",
        )
    }
    found
}

/// Raises that the files have too much for one result.
fn too_much(what: &str) -> ! {
    fail(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        what,
        "Give fewer files, or trace with a smaller pg_rowsource.trace_max_file_size.",
    )
}

/// Raises "out of memory" unless there is memory to double what is kept.
fn ensure_room(kept: usize) {
    // A node counts as 8 kB.
    memory::ensure_headroom(kept >> 12);
}

fn parse(name: &str) -> Name {
    Name::parse(name).unwrap_or_else(|| {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("no trace file is called \"{name}\""),
            "rowsource_trace_files lists the files. Several names are separated by commas.",
        )
    })
}

fn open(name: &Name) -> File {
    name.open().unwrap_or_else(|error| {
        fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_FILE,
            &format!("trace file \"{name}\" cannot be read: {error}"),
            "rowsource_trace_files lists the files.",
        )
    })
}

/// Hides the statements of other users from a user who may not see them: those of functions with their
/// owner's rights. What has no cursor, and a cursor whose description was lost, may be another user's, so
/// they are hidden too.
struct Mask {
    sees_all: bool,
    visible: HashSet<u64>,
}

impl Mask {
    fn is_visible(&self, cursor: u64) -> bool {
        self.visible.contains(&cursor)
    }

    fn apply(&mut self, event: &mut Event) {
        if self.sees_all {
            return;
        }
        match event {
            Event::Cursor(cursor)
                if u32::try_from(cursor.uid).is_ok_and(server::may_see)
                    && self.visible.try_reserve(1).is_ok() =>
            {
                self.visible.insert(cursor.number);
            }
            Event::Cursor(cursor) => {
                HIDDEN.clone_into(&mut cursor.sql);
                self.visible.remove(&cursor.number);
            }
            Event::Stat(stat) if !self.is_visible(stat.cursor) => {
                HIDDEN.clone_into(&mut stat.node.operation);
            }
            Event::Wait(wait) if !self.is_visible(wait.cursor) => {
                wait.object = WaitObject::default();
            }
            Event::Value { cursor, value, .. } if !self.is_visible(*cursor) => {
                *value = None;
            }
            Event::ParseError { uid, sql, .. } if !u32::try_from(*uid).is_ok_and(server::may_see) => {
                HIDDEN.clone_into(sql);
            }
            _ => {}
        }
    }
}

/// Reads a file. Returns notes on what is missing. `add` returns how many bytes are kept of all files.
fn read(name: &Name, mut kept: usize, mut add: impl FnMut(Event) -> usize) -> Vec<String> {
    let mut file = BufReader::new(open(name));
    let (mut reader, mut line) = (Reader::default(), Vec::new());
    let (mut lines, mut bytes) = (0_u64, 0);
    let mut mask = Mask {
        sees_all: may_read_all(),
        visible: HashSet::new(),
    };
    loop {
        if lines.is_multiple_of(LINES_AT_ONCE) || bytes >= BYTES_AT_ONCE {
            server::check_for_interrupts();
            ensure_room(kept);
            bytes = 0;
        }
        lines += 1;
        line.clear();
        match (&mut file).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) => fail(
                PgSqlErrorCode::ERRCODE_IO_ERROR,
                &format!("trace file \"{name}\" cannot be read: {error}"),
                "The server's log may say more.",
            ),
        }
        if let Some(mut event) = reader.read(&line) {
            mask.apply(&mut event);
            kept = add(event) + reader.bytes();
        }
    }
    let mut notes = Vec::new();
    if reader.unreadable > 0 {
        notes.push(format!("{name}: {} lines could not be read", reader.unreadable));
    }
    if reader.is_cut {
        notes.push(format!("{name}: the last line is cut"));
    }
    notes
}

/// Returns what a report is sorted by. Fails if a word is unknown.
pub(super) fn sort_keys(words: &str) -> Vec<Key> {
    parse_sort(words).unwrap_or_else(|word| {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            &format!("unknown word \"{word}\" in sort"),
            &sort_words(),
        )
    })
}

/// Returns the name of a relation, if it is one of this database or of all. Other databases may have the same
/// numbers.
fn relation_name(object: &Object) -> Option<String> {
    let (Object::Relation { database, .. } | Object::File { database, .. }) = *object;
    if ![0, u64::from(server::database_id())].contains(&database) {
        return None;
    }
    let number = |number: u64| u32::try_from(number).ok();
    let oid = match *object {
        Object::Relation { oid, .. } => number(oid),
        Object::File {
            tablespace,
            number: file,
            ..
        } => server::relation_of_file(number(tablespace?)?, number(file)?),
    };
    server::relation_name(oid?)
}

/// Adds the lines of `rowsource_tkprof()`.
pub fn report_lines(
    rows: &mut Rows,
    names: Option<&str>,
    pid: Option<i32>,
    sort: Option<&str>,
    limit: Option<i32>,
) {
    let keys = sort_keys(sort.unwrap_or_default());
    let mut report = Report::default();
    for name in chosen(names, pid) {
        report.begin_file(name.to_string());
        let notes = read(&name, report.size(), |event| {
            report.add(event);
            if report.size() > MAX_KEPT {
                too_much("the report is too long");
            }
            report.size()
        });
        report.end_file(notes);
    }
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(0));
    ensure_room(report.size().saturating_mul(2));
    let check = || {
        server::check_for_interrupts();
        memory::ensure();
    };
    for line in report.lines_with(&keys, limit, check, &relation_name) {
        server::check_for_interrupts();
        rows.add_line(&line);
    }
}

/// Adds the row of `rowsource_trace_events()`.
pub fn document_row(rows: &mut Rows, names: Option<&str>, pid: Option<i32>) {
    let mut chrome = Chrome::default();
    for name in chosen(names, pid) {
        chrome.begin_file();
        read(&name, chrome.size(), |event| {
            chrome.add(event);
            if chrome.size() > MAX_DOCUMENT {
                too_much("the document is too long");
            }
            chrome.size()
        });
    }
    ensure_room(chrome.size());
    add_document(rows, &chrome.document(), Syntax::Json);
}
