//! ExecutorRun: its hook's signature lost an argument in 18.

#[cfg(not(pg_ge_18))]
pub use before_18::{call, hook};
#[cfg(pg_ge_18)]
pub use from_18::{call, hook};

#[cfg(pg_ge_18)]
mod from_18 {
    use crate::pg::{hooks, raw};
    use pgrx::pg_sys;

    raw::unguarded! {
        fn standard_ExecutorRun(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64);
    }

    /// Runs a query where PostgreSQL calls the hook.
    ///
    /// # Safety
    /// `query` must be a started QueryDesc.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub unsafe extern "C-unwind" fn hook(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { hooks::executor_run(query, direction, count, false) }
    }

    /// Runs a query by the hook that was set before, else by PostgreSQL's own function.
    ///
    /// # Safety
    /// `query` must be a started QueryDesc.
    pub unsafe fn call(
        previous: pg_sys::ExecutorRun_hook_type,
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        _execute_once: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { previous.unwrap_or(standard_ExecutorRun)(query, direction, count) }
    }
}

#[cfg(not(pg_ge_18))]
mod before_18 {
    use crate::pg::{hooks, raw};
    use pgrx::pg_sys;

    raw::unguarded! {
        fn standard_ExecutorRun(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            execute_once: bool,
        );
    }

    /// Runs a query where PostgreSQL calls the hook.
    ///
    /// # Safety
    /// `query` must be a started QueryDesc.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub unsafe extern "C-unwind" fn hook(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { hooks::executor_run(query, direction, count, execute_once) }
    }

    /// Runs a query by the hook that was set before, else by PostgreSQL's own function.
    ///
    /// # Safety
    /// `query` must be a started QueryDesc.
    pub unsafe fn call(
        previous: pg_sys::ExecutorRun_hook_type,
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { previous.unwrap_or(standard_ExecutorRun)(query, direction, count, execute_once) }
    }
}
