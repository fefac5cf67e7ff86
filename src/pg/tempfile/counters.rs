//! What requests add to: counters per database and kind, in main shared memory; in a session that loaded the library
//! by itself, in its own.
//!
//! Atomics and no locks: a request takes microseconds, and is counted the moment it ends, so that none is lost however
//! its process ends. A fixed number of databases has counters of their own; further ones share one set, so that totals
//! stay right.

use super::{Source, source};
use crate::pg::server;
use pgrx::pg_sys;
use rowsource_core::tempfile::{BUCKETS, FileType, KINDS, Kind, Requests, bucket};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Databases with counters of their own, those of processes without a database (number 0) included.
const DATABASES: usize = 256;
/// What stands for the databases beyond.
pub const OTHERS: u32 = u32::MAX;

/// The requests of one kind.
#[repr(C)]
pub struct Cell {
    count: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
    max_ns: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

/// The counters of one database.
#[repr(C)]
struct Database {
    /// 0: free - but for the first, which is for processes without a database.
    oid: AtomicU32,
    reset_at: AtomicI64,
    cells: [Cell; KINDS],
}

#[repr(C)]
struct Area {
    databases: [Database; DATABASES],
    others: Database,
}

/// A copy of one database's counters.
pub struct DatabaseRequests {
    pub oid: u32,
    pub reset_at: i64,
    pub kinds: [Requests; KINDS],
}

pub const SIZE: usize = size_of::<Area>();
const NAME: &CStr = c"pg_rowsource temporary files";

static mut AREA: *const Area = std::ptr::null();
/// A session's own, where there is no shared memory.
static OWN: Database = Database::new();
/// The counters of this process's database, and which that is.
static mut MINE: *const Database = std::ptr::null();
static mut MINE_OF: u32 = 0;

impl Cell {
    #[allow(clippy::declare_interior_mutable_const, reason = "a value to begin with")]
    const NEW: Cell = Cell {
        count: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        ns: AtomicU64::new(0),
        max_ns: AtomicU64::new(0),
        histogram: [const { AtomicU64::new(0) }; BUCKETS],
    };

    /// Counts a request.
    #[inline(always)]
    pub fn add(&self, bytes: u64, ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
        // Within bounds by `bucket`; written so that no panic remains.
        if let Some(count) = self.histogram.get(bucket(ns)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Adds what was counted elsewhere.
    pub fn add_all(&self, requests: &Requests) {
        self.count.fetch_add(requests.count, Relaxed);
        self.bytes.fetch_add(requests.bytes, Relaxed);
        self.ns.fetch_add(requests.ns, Relaxed);
        self.max_ns.fetch_max(requests.max_ns, Relaxed);
        for (sum, &count) in self.histogram.iter().zip(&requests.histogram) {
            sum.fetch_add(count, Relaxed);
        }
    }

    fn copy(&self) -> Requests {
        Requests {
            count: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            ns: self.ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
            histogram: std::array::from_fn(|i| self.histogram[i].load(Relaxed)),
        }
    }

    fn reset(&self) {
        for counter in [&self.count, &self.bytes, &self.ns, &self.max_ns]
            .into_iter()
            .chain(&self.histogram)
        {
            counter.store(0, Relaxed);
        }
    }
}

impl Database {
    const fn new() -> Database {
        Database {
            oid: AtomicU32::new(0),
            reset_at: AtomicI64::new(0),
            cells: [Cell::NEW; KINDS],
        }
    }

    fn copy(&self, oid: u32) -> DatabaseRequests {
        DatabaseRequests {
            oid,
            reset_at: self.reset_at.load(Relaxed),
            kinds: std::array::from_fn(|i| self.cells[i].copy()),
        }
    }

    fn reset(&self, now: i64) {
        self.cells.iter().for_each(Cell::reset);
        self.reset_at.store(now, Relaxed);
    }
}

impl Area {
    /// The counters of a database: those it has, else free ones, else the common ones.
    fn of(&self, oid: u32) -> &Database {
        let databases = self.databases.iter();
        if let Some(database) = databases.clone().find(|d| d.oid.load(Relaxed) == oid) {
            return database;
        }
        databases
            .skip(1)
            .find(|d| match d.oid.compare_exchange(0, oid, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(other) => other == oid,
            })
            .unwrap_or(&self.others)
    }

    /// All in use, with the database's number.
    fn used(&self) -> impl Iterator<Item = (u32, &Database)> {
        self.databases
            .iter()
            .enumerate()
            .map(|(i, d)| (i, d.oid.load(Relaxed), d))
            .filter(|(i, oid, _)| *i == 0 || *oid != 0)
            .map(|(_, oid, d)| (oid, d))
            .chain(std::iter::once((OTHERS, &self.others)))
    }
}

/// The shared area, where there is one.
fn area() -> Option<&'static Area> {
    // SAFETY: main shared memory stays as long as the process.
    unsafe { AREA.as_ref() }
}

/// Called from the hook in which shared memory is set up. New memory takes up what the last run left.
pub fn set_up() {
    // SAFETY: in the hook meant for it; asked for with SIZE bytes.
    unsafe {
        let mut found = false;
        let area: *mut Area = pg_sys::ShmemInitStruct(NAME.as_ptr(), SIZE, &mut found).cast();
        AREA = area;
        MINE = std::ptr::null();
        if !found {
            area.write_bytes(0, 1);
            reset_all(&*area, server::now());
            super::file::load();
        }
    }
}

/// The counters of this process for a kind; null before shared memory is there. Plain: called from the functions that
/// stand in for system calls.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn mine(kind: Kind) -> *const Cell {
    // SAFETY: one thread; `index` is below KINDS.
    unsafe {
        let oid = pg_sys::MyDatabaseId.to_u32();
        if MINE.is_null() || MINE_OF != oid {
            let Some(area) = AREA.as_ref() else {
                return std::ptr::null();
            };
            MINE = area.of(oid);
            MINE_OF = oid;
        }
        (&raw const (*MINE).cells).cast::<Cell>().add(kind.index())
    }
}

/// The same where core's counters are added: without shared memory, the session's own.
pub fn of_core(kind: Kind) -> &'static Cell {
    // SAFETY: null or valid, for good.
    let shared = unsafe { mine(kind).as_ref() };
    shared.unwrap_or(&OWN.cells[kind.index()])
}

