//! Shared memory: named segments, areas, hash tables, and the names of their locks.

use crate::pg::raw;
use pgrx::pg_sys;
use std::ffi::{CStr, c_void};

/// Returns a number for the extension's locks. From 19 on PostgreSQL learns their name with it.
///
/// # Safety
/// Main shared memory must be attached. May raise.
#[cfg(pg_ge_19)]
pub unsafe fn new_tranche(name: &'static CStr) -> i32 {
    // SAFETY: the caller's promise; the name is terminated, and PostgreSQL copies it.
    unsafe { pg_sys::LWLockNewTrancheId(name.as_ptr()) }
}
#[cfg(not(pg_ge_19))]
pub unsafe fn new_tranche(_name: &'static CStr) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::LWLockNewTrancheId() }
}

/// Tells this backend the name of the extension's locks. From 19 on it is known already.
///
/// # Safety
/// The tranche must be one of [`new_tranche`]'s. May raise.
#[cfg(pg_ge_19)]
pub unsafe fn register_tranche(_tranche: i32, _name: &'static CStr) {}
#[cfg(not(pg_ge_19))]
pub unsafe fn register_tranche(tranche: i32, name: &'static CStr) {
    // SAFETY: the caller's promise; PostgreSQL keeps the pointer, and the name is static.
    unsafe { pg_sys::LWLockRegisterTranche(tranche, name.as_ptr()) }
}

/// Makes an area of shared memory. From 17 on the segments' sizes are arguments; these are PostgreSQL's own defaults.
///
/// # Safety
/// The tranche must be one of [`new_tranche`]'s. May raise.
#[cfg(pg_ge_17)]
pub unsafe fn dsa_create(tranche: i32) -> *mut pg_sys::dsa_area {
    const INITIAL: usize = 1 << 20;
    const LARGEST: usize = 1 << 40;
    // SAFETY: the caller's promise; the sizes are within PostgreSQL's limits.
    unsafe { pg_sys::dsa_create_ext(tranche, INITIAL, LARGEST) }
}
#[cfg(not(pg_ge_17))]
pub unsafe fn dsa_create(tranche: i32) -> *mut pg_sys::dsa_area {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::dsa_create(tranche) }
}

/// Whether the server hands out shared memory by name, to libraries that it did not preload.
pub const HAS_REGISTRY: bool = cfg!(pg_ge_17);

/// Sets up a block that the registry has just made.
type BeginBlock = unsafe extern "C-unwind" fn(*mut c_void);

/// Returns a block of shared memory by its name. The first process to ask makes it, and sets it up with `begin`. Null
/// where the server has no such registry.
///
/// # Safety
/// * In a backend, outside of any FFI boundary. May raise.
/// * `begin` must accept a block of `size` bytes. Every process must ask for the same size.
#[cfg(pg_ge_19)]
pub unsafe fn registered(name: &CStr, size: usize, begin: BeginBlock) -> *mut c_void {
    unsafe extern "C-unwind" fn begin_as(block: *mut c_void, begin: *mut c_void) {
        // SAFETY: PostgreSQL passes on the address of the variable below, which outlives the call.
        unsafe { (*begin.cast::<BeginBlock>())(block) }
    }
    let (mut found, mut begin) = (false, begin);
    // SAFETY: the caller's promise; the name is terminated, and both variables outlive the call.
    unsafe {
        let argument = (&raw mut begin).cast();
        pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin_as), &mut found, argument)
    }
}
#[cfg(all(pg_ge_17, not(pg_ge_19)))]
pub unsafe fn registered(name: &CStr, size: usize, begin: BeginBlock) -> *mut c_void {
    let mut found = false;
    // SAFETY: the caller's promise; the name is terminated.
    unsafe { pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin), &mut found) }
}
#[cfg(not(pg_ge_17))]
pub unsafe fn registered(_name: &CStr, _size: usize, _begin: BeginBlock) -> *mut c_void {
    std::ptr::null_mut()
}

/// Describes a table whose keys are compared byte by byte.
pub fn dshash_parameters(key_size: usize, entry_size: usize, tranche: i32) -> pg_sys::dshash_parameters {
    pg_sys::dshash_parameters {
        key_size,
        entry_size,
        compare_function: Some(raw::dshash_memcmp),
        hash_function: Some(raw::dshash_memhash),
        #[cfg(pg_ge_17)]
        copy_function: Some(raw::dshash_memcpy),
        tranche_id: tranche,
    }
}

/// Finds or makes an entry, and locks its partition exclusively.
///
/// # Safety
/// * The table must be attached, and the key as long as its parameters say.
/// * The caller must hold no lock of the table. May raise.
#[cfg(pg_ge_19)]
pub unsafe fn dshash_find_or_insert(
    table: *mut pg_sys::dshash_table,
    key: *const c_void,
    found: &mut bool,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::dshash_find_or_insert_extended(table, key, found, 0) }
}
#[cfg(not(pg_ge_19))]
pub unsafe fn dshash_find_or_insert(
    table: *mut pg_sys::dshash_table,
    key: *const c_void,
    found: &mut bool,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::dshash_find_or_insert(table, key, found) }
}
