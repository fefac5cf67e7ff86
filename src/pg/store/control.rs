//! The store's control block: its place in shared memory, the handles and the counters in it.

use super::evicted::{Evicted, Limit};
use super::flips::SharedFlips;
use super::presence::Presence;
use super::room;
use super::targets::SharedTargets;
use crate::guc;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::SettingUp;
use crate::pg::waits::lasting::{self, EventNames};
use crate::pg::{compat, server};
use pgrx::{pg_guard, pg_sys};
use rowsource_core::beat::Sleep;
use rowsource_core::blocks::Room;
use rowsource_core::eviction::Limits;
use rowsource_core::flips::{KnownPlan, KnownPlans};
use rowsource_core::pending::{List, Owner, OwnerGuard};
use rowsource_core::planids;
use std::cell::{Cell, UnsafeCell};
use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};

/// The control block. It is made as zero bytes. Behind it are the table of planids ([`planids`]) and that of
/// the plans of each query ([`known_plans`]).
#[repr(C, align(64))]
pub(super) struct Control {
    pub lock: UnsafeCell<pg_sys::LWLock>,
    /// The store has been made: the handles below are valid.
    pub made: AtomicBool,
    /// The process that makes the store or loads the file.
    maker: Owner,
    /// The file has been loaded, or there is none to load.
    pub loaded: AtomicBool,
    /// The lack of shared memory has been logged.
    logged: AtomicBool,
    pub plans_area: AtomicU32,
    pub pending_area: AtomicU32,
    pub table: AtomicU64,
    pub tranche: i32,
    pub plans: AtomicU64,
    /// The bytes of the plans, without the sessions' buffers.
    pub bytes: AtomicU64,
    /// The current limit of the plans' area, in bytes.
    limit: AtomicU64,
    /// The highest limit so far.
    highest_limit: AtomicU64,
    /// The system had no more memory. It is asked again after this time.
    exhausted_until: AtomicI64,
    /// The sessions' buffers.
    pub buffers: List,
    pub live: SharedLive,
    pub truncated: AtomicU64,
    pub reset_at: AtomicI64,
    /// What is no longer stored, guarded by `lock`.
    pub evicted: Evicted,
    /// The changes of plans, with a lock of their own.
    pub flips: SharedFlips,
    pub history: SharedHistory,
    pub snapshots: SharedSnapshots,
    pub trace: SharedTrace,
    pub presence: Presence,
    pub stops: SharedStops,
    /// Errors of the library that no user saw.
    pub errors: AtomicU64,
    /// The targets of the SQL trace, with a lock of their own.
    pub targets: SharedTargets,
    pub event_names: EventNames,
}

/// The memory in which sessions measure their statements: see `live`. Zero bytes are one that no session
/// uses.
#[repr(C)]
pub(super) struct SharedLive {
    /// The address of the area that a session has listed last, or 0. All addresses are those of the area of
    /// the sessions' buffers.
    pub newest: AtomicU64,
    /// The address of the first parts that are reserved for sessions, how many there are, and how many were
    /// taken.
    pub first_parts: AtomicU64,
    pub reserved: AtomicU64,
    pub taken: AtomicU64,
    /// What sessions have allocated beyond these.
    pub room: Room,
}

/// What processes know of the active session history. Zero bytes are that of a server that has not sampled
/// yet.
#[repr(C)]
pub struct SharedHistory {
    /// The process that samples the sessions.
    pub worker: Owner,
    /// The dynamic segment that has the samples; 0 if they are in main shared memory, or if there are none
    /// yet.
    pub segment: AtomicU32,
    /// The worker makes beats too, and sleeps while no session needs any.
    pub sleep: Sleep,
    /// The place of the worker in PostgreSQL's list of processes.
    pub number: AtomicU32,
    /// How many snapshots were deleted because of their size.
    pub snapshots_removed: AtomicU64,
    /// The moment as which who asked last wants the worker to look for regressions.
    pub judge_at: AtomicI64,
    /// How often somebody has asked it to look.
    pub judge_asked: AtomicU64,
    /// The last of these that it has looked for.
    pub judged: AtomicU64,
}