/// Copies of all counters; `exists` tells whether there still is a database of a number. This session's is always
/// among them.
pub fn all(exists: impl Fn(u32) -> bool) -> Vec<DatabaseRequests> {
    let me = server::database_id();
    let Some(area) = area() else {
        return vec![OWN.copy(me)];
    };
    area.of(me);
    forget_dropped(area, &exists);
    let mut all: Vec<DatabaseRequests> = Vec::new();
    for (oid, database) in area.used() {
        let copy = database.copy(oid);
        let idle = copy.kinds.iter().all(|requests| requests.count == 0);
        if !(idle && (oid == 0 || oid == OTHERS)) {
            all.push(copy);
        }
    }
    all
}

/// Gives back the counters of databases that are no more. Nobody can be connected to those.
fn forget_dropped(area: &Area, exists: &impl Fn(u32) -> bool) {
    for database in &area.databases[1..] {
        let oid = database.oid.load(Relaxed);
        if oid != 0 && !exists(oid) {
            database.reset(area.others.reset_at.load(Relaxed));
            database.oid.store(0, Relaxed);
        }
    }
}

/// Begins anew: a database, or all with 0.
pub fn reset(oid: u32) {
    let now = server::now();
    match area() {
        None => OWN.reset(now),
        Some(area) if oid == 0 => reset_all(area, now),
        Some(area) => area.of(oid).reset(now),
    }
}

fn reset_all(area: &Area, now: i64) {
    area.databases.iter().for_each(|database| database.reset(now));
    area.others.reset(now);
}

/// When this session's own counters begin.
pub fn begin_own() {
    OWN.reset_at.store(server::now(), Relaxed);
}

/// What is worth keeping across a restart: the source of each file type, and all counters.
pub(super) fn to_save() -> Option<([Source; 2], Vec<DatabaseRequests>)> {
    let area = area()?;
    let copies = area.used().map(|(oid, database)| database.copy(oid)).collect();
    Some((FileType::ALL.map(source), copies))
}

/// Puts saved counters back.
pub(super) fn restore(saved: impl Iterator<Item = DatabaseRequests>) {
    let Some(area) = area() else { return };
    for copy in saved {
        let database = if copy.oid == OTHERS {
            &area.others
        } else {
            area.of(copy.oid)
        };
        database.reset_at.store(copy.reset_at, Relaxed);
        for (cell, requests) in database.cells.iter().zip(&copy.kinds) {
            cell.add_all(requests);
        }
    }
}
