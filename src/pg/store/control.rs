//! The store's control block: where it lies, and what it counts.

use crate::guc;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::{compat, server};
use pgrx::{pg_guard, pg_sys};
use rowsource_core::eviction::Limits;
use rowsource_core::pending::{List, Owner, OwnerGuard};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Zeroed when it is made.
#[repr(C)]
pub(super) struct Control {
    pub lock: pg_sys::LWLock,
    pub made: AtomicBool,
    /// The process that makes the store or loads the file.
    maker: Owner,
    /// The file has been loaded, or need not be.
    pub loaded: AtomicBool,
    /// It was logged that there is no more shared memory.
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
    /// The sessions' buffers.
    pub buffers: List,
    pub evictions: AtomicU64,
    pub refused: AtomicU64,
    pub truncated: AtomicU64,
    pub reset_at: AtomicI64,
}

static CONTROL: BackendLocal<Cell<*mut Control>> = BackendLocal::new(Cell::new(std::ptr::null_mut()));
/// The sessions' buffers take this part of `pg_rowsource.max_memory` at most, beside it. Sessions for which there is no room
/// go to the store at once.
pub(super) const PENDING_PART: usize = 4;
/// The name of the control block and of its locks.
pub(super) const TRANCHE: &CStr = c"pg_rowsource";

/// Finds or makes the control block of a preloaded library.
///
/// # Safety
/// To be called in PostgreSQL's hook in which shared memory is set up.
pub(super) unsafe fn find_or_make_preloaded() {
    // SAFETY: the caller is that hook. PostgreSQL calls it before any other process can see a new block; a block that was
    // found is whole.
    unsafe {
        let mut found = false;
        let control = pg_sys::ShmemInitStruct(TRANCHE.as_ptr(), size_of::<Control>(), &mut found).cast();
        CONTROL.set(control);
        if !found {
            begin(control);
        }
    }
}

/// Makes a control block, while nobody else can see it.
///
/// # Safety
/// `control` must point to room for a control block that nobody else can see yet.
unsafe fn begin(control: *mut Control) {
    // SAFETY: the caller has room for a block, and nobody else sees it. Zero bytes are a valid value for all fields.
    unsafe {
        control.write_bytes(0, 1);
        (*control).tranche = compat::new_tranche(TRANCHE);
        pg_sys::LWLockInitialize(&raw mut (*control).lock, (*control).tranche);
        (*control).reset_at.store(server::now(), Relaxed);
    }
}

/// Called by the registry for a block that it has just made.
///
/// # Safety
/// To be called by the registry only, with a new block as large as a control block.
#[allow(
    clippy::missing_safety_doc,
    reason = "of the function that the guard makes inside"
)]
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

/// Returns the control block of a preloaded library; null where there is none.
pub(super) fn preloaded() -> *mut Control {
    CONTROL.get()
}

/// Returns whether there is a control block, or one may be made.
pub(super) fn may_exist() -> bool {
    !preloaded().is_null() || (compat::HAS_REGISTRY && server::is_under_postmaster())
}

/// Returns the control block. Makes it in PostgreSQL's registry, under this name, where nobody has made one.
///
/// # Safety
/// Where memory may be allocated for good. Raises where there is no shared memory.
pub(super) unsafe fn find_or_make(name: &CStr) -> *mut Control {
    // SAFETY: nobody has made the block before, as far as this process knows, and memory may be allocated for good.
    unsafe {
        if CONTROL.get().is_null() {
            let registered = compat::named_dsm_segment(name, size_of::<Control>(), begin_registered);
            CONTROL.set(registered.cast());
        }
        CONTROL.get()
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
        let maker = control.maker.pid();
        maker != 0 && maker != server::pid() && server::is_alive(maker)
    })
}

impl Control {
    /// Lets this process make the store or load the file, until the answer is dropped. `None` while another one does.
    pub fn become_maker(&self) -> Option<OwnerGuard<'_>> {
        self.maker.hold_or_inherit(server::pid(), server::is_alive)
    }

    /// Returns whether a new plan needs room made for it.
    pub fn is_full(&self) -> bool {
        let limits = Limits {
            plans: guc::max_plans() as u64,
            bytes: guc::max_memory() as u64,
        };
        limits.are_reached(self.plans.load(Relaxed), self.bytes.load(Relaxed))
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
    /// `area` must be the plans' area, which this process has attached.
    pub unsafe fn apply_limit(&self, area: *mut pg_sys::dsa_area) {
        let exhausted = self.exhausted_until.load(Relaxed);
        let wanted = match exhausted != 0 && server::now() < exhausted {
            true => 0,
            false => guc::max_memory() as u64,
        };
        self.highest_limit.fetch_max(wanted, Relaxed);
        if self.limit.swap(wanted, Relaxed) != wanted {
            // SAFETY: `area` is the plans' area by the caller's promise, and this process has it attached.
            unsafe { pg_sys::dsa_set_size_limit(area, wanted as usize) }
        }
    }

    /// Returns the bytes that a process needs to map the store, at most.
    pub fn mapped_bytes(&self) -> usize {
        const SLACK: usize = 8 << 20;
        let limit = self.highest_limit.load(Relaxed).max(guc::max_memory() as u64) as usize;
        limit + limit / PENDING_PART + SLACK
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
