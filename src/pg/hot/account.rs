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
        // SAFETY: both structs consist of plain integers. Zero bytes are a valid value for them and for
        // `false`.
        unsafe { std::mem::zeroed() }
    }

    /// Clears the account. Returns whether more than hits was charged to it.
    #[inline(always)]
    pub fn clear(&mut self) -> bool {
        if self.used != Used::default() {
            self.clear_all();
            return true;
        }
        self.buffers.shared_blks_hit = 0;
        self.is_charged = false;
        self.has_waited = false;
        false
    }

    /// Clears the account if it has more than hits.
    #[cold]
    #[inline(never)]
    fn clear_all(&mut self) {
        *self = Usage::zero();
    }
}

/// How many subplans are noted that ran in a node before another one called them. The time of others counts
/// for their last caller.
pub const EARLIER: usize = 2;

/// What the InitPlans and subplans used that a node called. Zero bytes are nothing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Called {
    pub buffers: pg_sys::BufferUsage,
    pub wal: pg_sys::WalUsage,
    /// Those that another node called later.
    pub earlier: [Earlier; EARLIER],
    /// If the node is the root of a subplan: the ticks of its calls by earlier callers.
    pub ticks: f64,
}

/// The calls of a subplan by a node that does not call it any more.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Earlier {
    /// The index of the subplan's root among the nodes; 0 if there is none.
    pub subplan: usize,
    pub ticks: f64,
}

impl Called {
    /// Clears the sums.
    #[cold]
    #[inline(never)]
    pub fn clear(&mut self) {
        // SAFETY: zero bytes are a valid value for all fields.
        unsafe { std::ptr::from_mut(self).write_bytes(0, 1) }
    }
}
