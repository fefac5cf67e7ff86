//! Charges buffers and WAL to the node that used them. The running node's account is remembered. Whenever
//! another node begins or ends, that account is charged with the increase of PostgreSQL's counters since the
//! last charge.
//!
//! Checking the counters costs one sum over them (the *signature*). Counters are copied only if that sum has
//! changed. A backend has one thread. Of this state, another process writes only the sums at the last charge:
//! it leaves marks there ([`rowsource_core::beat`]).

pub use super::account::Usage;
use super::node::Account;
use super::state::{HOT, OUTSIDE};
use crate::pg::border::unguarded;
use crate::pg::compat;
use pgrx::pg_sys::{BufferUsage, WalUsage};
use rowsource_core::beat::SCOPES;
use rowsource_core::results::Used;
use rowsource_core::sampler::MANY_BUFFERS;
use rowsource_core::wrapper::scope;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the account of the running node.
#[inline(always)]
pub fn current() -> *mut Usage {
    HOT.current.get().usage()
}

/// Returns the counters at the time of the last charge.
#[inline(always)]
pub fn last_charged() -> Usage {
    HOT.last_charged.get()
}

/// Returns the sum of the counters that can change in this scope. WAL bytes and I/O times need not be added,
/// because they change only together with WAL records and blocks.
#[inline(always)]
fn signature<const SCOPE: u8>(u: &BufferUsage, wal: &WalUsage) -> i64 {
    let shared = u
        .shared_blks_hit
        .wrapping_add(u.shared_blks_read)
        .wrapping_add(u.shared_blks_dirtied);
    if SCOPE == scope::SHARED {
        return shared;
    }
    let reads = shared
        .wrapping_add(u.temp_blks_read)
        .wrapping_add(u.temp_blks_written);
    if SCOPE == scope::READS {
        return reads;
    }
    reads
        .wrapping_add(u.shared_blks_written)
        .wrapping_add(u.local_blks_hit)
        .wrapping_add(u.local_blks_read)
        .wrapping_add(u.local_blks_dirtied)
        .wrapping_add(u.local_blks_written)
        .wrapping_add(wal.wal_records)
}

/// Returns whether counters of the scope have changed since the last charge, or whether there is a mark.
#[inline(always)]
pub fn moved<const SCOPE: u8>() -> bool {
    // SAFETY: these are PostgreSQL's own counters, which only this thread writes.
    let now = unsafe { signature::<SCOPE>(&*HOT.counters.load(Relaxed), &*compat::wal_usage()) };
    now != HOT.beats.expected(SCOPE as usize)
}

#[inline(always)]
fn signature_now<const SCOPE: u8>() -> i64 {
    signature::<SCOPE>(&compat::buffers_now(), &compat::wal_now())
}

/// Returns the sums of the counters at the last charge.
pub fn charged_sums() -> [i64; SCOPES] {
    let Usage { buffers, wal, .. } = &last_charged();
    [
        signature::<{ scope::ALL }>(buffers, wal),
        signature::<{ scope::READS }>(buffers, wal),
        signature::<{ scope::SHARED }>(buffers, wal),
    ]
}

/// Returns the number of blocks read so far, including those of work files.
#[inline(always)]
pub fn reads() -> i64 {
    let now = compat::buffers_now();
    now.shared_blks_read
        .wrapping_add(now.local_blks_read)
        .wrapping_add(now.temp_blks_read)
}

/// Returns how many blocks were found in buffers since the last charge.
#[inline(always)]
pub fn hits_since_charge() -> i64 {
    let (now, last) = (compat::buffers_now(), last_charged().buffers);
    let shared = now.shared_blks_hit.wrapping_sub(last.shared_blks_hit);
    shared.wrapping_add(now.local_blks_hit.wrapping_sub(last.local_blks_hit))
}

