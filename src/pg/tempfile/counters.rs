//! The counters of requests. They are in main shared memory. If the library was not preloaded, each session
//! has its own.

use super::sessions;
use super::source::{Source, source};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::{self, SettingUp, Zeroed};
use rowsource_core::tempfile::counters::{self, Area, Copied, Database, OTHERS};
use rowsource_core::tempfile::{FileType, Kind};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::LazyLock;

/// The number of databases that have separate counters. All counters take 530 kB.
const DATABASES: usize = 256;

type Shared = Area<DATABASES>;

/// The size of the counters in shared memory, in bytes.
pub const SIZE: usize = size_of::<Shared>();
const NAME: &CStr = c"pg_rowsource temporary files";

static AREA: BackendLocal<Cell<Option<&'static Shared>>> = BackendLocal::new(Cell::new(None));
/// The counters of this process's database, and the number of that database.
static MINE: BackendLocal<Cell<Option<&'static Database>>> = BackendLocal::new(Cell::new(None));
static MINE_OF: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));
/// The session's own counters, if there is no shared memory.
static OWN: LazyLock<Database> = LazyLock::new(Database::default);

/// Returns the shared area, if there is one.
fn area() -> Option<&'static Shared> {
    AREA.get()
}

// SAFETY: it consists of atomics.
unsafe impl Zeroed for Shared {}

/// Finds or creates the shared area. Returns whether it is new.
pub fn set_up(shared: &SettingUp) -> bool {
    let (area, is_new) = shared.zeroed::<Shared>(NAME, 1);
    AREA.set(area.first());
    MINE.set(None);
    if is_new {
        area[0].reset(server::now());
    }
    is_new
}

/// Returns the counters for a kind of request in this process's database, if there is shared memory.
/// It is a plain frame, because the functions that replace system calls call it.
#[inline(always)]
pub fn mine(kind: Kind) -> Option<&'static counters::Cell> {
    if sessions::is_new_statement() {
        begin_statement();
    }
    MINE.get().map(|database| database.cell(kind.index()))
}

/// Finds the counters of the session and of its database. No process changes its database within a statement.
#[cold]
#[inline(never)]
fn begin_statement() {
    sessions::begin();
    let oid = server::database_id();
    if MINE.get().is_none() || MINE_OF.get() != oid {
        let Some(area) = area() else { return };
        MINE.set(Some(area.of(oid)));
        MINE_OF.set(oid);
    }
}

/// Returns the counters to which core's counters of a kind are added. Without shared memory, these are the
/// session's own.
pub fn of_core(kind: Kind) -> &'static counters::Cell {
    mine(kind).unwrap_or_else(|| OWN.cell(kind.index()))
}

/// Visits copies of all counters, always including those of this session's database. Those of dropped
/// databases are left out. They are removed if the area is full.
pub fn each(mut visit: impl FnMut(Copied)) {
    let me = server::database_id();
    let Some(area) = area() else {
        return visit(OWN.copy(me));
    };
    area.of(me);
    if area.is_full() {
        area.forget(server::database_exists);
    }
    area.copies()
        .filter(|copy| [0, OTHERS].contains(&copy.oid) || server::database_exists(copy.oid))
        .for_each(visit);
}

/// Resets the counters of a database, or of all databases if `oid` is 0. Returns `false` if there is no such
/// database.
pub fn reset(oid: u32) -> bool {
    let now = server::now();
    match area() {
        None => OWN.reset(now),
        Some(area) if oid == 0 => area.reset(now),
        Some(area) if server::database_exists(oid) => area.of(oid).reset(now),
        Some(_) => return false,
    }
    true
}

/// Resets this session's own counters.
pub fn begin_own() {
    OWN.reset(server::now());
}

/// Returns the data to save for the next run of the server: the source of each file type, and all counters.
pub(super) fn to_save() -> Option<([Source; 2], impl Iterator<Item = Copied>)> {
    area().map(|area| (FileType::ALL.map(source), area.copies()))
}

/// Adds saved counters.
pub(super) fn restore(saved: &Copied) {
    if let Some(area) = area() {
        area.restore(saved);
    }
}