/// What processes know of the snapshots that the server takes. Zero bytes are that of a server that has taken
/// none.
#[repr(C)]
pub struct SharedSnapshots {
    /// The process that takes one.
    pub worker: Owner,
    /// The OID of the database that has registered; 0 if none has.
    pub database: AtomicU32,
    /// How far the last process has come, as a number that `ash::snapshots` knows.
    pub phase: AtomicU32,
    /// How many were taken, found no place for a process, and failed.
    pub taken: AtomicU64,
    pub refused: AtomicU64,
    pub failed: AtomicU64,
    /// When the last one was taken; 0 if none was.
    pub last_at: AtomicI64,
    /// PostgreSQL's code of the last error; 0 if there was none.
    pub last_error: AtomicU32,
    /// The one that was logged last; 0 if a snapshot was taken since.
    pub logged: AtomicU32,
}

/// The sessions that measure no more, because that cost too much or failed. Zero bytes are none.
#[repr(C)]
pub struct SharedStops {
    /// How many there are.
    pub sessions: AtomicU32,
    /// When the last one stopped, its pid, and what measuring cost in thousandths of the executor's time; 0
    /// if it failed.
    pub last_at: AtomicI64,
    pub last_pid: AtomicU32,
    pub last_cost: AtomicU32,
}

/// How many trace files there are, and how many bytes they have. Zero bytes are those of a server that has
/// not looked yet.
#[repr(C)]
pub struct SharedTrace {
    pub bytes: AtomicU64,
    pub files: AtomicU64,
    /// When a process last listed the files, by the system's monotonic clock in microseconds; 0 if none has.
    pub listed_at: AtomicU64,
}

static CONTROL: BackendLocal<Cell<*mut Control>> = BackendLocal::new(Cell::new(std::ptr::null_mut()));
/// It is in main shared memory, because the library was preloaded.
static IS_PRELOADED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
/// The name of the control block and of its locks.
pub(super) const TRANCHE: &CStr = c"pg_rowsource";

/// Finds or makes the control block of a preloaded library.
pub(super) fn find_or_make_preloaded(shared: &SettingUp) {
    let (place, is_new) = shared.find_or_make(TRANCHE, size());
    let control = place.cast();
    CONTROL.set(control);
    IS_PRELOADED.set(true);
    if is_new {
        // SAFETY: no other process can see a new block before the hook returns.
        unsafe { initialize(control) };
    }
    known()
        .into_iter()
        .for_each(|control| lasting::share(&control.event_names));
}

/// Returns the size of a control block, with the tables behind it.
pub(super) fn size() -> usize {
    let planids = planids::buckets(guc::max_plans()) * size_of::<planids::Bucket>();
    let known = KnownPlans::places(guc::max_plans()) * size_of::<KnownPlan>();
    size_of::<Control>() + planids + known
}

/// Returns the tables behind the control block. They are empty if this process knows none.
fn tables() -> (&'static [planids::Bucket], &'static [KnownPlan]) {
    let control = CONTROL.get().cast_const();
    if control.is_null() {
        return (&[], &[]);
    }
    let max_plans = guc::max_plans();
    let (buckets, places) = (planids::buckets(max_plans), KnownPlans::places(max_plans));
    // SAFETY: behind the control block, which is aligned as the buckets are, there is room for so many, and
    // behind these for so many places, of which their size is a multiple of the alignment. All were zeroed.
    // They stay mapped until the process ends. The setting does not change while the server runs.
    unsafe {
        let planids: *const planids::Bucket = control.add(1).cast();
        let known: *const KnownPlan = planids.add(buckets).cast();
        (
            std::slice::from_raw_parts(planids, buckets),
            std::slice::from_raw_parts(known, places),
        )
    }
}

