//! A statement belongs to its query's memory context while the query lives. Here it is handed over, found, and taken back.

use super::pool;
use super::state::Statement;
use crate::pg::server::backend_local::BackendLocal;
use crate::pg::server::{self, unguarded};
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::phase::Phase;
use std::cell::Cell;

/// How many statements belong to query contexts.
static OPEN: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));

/// Returns the open statement of a started query.
///
/// # Safety
/// * `query` must point to a QueryDesc whose execution state is null or live.
/// * The reference must not be used after that execution state has gone.
#[inline(always)]
pub unsafe fn find(query: *mut QueryDesc) -> Option<&'static Statement> {
    if OPEN.get() == 0 {
        return None;
    }
    // SAFETY: the caller passes a valid QueryDesc, and keeps the reference no longer than the execution state lives.
    unsafe { of((*query).estate).filter(|statement| statement.life.phase() != Phase::Closed) }
}

/// Returns the statement that belongs to an execution state's query context. Its callback is the first one there, except
/// for those that others have registered since it started.
///
/// # Safety
/// * `estate` must be null or live.
/// * The reference must not be used after `estate` has gone.
pub unsafe fn of(estate: *mut pg_sys::EState) -> Option<&'static Statement> {
    // SAFETY: a live execution state has a query context, whose callbacks are a list that ends with null. Only
    // `register_reset_callback` registers `RESET`, with a statement that lives until the context has called it.
    unsafe {
        let estate = estate.as_ref()?;
        let mut callback = (*estate.es_query_cxt).reset_cbs;
        while let Some(linked) = callback.as_ref() {
            if linked
                .func
                .is_some_and(|function| std::ptr::fn_addr_eq(function, RESET))
            {
                return linked.arg.cast::<Statement>().as_ref();
            }
            callback = linked.next;
        }
        None
    }
}

/// The callback that a statement's query context calls when it is reset or deleted.
const RESET: unsafe extern "C-unwind" fn(*mut std::ffi::c_void) = context_reset;

/// Takes a statement back from its query's context.
///
/// # Safety
/// To be called by a memory context only, once, with the address that `register_reset_callback` registered.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn context_reset(statement: *mut std::ffi::c_void) {
    OPEN.set(OPEN.get() - 1);
    // SAFETY: `register_reset_callback` made this address of a box, and gave it to the context, which calls this once.
    // Everybody else finds the statement through this context, which is going.
    let statement = unsafe { Box::from_raw(statement.cast::<Statement>()) };
    // Nothing may be raised while a memory context goes.
    let _ = server::caught(|| {
        statement.on_context_reset();
        pool::recycle(statement);
    });
}

impl Statement {
    /// Hands the statement to its query's context. The context gives it back when it is reset, whatever becomes of the
    /// query.
    ///
    /// # Safety
    /// `context` must be the query context of the execution that the statement was set up for.
    pub unsafe fn register_reset_callback(self: Box<Self>, context: pg_sys::MemoryContext) {
        // SAFETY: the callback lies in the statement, which stays where it is until the context has called it.
        unsafe {
            let statement = Box::into_raw(self);
            (*statement).callback.func = Some(RESET);
            (*statement).callback.arg = statement.cast();
            unguarded::MemoryContextRegisterResetCallback(context, &raw mut (*statement).callback);
            OPEN.set(OPEN.get() + 1);
        }
    }
}
