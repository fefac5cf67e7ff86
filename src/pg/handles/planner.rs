//! A query on its way to the planner, and the plan that the planner makes of it.

use super::handle::Handle;
use crate::pg::border::frames::PlainFrames;
use pgrx::pg_sys::{PlannedStmt, Query};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A query in the planner's hook. Whoever plans it gives it away, because the planner changes or frees it.
/// Its text stays.
pub struct ToPlan<'t> {
    query: *mut Query,
    source: *const c_char,
    /// The frames of the hook and of all that this is given to.
    pub frames: PlainFrames,
    text: PhantomData<&'t CStr>,
}

impl<'t> ToPlan<'t> {
    /// Describes a query.
    ///
    /// # Safety
    /// * `query` must point to a live query, which nobody else uses until the result is given to the planner.
    /// * `source` must be null, or the query's text, which lives for `'t`.
    /// * The frames of the hook and of all that the result is given to must be plain, because an error
    ///   crosses them.
    #[inline(always)]
    pub const unsafe fn new(query: *mut Query, source: *const c_char) -> ToPlan<'t> {
        ToPlan {
            query,
            source,
            // SAFETY: they are plain, as the caller promises.
            frames: unsafe { PlainFrames::promised() },
            text: PhantomData,
        }
    }

    /// Returns the query.
    #[inline(always)]
    pub const fn query(&self) -> Handle<'_, Query> {
        // SAFETY: it is live, as who made this has promised. Who changes it borrows this alone.
        unsafe { Handle::new(self.query) }
    }

    /// Returns the query, to change it.
    #[inline(always)]
    pub const fn query_mut(&mut self) -> &mut Query {
        // SAFETY: it is live and nobody else uses it, as who made this has promised.
        unsafe { &mut *self.query }
    }

    /// Returns the query string; null if there is none.
    #[inline(always)]
    pub const fn source(&self) -> *const c_char {
        self.source
    }

    /// Returns whether the query has a place in a text.
    pub fn has_text(&self) -> bool {
        // SAFETY: the text is live, as who made this has promised.
        !self.source.is_null() && unsafe { *self.source != 0 } && self.query().stmt_location >= 0
    }
}

/// A plan that the planner has just made. Nobody else uses it yet.
#[repr(transparent)]
pub struct NewPlan(NonNull<PlannedStmt>);

impl NewPlan {
    /// Takes what the planner returned.
    ///
    /// # Safety
    /// * `plan` must point to a live plan, which nobody else uses before [`NewPlan::into_ptr`].
    /// * The frames of the hook must be plain, as for [`ToPlan::new`].
    #[inline(always)]
    pub const unsafe fn new(plan: *mut PlannedStmt) -> NewPlan {
        // SAFETY: the caller promises that it is there.
        NewPlan(unsafe { NonNull::new_unchecked(plan) })
    }

    /// Returns the plan.
    #[inline(always)]
    pub const fn plan(&self) -> Handle<'_, PlannedStmt> {
        // SAFETY: it is live, as who made this has promised. Who changes it borrows this alone.
        unsafe { Handle::new(self.0.as_ptr()) }
    }

    /// Returns the plan, to change it.
    #[inline(always)]
    pub const fn plan_mut(&mut self) -> &mut PlannedStmt {
        // SAFETY: it is live and nobody else uses it, as who made this has promised.
        unsafe { self.0.as_mut() }
    }

    /// Gives the plan to PostgreSQL.
    #[inline(always)]
    pub const fn into_ptr(self) -> *mut PlannedStmt {
        self.0.as_ptr()
    }
}