/// Charges `account` with what was used since the last charge, if that is anything. Returns whether it
/// included I/O or many buffers.
///
/// # Safety
/// `account` must point to a live `Usage`, and no reference to it may exist.
#[inline(always)]
pub unsafe fn charge_if_moved(account: *mut Usage) -> bool {
    let more = signature_now::<{ scope::ALL }>().wrapping_sub(HOT.beats.expected(scope::ALL as usize));
    // SAFETY: this function's caller makes the same promises.
    more != 0 && unsafe { charge(account, more) }
}

/// Does what [`charge_if_moved`] does if the sum of all counters has grown by `more`.
///
/// Others copy the accounts at any moment, and add to the running one what was used since the last charge. So
/// the counters of the last charge are written first: a session that loses its processor after that has a few
/// blocks less for a while, and not twice as many.
///
/// # Safety
/// The same as for [`charge_if_moved`].
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe fn charge(account: *mut Usage, more: i64) -> bool {
    // SAFETY: only this thread writes PostgreSQL's counters. `account` is live by the caller's promise, and
    // it is not `last_charged`, because no account is.
    unsafe {
        let now = compat::buffer_usage().cast_const();
        let last = &raw mut (*HOT.last_charged.as_ptr()).buffers;
        let hits = (*now).shared_blks_hit.wrapping_sub((*last).shared_blks_hit);
        // Counters never decrease. So if their sum has grown as much as this one, no other has moved, and
        // there is no mark.
        if more != hits {
            return charge_all(account);
        }
        (*last).shared_blks_hit += hits;
        (*account).is_charged = true;
        (*account).buffers.shared_blks_hit += hits;
        HOT.beats.expect_more(hits);
        hits >= MANY_BUFFERS
    }
}

/// Does what [`charge`] does if other counters than that of shared buffers have moved, or if there is a mark.
///
/// # Safety
/// The same as for [`charge`].
#[inline(never)]
unsafe fn charge_all(account: *mut Usage) -> bool {
    // SAFETY: only this thread writes PostgreSQL's counters. `account` is live by the caller's promise, and
    // it is not `last_charged`, because no account is.
    unsafe {
        if HOT.beats.is_marked() {
            let sums = charged_sums();
            if sums[scope::ALL as usize] == signature_now::<{ scope::ALL }>() {
                HOT.beats.expect_sums(sums);
                return false;
            }
        }
        let now = compat::buffer_usage().cast_const();
        let last = &raw mut (*HOT.last_charged.as_ptr()).buffers;
        (*account).is_charged = true;
        (*account).used.has_changes = true;
        let io = (*now).shared_blks_read != (*last).shared_blks_read
            || (*now).shared_blks_written != (*last).shared_blks_written
            || (*now).local_blks_read != (*last).local_blks_read
            || (*now).local_blks_written != (*last).local_blks_written
            || (*now).temp_blks_read != (*last).temp_blks_read
            || (*now).temp_blks_written != (*last).temp_blks_written;
        let hits = (*now).shared_blks_hit - (*last).shared_blks_hit;
        let to = &raw mut (*account).buffers;
        if io {
            // Only I/O moves the I/O times, whose type differs by version.
            (*account).used.has_more = true;
            let before = *last;
            *last = *now;
            unguarded::BufferUsageAccumDiff(to, now, &raw const before);
        } else {
            let local_hits = (*now).local_blks_hit - (*last).local_blks_hit;
            let local_dirtied = (*now).local_blks_dirtied - (*last).local_blks_dirtied;
            let dirtied = (*now).shared_blks_dirtied - (*last).shared_blks_dirtied;
            (*last).shared_blks_hit = (*now).shared_blks_hit;
            (*last).shared_blks_dirtied = (*now).shared_blks_dirtied;
            (*to).shared_blks_hit += hits;
            (*to).shared_blks_dirtied += dirtied;
            if local_hits | local_dirtied != 0 {
                (*account).used.has_more = true;
                (*last).local_blks_hit = (*now).local_blks_hit;
                (*last).local_blks_dirtied = (*now).local_blks_dirtied;
                (*to).local_blks_hit += local_hits;
                (*to).local_blks_dirtied += local_dirtied;
            }
        }
        let wal = compat::wal_usage();
        let last_wal = &raw mut (*HOT.last_charged.as_ptr()).wal;
        if (*wal).wal_records != (*last_wal).wal_records {
            let before = *last_wal;
            *last_wal = *wal;
            unguarded::WalUsageAccumDiff(&raw mut (*account).wal, wal, &raw const before);
        }
        HOT.beats.expect_sums([
            signature_now::<{ scope::ALL }>(),
            signature_now::<{ scope::READS }>(),
            signature_now::<{ scope::SHARED }>(),
        ]);
        io || hits >= MANY_BUFFERS
    }
}