/// Returns the table of planids.
pub(super) fn planids() -> &'static [planids::Bucket] {
    tables().0
}

/// Returns the table of the plans of each query. The lock of the changes of plans guards it.
pub(super) fn known_plans() -> KnownPlans<'static> {
    KnownPlans(tables().1)
}

/// Initializes a control block.
///
/// # Safety
/// `control` must point to room for a control block that no other process can see yet.
unsafe fn initialize(control: *mut Control) {
    // SAFETY: the caller ensures that there is room, and that no other process sees it. Zero bytes are valid
    // for all fields.
    unsafe {
        control.cast::<u8>().write_bytes(0, size());
        (*control).tranche = compat::new_tranche(TRANCHE);
        pg_sys::LWLockInitialize((*control).lock.get(), (*control).tranche);
        (*control).flips.initialize((*control).tranche);
        (*control).targets.initialize((*control).tranche);
        (*control).reset_at.store(server::now(), Relaxed);
    }
}

/// Initializes a control block that the registry has just made.
///
/// # Safety
/// Only the registry may call this, with a new block of the size of a control block.
#[allow(
    clippy::missing_safety_doc,
    reason = "pg_guard makes an inner function that has no doc comment"
)]
#[pg_guard]
unsafe extern "C-unwind" fn initialize_registered(block: *mut std::ffi::c_void) {
    let control: *mut Control = block.cast();
    // SAFETY: the registry made the block with the size that `find_or_make` requested, and shows it to no
    // other process before this returns.
    unsafe {
        initialize(control);
        // A store in the registry is never saved, so it loads no file either. A file would be from an earlier
        // preloaded store.
        (*control).loaded.store(true, Relaxed);
    }
}

/// Returns the control block, if this process knows it.
pub(super) fn known() -> Option<&'static Control> {
    // SAFETY: the pointer is null, or that of the control block, which stays mapped until the process ends.
    unsafe { CONTROL.get().as_ref() }
}

/// Returns the control block if it is in main shared memory. Only then the plans are saved.
pub(super) fn preloaded() -> Option<&'static Control> {
    known().filter(|_| IS_PRELOADED.get())
}

/// Returns whether there is a control block, or the registry can make one.
pub fn may_exist() -> bool {
    known().is_some() || (compat::HAS_REGISTRY && server::is_under_postmaster())
}

/// Returns the control block. If the library was not preloaded, finds or makes it in PostgreSQL's registry
/// under this name.
///
/// # Safety
/// The caller must be in a backend, outside of any FFI boundary, with a current memory context that lives as
/// long as the process. Raises if there is no shared memory.
pub(super) unsafe fn find_or_make(name: &CStr) -> &'static Control {
    // SAFETY: the caller is in a backend and outside of any boundary, as the registry requires.
    // `initialize_registered` accepts a block of this size. Every process requests the same size, because the
    // name contains it. It stays mapped until the process ends.
    unsafe {
        if CONTROL.get().is_null() {
            let registered = compat::named_dsm_segment(name, size(), initialize_registered);
            CONTROL.set(registered.cast());
            lasting::share(&(*CONTROL.get()).event_names);
        }
        &*CONTROL.get()
    }
}

/// Writes to the server's log that there is no more shared memory: once while the server runs.
pub(super) fn log_no_memory(message: &str) {
    /// Used if there is no control block: once per session.
    static LOGGED: AtomicBool = AtomicBool::new(false);
    let logged = known().map_or(&LOGGED, |control| &control.logged);
    if !logged.swap(true, Relaxed) {
        server::log_alone(&format!(
            "pg_rowsource got no more shared memory: {message}; it keeps the plans that fit, and counts executions of other plans as refused in rowsource_info()"
        ));
    }
}

