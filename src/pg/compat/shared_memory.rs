//! Creates shared memory: named segments, areas, hash tables, and the tranches of their locks.

use crate::pg::border::unguarded;
use pgrx::pg_sys;
use std::ffi::{CStr, c_void};

#[cfg(pg_ge_17)]
unguarded::declare! { "C-unwind":
    fn dshash_memcpy(to: *mut c_void, from: *const c_void, size: usize, arg: *mut c_void);
}

/// Returns a new tranche id for the extension's locks. From 19 on, this also registers their name.
pub fn new_tranche(name: &'static CStr) -> i32 {
    #[cfg(not(pg_ge_19))]
    let _ = name;
    // SAFETY: the name is terminated, and PostgreSQL copies it.
    unsafe {
        pg_sys::LWLockNewTrancheId(
            #[cfg(pg_ge_19)]
            name.as_ptr(),
        )
    }
}

/// Registers the name of the extension's locks in this backend. From 19 on, it is already known.
pub fn register_tranche(tranche: i32, name: &'static CStr) {
    #[cfg(pg_ge_19)]
    let _ = (tranche, name);
    // SAFETY: the name is static, so PostgreSQL may keep its address.
    #[cfg(not(pg_ge_19))]
    unsafe {
        pg_sys::LWLockRegisterTranche(tranche, name.as_ptr())
    }
}

/// Creates an area of shared memory. From 17 on, the segments' sizes are arguments; these are PostgreSQL's
/// own defaults.
pub fn dsa_create(tranche: i32) -> *mut pg_sys::dsa_area {
    #[cfg(not(pg_ge_17))]
    use pg_sys::dsa_create as create;
    #[cfg(pg_ge_17)]
    use pg_sys::dsa_create_ext as create;
    // SAFETY: any tranche is allowed, and the sizes are within PostgreSQL's limits. After an error, nothing
    // remains allocated.
    unsafe {
        create(
            tranche,
            #[cfg(pg_ge_17)]
            (1 << 20),
            #[cfg(pg_ge_17)]
            (1 << 40),
        )
    }
}

/// Whether the server provides named shared memory to libraries that it did not preload.
pub const HAS_REGISTRY: bool = cfg!(pg_ge_17);

/// The type of a function that initialises a new block.
type BeginBlock = unsafe extern "C-unwind" fn(*mut c_void);

/// Returns a block of shared memory by its name. The first process that calls this creates it and initialises
/// it with `begin`. Returns null if the server has no registry of blocks.
///
/// # Safety
/// * This process must be a backend, and must not be inside an FFI boundary. May raise.
/// * `begin` must accept a block of `size` bytes. Every process must ask for the same size.
pub unsafe fn named_dsm_segment(name: &CStr, size: usize, begin: BeginBlock) -> *mut c_void {
    #[cfg(pg_ge_19)]
    let mut begin = begin;
    // SAFETY: `begin` accepts a block of this size, by the caller's promise. The name is terminated, and all
    // variables outlive the call.
    #[cfg(pg_ge_17)]
    unsafe {
        let mut found = false;
        pg_sys::GetNamedDSMSegment(
            name.as_ptr(),
            size,
            #[cfg(pg_ge_19)]
            Some(begin_by),
            #[cfg(not(pg_ge_19))]
            Some(begin),
            &mut found,
            #[cfg(pg_ge_19)]
            (&raw mut begin).cast(),
        )
    }
    #[cfg(not(pg_ge_17))]
    {
        let _ = (name, size, begin);
        std::ptr::null_mut()
    }
}

/// Initialises a block with the function that the argument points to.
///
/// # Safety
/// `begin` must point to a [`BeginBlock`] that accepts the block.
#[cfg(pg_ge_19)]
#[allow(ffi_unwind_calls, reason = "it is a guarded function of this library")]
unsafe extern "C-unwind" fn begin_by(block: *mut c_void, begin: *mut c_void) {
    // SAFETY: the pointer is valid and its function accepts the block, by the caller's promise.
    unsafe { (*begin.cast::<BeginBlock>())(block) }
}

/// Describes a table whose keys are compared byte by byte.
pub fn dshash_parameters(key_size: usize, entry_size: usize, tranche: i32) -> pg_sys::dshash_parameters {
    pg_sys::dshash_parameters {
        key_size,
        entry_size,
        compare_function: Some(unguarded::dshash_memcmp),
        hash_function: Some(unguarded::dshash_memhash),
        #[cfg(pg_ge_17)]
        copy_function: Some(dshash_memcpy),
        tranche_id: tranche,
    }
}

/// Finds or inserts an entry, and locks its partition exclusively.
///
/// # Safety
/// * `table` must be attached, and this process must hold none of its partition locks.
/// * `key` must point to a key of the table.
/// * The entry must be released with `dshash_release_lock`.
pub unsafe fn dshash_find_or_insert(
    table: *mut pg_sys::dshash_table,
    key: *const c_void,
    found: &mut bool,
) -> *mut c_void {
    #[cfg(not(pg_ge_19))]
    use pg_sys::dshash_find_or_insert as find_or_insert;
    #[cfg(pg_ge_19)]
    use pg_sys::dshash_find_or_insert_extended as find_or_insert;
    // SAFETY: by the caller's promise the table is attached, the key belongs to it, and no partition lock is
    // held.
    unsafe {
        find_or_insert(
            table,
            key,
            found,
            #[cfg(pg_ge_19)]
            0,
        )
    }
}
