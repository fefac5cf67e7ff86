//! The store that all sessions share: with `shared_preload_libraries`, and from PostgreSQL 17 on without it too, for
//! all sessions that load the library.
//!
//! A small control block lies in main shared memory, or, where the server did not preload us, in a segment of
//! PostgreSQL's registry (`GetNamedDSMSegment`); such a store is not saved, for the postmaster does not know us. The
//! plans lie in dynamic shared memory, made by the first backend that needs it and kept until the server stops.
//!
//! Locks, and the order in which they are taken:
//! 1. a session's way (`gather`): to gather an execution of a short plan in memory of the session's own, or to collect
//!    what was gathered there;
//! 2. the control lock, exclusive: to make the store, to load the file, to evict, to insert a new plan;
//! 3. a partition lock of the table (dshash): shared to find a plan, exclusive to insert or delete one;
//! 4. a plan's own lock: exclusive to add to it, shared to copy it.
//!
//! So the update of a known plan takes no exclusive lock that other plans share, and mostly none that other sessions
//! share. Nothing is called into PostgreSQL's executor or catalogs while any of them is held.

mod entry;
mod file;
mod gather;

use super::{compat, raw, server, statfile, tempfile};
use crate::guc;
use crate::session::{Execution, Plan, PlanKey, matches};
use entry::{Batch, Entry};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Larger plans are not kept.
pub const MOST_NODES: usize = 1_000;
/// This share of the plans makes room when the store is full.
const EVICTED_SHARE: usize = 20;

/// Zeroed when it is made.
#[repr(C)]
struct Control {
    lock: pg_sys::LWLock,
    made: AtomicBool,
    loaded: AtomicBool,
    area: pg_sys::dsa_handle,
    table: pg_sys::dshash_table_handle,
    tranche: i32,
    plans: AtomicU64,
    /// Of the plans, without what sessions gather in.
    bytes: AtomicU64,
    /// The newest of the blocks in which sessions gather.
    blocks: AtomicU64,
    evictions: AtomicU64,
    /// Executions that were not kept: their plan was too large, or memory was short.
    refused: AtomicU64,
    reset_at: AtomicI64,
}

/// One row about the store.
pub struct Info {
    pub plans: u64,
    pub bytes: u64,
    pub evictions: u64,
    pub refused: u64,
    pub reset_at: i64,
}

/// This backend's way to the store.
#[derive(Clone, Copy)]
struct Store {
    control: *mut Control,
    area: *mut pg_sys::dsa_area,
    table: *mut pg_sys::dshash_table,
}

static mut CONTROL: *mut Control = std::ptr::null_mut();
static mut STORE: Option<Store> = None;
static mut PREV_SHMEM_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREV_SHMEM_STARTUP: pg_sys::shmem_startup_hook_type = None;

const TRANCHE: &std::ffi::CStr = c"pg_rowsource";