/// Adds all that was charged since an entry (blocks and WAL of an earlier result of [`last_charged`]) to an
/// account. So the node that calls a nested statement is also charged with what that used.
///
/// # Safety
/// All must point to live values, and no reference to `account` may exist.
pub unsafe fn add_since(account: *mut Usage, buffers: *const BufferUsage, wal: *const WalUsage) {
    // SAFETY: all are live by the caller's promise. Only this thread writes the counters of the last charge.
    unsafe {
        let now = HOT.last_charged.as_ptr().cast_const();
        add_between(
            account,
            buffers,
            wal,
            &raw const (*now).buffers,
            &raw const (*now).wal,
        );
    }
}

/// Adds what was used between two moments to an account.
///
/// # Safety
/// All must point to live values, and no reference to `account` may exist.
pub unsafe fn add_between(
    account: *mut Usage,
    from_buffers: *const BufferUsage,
    from_wal: *const WalUsage,
    to_buffers: *const BufferUsage,
    to_wal: *const WalUsage,
) {
    // SAFETY: all are live by the caller's promise.
    unsafe {
        (*account).is_charged = true;
        (*account).used = Used {
            has_changes: true,
            has_more: true,
        };
        unguarded::BufferUsageAccumDiff(&raw mut (*account).buffers, to_buffers, from_buffers);
        unguarded::WalUsageAccumDiff(&raw mut (*account).wal, to_wal, from_wal);
    }
}

/// Adds all that was charged since an entry to sums.
///
/// # Safety
/// All must point to live values.
pub unsafe fn accumulate_since(
    to_buffers: *mut BufferUsage,
    to_wal: *mut WalUsage,
    buffers: *const BufferUsage,
    wal: *const WalUsage,
) {
    // SAFETY: all are live by the caller's promise. Only this thread writes the counters of the last charge.
    unsafe {
        let now = HOT.last_charged.as_ptr().cast_const();
        unguarded::BufferUsageAccumDiff(to_buffers, &raw const (*now).buffers, buffers);
        unguarded::WalUsageAccumDiff(to_wal, &raw const (*now).wal, wal);
    }
}

/// Returns whether this is the account of everything outside all measured nodes.
pub fn is_outside(account: *mut Usage) -> bool {
    std::ptr::eq(account, OUTSIDE.get())
}

/// Charges the running account for the last time, because its memory is about to be freed.
///
/// # Safety
/// The running account must still be live.
pub unsafe fn switch_outside() {
    // SAFETY: the running account is live by the caller's promise; the outside account lives as long as the
    // process.
    unsafe { switch(OUTSIDE.get()) };
}

/// Charges the running account, and makes `account` the running one. Returns the one before.
///
/// # Safety
/// * The running account must still be live.
/// * `account` must stay live until another account becomes the running one, also after an error.
/// * No reference to either may exist.
pub unsafe fn switch(account: *mut Usage) -> *mut Usage {
    let before = current();
    // SAFETY: the running account is live, and no reference to it exists, by the caller's promise.
    unsafe { charge_if_moved(before) };
    HOT.current.set(Account::of(account));
    before
}

/// Charges the running node, if there is one, with what a nested run used. If that run was not measured, it
/// may have moved counters that the wrapper of the running node does not check.
#[inline(always)]
pub fn charge_running_node() {
    #[cold]
    #[inline(never)]
    fn charge() {
        // SAFETY: the running account is always live, and stays the running one.
        unsafe { switch(current()) };
    }
    if !is_outside(current()) {
        charge();
    }
}
