//! ExecutorRun: from 18 on, its hook has one argument fewer.

use crate::pg::border::unguarded;
use pgrx::pg_sys;

unguarded::declare! { "C-unwind":
    fn standard_ExecutorRun(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        #[cfg(not(pg_ge_18))]
        execute_once: bool,
    );
}

/// Defines `$hook`, a function that PostgreSQL can call as its hook. It calls `$run` with the query, the
/// direction, the number of rows and whether the query runs only once.
macro_rules! executor_run_hook {
    ($hook:ident, $run:path) => {
        /// Runs a query.
        ///
        /// # Safety
        /// Only PostgreSQL may call this, as its hook of this name, with a started `query`.
        #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
        unsafe extern "C-unwind" fn $hook(
            query: *mut pgrx::pg_sys::QueryDesc,
            direction: pgrx::pg_sys::ScanDirection::Type,
            count: u64,
            #[cfg(not(pg_ge_18))] execute_once: bool,
        ) {
            #[cfg(pg_ge_18)]
            let execute_once = false;
            // SAFETY: the query is started, by the caller's promise.
            unsafe { $run(query, direction, count, execute_once) }
        }
    };
}
pub(crate) use executor_run_hook;

/// Runs a query with the previous hook, or with PostgreSQL's own function.
///
/// # Safety
/// `query` must be a started QueryDesc.
#[allow(ffi_unwind_calls, reason = "an error crosses only plain frames")]
pub unsafe fn call(
    previous: pg_sys::ExecutorRun_hook_type,
    query: *mut pg_sys::QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    let run = previous.unwrap_or(standard_ExecutorRun);
    #[cfg(pg_ge_18)]
    let _ = execute_once;
    // SAFETY: the query is started, by the caller's promise.
    unsafe {
        run(
            query,
            direction,
            count,
            #[cfg(not(pg_ge_18))]
            execute_once,
        );
    }
}
