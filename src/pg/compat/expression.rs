//! Walks expressions and queries: from 16 on, PostgreSQL's functions have other names. And reads parts that
//! only some majors have.

use crate::pg::handles::Handle;
use pgrx::pg_sys;
use std::ffi::{c_int, c_void};

/// The type of a function that PostgreSQL calls for a part of an expression.
type Walker = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool;

#[cfg(pg_ge_16)]
crate::pg::border::unguarded::declare! { "C-unwind":
    fn expression_tree_walker_impl(
        node: *mut pg_sys::Node,
        walker: pg_sys::tree_walker_callback,
        context: *mut c_void,
    ) -> bool;
    fn query_tree_walker_impl(
        query: *mut pg_sys::Query,
        walker: pg_sys::tree_walker_callback,
        context: *mut c_void,
        flags: c_int,
    ) -> bool;
}
// pgrx has no binding for these functions, so their types are not checked.
#[cfg(not(pg_ge_16))]
unsafe extern "C-unwind" {
    #[link_name = "expression_tree_walker"]
    fn expression_tree_walker_impl(
        node: *mut pg_sys::Node,
        walker: Option<Walker>,
        context: *mut c_void,
    ) -> bool;
    #[link_name = "query_tree_walker"]
    fn query_tree_walker_impl(
        query: *mut pg_sys::Query,
        walker: Option<Walker>,
        context: *mut c_void,
        flags: c_int,
    ) -> bool;
}

/// Calls a walker for each part directly below a part of an expression. It has no guard, because the walker
/// calls it recursively, and an error may cross all these frames.
///
/// # Safety
/// * `node` must be null or a part of a live expression; the walker must accept `context`.
/// * The frames of the caller and of the walker must be plain, because an error may cross them.
#[inline(always)]
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub unsafe fn expression_tree_walker(node: *mut pg_sys::Node, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: the node is live, and the walker accepts it and the context, by the caller's promise. All
    // frames are plain.
    unsafe { expression_tree_walker_impl(node, Some(walker), context) }
}

/// Calls a walker for each expression of a query.
///
/// # Safety
/// * `query` must be live; the walker must accept `context`.
/// * The frames of the caller and of the walker must be plain, because an error may cross them.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub unsafe fn query_tree_walker(query: *mut pg_sys::Query, walker: Walker, context: *mut c_void) -> bool {
    // SAFETY: the query is live, and the walker accepts its parts and the context, by the caller's promise.
    // All frames are plain.
    unsafe { query_tree_walker_impl(query, Some(walker), context, 0) }
}

/// Returns the type that SQL/JSON's clause RETURNING names in a part of an expression, and where its modifier
/// is.
#[cfg(pg_ge_16)]
pub fn json_returning(node: Handle<'_, pg_sys::Node>) -> Option<(pg_sys::Oid, Handle<'_, i32>)> {
    let returning = match node.tag() {
        #[cfg(pg_ge_17)]
        pg_sys::NodeTag::T_JsonExpr => node.cast::<pg_sys::JsonExpr>().follow(|json| &json.returning),
        pg_sys::NodeTag::T_JsonConstructorExpr => {
            let constructor = node.cast::<pg_sys::JsonConstructorExpr>();
            constructor.follow(|json| &json.returning)
        }
        _ => None,
    }?;
    Some((returning.typid, returning.part(|returning| &returning.typmod)))
}
/// Returns nothing: there are no such expressions.
#[cfg(not(pg_ge_16))]
pub fn json_returning(_: Handle<'_, pg_sys::Node>) -> Option<(pg_sys::Oid, Handle<'_, i32>)> {
    None
}
