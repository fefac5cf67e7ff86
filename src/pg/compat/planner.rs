//! The planner: from 19 on, its hook has one argument more.

use crate::pg::border::unguarded;
use pgrx::pg_sys;
use std::ffi::{c_char, c_int};

unguarded::declare! { "C-unwind":
    pub fn standard_planner(
        query: *mut pg_sys::Query,
        text: *const c_char,
        options: c_int,
        params: pg_sys::ParamListInfo,
        #[cfg(pg_ge_19)]
        explain: *mut pg_sys::ExplainState,
    ) -> *mut pg_sys::PlannedStmt;
}

/// Defines `$hook`, a function that PostgreSQL can call as its hook. It calls `$plan` with the query and a
/// function that plans it as the hook in `$previous` or PostgreSQL itself does.
macro_rules! planner_hook {
    ($hook:ident, $plan:path, $previous:path) => {
        /// Plans a query.
        ///
        /// # Safety
        /// Only PostgreSQL may call this, as its hook of this name, with a live `query`.
        #[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
        unsafe extern "C-unwind" fn $hook(
            query: *mut pgrx::pg_sys::Query,
            text: *const std::ffi::c_char,
            options: std::ffi::c_int,
            params: pgrx::pg_sys::ParamListInfo,
            #[cfg(pg_ge_19)] explain: *mut pgrx::pg_sys::ExplainState,
        ) -> *mut pgrx::pg_sys::PlannedStmt {
            // SAFETY: PostgreSQL passes valid arguments, which are passed on unchanged. The frames are plain.
            unsafe {
                let mut planned = $plan($crate::pg::handles::ToPlan::new(query, text), |_| {
                    let planner = $previous
                        .get()
                        .unwrap_or($crate::pg::compat::planner::standard_planner);
                    $crate::pg::handles::NewPlan::new(planner(
                        query,
                        text,
                        options,
                        params,
                        #[cfg(pg_ge_19)]
                        explain,
                    ))
                });
                $crate::pg::compat::note_parameters(&mut planned, params);
                planned.into_ptr()
            }
        }
    };
}
pub(crate) use planner_hook;
