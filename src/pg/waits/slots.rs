//! The slots of the processes and the sums of those that have ended, in main shared memory.
//!
//! A slot has the number of its process in PostgreSQL's list of processes. The waits of a process that has
//! ended stay in its slot until another process gets its number. So nothing has to run when a process ends.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::globals::GLOBALS;
use crate::pg::server::processes::{Process, Processes};
use crate::pg::server::{self, SettingUp, Zeroed};
use pgrx::pg_sys;
use rowsource_core::waits::slot::Slot;
use rowsource_core::waits::sums::Sums;
use rowsource_core::waits::{Event, Waits};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::LazyLock;

/// The number of events that a process counts separately. A slot takes 12.5 kB.
const EVENTS: usize = 48;
/// The number of sums of ended processes, for pairs of a type of processes and an event. They take 0.3 MB.
const SUMS: usize = 1024;

type ProcessSlot = Slot<EVENTS>;
type Ended = Sums<SUMS>;

const NAME: &CStr = c"pg_rowsource waits";
const NAME_OF_SUMS: &CStr = c"pg_rowsource waits of ended processes";

/// The type of parallel workers. PostgreSQL counts them among the background workers.
pub const PARALLEL_WORKER: u32 = 31;

static SLOTS: BackendLocal<Cell<&'static [ProcessSlot]>> = BackendLocal::new(Cell::new(&[]));
static ENDED: BackendLocal<Cell<Option<&'static Ended>>> = BackendLocal::new(Cell::new(None));
/// Whether they are in main shared memory.
static SHARED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// This process's slot, if it has one.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static MINE: BackendLocal<Cell<*const ProcessSlot>> = BackendLocal::new(Cell::new(std::ptr::null()));
/// The address of the wait event of the process that has the slot. When a process ends, it gives up its place
/// in PostgreSQL's list before another process can take it, and from then on has its wait event elsewhere.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static WORD: BackendLocal<Cell<*const u32>> = BackendLocal::new(Cell::new(std::ptr::null()));
/// The slot of a session that has loaded the library by itself.
static OWN: LazyLock<ProcessSlot> = LazyLock::new(ProcessSlot::default);
static OWN_ENDED: LazyLock<Ended> = LazyLock::new(Ended::default);

/// Returns the number of slots: one for each process that PostgreSQL's list can have.
fn count() -> usize {
    let processes = GLOBALS.MaxBackends.get();
    usize::try_from(processes).unwrap_or(0) + pg_sys::NUM_AUXILIARY_PROCS as usize
}

/// Returns the size of the shared memory in bytes, with room to align both parts.
pub fn size() -> usize {
    count() * size_of::<ProcessSlot>() + size_of::<Ended>() + align_of::<ProcessSlot>() + align_of::<Ended>()
}

// SAFETY: it consists of atomics.
unsafe impl Zeroed for ProcessSlot {}
// SAFETY: it consists of atomics.
unsafe impl Zeroed for Ended {}

/// Finds or creates the slots.
pub fn set_up(shared: &SettingUp) {
    SLOTS.set(shared.zeroed(NAME, count()).0);
    let (ended, is_new) = shared.zeroed::<Ended>(NAME_OF_SUMS, 1);
    if is_new {
        ended[0].begin(server::now());
    }
    ENDED.set(ended.first());
    SHARED.set(true);
    MINE.set(std::ptr::null());
    WORD.set(std::ptr::null());
}

/// Makes this session count its own waits, in its own memory.
pub fn count_own() {
    SLOTS.set(std::slice::from_ref(&*OWN));
    ENDED.set(Some(&*OWN_ENDED));
}

/// Returns whether the waits of all processes are counted, not only those of this session.
pub fn are_shared() -> bool {
    SHARED.get()
}

fn slots() -> &'static [ProcessSlot] {
    SLOTS.get()
}

fn ended() -> Option<&'static Ended> {
    ENDED.get()
}

/// Returns this process's slot, if it has one. It is a plain frame, because the functions that replace those
/// of the C library call it.
#[inline(always)]
pub fn mine() -> Option<&'static ProcessSlot> {
    // SAFETY: this is a global of a plain type. The pointer is null, or that of a slot that lives as long as
    // the process.
    unsafe {
        if !std::ptr::eq(GLOBALS.my_wait_event_info.get(), WORD.get()) {
            find();
        }
        MINE.get().as_ref()
    }
}

/// Finds the slot of this process. It has none while it is not in PostgreSQL's list of processes: the
/// postmaster and the logger are never, and a process of the server is neither at its very beginning nor at
/// its very end.
#[cold]
#[inline(never)]
fn find() {
    let mine = GLOBALS.my_wait_event_info.get();
    let process = Process::own().filter(|process| std::ptr::eq(process.wait_event_word(), mine));
    let Some(process) = process else {
        return MINE.set(std::ptr::null());
    };
    let word = process.wait_event_word();
    let index = match are_shared() {
        true => Processes::all().number(process),
        false => 0,
    };
    let (Some(slot), Some(ended)) = (slots().get(index), ended()) else {
        return MINE.set(std::ptr::null());
    };
    let of = backend_type();
    if MINE.get().is_null() {
        ended.give(slot, server::pid(), of);
        MINE.set(slot);
    }
    slot.set_backend_type(of);
    // A process of the server looks again until it knows its type.
    if of != pg_sys::BackendType::B_INVALID || !GLOBALS.IsUnderPostmaster.get() {
        WORD.set(word);
    }
}

/// Returns the type of this process.
fn backend_type() -> u32 {
    // SAFETY: these are globals of this process. The entry of a background worker is null or lives as long as
    // the process.
    unsafe {
        let of = pg_sys::MyBackendType;
        let entry = pg_sys::MyBgworkerEntry;
        if of == pg_sys::BackendType::B_BG_WORKER && !entry.is_null() {
            let name = (*entry).bgw_type.as_ptr();
            if libc::strcmp(name, c"parallel worker".as_ptr()) == 0 {
                return PARALLEL_WORKER;
            }
        }
        of
    }
}

/// Returns the waits of all processes since the server started, by the type of the process and the event.
/// Returns `None` if only those of this session are counted.
pub fn total() -> Option<BTreeMap<(u32, Event), Waits>> {
    let ended = ended().filter(|_| are_shared())?;
    Some(ended.total(slots()))
}

/// Returns since when the waits of all processes are counted.
pub fn stats_reset() -> Option<i64> {
    ended().filter(|_| are_shared()).map(Ended::since)
}

/// The waits of a process that runs now.
pub struct Session {
    pub pid: i32,
    /// The OID of its user; 0 if it has none.
    pub userid: u32,
    pub waits: Vec<(Event, Waits)>,
}

/// Returns the waits of the processes that run now.
pub fn sessions() -> impl Iterator<Item = Session> {
    let slots = slots().iter().enumerate();
    slots.filter_map(|(number, slot)| {
        let pid = slot.pid();
        let process = match are_shared() {
            true => Processes::all().get(number),
            false => Process::own(),
        }?;
        (pid != 0 && process.latch_owner() == pid).then(|| Session {
            pid,
            userid: process.role().to_u32(),
            waits: slot.waits().collect(),
        })
    })
}
