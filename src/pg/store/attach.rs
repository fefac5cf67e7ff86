//! Makes the store, or attaches a backend to it.

use super::access::{self, Store};
use super::control::{self, Control};
use super::entry::{Entry, NODE_SIZE};
use super::{file, pending, record};
use crate::guc;
use crate::pg::compat;
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::contained::contained;
use pgrx::pg_sys;
use rowsource_core::model::FILE_FORMAT;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Attaches this backend to the store, making and loading it first where nobody has. To be called where memory may
/// be allocated for good, and where a cancel request may be heard: when a statement starts, or from a function. A backend
/// that cannot (there is no shared memory left) tries again after a minute.
#[inline(always)]
pub fn attach() {
    if !access::is_attached() {
        attach_now();
    }
}

/// Attaches as [`attach`] does, and waits until the file is in.
pub(super) fn attach_and_see_all() {
    attach();
    while access::is_attached() && control::is_being_made() {
        pause();
    }
}

/// Waits a moment for another backend; may be cancelled.
fn pause() {
    server::check_for_interrupts();
    std::thread::sleep(Duration::from_millis(1));
}

/// Attaches to the store now, if there may be one.
#[cold]
#[inline(never)]
pub(super) fn attach_now() {
    const RETRY: i64 = 60_000_000;
    /// So long a statement waits for the backend that makes the store: some milliseconds, unless that is stopped.
    const PATIENCE: Duration = Duration::from_secs(2);
    static FAILED_AT: BackendLocal<Cell<Option<i64>>> = BackendLocal::new(Cell::new(None));
    if !control::may_exist() || FAILED_AT.get().is_some_and(|at| server::now() - at < RETRY) {
        return;
    }
    let began = Instant::now();
    loop {
        // SAFETY: the caller holds no lock. Shared memory is mapped for good, and so is what PostgreSQL keeps about it.
        let attached = unsafe {
            let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            let attached = contained(|| make_or_attach(control::find_or_make(&registered_name())));
            pg_sys::MemoryContextSwitchTo(context);
            attached
        };
        match attached {
            Ok(Some(store)) => {
                access::set_attached(store);
                // SAFETY: as above.
                return unsafe { complete(&store) };
            }
            Ok(None) if began.elapsed() < PATIENCE => pause(),
            Ok(None) => return FAILED_AT.set(Some(server::now())),
            Err(message) => {
                FAILED_AT.set(Some(server::now()));
                return control::log_no_memory(&message);
            }
        }
    }
}

/// Makes the store, or attaches to it; `None` while another backend makes it. What it maps and makes is pinned last: an
/// error before that gives all of it back.
///
/// # Safety
/// * `control` must point to the store's control block.
/// * Not inside a boundary, holding no lock. Raises where there is no memory; the rest is left to `contained`.
unsafe fn make_or_attach(control: *mut Control) -> Option<Store> {
    // SAFETY: who is the maker makes the store alone; handles of a made store do not change.
    unsafe {
        compat::register_tranche((*control).tranche, control::TRANCHE);
        let parameters = compat::dshash_parameters(Entry::KEY_SIZE, size_of::<Entry>(), (*control).tranche);
        let none = std::ptr::null_mut();
        let store = if (*control).made.load(Acquire) {
            let (plans, pending) = (
                pg_sys::dsa_attach((*control).plans_area),
                pg_sys::dsa_attach((*control).pending_area),
            );
            let table = pg_sys::dshash_attach(plans, &parameters, (*control).table, none);
            Store {
                control,
                plans,
                pending,
                table,
            }
        } else {
            let _maker = (*control).become_maker()?;
            if (*control).made.load(Acquire) {
                return None;
            }
            let make = |limit| {
                let area = compat::dsa_create((*control).tranche);
                pg_sys::dsa_set_size_limit(area, limit);
                area
            };
            let limit = guc::max_memory();
            let (plans, pending) = (make(limit), make(limit / control::PENDING_PART));
            let table = pg_sys::dshash_create(plans, &parameters, none);
            (*control).note_limit(limit);
            (*control).plans_area = pg_sys::dsa_get_handle(plans);
            (*control).pending_area = pg_sys::dsa_get_handle(pending);
            (*control).table = pg_sys::dshash_get_hash_table_handle(table);
            pg_sys::dsa_pin(plans);
            pg_sys::dsa_pin(pending);
            (*control).made.store(true, Release);
            Store {
                control,
                plans,
                pending,
                table,
            }
        };
        pg_sys::dsa_pin_mapping(store.plans);
        pg_sys::dsa_pin_mapping(store.pending);
        Some(store)
    }
}

/// Loads the file where nobody has, and takes a buffer, once this backend is attached. It can do without.
///
/// # Safety
/// Not inside a boundary, holding no lock.
unsafe fn complete(store: &Store) {
    // SAFETY: the caller holds no lock.
    unsafe {
        file::load(store);
        if !server::is_postmaster() {
            let _ = contained(|| record::attach_backend(store));
        }
    }
}

/// Returns the registry's name for the control block. A library that was exchanged while the server runs must not find what
/// another one made.
fn registered_name() -> CString {
    let layout = [
        size_of::<Control>(),
        size_of::<Entry>(),
        NODE_SIZE,
        pending::BUFFER_SIZE,
    ];
    let magic = String::from_utf8_lossy(&FILE_FORMAT);
    let name = format!("pg_rowsource {} {magic} {layout:?}", env!("CARGO_PKG_VERSION"));
    CString::new(name).unwrap_or_default()
}
