//! What a wait was for, as the lines of waits have it: a part of a relation's file, or a lock.
//!
//! This is asked only in a session whose trace lists waits. A request to a file knows its descriptor: the
//! kernel is asked once for the path of each, until it is closed or another one takes its place here. A wait
//! for a heavyweight lock notes the lock before the wait, because another process clears it when it hands
//! over the lock.

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::posix;
use libc::c_int;
use pgrx::pg_sys;
use pgrx::pg_sys::NodeTag;
use rowsource_core::sql_trace::file::RelationFile;
use rowsource_core::sql_trace::writer::Line;
use rowsource_core::waits::{CLASS, Event};
use std::cell::Cell;

/// A request to a file.
#[derive(Clone, Copy)]
struct Request {
    /// The event during which it was made; 0 if there is none.
    event: Event,
    descriptor: c_int,
    /// The place in the file, if it is a part.
    offset: Option<u64>,
    bytes: u64,
}

/// The lock that the process waits for.
#[derive(Clone, Copy)]
struct Lock {
    is_known: bool,
    tag: pg_sys::LOCKTAG,
    mode: pg_sys::LOCKMODE,
}

/// What is known of a descriptor.
#[derive(Clone, Copy)]
struct Known {
    /// -1 if it is nothing.
    descriptor: c_int,
    /// `None` if it is no relation's file.
    file: Option<RelationFile>,
}

/// So many descriptors are known at a time.
const KNOWN: usize = 64;
const UNKNOWN: Known = Known {
    descriptor: -1,
    file: None,
};

struct State {
    /// Whether waits are listed.
    is_wanted: Cell<bool>,
    request: Cell<Request>,
    lock: Cell<Lock>,
    /// Each descriptor has one place.
    known: [Cell<Known>; KNOWN],
}

const NO_REQUEST: Request = Request {
    event: 0,
    descriptor: -1,
    offset: None,
    bytes: 0,
};

const NO_LOCK: Lock = Lock {
    is_known: false,
    tag: pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: 0,
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: 0,
        locktag_lockmethodid: 0,
    },
    mode: 0,
};

static STATE: BackendLocal<State> = BackendLocal::new(State {
    is_wanted: Cell::new(false),
    request: Cell::new(NO_REQUEST),
    lock: Cell::new(NO_LOCK),
    known: [const { Cell::new(UNKNOWN) }; KNOWN],
});

/// Returns whether waits are listed.
#[inline(always)]
pub fn is_wanted() -> bool {
    STATE.is_wanted.get()
}

/// Notes whether waits are listed from now on.
pub fn want(is_wanted: bool) {
    STATE.is_wanted.set(is_wanted);
}

#[inline(always)]
fn place(descriptor: c_int) -> Option<&'static Cell<Known>> {
    STATE.inner().known.get(descriptor as usize % KNOWN)
}

/// Notes that a request to a file is made, whose wait is counted next. `bytes` is computed only if it is
/// needed.
#[inline(always)]
pub fn note_request(event: Event, descriptor: c_int, offset: Option<u64>, bytes: impl FnOnce() -> u64) {
    if is_wanted() {
        STATE.request.set(Request {
            event,
            descriptor,
            offset,
            bytes: bytes(),
        });
    }
}

/// Forgets a descriptor that is closed. The next file may have the same.
#[inline(always)]
pub fn forget(descriptor: c_int) {
    if let Some(place) = place(descriptor)
        && place.get().descriptor == descriptor
    {
        place.set(UNKNOWN);
    }
}

/// Forgets all descriptors, because some may have been closed.
pub fn forget_all() {
    STATE.inner().known.iter().for_each(|place| place.set(UNKNOWN));
}

/// Notes the lock for which the process waits now, if waits are listed.
#[inline(always)]
pub fn note_lock() {
    if is_wanted() {
        STATE.lock.set(wanted());
    }
}

/// Returns the lock for which the process waits. It is not known if another process has handed it over just
/// now.
#[inline(never)]
fn wanted() -> Lock {
    // SAFETY: this is the entry of this process in PostgreSQL's list, which stays mapped, or null. The lock
    // is in shared memory. It stays as it is, because this process waits for it, or has just got it, and does
    // not release it before the wait has ended.
    unsafe {
        let process = pg_sys::MyProc;
        if process.is_null() {
            return NO_LOCK;
        }
        let lock = (&raw const (*process).waitLock).read_volatile();
        if lock.is_null() {
            return NO_LOCK;
        }
        Lock {
            is_known: true,
            tag: (&raw const (*lock).tag).read_volatile(),
            mode: (&raw const (*process).waitLockMode).read_volatile(),
        }
    }
}

