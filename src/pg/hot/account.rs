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
    /// What was charged besides hits of shared buffers.
    pub used: Used,
    /// The account is that of a statement outside its nodes, and the statement waited in this execution.
    pub has_waited: bool,
}

impl Usage {
    pub const fn zero() -> Self {
        // SAFETY: both structs consist of plain integers. Zero bytes are a valid value for them and for `false`.
        unsafe { std::mem::zeroed() }
    }
}
