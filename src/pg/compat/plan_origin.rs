//! Whether the plan cache made a plan, and whether for all parameters or for those of one execution. From 19
//! on, PostgreSQL notes that in the plan.
//!
//! Before, a plan of the plan cache lies in a memory context of its own. A plan that was made for certain
//! parameters gets an entry at the end of the list of objects that invalidate it, for a cache that does not
//! exist: PostgreSQL copies plans, and the list with them.

use crate::pg::handles::{NewPlan, QueryRef};
use pgrx::pg_sys::ParamListInfo;
use rowsource_core::model::PlanOrigin;

/// Returns where the plan of a query comes from.
#[cfg(pg_ge_19)]
#[inline(always)]
pub fn plan_origin(query: QueryRef) -> PlanOrigin {
    use pgrx::pg_sys::PlannedStmtOrigin::{PLAN_STMT_CACHE_CUSTOM, PLAN_STMT_CACHE_GENERIC};
    match query.plan().planOrigin {
        PLAN_STMT_CACHE_GENERIC => PlanOrigin::Generic,
        PLAN_STMT_CACHE_CUSTOM => PlanOrigin::Custom,
        _ => PlanOrigin::Other,
    }
}

/// Does nothing: PostgreSQL notes it itself.
#[cfg(pg_ge_19)]
#[inline(always)]
pub fn note_parameters(_plan: &mut NewPlan, _parameters: ParamListInfo) {}

#[cfg(not(pg_ge_19))]
pub use before_19::{note_parameters, plan_origin};

#[cfg(not(pg_ge_19))]
mod before_19 {
    use super::{NewPlan, ParamListInfo, PlanOrigin, QueryRef};
    use crate::pg::border::{backend_local::BackendLocal, unguarded};
    use crate::pg::handles::PlannedStmtRef;
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

    /// Returns where the plan of a query comes from.
    #[inline(always)]
    pub fn plan_origin(query: QueryRef) -> PlanOrigin {
        let plan = query.plan();
        if !plan.invalItems.is_null() && is_for_parameters(plan) {
            return PlanOrigin::Custom;
        }
        // SAFETY: the plan of a query was allocated by PostgreSQL, as all nodes are. A live context has a
        // name, which is a constant text.
        unsafe {
            let name = (*GetMemoryChunkContext(plan.as_ptr().cast())).name;
            if name == OF_OTHERS.get() || name != OF_CACHE.get() && !is_of_cache(CStr::from_ptr(name)) {
                return PlanOrigin::Other;
            }
        }
        PlanOrigin::Generic
    }

    /// Returns whether this is the name of the plan cache's memory contexts, and keeps the answer.
    #[cold]
    #[inline(never)]
    fn is_of_cache(name: &'static CStr) -> bool {
        let is_of_cache = name == c"CachedPlan";
        let place = if is_of_cache { &OF_CACHE } else { &OF_OTHERS };
        place.set(name.as_ptr());
        is_of_cache
    }

    /// Returns whether [`note_parameters`] marked the plan.
    #[inline(never)]
    fn is_for_parameters(plan: PlannedStmtRef) -> bool {
        let items = plan.list::<PlanInvalItem>(|plan| &plan.invalItems);
        let last = items.len().checked_sub(1).and_then(|last| items.get(last));
        last.is_some_and(|last| last.cacheId == FOR_PARAMETERS)
    }

    /// Marks a new plan if it was made for these parameters.
    #[inline(always)]
    pub fn note_parameters(plan: &mut NewPlan, parameters: ParamListInfo) {
        if !parameters.is_null() {
            mark(plan);
        }
    }

    /// Marks a plan.
    #[inline(never)]
    #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
    fn mark(plan: &mut NewPlan) {
        let plan = plan.plan_mut();
        // SAFETY: the entry is allocated where the planner allocated the plan. "Out of memory" crosses plain
        // frames, as `NewPlan` promises.
        unsafe {
            let item = palloc0(size_of::<PlanInvalItem>()).cast::<PlanInvalItem>();
            (*item).type_ = NodeTag::T_PlanInvalItem;
            (*item).cacheId = FOR_PARAMETERS;
            plan.invalItems = lappend(plan.invalItems, item.cast());
        }
    }
}
