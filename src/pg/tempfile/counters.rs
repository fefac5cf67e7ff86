//! Where requests are counted: in main shared memory; in a session that loaded the library by itself, in its own.

use super::source;
use crate::pg::backend_local::BackendLocal;
use crate::pg::server;
use pgrx::pg_sys;
use rowsource_core::tempfile::counters::{self, Area, Copied, Database, OTHERS};
use rowsource_core::tempfile::{FileType, Kind};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::LazyLock;

/// Databases with counters of their own. 530 kB.
const DATABASES: usize = 256;

type Shared = Area<DATABASES>;

pub const SIZE: usize = size_of::<Shared>();
const NAME: &CStr = c"pg_rowsource temporary files";

static AREA: BackendLocal<Cell<*const Shared>> = BackendLocal::new(Cell::new(std::ptr::null()));
/// The counters of this process's database, and which that is.
static MINE: BackendLocal<Cell<*const Database>> = BackendLocal::new(Cell::new(std::ptr::null()));
static MINE_OF: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));
/// A session's own, where there is no shared memory.
static OWN: LazyLock<Database> = LazyLock::new(Database::default);

/// The shared area, where there is one.
fn area() -> Option<&'static Shared> {
    // SAFETY: null, or the area in main shared memory, which stays as long as the process. It consists of atomics.
    unsafe { AREA.get().as_ref() }
}

/// Called from the hook in which shared memory is set up. New memory takes up what the last run left.
pub fn set_up() {
    // SAFETY: in the hook meant for it; asked for with SIZE bytes, of which zeroes are valid.
    unsafe {
        let mut found = false;
        let area: *mut Shared = pg_sys::ShmemInitStruct(NAME.as_ptr(), SIZE, &mut found).cast();
        AREA.set(area);
        MINE.set(std::ptr::null());
        if !found {
            area.write_bytes(0, 1);
            (*area).reset(server::now());
            super::file::load();
        }
    }
}

/// The counters of this process for a kind; null before shared memory is there. Plain: called from the functions that
/// stand in for system calls.
#[inline(always)]
pub fn mine(kind: Kind) -> *const counters::Cell {
    // SAFETY: MyDatabaseId is a plain global of this process. MINE is null, or lies in main shared memory, which stays.
    unsafe {
        let oid = pg_sys::MyDatabaseId.to_u32();
        if MINE.get().is_null() || MINE_OF.get() != oid {
            let Some(area) = AREA.get().as_ref() else {
                return std::ptr::null();
            };
            MINE.set(area.of(oid));
            MINE_OF.set(oid);
        }
        (*MINE.get()).cell(kind.index())
    }
}

/// The same where core's counters are added: without shared memory, the session's own.
pub fn of_core(kind: Kind) -> &'static counters::Cell {
    // SAFETY: null, or in main shared memory, which stays as long as the process.
    let shared = unsafe { mine(kind).as_ref() };
    shared.unwrap_or_else(|| OWN.cell(kind.index()))
}

/// Visits copies of all counters, those of this session's database always among them. Those of dropped databases are not
/// shown, and give way where there is no more room.
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

/// Begins anew: with a database, or with all by 0.
pub fn reset(oid: u32) {
    let now = server::now();
    match area() {
        None => OWN.reset(now),
        Some(area) if oid == 0 => area.reset(now),
        Some(area) if server::database_exists(oid) => area.of(oid).reset(now),
        Some(_) => {}
    }
}

/// This session's own counters begin now.
pub fn begin_own() {
    OWN.reset(server::now());
}

/// What is worth keeping across a restart: the source of each file type, and all counters.
pub(super) fn to_save() -> Option<([super::Source; 2], impl Iterator<Item = Copied>)> {
    area().map(|area| (FileType::ALL.map(source), area.copies()))
}

/// Puts saved counters back.
pub(super) fn restore(saved: &Copied) {
    if let Some(area) = area() {
        area.restore(saved);
    }
}
