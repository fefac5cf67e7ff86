//! Buffers and WAL by switching: the running node's account is remembered, and what the counters moved by since
//! the last look is booked to it whenever another node begins or ends.
//!
//! A look costs one sum over the counters (the *signature*); only when that sum moved is anything copied.
//! All of this is touched by the hot path only: a backend has one thread, and the tick's signal handler does not
//! come here.

use super::raw;
use pgrx::pg_sys;
use rowsource_core::sampler::MANY_BUFFERS;

/// What one node used by itself.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Usage {
    pub buffers: pg_sys::BufferUsage,
    pub wal: pg_sys::WalUsage,
}

impl Usage {
    pub const fn zero() -> Self {
        // SAFETY: both are plain integers, for which zero bytes are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

/// Takes what happens outside every measured node.
static mut OUTSIDE: Usage = Usage::zero();
/// The account of the node that runs now.
pub static mut CURRENT: *mut Usage = &raw mut OUTSIDE;
/// PostgreSQL's counters. By a variable, so that the hot path loads their address twice rather than keep it in a
/// register that it must save.
static mut COUNTERS: *const pg_sys::BufferUsage = &raw const pg_sys::pgBufferUsage;
/// The counters when they were last booked.
pub static mut BOOKED: Usage = Usage::zero();
/// Their signatures then, one per [`Scope`].
static mut SIGNATURES: [i64; 3] = [0; 3];

/// Fills in the counters' address, in a way that the compiler cannot see through.
pub fn init() {
    // SAFETY: called once from _PG_init.
    unsafe { COUNTERS = std::hint::black_box(&raw const pg_sys::pgBufferUsage) }
}

/// Which counters can move first, while a statement runs.
pub mod scope {
    /// Any: statements that write, and those on temporary tables.
    pub const ALL: u8 = 0;
    /// A statement that only reads, and no temporary table: shared buffers and work files. Writing a buffer out
    /// comes with reading one, and WAL (pruning, hint bits) with touching or dirtying one.
    pub const READS: u8 = 1;
    /// A scan of such a statement: shared buffers.
    pub const SCAN: u8 = 2;
}

/// The sum of the counters that can move. Every change of WAL makes a record, every change of an I/O time a block.
///
/// # Safety
/// Only from the backend's main thread.
#[inline(always)]
unsafe fn signature<const SCOPE: u8>() -> i64 {
    // SAFETY: PostgreSQL's own counters, written by this thread only.
    unsafe {
        let u = COUNTERS;
        let shared = (*u)
            .shared_blks_hit
            .wrapping_add((*u).shared_blks_read)
            .wrapping_add((*u).shared_blks_dirtied);
        if SCOPE == scope::SCAN {
            return shared;
        }
        let reads = shared
            .wrapping_add((*u).temp_blks_read)
            .wrapping_add((*u).temp_blks_written);
        if SCOPE == scope::READS {
            return reads;
        }
        reads
            .wrapping_add((*u).shared_blks_written)
            .wrapping_add((*u).local_blks_hit)
            .wrapping_add((*u).local_blks_read)
            .wrapping_add((*u).local_blks_dirtied)
            .wrapping_add((*u).local_blks_written)
            .wrapping_add(pg_sys::pgWalUsage.wal_records)
    }
}

/// Whether counters of the scope moved since the last booking.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn moved<const SCOPE: u8>() -> bool {
    // SAFETY: statics of this thread.
    unsafe { signature::<SCOPE>() != SIGNATURES[SCOPE as usize] }
}

/// Blocks read so far, from disk or work files.
///
/// # Safety
/// Main thread only.
#[inline(always)]
pub unsafe fn reads() -> i64 {
    // SAFETY: PostgreSQL's own counters.
    unsafe {
        let u = &raw const pg_sys::pgBufferUsage;
        (*u).shared_blks_read
            .wrapping_add((*u).local_blks_read)
            .wrapping_add((*u).temp_blks_read)
    }
}

/// Books what happened since the last booking to `account`; true where it included I/O or many buffers.
///
/// # Safety
/// Main thread only; `account` must point to a live `Usage`.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
pub unsafe fn book(account: *mut Usage) -> bool {
    // SAFETY: counters and statics belong to this thread; `account` is live by the caller's promise.
    unsafe {
        let now = &raw const pg_sys::pgBufferUsage;
        let last = &raw mut BOOKED.buffers;
        let to = &raw mut (*account).buffers;
        let io = (*now).shared_blks_read != (*last).shared_blks_read
            || (*now).shared_blks_written != (*last).shared_blks_written
            || (*now).local_blks_read != (*last).local_blks_read
            || (*now).local_blks_written != (*last).local_blks_written
            || (*now).temp_blks_read != (*last).temp_blks_read
            || (*now).temp_blks_written != (*last).temp_blks_written;
        let hits = (*now).shared_blks_hit - (*last).shared_blks_hit;
        if io {
            // Only I/O moves the I/O times, whose type differs by version.
            raw::BufferUsageAccumDiff(to, now, last);
            *last = *now;
        } else {
            (*to).shared_blks_hit += hits;
            (*to).shared_blks_dirtied += (*now).shared_blks_dirtied - (*last).shared_blks_dirtied;
            (*to).local_blks_hit += (*now).local_blks_hit - (*last).local_blks_hit;
            (*to).local_blks_dirtied += (*now).local_blks_dirtied - (*last).local_blks_dirtied;
            (*last).shared_blks_hit = (*now).shared_blks_hit;
            (*last).shared_blks_dirtied = (*now).shared_blks_dirtied;
            (*last).local_blks_hit = (*now).local_blks_hit;
            (*last).local_blks_dirtied = (*now).local_blks_dirtied;
        }
        let wal = &raw const pg_sys::pgWalUsage;
        let last_wal = &raw mut BOOKED.wal;
        if (*wal).wal_records != (*last_wal).wal_records {
            raw::WalUsageAccumDiff(&raw mut (*account).wal, wal, last_wal);
            *last_wal = *wal;
        }
        SIGNATURES = [signature::<0>(), signature::<1>(), signature::<2>()];
        io || hits >= MANY_BUFFERS
    }
}

/// Adds all that was booked since `entry` (a copy of `BOOKED`) to an account: what an InitPlan or a nested
/// statement used also belongs to the node that asked for it.
///
/// # Safety
/// Main thread only; both must be live.
pub unsafe fn add_since(account: *mut Usage, entry: *const Usage) {
    // SAFETY: the caller's promise.
    unsafe {
        let now = &raw const BOOKED;
        raw::BufferUsageAccumDiff(
            &raw mut (*account).buffers,
            &raw const (*now).buffers,
            &raw const (*entry).buffers,
        );
        raw::WalUsageAccumDiff(
            &raw mut (*account).wal,
            &raw const (*now).wal,
            &raw const (*entry).wal,
        );
    }
}

/// Whether an account is of no node.
pub fn is_outside(account: *mut Usage) -> bool {
    std::ptr::eq(account, &raw const OUTSIDE)
}

/// Books to the running account for the last time: it goes.
///
/// # Safety
/// Main thread only; the running account must still be live.
pub unsafe fn switch_outside() {
    // SAFETY: the caller's promise; the outside account lives for ever.
    unsafe { switch(&raw mut OUTSIDE) };
}

/// Books to the running account and makes `account` the running one; returns the one before.
///
/// # Safety
/// Main thread only; `account` must stay live until another switch.
pub unsafe fn switch(account: *mut Usage) -> *mut Usage {
    // SAFETY: CURRENT always points to a live account: see the callers, which restore it on every way out.
    unsafe {
        let before = CURRENT;
        if moved::<{ scope::ALL }>() {
            book(before);
        }
        CURRENT = account;
        before
    }
}
