//! Whether the plan cache made a plan, and whether for all parameters or for those of one execution. From 19
//! on, PostgreSQL notes that in the plan.
//!
//! Before, a plan of the plan cache lies in a memory context of its own. A plan that was made for certain
//! parameters gets an entry at the end of the list of objects that invalidate it, for a cache that does not
//! exist: PostgreSQL copies plans, and the list with them.

use pgrx::pg_sys::{ParamListInfo, PlannedStmt};
use rowsource_core::model::PlanOrigin;

/// Returns where a plan comes from.
///
/// # Safety
/// None: the plan says it. It is unsafe because the function for older majors is.
#[cfg(pg_ge_19)]
#[inline(always)]
pub unsafe fn plan_origin(plan: &PlannedStmt) -> PlanOrigin {
    use pgrx::pg_sys::PlannedStmtOrigin::{PLAN_STMT_CACHE_CUSTOM, PLAN_STMT_CACHE_GENERIC};
    match plan.planOrigin {
        PLAN_STMT_CACHE_GENERIC => PlanOrigin::Generic,
        PLAN_STMT_CACHE_CUSTOM => PlanOrigin::Custom,
        _ => PlanOrigin::Other,
    }
}

/// Does nothing: PostgreSQL notes it itself.
///
/// # Safety
/// None: it uses nothing. It is unsafe because the function for older majors is.
#[cfg(pg_ge_19)]
#[inline(always)]
pub unsafe fn note_parameters(_plan: *mut PlannedStmt, _parameters: ParamListInfo) {}

#[cfg(not(pg_ge_19))]
pub use before_19::{note_parameters, plan_origin};

#[cfg(not(pg_ge_19))]
mod before_19 {
    use super::{ParamListInfo, PlanOrigin, PlannedStmt};
    use crate::pg::border::{backend_local::BackendLocal, unguarded};
    use pgrx::pg_sys::{self, NodeTag, PlanInvalItem};
    use std::cell::Cell;
    use std::ffi::{CStr, c_char, c_void};

    unguarded::declare! { "C-unwind":
        /// Allocates zeroed memory in the current memory context. Raises "out of memory".
        fn palloc0(size: usize) -> *mut c_void;
        /// Appends to a list. Raises "out of memory".
        fn lappend(list: *mut pg_sys::List, element: *mut c_void) -> *mut pg_sys::List;
    }

    #[cfg(pg_ge_16)]
    unsafe extern "C" {
        /// Returns the memory context of allocated memory.
        fn GetMemoryChunkContext(memory: *mut c_void) -> pg_sys::MemoryContext;
    }

    /// Returns the memory context of allocated memory: its address lies before the memory.
    ///
    /// # Safety
    /// `memory` must be what an allocation of PostgreSQL's returned.
    #[cfg(not(pg_ge_16))]
    #[expect(non_snake_case, reason = "it is PostgreSQL's function")]
    #[inline(always)]
    unsafe fn GetMemoryChunkContext(memory: *mut c_void) -> pg_sys::MemoryContext {
        // SAFETY: this is how PostgreSQL's inline function of this name finds it.
        unsafe { memory.cast::<pg_sys::MemoryContext>().sub(1).read() }
    }

    /// The number of a cache that does not exist, in the entry of a plan that was made for certain
    /// parameters.
    const FOR_PARAMETERS: i32 = i32::MIN + 0x5255;

    /// The name of the memory contexts of the plan cache, as an address: names are constants of PostgreSQL's.
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static OF_CACHE: BackendLocal<Cell<*const c_char>> = BackendLocal::new(Cell::new(std::ptr::null()));
    /// The name of another memory context that had a plan.
    #[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
    static OF_OTHERS: BackendLocal<Cell<*const c_char>> = BackendLocal::new(Cell::new(std::ptr::null()));

    /// Returns where a plan comes from.
    ///
    /// # Safety
    /// `plan` must be a live node, allocated by PostgreSQL as all nodes are.
    #[inline(always)]
    pub unsafe fn plan_origin(plan: &PlannedStmt) -> PlanOrigin {
        // SAFETY: the plan is live, and allocated by itself, by the caller's promise. A live context has a
        // name.
        unsafe {
            if !plan.invalItems.is_null() && is_for_parameters(plan) {
                return PlanOrigin::Custom;
            }
            let memory = std::ptr::from_ref(plan).cast_mut().cast();
            let name = (*GetMemoryChunkContext(memory)).name;
            if name == OF_OTHERS.get() || name != OF_CACHE.get() && !is_of_cache(name) {
                return PlanOrigin::Other;
            }
        }
        PlanOrigin::Generic
    }

    /// Returns whether this is the name of the plan cache's memory contexts, and keeps the answer.
    ///
    /// # Safety
    /// `name` must be the name of a memory context.
    #[cold]
    #[inline(never)]
    unsafe fn is_of_cache(name: *const c_char) -> bool {
        // SAFETY: the name of a memory context is a constant text.
        let is_of_cache = unsafe { CStr::from_ptr(name) } == c"CachedPlan";
        let place = if is_of_cache { &OF_CACHE } else { &OF_OTHERS };
        place.set(name);
        is_of_cache
    }

    /// Returns whether [`note_parameters`] marked the plan.
    ///
    /// # Safety
    /// The plan must be live, and have a list of objects that invalidate it.
    #[inline(never)]
    unsafe fn is_for_parameters(plan: &PlannedStmt) -> bool {
        // SAFETY: a list has at least one element, and the elements of this one are such entries.
        unsafe {
            let items = &*plan.invalItems;
            let last = items.elements.add(items.length as usize - 1);
            (*(*last).ptr_value.cast::<PlanInvalItem>()).cacheId == FOR_PARAMETERS
        }
    }

    /// Marks a new plan if it was made for these parameters.
    ///
    /// # Safety
    /// * `plan` must be a live plan that nobody else uses.
    /// * The caller's frame must be plain: "out of memory" crosses it.
    #[inline(always)]
    pub unsafe fn note_parameters(plan: *mut PlannedStmt, parameters: ParamListInfo) {
        if !parameters.is_null() {
            // SAFETY: the caller promises what the function requires.
            unsafe { mark(plan) };
        }
    }

    /// Marks a plan.
    ///
    /// # Safety
    /// As for [`note_parameters`].
    #[inline(never)]
    #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
    unsafe fn mark(plan: *mut PlannedStmt) {
        // SAFETY: the plan is live, and nobody else uses it. The entry is allocated where the planner
        // allocated the plan.
        unsafe {
            let item = palloc0(size_of::<PlanInvalItem>()).cast::<PlanInvalItem>();
            (*item).type_ = NodeTag::T_PlanInvalItem;
            (*item).cacheId = FOR_PARAMETERS;
            (*plan).invalItems = lappend((*plan).invalItems, item.cast());
        }
    }
}
