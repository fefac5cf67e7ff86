//! The time that each session's running statement has waited for temporary files. The slots are in main
//! shared memory.
//!
//! A statement is identified by its start, as in pg_stat_activity. PostgreSQL sets it in this process's entry
//! there.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use crate::pg::compat;
use crate::pg::server::{SettingUp, Zeroed};
use pgrx::pg_sys;
use rowsource_core::tempfile::sessions::{Session, StatementTime};
use std::cell::Cell;
use std::ffi::CStr;

const NAME: &CStr = c"pg_rowsource temporary files of sessions";

/// The slot of a process that has none in shared memory. Nobody reads it.
static NOBODY: Session = Session::new();
/// The start of the statement of a process that is not in pg_stat_activity. It is never noted, so each
/// request looks again.
static NO_START: i64 = i64::MAX;
const NOTHING_NOTED: i64 = i64::MIN;

static SLOTS: BackendLocal<Cell<&'static [Session]>> = BackendLocal::new(Cell::new(&[]));
/// The session's slot.
static MINE: BackendLocal<Cell<&'static Session>> = BackendLocal::new(Cell::new(&NOBODY));
/// Where PostgreSQL notes when this process's statement started.
static START: BackendLocal<Cell<*const i64>> = BackendLocal::new(Cell::new(&raw const NO_START));
/// The start of the statement that the slot has.
static NOTED: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(NOTHING_NOTED));

/// Returns the number of slots. They have the numbers of the processes' temporary tables, which begin with 0
/// or 1.
fn count() -> usize {
    let processes = GLOBALS.MaxBackends.get();
    usize::try_from(processes).unwrap_or(0) + 1
}

/// Returns the size of the slots in bytes.
pub fn size() -> usize {
    count() * size_of::<Session>()
}

// SAFETY: it consists of atomics.
unsafe impl Zeroed for Session {}

/// Finds or creates the slots.
pub fn set_up(shared: &SettingUp) {
    SLOTS.set(shared.zeroed(NAME, count()).0);
    MINE.set(&NOBODY);
    NOTED.set(NOTHING_NOTED);
}

fn slots() -> &'static [Session] {
    SLOTS.get()
}

/// Returns whether the statement is another one than that of the last request. It is a plain frame, because
/// the functions that replace system calls call it.
#[inline(always)]
pub fn is_new_statement() -> bool {
    // SAFETY: the pointer is that of a static, or of this process's entry in main shared memory, which stays
    // mapped.
    unsafe { START.get().read_volatile() != NOTED.get() }
}

/// Adds a request to the session's slot. It is a plain frame, because the functions that replace system calls
/// call it.
#[inline(always)]
pub fn add(ns: u64) {
    MINE.get().add(ns);
}

/// Notes that a statement begins. It is a plain frame, because the functions that replace system calls call
/// it.
pub fn begin() {
    // SAFETY: this entry is null, or in main shared memory, which stays mapped. Only this process writes it.
    let Some(entry) = (unsafe { pg_sys::MyBEEntry.as_ref() }) else {
        START.set(&raw const NO_START);
        MINE.set(&NOBODY);
        return;
    };
    START.set(&raw const entry.st_activity_start_timestamp);
    let mine = usize::try_from(compat::number_of_session()).ok();
    MINE.set(mine.and_then(|mine| slots().get(mine)).unwrap_or(&NOBODY));
    MINE.get()
        .begin(entry.st_activity_start_timestamp, entry.st_userid.to_u32());
    let is_connected = GLOBALS.MyDatabaseId.get() != pg_sys::InvalidOid;
    // A process looks again until it has its database.
    NOTED.set(if is_connected {
        entry.st_activity_start_timestamp
    } else {
        NOTHING_NOTED
    });
}

/// Returns the time of each session's statement, and the session's process.
pub fn times() -> impl Iterator<Item = (i32, StatementTime)> {
    let slots = slots().iter().enumerate();
    slots.filter_map(|(number, slot)| {
        let time = slot.read()?;
        Some((compat::pid_of_session(number as i32)?, time))
    })
}
