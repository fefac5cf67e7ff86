//! What is charged to a node, or to code outside all nodes.

use pgrx::pg_sys;
use rowsource_core::results::Used;

/// The buffers and WAL that one node used.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Usage {
    pub buffers: pg_sys::BufferUsage,
    pub wal: pg_sys::WalUsage,
    /// Whether anything was charged to the account.
    pub is_charged: bool,
    /// What was charged besides hits of shared buffers. If nothing was, all other counts are zero.
    pub used: Used,
    /// The account is that of a statement outside its nodes, and the statement waited in this execution.
    pub has_waited: bool,
}

impl Usage {
    pub const fn zero() -> Self {
        // SAFETY: both structs consist of plain integers. Zero bytes are a valid value for them and for `false`.
        unsafe { std::mem::zeroed() }
    }

    /// Clears an account. Returns whether more than hits was charged to it.
    ///
    /// # Safety
    /// It must be live, and no reference to it may exist.
    #[inline(always)]
    pub unsafe fn clear(usage: *mut Usage) -> bool {
        // SAFETY: the account is live, and nobody else uses it, by the caller's promise.
        unsafe {
            if (*usage).used != Used::default() {
                Usage::clear_all(usage);
                return true;
            }
            (*usage).buffers.shared_blks_hit = 0;
            (*usage).is_charged = false;
            (*usage).has_waited = false;
        }
        false
    }

    /// Clears an account that has more than hits.
    ///
    /// # Safety
    /// The same as for [`Usage::clear`].
    #[cold]
    #[inline(never)]
    unsafe fn clear_all(usage: *mut Usage) {
        // SAFETY: the caller's promise is the same.
        unsafe { *usage = Usage::zero() };
    }
}
