//! The hooks with which other extensions add to what EXPLAIN prints. From 18 on there are more of them.

use pgrx::pg_sys;
use std::ffi::c_void;

/// The hooks as they were.
pub struct Hooks {
    index_name: pg_sys::explain_get_index_name_hook_type,
    #[cfg(pg_ge_18)]
    per_plan: pg_sys::explain_per_plan_hook_type,
    #[cfg(pg_ge_18)]
    per_node: pg_sys::explain_per_node_hook_type,
}

impl Hooks {
    /// Returns whether there is any hook.
    pub fn are_set() -> bool {
        // SAFETY: these are globals of plain types, which are valid at all times.
        unsafe {
            let index_name = pg_sys::explain_get_index_name_hook;
            #[cfg(pg_ge_18)]
            {
                let (per_plan, per_node) = (pg_sys::explain_per_plan_hook, pg_sys::explain_per_node_hook);
                index_name.is_some() || per_plan.is_some() || per_node.is_some()
            }
            #[cfg(not(pg_ge_18))]
            index_name.is_some()
        }
    }

    /// Removes the hooks, except those that `stays` returns true for.
    ///
    /// # Safety
    /// [`Hooks::restore`] must be called before other code may need the hooks.
    pub unsafe fn take(mut stays: impl FnMut(*const c_void) -> bool) -> Hooks {
        // SAFETY: these are globals of plain types, which only this thread uses.
        unsafe {
            let hooks = Hooks {
                index_name: pg_sys::explain_get_index_name_hook,
                #[cfg(pg_ge_18)]
                per_plan: pg_sys::explain_per_plan_hook,
                #[cfg(pg_ge_18)]
                per_node: pg_sys::explain_per_node_hook,
            };
            pg_sys::explain_get_index_name_hook =
                hooks.index_name.filter(|hook| stays(*hook as *const c_void));
            #[cfg(pg_ge_18)]
            {
                pg_sys::explain_per_plan_hook = hooks.per_plan.filter(|hook| stays(*hook as *const c_void));
                pg_sys::explain_per_node_hook = hooks.per_node.filter(|hook| stays(*hook as *const c_void));
            }
            hooks
        }
    }

    /// Sets the hooks as they were, but for those that a library has set since [`Hooks::take`].
    pub fn restore(&self) {
        // SAFETY: these are globals of plain types, which only this thread uses.
        unsafe {
            pg_sys::explain_get_index_name_hook = pg_sys::explain_get_index_name_hook.or(self.index_name);
            #[cfg(pg_ge_18)]
            {
                pg_sys::explain_per_plan_hook = pg_sys::explain_per_plan_hook.or(self.per_plan);
                pg_sys::explain_per_node_hook = pg_sys::explain_per_node_hook.or(self.per_node);
            }
        }
    }
}
