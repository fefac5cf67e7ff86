//! ExecutorRun: its hook's signature lost an argument in 18.

#[cfg(not(any(feature = "pg18", feature = "pg19")))]
pub use before_18::{call, hook};
#[cfg(any(feature = "pg18", feature = "pg19"))]
pub use from_18::{call, hook};

#[cfg(not(any(feature = "pg18", feature = "pg19")))]
mod before_18 {
    use super::super::super::hooks;
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        fn standard_ExecutorRun(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            execute_once: bool,
        );
    }

    /// Runs a query: PostgreSQL calls this instead of its own function.
    ///
    /// # Safety
    /// To be called by PostgreSQL as its ExecutorRun hook, with a started `query`.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub unsafe extern "C-unwind" fn hook(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    ) {
        // SAFETY: PostgreSQL passes a live, started QueryDesc.
        unsafe { hooks::executor_run(query, direction, count, execute_once) }
    }

    /// # Safety
    /// `query` must be a started QueryDesc.
    pub unsafe fn call(
        previous: pg_sys::ExecutorRun_hook_type,
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    ) {
        // SAFETY: `query` is started by the caller's promise, and the other arguments go on unchanged.
        unsafe { previous.unwrap_or(standard_ExecutorRun)(query, direction, count, execute_once) }
    }
}

#[cfg(any(feature = "pg18", feature = "pg19"))]
mod from_18 {
    use super::super::super::hooks;
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        fn standard_ExecutorRun(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
        );
    }

    /// Runs a query: PostgreSQL calls this instead of its own function.
    ///
    /// # Safety
    /// To be called by PostgreSQL as its ExecutorRun hook, with a started `query`.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot.rowsource"))]
    pub unsafe extern "C-unwind" fn hook(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
    ) {
        // SAFETY: PostgreSQL passes a live, started QueryDesc.
        unsafe { hooks::executor_run(query, direction, count, false) }
    }

    /// # Safety
    /// `query` must be a started QueryDesc.
    pub unsafe fn call(
        previous: pg_sys::ExecutorRun_hook_type,
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        _execute_once: bool,
    ) {
        // SAFETY: `query` is started by the caller's promise, and the other arguments go on unchanged.
        unsafe { previous.unwrap_or(standard_ExecutorRun)(query, direction, count) }
    }
}
