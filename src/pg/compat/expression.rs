//! Walking expressions: from 16 on the function has another name.

use pgrx::pg_sys;
use std::ffi::c_void;

unsafe extern "C-unwind" {
    /// Calls a walker for each part directly below a part of an expression. Without pgrx's guard, for the walker calls
    /// it again: an error crosses all these frames.
    #[cfg_attr(pg_ge_16, link_name = "expression_tree_walker_impl")]
    pub fn expression_tree_walker(
        node: *mut pg_sys::Node,
        walker: unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool,
        context: *mut c_void,
    ) -> bool;
}
