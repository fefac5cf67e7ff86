//! While a query lives, its memory context owns its statement. This file hands the statement over, finds it,
//! and takes it back.

use super::pool;
use super::state::Statement;
use crate::pg::border::{backend_local::BackendLocal, unguarded};
use pgrx::pg_sys::{self, QueryDesc};
use rowsource_core::phase::Phase;
use std::cell::Cell;

/// The number of statements that query contexts own.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static OPEN: BackendLocal<Cell<usize>> = BackendLocal::new(Cell::new(0));

/// The statement that a query's context got last, with the execution state of its query. Both are null if
/// there is none, or if it has been taken back.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static NEWEST: BackendLocal<Cell<(*const pg_sys::EState, *const Statement)>> =
    BackendLocal::new(Cell::new((std::ptr::null(), std::ptr::null())));

/// Returns the open statement of a started query.
///
/// # Safety
/// * `query` must point to a QueryDesc whose execution state is null or live.
/// * The reference must not be used after that execution state is freed.
#[inline(always)]
pub unsafe fn find(query: *mut QueryDesc) -> Option<&'static Statement> {
    if OPEN.get() == 0 {
        return None;
    }
    let (newest, statement) = NEWEST.get();
    // SAFETY: the caller passes a valid QueryDesc, and does not use the reference after the execution state
    // is freed. The newest statement is live until it is taken back.
    unsafe {
        let estate = (*query).estate;
        let statement = match estate.cast_const() == newest {
            true => statement.as_ref(),
            false => of(estate),
        };
        statement.filter(|statement| statement.life.phase() != Phase::Closed)
    }
}

/// Returns the statement that belongs to an execution state's query context. Its callback is the first in the
/// list, unless others have registered callbacks later.
///
/// # Safety
/// * `estate` must be null or live.
/// * The reference must not be used after `estate` is freed.
#[cold]
#[inline(never)]
pub unsafe fn of(estate: *mut pg_sys::EState) -> Option<&'static Statement> {
    // SAFETY: a live execution state has a query context, whose callbacks are a list that ends with null.
    // Only `register_reset_callback` registers `RESET`, with a statement that lives until the context has
    // called it.
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
/// Only a memory context may call this, once, with the address that `register_reset_callback` registered.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
unsafe extern "C-unwind" fn context_reset(statement: *mut std::ffi::c_void) {
    OPEN.set(OPEN.get() - 1);
    if NEWEST.get().1 == statement.cast() {
        NEWEST.set((std::ptr::null(), std::ptr::null()));
    }
    // SAFETY: `register_reset_callback` got this address from a box and gave it to the context, which calls
    // this once. All others find the statement through this context, which is being reset.
    let statement = unsafe { Box::from_raw(statement.cast::<Statement>()) };
    if statement.on_context_reset() {
        pool::recycle(statement);
    }
}

impl Statement {
    /// Hands the statement to its query's context. The context always gives it back when it is reset.
    ///
    /// # Safety
    /// `context` must be the query context of the execution for which the statement was set up.
    pub unsafe fn register_reset_callback(self: Box<Self>, context: pg_sys::MemoryContext) {
        // SAFETY: the callback is part of the statement, which is neither moved nor freed until the context
        // has called it.
        unsafe {
            let statement = Box::into_raw(self);
            (*statement).callback.func = Some(RESET);
            (*statement).callback.arg = statement.cast();
            unguarded::MemoryContextRegisterResetCallback(context, &raw mut (*statement).callback);
            OPEN.set(OPEN.get() + 1);
            NEWEST.set(((*(*statement).query).estate, statement));
        }
    }
}