/// Counts an error that no user sees, if this process knows the control block. That is unmapped when the
/// process exits.
pub(super) fn count_error() {
    if let Some(control) = known().filter(|_| !server::is_exiting()) {
        control.errors.fetch_add(1, Relaxed);
    }
}

/// Returns whether another process is making the store, or loading its file.
pub(super) fn is_being_made() -> bool {
    known().is_some_and(|control| {
        let maker = control.maker.pid();
        maker != 0 && maker != server::pid() && server::is_alive(maker)
    })
}

impl Control {
    /// Lets this process make the store or load the file, until the guard is dropped. Returns `None` while
    /// another process does so.
    pub fn become_maker(&self) -> Option<OwnerGuard<'_>> {
        self.maker.hold_or_inherit(server::pid(), server::is_alive)
    }

    /// Returns whether the plans of the last run are not all there: another process loads them, or will.
    pub fn is_loading(&self) -> bool {
        !self.loaded.load(Acquire) || is_being_made()
    }

    /// Returns whether plans must be evicted before a new one is inserted.
    pub fn is_full(&self) -> bool {
        let limits = Limits {
            plans: guc::max_plans() as u64,
            bytes: room::limit() as u64,
        };
        limits.are_reached(self.plans.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Returns the limit for which a plan must be evicted now.
    pub fn reached_limit(&self) -> Limit {
        let (max_plans, bytes) = (guc::max_plans(), room::limit());
        match self.plans.load(Relaxed) >= max_plans as u64 {
            true => Limit::Plans(max_plans),
            false if bytes < guc::max_memory() => Limit::Folder(bytes),
            false => Limit::Memory(bytes),
        }
    }

    /// Stores the limit with which the areas were made.
    pub fn note_limit(&self, limit: usize) {
        self.limit.store(limit as u64, Relaxed);
        self.highest_limit.fetch_max(limit as u64, Relaxed);
    }

    /// Returns the limits of the plans' area and of the sessions' as of today, if they are not those that
    /// were set last. For a minute after the system had no memory, they are 0, so that the areas do not grow:
    /// each failed request would make and remove a file.
    pub fn new_limits(&self) -> Option<(usize, usize)> {
        let exhausted = self.exhausted_until.load(Relaxed);
        let wanted = match exhausted != 0 && server::now() < exhausted {
            true => 0,
            false => room::limit() as u64,
        };
        self.highest_limit.fetch_max(wanted, Relaxed);
        (self.limit.swap(wanted, Relaxed) != wanted).then(|| {
            let limit = wanted as usize;
            let of_sessions = if limit == 0 { 0 } else { room::of_sessions(limit) };
            (limit, of_sessions)
        })
    }

    /// Returns the maximum number of bytes that a process needs to map the store.
    pub fn mapped_bytes(&self) -> usize {
        const SLACK: usize = 8 << 20;
        let limit = self.highest_limit.load(Relaxed).max(guc::max_memory() as u64) as usize;
        limit + room::of_sessions(limit) + SLACK
    }

    /// Stores that the system has no more shared memory, and logs it.
    pub fn note_exhausted(&self, message: &str) {
        const RETRY_AFTER_US: i64 = 60_000_000;
        self.exhausted_until
            .store(server::now() + RETRY_AFTER_US, Relaxed);
        log_no_memory(message);
    }

    /// Updates the counters after a plan was inserted, or deleted.
    pub fn count(&self, bytes: usize, truncated: bool, inserted: bool) {
        let change = |counter: &AtomicU64, amount: u64| match inserted {
            true => counter.fetch_add(amount, Relaxed),
            false => counter.fetch_sub(amount, Relaxed),
        };
        change(&self.plans, 1);
        change(&self.bytes, bytes as u64);
        change(&self.truncated, u64::from(truncated));
    }

    /// Updates the counters after a plan's memory changed.
    pub fn resize(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after as u64, Relaxed);
        self.bytes.fetch_sub(before as u64, Relaxed);
    }
}
