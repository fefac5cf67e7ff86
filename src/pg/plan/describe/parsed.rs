//! Hides what only functions of other extensions could print of a query that is not planned yet.

use super::modifiers::{self, Modifier};
use super::symbols::replace_by_symbol;
use super::types;
use crate::pg::compat::expression::{expression_tree_walker, query_tree_walker};
use crate::pg::handles::Handle;
use pgrx::pg_sys::{self, Const, Node, NodeTag, Query};
use std::ffi::c_void;

/// What the walk has found. There is no value if there is no memory.
#[derive(Default)]
struct Walk<'q> {
    constants: Vec<Handle<'q, Const>>,
    modifiers: Vec<Modifier<'q>>,
    /// The highest number of a parameter.
    parameters: i32,
}

/// Replaces constants that only another extension could print by symbols, and removes such modifiers of
/// types. The query may be printed after that, but not executed. Returns `None` if there is no memory. May
/// raise.
///
/// # Safety
/// Nothing else may use the query.
pub unsafe fn hide_foreign(query: Handle<Query>) -> Option<()> {
    let mut walk = Walk::default();
    let context: *mut Walk = &raw mut walk;
    // SAFETY: the walker's frames are plain, so an error may cross them.
    let stopped =
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| visit(query.node().as_ptr(), context.cast())) };
    if stopped {
        return None;
    }
    let mut symbol = walk.parameters as u32;
    // SAFETY: the places are parts of the query, which nothing else uses, by the caller's promise.
    unsafe {
        for constant in walk.constants {
            if !types::are_values_printed_by_core(constant.consttype) {
                symbol += 1;
                replace_by_symbol(constant, symbol);
            }
        }
        for Modifier { kind, place } in walk.modifiers {
            if !types::are_modifiers_printed_by_core(kind) {
                place.remove();
            }
        }
    }
    Some(())
}

/// Visits a part of a query. Returns true to stop the walk.
///
/// # Safety
/// * `node` must be null or a part of a live query.
/// * `context` must point to a [`Walk`], and no other code may use a reference to it.
/// * The caller's frame must be plain, because an error may cross it.
unsafe extern "C-unwind" fn visit(node: *mut Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the node is live, and the context is a walk, by the caller's promise.
    unsafe {
        let node = Handle::new(node);
        let walk = context.cast::<Walk>();
        if !modifiers::add(node, &mut (*walk).modifiers) {
            return true;
        }
        match node.tag() {
            NodeTag::T_Query => return query_tree_walker(node.as_ptr().cast(), visit, context),
            NodeTag::T_Const => {
                let constant = node.cast::<Const>();
                if !constant.constisnull && !types::is_of_core(constant.consttype) {
                    if (*walk).constants.try_reserve(1).is_err() {
                        return true;
                    }
                    (*walk).constants.push(constant);
                }
                return false;
            }
            NodeTag::T_Param => {
                let parameter = node.cast::<pg_sys::Param>();
                (*walk).parameters = (*walk).parameters.max(parameter.paramid);
            }
            _ => {}
        }
        expression_tree_walker(node.as_ptr(), visit, context)
    }
}
