//! Makes the store, or attaches a backend to it.

use super::access::{self, Store};
use super::control::{self, Control};
use super::entry::{Entry, NODE_SIZE};
use super::{file, pending, reserve, room, saving};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::compat;
use crate::pg::server;
use crate::pg::server::contained::{self, Unlocked, contained};
use pgrx::pg_sys;
use rowsource_core::model::FILE_FORMAT;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// Attaches this backend to the store. Makes and loads the store first if no backend has done so. The caller
/// must allow memory allocation until the end of the process, and cancellation: the start of a statement, or
/// an SQL function. If the backend cannot attach (there is no shared memory left), it tries again after a
/// minute.
#[inline(always)]
pub fn attach() {
    if !access::is_attached() {
        attach_now();
    }
}

/// Attaches as [`attach`] does, and waits until the statistics file is loaded.
pub(super) fn attach_and_wait_for_load() {
    attach();
    while access::is_attached() && control::is_being_made() {
        pause();
    }
}

/// Waits a millisecond for another backend. The user can cancel this.
fn pause() {
    server::check_for_interrupts();
    std::thread::sleep(Duration::from_millis(1));
}

/// Attaches to the store now, unless there can be none, or an attempt failed within the last minute.
#[cold]
#[inline(never)]
pub(super) fn attach_now() {
    attach_as(false);
}

/// Attaches the background worker, so that it can judge the plans, and save them. Does nothing if no session
/// has made the store.
pub(super) fn attach_worker(control: &Control) {
    if control.made.load(Acquire) && !access::is_attached() {
        attach_as(true);
    }
}

/// Attaches now as a session, or as the worker, which records nothing.
fn attach_as(is_worker: bool) {
    const RETRY_AFTER_US: i64 = 60_000_000;
    /// How long a statement waits for the backend that makes the store. Usually, that takes some
    /// milliseconds. It takes longer if that backend is stopped.
    const MAX_WAIT: Duration = Duration::from_secs(2);
    static FAILED_AT: BackendLocal<Cell<Option<i64>>> = BackendLocal::new(Cell::new(None));
    let failed_lately = || {
        FAILED_AT
            .get()
            .is_some_and(|at| server::now() - at < RETRY_AFTER_US)
    };
    if !control::may_exist() || failed_lately() {
        return;
    }
    let began = Instant::now();
    // SAFETY: callers hold no lock, and are outside of any boundary.
    let unlocked = &mut unsafe { Unlocked::promised() };
    loop {
        // SAFETY: `contained` catches errors. PostgreSQL's own data about the mapped memory goes to
        // `TopMemoryContext`, so it stays valid as long as the mapping.
        let attached = unsafe {
            let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            let attached = contained(unlocked, |unlocked| {
                make_or_attach(control::find_or_make(&registered_name()), unlocked)
            });
            pg_sys::MemoryContextSwitchTo(context);
            attached
        };
        match attached {
            Ok(Some(store)) => {
                access::set_attached(store);
                return load_and_take_buffer(&store, unlocked, is_worker);
            }
            Ok(None) if began.elapsed() < MAX_WAIT => pause(),
            Ok(None) => return FAILED_AT.set(Some(server::now())),
            Err(message) => {
                FAILED_AT.set(Some(server::now()));
                return control::log_no_memory(&message);
            }
        }
    }
}

/// Makes the store, or attaches to it. Returns `None` while another backend makes it. Mappings and new areas
/// are pinned last: an error before that releases them, in `contained`. Raises if there is no memory.
///
/// # Safety
/// The current memory context must live as long as the process.
unsafe fn make_or_attach(control: &'static Control, unlocked: &mut Unlocked) -> Option<Store> {
    // SAFETY: only the maker, one process at a time, writes the handles, and only before it sets `made`.
    // Other processes read them only after they see `made`. PostgreSQL's own data about the mapped memory
    // lives as long as the process, by the caller's promise.
    unsafe {
        compat::register_tranche(control.tranche, control::TRANCHE);
        let parameters = compat::dshash_parameters(Entry::KEY_SIZE, size_of::<Entry>(), control.tranche);
        let none = std::ptr::null_mut();
        let (plans, pending, table) = if control.made.load(Acquire) {
            let plans = pg_sys::dsa_attach(control.plans_area.load(Relaxed));
            let alone = access::area_alone();
            let pending = alone.unwrap_or_else(|| pg_sys::dsa_attach(control.pending_area.load(Relaxed)));
            let table = pg_sys::dshash_attach(plans, &parameters, control.table.load(Relaxed), none);
            (plans, pending, table)
        } else {
            let _maker = control.become_maker()?;
            if control.made.load(Acquire) {
                return None;
            }
            let make = |limit| {
                let area = compat::dsa_create(control.tranche);
                pg_sys::dsa_set_size_limit(area, limit);
                area
            };
            let limit = room::limit();
            let (plans, pending) = (make(limit), make(room::of_sessions(limit)));
            reserve::make(&control.live, pending, unlocked);
            let table = pg_sys::dshash_create(plans, &parameters, none);
            control.note_limit(limit);
            control.plans_area.store(pg_sys::dsa_get_handle(plans), Relaxed);
            control
                .pending_area
                .store(pg_sys::dsa_get_handle(pending), Relaxed);
            control
                .table
                .store(pg_sys::dshash_get_hash_table_handle(table), Relaxed);
            pg_sys::dsa_pin(plans);
            pg_sys::dsa_pin(pending);
            control.made.store(true, Release);
            (plans, pending, table)
        };
        pg_sys::dsa_pin_mapping(plans);
        // A process may attach to an area only once, and pin it once.
        if access::area_alone() != Some(pending) {
            pg_sys::dsa_pin_mapping(pending);
        }
        Some(Store::new(control, plans, pending, table))
    }
}

/// Loads the file if no backend has done so. A session is counted before, and takes a buffer. The store also
/// works without one.
fn load_and_take_buffer(store: &Store, unlocked: &mut Unlocked, is_worker: bool) {
    if !is_worker {
        saving::session_arrives(store.control());
    }
    file::load(store, unlocked);
    if !is_worker {
        contained::attempt(unlocked, "take a buffer", |_| pending::attach_backend(store));
    }
}

/// Returns the registry's name for the control block. The name differs if the layout does: if the library is
/// replaced while the server runs, the new one must not use the old one's memory.
pub(super) fn registered_name() -> CString {
    let layout = [
        control::size(),
        size_of::<Entry>(),
        NODE_SIZE,
        pending::SIZES[0],
        pending::SIZES[1],
    ];
    let magic = String::from_utf8_lossy(&FILE_FORMAT);
    let name = format!("pg_rowsource {} {magic} {layout:?}", env!("CARGO_PKG_VERSION"));
    CString::new(name).unwrap_or_default()
}