/// Adds what a wait for an event was for to its line.
#[inline(always)]
pub fn add(line: Line<'_>, event: Event) -> Line<'_> {
    if event & CLASS == pg_sys::PG_WAIT_LOCK {
        return add_lock(line);
    }
    let request = STATE.request.replace(NO_REQUEST);
    if request.event != event {
        return line;
    }
    let Some(file) = file(request.descriptor) else {
        return line;
    };
    let line = line
        .known(
            b"tbs",
            Some(file.tablespace).filter(|oid| *oid != 0).map(u64::from),
        )
        .number(b"db", u64::from(file.database))
        .number(b"file", u64::from(file.number))
        .number(b"fork", u64::from(file.fork));
    let Some(offset) = request.offset else {
        return line;
    };
    line.number(b"block", file.block(offset, pg_sys::BLCKSZ, pg_sys::RELSEG_SIZE))
        .number(b"blocks", request.bytes.div_ceil(u64::from(pg_sys::BLCKSZ)))
}

#[inline(always)]
fn add_lock(line: Line<'_>) -> Line<'_> {
    use pg_sys::LockTagType as Type;
    let Lock { is_known, tag, mode } = STATE.lock.replace(NO_LOCK);
    if !is_known {
        return line;
    }
    let [first, second, third] = [tag.locktag_field1, tag.locktag_field2, tag.locktag_field3].map(u64::from);
    let fourth = u64::from(tag.locktag_field4);
    let line = line.number(b"mode", mode as u64);
    match Type::Type::from(tag.locktag_type) {
        Type::LOCKTAG_RELATION | Type::LOCKTAG_RELATION_EXTEND => {
            line.number(b"db", first).number(b"rel", second)
        }
        Type::LOCKTAG_PAGE => line
            .number(b"db", first)
            .number(b"rel", second)
            .number(b"block", third),
        Type::LOCKTAG_TUPLE => line
            .number(b"db", first)
            .number(b"rel", second)
            .number(b"block", third)
            .number(b"tuple", fourth),
        Type::LOCKTAG_TRANSACTION => line.number(b"xid", first),
        Type::LOCKTAG_VIRTUALTRANSACTION => line.number(b"backend", first).number(b"lxid", second),
        Type::LOCKTAG_OBJECT => line
            .number(b"db", first)
            .number(b"class", second)
            .number(b"objid", third)
            .number(b"objsubid", fourth),
        Type::LOCKTAG_ADVISORY => line
            .number(b"db", first)
            .number(b"classid", second)
            .number(b"objid", third)
            .number(b"objsubid", fourth),
        _ => line,
    }
}

/// Returns the relation's file that a descriptor belongs to, if it is one.
#[inline(always)]
fn file(descriptor: c_int) -> Option<RelationFile> {
    match place(descriptor).map(Cell::get) {
        Some(known) if known.descriptor == descriptor => known.file,
        _ => look_up(descriptor),
    }
}

/// Asks the kernel for the path. Keeps errno.
#[cold]
#[inline(never)]
fn look_up(descriptor: c_int) -> Option<RelationFile> {
    let file = RelationFile::parse(posix::path_of(descriptor, &mut [0; 4096]));
    if let Some(place) = place(descriptor) {
        place.set(Known { descriptor, file });
    }
    file
}

/// Returns the OID of the relation that a plan node works on, if it has one now.
///
/// # Safety
/// The plan state must be null, or that of a statement that runs.
#[inline(never)]
pub unsafe fn relation_of(state: *const pg_sys::PlanState) -> Option<u32> {
    // SAFETY: the caller promises that the state is live, so what it points to is open. When the process
    // exits, the relations of statements that it has interrupted may be closed already. A node's tag says its
    // type. Lists are arrays.
    unsafe {
        if state.is_null() || pg_sys::proc_exit_inprogress {
            return None;
        }
        let relation = match (*state).type_ {
            NodeTag::T_SeqScanState
            | NodeTag::T_SampleScanState
            | NodeTag::T_IndexScanState
            | NodeTag::T_IndexOnlyScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_TidRangeScanState
            | NodeTag::T_ForeignScanState
            | NodeTag::T_CustomScanState => (*state.cast::<pg_sys::ScanState>()).ss_currentRelation,
            NodeTag::T_BitmapIndexScanState => {
                (*state.cast::<pg_sys::BitmapIndexScanState>()).biss_RelationDesc
            }
            NodeTag::T_ModifyTableState => {
                let modify = state.cast::<pg_sys::ModifyTableState>();
                let (targets, count) = ((*modify).resultRelInfo, (*modify).mt_nrels);
                let last = (*modify).mt_lastResultIndex;
                if targets.is_null() || !(0..count).contains(&last) {
                    return None;
                }
                (*targets.add(last as usize)).ri_RelationDesc
            }
            NodeTag::T_LockRowsState => {
                let marks = (*state.cast::<pg_sys::LockRowsState>()).lr_arowMarks;
                // Of several tables, it is not known which one is locked now.
                if marks.is_null() || (*marks).length != 1 {
                    return None;
                }
                let mark = (*(*marks).elements).ptr_value.cast::<pg_sys::ExecAuxRowMark>();
                (*(*mark).rowmark).relation
            }
            _ => return None,
        };
        (!relation.is_null()).then(|| (*relation).rd_id.to_u32())
    }
}