/// Asks for shared memory; does nothing in a session that loads the library later.
pub fn init() {
    if !server::preloading() {
        return;
    }
    // SAFETY: _PG_init runs once in the postmaster.
    unsafe {
        PREV_SHMEM_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(shmem_request);
        PREV_SHMEM_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(shmem_startup);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: in the hook meant for it.
    unsafe {
        if let Some(previous) = PREV_SHMEM_REQUEST {
            pg_guard_ffi_boundary(|| previous());
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Control>());
        pg_sys::RequestAddinShmemSpace(tempfile::counters::SIZE);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: in the hook meant for it; the block is ours alone.
    unsafe {
        if let Some(previous) = PREV_SHMEM_STARTUP {
            pg_guard_ffi_boundary(|| previous());
        }
        let mut found = false;
        CONTROL = pg_sys::ShmemInitStruct(TRANCHE.as_ptr(), size_of::<Control>(), &mut found).cast();
        if !found {
            begin(CONTROL);
        }
    }
    tempfile::counters::set_up();
    file::save_at_exit();
}

/// Makes a control block, while nobody else can see it.
unsafe fn begin(control: *mut Control) {
    // SAFETY: the caller's own block.
    unsafe {
        control.write_bytes(0, 1);
        (*control).tranche = compat::new_tranche(TRANCHE);
        pg_sys::LWLockInitialize(&raw mut (*control).lock, (*control).tranche);
        (*control).reset_at.store(server::now(), Relaxed);
    }
}

/// Called by the registry for a block that it has just made.
#[pg_guard]
unsafe extern "C-unwind" fn begin_registered(block: *mut std::ffi::c_void) {
    let control: *mut Control = block.cast();
    // SAFETY: a new block of the size that was asked for.
    unsafe {
        begin(control);
        // Nobody saves it, so there is nothing to load; what an earlier run saved is not its past.
        (*control).loaded.store(true, Relaxed);
    }
}

/// The registry's name for our block. A library that was exchanged while the server runs must not find what another
/// one made.
fn registered_name() -> std::ffi::CString {
    let layout = [
        size_of::<Control>(),
        size_of::<Entry>(),
        entry::NODE_SIZE,
        gather::BLOCK_SIZE,
    ];
    let magic = String::from_utf8_lossy(statfile::MAGIC);
    let name = format!("pg_rowsource {} {magic} {layout:?}", env!("CARGO_PKG_VERSION"));
    std::ffi::CString::new(name).unwrap_or_default()
}

unsafe fn control_lock() -> *mut pg_sys::LWLock {
    // SAFETY: only called where there is a store.
    unsafe { &raw mut (*CONTROL).lock }
}

/// Attaches this backend to the store, making and loading it first where nobody has. To be called where memory may
/// be allocated for good: when a statement starts, or from a function. A backend that cannot (there is no shared
/// memory left) says so once, and goes on without.
pub fn attach() {
    static mut GIVEN_UP: bool = false;
    // SAFETY: main thread.
    unsafe {
        if { STORE }.is_some() || GIVEN_UP || (CONTROL.is_null() && !server::may_register()) {
            return;
        }
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        STORE = tried(|| {
            if CONTROL.is_null() {
                CONTROL =
                    compat::registered(&registered_name(), size_of::<Control>(), begin_registered).cast();
            }
            make_or_attach()
        });
        pg_sys::MemoryContextSwitchTo(context);
        if { STORE }.is_none() {
            GIVEN_UP = true;
            pgrx::log!("pg_rowsource could not attach to its shared memory; this session is not kept");
        }
    }
}

/// Runs a body that may raise while it holds locks of ours. An error is swallowed, and the locks are given back.
fn tried<T>(body: impl FnOnce() -> T) -> Option<T> {
    let result = server::caught(body).ok();
    if result.is_some() {
        return result;
    }
    // SAFETY: no lock of the server's is held where this is called, or an abort is about to release it.
    unsafe { pg_sys::LWLockReleaseAll() };
    None
}

unsafe fn make_or_attach() -> Store {
    // SAFETY: under the control lock nobody else makes the store.
    unsafe {
        let control = CONTROL;
        compat::register_tranche((*control).tranche, TRANCHE);
        let lock = control_lock();
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let store = if (*control).made.load(Relaxed) {
            let area = pg_sys::dsa_attach((*control).area);
            pg_sys::dsa_pin_mapping(area);
            let parameters = parameters((*control).tranche);
            let table = pg_sys::dshash_attach(area, &parameters, (*control).table, std::ptr::null_mut());
            Store { control, area, table }
        } else {
            let area = compat::dsa_create((*control).tranche);
            pg_sys::dsa_pin(area);
            pg_sys::dsa_pin_mapping(area);
            let parameters = parameters((*control).tranche);
            let table = pg_sys::dshash_create(area, &parameters, std::ptr::null_mut());
            (*control).area = pg_sys::dsa_get_handle(area);
            (*control).table = pg_sys::dshash_get_hash_table_handle(table);
            (*control).made.store(true, Relaxed);
            Store { control, area, table }
        };
        if !(*control).loaded.swap(true, Relaxed) {
            if guc::save() {
                file::load(&store);
            } else {
                file::forget();
            }
        }
        if !server::is_postmaster() {
            gather::join(&store);
        }
        pg_sys::LWLockRelease(lock);
        store
    }
}

unsafe fn parameters(tranche: i32) -> pg_sys::dshash_parameters {
    compat::dshash_parameters(Entry::KEY_SIZE, size_of::<Entry>(), tranche)
}

/// Adds an execution to its plan's statistics, making an entry for a plan that is new. Never raises: without a store,
/// without memory, or for too large a plan it returns false.
pub fn record(execution: &Execution) -> bool {
    // SAFETY: main thread; nothing here raises, and what is called does not let errors out.
    unsafe {
        let Some(store) = STORE else { return false };
        if gather::add(execution) {
            return true;
        }
        record_apart(&store, execution)
    }
}

/// Adds an execution that cannot be gathered with others of its plan.
#[inline(never)]
unsafe fn record_apart(store: &Store, execution: &Execution) -> bool {
    // SAFETY: as `record`. One boundary around calls that take and release their locks.
    unsafe {
        let (key, batch) = (&execution.plan.key, Batch::Execution(execution));
        let kept = tried(|| {
            let mut kept = pg_guard_ffi_boundary(|| entry::update(store, key, &batch));
            if !kept {
                if entry::is_full(store) {
                    // Which plans were used last is only known when all that was gathered has come in.
                    gather::collect(store, |_| false);
                }
                kept = entry::insert_new(store, key, execution.description, &batch);
            }
            if kept {
                gather::begin(store, execution);
            }
            kept
        });
        if kept != Some(true) {
            (*store.control).refused.fetch_add(1, Relaxed);
        }
        kept == Some(true)
    }
}

/// All plans and the time of the last reset, for the postmaster at its end; `None` where nothing was ever kept.
unsafe fn all_at_exit() -> Option<(Vec<Plan>, i64)> {
    // SAFETY: nobody else is left: no lock can be contended, and mapping is safe.
    unsafe {
        if CONTROL.is_null() || !(*CONTROL).made.load(Relaxed) {
            return None;
        }
        attach();
        let store = STORE?;
        Some((
            entry::copies(&store, |_| true),
            (*store.control).reset_at.load(Relaxed),
        ))
    }
}

/// Copies of all plans; `None` without a shared store.
pub fn plans() -> Option<Vec<Plan>> {
    copies(|_| true)
}

/// A copy of one plan, where the store has it.
pub fn plan(key: &PlanKey) -> Option<Plan> {
    copies(|known| known == key)?.pop()
}

fn copies(wanted: impl Fn(&PlanKey) -> bool) -> Option<Vec<Plan>> {
    attach();
    // SAFETY: main thread; called by functions of the user's, which hold no lock.
    unsafe {
        let store = STORE?;
        gather::collect(&store, |_| false);
        Some(entry::copies(&store, wanted))
    }
}

/// Forgets the plans of a user, database and query; 0 stands for any.
pub fn reset(userid: u32, dbid: u32, queryid: i64) {
    attach();
    // SAFETY: main thread.
    unsafe {
        let Some(store) = STORE else { return };
        let meant = |key: &PlanKey| matches(key, userid, dbid, queryid);
        gather::collect(&store, meant);
        entry::delete(&store, |key, _| meant(key));
        gather::forget(&store, meant);
        if (userid, dbid, queryid) == (0, 0, 0) {
            (*store.control).evictions.store(0, Relaxed);
            (*store.control).refused.store(0, Relaxed);
            (*store.control).reset_at.store(server::now(), Relaxed);
        }
    }
}

/// About the store; `None` without one.
pub fn info() -> Option<Info> {
    attach();
    // SAFETY: main thread; plain atomics.
    unsafe {
        STORE.map(|store| {
            let control = &*store.control;
            Info {
                plans: control.plans.load(Relaxed),
                bytes: control.bytes.load(Relaxed),
                evictions: control.evictions.load(Relaxed),
                refused: control.refused.load(Relaxed),
                reset_at: control.reset_at.load(Relaxed),
            }
        })
    }
}

/// The lock helpers of the update path: raw, for they raise nothing and stand inside one boundary.
unsafe fn locked<T>(lock: *mut pg_sys::LWLock, exclusive: bool, body: impl FnOnce() -> T) -> T {
    let mode = if exclusive {
        pg_sys::LWLockMode::LW_EXCLUSIVE
    } else {
        pg_sys::LWLockMode::LW_SHARED
    };
    // SAFETY: a lock in shared memory; `body` does not raise.
    unsafe {
        raw::LWLockAcquire(lock, mode);
        let result = body();
        raw::LWLockRelease(lock);
        result
    }
}
