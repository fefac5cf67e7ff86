//! Reads blocks of a relation through the buffer manager, and times each get.

use super::border::unguarded;
use super::compat;
use super::server::{self, fail};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{IntoDatum, PgRelation, PgSqlErrorCode, direct_function_call, pg_sys};
use std::ffi::{CStr, CString};

/// One get of a block.
#[derive(Clone, Copy, Default)]
pub struct Get {
    /// Its time in ticks of the clock; `None` if the clock stepped back.
    pub ticks: Option<u64>,
    /// Whether the block was read, because it was not in PostgreSQL's buffers.
    pub read: bool,
}

/// A relation that is open for reading, and one of its forks.
pub struct Fork {
    relation: PgRelation,
    number: pg_sys::ForkNumber::Type,
    /// The ring of buffers for a large sequential scan, or null. It lives as long as the memory context in
    /// which it was made.
    ring: pg_sys::BufferAccessStrategy,
    /// The number of its blocks.
    pub blocks: u32,
}

impl Fork {
    /// Opens a relation of which the current user may read the rows. It stays valid as long as the current
    /// memory context.
    ///
    /// `sequential` tells that the whole fork is read. As in a sequential scan, a large one then goes through
    /// a small ring of buffers, and does not evict all others.
    ///
    /// # Errors
    /// Raises an error if the user may not read it, if it has no storage, if it is a temporary table of
    /// another session, or if there is no such fork.
    pub fn open(relation: pg_sys::Oid, fork: &str, sequential: bool) -> Fork {
        // SAFETY: the function raises an error if there is no such relation. The lock is the one of a query
        // that reads it.
        let relation = unsafe { PgRelation::with_lock(relation, pg_sys::AccessShareLock as i32) };
        check_readable(&relation);
        check_storage(&relation);
        let name = CString::new(fork).unwrap_or_default();
        // SAFETY: the name is a C string. The function raises an error if no fork has it.
        let number = unsafe { pg_sys::forkname_to_number(name.as_ptr()) };
        // SAFETY: the function takes these arguments.
        let bytes: Option<i64> = unsafe {
            direct_function_call(
                pg_sys::pg_relation_size,
                &[relation.oid().into_datum(), fork.into_datum()],
            )
        };
        // A fork that does not exist has no size. A relation has fewer than 2^32 blocks.
        let blocks = bytes.map_or(0, |bytes| (bytes / i64::from(pg_sys::BLCKSZ)) as u32);
        // SAFETY: a plain global, and a function that takes a plain value.
        let ring = unsafe {
            if sequential && blocks > pg_sys::NBuffers as u32 / 4 {
                pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD)
            } else {
                std::ptr::null_mut()
            }
        };
        Fork {
            relation,
            number,
            ring,
            blocks,
        }
    }

    /// Gets blocks by their numbers, one after the other. `gets` receives a result for each.
    ///
    /// # Errors
    /// Raises PostgreSQL's errors of reading a block.
    #[allow(
        ffi_unwind_calls,
        reason = "it is inside of a boundary, and the frames up to it are plain"
    )]
    pub fn get(&self, blocks: &[u32], clock: fn() -> u64, gets: &mut [Get]) {
        let relation = self.relation.as_ptr();
        let (number, ring) = (self.number, self.ring);
        let usage = compat::buffer_usage();
        // SAFETY: the relation is open, and locked so that it is not truncated. The frames that an error of
        // the buffer manager crosses are plain: they own nothing. The counters belong to this thread. A
        // buffer is released right after its get.
        unsafe {
            pg_guard_ffi_boundary(|| {
                for (&block, get) in blocks.iter().zip(gets) {
                    let reads = (*usage).shared_blks_read + (*usage).local_blks_read;
                    let start = clock();
                    let buffer = unguarded::ReadBufferExtended(
                        relation,
                        number,
                        block,
                        pg_sys::ReadBufferMode::RBM_NORMAL,
                        ring,
                    );
                    let end = clock();
                    *get = Get {
                        ticks: end.checked_sub(start),
                        read: (*usage).shared_blks_read + (*usage).local_blks_read != reads,
                    };
                    unguarded::ReleaseBuffer(buffer);
                }
            });
        }
    }
}

/// Raises an error if the current user may not read the relation. Indexes have no privileges of their own:
/// those of their table count.
fn check_readable(relation: &PgRelation) {
    // SAFETY: the relation is open, so its catalog row and its name are valid. The functions take plain
    // values.
    unsafe {
        let class = &*(*relation.as_ptr()).rd_rel;
        let is_index =
            [pg_sys::RELKIND_INDEX, pg_sys::RELKIND_PARTITIONED_INDEX].contains(&(class.relkind as u8));
        let checked = if is_index {
            pg_sys::IndexGetRelation(relation.oid(), false)
        } else {
            relation.oid()
        };
        let answer = pg_sys::pg_class_aclcheck(
            checked,
            pg_sys::GetUserId(),
            pg_sys::ACL_SELECT as pg_sys::AclMode,
        );
        if answer != pg_sys::AclResult::ACLCHECK_OK {
            let kind = pg_sys::get_relkind_objtype(class.relkind);
            pg_sys::aclcheck_error(answer, kind, class.relname.data.as_ptr());
        }
    }
}

/// Raises an error if the relation has no blocks that this session can read.
fn check_storage(relation: &PgRelation) {
    // SAFETY: the relation is open, so its catalog row is valid. The function takes a plain value.
    let (kind, name, is_foreign_temp) = unsafe {
        let class = &*(*relation.as_ptr()).rd_rel;
        let name = CStr::from_ptr(class.relname.data.as_ptr()).to_bytes();
        let is_temp = class.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
        (
            class.relkind as u8,
            server::from_database(name),
            is_temp && pg_sys::isOtherTempNamespace(class.relnamespace),
        )
    };
    const WITH_STORAGE: [u8; 5] = [
        pg_sys::RELKIND_RELATION,
        pg_sys::RELKIND_INDEX,
        pg_sys::RELKIND_SEQUENCE,
        pg_sys::RELKIND_TOASTVALUE,
        pg_sys::RELKIND_MATVIEW,
    ];
    if !WITH_STORAGE.contains(&kind) {
        fail(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            &format!("\"{name}\" has no blocks"),
            "Name a table, a partition, an index, a materialized view, a sequence or a TOAST table. Views, foreign tables and partitioned tables have no storage of their own.",
        )
    }
    if is_foreign_temp {
        fail(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            &format!("\"{name}\" is a temporary relation of another session"),
            "Its blocks are in the memory of that session.",
        )
    }
}
