//! The store's control block: where it lies, who makes it, and what it counts.

use super::entry::{Entry, NODE_SIZE};
use super::owner::OwnerGuard;
use super::{file, pending};
use crate::guc;
use crate::pg::{compat, server, statfile, tempfile};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Zeroed when it is made.
#[repr(C)]
pub(super) struct Control {
    pub lock: pg_sys::LWLock,
    pub made: AtomicBool,
    /// The process that makes the store or loads the file, or 0.
    maker: AtomicI32,
    pub loaded: AtomicBool,
    /// That there is no more shared memory was logged.
    logged: AtomicBool,
    pub plans_area: pg_sys::dsa_handle,
    pub pending_area: pg_sys::dsa_handle,
    pub table: pg_sys::dshash_table_handle,
    pub tranche: i32,
    pub plans: AtomicU64,
    /// Of the plans, without the sessions' buffers.
    pub bytes: AtomicU64,
    /// The limit in bytes that is in force for the plans' area.
    limit: AtomicU64,
    /// The highest that was in force.
    highest_limit: AtomicU64,
    /// Until then the system is not asked for more memory: it had none.
    exhausted_until: AtomicI64,
    /// The newest of the sessions' buffers.
    pub buffers: AtomicU64,
    pub evictions: AtomicU64,
    pub refused: AtomicU64,
    pub truncated: AtomicU64,
    pub reset_at: AtomicI64,
}

static mut CONTROL: *mut Control = std::ptr::null_mut();
static mut PREV_SHMEM_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREV_SHMEM_STARTUP: pg_sys::shmem_startup_hook_type = None;

pub(super) const TRANCHE: &std::ffi::CStr = c"pg_rowsource";

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
        NODE_SIZE,
        pending::BUFFER_SIZE,
    ];
    let magic = String::from_utf8_lossy(statfile::MAGIC);
    let name = format!("pg_rowsource {} {magic} {layout:?}", env!("CARGO_PKG_VERSION"));
    std::ffi::CString::new(name).unwrap_or_default()
}

/// Returns the control block of a preloaded library; null where there is none.
pub(super) fn preloaded() -> *mut Control {
    // SAFETY: written once, in the postmaster or when a backend first attaches.
    unsafe { CONTROL }
}

/// Returns whether there is a control block, or one may be made.
pub(super) fn may_exist() -> bool {
    !preloaded().is_null() || server::may_register()
}

/// Returns the control block, making it in PostgreSQL's registry where nobody has.
///
/// # Safety
/// Main thread, where memory may be allocated for good. Raises where there is no shared memory.
pub(super) unsafe fn find_or_make() -> *mut Control {
    // SAFETY: the caller's promise.
    unsafe {
        if CONTROL.is_null() {
            CONTROL = compat::registered(&registered_name(), size_of::<Control>(), begin_registered).cast();
        }
        CONTROL
    }
}

/// Writes to the server's log that there is no more shared memory: once in a server's life.
pub(super) fn log_no_memory(message: &str) {
    /// Of this session, where there is no control block.
    static LOGGED: AtomicBool = AtomicBool::new(false);
    // SAFETY: null or a control block, which stays.
    let logged = unsafe { preloaded().as_ref() }.map_or(&LOGGED, |control| &control.logged);
    if !logged.swap(true, Relaxed) {
        server::log_alone(&format!(
            "pg_rowsource got no more shared memory: {message}; it keeps the plans that it has room for, and counts others as refused in rowsource_info()"
        ));
    }
}

/// Returns whether a backend is making the store, or loading its file.
pub(super) fn is_being_made() -> bool {
    // SAFETY: null or a control block, which stays.
    unsafe { preloaded().as_ref() }.is_some_and(|control| {
        let maker = control.maker.load(Relaxed);
        maker != 0 && maker != server::pid() && server::is_alive(maker)
    })
}

impl Control {
    /// Makes this process the one that makes the store or loads the file, until the answer is dropped. `None` while
    /// another one does.
    pub fn become_maker(&self) -> Option<OwnerGuard<'_>> {
        OwnerGuard::take(&self.maker)
    }

    /// Returns whether a new plan needs room made for it.
    pub fn is_full(&self) -> bool {
        self.plans.load(Relaxed) >= guc::max_plans() as u64
            || self.bytes.load(Relaxed) >= guc::max_memory() as u64
    }

    /// Notes the limit that the plans' area was made with.
    pub fn note_limit(&self, limit: usize) {
        self.limit.store(limit as u64, Relaxed);
        self.highest_limit.fetch_max(limit as u64, Relaxed);
    }

    /// Puts the limit of the plans' area in force: that of the setting, or none at all for a minute after the system
    /// had no memory. Each failed request costs the server a file that is made and removed.
    ///
    /// # Safety
    /// `area` is the plans' area. Main thread.
    pub unsafe fn apply_limit(&self, area: *mut pg_sys::dsa_area) {
        let exhausted = self.exhausted_until.load(Relaxed);
        let wanted = match exhausted != 0 && server::now() < exhausted {
            true => 0,
            false => guc::max_memory() as u64,
        };
        self.highest_limit.fetch_max(wanted, Relaxed);
        if self.limit.swap(wanted, Relaxed) != wanted {
            // SAFETY: the caller's promise.
            unsafe { pg_sys::dsa_set_size_limit(area, wanted as usize) }
        }
    }

    /// Returns the bytes that a process needs to map the store, at most.
    pub fn mapped_bytes(&self) -> usize {
        const SLACK: usize = 8 << 20;
        let limit = self.highest_limit.load(Relaxed).max(guc::max_memory() as u64) as usize;
        limit + limit / pending::SHARE + SLACK
    }

    /// Notes that the system has no more shared memory.
    pub fn note_exhausted(&self, message: &str) {
        const PAUSE: i64 = 60_000_000;
        self.exhausted_until.store(server::now() + PAUSE, Relaxed);
        log_no_memory(message);
    }

    /// Counts a plan that came, or one that went.
    pub fn count(&self, bytes: usize, truncated: bool, came: bool) {
        let add = |counter: &AtomicU64, amount: u64| match came {
            true => counter.fetch_add(amount, Relaxed),
            false => counter.fetch_sub(amount, Relaxed),
        };
        add(&self.plans, 1);
        add(&self.bytes, bytes as u64);
        add(&self.truncated, u64::from(truncated));
    }
}
